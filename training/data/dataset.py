"""Training data: rows of texts from any of the usual places, checked to the last line before a model is touched.

The columns say what the rows are (`shape.py`). Every row is read and checked once (`fitting.py`), in a stream, and
written to one Arrow file that training maps into memory: its last line is known to be right before the first step, and
all that is held of a row is its number, its part and a hash, some 25 bytes, while the held-out ones are chosen.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import tempfile
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...core.errors import InputError
from ...core.files import write_atomic
from ..runs.environment import is_main_process
from .columns import Shape as Shape  # noqa: PLC0414 - with the rows it describes
from .sources import rows
from .validation import RowValidator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from ..runs.training_run import TrainingRun

    Row = dict[str, Any]

_BATCH = 10_000  # rows written to the Arrow file at a time
TRAIN, HELD_OUT, LEFT_OUT = 0, 1, 2  # in which part of the data a row is; left out, since a held-out text is in it


@dataclass(slots=True)
class TrainingSet:
    """Rows on disk: `rows.arrow` with the columns of one shape, and which part of the data each row is in."""

    shape: Shape
    folder: Path
    texts: tuple[str, ...]  # names of the columns that are texts, in the order in which an objective takes them
    classes: tuple[str, ...] = ()  # names of the classes, where rows have them
    low: float = 0.0  # the range of scores
    high: float = 1.0
    part: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    source: str = ""  # what the rows came from has this name, if any

    def table(self) -> pa.Table:
        """All rows, mapped into memory."""
        return pa.ipc.open_stream(pa.memory_map(str(self.folder / "rows.arrow"))).read_all()

    def training(self) -> NDArray[np.uint32]:
        return np.flatnonzero(self.part == TRAIN).astype(np.uint32)

    def held_out(self) -> NDArray[np.uint32]:
        return np.flatnonzero(self.part == HELD_OUT).astype(np.uint32)


def prepare(
    source: str | Path | Iterable[Mapping[str, Any]],
    folder: Path,
    *,
    split: str = "train",
    held_out: float = 0.05,
    most_held_out: int = 1_000,
    development: str | Path | None = None,
    seed: int = 0,
) -> TrainingSet:
    """Read and check every row, write them below `folder`, and set some aside by document.

    A row is held out by the hash of the document that it is about: its `document_id` if it has one, else its positive
    (the second text). Rows whose query or positive is in a held-out one are left out of both parts; a negative may be,
    since what is mined has the positives of many rows as negatives of others.

    :param source: a file, a BEIR folder, a Lance table, a data set's name, or the rows themselves.
    :param split: which qrels of a BEIR folder, or which split of a data set.
    :param held_out: share of the documents set aside; 0 for none.
    :param most_held_out: rows set aside at most.
    :param development: rows to hold out instead, in a file of their own; the shape must be the same.
    :raises InputError: naming the file and line of the first row that does not fit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stream, file = rows(source, split), folder / "rows.arrow"
    first = next(stream, None)
    if first is None:
        raise InputError(f"{named(source)} holds no rows to train on")
    fitter = RowValidator(*first)
    with file.open("wb") as out, pa.ipc.new_stream(out, fitter.schema()) as writer:
        given = _write(writer, fitter, chain([first], stream))
        if given > 1:
            fitter.tells_apart(named(source))
        apart = 0 if development is None else _write(writer, fitter, rows(development, "dev"))
        if development is not None and not apart:
            raise InputError(f"{named(development)} holds no rows to hold out")
    if fitter.decides():
        _cast(file, fitter.schema())
    made = TrainingSet(fitter.shape, folder, fitter.texts, tuple(fitter.classes), fitter.low, fitter.high)
    if isinstance(source, (str, Path)):
        made.source = Path(source).resolve().name if Path(source).exists() else str(source)
    if development is None:
        keys = _keys(made.table(), "group" if fitter.grouped else made.texts[min(1, len(made.texts) - 1)])
        part = _split(keys, held_out, most_held_out, seed)
    else:
        part = np.repeat(np.array([TRAIN, HELD_OUT], np.uint8), [given, apart])
    made.part = _without_leaks(made.table(), made.texts, part)
    if not (made.part == TRAIN).any():
        if development is not None:
            raise InputError(f"every row of {named(source)} shares a text with one of {named(development)}")
        raise InputError(f"{named(source)} has too few different documents to hold any out: give --held-out 0")
    return made


def named(source: Any) -> str:
    """What messages call a source."""
    return str(source) if isinstance(source, (str, Path)) else "the data"


def _write(writer: Any, fitter: RowValidator, given: Iterator[tuple[str, Row]]) -> int:
    """Check rows, write them and say how many they became."""
    count, schema = 0, fitter.schema()
    fitted = (one for where, row in given for one in fitter.fit(where, row))
    while batch := list(islice(fitted, _BATCH)):
        writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
        count += len(batch)
    return count


def _cast(file: Path, schema: pa.Schema) -> None:
    """Give the columns of a file other types."""
    aside = file.with_suffix(".part")
    with pa.memory_map(str(file)) as given, aside.open("wb") as stream, pa.ipc.new_stream(stream, schema) as writer:
        for batch in pa.ipc.open_stream(given):
            writer.write_batch(batch.cast(schema))
    aside.replace(file)


def _keys(table: pa.Table, column: str) -> NDArray[np.uint64]:
    """A hash of a column's text for each row."""
    keys = np.empty(len(table), np.uint64)
    start = 0
    for batch in table.select([column]).to_batches():
        keys[start : start + len(batch)] = [hash_of(text) for text in batch.column(0).to_pylist()]
        start += len(batch)
    return keys


def take(table: pa.Table, rows: NDArray[Any]) -> pa.Table:
    """Rows by number, in that order. `Table.take` would copy the whole of a table that is mapped into memory."""
    batches = table.to_batches()
    ends = np.cumsum([len(batch) for batch in batches])
    which = np.searchsorted(ends, rows, side="right")
    order = np.argsort(which, kind="stable")
    pieces = []
    for number, group in groupby(order.tolist(), key=which.__getitem__):
        local = np.asarray(rows)[list(group)].astype(np.int64) - (ends[number] - len(batches[number]))
        pieces.append(batches[number].take(pa.array(local)))
    return pa.Table.from_batches(pieces, table.schema).take(pa.array(np.argsort(order)))


def hash_of(text: str) -> int:
    """64 bits of BLAKE2b of the text without case and superfluous space."""
    normal = " ".join(text.casefold().split())
    return int.from_bytes(hashlib.blake2b(normal.encode(), digest_size=8).digest(), "little")


def _split(keys: NDArray[np.uint64], share: float, most: int, seed: int) -> NDArray[np.uint8]:
    """Hold out whole documents: as many as give `share` of the rows, `most` rows at most, chosen by hash and seed."""
    if not 0 <= share < 1:
        raise InputError(f"held out is a share of the documents, from 0 to below 1, not {share}")
    part = np.full(len(keys), TRAIN, np.uint8)
    wanted = min(most, round(share * len(keys)))
    others = keys[keys != keys[0]]
    if not wanted or not len(others) or (others == others[0]).all():  # fewer than three documents
        return part
    del others
    salt = np.uint64(int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=8).digest(), "little"))
    places = keys ^ salt
    last = min(wanted, len(keys) - 1)
    first = np.sort(np.partition(places, last)[: last + 1])
    whole = first if wanted == len(keys) else first[first < first[-1]]
    part[places <= (whole[-1] if len(whole) else first[0])] = HELD_OUT
    return part


def _without_leaks(table: pa.Table, columns: tuple[str, ...], part: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Leave out training rows whose first two texts are among those of held-out ones."""
    held = np.flatnonzero(part == HELD_OUT)
    if not len(held):
        return part
    known: set[int] = set()
    for column in take(table.select(list(columns[:2])), held).columns:
        known.update(hash_of(text) for text in column.to_pylist())
    start = 0
    for batch in table.select(list(columns[:2])).to_batches():
        for column in batch.columns:
            for place, text in enumerate(column.to_pylist()):
                if part[start + place] == TRAIN and hash_of(text) in known:
                    part[start + place] = LEFT_OUT
        start += len(batch)
    return part


def counts(made: TrainingSet) -> dict[str, int]:
    """How many rows are in each part."""
    parts = {"training": TRAIN, "held_out": HELD_OUT, "left_out": LEFT_OUT}
    return {name: int((made.part == number).sum()) for name, number in parts.items()}


def describe(made: TrainingSet) -> dict[str, Any]:
    """What a model card says about the data."""
    return {
        **({"source": made.source} if made.source else {}),
        "shape": made.shape.value,
        **counts(made),
        **({"classes": list(made.classes)} if made.classes else {}),
    }


def save(made: TrainingSet) -> None:
    """Remember the parts beside the rows, so that a resumed run has the same ones."""
    np.save(made.folder / "part.npy", made.part, allow_pickle=False)
    facts = {
        "shape": made.shape.name,
        "texts": made.texts,
        "classes": made.classes,
        "low": made.low if np.isfinite(made.low) else 0.0,
        "high": made.high if np.isfinite(made.high) else 1.0,
        "source": made.source,
    }
    write_atomic(made.folder / "data.json", json.dumps(facts))


def load(folder: Path) -> TrainingSet:
    """What `save` remembered."""
    facts = json.loads((folder / "data.json").read_text("utf-8"))
    return TrainingSet(
        Shape[facts["shape"]],
        folder,
        tuple(facts["texts"]),
        tuple(facts["classes"]),
        facts["low"],
        facts["high"],
        np.load(folder / "part.npy", allow_pickle=False),
        facts.get("source", ""),
    )


def once(run: TrainingRun[Any], source: Any, **options: Any) -> TrainingSet:
    """What `prepare` gives of these options, made once however often a run is resumed.

    :raises InputError: when a run that began with other rows is to be resumed.
    """
    folder = run.folder / "data"
    with run.lock():
        if (folder / "data.json").is_file():
            if not isinstance(source, (str, Path)) and is_main_process():
                _expect(source, folder, run.out, options)
            return load(folder)
        with run.discard_on_error():
            made = prepare(source, folder, **options)
        save(made)
        return made


def _expect(source: Any, folder: Path, out: Path, options: dict[str, Any]) -> None:
    """:raises InputError: unless a source without files still gives the rows that were prepared."""
    with tempfile.TemporaryDirectory(dir=folder) as again:
        prepare(source, Path(again), **options)
        if not filecmp.cmp(folder / "rows.arrow", Path(again) / "rows.arrow", shallow=False):
            raise InputError(f"{out} holds an unfinished run on other rows: remove it or give another folder")
