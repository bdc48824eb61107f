"""Decode bytes to text: as UTF-8 nearly always, else by the declared charset, else by the likeliest code page."""

from __future__ import annotations

import codecs
import re

from ....core.errors import UnsupportedError

SOFT_HYPHEN = "\xad"  # where a word may be broken at the end of a line

_SAMPLE = 1 << 16
_HEAD = 8_192
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: the mark of UTF-32 begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1a\x1b")) + b"\x7f"
_DECLARED = re.compile(rb"""(?:coding|charset|encoding)\s{0,5}[:=]\s{0,5}["']?([-\w.:]{2,40})""", re.IGNORECASE)
# The code page for a declared name: browsers read these labels as the larger one.
_PRACTICAL_CHARSETS = {
    "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932",
    "euc_kr": "cp949", "big5": "cp950", "iso8859-9": "cp1254", "tis-620": "cp874",
}  # fmt: skip
# Python codecs that do not tell the letters beyond ASCII, or are no charset.
_NOT_CHARSETS = {"ascii", "idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined", "mbcs", "oem"}
_NOT_ASCII = ("utf-7", "utf-16", "utf-32")  # a declaration in readable ASCII cannot be in any of these
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")


def decode(data: bytes, charset: str = "") -> str:
    """Decode the text of a file, with \\n as its newlines and without soft hyphens, since they would split its words.

    In a text with other newlines, a lone \\r only returns a progress bar to the start of its line: it becomes a space.

    :param charset: the charset that the sender declares; used if the bytes are valid in it.
    :raises UnsupportedError: when the bytes are not text.
    """
    declared = _charset(charset)
    text = (_decode_strictly(data, declared) if declared else None) or _decode(data)
    if "\r" in text:
        text = text.replace("\r\n", "\n")
        text = text.replace("\r", " " if "\n" in text else "\n")
    return _NOT_TEXT.sub("\ufffd", text).replace(SOFT_HYPHEN, "")


def _decode(data: bytes) -> str:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    if b"\0" in data and (wide := _wide_encoding(data)):
        return data.decode(wide, "replace")
    if b"\x1b$" in data[:_SAMPLE] and (text := _decode_strictly(data, "iso2022_jp")):
        return text
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return _decode_legacy(data, error.start)
    _refuse_binary(data[:_HEAD], 0.1)
    return text


def _decode_legacy(data: bytes, first: int) -> str:
    """Decode a text that is not UTF-8.

    :param first: the offset of the first byte that is not UTF-8.
    """
    _refuse_binary(data[:_HEAD], 0.01)
    _refuse_binary(data, 0.01)  # a shell script may carry an archive behind it
    if (declared := declared_charset(data)) and (text := _decode_strictly(data, declared)):
        return text
    sample = data[max(0, first - 1024) : first + _SAMPLE]
    text = sample.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    if broken * 20 < sum(character > "\x7f" for character in text):  # UTF-8 with a few bad bytes
        return data.decode("utf-8", "replace")
    from .codepages import guess

    return data.decode(guess(sample), "replace")


def declared_charset(data: bytes) -> str | None:
    """The charset that an HTML meta tag, an XML prolog or an editor's coding line names."""
    match = _DECLARED.search(data[:1024])
    name = _charset(match[1].decode("latin-1")) if match else None
    return None if name and name.startswith(_NOT_ASCII) else name


def _charset(label: str) -> str | None:
    """Python's codec for a charset as browsers read the name; None if there is no such charset."""
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    return None if name in _NOT_CHARSETS else _PRACTICAL_CHARSETS.get(name, name)


def _decode_strictly(data: bytes, encoding: str) -> str | None:
    try:
        return str(data, encoding)
    except (ValueError, LookupError):
        return None


def _wide_encoding(data: bytes) -> str | None:
    """Recognize UTF-16 or UTF-32 without a mark by the positions of its zero bytes."""
    sample = data[:4096]
    zeros = [sample[offset::4].count(0) * 4 / max(len(sample), 1) for offset in range(4)]
    if min(zeros[2:]) > 0.9 and zeros[0] < 0.1:
        return "utf-32-le"
    if min(zeros[:2]) > 0.9 and zeros[3] < 0.1:
        return "utf-32-be"
    even, odd = (zeros[0] + zeros[2]) / 2, (zeros[1] + zeros[3]) / 2
    if odd > 0.2 and even < 0.02:
        return "utf-16-le"
    if even > 0.2 and odd < 0.02:
        return "utf-16-be"
    return None


def _refuse_binary(sample: bytes, limit: float) -> None:
    if len(sample) - len(sample.translate(None, _CONTROLS)) > limit * len(sample):
        raise UnsupportedError("binary file")
