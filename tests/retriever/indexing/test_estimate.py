"""The estimate of the work that a folder is."""

from __future__ import annotations

from binocle.retriever.indexing.estimate import Estimate, estimate


def test_files_with_a_reader_are_counted(tmp_path, write):
    write(tmp_path, {"a.md": "x" * 8_000, "b.txt": "", ".hidden.md": "", "no/c.md": "", "d.unknown": ""})
    (tmp_path / "picture.png").write_bytes(b"")
    found = estimate(tmp_path, exclude=["no/"])
    assert (found.files, found.is_whole) == (2, True)
    assert 0 < estimate(tmp_path / "no").seconds < found.seconds
    assert estimate(tmp_path, within=["a.md", "no"]).files == 2


def test_text_takes_longer_than_other_files_of_its_size(tmp_path, write):
    write(tmp_path, {"text/a.md": "x" * 80_000, "office/a.pdf": "x" * 80_000})
    assert estimate(tmp_path / "text").seconds > estimate(tmp_path / "office").seconds


def test_folder_that_takes_long_is_not_looked_through(tmp_path, write):
    write(tmp_path, {"a.md": "", "b.md": ""})
    assert not estimate(tmp_path, seconds=-1).is_whole


def test_estimate_in_words():
    assert str(Estimate(1, 3, True)) == "1 file, less than a minute"
    assert str(Estimate(2_000, 90, True)) == "2,000 files, about 2 minutes"
    assert str(Estimate(60_000, 3_600, False)) == "more than 60,000 files, about 1 hour or more"
