"""Files in files: the names, limits and bytes of attachments and of members of archives."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import lzma
import shutil
import subprocess
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from binocle.core.errors import UnreadableError
from binocle.retriever.readers import FORMATS, ReaderPool, read
from binocle.retriever.readers.containers import archive
from binocle.retriever.readers.containers import members as members_of
from binocle.retriever.readers.containers.members import CutBytes, OpenFile, list_members, safe_path

from ..sample_files import outcome

if TYPE_CHECKING:
    from pathlib import Path


def zipped(files: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return buffer.getvalue()


def mail(*attachments: tuple[str, bytes]) -> bytes:
    parts = "".join(
        f'--b\nContent-Type: application/octet-stream\nContent-Disposition: attachment; filename="{name}"\n'
        f"Content-Transfer-Encoding: base64\n\n{base64.encodebytes(content).decode()}\n"
        for name, content in attachments
    )
    return f"Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n{parts}--b--\n".encode()


def contents(data: bytes, name: str) -> dict[str, bytes | str]:
    """The bytes of each member, or the reason why it is passed over."""
    members = list_members(data, read(data, name).format, name)
    return {member.name: member.reason or member.read() for member in members}


FILES = {"a.txt": b"one", "docs/b.md": b"# two"}
LINK = {"link": "not a regular file"}


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.zip", zipped(FILES), FILES),
        ("unnamed", zipped(FILES), FILES),
        ("a.tar", tarred(FILES), FILES | LINK),
        ("unnamed", tarred(FILES), FILES | LINK),
        ("a.tgz", tarred(FILES, "w:gz"), FILES | LINK),
        ("a.TAR.XZ", tarred(FILES, "w:xz"), FILES | LINK),
        ("big.log.gz", gzip.compress(b"line", mtime=0), {"big.log": b"line"}),
        ("big.log.bz2", bz2.compress(b"line"), {"big.log": b"line"}),
        ("big.log.xz", lzma.compress(b"line"), {"big.log": b"line"}),
        ("a.eml", mail(("plan.pdf", b"pdf"), ("plan.pdf", b"other")), {"plan.pdf": b"pdf", "plan (2).pdf": b"other"}),
        ("a.mbox", b"From a@b Mon Jan  1 10:00:00 2024\n" + mail(("a/b.txt", b"x")), {"a/b.txt": b"x"}),
        ("a.eml", mail(("../../etc/plan.txt", b"x"), ("/b.txt", b"y")), {"etc/plan.txt": b"x", "b.txt": b"y"}),
    ],
)
def test_members_have_names_and_bytes(name: str, data: bytes, expected: dict) -> None:
    assert contents(data, name) == expected


@pytest.mark.parametrize(
    ("kind", "name"),
    [("application/pdf", "unnamed.pdf"), ("image/png", "unnamed.png"), ("application/octet-stream", "unnamed")],
)
def test_a_part_of_a_mail_that_is_no_text_is_an_attachment_also_without_a_name(kind: str, name: str) -> None:
    parts = f"Content-Type: text/plain\n\nbody\n--b\nContent-Type: {kind}\n\nx\n--b--"
    data = f"Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n--b\n{parts}\n".encode()
    assert contents(data, "a.eml") == {name: b"x"}
    assert f"body\n\nAttachments: {name}" in read(data, "a.eml").text


@pytest.mark.parametrize("kind", ["mixed", "related"])
def test_files_in_the_other_version_of_a_body_are_attachments(kind: str) -> None:
    """As Apple Mail writes them, beside pictures that the page shows."""
    inner = [
        "Content-Type: text/html\n\n<p>body",
        "Content-Type: text/plain\nContent-Disposition: attachment; filename=offer.txt\n\n400 euros",
        "Content-Type: application/pdf\nContent-Disposition: inline; filename=plan.pdf\n\npdf",
        "Content-Type: image/png\nContent-ID: <a>\nContent-Disposition: inline; filename=logo.png\n\npng",
        "Content-Type: image/png\n\npng",
    ]
    page = "".join(f"--c\n{part}\n" for part in inner) + "--c--"
    parts = f"Content-Type: text/plain\n\nbody\n--b\nContent-Type: multipart/{kind}; boundary=c\n\n{page}\n--b--"
    data = f"Subject: x\nContent-Type: multipart/alternative; boundary=b\n\n--b\n{parts}\n".encode()
    assert contents(data, "a.eml") == {"offer.txt": b"400 euros", "plan.pdf": b"pdf"}
    assert read(data, "a.eml").text == "Subject: x\n\nbody\n\nAttachments: offer.txt, plan.pdf"


def test_an_attachment_that_is_cut_at_any_letter_gives_the_bytes_before() -> None:
    whole = mail(("a.bin", bytes(range(240))))
    start = whole.index(b"\n\n", whole.index(b"base64")) + 2
    for length in range(90, 99):
        cut = contents(whole[: start + length], "a.eml")["a.bin"]
        letters = length - whole[start : start + length].count(b"\n")
        assert cut == bytes(range(240))[: letters // 4 * 3 + max(0, letters % 4 - 1)]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("../../etc/passwd", "etc/passwd"),
        ("/root/x", "root/x"),
        ("C:\\a\\..\\b.txt", "C:/a/b.txt"),
        ("a/./b//c", "a/b/c"),
        ("..", "unnamed"),
        ("new\nline\0\x1b", "new_line_"),
        ("bytes-000000000000-000000000010", "bytes-000000000000-000000000010_"),
    ],
)
def test_no_name_of_a_member_leads_elsewhere(name: str, path: str) -> None:
    assert safe_path(name) == path
    assert safe_path(path) == path


def test_names_of_members_are_distinct_and_none_lies_below_another() -> None:
    data = zipped({"a": b"1", "a/b": b"2", "c/d": b"3", "c": b"4", "../a": b"5"})
    names = list(contents(data, "a.zip"))
    assert names == ["a", "a_b", "c/d", "c (2)", "a (2)"]


def test_hidden_files_of_an_archive_are_passed_over_a_folder_at_a_time() -> None:
    data = zipped({".git/a": b"", ".git/b": b"", "x/.env": b"", "__MACOSX/._a": b"", "a.txt": b"yes"})
    assert contents(data, "a.zip") == {
        ".git/": "hidden", "x/.env": "hidden", "__MACOSX/": "hidden", "a.txt": b"yes",
    }  # fmt: skip


def test_members_beyond_a_limit_have_a_reason(monkeypatch) -> None:
    monkeypatch.setattr(members_of, "MAX_MEMBERS", 2)
    assert list(contents(zipped({"a": b"", "b": b"", "c": b""}), "a.zip")) == ["a", "b", "more files"]
    monkeypatch.setattr(members_of, "_FREE_BYTES", 1 << 20)
    bomb = zipped({"a.txt": b"a", "zeros.txt": bytes(9 << 20)})
    assert contents(bomb, "a.zip") == {"a.txt": b"a", "zeros.txt": "the files in it unpack to more than 1 MB"}


def test_an_encrypted_member_is_passed_over() -> None:
    data = bytearray(zipped({"secret.txt": b"x", "a.txt": b"y"}))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    assert contents(bytes(data), "a.zip") == {"secret.txt": "password-protected", "a.txt": b"y"}


def test_members_of_members_are_read_to_a_depth() -> None:
    deep = zipped({"c.zip": zipped({"d.zip": zipped({"e.txt": "deep"})})})
    outer = zipped({"x/b.zip": deep, "a.txt": "flat"})
    opened, calls = OpenFile(FORMATS), []

    def content() -> bytes:
        calls.append(1)
        return outer

    assert opened.read(1, content, "a.zip", "a.txt") == b"flat"
    assert opened.read(1, content, "a.zip", "x/b.zip") == deep
    assert zipfile.is_zipfile(
        io.BytesIO(opened.read(1, content, "a.zip", "x/b.zip/c.zip/d.zip".removesuffix("/d.zip")))
    )
    assert len(calls) == 1
    for missing in ("b.zip", "x", "a.txt/b", "x/b.zip/c.zip/d.zip/e.txt"):
        with pytest.raises(FileNotFoundError):
            opened.read(1, content, "a.zip", missing)


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tgz", "a.gz", "a.bz2", "a.xz"])
def test_a_damaged_archive_fails_with_a_reason(name: str) -> None:
    with pytest.raises(UnreadableError, match=r"damaged|not a compressed file"):
        list(list_members(b"no archive at all", FORMATS["." + name.partition(".")[2]][0], name))


LINES = b"".join(b"%d quince\n" % number for number in range(5_000))
GZIP, XZ = gzip.compress(LINES, mtime=0), lzma.compress(LINES)


@pytest.mark.parametrize(
    ("name", "data", "least", "why"),
    [
        ("a.log.gz", GZIP + b"no gzip", len(LINES), "Not a gzipped file (b'no')"),
        ("a.log.gz", GZIP[:-4], len(LINES), "Compressed file ended before the end-of-stream marker was reached"),
        ("a.log.gz", GZIP[: len(GZIP) // 2], len(LINES) // 3, "Compressed file ended before"),
        ("a.log.gz", GZIP[:-8] + b"\0" * 8, len(LINES), "CRC check failed"),
        ("a.log.xz", XZ[: len(XZ) // 2], len(LINES) // 5, "Compressed file ended before"),
    ],
)
def test_a_damaged_compressed_file_gives_its_bytes_up_to_the_damage(
    tmp_path: Path, name: str, data: bytes, least: int, why: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with ReaderPool(tmp_path, workers=1) as pool:
        (reading,) = pool.read_all([f"{name}/a.log"])
    text = reading.document.text
    assert least <= len(text) <= len(LINES)
    assert LINES.decode().startswith(text)
    assert reading.document.metadata["unread"].startswith(
        f"damaged: only the first {reading.size:,} bytes unpack ({why}"
    )


TAR_FILES = {"first.md": b"# Quinces\n", "cut.txt": LINES, "lost.txt": b"lost"}


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "mode"), [("a.tar", "w"), ("a.tgz", "w:gz"), ("a.tar.xz", "w:xz")])
def test_a_cut_tar_archive_gives_its_files_up_to_the_cut(name: str, mode: str) -> None:
    whole = tarred(TAR_FILES, mode)
    first, cut, more = list_members(whole[: len(whole) // 2], "tar", name)
    assert (first.name, first.read(), cut.name) == ("first.md", b"# Quinces\n", "cut.txt")
    content = cut.read()
    assert (first.read(), cut.read()) == (b"# Quinces\n", content)
    assert len(LINES) // 5 < len(content) < len(LINES)
    assert LINES.startswith(content)
    assert isinstance(content, CutBytes)
    assert content.unread.startswith(f"damaged: only the first {len(content):,} bytes unpack (")
    assert more.name == "more files"
    assert more.reason.startswith("damaged: any files behind 'cut.txt' are lost (")


def test_a_tar_archive_with_a_damaged_header_gives_the_files_before_it() -> None:
    whole = tarred(TAR_FILES)
    at = whole.index(b"lost.txt")
    damaged = whole[:at] + b"x" * 512 + whole[at + 512 :]
    expected = {"first.md": b"# Quinces\n", "cut.txt": LINES}
    reason = f"damaged: any files behind 'cut.txt' are lost (no header at byte {at:,})"
    assert contents(damaged, "a.tar") == expected | {"more files": reason}
    assert contents(whole[: at + 100], "a.tar")["more files"].startswith("damaged: ")
    assert contents(whole[:at], "a.tar") == expected  # without the zeros at the end, as some programs leave it


class Pipe(io.RawIOBase):
    """Takes bytes in order only, so that a ZIP in it has the sizes of files behind them."""

    def __init__(self) -> None:
        self.content = b""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.content += bytes(data)  # type: ignore[call-overload]
        return len(data)  # type: ignore[arg-type]


def streamed(files: dict[str, bytes], method: int) -> bytes:
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", method) as archive:  # type: ignore[arg-type]
        for name, content in files.items():
            with archive.open(name, "w", force_zip64=name.startswith("d/")) as file:
                file.write(content)
    return pipe.content


ZIP_FILES = {"d/first.md": b"# Quinces\n", "empty.txt": b"", "cut ä.txt": LINES, "lost.txt": b"lost"}


@pytest.mark.parametrize(
    "whole",
    [zipped(ZIP_FILES), *(streamed(ZIP_FILES, method) for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))],
)
def test_a_cut_zip_gives_its_files_up_to_the_cut(whole: bytes) -> None:
    half = len(whole) // 2
    members = contents(whole[:half], "a.zip")
    cut = members["cut ä.txt"]
    assert len(LINES) // 3 < len(cut) < len(LINES)
    assert LINES.startswith(cut)
    assert cut.unread == f"damaged: only the first {len(cut):,} bytes unpack"
    reason = f"damaged: any files behind 'cut ä.txt' are lost (it ends after {half:,} bytes)"
    assert members == {"d/first.md": b"# Quinces\n", "empty.txt": b"", "cut ä.txt": cut, "more files": reason}
    directory = whole.index(b"PK\1\2")
    for end in (directory + 4, len(whole) - 1):  # only the directory is cut
        assert contents(whole[:end], "a.zip") == ZIP_FILES


def test_a_zip_that_is_cut_behind_a_zip_in_it_is_not_read_as_that_one() -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("inside.txt", "inside")
        archive.comment = b"a comment"
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("first.txt", "first")
        archive.writestr("in.zip", inner.getvalue())
        archive.writestr("last.txt", "last")
    whole = outer.getvalue()
    cut = whole[: whole.index(inner.getvalue()) + len(inner.getvalue())]
    assert [member.name for member in list_members(whole, "zip", "a.zip")] == ["first.txt", "in.zip", "last.txt"]
    assert [member.name for member in list_members(cut, "zip", "a.zip")] == ["first.txt", "in.zip", "more files"]
    assert [member.name for member in list_members(inner.getvalue(), "zip", "a.zip")] == ["inside.txt"]
    assert outcome(cut, "a.pptx") == "damaged: not a whole ZIP file (it is cut: only a ZIP inside it is whole)"
    assert [member.name for member in list_members(b"MZ" + whole, "zip", "a.zip")] == [
        "first.txt",
        "in.zip",
        "last.txt",
    ]


def test_a_damaged_header_in_a_cut_zip_ends_the_list() -> None:
    whole = zipped(ZIP_FILES)
    at = whole.index(b"lost.txt") - 30
    reason = f"damaged: any files behind 'cut ä.txt' are lost (no header at byte {at:,})"
    assert contents(whole[:at] + b"no header" * 9, "a.zip")["more files"] == reason
    secret = bytearray(whole[:-1])
    secret[6] |= 1
    assert contents(bytes(secret), "a.zip")["d/first.md"] == "password-protected"
    with pytest.raises(UnreadableError, match=r"^damaged: not a whole ZIP file \(it ends after 20 bytes\)$"):
        contents(whole[:20], "a.zip")


def test_a_sparse_file_in_a_tar_archive_is_read(tmp_path: Path) -> None:
    with (tmp_path / "holes.txt").open("wb") as file:
        file.seek(200_000)
        file.write(b"the end")
    command = ["tar", "--sparse", "-cf", "a.tar", "holes.txt"]
    if shutil.which("tar") is None or subprocess.run(command, cwd=tmp_path, check=False).returncode:
        pytest.skip("no tar that writes sparse files")
    assert contents((tmp_path / "a.tar").read_bytes(), "a.tar") == {"holes.txt": bytes(200_000) + b"the end"}


def test_a_compressed_file_that_is_damaged_from_the_start_or_too_large_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(archive, "_MAX_FILE", 1 << 20)
    for data, reason in ((GZIP[:12], "damaged: it does not unpack"), (gzip.compress(bytes(2 << 20)), "more than 1 MB")):
        (member,) = list_members(data, "gzip", "a.gz")
        with pytest.raises(UnreadableError, match=reason):
            member.read()


def test_the_pool_lists_the_members_of_a_file_and_reads_each(tmp_path) -> None:
    (tmp_path / "a.zip").write_bytes(
        zipped({"b.md": "# Ducks\n\nThey swim.", "c.bin": b"\0", "m.eml": mail(("d.txt", b"Geese."))})
    )
    names = ("a.zip", "a.zip/b.md", "a.zip/c.bin", "a.zip/m.eml/d.txt", "a.zip/none", "none/b.md")
    with ReaderPool(tmp_path, workers=1) as pool:
        archive, page, binary, attached, *missing = pool.read_all(names)
    assert [(member.name, member.size) for member in archive.members][:2] == [("b.md", 19), ("c.bin", 1)]
    assert (archive.state, page.document.text, attached.document.text) == ("ok", "# Ducks\n\nThey swim.", "Geese.")
    assert (page.size, page.mtime_ns) == (19, archive.mtime_ns)
    assert (binary.state, binary.reason) == ("skipped", "no reader for .bin files")
    assert {reading.reason for reading in missing} == {"it is no longer there"}
