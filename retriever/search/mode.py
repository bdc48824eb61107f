"""The modes of a search: by words, by meaning, or by both."""

from __future__ import annotations

from typing import Literal, get_args

from ...core.errors import InputError

Mode = Literal["hybrid", "semantic", "lexical"]
MODES: tuple[str, ...] = get_args(Mode)


def check_mode(mode: str) -> None:
    """:raises InputError: unless it is one of `MODES`."""
    if mode not in MODES:
        raise InputError(f"there is no mode {mode!r}: expected one of {', '.join(MODES)}")
