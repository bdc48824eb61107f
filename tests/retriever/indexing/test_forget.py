"""Look for 200 forgotten secrets in the raw and the decoded bytes of an index and of the user's caches."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from binocle import NotFoundError, Retriever
from binocle.core.arrays import Floats
from binocle.retriever.indexing.indexer import key_of
from binocle.retriever.store.derived import benchmark_queries
from binocle.retriever.store.head import FORMAT
from binocle.retriever.store.store import Store
from binocle.retriever.store.tables import document_schema
from binocle.retriever.store.tombstones import digest
from binocle.retriever.store.writer import open_writer

FILES, ADDED = 40, 20  # with three and four secrets each


@pytest.fixture(scope="session")
def planted(tmp_path_factory, make_model):
    """An index with 200 secrets, kept queries and the vectors of two encoders; and the pieces to look for."""
    tmp = tmp_path_factory.mktemp("planted")
    folder, secrets, paths = tmp / "folder", Words(), []
    folder.mkdir()
    for number in range(FILES):
        name, title, text = secrets.take(3)
        file = folder / name[:4] / f"{number}-{name}.md"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"# A {title}\n\nThe cat sat on the mat of {text}. Number {number} ran to the {text} house.\n")
        (folder / f"{number}.md").write_text(f"# A ship\n\nThe moon and the sea, number {number}.\n")
        paths.append(file.relative_to(folder).as_posix())
    retriever = Retriever.open(folder, model=make_model(tmp / "first", seed=0))
    retriever.sync()
    documents = [
        {"id": name, "title": title, "text": f"A dog and a {text}.", "metadata": {"who": who}}
        for name, title, text, who in (secrets.take(4) for _ in range(ADDED))
    ]
    retriever.add(documents)
    retriever.optimize(0.5, kinds=["flat"])
    vectors = vectors_of(retriever)
    retriever.switch(make_model(tmp / "second", seed=1))
    retriever.optimize(0.5, kinds=["flat"])
    return retriever, [*paths, *(row["id"] for row in documents)], secrets, vectors | vectors_of(retriever)


class Words:
    """Words that no text has by chance, under any ending: the first nine letters of each are looked for."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._random = random.Random(0)

    def take(self, count: int) -> list[str]:
        words = ["zq" + "".join(self._random.choices("bcdfghjklmnp", k=10)) for _ in range(count)]
        self.all += words
        return words


def vectors_of(retriever: Retriever) -> dict[bytes, str]:
    """The vectors of secret texts in the index, and of the queries made from such texts."""
    name, safe = retriever.encoder.name, [f"The moon and the sea, number {number}." for number in range(FILES)]
    rows = retriever.snapshot().chunks.to_table(columns=["context", "vector"]).to_pylist()
    vectors = {row["context"]: np.array(row["vector"], "<f4").tobytes()[:16] for row in rows}
    found = {piece: f"vector of {text} by {name}" for text, piece in vectors.items() if "zq" in text}
    others = {vector.tobytes()[:16] for vector in retriever.encoder.encode([*safe, "A ship"], kind="query")}
    queries = {vector.tobytes()[:16] for vector in kept_queries(retriever)} - others
    assert queries  # else this test proves nothing
    return found | dict.fromkeys(queries, f"query by {name}")


def needles(secrets: Words, rows: list[dict], files: list[Path]) -> dict[bytes, str]:
    """The words, keys and hashes that must not be found -> their meaning."""
    found = {word[:9].encode(): word for word in secrets.all}
    for row in rows:
        found[key_of(row["context"]).to_bytes(8, "little", signed=True)] = "key"
    for file in files:
        checksum = hashlib.sha256(file.read_bytes())
        found |= {checksum.digest(): f"hash of {file}", checksum.hexdigest().encode(): f"hash of {file}"}
    return found


def left(folders: list[Path], pieces: dict[bytes, str]) -> set[str]:
    """The pieces in the names, bytes and decoded tables of these folders."""
    files = [file for folder in folders for file in folder.rglob("*")]
    data = b"\n".join(piece for file in files for piece in (str(file).encode(), *contents(file)))
    lower = data.lower()
    return {name for piece, name in pieces.items() if piece in data or piece in lower}


def contents(file: Path) -> Iterator[bytes]:
    """The bytes of a file, and the values of a Lance file; of a table's folder the rows of all its versions."""
    if file.is_file():
        yield file.read_bytes()
    if file.is_file() and file.suffix == ".lance":
        with contextlib.suppress(OSError, ValueError):  # it has no values
            yield str(LanceFileReader(str(file)).read_all().to_table().to_pylist()).encode()
    if file.name in ("documents.lance", "chunks.lance"):
        for version in lance.dataset(str(file)).versions():
            yield str(lance.dataset(str(file), version=version["version"]).to_table().to_pylist()).encode()


@pytest.mark.thorough
def test_forget_leaves_none_of_200_secrets(planted):
    retriever, paths, secrets, vectors = planted
    folder, cache = retriever.folder, Path(os.environ["XDG_CACHE_HOME"])
    assert len(set(secrets.all)) == 200
    rows = retriever.snapshot().chunks.to_table(columns=["context"], filter="context LIKE '%zq%'").to_pylist()
    pieces = vectors | needles(secrets, rows, [folder / path for path in paths[:FILES]])
    before = left([retriever.path], pieces)
    assert before >= set(secrets.all)  # else this test proves nothing
    assert {name for name in vectors.values() if name.startswith("vector")} <= before
    assert len({name for name in before if name.startswith("query")}) == 1

    assert retriever.delete(*paths, erase=True).removed == len(paths)
    assert left([retriever.path, cache], pieces) == set()

    assert (retriever.sync().indexed, len(retriever.snapshot().tombstones)) == (0, FILES)
    assert left([retriever.path, cache], pieces) == set()
    retriever.rollback()
    assert left([retriever.path, cache], pieces) == set()
    retriever.sync()
    assert left([retriever.path, cache], pieces) == set()
    assert retriever.verify().faults == []
    assert retriever.sync(retry=True).indexed == FILES
    assert retriever.snapshot().tombstones == {}


def kept_queries(retriever: Retriever) -> Floats:
    queries = benchmark_queries.read_stored(retriever.location, retriever.snapshot().head.encoder)
    assert queries is not None
    return queries


def test_a_tombstone_differs_from_one_index_to_another(tmp_path, tiny_model, write):
    names = []
    for place in ("a", "b"):
        retriever = Retriever.open(write(tmp_path / place, {"diary.md": "The cat sat."}), model=tiny_model)
        retriever.sync()
        retriever.delete("diary.md", erase=True)
        names += retriever.snapshot().tombstones
        assert names[-1] == digest("diary.md", retriever.snapshot().head.tombstone_key)
    assert names[0] != names[1]


def test_a_forgotten_file_stays_out_while_it_is_away_and_under_a_rule_that_ignores_it(retriever, folder, write):
    retriever.delete("notes/cats.txt", erase=True)
    with pytest.raises(NotFoundError, match="'notes/cats.txt' was forgotten on request: 'binocle index --retry'"):
        retriever.document("notes/cats.txt")
    text = (folder / "notes/cats.txt").read_text()
    (folder / "notes/cats.txt").unlink()
    retriever.sync()
    write(folder, {"notes/cats.txt": text, ".binocleignore": "cats.txt\n"})
    assert retriever.sync().indexed == 0
    assert [row["path"] for row in retriever.documents() if "cats" in row["path"]] == []
    (folder / ".binocleignore").unlink()
    assert retriever.sync().indexed == 0
    assert retriever.status().documents["forgotten"] == 1


def test_a_forgotten_file_under_another_name_is_another_file(retriever, folder):
    retriever.delete("notes/cats.txt", erase=True)
    (folder / "notes/cats.txt").rename(folder / "notes/dogs.txt")
    assert retriever.sync().indexed == 1


def test_retry_lifts_the_tombstones_of_missing_files_too(retriever, folder):
    retriever.delete("notes/cats.txt", "README.md", erase=True)
    (folder / "README.md").unlink()
    assert retriever.sync(retry=True).indexed == 1
    assert retriever.snapshot().tombstones == {}


def test_names_that_an_earlier_version_left_are_erased_by_the_next_writer(retriever):
    (row,) = [row for row in retriever.documents() if row["path"] == "picture.bin"]
    with open_writer(Store.open(retriever.path)) as writer:
        earlier = {**row, "reason": "forgotten on request", "text": "", "metadata": "{}"}
        writer.replace_rows(pa.Table.from_pylist([earlier], document_schema()))
    for name, change in (("HEAD.json", {"tombstone_key": ""}), ("settings.json", {"format": 2})):
        file = retriever.path / name
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert Retriever.open(retriever.path).status().documents["forgotten"] == 0  # a reader changes nothing
    retriever.add([{"id": "a", "text": "The cat sat."}])
    assert left([retriever.path], {b"picture.bin": "name", row["sha256"].encode(): "hash"}) == set()
    assert json.loads((retriever.path / "settings.json").read_text())["format"] == FORMAT
    assert retriever.sync().indexed == 0
    assert retriever.status().documents["forgotten"] == 1
