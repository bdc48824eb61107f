"""A tiny encoder, a folder to index, and an index of it; no test touches the network or the home directory."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

# Before numpy is imported, which reads it once: a second thread costs a tiny model more than it gives.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
os.environ.setdefault("LANCE_LOG", "error")  # as the command line sets it, before lance is imported
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # before it is imported: it would ask the network
os.environ["BINOCLE_PRECISION"] = "float32"  # on any processor; tests of bf16 take the variable away
# Thousands of processes start: compile the sources once, not in each. pytest keeps the rewritten tests too.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# No test judges the time that a loaded machine takes.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

WORDS = (
    "the a an of to and in is it that for on with as are was be by this not or from at which but have has had they you "
    "his her its we can will would there their what all if when who more some time no out so up into than them then "
    "cat dog mat sat ran house tax taxes income due year file task cancel timeout retry queue worker server client "
    "network request response error search index vector text document folder python function class return import data "
    "model train test query score water sea ship moon sun light night day king queen city river mountain bread cheese "
    "recipe oven bake butter salt install linux package version release note table row column price name red blue green"
).split()
PIECES = "##ed ##ing ##er ##ly ##ion ##able ##ment ##ness ##est".split()
# Letters, digits and signs of several alphabets, so that every word of them comes apart into known pieces.
CHARACTERS = [
    chr(code) for code in (*range(0x21, 0x7F), *range(0xDF, 0x100), *range(0x3B1, 0x3CA), *range(0x430, 0x450))
]
HAN = list("的一是不了人我在有他天気東京晴")
MTIME = 1_700_000_000  # of every file in `folder`: long enough ago to be relied on


_MEMORY = Path("/dev/shm")  # in memory on Linux
_MEMORY_NEEDED = 4 * 2**30  # bytes


def pytest_configure(config: pytest.Config) -> None:
    """Put temporary folders in memory if there is room: the suite waits for the disk a tenth of its time."""
    if config.option.basetemp or "PYTEST_DEBUG_TEMPROOT" in os.environ or not _MEMORY.is_dir():
        return
    if shutil.disk_usage(_MEMORY).free >= _MEMORY_NEEDED and os.access(_MEMORY, os.W_OK):
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Import the tests without garbage collection, which takes a sixth of the time: modules are no garbage.

    After that it comes more rarely than by default, in the tests too, where it took a tenth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session", autouse=True)
def _nothing_outside(tmp_path_factory: pytest.TempPathFactory):
    """Caches and state go to temporary folders, and the hub is never asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for name in ("STATE", "CONFIG", "DATA"):
            patch.setenv(f"XDG_{name}_HOME", str(tmp_path_factory.mktemp(name.lower())))
        patch.delenv("BINOCLE_CONFIG", raising=False)
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("BINOCLE_TRUST", "all")  # tests copy indexes; those of trust take it back
        for name in ("HF_HOME", "HF_HUB_CACHE", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def _idle_readers():
    """Reader processes that wait for the next pool when their own has ended: to start one takes 0.06 s."""
    from binocle.retriever.readers.pool.process import WorkerProcess, _command

    class IdleReader(WorkerProcess):
        idle: ClassVar[list[IdleReader]] = []  # at most four, and two of the same settings and environment

        def __init__(self, settings: dict) -> None:
            super().__init__(settings)
            self.key = key_of(settings)

        def stop(self) -> tuple[list, str]:
            is_idle = self._ready and not (self.jobs or self.ended or self._retired)
            if not is_idle or len(self.idle) == 4 or [reader.key for reader in self.idle].count(self.key) == 2:
                return super().stop()
            self.idle.append(self)
            return [], ""

        def end(self) -> None:
            super().stop()

    def key_of(settings: dict) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        return json.dumps([_command(settings), environment], sort_keys=True)

    def start(settings: dict) -> IdleReader:
        key = key_of(settings)
        for reader in [reader for reader in IdleReader.idle if reader.key == key]:
            IdleReader.idle.remove(reader)
            if reader._process.poll() is None:
                return reader
            reader.end()
        if len(IdleReader.idle) == 4:
            IdleReader.idle.pop(0).end()
        return IdleReader(settings)

    yield start
    for reader in IdleReader.idle:
        reader.end()


@pytest.fixture(autouse=True)
def _reuse_of_readers(request, _idle_readers):
    """Let reader processes serve one test after another, except in tests of themselves."""
    with pytest.MonkeyPatch.context() as patch:  # its own, which no test undoes
        if "/readers/" not in request.node.nodeid:
            patch.setattr("binocle.retriever.readers.pool.pool.WorkerProcess", _idle_readers)
        yield


@pytest.fixture(scope="session", autouse=True)
def _kept_graphs():
    """Keep the last compiled graphs from one test to the next: to compile that of a tiny model takes 0.1 s."""
    from binocle.retriever.models.bert import model

    class KeptGraphs(weakref.WeakValueDictionary):
        last: ClassVar[deque] = deque(maxlen=24)

        def __setitem__(self, key: tuple, graph: model.BertOpenVINO) -> None:
            size = sum(array.nbytes for array in graph._weights.values())
            if size < 2**23 and graph not in self.last:  # not of the real encoder, which takes 90 MB
                self.last.append(graph)
            super().__setitem__(key, graph)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "_graphs", KeptGraphs())
        yield
        KeptGraphs.last.clear()


@pytest.fixture(scope="session", autouse=True)
def _one_thread_syncs_files():
    """Sync the files of a commit by one thread: in memory a sync takes no time, and to start eight threads does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("binocle.retriever.store.locations.new_files._THREADS", 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def _small_decoders():
    """Train inverters with a network of 256 units for the bag, not 2,048, which take most of a run's time."""
    from binocle.retriever.inversion.decoders.decoder_settings import TextDecoderSettings

    *sizes, wide = TextDecoderSettings.__init__.__defaults__
    assert wide == 2_048
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextDecoderSettings.__init__, "__defaults__", (*sizes, 256))
        yield


@pytest.fixture(scope="session", autouse=True)
def _without_curves():
    """End training runs as without matplotlib, which draws 0.2 s at each; tests of the curves draw them."""
    from binocle.core.errors import MissingExtraError

    def curves(*_: object, **__: object) -> Path:
        raise MissingExtraError("matplotlib", "train", "drawing a plot")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("binocle.training.runs.model_card.curves", curves)
        yield


@pytest.fixture
def without_home(monkeypatch):
    """Be a user without a home folder, as in a container that runs under a number without an entry."""

    def entry(number: int) -> None:
        raise KeyError(number)

    for name in ("HOME", *(f"XDG_{kind}_HOME" for kind in ("CACHE", "CONFIG", "DATA", "STATE"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", entry)


@pytest.fixture
def native_precision(monkeypatch):
    """Compute as a user's process does: in bf16 if the processor has it."""
    monkeypatch.delenv("BINOCLE_PRECISION")


class _NoCollection:
    @staticmethod
    def collect() -> int:
        return 0


@pytest.fixture(autouse=True)
def _no_collection_of_modules():
    """Keep imported modules out of garbage collections, and training runs from forcing one at their end."""
    if "accelerate.utils.memory" in sys.modules:
        vars(sys.modules["accelerate.utils.memory"])["gc"] = _NoCollection
    if len(sys.modules) > _frozen_modules[0] + 20:
        gc.collect()
        gc.freeze()
        _frozen_modules[0] = len(sys.modules)


_frozen_modules = [0]  # how many modules were imported at the last freeze


def build_model(
    folder: Path, *, seed: int = 0, pooling: dict | None = None, normalize: bool = True, max_length: int = 64
) -> Path:
    """A sentence-transformers folder with a random BERT: 2 layers, 4 heads, dimension 32."""
    dim, heads, layers, inner, positions = 32, 4, 2, 64, max(128, max_length)
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *CHARACTERS,
        *(f"##{c}" for c in CHARACTERS),
        *HAN,
        *PIECES,
    ]
    vocabulary += dict.fromkeys(word for word in WORDS if len(word) > 1)
    assert len(set(vocabulary)) == len(vocabulary)
    places = {token: place for place, token in enumerate(vocabulary)}
    random = np.random.default_rng(seed)

    def normal(*shape: int, scale: float) -> np.ndarray:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": normal(len(vocabulary), dim, scale=1),
        "embeddings.position_embeddings.weight": normal(positions, dim, scale=0.1),
        "embeddings.token_type_embeddings.weight": normal(2, dim, scale=0.1),
    }
    dense = {"pooler.dense": (dim, dim)}
    norms = ["embeddings.LayerNorm"]
    for number in range(layers):
        layer = f"encoder.layer.{number}."
        dense |= {f"{layer}attention.self.{name}": (dim, dim) for name in ("query", "key", "value")}
        dense |= {f"{layer}attention.output.dense": (dim, dim)}
        dense |= {f"{layer}intermediate.dense": (inner, dim), f"{layer}output.dense": (dim, inner)}
        norms += [f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
    for name, shape in dense.items():
        weights |= {f"{name}.weight": normal(*shape, scale=0.2), f"{name}.bias": normal(shape[0], scale=0.1)}
    for name in norms:
        weights |= {f"{name}.weight": 1 + normal(dim, scale=0.1), f"{name}.bias": normal(dim, scale=0.1)}

    tokenizer = Tokenizer(models.WordPiece(places, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", places["[CLS]"]), ("[SEP]", places["[SEP]"])],
    )
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])

    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", "utf-8")
    names = ["Transformer", "Pooling"] + ["Normalize"] * normalize
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{name}"}
        for place, (name, path) in enumerate(zip(names, paths, strict=False))
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    write_json(
        folder / "1_Pooling/config.json",
        {"word_embedding_dimension": dim, **(pooling or {"pooling_mode_mean_tokens": True})},
    )
    (folder / "2_Normalize").mkdir(exist_ok=True)
    write_json(
        folder / "config.json",
        {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "hidden_act": "gelu",
            "hidden_size": dim,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": positions,
            "type_vocab_size": 2,
            "vocab_size": len(vocabulary),
            "pad_token_id": 0,
            "position_embedding_type": "absolute",
        },
    )
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": True,
            "model_max_length": max_length,
            **{f"{kind}_token": f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")},
        },
    )
    return folder


def write_json(file: Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value), "utf-8")


@pytest.fixture(scope="session")
def make_model():
    """`build_model(folder, seed=, pooling=, normalize=, max_length=)`."""
    return build_model


def build_reranker(folder: Path, *, seed: int = 0, modules: bool = True) -> Path:
    """A random BERT that scores pairs, laid out as CrossEncoder 6.2 saves it, or else as transformers alone does."""
    build_model(folder, seed=seed, max_length=48)
    for name in ("1_Pooling", "2_Normalize"):
        shutil.rmtree(folder / name)
    for name in ("modules.json", "sentence_bert_config.json"):
        (folder / name).unlink()
    random = np.random.default_rng(seed + 100)
    weights = {f"bert.{name}": array for name, array in load_file(folder / "model.safetensors").items()}
    weights["classifier.weight"] = random.standard_normal((1, 32)).astype(np.float32)
    weights["classifier.bias"] = random.standard_normal(1).astype(np.float32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config |= {"architectures": ["BertForSequenceClassification"]}
    config |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    write_json(folder / "config.json", config)
    if modules:
        module = "sentence_transformers.base.modules.transformer.Transformer"
        write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": module}])
        write_json(folder / "sentence_bert_config.json", {"transformer_task": "sequence-classification"})
        whole = {"model_type": "CrossEncoder", "prompts": {}, "default_prompt_name": None}
        write_json(folder / "config_sentence_transformers.json", whole)
    return folder


@pytest.fixture(scope="session")
def make_reranker():
    """`build_reranker(folder, seed=, modules=)`."""
    return build_reranker


def build_head(folder: Path, task: str, labels: list[str], *, settings: dict | None = None, seed: int = 7) -> Path:
    """A random BERT with a head of transformers: "QuestionAnswering", "TokenClassification" and so on.

    :param settings: the content of its binocle.json.
    """
    build_reranker(folder, modules=False)
    weights = load_file(folder / "model.safetensors")
    weights = {name: array for name, array in weights.items() if not name.startswith("classifier")}
    layer = "qa_outputs" if task == "QuestionAnswering" else "classifier"
    random = np.random.default_rng(seed)
    weights[f"{layer}.weight"] = random.standard_normal((len(labels), 32)).astype(np.float32)
    weights[f"{layer}.bias"] = random.standard_normal(len(labels)).astype(np.float32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    names = {str(number): label for number, label in enumerate(labels)}
    config |= {"architectures": [f"BertFor{task}"], "id2label": names}
    config |= {"label2id": {label: number for number, label in enumerate(labels)}}
    write_json(folder / "config.json", config)
    if settings is not None:
        write_json(folder / "binocle.json", settings)
    return folder


@pytest.fixture(scope="session")
def make_head():
    """`build_head(folder, task, labels, settings=, seed=)`."""
    return build_head


@pytest.fixture(scope="session")
def _run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all processes of this run."""
    root = tmp_path_factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root  # it is there until all of them end


@pytest.fixture(scope="session")
def made_once(_run: Path):
    """`made_once(name, make)`: the folder that `make(folder)` filled, one for all processes of this run."""

    def path(name: str, make: Callable[[Path], object]) -> Path:
        with (_run / f"{name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.fstat(lock.fileno()).st_size:
                make(_run / name)
                lock.write("made")
        return _run / name

    return path


@pytest.fixture(scope="session")
def tiny_model(made_once: Callable[[str, Callable[[Path], object]], Path]) -> str:
    """The path of a model that every part of the engine can use. Not to be changed."""
    return str(made_once("tiny", build_model))


@pytest.fixture(scope="session")
def tiny(tiny_model: str):
    """That model's encoder. Not to be moved to a GPU."""
    from binocle.retriever.models.load import load_encoder

    encoder = load_encoder(tiny_model)
    yield encoder
    assert vars(encoder)["_gpu"] is None


FILES = {
    "notes/cats.txt": "The cat sat on the mat.\n\nThe dog ran to the house at night. It was not due until the morning.\n",
    "notes/taxes.md": "# Taxes\n\nIncome tax is due every year.\n\n## Filing\n\nFile the return before the moon is full, or pay.\n",
    "notes/guide/tasks.md": "# Tasks\n\n## Cancel a task\n\nCall `cancel()` on the task. A cancelled task raises an error in the worker.\n\n"
    "## Timeouts\n\nA request that takes more time than the timeout is retried by the client.\n",
    "src/queue.py": '"""A queue of work."""\n\n\nclass Queue:\n    def put(self, item):\n        self.items.append(item)\n\n\n'
    "def retry(function, times):\n    for _ in range(times):\n        try:\n            return function()\n        except OSError:\n            continue\n",
    "web/bread.html": "<!doctype html><html><head><title>Bread</title></head><body><h1>Bread</h1>\n"
    "<p>Bake the bread in a hot oven.</p>\n<h2>Cheese</h2><p>Salt the cheese, then wait a year.</p></body></html>\n",
    "data/prices.csv": "name,price\nbread,3\ncheese,12\nsalt,1\n",
    "README.md": "# A folder\n\nThe ship sails the sea by the light of the moon.\n",
    ".gitignore": "*.log\nbuild/\n",
    "server.log": "error: the network is gone\n",
    "build/out.txt": "nothing to see\n",
    "picture.bin": "\x00\x01\x02\x00",
}


def write_files(folder: Path, files: dict[str, str]) -> Path:
    """Write texts below a folder, as old as `MTIME`."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        os.utime(file, (MTIME, MTIME))
    return folder


@pytest.fixture(scope="session")
def write():
    """`write_files(folder, {name: text})`."""
    return write_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A few files of different formats, some of them ignored."""
    return write_files(tmp_path / "folder", FILES)


@pytest.fixture(scope="session")
def _synced(tmp_path_factory: pytest.TempPathFactory, tiny_model: str) -> Path:
    from binocle import Retriever

    root = write_files(tmp_path_factory.mktemp("synced") / "folder", FILES)
    Retriever.open(root, model=tiny_model).sync()
    return root


@pytest.fixture
def retriever(folder: Path, _synced: Path):
    """A Retriever of `folder`, with a current index in `.binocle`."""
    from binocle import Retriever

    shutil.copytree(_synced / ".binocle", folder / ".binocle")
    return Retriever.open(folder)


@pytest.fixture
def small_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lance's fragments are full at five rows, not at a million: one that it writes anew goes behind those after it."""
    from lance.dataset import DatasetOptimizer

    compact = DatasetOptimizer.compact_files
    monkeypatch.setattr(
        DatasetOptimizer, "compact_files", lambda self, **how: compact(self, **{**how, "target_rows_per_fragment": 5})
    )


def build_masked(folder: Path, family: str = "bert", *, seed: int = 0) -> Path:
    """A transformers folder with a random BERT or RoBERTa and its head for masked words: 2 layers, dimension 32."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM, RobertaTokenizerFast

    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if family == "bert":
        build_model(folder)
        for name in ("modules.json", "sentence_bert_config.json"):
            (folder / name).unlink()
        vocabulary = len((folder / "vocab.txt").read_text("utf-8").splitlines())
        model = BertForMaskedLM(BertConfig(vocab_size=vocabulary, max_position_embeddings=64, **sizes))
    else:
        trained = Tokenizer(models.BPE())
        trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
        trained.train_from_iterator([f"The {word} {word}" for word in WORDS], trainer)
        places = trained.get_vocab()
        trained.post_processor = processors.RobertaProcessing(("</s>", places["</s>"]), ("<s>", places["<s>"]))
        trained.decoder = decoders.ByteLevel()
        RobertaTokenizerFast(tokenizer_object=trained, model_max_length=64).save_pretrained(folder)
        config = RobertaConfig(vocab_size=len(places), max_position_embeddings=66, type_vocab_size=1, **sizes)
        model = RobertaForMaskedLM(config)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_masked():
    """`build_masked(folder, "bert" or "roberta", seed=)`."""
    return build_masked


@pytest.fixture(scope="session")
def masked_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By family. Not to be changed."""
    root = tmp_path_factory.mktemp("masked")
    return {family: build_masked(root / family, family) for family in ("bert", "roberta")}


class Ran(NamedTuple):
    """What a command did; equal to the tuple of the three."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """`run("search", "cat", stdin=b"")`: the entry point in this process, with all that reaches either stream."""
    from binocle.cli import main

    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # which `main` would set for good

    def running(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "argv", ["binocle", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.flush()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Ran(code or 0, *capfd.readouterr())

    return running


@contextlib.contextmanager
def _warm_start(note: Path, *modules: str, warnings: str = "error"):
    """The words before the arguments of `binocle`, or before `-c CODE`, for a quick start in a process of its own.

    :param note: a file of this run with the address of the process that is forked: the first to need it starts it.
    """
    program = str(Path(__file__).with_name("warm_start.py"))
    with contextlib.ExitStack() as stack:
        with note.open("a+") as noted:
            fcntl.flock(noted, fcntl.LOCK_EX)
            noted.seek(0)
            address = noted.read()
            if not (address and _is_joined(address, stack)):
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
                address = f"{folder}/socket"  # of at most 107 bytes
                command = [sys.executable, "-W", warnings, program, address, "--serve", *modules]
                server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                stack.enter_context(server)  # closes its input, and waits until others need it no longer
                assert server.stdout.readline() == b"ready\n"
                noted.truncate(0)
                noted.write(address)
        yield [sys.executable, "-ISs", program, address]


def _is_joined(address: str, stack: contextlib.ExitStack) -> bool:
    """Keep the process at an address running until the stack ends, if it still runs."""
    user = stack.enter_context(socket.socket(socket.AF_UNIX))
    with contextlib.suppress(OSError):
        user.connect(f"{address}.users")
        return bool(user.recv(1))
    return False


@pytest.fixture(scope="session")
def pdf_file():
    """`pdf_file("A line.")`: the bytes of a PDF file of one page."""

    def making(text):
        stream = f"BT /F1 24 Tf 72 700 Td ({text}) Tj ET"
        objects = (
            "<</Type/Catalog/Pages 2 0 R>>",
            "<</Type/Pages/Kids[3 0 R]/Count 1>>",
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
            f"<</Length {len(stream)}>>\nstream\n{stream}\nendstream",
            "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        )
        body = "".join(f"{number} 0 obj\n{content}\nendobj\n" for number, content in enumerate(objects, 1))
        return f"%PDF-1.4\n{body}trailer\n<</Root 1 0 R/Size 6>>\n%%EOF\n".encode()

    return making


@pytest.fixture(scope="session")
def quick_start(_run: Path):
    """The words before the arguments of `binocle` that start it in a process of its own, quickly: see `warm_start.py`."""
    with _warm_start(_run / "quick_start") as words:
        yield words


@pytest.fixture(scope="session")
def quick_training(_run: Path):
    """The words before `-c CODE` that start code for training in a process of its own, with torch imported already."""
    with _warm_start(
        _run / "quick_training",
        "binocle.training.encoders.encoder_training",
        "binocle.training.encoders.train",
        "binocle.training.inversion.inverter_training",
        "binocle.training.inversion.train",
        "binocle.training.pretraining.masked_training",
        "binocle.training.pretraining.pretrain",
        "tabulate",  # torch imports it when a process ends
        warnings="ignore",
    ) as words:
        yield words


@pytest.fixture
def here(retriever, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The indexed folder, as the working directory."""
    monkeypatch.chdir(folder)
    return folder
