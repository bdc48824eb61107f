"""Patterns of `.gitignore`, matched as git matches them.

Source: gitignore(5) and git's wildmatch with WM_PATHNAME. A pattern is held against one path alone, never against what
lies above it: who walks a tree does not enter a folder that is ignored. (pathspec decides about whole paths at once,
which differs from git for whitelists such as `*`, `!*/`, `!*.txt`.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_POSIX = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\s",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


@dataclass(frozen=True, slots=True)
class Pattern:
    ignores: bool  # False for a pattern that begins with "!"
    folders_only: bool
    anchored: bool  # held against the whole path, not only its last name
    regex: re.Pattern[str]

    @classmethod
    def parse(cls, line: str) -> Pattern | None:
        """Read a line; None where it is blank, a comment, or nothing that could ever match."""
        line = _bytewise(line)
        kept = len(line) - len(line.rstrip(" "))
        line = line.rstrip(" ")
        if kept and (len(line) - len(line.rstrip("\\"))) % 2:  # the first of the spaces is escaped
            line += " "
        if not line or line.startswith("#"):
            return None
        ignores = not line.startswith("!")
        line = line if ignores else line[1:]
        folders_only = line.endswith("/")
        line = line.removesuffix("/")
        anchored = "/" in line
        expression = _translated(line.removeprefix("/") if anchored else line)
        return cls(ignores, folders_only, anchored, re.compile(expression, re.DOTALL)) if line and expression else None

    def matches(self, path: str) -> bool:
        """Whether it is this path that is meant: of a folder it ends in "/"."""
        is_folder = path.endswith("/")
        path = path.removesuffix("/")
        if self.folders_only and not is_folder:
            return False
        return bool(self.regex.fullmatch(_bytewise(path if self.anchored else path.rpartition("/")[2])))


def _bytewise(text: str) -> str:
    """One character a byte of UTF-8: to git, "?" is a byte."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("latin-1")


def verdict(patterns: Iterable[Pattern], path: str) -> bool | None:
    """Whether the last pattern that matches ignores the path; None where none does."""
    found = None
    for pattern in patterns:
        if pattern.matches(path):
            found = pattern.ignores
    return found


def holds(pattern: Pattern, path: str) -> bool:
    """Whether the pattern matches a file or any of the folders that it lies in."""
    places = [match.end() for match in re.finditer("/", path)]
    return any(pattern.matches(path[:end]) for end in (*places, len(path)))


# Parts of a glob that match more than one string; everything else is a piece of a regular expression.
_STAR, _DEEP = "*", "**/"  # any characters of one name; any folders


def _translated(glob: str) -> str:
    """A glob as a regular expression for the whole of a path; "" if it is malformed and so matches nothing."""
    parts: list[str] = []
    position = 0
    while position < len(glob):
        char = glob[position]
        if char == "*":
            run = len(glob) - position - len(glob[position:].lstrip("*"))
            step, position = _stars(glob, position, run)
        elif char == "[":
            step, position = _class(glob, position)
        elif char == "\\":
            step, position = re.escape(glob[position + 1 : position + 2]), position + 2
        else:
            step, position = "[^/]" if char == "?" else re.escape(char), position + 1
        if not step:
            return ""
        parts.append(step)
    return _joined(parts, _DEEP, "(?:[^/]*+/)*", _names)


def _names(parts: list[str]) -> str:
    """Parts without `**`, name by name."""
    return "/".join(_joined(name, _STAR, "[^/]*", "".join) for name in _split(parts, "/"))


def _joined(parts: list[str], wild: str, expression: str, between: Callable[[list[str]], str]) -> str:
    """Parts with wild ones among them. The first place that fits what stands between two wild ones is as good as any
    other, so it is never given up again: without that, a few stars would take for ever.
    """
    first, *rest = [between(some) for some in _split(parts, wild)]
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>{expression}?{some})" for some in middle) + expression + last


def _split(parts: list[str], at: str) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for part in parts:
        if part == at:
            groups.append([])
        else:
            groups[-1].append(part)
    return groups


def _stars(glob: str, position: int, run: int) -> tuple[str, int]:
    """Stars: two that fill a name of the path span any folders, others stay within a name."""
    end = position + run
    whole_name = (position == 0 or glob[position - 1] == "/") and (end == len(glob) or glob[end] == "/")
    if run < 2 or not whole_name or "/" not in glob:
        return _STAR, end
    if end == len(glob):
        return ".+", end
    return _DEEP, end + 1


def _class(glob: str, position: int) -> tuple[str, int]:
    """A bracket expression, which never matches "/"; "" if it does not end."""
    start = position + 1
    negated = glob[start : start + 1] in ("!", "^")
    position = start = start + negated
    made = ""
    while position < len(glob) and (glob[position] != "]" or position == start):
        if glob.startswith("[:", position) and ":]" in glob[position + 2 :]:
            end = glob.index(":]", position + 2)
            name = glob[position + 2 : end]
            if name not in _POSIX:
                return "", position
            made += _POSIX[name]
            position = end + 2
            continue
        low, position = _member(glob, position)
        if glob[position : position + 1] == "-" and glob[position + 1 : position + 2] not in ("", "]"):
            high, position = _member(glob, position + 1)
            made += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
        else:
            made += re.escape(low)
    if position >= len(glob):
        return "", position
    if not made:
        return ("[^/]" if negated else "(?!)"), position + 1
    return f"(?!/)[{'^' * negated}{made}]", position + 1


def _member(glob: str, position: int) -> tuple[str, int]:
    position += glob[position] == "\\" and position + 1 < len(glob)
    return glob[position], position + 1
