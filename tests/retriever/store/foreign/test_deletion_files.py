from __future__ import annotations

import os
import struct
from pathlib import Path
from types import SimpleNamespace

import lance
import pyarrow as pa
import pytest

from binocle import Retriever
from binocle.core.errors import DamagedError, StoreError
from binocle.retriever.store.foreign.deletion_files import check_deletions


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


def test_a_deletion_file_that_claims_terabytes_is_not_read(table):
    os.truncate(file_of(table), 2**42)  # sparse: it takes no space
    with pytest.raises(DamagedError, match="larger than 65,548 bytes"):
        check_deletions(lance.dataset(table))


def counting(table: Path, count: int | None, kind: str = "array") -> SimpleNamespace:
    """The table with another count of deleted rows in its manifest."""
    file = SimpleNamespace(file_type=kind, num_deleted_rows=count)
    name = file_of(table).relative_to(table).as_posix()
    fragment = SimpleNamespace(metadata=SimpleNamespace(deletion_file=file), deletion_file=lambda: name)
    return SimpleNamespace(uri=str(table), get_fragments=lambda: [fragment])


def test_a_deletion_file_of_more_than_a_gibibyte_is_not_read_whatever_the_manifest_counts(table):
    os.truncate(file_of(table), 2**30 + 1)
    with pytest.raises(DamagedError, match="larger than 1,073,741,824 bytes"):
        check_deletions(counting(table, 2**40))


def test_deleted_rows_are_as_many_as_the_manifest_counts(table):
    check_deletions(counting(table, 3))
    check_deletions(counting(table, 99, "bitmap"))
    for count in (None, 2, 4):
        with pytest.raises(DamagedError, match=f"it has 3 rows, not {count or 0}"):
            check_deletions(counting(table, count))


def test_numbers_that_end_before_the_last_row_are_damage(table):
    file = file_of(table)
    file.write_bytes(with_buffer(file.read_bytes(), 64, 16))
    assert "does not hold the deleted rows" in refusal(table)


def test_whole_deletion_files_pass(table):
    check_deletions(lance.dataset(table))


def arrow_file(*columns: pa.Array) -> bytes:
    """A packed Arrow file of another writer, with a batch for each column."""
    batches = [pa.record_batch([column], pa.schema([pa.field("row_id", column.type, False)])) for column in columns]
    stream = pa.BufferOutputStream()
    with pa.ipc.new_file(stream, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for batch in batches:
            writer.write(batch)
    return stream.getvalue().to_pybytes()


NUMBERS = pa.array([3, 5, 70], pa.uint32())


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([NUMBERS], ""),
        ([NUMBERS, NUMBERS], "has not one batch"),
        ([NUMBERS.dictionary_encode()], "has not one batch"),
        ([NUMBERS.cast(pa.int64())], "has 3 rows, not 3"),
        ([NUMBERS[:2]], "has 2 rows, not 3"),
        ([pa.array([3, None, 70], pa.uint32())], "has 3 rows, not 3"),
    ],
)
def test_deleted_rows_are_one_batch_of_as_many_numbers_as_the_table_counts(columns, says, table):
    file_of(table).write_bytes(arrow_file(*columns))
    assert says in refusal(table)
    assert says or not refusal(table)


def refusal(table: Path) -> str:
    try:
        check_deletions(lance.dataset(table))
    except DamagedError as error:
        return str(error)
    return ""


def test_deletion_file_that_is_gone_is_left_to_lance(table):
    opened = lance.dataset(table)
    file_of(table).unlink()
    check_deletions(opened)


def test_deleted_rows_of_a_file_without_batches_are_damage(table):
    file = file_of(table)
    data = file.read_bytes()
    footer = len(data) - 10 - struct.unpack_from("<i", data, len(data) - 10)[0]
    root = footer + struct.unpack_from("<I", data, footer)[0]
    fields = root - struct.unpack_from("<i", data, root)[0]
    file.write_bytes(data[:fields] + struct.pack("<H", 4) + data[fields + 2 :])  # the size of a table without fields
    assert "it has not one batch" in refusal(table)


def test_a_claim_is_found_where_the_list_of_fields_ends_in_half_a_field(table):
    file = file_of(table)
    data = with_claim(file.read_bytes(), 674 * 10**9)
    batch = 200 + struct.unpack_from("<I", data, 200)[0]  # of the message, which begins at byte 200
    batch = field_of(data, batch, 2)
    fields = batch - struct.unpack_from("<i", data, batch)[0]
    file.write_bytes(data[:fields] + struct.pack("<H", 4 + 2 * 2 + 1) + data[fields + 2 :])
    assert "claims more than the 12 bytes" in refusal(table)


def field_of(data: bytes, table: int, number: int) -> int:
    """The position of the table in a field of a FlatBuffers table."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    place = table + struct.unpack_from("<H", data, fields + 4 + 2 * number)[0]
    return place + struct.unpack_from("<I", data, place)[0]


def with_block(data: bytes, *, offset: int = 192, metadata: int = 192, body: int = 128) -> bytes:
    """The file with another place and other sizes of its batch."""
    return data.replace(struct.pack("<qi4xq", 192, 192, 128), struct.pack("<qi4xq", offset, metadata, body))


def with_buffer(data: bytes, start: int, length: int) -> bytes:
    """The file with another place and size of its numbers, within the 128 bytes of the batch."""
    place = struct.pack("<qq", 64, 20)
    assert data.count(place) == 1
    return data.replace(place, struct.pack("<qq", start, length))


BEYOND = "names bytes that it does not have"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: with_block(data, body=len(data) - 384 + 1), BEYOND),
        (lambda data: with_block(data, offset=-8), BEYOND),
        (lambda data: with_block(data, metadata=-8), BEYOND),
        (lambda data: with_block(data, body=-8), BEYOND),
        (lambda data: with_buffer(data, 64, 65), BEYOND),
        (lambda data: with_buffer(data, 128, 1), BEYOND),
        (lambda data: with_buffer(data, -1, 20), BEYOND),
        (lambda data: with_buffer(data, 64, -1), BEYOND),
        (lambda data: with_claim(data, 12 + 65), "claims more than the 12 bytes"),
    ],
)
def test_a_place_one_byte_beyond_its_limit_is_damage(change, says, table):
    file = file_of(table)
    file.write_bytes(change(file.read_bytes()))
    assert says in refusal(table)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: with_block(data, body=len(data) - 384),
        lambda data: with_buffer(data, 64, 64),
        lambda data: with_claim(data, 12 + 64),
    ],
)
def test_a_place_at_its_limit_is_left_to_the_reader_of_arrow(change, table):
    file = file_of(table)
    file.write_bytes(change(file.read_bytes()))
    assert BEYOND not in refusal(table)
    assert "claims more" not in refusal(table)


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
