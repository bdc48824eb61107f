from __future__ import annotations

import struct
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from binocle import Retriever
from binocle.core.errors import DamagedError, StoreError
from binocle.retriever.store.deletion_files import check_deletions


@pytest.fixture
def table(tmp_path):
    lance.write_dataset(pa.table({"id": range(100)}), tmp_path / "t.lance").delete("id in (3, 5, 70)")
    return tmp_path / "t.lance"


def file_of(table: Path) -> Path:
    (file,) = (table / "_deletions").iterdir()
    return file


def with_claim(data: bytes, size: int) -> bytes:
    """The file with another size before its numbers, to which they are said to unpack; -1: they are not packed."""
    assert data[448:456] == struct.pack("<q", -1)
    return data[:448] + struct.pack("<q", size) + data[456:]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: with_claim(data, 674 * 10**9), "claims more than the 12 bytes"),
        (lambda data: with_claim(data, 12), "does not hold"),
        (lambda data: data[:-10] + struct.pack("<i", 2**31 - 1) + data[-6:], "does not hold"),
        (lambda data: data[:-10] + struct.pack("<i", -1) + data[-6:], "does not hold"),
        (lambda data: data[:300], "it is no Arrow file"),
        (lambda data: b"", "does not hold"),
        (
            lambda data: data.replace(struct.pack("<qi4xq", 192, 192, 128), struct.pack("<qi4xq", 192, 192, 2**39)),
            "bytes",
        ),
        (lambda data: data.replace(struct.pack("<qi4xq", 192, 192, 128), struct.pack("<qi4xq", 192, 0, 128)), "hold"),
    ],
)
def test_deleted_rows_that_claim_more_than_their_file_are_damage(change, says, table):
    file = file_of(table)
    data = change(whole := file.read_bytes())
    assert data != whole
    file.write_bytes(data)
    with pytest.raises(DamagedError, match=says) as refusal:
        check_deletions(lance.dataset(table))
    assert "\n" not in str(refusal.value)


def test_whole_deletion_files_pass(table):
    check_deletions(lance.dataset(table))


def test_a_damaged_deletion_file_leads_back_to_the_commit_before_and_ends_no_process(tmp_path, tiny_model, caplog):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add({"id": f"d{number}", "text": f"The cat number {number}."} for number in range(5))
    retriever.delete("d3", erase=False)
    (file,) = (retriever.path / "chunks.lance" / "_deletions").iterdir()
    file.write_bytes(with_claim(file.read_bytes(), 674 * 10**9))
    for mode in ("semantic", "lexical"):
        hits = Retriever.open(tmp_path / "index").search("cat", mode=mode)
        assert {hit.path for hit in hits} == {"d0", "d1", "d2", "d3", "d4"}
    assert "does not hold the deleted rows" in caplog.text
    with pytest.raises(StoreError, match="deleted rows"):
        Retriever.open(tmp_path / "index").add([{"text": "A dog."}])
