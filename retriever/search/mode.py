"""The modes of a search: by words, by meaning, or by both."""

from __future__ import annotations

from typing import Literal, get_args

Mode = Literal["hybrid", "semantic", "lexical"]
MODES: tuple[str, ...] = get_args(Mode)
