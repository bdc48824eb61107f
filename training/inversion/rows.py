"""Spans of documents as tokens with their vectors, on disk: the training rows of an inverter of vectors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ...core.files import json_or_make
from ...indexes.metric import normalized
from ..data.tokenized import Row, TokenRows, TokenRowWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ...core.arrays import Floats
    from ...retriever.models.encoder import Encoder
    from ...retriever.models.tokens.token_ids import EncoderTokens


SHORTEST = 4  # tokens of a span
_DOCUMENTS = 256  # cut in a batch
_TEXTS = 4_096  # encoded in a batch
_COVERED = 2.0  # how often the spans of a document cover it, on average
_WHOLE = 0.75  # share of spans of full length; the rest have random lengths


@dataclass(frozen=True, slots=True)
class TokenSpans:
    """Rows of tokens, and their vectors (rows, dim) of length 1; both are memory-mapped."""

    tokens: TokenRows
    vectors: Floats

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def read(cls, folder: Path, name: str, dim: int) -> TokenSpans:
        """Map the files `NAME.arrow` and `NAME.f32` into memory; an empty file gives no rows."""
        rows = TokenRows(folder / f"{name}.arrow")
        file = folder / f"{name}.f32"
        empty = np.empty((0, dim), np.float32)
        vectors = np.memmap(file, np.float32, "r").reshape(-1, dim) if file.stat().st_size else empty
        return cls(rows, vectors)


@dataclass(frozen=True, slots=True)
class SpanCounts:
    """The numbers of documents read and of rows written."""

    documents: int = 0
    held_out_documents: int = 0
    rows: int = 0  # to train on
    held_out_rows: int = 0


def prepare(
    texts: Iterable[tuple[str, bool]],
    folder: Path,
    encoder: Encoder,
    tokens: EncoderTokens,
    *,
    longest: int,
    limit: int,
    seed: int = 0,
) -> SpanCounts:
    """Cut texts into spans, encode them, and write `train` and `held_out`; reuse the complete files of a killed run.

    :param texts: each text with whether it is held out, from `pretraining.data.token_rows.split_held_out`.
    :param longest: maximum number of tokens in a span.
    :param limit: maximum number of spans to train on; of held-out spans a twentieth of it.
    """
    counts = json_or_make(
        folder / "counts.json", lambda: asdict(_write(texts, folder, encoder, tokens, longest, limit, seed))
    )
    return SpanCounts(**counts)


def _write(
    texts: Iterable[tuple[str, bool]],
    folder: Path,
    encoder: Encoder,
    tokens: EncoderTokens,
    longest: int,
    limit: int,
    seed: int,
) -> SpanCounts:
    random = np.random.default_rng(seed)
    train = _SpanWriter(folder, "train", encoder, tokens, limit)
    held_out = _SpanWriter(folder, "held_out", encoder, tokens, max(1, limit // 20))
    documents = held_documents = 0
    iterator = iter(texts)
    while (not train.full) and (batch := list(islice(iterator, _DOCUMENTS))):
        for (_, is_held_out), spans in zip(
            batch, cut([text for text, _ in batch], encoder, longest, random), strict=True
        ):
            documents += 1
            held_documents += is_held_out
            for span in spans:
                (held_out if is_held_out else train).add(span, documents)
    train.close()
    held_out.close()
    return SpanCounts(documents, held_documents, train.count, held_out.count)


def cut(texts: list[str], encoder: Encoder, longest: int, random: np.random.Generator) -> Iterator[list[str]]:
    """Cut random spans from each text, of `longest` tokens or fewer; each begins at the start of a word."""
    for text, offsets in zip(texts, encoder.offsets(texts), strict=True):
        starts = np.array([n for n, (start, _) in enumerate(offsets) if n == 0 or start > offsets[n - 1][1]], np.int64)
        spans = []
        for _ in range(round(_COVERED * len(offsets) / longest) or 1 if len(offsets) >= SHORTEST else 0):
            length = longest if random.random() < _WHOLE else int(random.integers(SHORTEST, longest + 1))
            fitting = starts[starts + length <= len(offsets)]
            first = int(random.choice(fitting)) if len(fitting) else 0
            last = min(first + length, len(offsets)) - 1
            spans.append(text[offsets[first][0] : offsets[last][1]])
        yield spans


class _SpanWriter:
    """Encodes spans in batches, and writes a file of rows and a file of vectors."""

    def __init__(self, folder: Path, name: str, encoder: Encoder, tokens: EncoderTokens, limit: int) -> None:
        self._encoder, self._tokens, self._limit = encoder, tokens, limit
        self._rows = TokenRowWriter(folder / f"{name}.arrow")
        self._vectors = folder / f"{name}.f32"
        self._vectors.write_bytes(b"")
        self._waiting: list[tuple[str, int]] = []
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count + len(self._waiting) >= self._limit

    def add(self, text: str, document: int) -> None:
        if not self.full:
            self._waiting.append((text, document))
            if len(self._waiting) >= _TEXTS:
                self._flush()

    def close(self) -> None:
        self._flush()
        self._rows.close()

    def _flush(self) -> None:
        texts = [text for text, _ in self._waiting]
        tokens = self._tokens(texts)
        numbers = [number for number, ids in enumerate(tokens) if ids]
        if numbers:
            with self._vectors.open("ab") as file:
                file.write(normalized(self._encoder.encode([texts[number] for number in numbers])).tobytes())
        for number in numbers:
            ids = np.array(tokens[number], np.int64)
            self._rows.add(Row(ids, np.zeros(len(ids), np.uint8)), self._waiting[number][1])
        self.count += len(numbers)
        self._waiting = []
