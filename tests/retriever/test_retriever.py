from __future__ import annotations

import copy
import errno
import json
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from datetime import date, datetime
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from binocle import Document, Hit, Retriever, load_encoder
from binocle.core.errors import (
    BinocleError,
    DamagedError,
    EncoderMismatchError,
    InputError,
    LockedError,
    NoIndexError,
    StoreError,
)
from binocle.indexes import manifest
from binocle.retriever.indexing.indexer import Indexer
from binocle.retriever.inversion.vector_files import read_vectors
from binocle.retriever.models.bert.numpy import BertNumpy
from binocle.retriever.store.locations.folder_location import FolderLocation
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store

# Opening


def test_a_folder_gets_its_index_inside(folder, tiny_model):
    retriever = Retriever.open(folder, model=tiny_model)
    assert retriever.path == folder / ".binocle"
    assert not retriever.path.exists()
    retriever.sync()
    assert Retriever.open(folder).path == Retriever.open(folder / ".binocle").path == folder / ".binocle"


def test_a_new_or_empty_folder_becomes_the_index(tmp_path):
    (tmp_path / "empty").mkdir()
    assert Retriever.open(tmp_path / "new").path == tmp_path / "new"
    assert Retriever.open(tmp_path / "empty").path == tmp_path / "empty"
    assert Retriever.open(str(tmp_path / "new")).path == tmp_path / "new"
    assert list(tmp_path.iterdir()) == [tmp_path / "empty"]


def test_documents_may_have_the_names_that_an_indexs_files_have(folder, tiny_model):
    names = ("HEAD.json", "settings.json", "lock.json")
    for name in names:
        (folder / name).write_text('{"tide": "high"}')
    retriever = Retriever.open(folder, model=tiny_model)
    assert retriever.path == folder / ".binocle"
    retriever.sync()
    assert {hit.path for hit in Retriever.open(folder).search("tide", mode="lexical", collapse=False)} == {*names}


@pytest.mark.parametrize("names", [["settings.json"], ["HEAD.json", "HEAD.previous.json"]])
def test_an_index_that_lacks_a_file_is_said_to(names, retriever, tmp_path):
    index = retriever.path.rename(tmp_path / "index")
    for name in names:
        (index / name).unlink()
    with pytest.raises(StoreError, match="no index") as caught:
        Retriever.open(index).search("cat")
    assert "remove" not in str(caught.value)


def test_a_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Retriever.open("~/index").path == tmp_path / "index"


def test_the_home_of_nobody_here_is_a_name_like_any_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Retriever.open("~nobody-here").path == tmp_path / "~nobody-here"
    with pytest.raises(InputError, match="there is no folder ~nobody-here/notes"):
        Retriever.open("~nobody-here").sync("~nobody-here/notes")
    with pytest.raises(InputError, match="there is no file ~nobody-here/a.npy"):
        read_vectors("~nobody-here/a.npy")


def test_a_file_is_not_opened(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        Retriever.open(tmp_path / "file")


def test_before_anything_is_put_in_there_is_no_index(tmp_path):
    retriever = Retriever.open(tmp_path / "index")
    for ask in (
        lambda: retriever.search("cat"),
        retriever.documents,
        retriever.verify,
        lambda: retriever.delete("a"),
        lambda: retriever.folder,
        retriever.status,
    ):
        with pytest.raises(NoIndexError, match="binocle index"):
            ask()


@pytest.mark.parametrize("name", ["n" * 300, "/proc/nowhere/index", "/dev/null/index"])
def test_a_folder_that_cannot_be_is_an_error_of_ours(name, tmp_path, tiny_model):
    with pytest.raises(StoreError, match=r"cannot be used \(.+\): give another folder, for an index with --index"):
        Retriever.open(tmp_path / name, model=tiny_model).add([{"text": "cat"}])


@pytest.mark.parametrize(("owner", "method"), [(Path, "mkdir"), (os, "scandir")])
def test_an_index_that_may_not_be_written_is_an_error_of_ours(owner, method, retriever, monkeypatch):
    def refused(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, refused)
        for write in (lambda: retriever.add([{"text": "cat"}]), lambda: retriever.delete("a"), retriever.sync):
            with pytest.raises(StoreError, match=r"\.binocle cannot be used \(Permission denied"):
                write()
    assert retriever.search("cancel", 1)


def test_a_full_disk_is_to_be_freed(retriever, monkeypatch):
    def full(path, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(StoreError, match=r"\.binocle cannot be used \(No space left on device\): free some space$"):
        retriever.add([{"text": "cat"}])


# One encoder


def test_an_index_remembers_its_encoder(retriever, tiny_model):
    assert Retriever.open(retriever.path).search("cat")
    assert Retriever.open(retriever.path, model=tiny_model).search("cat")


def test_another_encoder_is_refused_with_what_to_do(retriever, make_model, tmp_path):
    other = make_model(tmp_path / "other", seed=9)
    for use in (
        lambda one: one.search("cat"),
        lambda one: one.sync(),
        lambda one: one.add([{"text": "cat"}]),
        lambda one: one.context("cat"),
    ):
        with pytest.raises(EncoderMismatchError) as caught:
            use(Retriever.open(retriever.path, model=str(other)))
        assert "--index" in str(caught.value)
        assert str(other) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert Retriever.open(retriever.path, model=str(other)).search("cat", mode="lexical")


def test_an_encoder_that_changed_on_the_disk_is_refused(folder, make_model, tmp_path):
    model = make_model(tmp_path / "model", seed=3)
    Retriever.open(folder, model=str(model)).sync()
    make_model(model, seed=4)
    with pytest.raises(EncoderMismatchError):
        Retriever.open(folder).search("cat")


def test_a_model_that_is_gone_is_a_missing_model_and_words_still_work(folder, make_model, tmp_path):
    model = make_model(tmp_path / "model", seed=3)
    Retriever.open(folder, model=str(model)).sync()
    shutil.rmtree(model)
    with pytest.raises(BinocleError, match="no model"):
        Retriever.open(folder).search("cat")
    assert Retriever.open(folder).search("cat", mode="lexical")[0].path == "notes/cats.txt"


# Filling


def test_a_folder_and_its_citations(retriever, folder):
    paths = {row["path"] for row in retriever.documents() if row["state"] == "indexed"}
    assert paths == {
        "README.md",
        "data/prices.csv",
        "notes/cats.txt",
        "notes/guide/tasks.md",
        "notes/taxes.md",
        "src/queue.py",
        "web/bread.html",
    }
    for hit in retriever.search("cancel a task in the queue", 20):
        assert isinstance(hit, Hit)
        row = retriever.document(hit.path)
        assert row["text"][hit.char_start : hit.char_end] == hit.text
        import hashlib

        assert hashlib.sha256((folder / hit.path).read_bytes()).hexdigest() == hit.sha256
        if hit.format in ("text", "markdown", "python", "csv"):
            lines = (folder / hit.path).read_text().split("\n")
            assert hit.text.split("\n")[0] in lines[hit.line_start - 1]
            assert hit.text.split("\n")[-1] in lines[hit.line_end - 1]


def test_words_find_their_files(retriever):
    for query, path in {
        "cancel": "notes/guide/tasks.md",
        "income tax": "notes/taxes.md",
        "oven": "web/bread.html",
        "put item": "src/queue.py",
        "ship": "README.md",
        "cheese": "data/prices.csv",
    }.items():
        assert path in {hit.path for hit in retriever.search(query, 2, mode="lexical")}, query


def test_an_index_elsewhere_knows_its_folder(folder, tiny_model, tmp_path):
    retriever = Retriever.open(tmp_path / "elsewhere", model=tiny_model)
    retriever.sync(folder)
    assert retriever.folder == folder
    assert not (folder / ".binocle").exists()
    (folder / "new.txt").write_text("The queen of the city.")
    assert Retriever.open(tmp_path / "elsewhere").sync().indexed == 1


def test_one_index_is_of_one_folder(retriever, tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="--index"):
        retriever.sync(tmp_path / "other")


def test_an_index_elsewhere_follows_its_folder_when_that_is_renamed(folder, tiny_model, tmp_path):
    index = Retriever.open(tmp_path / "index", model=tiny_model)
    documents = index.sync(folder).indexed
    renamed = folder.rename(tmp_path / "renamed")
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="--index"):
        index.sync(tmp_path / "other")  # nothing of it is there
    report = index.sync(renamed)
    assert (report.unchanged, report.indexed, report.removed) == (documents, 0, 0)
    assert Retriever.open(tmp_path / "index").folder == renamed
    assert index.verify().faults == []


@pytest.mark.parametrize("name", ["absent", "file"])
def test_a_folder_must_be_one(name, tmp_path, tiny_model):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=name):
        Retriever.open(tmp_path / "index", model=tiny_model).sync(tmp_path / name)
    assert not (tmp_path / "index").exists()


def test_without_a_folder_there_is_nothing_to_sync(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"text": "cat"}])
    with pytest.raises(InputError, match="which folder"):
        retriever.sync()


def test_a_folder_that_is_not_there_or_empty_is_said_to_be(tmp_path):
    (tmp_path / "empty").mkdir()
    for name, said in (("empty", f"{tmp_path}/empty is empty"), ("absent", f"there is no {tmp_path}/absent")):
        with pytest.raises(InputError) as caught:
            Retriever.open(tmp_path / name).sync()
        assert str(caught.value) == f"which folder? {said}: call sync(folder)"


def test_a_warm_retriever_finds_the_same_by_the_compiled_graph(folder, tiny_model, monkeypatch):
    cold, warm = Retriever.open(folder, model=tiny_model), Retriever.open(folder)
    with pytest.raises(NoIndexError):
        warm.warm_up()
    cold.sync()
    expected = cold.search("the sea at low tide", mode="semantic")
    warm.warm_up()
    monkeypatch.setattr(BertNumpy, "forward", lambda *_: pytest.fail("numpy computed a query"))
    hits = warm.search("the sea at low tide", mode="semantic")
    assert {hit.passage for hit in hits} == {hit.passage for hit in expected}
    warm._index.models.use(load_encoder(tiny_model))  # as a switch has it
    warm.search("the sea", mode="semantic")
    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=2e-2)


def test_a_retriever_and_its_hits_go_to_other_processes(folder, tiny_model):
    retriever = Retriever.open(folder, model=Path(tiny_model))
    elsewhere = pickle.loads(pickle.dumps(retriever))
    elsewhere.sync()
    hits = retriever.search("the sea at low tide")
    assert copy.deepcopy(retriever).search("the sea at low tide") == hits
    assert len({*hits, *pickle.loads(pickle.dumps(hits))}) == len(hits)


def test_an_index_is_opened_not_constructed(tmp_path):
    with pytest.raises(InputError, match=r"an index is opened by Retriever\.open"):
        Retriever(str(tmp_path))


SWITCHES = {
    "gpu": lambda path, no: Retriever.open(path, gpu=no),
    "trust": lambda path, no: Retriever.open(path, trust=no),
    "durable": lambda path, no: Retriever.open(path, durable=no),
    "exclude_anew": lambda path, no: Retriever.open(path).sync(exclude_anew=no),
    "retry": lambda path, no: Retriever.open(path).sync(retry=no),
    "drop_missing": lambda path, no: Retriever.open(path).sync(drop_missing=no),
    "ocr": lambda path, no: Retriever.open(path).sync(ocr=no),
    "collapse": lambda path, no: Retriever.open(path).search("cat", collapse=no),
    "join": lambda path, no: Retriever.open(path).search_many(["cat"], join=no),
    "with_vectors": lambda path, no: Retriever.open(path).search("cat", with_vectors=no),
    "vectors": lambda path, no: Retriever.open(path).get("a", vectors=no),
    "hidden": lambda path, no: Retriever.open(path).text("a", hidden=no),
    "fixed": lambda path, no: Retriever.open(path).grep("cat", fixed=no),
    "lines": lambda path, no: Retriever.open(path).grep("cat", lines=no),
    "deep": lambda path, no: Retriever.open(path).verify(deep=no),
    "keep": lambda path, no: Retriever.open(path).switch("a-model", keep=no),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_true_or_false(name, tmp_path):
    with pytest.raises(InputError, match=f"^{name} is True or False, not 'no'$"):
        SWITCHES[name](tmp_path, "no")


def test_a_switch_may_be_of_numpy(retriever):
    assert retriever.search("sea", join=np.True_) == retriever.search("sea", join=True)
    assert retriever.delete("nobody", erase=np.False_).removed == 0


def test_a_forked_process_is_told_that_it_cannot_search(folder, tiny_model):
    Retriever.open(folder, model=tiny_model).sync()
    script = """
import os, sys
from binocle import Retriever
retriever = Retriever.open(sys.argv[1])
if len(sys.argv) > 2:
    retriever.search("sea")
child = os.fork()
if not child:
    try:
        print(len(retriever.search("sea")), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    for searched, said in (([], r"[1-9]\d*\n"), (["yes"], "StoreError this process was forked from one that had .*\n")):
        command = [sys.executable, "-W", "ignore", "-c", script, str(folder), *searched]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert re.fullmatch(said, done.stdout), done


def test_a_thread_and_a_handler_search_and_write_after_the_main_thread_ended(folder, tiny_model):
    """Python's own pools of threads then accept no call."""
    Retriever.open(folder, model=tiny_model).sync()
    script = """
import asyncio, atexit, sys, threading
from binocle import Retriever
retriever = Retriever.open(sys.argv[1])
def use(name):
    retriever.add([{"id": name, "text": "the sea"}])
    for hits in (retriever.search("the sea"), asyncio.run(retriever.asearch("the sea"))):
        print(name, "the sea" in [hit.text for hit in hits], flush=True)
def wait():
    threading.main_thread().join()
    use("thread")
threading.Thread(target=wait).start()
atexit.register(use, "handler")
"""
    command = [sys.executable, "-W", "ignore", "-c", script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("thread True\n" * 2 + "handler True\n" * 2, "")


@pytest.fixture
def notes(tmp_path, tiny_model):
    return Retriever.open(tmp_path / "index", model=tiny_model)


def test_hits_and_passages_print_their_place_and_the_beginning_of_their_text(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path, model=tiny_model)
    retriever.add([{"id": "a", "text": "The ship.\n\nIt sails the sea " + "by day and night " * 3}])
    retriever.add([{"id": "b", "text": "cat"}])
    (hit,) = retriever.search("ship", k=1)
    assert repr(hit) == "<Hit a:1-3 'The ship.\\n\\nIt sails the sea by day and night by day and nigh…'>"
    assert repr(retriever.search("cat", k=1)) == "[<Hit b:1 'cat'>]"
    (passage,) = retriever.context("ship", k=1, min_relevance=0).passages
    assert repr(passage) == repr(hit).replace("Hit", "Passage")


def test_the_context_of_a_hit_is_the_text_that_was_embedded(retriever):
    hits = retriever.search("cancel a task in the queue", 100)
    assert {bool(hit.heading) for hit in hits} == {True, False}
    stored = retriever.snapshot().chunks_by_id([hit.passage for hit in hits], ["context"])
    assert {hit.passage: hit.context for hit in hits} == {number: row["context"] for number, row in stored.items()}


def test_documents_are_added_replaced_and_left_alone(notes):
    documents = [
        {"id": "a", "text": "The cat sat."},
        {"id": "b", "text": "The dog ran.", "title": "Dogs", "metadata": {"year": 2024, "tags": ["x"]}},
    ]
    report = notes.add(documents)
    assert (report.indexed, report.unchanged, report.chunks_total) == (2, 0, 2)
    assert notes.add(documents).unchanged == 2
    report = notes.add([{"id": "a", "text": "The moon is red."}])
    assert (report.indexed, report.chunks_total, report.chunks_removed) == (1, 2, 1)
    (hit,) = notes.search("dog", mode="lexical")
    assert (hit.title, hit.heading, hit.metadata) == ("Dogs", ("Dogs",), {"year": 2024, "tags": ["x"]})
    assert notes.search("cat", mode="lexical") == []
    assert notes.verify().faults == []


def test_a_changed_title_or_metadata_is_a_change(notes):
    base = {"id": "a", "text": "The cat sat.", "title": "T", "metadata": {"year": 1}}
    notes.add([base])
    for change in (
        {"title": "U"},
        {"metadata": {"year": 2}},
        {"metadata": {"year": "2"}},
        {"metadata": {}},
        {"text": "The cat sat!"},
    ):
        base |= change
        assert notes.add([base]).indexed == 1, change
        assert notes.add([dict(base)]).indexed == 0
    assert len(notes.documents()) == 1


def test_the_order_of_metadata_is_no_change(notes):
    notes.add([{"id": "a", "text": "cat", "metadata": {"a": 1, "b": 2}}])
    assert notes.add([{"id": "a", "text": "cat", "metadata": {"b": 2, "a": 1}}]).unchanged == 1


def test_without_an_id_equal_texts_are_one_document(notes):
    notes.add([{"text": "The cat sat."}, {"text": "The cat sat."}, {"text": "The dog ran."}])
    assert len(notes.documents()) == 2
    assert len(notes.search("cat dog", mode="lexical")) == 2


@pytest.mark.parametrize("apart", [0, 1_500])
def test_of_documents_with_one_id_the_last_counts(apart, notes):
    between = ({"id": f"x{number}", "text": "bread"} for number in range(apart))
    notes.add([{"id": "a", "text": "first cat"}, *between, {"id": "a", "text": "last cat"}])
    assert [hit.text for hit in notes.search("cat", mode="lexical")] == ["last cat"]
    assert notes.verify().faults == []


def test_documents_may_come_from_a_generator_and_stop_halfway(notes):
    def some():
        for number in range(2_500):
            yield {"id": f"{number}", "text": "bread"}
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        notes.add(some())
    assert len(notes.documents()) == 2_000
    assert notes.verify().faults == []
    assert notes.add([{"id": "more", "text": "salt"}]).indexed == 1


@pytest.mark.parametrize(
    "document",
    [
        "text",
        3,
        None,
        {},
        {"id": "a"},
        {"text": None},
        {"text": b"bytes"},
        {"text": "cat", "title": 3},
        {"text": "cat", "id": ""},
        {"text": "cat", "id": 3},
        {"text": "cat", "unknown": 1},
        {"text": "cat", "metadata": [1]},
        {"text": "cat", "metadata": "year"},
        {"text": "cat", "metadata": {"a": {"b": 1}}},
        {"text": "cat", "metadata": {"a": [1, [2]]}},
        {"text": "cat", "metadata": {3: "a"}},
        {"text": "cat", "metadata": {"a": [None]}},
        {"text": "cat", "metadata": {"a": np.array(["b"])}},
        {"text": "cat", "metadata": {"a": ...}},
        {"text": "cat", "metadata": {"a": math.nan}},
        {"text": "cat", "metadata": {"a": [math.inf]}},
        ["text", "cat"],
    ],
    ids=repr,
)
def test_a_document_that_is_none_is_refused_by_its_number(document, notes):
    with pytest.raises(InputError, match="document 1 ") as caught:
        notes.add([{"text": "good"}, document])
    assert "\n" not in str(caught.value)


def test_metadata_that_is_no_mapping_is_called_so(notes):
    with pytest.raises(
        InputError,
        match=r"^document 0 \('q'\) has 'meta': expected only 'embedding', 'format', 'id', 'metadata', 'text', 'title'",
    ):
        notes.add([{"id": "q", "text": "b", "meta": {}}])
    with pytest.raises(InputError, match=r"document 0 \('q'\) has metadata of type str: expected a mapping"):
        notes.add([{"id": "q", "text": "t", "metadata": "x"}])


@pytest.mark.parametrize("number", [2**1024, -(10**5_000)], ids=["as a float", "as a text"])
def test_a_number_too_large_to_be_written_is_refused(number, notes):
    with pytest.raises(InputError, match=r"document 0 has metadata 'n' of type int that cannot be kept"):
        notes.add([{"text": "cat", "metadata": {"n": number}}])


@pytest.mark.parametrize("field", ["text", "title", "id", "metadata"])
def test_half_a_surrogate_pair_is_stored_or_refused_plainly(field, notes):
    document = {"id": "a", "text": "cat"} | {
        field: {"k\ud83d": "v\ud83d"} if field == "metadata" else "half \ud83d cat"
    }
    try:
        notes.add([document])
    except InputError:
        return
    assert len(notes.search("cat")) == 1
    assert notes.add([document]).unchanged == 1
    assert notes.verify().faults == []


@pytest.mark.parametrize(
    "text",
    ["\0", "a\0b cat", "\r\n\r\ncat\r\n", "cat\rdog", "\ufeffcat", "cat " * 20_000, "🐈" * 500, "\u200b"],
    ids=lambda text: ascii(text[:8]),
)
def test_any_text_can_be_added(text, notes):
    assert notes.add([{"id": "a", "text": text}]).indexed == 1
    assert notes.add([{"id": "a", "text": text}]).unchanged == 1
    for hit in notes.search("cat", 1000):
        assert notes.document("a")["text"][hit.char_start : hit.char_end] == hit.text
    assert notes.verify().faults == []


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_added_document_without_a_text_is_skipped_as_a_file_is(text, notes):
    for _ in range(2):
        report = notes.add([{"id": "a", "text": text, "title": "Nothing"}])
        assert (report.indexed, report.unchanged, report.skipped) == (0, 0, 1)
    (row,) = notes.documents()
    assert (row["state"], row["reason"], row["title"], row["chunks"]) == ("skipped", "no text in it", "Nothing", 0)
    assert notes.add([{"id": "a", "text": "cat"}]).indexed == 1
    assert notes.verify().faults == []


def test_metadata_comes_back_as_it_went_in(notes):
    metadata = {"s": "größe 天気", "i": 10**30, "f": 1e-300, "b": True, "l": ["a", 1, 2.5, False], "e": [], "": "empty"}
    notes.add([{"text": "cat", "metadata": metadata}])
    (hit,) = notes.search("cat")
    (row,) = notes.documents()
    rows = notes.document(hit.document), notes.get(hit.document)
    assert row["metadata"] == rows[0]["metadata"] == rows[1].metadata == metadata
    assert hit.metadata == metadata
    assert [type(value) for value in hit.metadata.values()] == [type(value) for value in metadata.values()]


def test_metadata_is_kept_as_text_numbers_and_lists(notes):
    metadata = {
        "none": None,
        "pair": ("a", 1),
        "day": date(2026, 11, 21),
        "moment": datetime(2026, 11, 21, 8, 30),  # noqa: DTZ001
        "stamp": np.datetime64("2026-11-21"),
        "count": np.int64(3),
        "share": np.float32(0.5),
        "good": np.True_,
        "counts": [np.int64(3)],
    }
    notes.add([{"text": "cat", "metadata": MappingProxyType(metadata)}])
    (hit,) = notes.search("cat", where={"day": date(2026, 11, 21), "count": np.int64(3), "good": np.True_})
    assert hit.metadata == {
        "pair": ["a", 1],
        "day": "2026-11-21",
        "moment": "2026-11-21T08:30:00",
        "stamp": "2026-11-21",
        "count": 3,
        "share": 0.5,
        "good": True,
        "counts": [3],
    }


@pytest.mark.parametrize(("number", "added"), [(0, "none was added"), (1_000, "the first 1,000 were added")])
def test_a_document_that_cannot_be_added_is_named_and_how_many_were(number, added, notes, monkeypatch):
    monkeypatch.setattr(Indexer, "add", lambda *_, **__: 0)
    documents = [{"id": "same", "text": "cat"}] * number
    with pytest.raises(InputError) as caught:
        notes.add([*documents, {"id": "faq-1", "text": "cat"}, {"id": "faq-2", "text": 3}])
    assert str(caught.value) == (
        f"document {number + 1} ('faq-2') has no text: expected strings as 'text' and 'title', or an 'embedding'; {added}"
    )


def test_documents_of_the_readers_are_no_mappings(notes):
    with pytest.raises(InputError, match="Document"):
        notes.add([Document.from_text("cat")])


# Taking out


def test_a_report_has_ids_and_failures(notes):
    good, bad = {"id": "a", "text": "cat"}, {"id": "b", "text": 7}
    report = notes.add([good, bad, {"text": "a ship"}, "text", good], on_error="skip")
    assert report.ids[::2] == ["a", "a"]
    assert notes.text(report.ids[1]) == "a ship"
    assert [(failure.number, failure.id) for failure in report.failures] == [(1, "b"), (3, None)]
    assert "document 1 ('b') has no text" in report.failures[0].reason


def test_an_id_that_exists_is_replaced_skipped_or_refused(notes):
    notes.add([{"id": "a", "text": "cat"}])
    assert notes.add([{"id": "a", "text": "dog"}], if_exists="skip").unchanged == 1
    assert notes.text("a") == "cat"
    with pytest.raises(InputError, match="document 1 has id 'a', which exists: .*; none was added"):
        notes.add([{"id": "b", "text": "dog"}, {"id": "a", "text": "dog"}], if_exists="fail")
    report = notes.add([{"id": "b", "text": "x"}, {"id": "b", "text": "y"}], if_exists="fail", on_error="skip")
    assert (report.ids, report.failures[0].number, notes.text("b")) == (["b"], 1, "x")
    notes.add([{"id": "a", "text": "dog"}])
    assert notes.text("a") == "dog"


@pytest.mark.parametrize("options", [{"if_exists": "keep"}, {"on_error": None}, {"wait": -1}, {"wait": "long"}])
def test_options_of_add_are_checked(options, notes):
    with pytest.raises(InputError, match="one of|seconds"):
        notes.add([{"id": "a", "text": "cat"}], **options)


def test_deleting_by_path_folder_and_id(retriever):
    retriever.add([{"id": "note", "text": "The queen."}, {"id": "notes", "text": "The king."}])
    assert retriever.delete("nothing").removed == 0
    assert retriever.delete("notes").removed == 1  # the document of that name, not the folder
    assert retriever.delete("./README.md", "note").removed == 2
    assert retriever.delete(folder="notes/").removed == 3
    left = {row["path"] for row in retriever.documents() if row["state"] == "indexed"}
    assert left == {"data/prices.csv", "src/queue.py", "web/bread.html"}
    assert retriever.delete(folder="notes/").removed == 0
    assert retriever.verify().faults == []


def test_a_path_may_be_a_path(retriever):
    cats = Path("notes/cats.txt")
    assert retriever.similar(cats, 1, 1)[0].passage == retriever.similar("notes/cats.txt", 1, 1)[0].passage
    assert retriever.document(cats)["path"] == "notes/cats.txt"
    assert retriever.text(cats) == retriever.text("notes/cats.txt")
    assert retriever.text(cats, lines=(1, 1)) == retriever.text("notes/cats.txt", lines=(1, 1))
    assert retriever.delete(cats).removed == 1


def test_an_added_document_is_deleted_by_its_very_id(notes, retriever):
    for one in (notes, retriever):
        one.add([{"id": "./y", "text": "The dog ran."}, {"id": "y", "text": "The queen."}])
        assert one.delete("./y").removed == 1
        assert one.text("y") == "The queen."
        assert one.delete("./y").removed == 1
    assert retriever.delete("./README.md").removed == 1


def test_no_document_is_added_under_the_name_of_a_file(retriever):
    cats = retriever.text("notes/cats.txt")
    with pytest.raises(InputError, match=r"document 1 has id 'notes/cats.txt', which is a file of this index"):
        retriever.add([{"id": "note", "text": "The queen."}, {"id": "notes/cats.txt", "text": "The king."}])
    assert (retriever.text("notes/cats.txt"), retriever.verify().faults) == (cats, [])
    retriever.delete("notes/cats.txt")
    assert retriever.add([{"id": "notes/cats.txt", "text": "The king."}]).indexed == 1
    assert retriever.text("notes/cats.txt") == "The king."


def test_of_a_file_and_an_added_document_of_one_name_the_file_is_shown(retriever, folder):
    retriever.add([{"id": "late.md", "text": "The king."}])
    (folder / "late.md").write_text("The queen.")
    retriever.sync()
    assert {hit.source for hit in retriever.search("the king, the queen") if hit.path == "late.md"} == {"file", "added"}
    assert retriever.text("late.md") == "The queen."
    assert retriever.text("late.md", lines=(1, 1)) == "The queen."
    assert retriever.add([{"id": "late.md", "text": "The king again."}]).indexed == 1
    (folder / "late.md").unlink()
    retriever.sync()
    assert retriever.text("late.md") == "The king again."


def test_deleting_without_erasing_builds_nothing_anew(retriever, monkeypatch):
    before = retriever.search("cat dog king tax", 100)
    vectors = retriever.snapshot().head.vectors
    assert retriever.delete("notes/cats.txt", erase=False).removed == 1
    assert retriever.snapshot().head.vectors == vectors
    left = retriever.search("cat dog king tax", 100)
    assert {hit.passage for hit in left} == {hit.passage for hit in before if hit.path != "notes/cats.txt"}
    assert retriever.verify().faults == []
    assert retriever.delete("notes/cats.txt").removed == 0
    assert retriever.sync().indexed == 0  # it stays out


def test_a_deleted_file_stays_out_until_asked_back(retriever, folder):
    assert retriever.delete("notes/cats.txt").removed == 1
    assert retriever.sync().indexed == 0
    (folder / "notes/cats.txt").write_text("The cat sat on another mat.")
    assert retriever.sync().indexed == 0
    assert "notes/cats.txt" not in {hit.path for hit in retriever.search("cat", 20)}
    assert retriever.sync(retry=True).indexed == 1
    assert retriever.search("cat", mode="lexical")[0].text == "The cat sat on another mat."


def test_a_deleted_file_stays_out_though_it_was_ignored_for_a_while(retriever, folder):
    retriever.delete("notes/cats.txt")
    (folder / "notes/.gitignore").write_text("cats.txt\n")
    retriever.sync()
    (folder / "notes/.gitignore").unlink()
    retriever.sync()
    assert "notes/cats.txt" not in {hit.path for hit in retriever.search("cat", 20)}


def test_a_deleted_file_that_is_gone_is_forgotten_altogether(retriever, folder):
    retriever.delete("notes/cats.txt")
    (folder / "notes/cats.txt").unlink()
    retriever.sync()
    assert "notes/cats.txt" not in {row["path"] for row in retriever.documents()}


def test_a_deleted_added_document_can_be_added_again(notes):
    notes.add([{"id": "a", "text": "cat"}, {"id": "b", "text": "dog"}])
    notes.delete("a")
    assert notes.add([{"id": "a", "text": "cat"}]).indexed == 1
    for mode in ("lexical", "semantic", "hybrid"):
        assert notes.search("cat", mode=mode)[0].path == "a"


def test_emptied_and_filled_again(notes):
    for _ in range(3):
        notes.add([{"id": "a", "text": "cat"}])
        for mode in ("lexical", "semantic", "hybrid"):
            assert [hit.path for hit in notes.search("cat", mode=mode)] == ["a"]
        assert notes.delete("a").removed == 1
        assert notes.search("cat") == []
        assert notes.verify().faults == []


# Looking inside


def test_lines_of_a_document(retriever, folder):
    text = (folder / "notes/guide/tasks.md").read_text().split("\n")
    assert retriever.text("notes/guide/tasks.md", lines=(3, 5)) == "\n".join(text[2:5])
    assert retriever.text("notes/guide/tasks.md", lines=(1, 10**6)) == "\n".join(text)
    assert "Bake the bread" in retriever.text("web/bread.html", lines=(2, 2))
    with pytest.raises(InputError, match="not in the index"):
        retriever.text("absent", lines=(1, 2))


def test_lines_of_a_text_that_begins_with_an_empty_line(notes):
    notes.add([{"id": "a", "text": "\nThe cat sat.\nThe dog ran.\n\nThe ship sailed."}])
    assert [notes.text("a", lines=(line, line)) for line in range(1, 6)] == [
        *("", "The cat sat.", "The dog ran.", "", "The ship sailed.")
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda reads: reads.check(None), "expected a hit, or a passage of a context, not None"),
        (lambda reads: reads.similar(5, 1), "5 is not a document: expected its path, or its id"),
        (lambda reads: reads.text(5), "5 is not a document: expected its path, or its id"),
        (lambda reads: reads.line_range(None), "None is not a document: expected its path, or its id"),
    ],
)
def test_what_names_no_document_is_refused(retriever, call, message):
    for reads in (retriever, retriever.scope("type=markdown")):
        with pytest.raises(InputError, match=message):
            call(reads)


@pytest.mark.parametrize(("first", "last"), [("1", "2"), (1.0, 2), (1, None), (True, 2)])
def test_lines_are_whole_numbers(retriever, first, last):
    with pytest.raises(InputError, match="a line is a whole number from 1"):
        retriever.text("notes/cats.txt", lines=(first, last))


def test_similar_passages_leave_out_the_one_asked_about(retriever):
    hits = retriever.similar("notes/guide/tasks.md", 3, 5)
    assert len(hits) == 5
    (own,) = {hit.passage for hit in retriever.search("cancel the task", 1, mode="lexical")}
    assert own not in {hit.passage for hit in hits}
    assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5]
    assert hits.version == retriever.snapshot().head.commits > 0
    with pytest.raises(InputError, match="not in the index"):
        retriever.similar("absent", 1)
    with pytest.raises(InputError, match=r"no reader for \.bin"):
        retriever.similar("picture.bin", 1)


def test_similar_is_the_cosine_with_the_stored_vector(retriever):
    rows = {row["id"]: np.array(row["vector"]) for row in retriever.snapshot().chunks.to_table().to_pylist()}
    hits = retriever.similar("notes/cats.txt", 1, 100)
    (own,) = rows.keys() - {hit.passage for hit in hits}
    for hit in hits:
        assert hit.score == pytest.approx(float(rows[own] @ rows[hit.passage]), abs=1e-5)


def test_similar_passages_can_be_filtered(retriever):
    assert {hit.path for hit in retriever.similar("notes/cats.txt", 1, where="type=md")} <= {
        "README.md",
        "notes/taxes.md",
        "notes/guide/tasks.md",
    }


def test_filters_on_files(retriever):
    assert {hit.path for hit in retriever.search("the", 20, mode="semantic", where="path=notes/**")} == {
        "notes/cats.txt",
        "notes/taxes.md",
        "notes/guide/tasks.md",
    }
    assert {hit.path for hit in retriever.search("the", 20, mode="semantic", where="type=html")} == {"web/bread.html"}
    assert retriever.search("cat", where="modified>=2024-01-01") == []
    assert len(retriever.search("cat", 20, mode="semantic", where=["modified>=2023-01-01", "size<1KB"])) == 9


def test_status_adds_up(retriever):
    measured = retriever.status()
    assert measured.documents == {"indexed": 7, "skipped": 4, "failed": 0, "forgotten": 0}
    assert measured.chunks == retriever.snapshot().chunks.count_rows()
    assert (measured.dim, measured.newer_rows, measured.deleted_rows) == (32, 0, 0)
    assert measured.bytes == sum(file.stat().st_size for file in retriever.path.rglob("*") if file.is_file())
    retriever.add([{"text": "cat"}])
    assert retriever.status().newer_rows == 1


def test_status_of_a_state_that_is_gone_meanwhile_is_that_of_the_next(retriever, monkeypatch):
    before, read = retriever.status(), Snapshot.read

    def gone(*_):
        monkeypatch.setattr(Snapshot, "read", read)
        Retriever.open(retriever.path).add([{"id": "new", "text": "a cat"}])
        raise DamagedError("its files are gone")

    monkeypatch.setattr(Snapshot, "read", gone)
    assert Retriever.open(retriever.path).status().documents["indexed"] == before.documents["indexed"] + 1


def test_a_file_that_is_removed_while_the_bytes_of_an_index_are_counted_has_none(tmp_path, monkeypatch):
    (tmp_path / "chunks").mkdir()
    (tmp_path / "chunks" / "kept").write_bytes(bytes(7))
    monkeypatch.setattr(os, "walk", lambda folder: [(str(tmp_path / "chunks"), [], ["kept", "removed"])])
    assert FolderLocation(tmp_path).size() == 7


def test_a_snapshot_is_the_same_until_something_is_committed(retriever):
    first = retriever.snapshot()
    retriever.search("cat")
    assert retriever.snapshot() is first
    Retriever.open(retriever.path).add([{"text": "The queen of the sea."}])
    assert retriever.snapshot() is not first
    assert retriever.search("queen", mode="lexical")


@pytest.fixture
def hashed(monkeypatch):
    """The files of vector indexes that are read to be held against their checksums."""
    files, sha256, known_sha256 = [], manifest.sha256, manifest.known_sha256
    monkeypatch.setattr(manifest, "sha256", lambda file: files.append(file) or sha256(file))
    monkeypatch.setattr(manifest, "known_sha256", lambda file: files.append(file) or known_sha256(file))
    return files


def assert_nearest(retriever, query, hashed, checks):
    """A search finds the same as comparing every committed vector, and checks so many files for it."""
    before = len(hashed)
    hits = retriever.search(query, 10**6, mode="semantic")
    assert len({file.parent for file in hashed[before:]}) == checks
    rows = retriever.snapshot().chunks.to_table(columns=["id", "vector"])
    scores = np.array(rows["vector"].to_pylist(), np.float32) @ retriever.encoder.encode([query], kind="query")[0]
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(scores)[::-1], atol=1e-5)
    exact = dict(zip(rows["id"].to_pylist(), scores.tolist(), strict=True))
    assert {hit.passage: pytest.approx(hit.score, abs=1e-5) for hit in hits} == exact


def test_a_vector_index_that_stays_in_service_is_checked_once(retriever, hashed):
    """Whatever is added, replaced and deleted in between, until another is published."""
    reader, writer = Retriever.open(retriever.path), Retriever.open(retriever.path)
    assert_nearest(reader, "the cat", hashed, 1)
    for number in range(3):
        writer.add([{"id": f"{number}", "text": f"The queen number {number}."}, {"id": "x", "text": f"Red {number}"}])
        assert_nearest(reader, "the queen", hashed, 0)
    (retriever.folder / "notes/cats.txt").unlink()
    writer.sync()
    assert_nearest(reader, "the cat", hashed, 0)
    assert not any(hit.path == "notes/cats.txt" for hit in reader.search("cat", 100))
    assert reader.snapshot().index.live_mask is not None
    assert reader.snapshot().index.unindexed is not None
    writer.build_index("ivf_int8", nlist=2, search={"nprobe": 2})
    assert_nearest(reader, "the queen", hashed, 1)
    writer.add([{"id": "1", "text": "The king of the river."}])
    assert_nearest(reader, "the king", hashed, 0)
    writer.delete(folder="notes", erase=True)
    assert_nearest(reader, "the cat", hashed, 1)


def test_a_damaged_vector_index_is_looked_at_again_after_a_commit(retriever):
    snapshot = retriever.snapshot()
    (file,) = snapshot.store.location.vectors(snapshot.head.vectors).glob("*.f32")
    whole = file.read_bytes()
    file.write_bytes(whole[:-4])
    reader, before = Retriever.open(retriever.path), retriever.snapshot().head.vectors
    assert reader.snapshot().damage is not None
    file.write_bytes(whole)
    retriever.add([{"text": "The queen of the sea."}])
    assert reader.snapshot().head.vectors == before
    assert reader.snapshot().damage is None


def test_another_encoder_has_another_vector_index(retriever, hashed, make_model, tmp_path):
    reader = Retriever.open(retriever.path)
    assert_nearest(reader, "the cat", hashed, 1)
    retriever.switch(make_model(tmp_path / "other", seed=5))
    assert_nearest(reader, "the cat", hashed, 1)
    retriever.rollback()
    assert_nearest(reader, "the cat", hashed, 1)


def test_reading_writes_nothing(retriever):
    before = {
        file: (file.read_bytes(), file.stat().st_mtime_ns) for file in retriever.path.rglob("*") if file.is_file()
    }
    reader = Retriever.open(retriever.path)
    for mode in ("lexical", "semantic", "hybrid"):
        reader.search("cat", mode=mode, where="size>1")
    reader.context("cat")
    reader.similar("notes/cats.txt", 1)
    reader.documents()
    reader.text("notes/cats.txt", lines=(1, 2))
    reader.status()
    assert {
        file: (file.read_bytes(), file.stat().st_mtime_ns) for file in retriever.path.rglob("*") if file.is_file()
    } == before


def test_settings_name_the_folder_relative_to_the_index(retriever):
    assert json.loads((retriever.path / "settings.json").read_text())["folder"] == ".."


# Threads


def read_while(retriever, write):
    """What goes wrong in threads that share a retriever while `write` changes the index through another."""
    expected = retriever.search("cancel a task", 1)[0].passage
    shared, faults, done = Retriever.open(retriever.path), [], threading.Event()

    def read():
        try:
            while not done.is_set():
                assert shared.search("cancel a task", 3, where="path=**")[0].passage == expected
                assert shared.context("cancel a task").passages
                shared.documents()
                shared.text("notes/cats.txt", lines=(1, 2))
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    writer = Retriever.open(retriever.path)
    try:
        for number in range(6):
            write(writer, number)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    return faults


@pytest.mark.thorough
def test_threads_share_a_retriever_while_another_adds(retriever):
    assert (
        read_while(
            retriever,
            lambda writer, number: writer.add([{"id": f"{number % 3}", "text": f"The queen number {number}."}]),
        )
        == []
    )


@pytest.mark.thorough
def test_threads_share_a_retriever_while_another_deletes(retriever):
    def write(writer, number):
        writer.add([{"id": f"{number}", "text": f"The queen number {number} of the sea."}])
        writer.delete(f"{number}")

    assert read_while(retriever, write) == []


def test_threads_that_write_through_one_retriever_wait_for_each_other(notes):
    faults = []

    def add(number):
        try:
            notes.add([{"id": f"{number}", "text": f"cat number {number}"}])
        except BinocleError as error:
            faults.append(error)

    threads = [threading.Thread(target=add, args=[number]) for number in range(4)]  # the first of them makes the index
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert {row["path"] for row in notes.documents()} == {"0", "1", "2", "3"}
    assert notes.verify().faults == []


def test_a_second_retriever_that_writes_at_once_is_refused(notes):
    notes.add([])

    def documents():
        with pytest.raises(LockedError, match="is being written by process"):
            Retriever.open(notes.path).add([{"text": "dog"}])
        yield {"text": "cat"}

    assert notes.add(documents()).indexed == 1


def test_the_example_in_the_package_works(folder, tiny_model, monkeypatch):
    monkeypatch.chdir(folder.parent)
    retriever = Retriever.open(folder.name, model=tiny_model)
    retriever.sync()
    first = retriever.search("how do I cancel a task?")[0]
    assert (first.path, first.line_start, Path(first.path).suffix) == ("notes/guide/tasks.md", 1, ".md")


def test_a_retriever_opens_its_store_once_and_reads_the_head_once_a_search(retriever, monkeypatch):
    opened, files = [], []
    open_store, read = Store.open, FolderLocation.read
    monkeypatch.setattr(Store, "open", lambda at, **how: opened.append(at) or open_store(at, **how))
    monkeypatch.setattr(FolderLocation, "read", lambda self, file: files.append(file) or read(self, file))
    reader = Retriever.open(retriever.path)
    assert reader.folder is not None
    for count in (1, 2):
        assert reader.search("cat")
        assert reader.encoder.dim == 32
        assert files.count("HEAD.json") == count
    assert len(opened) == 1


def test_an_open_index_that_was_removed_and_made_anew_is_opened_again(tmp_path, tiny_model):
    reader, path = Retriever.open(tmp_path / "index", model=tiny_model), tmp_path / "index"
    reader.add([{"id": "cat", "text": "The cat sat on the mat."}])
    assert [hit.path for hit in reader.search("cat")] == ["cat"]
    shutil.rmtree(path)
    with pytest.raises(NoIndexError, match="make one with"):
        reader.search("cat")
    with pytest.raises(NoIndexError, match="make one with"):
        reader.folder  # noqa: B018 - it is read anew
    Retriever.open(path, model=tiny_model).add([{"id": "queen", "text": "The queen of the sea."}])
    assert [hit.path for hit in reader.search("queen")] == ["queen"]
    assert reader.folder is None
