"""Parts of large text files: where they are cut, and how their paths are read."""

from __future__ import annotations

import hashlib
import os
from itertools import pairwise

import pytest

from binocle.retriever.documents import file_parts
from binocle.retriever.documents.file_parts import (
    document_sha256,
    file_of,
    open_document,
    part_path,
    size_and_time,
    split,
)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(file_parts, "PART_BYTES", 100)
    monkeypatch.setattr(file_parts, "_LINE_BYTES", (20, 60))


CONTENTS = {
    "lines": b"".join(b"line %d\n" % number for number in range(100)),
    "empty lines": b"\n" * 350,
    "a long line": b"a\n" * 40 + b"x" * 500 + b"\nb\n" * 100,
    "letters of several bytes": "ä🦆".encode() * 100,
    "a long last line": b"a\n" * 51 + b"x" * 55,
}


@pytest.mark.parametrize("data", CONTENTS.values(), ids=CONTENTS)
def test_parts_cover_a_file_and_are_cut_at_lines_or_letters(small_parts, tmp_path, data):
    file = tmp_path / "a.log"
    file.write_bytes(data)
    with file.open("rb") as stream:
        ranges = split(stream, len(data))
    pieces = [data[start:end] for start, end in ranges]
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= 160 for piece in pieces)
    assert "".join(piece.decode() for piece in pieces) == data.decode()
    for piece, after in pairwise(pieces):
        assert piece.endswith(b"\n") or b"\n" not in after[:50]


def test_a_part_is_read_by_its_path(tmp_path):
    file = tmp_path / "a.log"
    file.write_bytes(b"one\ntwo\nthree\n")
    os.utime(file, ns=(10**18, 10**18))
    part = tmp_path / part_path("a.log", 4, 8)
    assert file_of("b/" + part_path("a.log", 4, 8)) == "b/a.log"
    assert file_of("b/a.log") == "b/a.log"
    opened = open_document(part)
    with opened.stream as stream:
        assert (stream.read(opened.end - opened.start), opened.start) == (b"two\n", 4)
    assert document_sha256(part) == hashlib.sha256(b"two\n").hexdigest()
    assert size_and_time(part) == (4, 10**18)


def test_a_file_may_have_the_name_of_a_part(tmp_path):
    file = tmp_path / part_path("a.log", 4, 8)
    file.parent.mkdir()
    file.write_bytes(b"whole")
    with open_document(file).stream as stream:
        assert stream.read() == b"whole"
    assert size_and_time(file)[0] == 5


def test_a_part_of_a_file_that_is_shorter_now_is_not_there(tmp_path):
    (tmp_path / "a.log").write_bytes(b"one\n")
    for call in (open_document, document_sha256, size_and_time):
        with pytest.raises(FileNotFoundError, match="shorter"):
            call(tmp_path / part_path("a.log", 4, 8))
    with pytest.raises(NotADirectoryError):
        open_document(tmp_path / "a.log" / "other")
    assert size_and_time(tmp_path / "a.log" / "other") == size_and_time(tmp_path / "a.log")  # of a file in a file
