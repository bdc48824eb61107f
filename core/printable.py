"""Characters that are invisible or control a terminal: show them, escape them, or leave them out.

Text from documents, and the names of files, may hold control characters, marks that reverse the order of letters, and
letters without a shape. Output for people shows each as a symbol (`printable`). JSON has it as an escape (`json_text`).
A prompt omits it (`visible`). The store keeps every character, so positions stay exact.

Some of these characters stay where a script needs them. Joiners stay within emoji and in Arabic and Indic scripts, a
variation selector stays after its character. Marks of direction stay in a line with Arabic or Hebrew, and tags in the
flags of England, Scotland and Wales.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from functools import cache, partial
from typing import TYPE_CHECKING

from .strict_json import strict_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_CONTROLS = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
_BREAKS = "\x0b-\x0d\x1c-\x1f\x85\u2028\u2029"  # white space that Unicode or Python calls the end of a line
_TAGS = "\U000e0000-\U000e007f"  # a shadow of ASCII
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_DIRECTIONS = "\u061c\u200e\u200f"  # they embrace no text
_FORMAT_SIGNS = (  # overrides, embeddings and isolates; zero width; fillers; deprecated formats
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0080-\U000e00ff\U000e01f0-\U000e0fff"
)
_INVISIBLE = f"{_TAGS}{_SELECTORS}{_DIRECTIONS}{_FORMAT_SIGNS}"

# The characters of emoji.
_PICTURES = "\u00a9\u00ae\u203c\u2049\u2100-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_JOINED = "\u0590-\u061b\u061d-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18af\ua840-\ua87f\ufb1d-\ufdff"
_JOINED += "\ufe70-\ufefc\U00010a00-\U00011fff"  # scripts with joined letters: Arabic, Indic, Mongolian and others
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\uaa60-\uaa7f"  # Thai, Lao, Burmese, Khmer
_VARIED = "0\u1000-\u109f\u2200-\u22ff\u2a00-\u2aff\u3000-\u9fff\ua840-\ua87f\uf900-\ufaff\uff00-\uff60"
_VARIED += "\U00020000-\U0003ffff"  # zero, formulas and ideographs, which have more than one shape
_FLAGS = "|".join("".join(chr(0xE0000 + ord(letter)) for letter in name) for name in ("gbeng", "gbsct", "gbwls"))
_RIGHT_TO_LEFT = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
_UNSEEN = re.compile(f"[{_INVISIBLE}]")
_ESCAPE = r"\\(?:[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4})"  # as `unicode_escape` writes them
_RUN_LENGTH = 4  # invisible characters in a row are counted from here on, not shown one by one


@cache
def _special() -> re.Pattern[str]:
    """Return the pattern of everything that may need a symbol; compiling it takes too long for most searches."""
    uses = (
        f"(?<=\U0001f3f4)(?:{_FLAGS})\U000e007f",
        f"(?<=[{_PICTURES}\ufe0f])\u200d(?=[{_PICTURES}])",
        f"(?<=[{_JOINED}])[\u200c\u200d](?![{_INVISIBLE}])",
        f"(?<![{_INVISIBLE}])[\u200c\u200d](?=[{_JOINED}])",
        f"(?<=[{_SPACELESS}])\u200b(?![{_INVISIBLE}])",
        f"(?<=[{_PICTURES}0-9#*])[\ufe0e\ufe0f](?![{_SELECTORS}])",
        f"(?<=[{_VARIED}])[{_SELECTORS}](?![{_SELECTORS}])",
        f"(?<=[\u1820-\u18aa])[\u180b-\u180f](?![{_INVISIBLE}])",
        f"(?<=[^\\s{_INVISIBLE}])[\u034f\u2061-\u2064](?![{_INVISIBLE}])",  # formulas, and accents kept in order
    )
    return re.compile(
        f"(?P<kept>{'|'.join(uses)})|(?P<tags>[{_TAGS}]+)|(?P<hyphen>(?<=\\w)\xad(?!\xad))"
        f"|(?P<direction>(?<![{_INVISIBLE}])[{_DIRECTIONS}](?![{_INVISIBLE}]))|(?P<control>[{_CONTROLS}])"
        f"|(?P<space>[\t\n{_BREAKS}])|(?P<invisible>[\xad{_SELECTORS}{_DIRECTIONS}{_FORMAT_SIGNS}]+)"
    )


@cache
def _escaped() -> re.Pattern[str]:
    """Return the pattern of characters that `json_text` escapes."""
    return re.compile(f"[\x7f-\x9f\xad\u2028\u2029\ud800-\udfff{_INVISIBLE}]")


def _is_plain(text: str) -> bool:
    """Whether every character of a text has a shape."""
    return text.isprintable() and (text.isascii() or not _UNSEEN.search(text))


def printable(text: str, keep: str = "") -> str:
    """Show invisible characters, on one line: a document must not command the terminal.

    Control characters become symbols (␛), hidden letters are spelt out (`<tags: …>`), others become `<U+202E>`. White
    space becomes spaces, and characters without any meaning become U+FFFD.

    :param keep: white space that stays.
    """
    text = text.replace("\xa0", " ")  # of the frequent ones, these two need no pattern
    if "\t" not in keep:
        text = text.replace("\t", " ")
    if _is_plain(text.replace("\t", " ")):
        return text
    return _replace(text, partial(_symbol, keep=keep, is_right_to_left=_RightToLeft()), _substitute)


def printable_lines(text: str) -> str:
    """Show invisible characters in each line; tabs stay."""
    return "\n".join(printable(line, "\t") for line in text.split("\n"))


def printable_path(path: str) -> str:
    r"""Escape these characters in a file's name, so that names stay distinct: a line break is `\n`.

    In a name with an escape, or with a backslash that would read as one, every backslash is doubled.
    """
    if _is_plain(path) and not ("\\" in path and _reads_as_escaped(path)):
        return path
    return _replace(path.replace("\\", "\\\\"), _path_symbol, _escape)


def shell_word(name: str) -> str:
    r"""Return a name as a word of a command in a shell: 'in quotes' if it must be, and with escapes as $'\x7f'."""
    if _is_plain(name):
        return shlex.quote(name)
    signs = (chr(byte) if 31 < byte < 127 and byte not in b"'\\" else f"\\x{byte:02x}" for byte in os.fsencode(name))
    return f"$'{''.join(signs)}'"


def path_as_printed(shown: str) -> str:
    """Return the name that `printable_path` shows so."""
    return re.sub(rf"\\\\|{_ESCAPE}", _unescape, shown)


def _reads_as_escaped(path: str) -> bool:
    return any(not _is_plain(_unescape(match)) for match in re.finditer(_ESCAPE, path))


def _unescape(match: re.Match[str]) -> str:
    return match[0].encode().decode("unicode_escape")


def visible(text: str) -> str:
    """Leave out invisible characters, for a prompt: a model reads hidden letters like any others."""
    if _is_plain(text.replace("\n", " ").replace("\t", " ").replace("\xa0", " ")):
        return text
    plain = re.sub("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]", "", text.replace("\r\n", "\n"))  # colours
    return _special().sub(partial(_visible_part, is_right_to_left=_RightToLeft()), plain)


def first_of_repr(value: object, length: int) -> str:
    """Return a value's repr, cut after `length` characters. Of a huge text or list it writes only the beginning.

    :raises ValueError: for a number of more digits than Python writes.
    """
    text = ""
    for part in _repr_parts(value, length):
        text += part
        if len(text) > length:
            return f"{text[:length]}…"
    return text


def _repr_parts(value: Any, length: int) -> Iterator[str]:
    """Yield the parts of a value's repr, no text longer than `length`. Each level gives a bracket before the next."""
    if type(value) in (list, tuple):
        opening, closing = "[]" if isinstance(value, list) else ("(", ",)" if len(value) == 1 else ")")
        yield opening
        for number, member in enumerate(value):
            yield ", " * (number > 0)
            yield from _repr_parts(member, length)
        yield closing
    elif type(value) is dict:
        yield "{"
        for number, (name, member) in enumerate(value.items()):
            yield ", " * (number > 0)
            yield from _repr_parts(name, length)
            yield ": "
            yield from _repr_parts(member, length)
        yield "}"
    else:
        yield repr(value[: length + 1] if isinstance(value, (str, bytes)) else value)


def invisible_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of text written in invisible characters: tags, and others in long rows."""
    if not text.isascii() and _UNSEEN.search(text):
        for match in _special().finditer(text):
            if match["tags"] or (match["invisible"] and len(match[0]) >= _RUN_LENGTH):
                yield match.span()


def json_text(record: Any) -> str:
    r"""Write a record, or any value of JSON, on one line, with `\u` escapes for characters that a person does not see.

    JSON has neither NaN nor infinity: they are null.
    """
    text = strict_json(record, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f") if text.isascii() else _escaped().sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f"


def _replace(text: str, symbol: Callable[[re.Match[str]], str], substitute: Callable[[str], str]) -> str:
    text = _special().sub(symbol, text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or _is_kept(char) else substitute(char) for char in text)


def _is_kept(char: str) -> bool:
    """Whether a character is still here because its use is legitimate."""
    return char in "\t\n" or bool(_special().match(char))


def _symbol(match: re.Match[str], keep: str, is_right_to_left: _RightToLeft) -> str:
    text, kind = match[0], match.lastgroup
    if kind == "kept" or text in keep or (kind == "direction" and is_right_to_left(match)):
        return text
    if kind in {"hyphen", "space"}:
        return " " * (kind == "space")
    letters = "".join(chr(ord(char) & 0x7F) for char in text if "\U000e0020" <= char < "\U000e007f")
    if kind == "tags" and letters:
        return f"<tags: {letters}>"
    if len(text) >= _RUN_LENGTH:
        return f"<{len(text):,} invisible characters>"
    return "".join(map(_name, text))


def _name(char: str) -> str:
    code = ord(char)
    return "␡" if code == 0x7F else chr(0x2400 + code) if code < 0x20 else f"<U+{code:04X}>"


def _path_symbol(match: re.Match[str]) -> str:
    return match[0] if match.lastgroup == "kept" else "".join(map(_escape, match[0]))


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _substitute(char: str) -> str:
    return " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"


def _visible_part(match: re.Match[str], is_right_to_left: _RightToLeft) -> str:
    if match.lastgroup == "space":
        return match[0] if match[0] in "\n\t" else "\n"
    is_kept = match.lastgroup == "kept" or (match.lastgroup == "direction" and is_right_to_left(match))
    return match[0] if is_kept else ""


class _RightToLeft:
    """Whether the line of a match has Arabic, Hebrew or another script that runs to the left; for matches in order."""

    def __init__(self) -> None:
        self._line_end = -1  # of the line last seen
        self._answer = False

    def __call__(self, match: re.Match[str]) -> bool:
        text, position = match.string, match.start()
        if position > self._line_end:
            start, end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
            self._line_end = end if end >= 0 else len(text)
            self._answer = bool(re.search(_RIGHT_TO_LEFT, text[start : self._line_end]))
        return self._answer
