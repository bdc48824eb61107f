"""Prepare training data: read rows, check them, write them to disk and hold some out.

A row passes four modules in one line. `sources` reads it. `columns` checks that it has the shape of the first row.
`validation` checks its values. `prepare` here writes it to one Arrow file, which training maps into memory. So every
row is known to be right before the first step. Held-out rows are chosen by number, part and hash: some 25 bytes a row.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import re
import tempfile
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...core.errors import InputError
from ...core.files import write_atomic
from ...core.words import encodable
from ..runs.environment import is_main_process
from .columns import Shape as Shape  # noqa: PLC0414 - with the rows it describes
from .sources import rows
from .validation import RowValidator

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ..runs.training_run import TrainingRun
    from .sources import Rows

    Row = dict[str, Any]

_BATCH = 10_000  # rows written to the Arrow file at a time
_ASCII_PUNCTUATION = b"!\"#%&'()*,-./:;?@[\\]_{}"  # symbols such as + and < are not among them
_WITHOUT_PUNCTUATION = bytes.maketrans(_ASCII_PUNCTUATION, b" " * len(_ASCII_PUNCTUATION))
# Spaces and punctuation of other blocks. All of Unicode's in one class would take ten times as long.
_PUNCTUATION = re.compile("[\u00a0\u00a1\u00ab\u00b7\u00bb\u00bf\u2000-\u206f\u3000-\u303f\uff01-\uff0f\uff1a-\uff1f]")
_MAX_HELD_OUT = 1_000  # rows: more would say little more, and take longer to measure
TRAIN, HELD_OUT, LEFT_OUT = 0, 1, 2  # the parts of the data; a row that shares a text with a held-out one is left out


@dataclass(slots=True)
class TrainingSet:
    """Rows on disk: `rows.arrow` with the columns of one shape, and the part of the data for each row."""

    shape: Shape
    folder: Path
    texts: tuple[str, ...]  # names of the columns of texts, in the order of an objective's arguments
    classes: tuple[str, ...] = ()  # names of the classes, if rows have them
    low: float = 0.0  # the range of scores
    high: float = 1.0
    part: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    source: str = ""  # the name of the source, if it has one
    on_hub: bool = False  # whether the source is a data set of the Hugging Face hub
    unused_negatives: int = 0  # of rows that have more than the first one

    def table(self) -> pa.Table:
        """Map all rows into memory."""
        return pa.ipc.open_stream(pa.memory_map(str(self.folder / "rows.arrow"))).read_all()

    def training(self) -> NDArray[np.uint32]:
        """Return the numbers of the rows to train on."""
        return np.flatnonzero(self.part == TRAIN).astype(np.uint32)

    def held_out(self) -> NDArray[np.uint32]:
        """Return the numbers of the held-out rows."""
        return np.flatnonzero(self.part == HELD_OUT).astype(np.uint32)


def prepare(
    source: str | Path | Iterable[Mapping[str, Any]],
    folder: Path,
    *,
    split: str = "train",
    held_out: float = 0.05,
    development: str | Path | None = None,
    main: TrainingSet | None = None,
    seed: int = 0,
) -> TrainingSet:
    """Read and check every row, write them below `folder`, and hold some out by document.

    A row is held out by the hash of its document: its `document_id` if it has one, else its positive (the second text).
    Rows that share query or positive with a held-out row are left out of both parts, also in another case or with
    other punctuation. Negatives may be shared: mined rows have the positives of other rows as negatives.

    :param source: a file, a BEIR folder, a Lance table, a data set's name, or the rows themselves.
    :param split: of a BEIR folder's judgements, or of a data set.
    :param held_out: share of the documents to hold out; 0 for none.
    :param development: hold out the rows of this file instead; the shape must be the same.
    :param main: the first data set of the run; rows that share a text with its held-out rows are left out too.
    :raises InputError: naming the file and line of the first row that does not fit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stream = rows(source, split)
    first = next(stream, None)
    if first is None:
        raise InputError(f"{source_name(source)} holds no rows to train on")
    validator = RowValidator(*first)
    sizes = _write_all(folder / "rows.arrow", validator, chain([first], stream), source_name(source), development)
    dataset = TrainingSet(
        validator.shape, folder, validator.texts, tuple(validator.classes), validator.low, validator.high
    )
    dataset.unused_negatives = validator.unused_negatives
    if isinstance(source, (str, Path)):
        dataset.on_hub = not Path(source).exists()
        dataset.source = str(source) if dataset.on_hub else Path(source).resolve().name
    if development is None:
        column = "group" if validator.grouped else dataset.texts[min(1, len(dataset.texts) - 1)]
        part = hold_out(_keys(dataset.table(), column), held_out, _MAX_HELD_OUT, seed)
    else:
        part = np.repeat(np.array([TRAIN, HELD_OUT], np.uint8), sizes)
    dataset.part = part
    dataset.part = _without_leaks(dataset, _held_out_texts(dataset) | (_held_out_texts(main) if main else set()))
    if not (dataset.part == TRAIN).any():
        raise _without_training_rows(source_name(source), development, is_first=main is None)
    return dataset


def _without_training_rows(name: str, development: str | Path | None, *, is_first: bool) -> InputError:
    """Say why no row of a data set is left to train on."""
    if development is not None:
        return InputError(f"every row of {name} shares a text with one of {source_name(development)}")
    if is_first:
        return InputError(f"{name} has too few different documents to hold any out: give --held-out 0")
    return InputError(
        f"every row of {name} shares a text with a held-out row of the first data set: "
        "give other rows, or a smaller --held-out"
    )


def source_name(source: object) -> str:
    """Name a source in a message."""
    return str(source) if isinstance(source, (str, Path)) else "the data"


def _write_all(
    file: Path, validator: RowValidator, stream: Rows, name: str, development: str | Path | None
) -> tuple[int, int]:
    """Write the rows of the source, which has this name, and of the development file. Count both."""
    with file.open("wb") as out, pa.ipc.new_stream(out, validator.schema()) as writer:
        count = _write(writer, validator, stream)
        if count > 1:
            validator.expect_variety(name)
        held_out = 0 if development is None else _write(writer, validator, rows(development, "dev"))
        if development is not None and not held_out:
            raise InputError(f"{source_name(development)} holds no rows to hold out")
    if validator.has_labels():
        _cast(file, validator.schema())
    return count, held_out


def _write(writer: Any, validator: RowValidator, stream: Rows) -> int:
    """Write validated rows and count them."""
    count, schema = 0, validator.schema()
    validated = validator.validate(stream)
    while batch := list(islice(validated, _BATCH)):
        writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
        count += len(batch)
    return count


def _cast(file: Path, schema: pa.Schema) -> None:
    """Convert the columns of a file to other types."""
    copy = file.with_suffix(".part")
    with pa.memory_map(str(file)) as mapped, copy.open("wb") as stream, pa.ipc.new_stream(stream, schema) as writer:
        for batch in pa.ipc.open_stream(mapped):
            writer.write_batch(batch.cast(schema))
    copy.replace(file)


def _keys(table: pa.Table, column: str) -> NDArray[np.uint64]:
    """Hash a column's text in each row."""
    keys = np.empty(len(table), np.uint64)
    start = 0
    for batch in table.select([column]).to_batches():
        keys[start : start + len(batch)] = [hash_of(text) for text in batch.column(0).to_pylist()]
        start += len(batch)
    return keys


def take(table: pa.Table, rows: NDArray[Any]) -> pa.Table:
    """Return rows by number, in that order. `Table.take` would copy the whole table out of the memory map."""
    batches = table.to_batches()
    ends = np.cumsum([len(batch) for batch in batches])
    owners = np.searchsorted(ends, rows, side="right")
    order = np.argsort(owners, kind="stable")
    pieces = []
    for number, group in groupby(order.tolist(), key=owners.__getitem__):
        local = np.asarray(rows)[list(group)].astype(np.int64) - (ends[number] - len(batches[number]))
        pieces.append(batches[number].take(pa.array(local)))
    return pa.Table.from_batches(pieces, table.schema).take(pa.array(np.argsort(order)))


def hash_of(text: str) -> int:
    """Return 64 bits of BLAKE2b of the text, without case, punctuation and superfluous space.

    So near copies count as one text. A text of punctuation alone keeps it.
    """
    folded = text.casefold()
    if not folded.isascii():
        folded = _PUNCTUATION.sub(" ", folded)
    normal = b" ".join(folded.encode().translate(_WITHOUT_PUNCTUATION).split()) or text.strip().encode()
    return int.from_bytes(hashlib.blake2b(normal, digest_size=8).digest(), "little")


def hold_out(keys: NDArray[np.uint64], share: float, maximum: int, seed: int) -> NDArray[np.uint8]:
    """Hold out whole documents, chosen by hash and seed: `share` of the rows, and at most `maximum` rows.

    The share is exceeded only if each document has more rows: then the smallest one is held out. Nothing is held out if
    that has more than `maximum` rows.

    :param keys: the hash of each row's document.
    :returns: TRAIN or HELD_OUT for each row.
    """
    if not 0 <= share < 1:
        raise InputError(f"held out is a share of the documents, from 0 to below 1, not {share}")
    part = np.full(len(keys), TRAIN, np.uint8)
    count = min(maximum, round(share * len(keys)))
    rest = keys[keys != keys[0]]
    if not count or not len(rest) or (rest == rest[0]).all():  # fewer than three documents
        return part
    del rest
    salt = np.uint64(int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=8).digest(), "little"))
    salted = keys ^ salt
    last = min(count, len(keys) - 1)
    lowest = np.sort(np.partition(salted, last)[: last + 1])
    whole = lowest if count == len(keys) else lowest[lowest < lowest[-1]]
    part[salted <= whole[-1] if len(whole) else np.isin(salted, _small_documents(salted, count, maximum))] = HELD_OUT
    return part


def divide(documents: Iterable[str], texts: Iterable[str], share: float, maximum: int, seed: int) -> NDArray[np.uint8]:
    """Hold out whole documents of rows in memory, and leave out each other row that has the text of a held-out one.

    :param documents: of each row, as `texts`.
    :returns: TRAIN, HELD_OUT or LEFT_OUT for each row.
    :raises InputError: when no row would be left to learn from.
    """
    keys, own = (np.array(list(map(hash_of, column)), np.uint64) for column in (documents, texts))
    part = hold_out(keys, share, maximum, seed)
    part[(part == TRAIN) & np.isin(own, own[part == HELD_OUT])] = LEFT_OUT
    if len(part) and not (part == TRAIN).any():
        raise InputError("every row to learn from has the text of a held-out row: give other rows, or --held-out 0")
    return part


def _small_documents(salted: NDArray[np.uint64], count: int, maximum: int) -> NDArray[np.uint64]:
    """Return documents with at most `count` rows together, in order of their hash; larger documents are skipped.

    If every document is larger, return the one with the fewest rows, unless it has more than `maximum`.

    :param salted: the hash of each row's document and the seed.
    """
    documents, sizes = np.unique(salted, return_counts=True)
    fitting = sizes <= count
    if fitting.any():
        return documents[fitting][np.cumsum(sizes[fitting]) <= count]
    return documents[[sizes.argmin()]] if sizes.min() <= maximum else documents[:0]


def _held_out_texts(dataset: TrainingSet) -> set[int]:
    """Return the hashes of the first two texts of the held-out rows."""
    columns = take(dataset.table().select(list(dataset.texts[:2])), dataset.held_out()).columns
    return {hash_of(text) for column in columns for text in column.to_pylist()}


def _without_leaks(dataset: TrainingSet, known: set[int]) -> NDArray[np.uint8]:
    """Leave out each training row if one of its first two texts is also in a held-out row.

    :param known: hashes of the texts of held-out rows.
    """
    part = dataset.part
    if not known:
        return part
    start = 0
    for batch in dataset.table().select(list(dataset.texts[:2])).to_batches():
        for row, texts in enumerate(zip(*(column.to_pylist() for column in batch.columns), strict=True), start):
            if part[row] == TRAIN and any(hash_of(text) in known for text in texts):
                part[row] = LEFT_OUT
        start += len(batch)
    return part


def keep_apart(sets: Sequence[TrainingSet]) -> None:
    """Leave out the training rows of all sets that share a text with a held-out row of any of them.

    :raises InputError: when no row of a set is left to train on.
    """
    known: set[int] = set().union(*map(_held_out_texts, sets))
    for dataset in sets:
        dataset.part = _without_leaks(dataset, known)
        if not (dataset.part == TRAIN).any():
            raise InputError(
                f"every row of {dataset.source or 'a data set'} shares a text with a held-out row of another data "
                "set: give other rows, or a smaller --held-out"
            )


def are_held_out(texts: Sequence[str], share: float, seed: int) -> NDArray[np.bool_]:
    """Tell which of these texts `prepare` would hold out if they were its rows."""
    keys = np.array([hash_of(encodable(text)) for text in texts], np.uint64)
    held_out: NDArray[np.bool_] = hold_out(keys, share, _MAX_HELD_OUT, seed) == HELD_OUT
    return held_out


def counts(dataset: TrainingSet) -> dict[str, int]:
    """Count the rows of each part."""
    parts = {"training": TRAIN, "held_out": HELD_OUT, "left_out": LEFT_OUT}
    return {name: int((dataset.part == number).sum()) for name, number in parts.items()}


def describe(dataset: TrainingSet) -> dict[str, Any]:
    """Describe the data for a model card."""
    return {
        **({"source": dataset.source} if dataset.source else {}),
        **({"datasets": [dataset.source.partition(":")[0]]} if dataset.on_hub else {}),
        "shape": dataset.shape.value,
        **counts(dataset),
        **({"classes": list(dataset.classes)} if dataset.classes else {}),
    }


def save(dataset: TrainingSet) -> None:
    """Save the parts beside the rows, so that a resumed run has the same ones."""
    np.save(dataset.folder / "part.npy", dataset.part, allow_pickle=False)
    facts = {
        "shape": dataset.shape.name,
        "texts": dataset.texts,
        "classes": dataset.classes,
        "low": dataset.low if np.isfinite(dataset.low) else 0.0,
        "high": dataset.high if np.isfinite(dataset.high) else 1.0,
        "source": dataset.source,
        "on_hub": dataset.on_hub,
        "unused_negatives": dataset.unused_negatives,
    }
    write_atomic(dataset.folder / "data.json", json.dumps(facts))


def load(folder: Path) -> TrainingSet:
    """Load a saved training set."""
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
        facts.get("on_hub", False),
        facts.get("unused_negatives", 0),
    )


def prepare_once(run: TrainingRun[Any], source: Any, *, name: str = "data", **options: Any) -> TrainingSet:
    """Prepare the data of a run, or load it if the run is resumed.

    :param name: of its folder in the run's.
    :param options: of `prepare`.
    :raises InputError: when the run began with other rows.
    """
    folder = run.folder / name
    with run.lock():
        if (folder / "data.json").is_file():
            if not isinstance(source, (str, Path)) and is_main_process():
                _expect_same(source, folder, run.out, options)
            return load(folder)
        with run.discard_on_error():
            dataset = prepare(source, folder, **options)
        save(dataset)
        return dataset


def _expect_same(source: Any, folder: Path, out: Path, options: dict[str, Any]) -> None:
    """:raises InputError: unless rows in memory are still the prepared ones."""
    with tempfile.TemporaryDirectory(dir=folder) as copy:
        prepare(source, Path(copy), **options)
        if not filecmp.cmp(folder / "rows.arrow", Path(copy) / "rows.arrow", shallow=False):
            raise InputError(f"{out} holds an unfinished run on other rows: remove it or give another folder")
