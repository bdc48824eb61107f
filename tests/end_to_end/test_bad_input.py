"""Bad input of every kind, through the command line and the library.

Each case ends with exit code 2 and one clear line that names the mistake, and leaves the index unchanged.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from binocle import BinocleError, Retriever, evaluate, load_encoder
from binocle.core.errors import (
    DamagedError,
    EncoderMismatchError,
    InputError,
    LockedError,
    ModelNotFoundError,
    NoIndexError,
    StoreError,
)
from binocle.retriever.store.store import Store
from binocle.retriever.store.writer import open_writer

ESCAPES = "\x1b]0;x\x07"


NOTES = ("lock", "lock.json", "latest_version_hint.json")  # who wrote last, and where Lance looks first


def files_of(index: Path) -> dict[str, bytes]:
    """Every byte of an index, but for notes that decide nothing."""
    names = sorted(path for path in index.rglob("*") if path.is_file() and path.name not in NOTES)
    return {str(path.relative_to(index)): path.read_bytes() for path in names}


def answers(index: Path) -> list[tuple[str, int, float]]:
    retriever = Retriever.open(index)
    return [
        (hit.path, hit.char_start, hit.score)
        for query, mode in (("cancel a task", "hybrid"), ("tax", "lexical"))
        for hit in retriever.search(query, mode=mode)
    ]


@pytest.fixture
def assert_refused(run, here: Path):
    """Assert that a command fails with one line that names the mistake: `assert_refused("search", "", naming="empty")`."""
    index = here / ".binocle"
    before = files_of(index)

    def check(*arguments: object, naming: str, stdin: bytes = b"") -> str:
        done = run(*arguments, stdin=stdin)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("binocle: ")
        assert done.err.count("\n") == 1
        assert done.err.endswith("\n")
        assert "\x1b" not in done.err
        assert naming in done.err
        assert len(done.err) < 800
        assert files_of(index) == before  # the very bytes, so the very answers
        return done.err

    return check


# Words that are no command, option or value


@pytest.mark.parametrize(
    ("words", "naming"),
    [
        (["serch", "x"], "No such command 'serch'"),
        (["--bogus"], "'--bogus'"),
        (["search", "x", "--bogus"], "'--bogus'"),
        (["search"], "'QUERY'"),
        (["similar"], "'FILE:LINE'"),
        (["show"], "'FILE[:LINE[-LINE]]'"),
        (["forget"], "'PATH'"),
        (["evaluate"], "'DATA'"),
        (["compare"], "'CONTENDER...'"),
        (["compare", "a", "b"], "'--data'"),
        (["compare", "a", "b", "--data", "d", "--mode", "dense"], "'dense'"),
        (["compare", "a", "b", "--data", ""], "''"),
        (["compare", "a", "b", "--data", "d", "--plots", "gif"], "'gif'"),
        (["completion"], "bash"),
        (["completion", "tcsh"], "'tcsh'"),
        (["similar", "x:1", ".", "surplus"], "surplus"),
        (["forget", "x", ".", "surplus"], "surplus"),
        (["search", "x", "-k"], "'-k'"),
        (["search", "x", "-k", "ten"], "'ten'"),
        (["search", "x", "-k", "1.5"], "'1.5'"),
        (["search", "x", "-k", ""], "''"),
        (["search", "x", "-k", "-1"], "-1"),
        (["search", "x", "-k", "0"], "'-k': 0 is not in the range x>=1"),
        (["similar", "README.md:1", "-k", "0"], "'-k': 0 is not in the range x>=1"),
        (["search", "x", "--mode", "bm25"], "'bm25'"),
        (["search", "x", "--mode", ""], "''"),
        (["evaluate", ".", "--mode", "dense"], "'dense'"),
        (["search", "x", "--rerank-depth", "50"], "--rerank-depth goes with --rerank"),
        (["search", "x", "--rerank-seconds", "1"], "--rerank-seconds goes with --rerank"),
        (["evaluate", ".", "--rerank-depth", "9"], "--rerank-depth goes with --rerank"),
        (["compare", "a", "lexical", "-d", "d", "--rerank-depth", "9"], "goes with a contender MODEL+RERANKER"),
        (["files", "--state", "lost"], "'lost'"),
        (["search", "x", "--where"], "'--where'"),
        (["index", ".", "--json=yes"], "'--json'"),
    ],
    ids=str,
)
def test_usage(words: list[str], naming: str, assert_refused):
    assert " --help')" in assert_refused(*words, naming=naming)


# Queries


@pytest.mark.parametrize(
    ("words", "stdin"),
    [([""], b""), (["  \t"], b""), (["\n"], b""), (["-"], b""), (["-"], b" \n\t "), (["\u3000\u00a0"], b"")],
    ids=str,
)
def test_empty_query(words: list[str], stdin: bytes, assert_refused):
    assert_refused("search", *words, stdin=stdin, naming="the query is empty")
    assert_refused("search", *words, "--json", stdin=stdin, naming="the query is empty")


def test_endless_query(assert_refused):
    assert_refused("search", "-", stdin="龍".encode() * 100_001, naming="100,001 characters: expected 100,000 at most")


@pytest.mark.parametrize(
    "words", [("fill", "-", "--model", "no-such-model"), ("look", "-")], ids=lambda words: words[0]
)
def test_text_that_is_not_utf_8(words: tuple[str, ...], assert_refused):
    naming = "standard input is not UTF-8 (invalid continuation byte at byte 3): save it as UTF-8"
    assert_refused(*words, stdin=b"caf\xe9 [MASK]", naming=naming)


# Folders and indexes


@pytest.mark.parametrize(
    ("words", "naming"),
    [
        (["index", "nowhere"], "nowhere"),
        (["index", ""], "''"),
        (["index", "README.md"], "README.md"),
        (["index", "README.md/x"], "README.md/x"),
        (["index", ".binocle"], ".binocle"),
        (["index", "/dev/null"], "/dev/null"),
        (["index", f"no{ESCAPES}"], "no␛]0;x␇"),
        (["index", "no\udcff"], "no"),
        (["index", "x" * 300], "xxx"),
        (["index", ".", "--index", "README.md"], "README.md"),
        (["index", ".", "--index", "README.md/x"], "README.md/x"),
        (["index", ".", "--index", "/proc/nowhere"], "/proc/nowhere"),
        (["index", "notes", "--index", ".binocle"], "notes"),
        (["index", "..", "--index", "."], ".."),
        (["search", "x", "nowhere"], "nowhere"),
        (["status", "README.md"], "README.md is a file"),
        (["search", "x", "/"], "no index in /"),
        (["search", "x", ".."], "make one with 'binocle index ..'"),
        (["search", "x", "/", "--index", "."], "/"),
        (["search", "x", "nowhere", "--index", "."], "nowhere"),
        (["search", "x", "--index", "nowhere"], "nowhere"),
        (["search", "x", "--index", "README.md"], "README.md"),
        (["search", "x", "--index", "notes"], "notes"),
        (["similar", "README.md:1", "nowhere"], "nowhere"),
        (["show", "README.md", "--index", "nowhere"], "nowhere"),
        (["status", "nowhere"], "nowhere"),
        (["status", "--index", "notes"], "notes"),
        (["files", "/"], "no index in /"),
        (["files", "/", "--index", "."], "/"),
        (["verify", "--index", "nowhere", "--repair"], "nowhere"),
        (["forget", "README.md", "--index", "nowhere"], "nowhere"),
        (["evaluate", "nowhere"], "nowhere"),
        (["evaluate", "README.md"], "README.md"),
        (["evaluate", "notes"], "corpus.jsonl"),
        (["evaluate", "data/prices.csv"], "data/prices.csv:2 has the columns 'name', 'price': expected"),
        (["evaluate", "data/prices.csv", "--mode", "lexical"], "--mode is for collections"),
        (["evaluate", "data/prices.csv", "--qrels", "x"], "--qrels is for collections"),
        (["evaluate", "notes", "--queries", "README.md", "--qrels", "nowhere"], "README.md:1: expected an id"),
        (["compare", "lexical", "--data", "notes"], "at least two contenders"),
        (["compare", "lexical", "a@x", "--data", "notes"], "'x' is no mode and no pooling"),
        (["compare", "lexical", "a", "--data", "notes"], "corpus.jsonl"),
        (["compare", "lexical", "a", "--data", "nowhere"], "nowhere"),
        (["compare", "lexical", "a", "--data", "data/prices.csv"], "prices.csv:2"),
    ],
    ids=str,
)
def test_unusable_folder_or_index(words: list[str], naming: str, assert_refused, here):
    listed = sorted(here.parent.rglob("*"))
    assert_refused(*words, naming=naming)
    assert [path for path in sorted(here.parent.rglob("*")) if path not in listed] in (
        [],
        [here / ".binocle/lock.json"],
    )


def test_index_is_never_made_among_other_files(here: Path, tmp_path: Path, assert_refused):
    """A folder that has `.binocle` for a name but holds something else is not taken over."""
    foreign = tmp_path / "foreign/.binocle"
    foreign.mkdir(parents=True)
    (foreign / "keep.txt").write_text("mine")
    assert_refused("index", ".", "--index", foreign, naming=str(foreign))
    assert [path.name for path in foreign.iterdir()] == ["keep.txt"]


def test_index_of_another_folder(here: Path, tmp_path: Path, write, assert_refused):
    write(tmp_path / "other", {"a.txt": "The sea.\n"})
    message = assert_refused("index", tmp_path / "other", "--index", here / ".binocle", naming=str(tmp_path / "other"))
    assert str(here) in message


def test_indexed_folder_that_has_vanished(here: Path, tmp_path: Path, monkeypatch, assert_refused):
    index = shutil.copytree(here / ".binocle", tmp_path / "index")
    settings = json.loads((index / "settings.json").read_text())
    (index / "settings.json").write_text(json.dumps(settings | {"folder": str(tmp_path / "vanished")}))
    assert_refused("index", tmp_path / "vanished", "--index", index, naming=str(tmp_path / "vanished"))
    with pytest.raises(InputError, match="vanished"):
        Retriever.open(index).sync()
    assert len(Retriever.open(index).search("tax", mode="lexical")) == 1  # the index is all there


# Filters


@pytest.mark.parametrize(
    "where",
    [
        "nonsense",
        "",
        " ",
        "=x",
        "path=",
        "path",
        "two words=x",
        "type>md",
        "path<x",
        "modified>yesterday",
        "modified=2026-13-45",
        "modified>=99999-01-01",
        "size>big",
        "size>1XB",
        "size>-3",
        "size>1.2.3",
        "size>nan",
        f"modified={ESCAPES}",
    ],
    ids=repr,
)
def test_filter_that_cannot_be_read(where: str, assert_refused):
    naming = {"path<x": "path", "type>md": "type", f"modified={ESCAPES}": "0;x"}.get(
        where, where.split("=")[-1].split(">")[-1]
    )
    assert_refused("search", "x", "--where", where, naming=naming)
    assert_refused("similar", "README.md:1", "-w", "type=md", "-w", where, naming=naming)


# Places


@pytest.mark.parametrize(
    ("words", "naming"),
    [
        (["similar", "README.md"], "'README.md' is not a citation"),
        (["similar", "README.md:x"], "'README.md:x'"),
        (["similar", "README.md:-3"], "'README.md:-3'"),
        (["similar", "README.md:²"], "'README.md:²'"),
        (["similar", "README.md:0"], "line 0"),
        (["similar", "README.md:999"], "line 999"),
        (["similar", f"README.md:{10**30}"], f"line {10**30}"),
        (["similar", "README.md:" + "9" * 5_000], "README.md:9"),
        (["similar", ":3"], "':3'"),
        (["similar", "nowhere.md:3"], "nowhere.md"),
        (["similar", "notes:3"], "notes"),
        (["similar", "picture.bin:1"], "no reader for .bin files"),
        (["show", "nowhere.md"], "'nowhere.md'"),
        (["show", "notes"], "notes"),
        (["show", ""], "''"),
        (["show", "/etc/passwd"], "'/etc/passwd'"),
        (["show", "../../etc/passwd"], "'../../etc/passwd'"),
        (["show", "picture.bin"], "no reader for .bin files"),
        (["show", "picture.bin:1"], "no reader for .bin files"),
        (["show", "server.log"], "ignored by .gitignore"),
        (["show", "README.md:0"], "line 0"),
        (["show", "README.md:99"], "line 99"),
        (["show", "README.md:3-1"], "lines 3 to 1"),
        (["show", "README.md:" + "9" * 5_000], "is not in the index"),
        (["show", f"x{ESCAPES}"], "0;x"),
        (["forget", "nowhere.md"], "'nowhere.md'"),
        (["forget", ""], "''"),
        (["forget", "/"], "'/'"),
        (["forget", "/etc"], "'/etc'"),
        (["forget", "notes/*"], "'notes/*'"),
        (["forget", "note"], "'note'"),
        (["forget", "x" * 300], "xxx"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_citation_of_a_document_that_is_not_in_the_index(words: list[str], naming: str, assert_refused):
    assert_refused(*words, naming=naming)


def test_forgotten_document_has_no_text_to_show(here: Path, run):
    run("forget", "README.md")
    for words in (["show", "README.md"], ["similar", "README.md:1"]):
        done = run(*words)
        assert (done.code, done.out) == (2, "")
        assert done.err == "binocle: 'README.md' was forgotten on request: 'binocle index --retry' reads it again\n"


# Models


def model_without(name: str):
    return lambda folder: (folder / name).unlink()


def model_with(name: str, content: str | bytes):
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def model_with_config(**fields: object):
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | fields))

    return change


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04\x95cos\nsystem\n(S'touch /tmp/owned'\ntR.")


def shorter(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


MODELS = {
    "no weights": (model_without("model.safetensors"), "safetensors"),
    "pickled weights": (pickled, "safetensors"),
    "weights cut short": (shorter, "model.safetensors"),
    "empty weights": (model_with("model.safetensors", b""), "model.safetensors"),
    "random weights": (model_with("model.safetensors", bytes(range(256)) * 40), "model.safetensors"),
    "no config": (
        lambda folder: [(folder / name).unlink() for name in ("config.json", "modules.json")],
        "modules.json",
    ),
    "config not JSON": (model_with("config.json", "{"), "config.json"),
    "config a list": (model_with("config.json", "[]"), "config.json"),
    "config binary": (model_with("config.json", b"\xff\xfe\x00"), "config.json"),
    "config without sizes": (model_with("config.json", '{"model_type": "bert", "hidden_act": "gelu"}'), "config.json"),
    "layers not a number": (model_with_config(num_hidden_layers="x"), "num_hidden_layers"),
    "more layers than weights": (model_with_config(num_hidden_layers=9), "model.safetensors"),
    "no heads": (model_with_config(num_attention_heads=0), "num_attention_heads"),
    "modules not JSON": (model_with("modules.json", "nonsense"), "modules.json"),
    "modules an object": (model_with("modules.json", "{}"), "modules.json"),
    "modules of numbers": (model_with("modules.json", "[1]"), "m"),
    "pooling unknown to us": (model_with("1_Pooling/config.json", '{"pooling_mode": 3}'), "m"),
    "length not a number": (model_with("sentence_bert_config.json", '{"max_seq_length": "x"}'), "'x'"),
    "tokenizer not JSON": (model_with("tokenizer.json", "nonsense"), "tokenizer.json"),
    "tokenizer empty": (model_with("tokenizer.json", "{}"), "tokenizer.json"),
}


@pytest.mark.parametrize("name", MODELS)
def test_model_folder_that_is_broken(name: str, here: Path, tmp_path: Path, assert_refused, tiny_model):
    broken = shutil.copytree(tiny_model, tmp_path / "m")
    change, naming = MODELS[name]
    change(broken)
    assert_refused("index", ".", "--index", tmp_path / "new", "--model", broken, naming=naming)
    assert_refused("index", ".", "--model", broken, naming=str(broken))  # perhaps for not being the index's model
    assert not (tmp_path / "new").exists()
    with pytest.raises(BinocleError):
        load_encoder(str(broken))


@pytest.mark.parametrize(
    ("model", "naming"),
    [
        ("no-such-model", "no-such-model"),
        ("someone/no-such-model", "someone/no-such-model"),
        ("/no/such/folder", "/no/such/folder"),
        ("./no-such-folder", "./no-such-folder"),
        ("README.md", "README.md"),
        ("notes", "notes"),
        ("no\x1bsuch", r"no\x1bsuch"),
        ("../../../etc", "etc"),
        ("https://example.org/model", "https://example.org/model"),
    ],
)
def test_model_that_is_not_there(model: str, naming: str, here: Path, tmp_path: Path, assert_refused):
    assert_refused("index", ".", "--index", tmp_path / "new", "--model", model, naming=naming)
    assert_refused("index", ".", "--model", model, naming=naming)
    assert not (tmp_path / "new").exists()


def test_another_model_than_that_of_the_index(here: Path, tmp_path: Path, assert_refused, make_model, tiny_model):
    model = make_model(tmp_path / "other", seed=1)
    message = assert_refused("index", ".", "--model", model, naming=str(model))
    assert tiny_model in message
    assert_refused("search", "x", "--model", model, naming=str(model))
    for call in (
        Retriever.search,
        lambda retriever, _: retriever.sync(),
        lambda retriever, _: retriever.add([{"text": "x"}]),
    ):
        with pytest.raises(EncoderMismatchError, match="was made with"):
            call(Retriever.open(here, model=str(model)), "x")


def test_model_that_changed_after_indexing(here: Path, tmp_path: Path, make_model, run):
    make_model(tmp_path / "m")
    run("index", ".", "--index", tmp_path / "index", "--model", tmp_path / "m")
    before = files_of(tmp_path / "index")
    make_model(tmp_path / "m", seed=1)
    for words in (["search", "x"], ["index", "."]):
        done = run(*words, "--index", tmp_path / "index")
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert "fingerprint" in done.err
    assert files_of(tmp_path / "index") == before


def test_model_that_is_gone_after_indexing(here: Path, tmp_path: Path, make_model, run):
    make_model(tmp_path / "m")
    run("index", ".", "--index", tmp_path / "index", "--model", tmp_path / "m")
    (tmp_path / "m").rename(tmp_path / "moved")
    done = run("search", "x", "--index", tmp_path / "index")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert str(tmp_path / "m") in done.err
    assert run("search", "cheese", "--index", tmp_path / "index", "--model", tmp_path / "moved").code == 0


# Damaged indexes

COMMANDS = [
    ["search", "tax"],
    ["search", "tax", "--mode", "lexical"],
    ["similar", "README.md:1"],
    ["show", "README.md"],
    ["status"],
    ["files"],
    ["verify"],
    ["verify", "--repair"],
    ["forget", "README.md"],
    ["index", "."],
]

SAMPLE_COMMANDS = [["search", "tax"], ["status"], ["verify", "--repair"], ["forget", "README.md"], ["index", "."]]

JSON_DAMAGE = {
    "empty": b"",
    "cut short": b'{"documents": 2, "chu',
    "binary": bytes(range(256)),
    "UTF-16": '{"documents": 2}'.encode("utf-16"),
    "null": b"null",
    "a list": b"[]",
    "no fields": b"{}",
    "deep": b"[" * 100_000,
}


def assert_damage_reported(run, index: Path, naming: str, commands: list[list[str]]) -> None:
    """Every command that meets the damage says so, and none makes it worse. Some have no need of the damaged part."""
    before = files_of(index)
    refusals = 0
    for words in commands:
        done = run(*words)
        assert "Traceback" not in done.err
        if done.code == 2:
            refusals += 1
            assert done.out == "", words
            assert done.err.count("\n") == 1, words
            assert naming in done.err, words
            assert len(done.err) < 600, words
            assert files_of(index) == before, words
        else:
            assert words[0] in ("show", "status", "files", "similar", "search"), words
    assert refusals >= len(commands) // 2


@pytest.mark.parametrize("file", ["HEAD.json", "settings.json"])
@pytest.mark.parametrize("damage", JSON_DAMAGE)
def test_index_whose_json_is_damaged(file: str, damage: str, here: Path, run):
    (here / ".binocle" / file).write_bytes(JSON_DAMAGE[damage])
    (here / ".binocle/HEAD.previous.json").unlink()  # else the state before answers
    assert_damage_reported(run, here / ".binocle", file, COMMANDS if damage == "empty" else SAMPLE_COMMANDS)
    with pytest.raises(StoreError, match=file):
        Retriever.open(here).search("tax")


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [
        ("HEAD.json", "documents", "abc"),
        ("HEAD.json", "documents", None),
        ("HEAD.json", "documents", -1),
        ("HEAD.json", "documents", 999),
        ("HEAD.json", "chunks", 10**30),
        ("HEAD.json", "chunks", [1]),
        ("HEAD.json", "chunks", True),
        ("HEAD.json", "next_document", "x"),
        ("HEAD.json", "next_chunk", -5),
        ("HEAD.json", "rows", None),
        ("HEAD.json", "vectors", 1),
        ("HEAD.json", "vectors", {}),
        ("HEAD.json", "words", 1),
        ("HEAD.json", "words", ""),
        ("HEAD.json", "words", {}),
        ("HEAD.json", "shards", "none"),
        ("HEAD.json", "words", ["../elsewhere"]),
        ("HEAD.json", "commits", "x"),
        ("HEAD.json", "surplus", 1),
        ("settings.json", "format", 999),
        ("settings.json", "format", None),
        ("settings.json", "format", "1"),
        ("settings.json", "folder", 1),
        ("settings.json", "folder", ["x"]),
        ("settings.json", "folder", "a\x00b"),
        ("HEAD.json", "encoder", None),
        ("HEAD.json", "encoder", []),
        ("HEAD.json", "encoder", {"model": None, "fingerprint": "x", "dim": 32}),
        ("HEAD.json", "encoder", {"model": 7, "fingerprint": "x", "dim": 32}),
        ("HEAD.json", "encoder", {"model": "m", "fingerprint": None, "dim": 32}),
        ("HEAD.json", "encoder", {"model": "m", "fingerprint": {}, "dim": 32}),
        ("HEAD.json", "encoder", {"model": "m", "fingerprint": "x", "dim": "32"}),
        ("HEAD.json", "encoder", {"model": "m", "fingerprint": "x", "dim": -1}),
        ("HEAD.json", "encoder", {"model": "m", "fingerprint": "x", "dim": 0}),
        ("HEAD.json", "encoder", {"model": "m", "fingerprint": "x", "dim": 32, "surplus": 1}),
        ("HEAD.json", "previous", {"model": "m"}),
        ("HEAD.json", "demand", 0.9),
        ("HEAD.json", "demand", {"recall": "0.9"}),
        ("HEAD.json", "demand", {"recall": 2}),
        ("HEAD.json", "demand", {"surplus": 1}),
        ("settings.json", "model", "m"),
        ("settings.json", "surplus", 1),
        ("settings.json", "id", 1),
        ("settings.json", "id", "../../x"),
    ],
)
def test_index_whose_json_holds_an_impossible_value(file: str, field: str, value: object, here: Path, run):
    path = here / ".binocle" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    path.with_name("HEAD.previous.json").unlink()  # else the state before answers
    assert_damage_reported(run, here / ".binocle", ".binocle", SAMPLE_COMMANDS)
    with pytest.raises(StoreError, match="index"):
        Retriever.open(here).search("tax")


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def cut(path: Path) -> None:
    for file in path.rglob("*.*") if path.is_dir() else [path]:
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def garble(path: Path) -> None:
    for file in path.rglob("*.*") if path.is_dir() else [path]:
        if file.is_file():
            file.write_bytes(np.random.default_rng(0).bytes(max(100, file.stat().st_size)))


@pytest.mark.parametrize("damage", [remove, cut, garble])
@pytest.mark.parametrize(
    "path", ["chunks.lance", "chunks.lance/data", "chunks.lance/_versions", "documents.lance", "documents.lance/data"]
)
def test_index_whose_tables_are_damaged(path: str, damage, here: Path, run):
    damage(here / ".binocle" / path)
    assert_damage_reported(run, here / ".binocle", path.split("/")[0], COMMANDS)
    with pytest.raises(DamagedError, match=path.split("/")[0]):
        Retriever.open(here).search("tax")
    for words in (["index", "."], ["verify", "--repair"]):  # the state before has lost the same files
        assert run(*words).err.endswith(f": remove the folder {here}/.binocle and index again\n")


def test_index_without_its_state_names_the_one_remedy_that_works(here: Path, run):
    index, answered = here / ".binocle", answers(here / ".binocle")
    (index / "HEAD.json").unlink()
    remedy = "'binocle verify --repair' goes back to the state before the last commit"
    assert run("index", ".").err == f"binocle: there is no {index}/HEAD.json: {remedy}\n"
    assert run("verify", "--repair").out.endswith("clean\n")
    assert answers(index) == answered
    (index / "HEAD.json").unlink()
    (index / "HEAD.previous.json").write_text("{}")
    for words in (["index", "."], ["verify", "--repair"], ["search", "tax"]):
        remedy = f"remove the folder {index} and index again, unless a backup has the file"
        assert run(*words).err == f"binocle: there is no {index}/HEAD.json: {remedy}\n"
    (index / "HEAD.previous.json").unlink()
    assert run("search", "tax").err.endswith("make one with 'binocle index .'\n")
    assert run("index", ".").err == f"binocle: there is no {index}/HEAD.json: {remedy}\n"
    shutil.rmtree(index)
    assert run("index", ".").code == 0


@pytest.mark.parametrize("settings", ["", "{", "[]", "{}", "\0\xff"])
def test_index_with_damaged_settings_names_the_remedy(settings: str, here: Path, run):
    file = here / ".binocle" / "settings.json"
    file.write_text(settings, "latin-1")
    for words in (["index", "."], ["verify", "--repair"], ["search", "tax"], ["status"], ["trust"]):
        ran = run(*words)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert ran.err.startswith(f"binocle: {file} ")
        assert ran.err.endswith(f"remove the folder {file.parent} and index again, unless a backup has the file\n")


# A process of its own


@pytest.fixture
def as_anyone(quick_start):
    """The command line without root's right to read and write everything."""
    if os.geteuid() == 0 and not (sys.platform == "linux" and hasattr(ctypes.CDLL(None), "capset")):
        pytest.skip("root may read and write everything here")

    def running(*arguments: object) -> SimpleNamespace:
        command = [*quick_start, "--without-rights", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode == 99:
            pytest.skip("root's rights cannot be given up here")
        return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)

    return running


@pytest.mark.parametrize("damage", [remove, cut, garble])
def test_index_whose_full_text_is_damaged_says_how_to_mend_it(damage, here: Path, run, as_anyone):
    answered = answers(here / ".binocle")
    damage(here / ".binocle/chunks.lance/_indices")
    assert answers(here / ".binocle") == answered  # from the inverted index
    for segment in (here / ".binocle/vectors").glob("words-*"):
        damage(segment)
    done = as_anyone("search", "tax")  # in a process of its own: Lance's log is silenced before it is loaded
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "verify --repair" in done.err
    assert run("verify").code == 1
    mended = run("verify", "--repair")
    assert (mended.code, mended.out) == (0, "clean\n")
    assert answers(here / ".binocle") == answered


@pytest.mark.parametrize("part", ["tokens", "invert", "docs"])
def test_full_text_that_is_cut_short_is_a_fault(part: str, here: Path, run):
    (file,) = (here / ".binocle/chunks.lance/_indices").glob(f"*/part_*_{part}.lance")
    cut(file)
    result = run("verify")
    assert result.code == 1
    assert result.out.startswith("full-text index: ")
    assert run("verify", "--repair").code == 0


@pytest.mark.parametrize("damage", [remove, cut, garble])
def test_index_whose_vectors_are_damaged_answers_from_the_store(damage, here: Path, run):
    answered = answers(here / ".binocle")
    damage(here / ".binocle/vectors")
    again = answers(here / ".binocle")
    assert [hit[:2] for hit in again] == [hit[:2] for hit in answered]
    assert [hit[2] for hit in again] == pytest.approx([hit[2] for hit in answered], abs=1e-5)
    result = run("verify")
    assert result.code == 1
    assert run("verify", "--repair") == (0, "clean\n", result.err.replace("\n", " mended\n"))
    assert answers(here / ".binocle") == answered


# Errors of the operating system


@pytest.mark.parametrize(
    ("path_in_index", "mode", "words"),
    [
        (".", 0o000, ["index", "."]),
        (".", 0o300, ["index", "."]),
        (".binocle", 0o000, ["search", "x"]),
        (".binocle", 0o000, ["index", "."]),
        (".binocle", 0o555, ["index", "."]),
        (".binocle", 0o555, ["forget", "README.md"]),
        (".binocle/HEAD.json", 0o000, ["search", "x"]),
        (".binocle/chunks.lance", 0o000, ["search", "x"]),
        (".binocle/chunks.lance/data", 0o555, ["index", "."]),
        (".binocle/documents.lance/data", 0o555, ["index", "."]),
    ],
    ids=str,
)
def test_permission_that_is_missing(path_in_index: str, mode: int, words: list[str], here: Path, as_anyone):
    (here / "new.txt").write_text("The queen of the city.\n")
    before, answered = files_of(here / ".binocle"), answers(here / ".binocle")
    target = here / path_in_index
    for path in [target, *target.rglob("*")] if mode == 0o555 else [target]:
        path.chmod(mode if path.is_dir() or mode == 0 else mode & 0o444)
    try:
        done = as_anyone(*[str(here) if word == "." else word for word in words], *([] if "." in words else [here]))
    finally:
        for path in [target, *here.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        for path in here.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert str(target if path_in_index != "." else here) in done.err
    assert "permission denied" in done.err.lower()
    assert "remove the folder" not in done.err
    assert answers(here / ".binocle") == answered
    assert {name: data for name, data in files_of(here / ".binocle").items() if name in before} == before


def test_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one(here: Path, run, as_anyone):
    """Documents in a folder below that cannot be read for a while stay in the index."""
    (here / "notes").chmod(0)
    try:
        done = as_anyone("index", here, "--json")
    finally:
        (here / "notes").chmod(0o755)
    assert done.code == 0
    assert json.loads(done.out)["files"]["removed"] == 0
    assert run("search", "dog", "--mode", "lexical").code == 0


def test_new_index_where_nothing_may_be_written(here: Path, tmp_path: Path, as_anyone):
    (tmp_path / "shut").mkdir()
    (tmp_path / "shut").chmod(0o555)
    for index in (tmp_path / "shut/index", tmp_path / "shut"):
        done = as_anyone("index", here, "--index", index)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert str(tmp_path / "shut") in done.err
        assert "Permission denied" in done.err
    assert list((tmp_path / "shut").iterdir()) == []


DISK_FULL = """
import resource, shutil, sys
from pathlib import Path
from binocle import BinocleError, Retriever, load_encoder

source, work, model = map(Path, sys.argv[1:4])
loaded = load_encoder(model)  # keeps its compiled graph
loaded.encode(["cat"])
NEW = [{"id": f"new-{n}", "text": f"The queen {n} of the city. " * 9} for n in range(5)]


def begin():
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source, work)
    return Retriever.open(work)


def limited(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def sizes():
    return {file.stat().st_size for pattern in sys.argv[4:] for file in work.glob(pattern) if file.is_file()}


steps = [lambda retriever: retriever.add(NEW), lambda retriever: retriever.delete("ship")]
retriever, limits = begin(), {1}
for step in steps:
    step(retriever)
    limits |= sizes()
refusals = 0
for limit in sorted(limits - {0}):
    retriever = begin()
    for step in steps:
        limited(limit - 1)
        try:
            step(retriever)
        except (BinocleError, OSError) as error:
            refusals += 1
            assert "\\n" not in str(error), error
            limited(resource.RLIM_INFINITY)
            retriever = Retriever.open(work)
            assert retriever.verify().faults == [], (limit, retriever.verify().faults)
            assert {"notes/cats.txt", "taxes"} <= {row["path"] for row in retriever.documents()}, limit
            assert retriever.search("tax", mode="lexical")[0].path == "taxes", limit
            step(retriever)
        finally:
            limited(resource.RLIM_INFINITY)
    again = Retriever.open(work)
    assert again.verify().faults == [], (limit, again.verify().faults)
    assert sorted(row["path"] for row in again.documents()) == sorted(["notes/cats.txt", "taxes", *(row["id"] for row in NEW)])
    assert again.search("queen", k=1, mode="lexical")[0].path[:4] == "new-", limit
assert refusals > len(limits) / 2, (refusals, limits)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "patterns",
    [
        ["*.lance/data/*", "*.lance/_indices/*/*_invert.lance", "vectors/*/*"],
        pytest.param(["**/*"], marks=pytest.mark.slow),
    ],
    ids=["data", "everything"],
)
def test_disk_that_fills_up_at_any_point_leaves_the_last_commit(
    patterns: list[str], tmp_path: Path, tiny_model, quick_start
):
    """Each of the files that a commit writes is cut a byte short in its turn, as by a full disk."""
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    texts = {
        "notes/cats.txt": "The cat sat on the mat.",
        "taxes": "Income tax is due.",
        "ship": "The ship sails the sea.",
    }
    retriever.add([{"id": name, "text": text} for name, text in texts.items()])
    command = [*quick_start, "-c", DISK_FULL, tmp_path / "index", tmp_path / "work", tiny_model, *patterns]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]


def test_disk_that_is_full_is_one_line(here: Path):
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (60, resource.RLIM_INFINITY))\n"
    limited += "from binocle.cli import main; main()"
    (here / "new.txt").write_text("The queen of the city.\n")
    answered = answers(here / ".binocle")
    command = [sys.executable, "-c", limited, "index", str(here)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(here / ".binocle") in done.stderr
    assert "File too large" in done.stderr
    assert answers(here / ".binocle") == answered


def test_lock_of_another_process(here: Path, assert_refused):
    with open_writer(Store.open(here / ".binocle")):
        for words in (["index", "."], ["forget", "README.md"], ["verify", "--repair"]):
            assert f"process {os.getpid()}" in assert_refused(*words, naming="is being written by")
        for call in (
            lambda retriever: retriever.sync(),
            lambda retriever: retriever.add([{"text": "x"}]),
            lambda retriever: retriever.delete("README.md"),
            lambda retriever: retriever.repair(),
        ):
            with pytest.raises(LockedError, match="is being written by process"):
                call(Retriever.open(here))


@pytest.mark.parametrize("note", [b"", b"null", b"{}", b'{"pid": []}', b"\xff", None])
def test_lock_without_a_readable_note_of_its_holder(note: bytes | None, here: Path, assert_refused):
    with open_writer(Store.open(here / ".binocle")):
        file = here / ".binocle/lock.json"
        file.unlink() if note is None else file.write_bytes(note)
        assert_refused("index", ".", naming="is being written by")


def test_argument_that_is_not_utf_8(here: Path):
    command = [sys.executable, "-W", "error", "-m", "binocle.cli"]
    for words, code in (
        ([b"search", b"caf\xe9 \xff", b"-k1"], 0),
        ([b"search", b"x", b"nowhere\xff"], 2),
        ([b"\xff"], 2),
    ):
        done = subprocess.run([*command, *words], cwd=here, capture_output=True, timeout=60, check=False)
        assert done.returncode == code
        assert done.stderr.count(b"\n") == (code == 2)


# Test collections


def written(name: str, content: str | bytes | None):
    def change(folder: Path) -> None:
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return change


COLLECTIONS = {
    "no corpus": (written("corpus.jsonl", None), "corpus.jsonl is missing"),
    "no queries": (written("queries.jsonl", None), "queries.jsonl is missing"),
    "no judgements": (written("qrels/test.tsv", None), "qrels/test.tsv is missing"),
    "corpus not JSON": (written("corpus.jsonl", "{}\nnonsense\n"), "corpus.jsonl:"),
    "corpus of numbers": (written("corpus.jsonl", "1\n"), "corpus.jsonl:1"),
    "document without an id": (written("corpus.jsonl", '{"text": "x"}\n'), "corpus.jsonl:1"),
    "document without a text": (written("corpus.jsonl", '{"_id": "d1"}\n'), "corpus.jsonl:1"),
    "text that is a number": (written("corpus.jsonl", '{"_id": "d1", "text": 1}\n'), "corpus.jsonl:1"),
    "title that is a list": (written("corpus.jsonl", '{"_id": "d1", "text": "x", "title": ["x"]}\n'), "corpus.jsonl:1"),
    "corpus not UTF-8": (written("corpus.jsonl", b'{"_id": "d1", "text": "caf\xe9"}\n'), "corpus.jsonl"),
    "corpus empty": (written("corpus.jsonl", ""), "corpus.jsonl"),
    "query without a text": (written("queries.jsonl", '{"_id": "q1"}\n'), "queries.jsonl:1"),
    "query that is empty": (written("queries.jsonl", '{"_id": "q1", "text": " "}\n'), "queries.jsonl:1"),
    "query not JSON": (written("queries.jsonl", "nonsense\n"), "queries.jsonl:1"),
    "judgements of two columns": (written("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\n"), "test.tsv:2"),
    "judgement that is no number": (
        written("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\tgood\n"),
        "test.tsv:2",
    ),
    "judgement that is infinite": (
        written("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\tinf\n"),
        "test.tsv:2",
    ),
    "judgements not UTF-8": (written("qrels/test.tsv", b"query-id\tcorpus-id\tscore\nq\xe9\td1\t1\n"), "test.tsv"),
    "judgements empty": (written("qrels/test.tsv", ""), "test.tsv"),
    "nothing relevant": (written("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t0\n"), "test.tsv"),
    "query that is not there": (written("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq7\td1\t1\n"), "'q7'"),
}


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    folder = tmp_path / "collection"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "title": "", "text": "The cat sat."}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "cat"}\n')
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return folder


@pytest.mark.parametrize("name", COLLECTIONS)
def test_collection_that_is_broken(name: str, collection: Path, tiny_model, assert_refused):
    change, naming = COLLECTIONS[name]
    change(collection)
    assert_refused("evaluate", collection, "--model", tiny_model, naming=naming)
    with pytest.raises(InputError):
        evaluate(collection, model=tiny_model)


@pytest.mark.parametrize(
    ("words", "naming"),
    [
        (["--split", "dev"], "dev.tsv is missing: the splits that are there: test"),
        (["--split", "../../x"], "x.tsv"),
        (["--run", "/no/such/folder/run"], "/no/such/folder"),
        (["--run", "."], "."),
        (["--index", ".binocle"], ".binocle"),
        (["--index", "README.md"], "README.md"),
        (["--model", "no-such-model"], "no-such-model"),
    ],
    ids=str,
)
def test_evaluation_with_an_unusable_option(
    words: list[str], naming: str, collection: Path, tiny_model, assert_refused
):
    assert_refused(
        "evaluate", collection, *words, *([] if "--model" in words else ["--model", tiny_model]), naming=naming
    )


@pytest.mark.parametrize("mode", ["dense", "", None, 1])
def test_evaluation_in_an_unknown_mode(mode: object, collection: Path, tiny_model):
    with pytest.raises(InputError, match="mode"):
        evaluate(collection, model=tiny_model, mode=mode)


# The library

CALLS = {
    "query None": (lambda r: r.search(None), InputError, "no query: give a text, a vector, or both"),
    "query bytes": (lambda r: r.search(b"cat"), InputError, "bytes"),
    "query list": (lambda r: r.search(["cat"]), InputError, "list"),
    "query empty": (lambda r: r.search(" "), InputError, "empty"),
    "query surrogates": (lambda r: r.search("\ud800", mode="dense"), InputError, "dense"),
    "k negative": (lambda r: r.search("cat", -1), InputError, "-1"),
    "k a fraction": (lambda r: r.search("cat", 1.5), InputError, "1.5"),
    "k a text": (lambda r: r.search("cat", "3"), InputError, "'3'"),
    "k None": (lambda r: r.search("cat", None), InputError, "None"),
    "k true": (lambda r: r.search("cat", True), InputError, "True"),
    "mode unknown": (lambda r: r.search("cat", mode="bm25"), InputError, "'bm25'"),
    "mode None": (lambda r: r.search("cat", mode=None), InputError, "None"),
    "mode a list": (lambda r: r.search("cat", mode=["hybrid"]), InputError, "hybrid"),
    "where a number": (lambda r: r.search("cat", where=3), InputError, "3"),
    "where a list of numbers": (lambda r: r.search("cat", where=[3]), InputError, "3"),
    "where nonsense": (lambda r: r.search("cat", where="nonsense"), InputError, "nonsense"),
    "where of a bad date": (lambda r: r.search("cat", where={"modified": "soon"}), InputError, "soon"),
    "where of a mapping in it": (lambda r: r.search("cat", where={"path": {"x": 1}}), InputError, "path"),
    "similar k negative": (lambda r: r.similar("README.md", 1, -1), InputError, "-1"),
    "similar line 0": (lambda r: r.similar("README.md", 0), InputError, "line 0"),
    "similar line a text": (lambda r: r.similar("README.md", "1"), InputError, "'1'"),
    "similar line None": (lambda r: r.similar("README.md", None), InputError, "None"),
    "similar elsewhere": (lambda r: r.similar("nowhere.md", 1), InputError, "nowhere.md"),
    "context of no tokens": (lambda r: r.context("cat", max_tokens=0), InputError, "max_tokens"),
    "context of less": (lambda r: r.context("cat", max_tokens=-5), InputError, "-5"),
    "context of a text": (lambda r: r.context("cat", max_tokens="9"), InputError, "'9'"),
    "context of None": (lambda r: r.context("cat", max_tokens=None), InputError, "None"),
    "context of nothing": (lambda r: r.context(""), InputError, "empty"),
    "context k negative": (lambda r: r.context("cat", k=-1), InputError, "-1"),
    "document elsewhere": (lambda r: r.document("nowhere.md"), InputError, "nowhere.md"),
    "lines backwards": (lambda r: r.text("README.md", lines=(3, 1)), InputError, "README.md"),
    "lines before the first": (lambda r: r.text("README.md", lines=(-2, 1)), InputError, "README.md"),
    "delete a number": (lambda r: r.delete(3), InputError, "3"),
    "delete a list": (lambda r: r.delete(["README.md"]), InputError, "README.md"),
    "sync elsewhere": (lambda r: r.sync("/no/such/folder"), InputError, "/no/such/folder"),
    "sync another folder": (lambda r: r.sync("/etc"), InputError, "/etc"),
    "sync a file": (lambda r: r.sync(r.folder / "README.md"), InputError, "README.md"),
    "sync a number": (lambda r: r.sync(3), InputError, "3"),
    "sync a name with NUL": (lambda r: r.sync("a\x00b"), InputError, "a"),
    "add a text": (lambda r: r.add("a text"), InputError, "mapping"),
    "add a mapping": (lambda r: r.add({"text": "x"}), InputError, "text"),
    "add None": (lambda r: r.add(None), InputError, "None"),
    "add a number": (lambda r: r.add([3]), InputError, "int"),
    "add without text": (lambda r: r.add([{"id": "x"}]), InputError, "document 0"),
    "add text None": (lambda r: r.add([{"text": None}]), InputError, "document 0"),
    "add text bytes": (lambda r: r.add([{"text": b"x"}]), InputError, "document 0"),
    "add an unknown field": (lambda r: r.add([{"text": "x", "txet": "y"}]), InputError, "txet"),
    "add unknown fields of mixed types": (lambda r: r.add([{"text": "x", 1: "y", "a": "z"}]), InputError, "1"),
    "add id a number": (lambda r: r.add([{"text": "x", "id": 3}]), InputError, "3"),
    "add id empty": (lambda r: r.add([{"text": "x", "id": ""}]), InputError, "''"),
    "add title a number": (lambda r: r.add([{"text": "x", "title": 3}]), InputError, "document 0"),
    "add metadata a list": (lambda r: r.add([{"text": "x", "metadata": ["y"]}]), InputError, "metadata"),
    "add metadata a text": (lambda r: r.add([{"text": "x", "metadata": "y"}]), InputError, "metadata"),
    "add metadata of a number": (lambda r: r.add([{"text": "x", "metadata": {1: "y"}}]), InputError, "metadata"),
    "add metadata to nothing": (lambda r: r.add([{"text": "x", "metadata": {"a": [None]}}]), InputError, "'a'"),
    "add metadata of a mapping": (lambda r: r.add([{"text": "x", "metadata": {"a": {"b": 1}}}]), InputError, "'a'"),
    "add metadata of lists": (lambda r: r.add([{"text": "x", "metadata": {"a": [[1]]}}]), InputError, "'a'"),
    "add metadata of bytes": (lambda r: r.add([{"text": "x", "metadata": {"a": b"b"}}]), InputError, "'a'"),
    "add metadata not a number": (lambda r: r.add([{"text": "x", "metadata": {"a": float("nan")}}]), InputError, "'a'"),
    "add a good one and a bad one": (lambda r: r.add([{"text": "good"}, {"text": 3}]), InputError, "document 1"),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_that_cannot_be_answered(name: str, retriever: Retriever):
    call, kind, naming = CALLS[name]
    before = files_of(retriever.path)
    with pytest.raises(kind) as raised:
        call(retriever)
    message = str(raised.value)
    assert isinstance(raised.value, BinocleError)
    assert "\n" not in message
    assert naming in message
    assert len(message) < 500
    assert files_of(retriever.path) == before


@pytest.mark.parametrize(
    "paths", [[], ["nowhere.md"], ["nowhere/"], ["/"], [""], ["."], ["notes"], ["*"], ["README.md/"]]
)
def test_deletion_of_nothing_removes_nothing(paths: list[str], retriever: Retriever):
    before = files_of(retriever.path)
    assert retriever.delete(*paths).removed == 0
    assert files_of(retriever.path) == before


def test_addition_that_fails_half_way_adds_whole_documents_only(retriever: Retriever):
    def documents():
        yield from ({"id": f"good-{number}", "text": f"The queen {number}."} for number in range(1_500))
        raise RuntimeError("the caller's own")

    with pytest.raises(RuntimeError, match="the caller's own"):
        retriever.add(documents())
    assert retriever.verify().faults == []
    assert retriever.add([{"id": "after", "text": "The king."}]).indexed == 1


@pytest.mark.parametrize("path", ["a\x00b", 3, None, b"bytes\xff"])
def test_index_that_cannot_be_a_path(path: object):
    with pytest.raises(InputError):
        Retriever.open(path)


@pytest.mark.parametrize("model", [3, b"x", ["x"], "a\x00b"])
def test_model_that_cannot_be_a_name(model: object, tmp_path: Path):
    with pytest.raises(BinocleError):
        Retriever.open(tmp_path / "new", model=model).add([{"text": "x"}])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda retriever: retriever.search("cat"),
        lambda retriever: retriever.similar("a.txt", 1),
        lambda retriever: retriever.context("cat"),
        lambda retriever: retriever.delete("a.txt"),
        lambda retriever: retriever.document("a.txt"),
        lambda retriever: retriever.documents(),
        lambda retriever: retriever.verify(),
        lambda retriever: retriever.repair(),
        lambda retriever: retriever.folder,
    ],
)
def test_index_that_was_never_made(call, tmp_path: Path):
    with pytest.raises(NoIndexError, match="binocle index FOLDER"):
        call(Retriever.open(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_added_documents_alone_have_no_folder_to_sync(tmp_path: Path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"text": "The cat sat."}])
    with pytest.raises(InputError, match="sync"):
        retriever.sync()
    assert len(retriever.search("cat")) == 1


@pytest.mark.parametrize("name", ["no-such-model", "/no/such/folder", "some/one/too/many"])
def test_encoder_that_is_not_there(name: str):
    with pytest.raises(ModelNotFoundError, match="such|too"):
        load_encoder(name)


@pytest.mark.parametrize("texts", [[3], [None], [b"x"], ["fine", 3.5]])
def test_encoder_refuses_input_that_is_not_text(texts: list[object], tiny):
    with pytest.raises(InputError, match="int|NoneType|bytes|float"):
        tiny.encode(texts)


def test_many_threads_with_bad_and_good_input_at_once(retriever: Retriever):
    right = answers(retriever.path)
    wrong: list[object] = []

    def bad() -> None:
        for call, kind, _ in list(CALLS.values())[:20]:
            try:
                call(retriever)
            except kind:
                continue
            wrong.append(call)

    def good() -> None:
        for _ in range(5):
            hits = [(hit.path, hit.char_start, hit.score) for hit in retriever.search("cancel a task")]
            if hits != right[: len(hits)]:
                wrong.append(hits)

    threads = [threading.Thread(target=target) for target in (bad, good, bad, good)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
