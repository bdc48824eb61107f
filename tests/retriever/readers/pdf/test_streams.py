"""Damaged streams of a PDF, which hide a part of its text."""

from __future__ import annotations

import zlib

import pytest

from binocle.retriever.readers import read

LINES = "".join(f"BT /F1 12 Tf 72 {720 - 14 * line} Td (Line {line * 7919 % 1000}) Tj ET\n" for line in range(40))
STREAM = zlib.compress(LINES.encode())
MIDDLE = len(STREAM) // 2


def pdf(stream: bytes, entries: str = "", *, trailer: str = "") -> bytes:
    """A PDF of one page with a compressed stream."""
    page = "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        page.encode(),
        f"<</Length {len(stream)}/Filter/FlateDecode{entries}>>\nstream\n".encode() + stream + b"\nendstream",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    body = b"".join(b"%d 0 obj\n%b\nendobj\n" % (number, item) for number, item in enumerate(objects, 1))
    return b"%PDF-1.4\n" + body + f"trailer\n<</Root 1 0 R/Size 6{trailer}>>\nstartxref\n0\n%%EOF\n".encode()


@pytest.mark.parametrize(
    "stream", [STREAM[:MIDDLE], STREAM[:MIDDLE] + bytes([STREAM[MIDDLE] ^ 255]) + STREAM[MIDDLE + 1 :]]
)
def test_a_damaged_stream_is_noted_since_text_may_be_missing(stream: bytes) -> None:
    document = read(pdf(stream), "a.pdf")
    assert document.text.startswith("Line 0")
    assert len(document.text) < len(read(pdf(STREAM), "a.pdf").text)
    assert document.metadata["unread"] == "1 damaged stream, so text may be missing"


@pytest.mark.parametrize("stream", [STREAM, STREAM[:-4], STREAM[:-4] + b"\r\n", STREAM + b"\r\n more"])
def test_a_whole_stream_is_not_noted_even_without_its_checksum(stream: bytes) -> None:
    document = read(pdf(stream), "a.pdf")
    assert document.text.endswith("Line 841")
    assert "unread" not in document.metadata


@pytest.mark.parametrize(
    ("entries", "trailer"), [("/Type/XObject/Subtype/Image", ""), ("/Length1 9", ""), ("", "/Encrypt 9 0 R")]
)
def test_a_damaged_picture_or_font_lacks_no_text(entries: str, trailer: str) -> None:
    from binocle.retriever.readers.pdf.streams import count_damaged

    assert count_damaged(pdf(STREAM[:MIDDLE], entries, trailer=trailer)) == 0
