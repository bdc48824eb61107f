"""An index of each format that there was, as its own version wrote it: it opens, answers and is brought up to date.

`formats/N.tar.xz` is the index of two files, an added document and a forgotten file, by the encoder `tiny_model`. When
the format grows, pack one of the new format, and leave the others unchanged.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from binocle import Retriever
from binocle.core.errors import StoreError
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.store.head import FORMAT, SCOPED
from binocle.retriever.store.store import Store

FORMATS = Path(__file__).with_name("formats")
TEXTS = {
    "cat.txt": "The cat sat on the mat.\n",
    "ship.md": "# Sea\n\nThe ship sails by the light of the moon.\n",
    "secret.txt": "The password is zyxwvut.\n",
}


def unpacked(number: int, folder: Path, write) -> Path:
    write(folder, TEXTS)
    with tarfile.open(FORMATS / f"{number}.tar.xz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        tar.extractall(folder / ".binocle")
    return folder


def test_each_format_is_here():
    assert sorted(file.name for file in FORMATS.iterdir()) == [f"{number}.tar.xz" for number in range(1, SCOPED + 1)]
    assert all(file.stat().st_size < 100_000 for file in FORMATS.iterdir())


@pytest.mark.parametrize("number", range(1, SCOPED + 1))
def test_an_index_of_an_earlier_format_answers_and_is_brought_up_to_date(number, tmp_path, write, tiny_model):
    folder = unpacked(number, tmp_path / "folder", write)
    settings = folder / ".binocle/settings.json"
    assert json.loads(settings.read_text())["format"] == number
    before = Retriever.open(folder, model=tiny_model)
    faults = before.verify().faults
    assert {fault.kind for fault in faults} <= ({"vector index"} if number == 1 else set())  # only a cache: built anew
    assert [hit.path for hit in before.search("ship", mode="lexical")] == ["ship.md"]

    after = Retriever.open(folder, model=tiny_model)
    report = after.sync()
    assert (report.unchanged, report.skipped, report.embedded, report.removed) == (0, 1, 0, 0)
    assert (report.indexed, report.reused) == (2, 2)  # the readers of text and Markdown have changed since then
    assert json.loads(settings.read_text())["format"] == max(FORMAT, number)
    assert {row["path"] for row in after.documents() if row["state"] == "indexed"} == {"cat.txt", "ship.md", "note"}
    assert after.status().documents["forgotten"] == 1
    assert not any(b"secret.txt" in file.read_bytes() for file in settings.parent.rglob("*") if file.is_file())
    assert after.search("cat on a mat", 1)[0].path == "cat.txt"
    assert after.verify().faults == []


@pytest.mark.parametrize(("exclude", "number"), [((), 4), (("*.log",), 5)])
def test_only_an_index_that_an_earlier_version_would_sync_wrongly_has_the_newest_format(exclude, number, tmp_path):
    store = Store.create(tmp_path / "index", EncoderId("tiny", "0" * 32, 4), exclude=exclude)
    assert json.loads((store.path / "settings.json").read_text())["format"] == number


def test_a_newer_format_is_refused_with_what_to_do(tmp_path, write):
    folder = unpacked(FORMAT, tmp_path / "folder", write)
    settings = folder / ".binocle/settings.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"format": SCOPED + 1, "more": True}))
    bytes_before = {file: file.read_bytes() for file in settings.parent.rglob("*") if file.is_file()}
    for use in (Retriever.documents, Retriever.sync, lambda retriever: retriever.search("cat")):
        with pytest.raises(StoreError, match=r"has format 6, .*: a newer version made it, so upgrade Binocle"):
            use(Retriever.open(folder))
    assert {file: file.read_bytes() for file in bytes_before} == bytes_before
