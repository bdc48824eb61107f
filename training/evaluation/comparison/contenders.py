"""Parse the contenders of a comparison: MODEL[@POOLING][@MODE][+RERANKER], or `lexical` for BM25 alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....core.errors import InputError
from ....core.files import expand_home
from ....retriever.models.model_files import split_length, split_precision
from ....retriever.models.settings import POOLING_FLAGS
from ....retriever.search.mode import MODES, check_mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BM25 = "lexical"


@dataclass(frozen=True, slots=True)
class Contender:
    """A model in a mode.

    :param folder: of the model in another pooling, once it is written.
    """

    name: str  # for people
    written: str
    model: str | None  # None for BM25 alone, which can use any index of the collection
    mode: str
    reranker: str | None = None
    folder: str | None = None

    @property
    def source(self) -> str | None:
        """The folder or name to load the model by."""
        return self.folder or self.model

    @property
    def pooling(self) -> str | None:
        """The pooling that takes the place of the model's own."""
        return None if self.model is None else _pooling(self.model)


def parse(written: Sequence[str], modes: Sequence[str] = ("semantic",)) -> list[Contender]:
    """Parse contenders and keep their order.

    :param modes: for models that name none; each such model is one contender in each mode.
    """
    for mode in modes:
        check_mode(mode)
    parts = [part for text in written for part in _parts(text, modes or ("semantic",))]
    twice = next((part for part in parts if parts.count(part) > 1), None)
    if twice:
        raise InputError(f"{_full(*twice)} is there twice: expected contenders that differ")
    if len(parts) < 2:
        raise InputError(f"a comparison needs at least two contenders, not {len(parts)}: add another model or mode")
    return [Contender(name, _full(*part), *part) for part, name in zip(parts, _names(parts), strict=True)]


def _parts(text: str, modes: Sequence[str]) -> Iterator[tuple[str | None, str, str | None]]:
    if not text.strip():
        raise InputError("'' is no contender: expected MODEL, MODEL@MODE, MODEL@MODE+RERANKER or lexical")
    folder, _, ending = text.rpartition("@")
    if ending in MODES and _is_folder(folder):  # its name may contain any sign
        yield folder, ending, None
        return
    rest, reranker = _split(text, "+")
    if rest == BM25:
        yield None, BM25, reranker
        return
    has_mode = not split_precision(rest)[1] and split_length(rest)[1] is None and _pooling(rest) is None
    model, mode = _split(rest, "@") if has_mode else (rest, None)
    if mode is not None and mode not in MODES:
        poolings = ", ".join(POOLING_FLAGS.values())
        raise InputError(f"{mode!r} is no mode and no pooling: expected one of {', '.join(MODES)}, {poolings}")
    for search_mode in [mode] if mode is not None else modes:
        yield model, search_mode, reranker


def _split(text: str, sign: str) -> tuple[str, str | None]:
    """Split a text at the last `sign`, unless the whole is the name of a folder."""
    before, separator, after = text.rpartition(sign)
    if not separator or _is_folder(text):
        return text, None
    if not before or not after:
        raise InputError(f"{text!r} is no contender: expected MODEL, MODEL@MODE, MODEL@MODE+RERANKER or lexical")
    return before, after


def _pooling(model: str) -> str | None:
    """Return the pooling that the name of a model ends in; a folder has its own."""
    name, _ = split_precision(model)
    before, _, ending = name.rpartition("@")
    return ending if before and ending in POOLING_FLAGS.values() and not _is_folder(name) else None


def _is_folder(text: str) -> bool:
    return bool(text) and expand_home(text).is_dir()


def _names(parts: Sequence[tuple[str | None, str, str | None]]) -> list[str]:
    """Return short names, or full names if short ones would be equal; with the mode if modes differ."""
    modes = {mode for model, mode, _ in parts if model is not None}
    short = [
        (None if model is None else _last(model), mode if model is None or len(modes) > 1 else None, _last(reranker))
        for model, mode, reranker in parts
    ]
    return [_full(*part) if short.count(brief) > 1 else _full(*brief) for part, brief in zip(parts, short, strict=True)]


def _last(name: str | None) -> str | None:
    return None if name is None else expand_home(name).resolve().name or name


def _full(model: str | None, mode: str | None, reranker: str | None) -> str:
    rest = "" if reranker is None else f"+{reranker}"
    if model is None:
        return f"{BM25}{rest}"
    return f"{model}{f'@{mode}' if mode else ''}{rest}"
