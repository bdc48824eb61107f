"""Put another encoder in service: embed every passage anew beside the old vectors, then commit all in one step.

The passages stay; only their vectors change. So the new encoder must split texts into the same tokens, as a model
fine-tuned from the old one does, and must read whole passages. If it reads longer ones, later documents are still cut
for the old length: an index does not depend on the order of documents and switch. Any other encoder is refused. To cut
a document anew, its file must be read again, and it may have changed since. The refusal names the alternative, a second
index (`--index`).

The vectors that a switch replaces stay in the chunks table, in a column of their own, until the next switch or
rollback. They share the fate of their chunk: to forget a document erases both of its vectors.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...core.errors import BinocleError, EncoderMismatchError, StoreError
from ...core.progress import OnProgress, ignore
from ...core.units import count_of
from ..models import encoder as encoders
from ..models.encoders.no_encoder import check_encoder
from ..models.identity import EncoderId
from ..models.load import load_encoder
from ..models.tokens.token_boundaries import same_boundaries
from ..store.commits import SWITCHING
from ..store.tables import PREVIOUS, chunk_schema, matrix, writing
from .indexer import key_of
from .report import progress_of_passages
from .vector_log import VectorLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.arrays import Floats
    from ..models.encoder import Encoder
    from ..store.head import Head
    from ..store.snapshot import Snapshot
    from ..store.writer import Writer


_BATCH_SIZE = 256  # passages that are embedded and logged together at most
_FIRST_SIZE = 32  # the first time, and always by a slow encoder
_SECONDS = 1.0  # a part that takes less is followed by one of twice its size: a kill costs a second or two of work


@dataclass(slots=True)
class SwitchReport:
    """The result of a switch or a rollback."""

    model: str
    fingerprint: str
    before: str  # the model that was in service
    switched: bool = True  # False: the index had this encoder already
    chunks: int = 0
    embedded: int = 0
    reused: int = 0  # vectors from before the last switch, or from an interrupted switch
    seconds: float = 0.0
    note: str = ""  # the vector index no longer meets its requirements

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {**asdict(self), "seconds": round(self.seconds, 3)}


def switch(writer: Writer, encoder: Encoder, progress: OnProgress = ignore, *, keep: bool = True) -> SwitchReport:
    """Replace the encoder of an index.

    :param keep: whether the old vectors stay for `rollback`; else they are erased.
    :raises EncoderMismatchError: when the encoder splits texts into other tokens, or reads too few of a passage.
    """
    before = writer.head.encoder
    check_encoder(before, "there is none to replace")
    after = EncoderId.of_encoder(encoder)
    if before.fingerprint == after.fingerprint:
        if before.model != after.model:  # the encoder has moved
            writer.replace_encoder(replace(before, model=after.model))
        return SwitchReport(after.model, after.fingerprint, before.model, switched=False)
    if before.document_fingerprint == after.document_fingerprint:
        return _change_queries(writer, replace(after, passage_tokens=before.passage_tokens))
    after = replace(after, passage_tokens=_passage_tokens(before, after, encoder))
    return _change(writer, encoder, after, keep=keep, erase=not keep, progress=progress)


def rollback(writer: Writer, encoder: Encoder, progress: OnProgress = ignore) -> SwitchReport:
    """Put the previous encoder back with its vectors, and embed with it the passages added since.

    An adapter goes first: the vectors of its encoder are the index's own.

    :param encoder: the result of `previous_encoder`.
    """
    before = _previous(writer.head)
    assert before is not None and encoder.fingerprint == before.fingerprint  # noqa: PT018 - what the caller promises
    if writer.head.encoder.without_adapter:
        return _change_queries(writer, replace(before, model=encoder.name))
    return _change(writer, encoder, replace(before, model=encoder.name), keep=False, progress=progress)


def previous_encoder(head: Head, model: str | None = None) -> Encoder:
    """Load the encoder that `rollback` puts back.

    :param model: its folder or name, if it has moved.
    """
    before = _previous(head)
    if before is None:
        raise StoreError("there is nothing to roll back: the index has its first encoder, or was rolled back already")
    encoder = load_encoder(model or before.model)
    if encoder.fingerprint != before.fingerprint:
        raise EncoderMismatchError(
            f"the index had {before.model} (fingerprint {before.fingerprint[:8]}) before, but {model or before.model} "
            f"has {encoder.fingerprint[:8]}: say with --model where that model is now"
        )
    return encoder


def _previous(head: Head) -> EncoderId | None:
    return head.encoder.without_adapter or head.previous


def _change_queries(writer: Writer, after: EncoderId) -> SwitchReport:
    """Put an encoder with the same vectors of documents in service."""
    start = time.monotonic()
    before, chunks = writer.head.encoder, writer.snapshot().chunks.count_rows()
    writer.replace_encoder(after)
    seconds = time.monotonic() - start
    return SwitchReport(after.model, after.fingerprint, before.model, chunks=chunks, reused=chunks, seconds=seconds)


def _passage_tokens(before: EncoderId, after: EncoderId, encoder: Encoder) -> int:
    """Return the tokens that passages are cut for with a new encoder; 0: as many as it reads.

    :raises EncoderMismatchError: when it cannot take over the present passages.
    """
    if before.cut == after.cut:
        return before.passage_tokens
    alternative = f"make another index with it: binocle index FOLDER --model {after.model} --index DIR"
    try:
        old = load_encoder(before.model)
        if old.fingerprint != before.fingerprint:
            raise EncoderMismatchError("it is another model now")
    except BinocleError as error:
        raise EncoderMismatchError(
            f"{after.model} may cut texts into other passages than {before.model}, which the index was made with and "
            f"which cannot be asked ({error}): {alternative}"
        ) from None
    if not same_boundaries(old, encoder):
        raise EncoderMismatchError(
            f"{after.model} splits texts into other tokens than {before.model}, which the index was made with, and so "
            f"into other passages: {alternative}"
        )
    limit = before.passage_tokens or old.max_tokens
    if encoder.max_tokens < limit:
        raise EncoderMismatchError(
            f"{after.model} reads up to {encoder.max_tokens} tokens, but passages of this index have up to {limit}, "
            f"and it would pass over their ends: {alternative}"
        )
    return limit if limit < encoder.max_tokens else 0


def _change(
    writer: Writer,
    encoder: Encoder,
    after: EncoderId,
    *,
    keep: bool,
    erase: bool = False,
    progress: OnProgress,
) -> SwitchReport:
    start = time.monotonic()
    snapshot = writer.snapshot()
    before = snapshot.head.encoder
    check_own(snapshot)
    report = SwitchReport(after.model, after.fingerprint, before.model, chunks=snapshot.chunks.count_rows())
    is_previous = snapshot.head.previous is not None and snapshot.head.previous.fingerprint == after.fingerprint
    with writing(snapshot.store.path):
        log = VectorLog.open(snapshot.store.path / SWITCHING, after.fingerprint, after.dim, after.model)
    _embed(snapshot, encoder, log, report, is_previous=is_previous, progress=progress)
    rows = _rows(snapshot, log, after, is_previous=is_previous, keep=keep)
    report.note = writer.replace_vectors(
        rows, after, before if keep else None, erase=erase, encoder_of=lambda _: encoder
    )
    report.seconds = time.monotonic() - start
    return report


def check_own(snapshot: Snapshot) -> None:
    """Check that each vector is of the encoder.

    :raises EncoderMismatchError: when a document came with an embedding of its own.
    """
    count = sum(
        key != key_of(context)
        for batch in snapshot.batches(["key", "context"])
        for key, context in zip(*(column.to_pylist() for column in batch), strict=True)
    )
    if count:
        raise EncoderMismatchError(
            f"{count_of(count, 'document')} came with an embedding of their own, which no other encoder gives: "
            "delete them, or add them without, and switch then"
        )


def _embed(
    snapshot: Snapshot,
    encoder: Encoder,
    log: VectorLog,
    report: SwitchReport,
    *,
    is_previous: bool,
    progress: OnProgress,
) -> None:
    """Log a vector for each distinct text without a vector by this encoder.

    :param is_previous: whether this was the encoder before the last switch: the store then has vectors by it.
    """
    done, start = 0, time.monotonic()
    pace = _Pace(min(_FIRST_SIZE, _BATCH_SIZE))
    for batch in snapshot.batches(["context", *([PREVIOUS] if is_previous else [])], rows=_BATCH_SIZE):
        texts = batch["context"].to_pylist()
        missing = _without_previous(batch, texts) if is_previous else texts
        new = [text for text in dict.fromkeys(missing) if text not in log]
        for part in pace.parts(new):
            vectors = encoders.encode_finite(encoder, part)
            with writing(snapshot.store.path):
                log.add(part, vectors)
        report.embedded += len(new)
        report.reused += len(texts) - len(new)
        done += len(texts)
        progress(progress_of_passages("embedding", done, report.chunks, start))


@dataclass(slots=True)
class _Pace:
    """The number of texts that are embedded in about a second."""

    size: int

    def parts(self, texts: list[str]) -> Iterator[list[str]]:
        """Yield the texts in parts, which grow while the caller takes less than a second for one."""
        first = 0
        while first < len(texts):
            part, start = texts[first : first + self.size], time.monotonic()
            yield part
            first += len(part)
            if time.monotonic() - start < _SECONDS:
                self.size = min(2 * self.size, _BATCH_SIZE)


def _without_previous(batch: pa.RecordBatch, texts: list[str]) -> list[str]:
    """The texts of the rows without a vector of the encoder before the last switch."""
    return [text for text, exists in zip(texts, batch[PREVIOUS].is_valid().to_pylist(), strict=True) if not exists]


def _rows(
    snapshot: Snapshot, log: VectorLog, after: EncoderId, *, is_previous: bool, keep: bool
) -> Iterator[pa.RecordBatch]:
    """Every chunk with its new vector and, if `keep`, its old one as the previous."""
    schema = chunk_schema(after.dim, previous=keep, symbols=snapshot.has_symbols)
    plain = [name for name in schema.names if name not in ("vector", PREVIOUS)]
    former = [*(["vector"] if keep else []), *([PREVIOUS] if is_previous else [])]
    for batch in snapshot.batches([*plain, *former]):
        vectors = _vectors(batch, log, after.dim, is_previous=is_previous)
        columns = {name: batch[name] for name in plain}
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), after.dim)
        if keep:
            columns[PREVIOUS] = pack(matrix(batch["vector"], snapshot.head.encoder.dim))
        yield pa.RecordBatch.from_pydict(columns, schema)


def _vectors(batch: pa.RecordBatch, log: VectorLog, dim: int, *, is_previous: bool) -> Floats:
    texts = batch["context"].to_pylist()
    if not is_previous:
        return log.vectors(texts)
    vectors = np.empty((len(texts), dim), np.float32)
    known = batch[PREVIOUS].is_valid().to_numpy(zero_copy_only=False)
    vectors[known] = unpack(batch[PREVIOUS].drop_null(), dim)
    vectors[~known] = log.vectors(_without_previous(batch, texts))
    return vectors


def pack(vectors: Floats) -> pa.Array:
    """Write vectors as a column of bytes."""
    return pa.array([vector.astype("<f4").tobytes() for vector in vectors], pa.binary())


def unpack(column: pa.Array, dim: int) -> Floats:
    """Read a column of bytes without nulls as vectors, shape (len(column), dim)."""
    return np.frombuffer(b"".join(column.to_pylist()), "<f4").reshape(len(column), dim).astype(np.float32)
