"""Another encoder for an index in service: every passage embedded anew beside the old vectors, then one rename.

The passages stay as they are; only their vectors change. So the new encoder must cut texts as the old one did, which
a model fine-tuned from it does. One that cuts otherwise is refused: where a passage may end follows from the parts of
a document, which only reading its file again tells, and the file may not be what it was. That would be a new index,
and making one beside this one (`--index`) is what the refusal says.

The vectors that a switch replaces stay in the chunks table, in a column of their own, until the next switch or
rollback. They go where their chunk goes: a document that is forgotten is erased with both.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...core.errors import BinocleError, EncoderMismatchError, StoreError
from ...core.progress import OnProgress, ignore
from ..models import encoder as encoders
from ..models.identity import EncoderId
from ..models.load import load_encoder
from ..models.token_boundaries import token_boundary_digest
from ..store.commits import SWITCHING
from ..store.tables import PREVIOUS, chunk_schema, matrix, writing
from .report import progress_of_passages
from .vector_log import VectorLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.arrays import Floats
    from ..models.encoder import Encoder
    from ..store.head import Head
    from ..store.snapshot import Snapshot
    from ..store.writer import Writer


_AT_ONCE = 256  # passages embedded and kept aside at a time: a second or two of work, which is what a kill costs


@dataclass(slots=True)
class SwitchReport:
    """What a switch or a rollback did."""

    model: str
    fingerprint: str
    before: str  # the model that was in service
    switched: bool = True  # False: the index was of this encoder already
    chunks: int = 0
    embedded: int = 0
    reused: int = 0  # whose vectors were there: kept by the last switch, or made by one that was cut short
    seconds: float = 0.0
    note: str = ""  # that the vector index no longer met what was demanded of it

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


def switch(writer: Writer, encoder: Encoder, progress: OnProgress = ignore, *, keep: bool = True) -> SwitchReport:
    """Put an encoder in the place of the one the index has; what that one gave is kept for `rollback`, or erased.

    :raises EncoderMismatchError: when the encoder cuts texts into other passages.
    """
    before = writer.head.encoder
    after = EncoderId(encoder.name, encoder.fingerprint, encoder.dim, token_boundary_digest(encoder))
    if before.fingerprint == after.fingerprint:
        return SwitchReport(before.model, before.fingerprint, before.model, switched=False)
    _check_cut(before, after, encoder.max_tokens)
    return _change(writer, encoder, after, keep=keep, erase=not keep, progress=progress)


def rollback(writer: Writer, encoder: Encoder, progress: OnProgress = ignore) -> SwitchReport:
    """Put the previous encoder back with the vectors it gave; what came since is embedded with it.

    :param encoder: what `previous_encoder` gave.
    """
    before = writer.head.previous
    assert before is not None
    assert encoder.fingerprint == before.fingerprint
    return _change(writer, encoder, replace(before, model=encoder.name), keep=False, progress=progress)


def previous_encoder(head: Head, model: str | None = None) -> Encoder:
    """The encoder that `rollback` puts back.

    :param model: where it is now, if it has moved.
    """
    before = head.previous
    if before is None:
        raise StoreError("there is nothing to roll back: the index has its first encoder, or was rolled back already")
    found = load_encoder(model or before.model)
    if found.fingerprint != before.fingerprint:
        raise EncoderMismatchError(
            f"the index had {before.model} (fingerprint {before.fingerprint[:8]}) before, but {model or before.model} "
            f"has {found.fingerprint[:8]}: say with --model where that model is now"
        )
    return found


def _check_cut(before: EncoderId, after: EncoderId, max_tokens: int) -> None:
    if before.cut == after.cut:
        return
    other = f"make another index with it: binocle index FOLDER --model {after.model} --index DIR"
    try:  # the sample's tokens may have been written down by another version of the tokenizers
        old = load_encoder(before.model)
    except BinocleError as error:
        raise EncoderMismatchError(
            f"{after.model} may cut texts into other passages than {before.model}, which the index was made with and "
            f"which cannot be asked ({error}): {other}"
        ) from None
    if old.fingerprint != before.fingerprint or token_boundary_digest(old) != after.cut:
        raise EncoderMismatchError(
            f"{after.model}, which reads up to {max_tokens} tokens, cuts texts into other passages than "
            f"{before.model} ({old.max_tokens} tokens), which the index was made with: {other}"
        )


def _change(
    writer: Writer,
    encoder: Encoder,
    after: EncoderId,
    *,
    keep: bool,
    erase: bool = False,
    progress: OnProgress,
) -> SwitchReport:
    began = time.monotonic()
    snapshot = writer.snapshot()
    before = snapshot.head.encoder
    report = SwitchReport(after.model, after.fingerprint, before.model, chunks=snapshot.chunks.count_rows())
    held = snapshot.head.previous is not None and snapshot.head.previous.fingerprint == after.fingerprint
    with writing(snapshot.store.path):
        aside = VectorLog(snapshot.store.path / SWITCHING, after.fingerprint, after.dim)
    _embed(snapshot, encoder, aside, report, held=held, progress=progress)
    rows = _rows(snapshot, aside, after, held=held, keep=keep)
    report.note = writer.replace_vectors(
        rows, after, before if keep else None, erase=erase, encoder_of=lambda _: encoder
    )
    report.seconds = time.monotonic() - began
    return report


def _embed(
    snapshot: Snapshot,
    encoder: Encoder,
    aside: VectorLog,
    report: SwitchReport,
    *,
    held: bool,
    progress: OnProgress,
) -> None:
    """Set aside a vector for each text that has none of this encoder yet, equal texts once."""
    done, start = 0, time.monotonic()
    for batch in snapshot.batches(["context", *([PREVIOUS] if held else [])], rows=_AT_ONCE):
        texts = batch["context"].to_pylist()
        lacking = _lacking(batch, texts) if held else texts
        new = [text for text in dict.fromkeys(lacking) if text not in aside]
        if new:
            vectors = encoders.encode_finite(encoder, new)
            with writing(snapshot.store.path):
                aside.add(new, vectors)
        report.embedded += len(new)
        report.reused += len(texts) - len(new)
        done += len(texts)
        progress(progress_of_passages("embedding", done, report.chunks, start))


def _lacking(batch: pa.RecordBatch, texts: list[str]) -> list[str]:
    """The texts whose rows have no vector of the encoder before the last switch."""
    return [text for text, kept in zip(texts, batch[PREVIOUS].is_valid().to_pylist(), strict=True) if not kept]


def _rows(
    snapshot: Snapshot, aside: VectorLog, after: EncoderId, *, held: bool, keep: bool
) -> Iterator[pa.RecordBatch]:
    """Every chunk as it is, but for its vectors."""
    schema = chunk_schema(after.dim, previous=keep)
    plain = [name for name in schema.names if name not in ("vector", PREVIOUS)]
    former = [*(["vector"] if keep else []), *([PREVIOUS] if held else [])]
    for batch in snapshot.batches([*plain, *former]):
        vectors = _vectors(batch, aside, after.dim, held=held)
        columns = {name: batch[name] for name in plain}
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), after.dim)
        if keep:
            columns[PREVIOUS] = packed(matrix(batch["vector"], snapshot.head.encoder.dim))
        yield pa.RecordBatch.from_pydict(columns, schema)


def _vectors(batch: pa.RecordBatch, aside: VectorLog, dim: int, *, held: bool) -> Floats:
    texts = batch["context"].to_pylist()
    if not held:
        return aside.vectors(texts)
    vectors = np.empty((len(texts), dim), np.float32)
    known = batch[PREVIOUS].is_valid().to_numpy(zero_copy_only=False)
    vectors[known] = unpacked(batch[PREVIOUS].drop_null(), dim)
    vectors[~known] = aside.vectors(_lacking(batch, texts))
    return vectors


def packed(vectors: Floats) -> pa.Array:
    """Vectors as a column of bytes."""
    return pa.array([vector.astype("<f4").tobytes() for vector in vectors], pa.binary())


def unpacked(column: pa.Array, dim: int) -> Floats:
    """The vectors of a column of bytes without nulls, shape (len(column), dim)."""
    return np.frombuffer(b"".join(column.to_pylist()), "<f4").reshape(-1, dim).astype(np.float32)
