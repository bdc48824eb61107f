"""Columns kept by fragment equal the columns that Lance reads after adding, deleting and merging."""

from __future__ import annotations

import random

import lance
import pyarrow as pa
import pytest

from binocle import Retriever
from binocle.core.errors import DamagedError
from binocle.retriever.store.derived import fragment_columns
from binocle.retriever.store.derived.fragment_columns import FragmentColumns
from binocle.retriever.store.documents import documents_at
from binocle.retriever.store.snapshot import Snapshot

CHUNKS = ["id", "document", "key"]


def check_columns(snapshot: Snapshot) -> None:
    fresh = Snapshot.latest(snapshot.store)
    for table, columns in (("chunks", CHUNKS), ("documents", ["id"])):
        for column in columns:
            assert snapshot.numbers(table, column).tolist() == fresh.read(table, [column])[column].to_pylist()
        rows = fresh.read(table, ["id", "_rowoffset"]).sort_by("id").to_pydict()
        assert [array.tolist() for array in snapshot._row_offsets(table)] == [rows["id"], rows["_rowoffset"]]


@pytest.fixture
def retriever(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": f"d{number}", "text": f"cat {number}"} for number in range(9)])
    return retriever


def test_columns_are_those_of_the_table_after_any_writes(retriever, small_fragments):
    chosen = random.Random(3)
    for step in range(12):
        numbers = chosen.sample(range(30), 2)
        if step % 3:
            retriever.add([{"id": f"d{number}", "text": f"cat {number} of step {step}"} for number in numbers])
        else:
            retriever.delete(*(f"d{number}" for number in numbers), erase=step == 6)
        check_columns(retriever.snapshot())
        paths = {row["path"] for row in retriever.documents()}
        for number in range(30):
            assert (f"d{number}" in retriever) == (f"d{number}" in paths)


def test_a_write_reads_new_fragments_alone(retriever, monkeypatch):
    numbers, read = [], fragment_columns._read

    def counting(table, fragments, column):
        numbers.append(len(fragments))
        return read(table, fragments, column)

    retriever.add([{"id": "a", "text": "a walrus"}])
    monkeypatch.setattr(fragment_columns, "_read", counting)
    for number in range(3):
        retriever.add([{"id": f"b{number}", "text": f"walrus {number}"}])
    assert numbers and set(numbers) == {1}
    retriever.delete("b1")
    assert set(numbers) == {1}


def test_paths_and_parts_of_files_are_looked_up_by_name(tmp_path, tiny_model):
    parts = [f"big.log/bytes-{start:012}-{start + 5:012}" for start in (0, 5)]
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": name, "text": f"cat {name}"} for name in [*parts, "big.log2", "big"]])
    snapshot = retriever.snapshot()

    def paths(names, **options):
        return sorted(row["path"] for row in documents_at(snapshot, names, [], **options))

    assert paths(["big.log"]) == []
    assert paths(["big.log"], parts=True) == parts
    assert paths([parts[1], "big"]) == ["big", parts[1]]
    assert paths(["none"], parts=True) == []


@pytest.mark.parametrize("column", ["id", "path"])
def test_a_column_with_nulls_is_a_damaged_table(column, tmp_path):
    rows = pa.table({"id": pa.array([1, None]), "path": ["a", None]})
    table = lance.write_dataset(rows, tmp_path / "documents.lance")
    with pytest.raises(DamagedError, match=f"rows without {column}"):
        FragmentColumns().read(table, column)
