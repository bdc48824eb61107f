"""What inversion of embeddings learns from: stretches of documents as tokens, each with its vector, on disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ...core.files import json_or_make
from ...indexes.metric import normalized
from ..data.tokenized import Row, Rows, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ...core.arrays import Floats
    from ...retriever.models.encoder import Encoder
    from ...retriever.models.token_ids import EncoderTokens


SHORTEST = 4  # tokens of a stretch
_DOCUMENTS = 256  # cut at a time
_TEXTS = 4_096  # encoded at a time
_COVERED = 2.0  # times that a document is covered by its stretches, on average
_WHOLE = 0.75  # share of stretches as long as can be; the others are of any length


@dataclass(frozen=True, slots=True)
class TokenSpans:
    """Rows of tokens and their vectors (rows, dim) of length 1, both mapped into memory."""

    tokens: Rows
    vectors: Floats

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def read(cls, folder: Path, name: str, dim: int) -> TokenSpans:
        rows = Rows(folder / f"{name}.arrow")
        file = folder / f"{name}.f32"
        empty = np.empty((0, dim), np.float32)
        vectors = np.memmap(file, np.float32, "r").reshape(-1, dim) if file.stat().st_size else empty
        return cls(rows, vectors)


@dataclass(frozen=True, slots=True)
class Counts:
    """What was read and written."""

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
    most: int,
    seed: int = 0,
) -> Counts:
    """Cut every text into stretches and write `train` and `held_out`; what a killed run has written counts if whole.

    :param texts: what `pretraining_rows.parted` gives.
    :param longest: tokens of a stretch.
    :param most: stretches to train on; a twentieth as many are held out.
    """
    made = json_or_make(
        folder / "counts.json", lambda: asdict(_write(texts, folder, encoder, tokens, longest, most, seed))
    )
    return Counts(**made)


def _write(
    texts: Iterable[tuple[str, bool]],
    folder: Path,
    encoder: Encoder,
    tokens: EncoderTokens,
    longest: int,
    most: int,
    seed: int,
) -> Counts:
    random = np.random.default_rng(seed)
    train = _Side(folder, "train", encoder, tokens, most)
    held_out = _Side(folder, "held_out", encoder, tokens, max(1, most // 20))
    documents = held_documents = 0
    given = iter(texts)
    while (not train.full) and (some := list(islice(given, _DOCUMENTS))):
        for (_, held), stretches in zip(some, cut([text for text, _ in some], encoder, longest, random), strict=True):
            documents += 1
            held_documents += held
            for stretch in stretches:
                (held_out if held else train).add(stretch, documents)
    train.close()
    held_out.close()
    return Counts(documents, held_documents, train.count, held_out.count)


def cut(texts: list[str], encoder: Encoder, longest: int, random: np.random.Generator) -> Iterator[list[str]]:
    """For each text some stretches of it that begin where a word does, of `longest` tokens or fewer."""
    for text, offsets in zip(texts, encoder.offsets(texts), strict=True):
        starts = np.array([n for n, (start, _) in enumerate(offsets) if n == 0 or start > offsets[n - 1][1]], np.int64)
        found = []
        for _ in range(round(_COVERED * len(offsets) / longest) or 1 if len(offsets) >= SHORTEST else 0):
            length = longest if random.random() < _WHOLE else int(random.integers(SHORTEST, longest + 1))
            fitting = starts[starts + length <= len(offsets)]
            first = int(random.choice(fitting)) if len(fitting) else 0
            last = min(first + length, len(offsets)) - 1
            found.append(text[offsets[first][0] : offsets[last][1]])
        yield found


class _Side:
    """One of the two files of rows, with its file of vectors."""

    def __init__(self, folder: Path, name: str, encoder: Encoder, tokens: EncoderTokens, most: int) -> None:
        self._encoder, self._tokens, self._most = encoder, tokens, most
        self._rows = Writer(folder / f"{name}.arrow")
        self._vectors = folder / f"{name}.f32"
        self._vectors.write_bytes(b"")
        self._waiting: list[tuple[str, int]] = []
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count + len(self._waiting) >= self._most

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
        made = self._tokens(texts)
        kept = [place for place, ids in enumerate(made) if ids]
        if kept:
            with self._vectors.open("ab") as file:
                file.write(normalized(self._encoder.encode([texts[place] for place in kept])).tobytes())
        for place in kept:
            ids = np.array(made[place], np.int64)
            self._rows.add(Row(ids, np.zeros(len(ids), np.uint8)), self._waiting[place][1])
        self.count += len(kept)
        self._waiting = []
