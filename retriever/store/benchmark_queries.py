"""The queries that a vector index is measured with: asked by people, or made from the passages.

Those that a demand was proven with are kept beside the index, to measure with again when its rows have changed. What
was made from passages goes when a document is forgotten, for it says what was in there.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.checks import is_whole
from ...core.errors import InputError
from ...core.words import UNSPACED
from ...indexes.tuning.benchmark import MAX_QUERIES, queries_needed
from ..models.encoder import encode_finite
from .location import ANY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...indexes.tuning.benchmark import Requirements
    from ..models.encoder import Encoder
    from ..models.identity import EncoderId
    from .location import Location
    from .snapshot import Snapshot


_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？｡])[」』）”’]*\s*|\n+")
_WORDS = range(4, 41)  # so many make a sentence
_CHARACTERS = range(8, 121)  # so many of these make a sentence
_FAMILIES = ("asked", "made")


@dataclass(frozen=True, slots=True)
class BenchmarkQueries:
    vectors: Floats  # (n, dim)
    source: str  # for people: where they are from
    asked: bool  # by people, not made from the passages


def read(file: Path) -> list[str]:
    """Queries out of a file: BEIR's `queries.jsonl`, or a text a line."""
    try:
        lines = file.read_text("utf-8-sig").split("\n")  # JSON may hold the other marks that Unicode ends a line with
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError(f"{file} cannot be read as queries: {reason}") from None
    if file.suffix in {".jsonl", ".json"}:
        lines = [_text(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    texts = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not texts:
        raise InputError(f"{file} holds no queries: expected a text a line, or JSON lines with 'text'")
    return texts


def _text(file: Path, number: int, line: str) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, TypeError, KeyError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise InputError(f"{file}:{number} is not a query: expected a JSON object with a 'text'")
    return text


def check(texts: Collection[str] | None, seed: int) -> None:
    """Whether queries, if there are any, and the seed of their sample can be used."""
    if not is_whole(seed, 0):
        raise InputError(f"a seed is a whole number from 0, not {seed!r}")
    if isinstance(texts, str) or not isinstance(texts, (Collection, type(None))):
        raise InputError(f"queries are a list of texts, not {texts!r}")
    for text in () if texts is None else texts:
        if not isinstance(text, str):
            raise InputError(f"a query is a text, not {text!r}")


def of_texts(texts: Sequence[str], encoder: Encoder, demand: Requirements, seed: int) -> BenchmarkQueries:
    """Real queries, or a sample where there are more than it takes.

    :raises InputError: when there are too few to prove the demand with half of them.
    """
    texts = list(dict.fromkeys(texts))
    least = 2 * queries_needed(demand.recall) if demand.recall < 1 else 1
    if len(texts) < least:
        raise InputError(
            f"{len(texts):,} queries cannot prove a recall of {demand.recall:g}, half of them to choose by and half to "
            f"prove with: give {least:,} at the least, ask for less, or have queries made from the passages"
        )
    chosen = _some(len(texts), 2 * demand.query_count, np.random.default_rng(seed))
    vectors = encode_finite(encoder, [texts[place] for place in chosen], kind="query")
    return BenchmarkQueries(vectors, f"{len(vectors):,} of {len(texts):,} queries that were given", asked=True)


def of_passages(snapshot: Snapshot, encoder: Encoder, demand: Requirements, seed: int) -> BenchmarkQueries:
    """A sentence out of each of some passages, encoded as a query; several of each where there are few passages."""
    random, wanted = np.random.default_rng(seed), 2 * demand.query_count
    ids = snapshot.chunk_ids["id"].to_numpy()
    if not len(ids):
        raise InputError("there is nothing to optimize: the index holds no passages")
    chosen = ids[_some(len(ids), wanted, random)]
    rows = snapshot.chunks_by_id(chosen.tolist(), ["text"])
    by_passage = [sentences(rows[number]["text"]) for number in chosen.tolist() if number in rows]
    texts = _dealt(by_passage, wanted, random)
    vectors = encode_finite(encoder, texts, kind="query")
    return BenchmarkQueries(vectors, f"{len(texts):,} sentences of the passages, encoded as queries", asked=False)


def sentences(text: str) -> list[str]:
    """Its sentences of some words; the beginning of the text where there is none."""
    found: list[str] = []
    for part in _ENDS.split(text):
        if _is_unspaced(part):
            found += [piece for piece in part.split() if len(piece) in _CHARACTERS]
        elif len(words := part.split()) in _WORDS:
            found.append(" ".join(words))
    if found:
        return found
    words = text.split()
    return [words[0][: _CHARACTERS.start * 4] if _is_unspaced(text) else " ".join(words[: _WORDS.start * 2])]


def _is_unspaced(text: str) -> bool:
    return 2 * len(UNSPACED.findall(text)) > len(text)


def _dealt(groups: Iterable[list[str]], count: int, random: np.random.Generator) -> list[str]:
    """One of each group, then another of each, until there are so many."""
    groups = [[group[place] for place in random.permutation(len(group))] for group in groups]
    longest = max(map(len, groups), default=0)
    turns = (group[turn] for turn in range(longest) for group in groups if turn < len(group))
    return list(dict.fromkeys(turns))[:count]


def _some(count: int, wanted: int, random: np.random.Generator) -> NDArray[np.int64]:
    chosen: NDArray[np.int64] = np.sort(random.choice(count, min(count, wanted), replace=False))
    return chosen


def _file(encoder: EncoderId, family: str) -> str:
    name = hashlib.sha256(encoder.fingerprint.encode()).hexdigest()[:16]
    return f"queries-{family}-{name}.npy"


def store_queries(place: Location, asked: BenchmarkQueries, encoder: EncoderId, *, alone: bool = True) -> None:
    """Put the vectors beside the index, in the place of those before.

    :param alone: whether those of other encoders go.
    """
    if alone:
        forget(place, everything=True)
    stream = io.BytesIO()
    np.save(stream, asked.vectors, allow_pickle=False)
    place.write(_file(encoder, _FAMILIES[not asked.asked]), stream.getvalue(), over=ANY)


def read_stored(place: Location, encoder: EncoderId) -> Floats | None:
    """The vectors kept for this encoder, if they are whole."""
    for family in _FAMILIES:
        with contextlib.suppress(OSError, ValueError, EOFError):
            data = place.read(_file(encoder, family))[0]
            if len(data) > 8 * MAX_QUERIES * encoder.dim:  # twice as many of four bytes a number
                continue
            # Not np.load, which would also take archives.
            vectors = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
            whole = vectors.dtype == np.float32 and vectors.ndim == 2 and vectors.shape[1] == encoder.dim
            if whole and len(vectors) > 1 and np.isfinite(vectors).all():
                return np.ascontiguousarray(vectors)
    return None


def forget(place: Location, *, everything: bool = False) -> None:
    """Erase the kept queries that were made from passages, or all."""
    for family in _FAMILIES[0 if everything else 1 :]:
        place.remove(f"queries-{family}-")
