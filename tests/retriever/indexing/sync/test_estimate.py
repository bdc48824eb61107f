"""The estimate of the work that a folder is."""

from __future__ import annotations

import os
import time

import pytest

from binocle.retriever.indexing.sync.estimate import IndexingEstimate, estimate


def test_files_with_a_reader_are_counted(tmp_path, write):
    write(tmp_path, {"a.md": "x" * 8_000, "b.txt": "", ".hidden.md": "", "no/c.md": "", "d.unknown": ""})
    (tmp_path / "picture.png").write_bytes(b"")
    estimated = estimate(tmp_path, exclude=["no/"])
    assert (estimated.files, estimated.is_whole) == (2, True)
    assert 0 < estimate(tmp_path / "no").seconds < estimated.seconds
    assert estimate(tmp_path, within=["a.md", "no"]).files == 2


def test_text_takes_longer_than_other_files_of_its_size(tmp_path, write):
    write(tmp_path, {"text/a.md": "x" * 80_000, "office/a.pdf": "x" * 80_000})
    assert estimate(tmp_path / "text").seconds > estimate(tmp_path / "office").seconds


def test_folder_that_takes_long_is_not_looked_through(tmp_path, write):
    write(tmp_path, {"a.md": "", "b.md": ""})
    assert not estimate(tmp_path, seconds=-1).is_whole


def test_estimate_in_words():
    assert str(IndexingEstimate(1, 3, True)) == "1 file, less than a minute"
    assert str(IndexingEstimate(2_000, 90, True)) == "2,000 files, about 2 minutes"
    assert str(IndexingEstimate(60_000, 3_600, False)) == "more than 60,000 files, about 1 hour or more"


def test_estimate_has_a_passage_per_file_and_one_for_its_bytes(tmp_path, write, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0: {0, 1}}[process])
    write(tmp_path, {"a.md": "x" * 7_200, "b.pdf": "x" * 16_000, "c.unknown": "x" * 9_999})
    estimated = estimate(tmp_path)
    assert (estimated.files, estimated.seconds) == (2, (1 + 7_200 / 800 + 1 + 16_000 / 8_000) / (60 * 2))


@pytest.mark.parametrize(("seconds", "is_whole"), [(1.0, True), (1.001, False)])
def test_folder_is_looked_through_for_a_second(seconds, is_whole, tmp_path, write, monkeypatch):
    write(tmp_path, {"a.md": "", "b.md": ""})
    moments = iter([100.0, 100.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments, 100.0 + seconds))
    estimated = estimate(tmp_path)
    assert (estimated.is_whole, estimated.files) == (is_whole, 2 if is_whole else 1)
    assert estimated.seconds > 0


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (59.9, "less than a minute"),
        (60, "about 1 minute"),
        (3_599, "about 60 minutes"),
        (3_600, "about 1 hour"),
        (9_000, "about 2 hours"),
    ],
)
def test_time_in_words(seconds, says):
    assert str(IndexingEstimate(2, seconds, True)) == f"2 files, {says}"
