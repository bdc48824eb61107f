"""Find the damaged streams of a PDF: PDFium gives the text before the damage, and does not say that some is lost.

A compressed stream is whole if its data has an end, and then the right checksum or none, as some programs write it.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_START = re.compile(rb"(?<!end)stream\r?\n")
_COMPRESSED = re.compile(rb"/Filter\s*\[?\s*/(?:FlateDecode|Fl)\b")
# Pictures, fonts, some colours, attached files, remarks about the document, and a table that PDFium can build anew.
_WITHOUT_TEXT = re.compile(
    rb"/(?:Image|Length[123]|FontFile[23]?|Alternate|EmbeddedFile|Metadata|XRef|Crypt)\b|/N\s+[134]\b"
)
_MAX_DICTIONARY = 2_000  # bytes before a stream
_STEP = 1 << 16  # bytes inflated at once
_HEADER, _CHECKSUM = 2, 4  # bytes of zlib before and behind the DEFLATE data


def count_damaged(data: bytes) -> int:
    """Count the damaged streams that may hold text; none in an encrypted file: its data look like noise."""
    if b"/Encrypt" in data:
        return 0
    return sum(not _is_whole(stream) for stream in _streams(data))


def _streams(data: bytes) -> Iterator[memoryview]:
    """Yield the DEFLATE data of each stream that may hold text."""
    view = memoryview(data)
    for match in _START.finditer(data):
        start = data.rfind(b"obj", max(0, match.start() - _MAX_DICTIONARY), match.start())
        dictionary = data[start : match.start()].rstrip()
        is_compressed = start >= 0 and dictionary.endswith(b">>") and _COMPRESSED.search(dictionary)
        if is_compressed and not _WITHOUT_TEXT.search(dictionary):
            end = data.find(b"endstream", match.end())
            yield view[match.end() + _HEADER : end if end >= 0 else len(data)]


def _is_whole(stream: memoryview) -> bool:
    inflater, checksum, position = zlib.decompressobj(-zlib.MAX_WBITS), 1, 0
    try:
        while position < len(stream) and not inflater.eof:
            checksum = zlib.adler32(inflater.decompress(stream[position : position + _STEP]), checksum)
            position += _STEP
    except zlib.error:
        return False
    end = min(position, len(stream)) - len(inflater.unused_data)
    written = bytes(stream[end : end + _CHECKSUM])
    return inflater.eof and (len(written) < _CHECKSUM or int.from_bytes(written) == checksum)
