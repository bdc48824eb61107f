"""Tables of SQLite and Parquet files: rows as people see them, and nothing that a hostile file can run."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pyarrow as pa
import pytest
from pyarrow import parquet

from binocle.core.errors import UnreadableError, UnsupportedError
from binocle.retriever.readers import ReaderPool, database, read


def sqlite(tmp_path, *statements: str, mode: str = "delete") -> bytes:
    file = tmp_path / "made.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return file.read_bytes()


BIRDS = (
    'CREATE TABLE "the birds" (id INTEGER, name TEXT, weight REAL, picture BLOB)',
    "INSERT INTO \"the birds\" VALUES (1, 'Duck' || char(10) || 'of the lake', 1.1, x'00'), (2, NULL, 0.1 + 0.2, NULL)",
)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_tables_of_sqlite_are_read_row_by_row(tmp_path, mode: str) -> None:
    data = sqlite(tmp_path, *BIRDS, "CREATE TABLE t (a)", "INSERT INTO t VALUES ('x')", mode=mode)
    document = read(data, "a.db")
    assert document.text == "id\tname\tweight\tpicture\n1\tDuck of the lake\t1.1\n2\t\t0.3\n\na\nx"
    assert [(part.heading, part.page, part.kind) for part in document.parts] == [
        (("the birds",), 1, "table"),
        (("t",), 2, "table"),
    ]


def test_rows_far_down_a_table_have_the_names_of_its_columns(tmp_path) -> None:
    rows = "INSERT INTO t WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT i, 'duck' FROM n"
    document = read(sqlite(tmp_path, 'CREATE TABLE t ("1st", bird)', rows), "a.sqlite")
    assert {part.heading for part in document.parts} == {("t", "1st, bird")}
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"name": ["goose"] * 300, "n": range(300)}), file)
    assert {part.heading for part in read(file.read_bytes(), "a.parquet").parts} == {("name, n",)}


def test_a_parquet_file_is_read_in_a_process_with_limits(tmp_path) -> None:
    table = pa.table({"name": ["Duck", None], "tags": [["a", "b"], []], "raw": [b"x", b"y"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with ReaderPool(tmp_path, workers=1) as pool:
        (reading,) = pool.read_all(["a.parquet"])
    assert reading.document.text == "name\ttags\traw\nDuck\t['a', 'b']\n\t[]"


def test_views_and_virtual_tables_do_not_run(tmp_path) -> None:
    statements = (
        *BIRDS,
        "CREATE VIEW v AS SELECT 'from a view' AS x",
        "CREATE VIRTUAL TABLE f USING fts5(words)",
        "INSERT INTO f VALUES ('Geese honk')",
    )
    document = read(sqlite(tmp_path, *statements), "a.db")
    assert [part.heading[0] for part in document.parts] == ["the birds", "f_content"]
    assert "Geese honk" in document.text
    assert "from a view" not in document.text


def test_rows_beyond_the_limit_are_left_out_and_counted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(database, "_MAX_CHARACTERS", 30)
    data = sqlite(
        tmp_path, "CREATE TABLE t (a)", *[f"INSERT INTO t VALUES ('row {number} of many')" for number in range(9)]
    )
    document = read(data, "a.db")
    assert document.text.endswith("row 2 of many")
    assert document.metadata["unread"] == "t only 3 rows were read"


def test_damaged_databases_say_so(tmp_path) -> None:
    data = sqlite(tmp_path, *BIRDS)
    with pytest.raises(UnreadableError, match="damaged"):
        read(data[:100] + b"\xff" * (len(data) - 100), "a.db")
    with pytest.raises(UnreadableError, match="damaged"):
        read(b"PAR1 and no more PAR1", "a.parquet")
    with pytest.raises(UnsupportedError, match="no SQLite database"):
        read(b"\0\1\2 another database", "a.db")
