from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from pathlib import Path

import pytest

from binocle.core import files
from binocle.core.errors import InputError
from binocle.core.files import existing_spelling, expand_home, known_sha256, read_regular, user_folder


def test_a_checksum_is_remembered_and_forgotten_when_the_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "large"
    file.write_bytes(bytes(2_000_000))
    monkeypatch.setattr(files, "_SETTLED", -1)
    first = known_sha256(file)
    memory = tmp_path / "cache" / "binocle" / "sha256.json"
    assert first in memory.read_text()
    assert known_sha256(file) == first
    file.write_bytes(bytes(1_999_999) + b"\1")
    assert known_sha256(file) != first


def test_a_checksum_is_taken_anew_when_the_time_of_a_changed_file_is_set_back(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "_SETTLED", -1)
    file = tmp_path / "large"
    file.write_bytes(bytes(2_000_000))
    first, times = known_sha256(file), file.stat()
    with file.open("r+b") as stream:
        stream.write(b"\1")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert known_sha256(file) != first


def test_a_file_changed_just_now_is_not_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "_SETTLED", 3_600)
    file = tmp_path / "large"
    file.write_bytes(bytes(2_000_000))
    known_sha256(file)
    assert not (tmp_path / "cache").exists()


def test_only_the_checksums_of_the_last_files_are_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "_SETTLED", -1)
    monkeypatch.setattr(files, "_REMEMBERED", 2)
    for name in "abcd":
        (tmp_path / name).write_bytes(bytes(1_000_000))
        known_sha256(tmp_path / name)
    remembered = json.loads((tmp_path / "cache" / "binocle" / "sha256.json").read_text())
    assert [Path(key.split(":")[0]).name for key in remembered] == ["b", "c", "d"]


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"3", b'{"x": 3}'])
def test_a_damaged_memory_of_checksums_does_not_matter(content, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "binocle").mkdir()
    (tmp_path / "binocle" / "sha256.json").write_bytes(content)
    file = tmp_path / "large"
    file.write_bytes(bytes(2_000_000))
    assert known_sha256(file) == hashlib.sha256(bytes(2_000_000)).hexdigest()


def test_a_home_that_cannot_be_written_does_not_matter(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    file = tmp_path / "large"
    file.write_bytes(bytes(2_000_000))
    assert known_sha256(file) == hashlib.sha256(bytes(2_000_000)).hexdigest()


@pytest.mark.parametrize("kind", ["CACHE", "CONFIG", "DATA", "STATE"])
def test_a_folder_of_the_user_is_the_same_wherever_the_user_is(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    places = {"relative": "home/.x", "": "home/.x", str(tmp_path / "set"): "set", "~/own": "home/own"}
    for value, place in places.items():
        monkeypatch.setenv(f"XDG_{kind}_HOME", value)
        assert user_folder(kind, "~/.x") == tmp_path / place
    monkeypatch.delenv(f"XDG_{kind}_HOME")
    assert user_folder(kind, "~/.x") == Path.home() / ".x"


def test_without_a_home_a_folder_of_the_user_is_an_error_and_a_checksum_is_not(without_home, tmp_path):
    with pytest.raises(InputError, match="no home folder: set HOME, or XDG_DATA_HOME, to an absolute path"):
        user_folder("DATA", "~/.local/share")
    (tmp_path / "large").write_bytes(bytes(2_000_000))
    assert known_sha256(tmp_path / "large") == hashlib.sha256(bytes(2_000_000)).hexdigest()


def test_a_path_of_an_unknown_user_stays_as_it_is():
    assert expand_home("~nosuchuser/notes") == Path("~nosuchuser/notes")


def test_only_one_module_expands_a_home():
    root = Path(files.__file__).parents[1]
    rooms = ("core", "indexes", "retriever", "training", "commands")
    modules = [root / "cli.py", *(file for room in rooms for file in (root / room).rglob("*.py"))]
    calls = re.compile(r"(?<!os\.path)\.expanduser\(")  # that of a Path raises for an unknown user
    assert [file for file in modules if calls.search(file.read_text())] == [Path(files.__file__)]


def test_small_file_is_read_only_if_it_is_a_regular_file(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    assert read_regular(tmp_path / "file", 7) == b"content"
    with pytest.raises(OSError, match="larger than 6 bytes"):
        read_regular(tmp_path / "file", 6)
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing", "."):
        with pytest.raises(OSError):
            read_regular(tmp_path / name, 100)


def test_a_name_with_accents_is_that_of_the_existing_file(tmp_path):
    composed, decomposed = "Übung/é.txt", unicodedata.normalize("NFD", "Übung/é.txt")
    (tmp_path / decomposed).parent.mkdir()
    (tmp_path / decomposed).touch()
    for typed in (composed, decomposed):
        assert existing_spelling(tmp_path / typed).samefile(tmp_path / decomposed)
    for missing in ("Übung/è.txt", "Übung/é.txt/é", "é/*", "é\0", "é" * 300):
        assert existing_spelling(tmp_path / missing).name == Path(missing).name
