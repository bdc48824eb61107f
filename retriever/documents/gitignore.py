"""Patterns of `.gitignore`, matched as git matches them.

Source: gitignore(5) and git's wildmatch with WM_PATHNAME. A pattern is compared with one path alone, never with the
folders above it: a walk through a tree does not enter an ignored folder. (pathspec decides about whole paths at once.
That differs from git for whitelists such as `*`, `!*/`, `!*.txt`.)
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
    """One line of a `.gitignore`, compiled."""

    ignores: bool  # False for a pattern that begins with "!"
    folders_only: bool
    anchored: bool  # compared with the whole path, not only its last name
    regex: re.Pattern[str]

    @classmethod
    def parse(cls, line: str) -> Pattern | None:
        """Read a line; None if it is blank, a comment, or malformed and so matches nothing."""
        line = _bytewise(line)
        spaces = len(line) - len(line.rstrip(" "))
        line = line.rstrip(" ")
        if spaces and (len(line) - len(line.rstrip("\\"))) % 2:  # the first of the spaces is escaped
            line += " "
        if not line or line.startswith("#"):
            return None
        ignores = not line.startswith("!")
        line = line if ignores else line[1:]
        folders_only = line.endswith("/")
        line = line.removesuffix("/")
        anchored = "/" in line
        expression = _to_regex(line.removeprefix("/") if anchored else line)
        return cls(ignores, folders_only, anchored, re.compile(expression, re.DOTALL)) if line and expression else None

    def matches(self, path: str) -> bool:
        """Whether the pattern matches this path; the path of a folder ends in "/"."""
        is_folder = path.endswith("/")
        path = path.removesuffix("/")
        if self.folders_only and not is_folder:
            return False
        return bool(self.regex.fullmatch(_bytewise(path if self.anchored else path.rpartition("/")[2])))


def _bytewise(text: str) -> str:
    """Return one character for each byte of UTF-8, because git's "?" matches a byte."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("latin-1")


def verdict(patterns: Iterable[Pattern], path: str) -> bool | None:
    """Whether the last matching pattern ignores the path; None if no pattern matches."""
    ignores = None
    for pattern in patterns:
        if pattern.matches(path):
            ignores = pattern.ignores
    return ignores


def holds(pattern: Pattern, path: str) -> bool:
    """Whether the pattern matches a file or any folder above it."""
    ends = [match.end() for match in re.finditer("/", path)]
    return any(pattern.matches(path[:end]) for end in (*ends, len(path)))


# Parts of a glob with wildcards; all other parts are pieces of a regular expression.
_STAR, _DEEP = "*", "**/"  # any characters of one name; any folders


def _to_regex(glob: str) -> str:
    """Translate a glob to a regular expression for a whole path; "" if it is malformed and so matches nothing."""
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
    return _join(parts, _DEEP, "(?:[^/]*+/)*", _names)


def _names(parts: list[str]) -> str:
    """Translate parts without `**`, name by name."""
    return "/".join(_join(name, _STAR, "[^/]*", "".join) for name in _split(parts, "/"))


def _join(parts: list[str], wild: str, expression: str, between: Callable[[list[str]], str]) -> str:
    """Join parts with wildcards among them.

    The first match of the parts between two wildcards is as good as any later one. So the group is atomic and never
    backtracks: otherwise a few stars would take for ever.
    """
    first, *rest = [between(group) for group in _split(parts, wild)]
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>{expression}?{group})" for group in middle) + expression + last


def _split(parts: list[str], at: str) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for part in parts:
        if part == at:
            groups.append([])
        else:
            groups[-1].append(part)
    return groups


def _stars(glob: str, position: int, run: int) -> tuple[str, int]:
    """Translate stars: two that fill a name of the path match any folders, others stay within a name."""
    end = position + run
    whole_name = (position == 0 or glob[position - 1] == "/") and (end == len(glob) or glob[end] == "/")
    if run < 2 or not whole_name or "/" not in glob:
        return _STAR, end
    if end == len(glob):
        return ".+", end
    return _DEEP, end + 1


def _class(glob: str, position: int) -> tuple[str, int]:
    """Translate a bracket expression, which never matches "/"; "" if it has no end."""
    start = position + 1
    negated = glob[start : start + 1] in ("!", "^")
    position = start = start + negated
    members = ""
    while position < len(glob) and (glob[position] != "]" or position == start):
        if glob.startswith("[:", position) and ":]" in glob[position + 2 :]:
            end = glob.index(":]", position + 2)
            name = glob[position + 2 : end]
            if name not in _POSIX:
                return "", position
            members += _POSIX[name]
            position = end + 2
            continue
        low, position = _member(glob, position)
        if glob[position : position + 1] == "-" and glob[position + 1 : position + 2] not in ("", "]"):
            high, position = _member(glob, position + 1)
            members += re.escape(low) if low > high else f"{re.escape(low)}-{re.escape(high)}"  # git takes low first
        else:
            members += re.escape(low)
    if position >= len(glob):
        return "", position
    if not members:
        return ("[^/]" if negated else "(?!)"), position + 1
    return f"(?!/)[{'^' * negated}{members}]", position + 1


def _member(glob: str, position: int) -> tuple[str, int]:
    position += glob[position] == "\\" and position + 1 < len(glob)
    return glob[position], position + 1
