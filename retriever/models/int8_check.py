"""Check on the user's own texts, on this processor, whether int8 is faster and ranks nearly the same."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from ...core.files import user_folder, write_atomic
from ...core.version import __version__
from .bert.int8 import has_int8_products
from .load import load_encoder, load_reranker
from .model_files import INT8

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats

_MIN_PASSAGES = 100  # passages, to compare ten nearest among
_MAX_PASSAGES = 400
_QUERY_WORDS = 8
_TIMED = 64  # passages, in each of the rounds
_ROUNDS = 3
_LISTS, _LIST_LENGTH = 8, 50  # consecutive passages; a list's query is made of its first passage
# Limits for int8: minimum speedup, minimum share of the nearest ten that stay, maximum share of first places lost.
_MIN_SPEEDUP, _MIN_AGREEMENT, _MAX_PLACES_LOST = 1.15, 0.9, 0.02


@dataclass(frozen=True, slots=True)
class Int8Check:
    """Int8 against the model's own precision, on passages and on queries made of eight words of them."""

    passages: int
    speedup: float = 1.0  # processor time of the own precision by that of int8
    agreement: float = 0.0  # share of the ten nearest passages of a query that are the same
    first_places_lost: float = 0.0  # fall of the share of queries that rank their own passage first

    @property
    def passed(self) -> bool:
        """Whether int8 is faster and ranks nearly the same."""
        return (
            self.passages >= _MIN_PASSAGES
            and self.speedup >= _MIN_SPEEDUP
            and self.agreement >= _MIN_AGREEMENT
            and self.first_places_lost <= _MAX_PLACES_LOST
        )

    def as_text(self) -> str:
        """One line for people."""
        if self.passages < _MIN_PASSAGES:
            return f"not int8: {self.passages:,} passages are too few to check it on (at least {_MIN_PASSAGES})"
        verdict, decrease = "int8" if self.passed else "not int8", max(0.0, self.first_places_lost)
        return (
            f"{verdict}: {self.speedup:.2f} times as fast here, {self.agreement:.0%} of the best ten are the same, "
            f"{decrease:.1%} of queries lost their first place ({self.passages:,} of your passages)"
        )


def reason_against_int8(model: str) -> str:
    """Return why an encoder cannot be faster in int8 here, or an empty text."""
    if not has_int8_products():
        return "this processor does not multiply int8 (AVX-512 VNNI, AVX-VNNI or AMX)"
    load_encoder(model)  # an error in its folder is raised
    try:
        load_encoder(model + INT8)
    except InputError:
        return f"{model} is no encoder of a family that is computed in int8"
    return ""


def memory_of(model: str) -> Path:
    """Return the file that remembers the check of an encoder on this processor, with this version of Binocle."""
    key = json.dumps([load_encoder(model).fingerprint, _processor(), __version__])
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return user_folder("CACHE", "~/.cache") / "binocle" / "int8" / f"{digest}.json"


def _processor() -> list[str]:
    """The name and the features of the processor, as far as Linux says them."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return sorted({line for line in lines if line.startswith(("model name", "flags"))})


def remembered(memory: Path) -> Int8Check | None:
    """Return the check in a file; None if there is none, or it cannot be read."""
    try:
        fields = json.loads(memory.read_text("utf-8"))
        rates = (float(fields[name]) for name in ("speedup", "agreement", "first_places_lost"))
        return Int8Check(int(fields["passages"]), *rates)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(check: Int8Check, memory: Path) -> bool:
    """Write a check to a file, unless its passages were too few; return whether it is there."""
    if check.passages < _MIN_PASSAGES:
        return False
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(memory, json.dumps(asdict(check)))
    except OSError:  # the home is read-only: check again next time
        return False
    return True


def check_int8(model: str, texts: Sequence[str]) -> Int8Check:
    """Compare an encoder of the BERT family with itself in int8.

    :param model: its folder or name.
    :param texts: passages; at most 400 of them, evenly spaced, are compared.
    :raises InputError: when the model cannot be computed in int8.
    """
    sample = [texts[row] for row in np.linspace(0, len(texts) - 1, min(len(texts), _MAX_PASSAGES)).astype(np.intp)]
    own, int8 = load_encoder(model), load_encoder(model + INT8)
    if len(sample) < _MIN_PASSAGES:
        return Int8Check(len(sample))
    vectors, rounded = own.encode(sample), int8.encode(sample)
    queries = own.encode([_query(text) for text in sample], kind="query")
    agreement, fall = _order_changes(queries @ vectors.T, queries @ rounded.T, np.arange(len(sample)))
    timed = sample[:_TIMED]
    return Int8Check(len(sample), _speedup(lambda: own.encode(timed), lambda: int8.encode(timed)), agreement, fall)


def check_int8_reranker(model: str, texts: Sequence[str]) -> Int8Check:
    """Compare a reranker of the BERT family with itself in int8: how it orders passages for eight queries.

    :param model: its folder or name.
    :param texts: passages in the order of their documents: each query ranks 50 in a row.
    :raises InputError: when the model cannot be computed in int8.
    """
    own, int8 = load_reranker(model), load_reranker(model + INT8)
    if len(texts) < _MIN_PASSAGES:
        return Int8Check(len(texts))
    starts = np.linspace(0, len(texts) - _LIST_LENGTH, _LISTS).astype(np.intp).tolist()
    lists = [texts[start : start + _LIST_LENGTH] for start in starts]
    before, after = (np.stack([model.score(_query(rows[0]), rows) for rows in lists]) for model in (own, int8))
    agreement, fall = _order_changes(before, after, np.zeros(_LISTS, np.intp))
    query, timed = _query(texts[0]), texts[:_TIMED]
    speedup = _speedup(lambda: own.score(query, timed), lambda: int8.score(query, timed))
    return Int8Check(min(len(texts), _LISTS * _LIST_LENGTH), speedup, agreement, fall)


def _query(text: str) -> str:
    """Return words from the middle of a passage."""
    words = text.split()
    start = max(0, (len(words) - _QUERY_WORDS) // 2)
    return " ".join(words[start : start + _QUERY_WORDS])


def _order_changes(own: Floats, int8: Floats, sources: NDArray[np.intp]) -> tuple[float, float]:
    """Return the share of the best ten that stay, and the net share of queries that lost their first place.

    :param own: scores of passages, shape (queries, passages); `int8` has the same shape.
    :param sources: the passage that each query is made of, shape (queries,).
    """
    before, after = (np.argsort(-scores, axis=1, kind="stable")[:, :10] for scores in (own, int8))
    same = [len(set(left) & set(right)) for left, right in zip(before.tolist(), after.tolist(), strict=True)]
    fewer_first = float((before[:, 0] == sources).mean() - (after[:, 0] == sources).mean())
    return float(np.mean(same)) / before.shape[1], fewer_first


def _speedup(own: Callable[[], object], int8: Callable[[], object]) -> float:
    """Return the shortest processor time of `own` divided by that of `int8`; the two calls take turns."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(_ROUNDS):
        for call, spent in zip((own, int8), seconds, strict=True):
            start = time.process_time()
            call()
            spent.append(time.process_time() - start)
    return min(seconds[0]) / min(seconds[1])
