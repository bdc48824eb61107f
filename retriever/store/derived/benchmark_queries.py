"""The queries that measure a vector index: real ones, or sentences of the passages.

The queries that proved the requirements stay beside the index, to measure it again when its rows change. Sentences of
passages are erased when a document is forgotten, since they contain its text.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.arrays import from_npy
from ....core.checks import is_whole
from ....core.errors import InputError
from ....core.vectors import check_dimension, unit_vector
from ....core.words import UNSPACED
from ....indexes.tuning.requirements import MAX_QUERIES, queries_needed
from ...models.encoder import encode_finite
from ...models.encoders.no_encoder import check_encoder
from ..locations.location import ANY

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ....core.arrays import Floats, Integers
    from ....indexes.tuning.requirements import Requirements
    from ...models.encoder import Encoder
    from ...models.identity import EncoderId
    from ..locations.location import Location
    from ..snapshot import Snapshot


_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？｡])[」』）”’]*\s*|\n+")
_SENTENCE_WORDS = range(4, 41)
_SENTENCE_CHARACTERS = range(8, 121)  # in the scripts of UNSPACED
_FAMILIES = ("asked", "made")  # in the names of files: real queries, sentences of passages


@dataclass(frozen=True, slots=True)
class BenchmarkQueries:
    """Encoded queries and their source."""

    vectors: Floats  # (n, dim)
    source: str  # for people
    real: bool  # asked by people, not made from the passages


def read(file: Path) -> list[str]:
    """Read queries from a file: BEIR's `queries.jsonl`, or a text a line."""
    try:
        lines = file.read_text("utf-8-sig").split("\n")  # not splitlines: JSON may contain other line ends of Unicode
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


def check(queries: Any, seed: int) -> list[str] | Floats | None:
    """Return texts, or vectors of length 1, shape (n, dim), if there are queries.

    :raises InputError: when they or the seed of their sample cannot be used.
    """
    if not is_whole(seed, 0):
        raise InputError(f"a seed is a whole number from 0, not {seed!r}")
    if queries is None:
        return None
    if isinstance(queries, str) or not isinstance(queries, (Collection, np.ndarray)):
        raise InputError(f"queries are a list of texts, or of vectors, not {queries!r}")
    arrays = [query for query in queries if not isinstance(query, str)]
    if arrays and len(arrays) < len(queries):
        raise InputError(f"a query is a text, not {arrays[0]!r}")
    if arrays:
        vectors = [unit_vector(vector, f"query {number}") for number, vector in enumerate(queries)]
        return np.stack([check_dimension(vector, len(vectors[0]), "a query") for vector in vectors])
    return list(dict.fromkeys(queries))


def choose(
    queries: list[str] | Floats | None, snapshot: Snapshot, encoder: Encoder, requirements: Requirements, seed: int
) -> BenchmarkQueries:
    """Return checked queries, or a sample of them if there are more than needed; without any, sentences of passages.

    :raises InputError: when half of them are too few to prove the requirements, or have another dimension.
    """
    if not isinstance(queries, np.ndarray):
        check_encoder(snapshot.head.encoder, "give vectors of queries to optimize for")
    if queries is None:
        return of_passages(snapshot, encoder, requirements, seed)
    if isinstance(queries, np.ndarray):
        check_dimension(queries[0], snapshot.head.encoder.dim, "a query")
    return of_queries(queries, encoder, requirements, seed)


def of_queries(texts: list[str] | Floats, encoder: Encoder, requirements: Requirements, seed: int) -> BenchmarkQueries:
    """Encode real queries, if they are texts, or a sample of them if there are more than needed.

    :raises InputError: when half of them are too few to prove the requirements.
    """
    minimum = 2 * queries_needed(requirements.recall) if requirements.recall < 1 else 1
    if len(texts) < minimum:
        raise InputError(
            f"{len(texts):,} queries cannot prove a recall of {requirements.recall:g}, half of them to choose by "
            f"and half to prove with: give {minimum:,} at least, ask for less, or have queries made from the passages"
        )
    sample = _sample(len(texts), 2 * requirements.query_count, np.random.default_rng(seed))
    if isinstance(texts, np.ndarray):
        vectors = texts[sample]
    else:
        vectors = encode_finite(encoder, [texts[position] for position in sample], kind="query")
    return BenchmarkQueries(vectors, f"{len(vectors):,} of {len(texts):,} queries that were given", real=True)


def of_passages(snapshot: Snapshot, encoder: Encoder, requirements: Requirements, seed: int) -> BenchmarkQueries:
    """Encode a sentence of each passage of a sample as a query; several of each if there are few passages."""
    random, count = np.random.default_rng(seed), 2 * requirements.query_count
    ids = snapshot.chunk_ids["id"].to_numpy()
    if not len(ids):
        raise InputError("there is nothing to optimize: the index holds no passages")
    sample = ids[_sample(len(ids), count, random)].tolist()
    rows = snapshot.chunks_by_id(sample, ["text"])
    by_passage = [sentences(rows[chunk]["text"]) for chunk in sample if chunk in rows]
    texts = _deal(by_passage, count, random)
    vectors = encode_finite(encoder, texts, kind="query")
    return BenchmarkQueries(vectors, f"{len(texts):,} sentences of the passages, encoded as queries", real=False)


def sentences(text: str) -> list[str]:
    """Split a text into sentences of 4 to 40 words; without any, return the beginning of the text.

    A text without words has none.
    """
    pieces: list[str] = []
    for part in _ENDS.split(text):
        if _is_unspaced(part):
            pieces += [piece for piece in part.split() if len(piece) in _SENTENCE_CHARACTERS]
        elif len(words := part.split()) in _SENTENCE_WORDS:
            pieces.append(" ".join(words))
    if pieces:
        return pieces
    words = text.split()
    if not words:
        return []
    return [
        words[0][: _SENTENCE_CHARACTERS.start * 4]
        if _is_unspaced(text)
        else " ".join(words[: _SENTENCE_WORDS.start * 2])
    ]


def _is_unspaced(text: str) -> bool:
    return 2 * len(UNSPACED.findall(text)) > len(text)


def _deal(groups: Iterable[list[str]], count: int, random: np.random.Generator) -> list[str]:
    """Take one text of each group, then another of each, up to `count` different texts."""
    groups = [[group[position] for position in random.permutation(len(group))] for group in groups]
    longest = max(map(len, groups), default=0)
    turns = (group[turn] for turn in range(longest) for group in groups if turn < len(group))
    return list(dict.fromkeys(turns))[:count]


def _sample(count: int, size: int, random: np.random.Generator) -> Integers:
    """Draw positions below `count`, ascending: `size` of them or all."""
    positions: Integers = np.sort(random.choice(count, min(count, size), replace=False))
    return positions


def _file(encoder: EncoderId, family: str) -> str:
    name = hashlib.sha256(encoder.fingerprint.encode()).hexdigest()[:16]
    return f"queries-{family}-{name}.npy"


def store_queries(
    location: Location, queries: BenchmarkQueries, encoder: EncoderId, *, replace_all: bool = True
) -> None:
    """Write the vectors beside the index, in place of earlier ones.

    :param replace_all: also remove the queries of other encoders.
    """
    if replace_all:
        forget(location, everything=True)
    stream = io.BytesIO()
    np.save(stream, queries.vectors, allow_pickle=False)
    location.write(_file(encoder, _FAMILIES[not queries.real]), stream.getvalue(), over=ANY)


def read_stored(location: Location, encoder: EncoderId) -> Floats | None:
    """Read the stored vectors of this encoder; None if there are none or the file is damaged."""
    for family in _FAMILIES:
        with contextlib.suppress(OSError, ValueError):
            data = location.read(_file(encoder, family))[0]
            if len(data) > 8 * MAX_QUERIES * encoder.dim:  # twice the most queries, of four bytes a number
                continue
            vectors = from_npy(data)
            is_matrix = vectors.dtype == np.float32 and vectors.ndim == 2 and vectors.shape[1] == encoder.dim
            if is_matrix and len(vectors) > 1 and np.isfinite(vectors).all():
                return np.ascontiguousarray(vectors)
    return None


def forget(location: Location, *, everything: bool = False) -> None:
    """Erase the stored sentences of passages, or all stored queries."""
    for family in _FAMILIES[0 if everything else 1 :]:
        location.remove(f"queries-{family}-")
