"""Open the inputs of mining: the pairs, the texts that negatives come from, and the encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import EncoderMismatchError, InputError
from ...core.files import expand_home
from ...core.words import encodable
from ...retriever.documents.scan import INDEX_NAME, is_index
from ...retriever.models.load import load_encoder
from ...retriever.models.model_files import DEFAULT_MODEL
from ...retriever.retriever import Retriever
from ..data import beir, dataset, unlabelled_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...retriever.models.encoder import Encoder

Pairs = str | Path | Iterable[Mapping[str, Any]]
Named = tuple[str, str]  # a document's name or "", and its text
Corpus = str | Path | Retriever | Iterable[str | Named]


def read_pairs(source: Pairs, split: str, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield query, positive and document of every row; all rows are checked before the first."""
    rows = dataset.prepare(source, folder, split=split, held_out=0)
    if rows.texts[:2] != ("query", "positive"):
        raise InputError(f"negatives are mined for pairs (query, positive), but the rows are {rows.shape.value}")
    for batch in rows.table().to_batches():
        names = batch["group"].to_pylist() if "group" in batch.schema.names else [""] * len(batch)
        yield from zip(batch["query"].to_pylist(), batch["positive"].to_pylist(), names, strict=True)


def open_corpus(source: Corpus | None, column: str | None) -> Retriever | Iterable[Named]:
    """Open an index, or yield the names and texts of documents."""
    if source is None or isinstance(source, Retriever):
        return () if source is None else source
    if not isinstance(source, (str, Path)):
        return _in_memory(source)
    if not str(source).strip():
        raise InputError("the corpus is '': expected a file, a folder or an index")
    path = expand_home(source)
    folder = path.parent if path.name == "corpus.jsonl" and path.is_file() else path
    if beir.is_collection(folder):
        return _not_empty(_beir(folder), path)
    for index in (path, path / INDEX_NAME):
        if is_index(index):
            return Retriever.open(index)
    return _not_empty((("", text) for text in unlabelled_texts.documents([source], column)), path)


def _not_empty(documents: Iterator[Named], name: Path) -> Iterator[Named]:
    """Return documents. There must be one: without it, negatives would come from the positives alone."""
    first = next(documents, None)
    if first is None:
        raise InputError(f"{name} holds no texts: expected some to take negatives from")
    return chain([first], documents)


def _in_memory(source: Iterable[str | Named]) -> Iterator[Named]:
    for number, item in enumerate(source, 1):
        pair = ("", item) if isinstance(item, str) else item
        is_pair = isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
        if not is_pair:
            raise InputError(f"text {number} of the corpus: expected a text, or a name and a text, not {item!r:.60}")
        name, text = pair
        if text.strip():
            yield name, encodable(text)


def _beir(folder: Path) -> Iterator[Named]:
    for document in beir.documents(folder):
        text = beir.passage(document)
        if text.strip():
            yield document["id"], encodable(text)


def choose_encoder(model: str | Encoder | None, corpus: Retriever | Iterable[Named]) -> Encoder:
    """Load the requested encoder; by default the index's, or the default model.

    :raises EncoderMismatchError: when the index has another encoder.
    """
    index = corpus if isinstance(corpus, Retriever) else None
    if model is None:
        return index.encoder if index else load_encoder(DEFAULT_MODEL)
    encoder = load_encoder(model) if isinstance(model, str) else model
    if index and index.encoder.fingerprint != encoder.fingerprint:
        raise EncoderMismatchError(
            f"the index at {index.path} was made with {index.encoder.name}, not with {encoder.name}: leave the model "
            "out, or index with it"
        )
    return encoder
