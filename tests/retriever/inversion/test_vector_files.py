"""Vectors are read from .npy, Parquet and Lance, and what holds none is told in a line."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from binocle.core.errors import InputError
from binocle.retriever.inversion.vector_files import read_vectors

ROWS = np.random.default_rng(0).standard_normal((10_000, 4)).astype(np.float32)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("vectors")
    table = pa.table({"id": range(len(ROWS)), "vector": pa.FixedSizeListArray.from_arrays(ROWS.ravel(), 4)})
    np.save(root / "rows.npy", ROWS)
    np.save(root / "half.npy", ROWS.astype(np.float16))
    parquet.write_table(table, root / "rows.parquet", row_group_size=1_000)
    lance.write_dataset(table, root / "rows.lance")
    return {path.name: path for path in root.iterdir()}


@pytest.mark.parametrize("name", ["rows.npy", "rows.parquet", "rows.lance"])
@pytest.mark.parametrize(("first", "limit"), [(0, None), (0, 3), (4_095, 4_100), (9_999, 5), (1, 2**70)])
def test_the_rows_asked_for_come(files, name, first, limit):
    vectors = read_vectors(files[name], first=first, limit=limit)
    expected = ROWS[first:] if limit is None else ROWS[first : first + limit]
    assert np.array_equal(vectors, expected)
    assert vectors.dtype == np.float32


@pytest.mark.parametrize("name", ["rows.npy", "rows.parquet", "rows.lance"])
@pytest.mark.parametrize("first", [10_000, 2**70])
def test_a_row_that_is_not_there_is_told(files, name, first):
    with pytest.raises(InputError, match=f"{name} has 10,000 rows, numbered from 0: there is no row {first}$"):
        read_vectors(files[name], first=first)


def test_of_no_rows_there_is_not_the_first(tmp_path):
    parquet.write_table(pa.table({"vector": pa.array([], pa.list_(pa.float32()))}), tmp_path / "none.parquet")
    np.save(tmp_path / "none.npy", np.empty((0, 4)))
    for name in ("none.parquet", "none.npy"):
        with pytest.raises(InputError, match=f"{name} has 0 rows"):
            read_vectors(tmp_path / name)


def test_numbers_beyond_float32_are_infinite(tmp_path):
    np.save(tmp_path / "huge.npy", np.array([[1e300, 1.0]]))
    parquet.write_table(pa.table({"vector": [[1e300, 1.0]]}), tmp_path / "huge.parquet")
    for name in ("huge.npy", "huge.parquet"):
        assert read_vectors(tmp_path / name).tolist() == [[np.inf, 1.0]]


def test_half_precision_comes_as_float32(files):
    assert np.array_equal(read_vectors(files["half.npy"]), ROWS.astype(np.float16).astype(np.float32))


def test_one_vector_is_one_row(tmp_path):
    np.save(tmp_path / "one.npy", ROWS[0])
    assert np.array_equal(read_vectors(tmp_path / "one.npy"), ROWS[:1])


def write(folder: Path, name: str, content: object) -> Path:
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        np.save(folder / name, content, allow_pickle=True)
    return folder / name


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("text.npy", b"not an array", "is not an array"),
        ("empty.npy", b"", "is not an array"),
        ("objects.npy", np.array([{"a": 1}], dtype=object), "is not an array"),
        ("zip.npy", b"PK\x03\x04 and no more", "is not an array"),
        ("words.npy", np.array([["a", "b"]]), "expected numbers of shape"),
        ("deep.npy", np.zeros((1, 2, 3)), "expected numbers of shape"),
        ("text.parquet", b"not a table", "is not a Parquet file"),
        ("vectors.csv", b"1,2,3", "expected .npy, .parquet or a Lance table"),
    ],
)
def test_what_holds_no_vectors_is_told(tmp_path, name, content, says):
    with pytest.raises(InputError, match=says):
        read_vectors(write(tmp_path, name, content))


def test_an_archive_of_arrays_is_told(tmp_path):
    np.savez(tmp_path / "a.npz", vectors=ROWS[:2])
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(InputError, match=r"a\.npy is not an array that can be read"):
        read_vectors(tmp_path / "a.npy")


def test_a_folder_that_is_no_table_is_told(tmp_path):
    with pytest.raises(InputError, match="is not a Lance table"):
        read_vectors(tmp_path)


def test_columns_are_named(tmp_path):
    table = pa.table({"mine": [[1.0, 2.0], [3.0, 4.0]], "uneven": [[1.0], [2.0, 3.0]], "name": ["a", "b"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(InputError, match="no column 'vector', but mine, uneven, name"):
        read_vectors(tmp_path / "t.parquet")
    assert np.array_equal(read_vectors(tmp_path / "t.parquet", column="mine"), [[1, 2], [3, 4]])
    for column in ("uneven", "name"):
        with pytest.raises(InputError, match="no vectors of one length"):
            read_vectors(tmp_path / "t.parquet", column=column)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        read_vectors(tmp_path / "gone.npy")
