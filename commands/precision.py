"""`--precision` of `binocle index`: the precision that documents are encoded in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import InputError, NoIndexError
from .output import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

_OF_A_RUN = {"fp32": "float32", "bf16": "bfloat16"}
_FILES, _BYTES = 400, 2 * 2**20  # to take passages from, at most


def model_in_precision(
    precision: str, model: str | None, where: Path, folders: Sequence[Path], exclude: Sequence[str]
) -> str | None:
    """Return the name of the encoder to open the index with; None for the index's own, or the default.

    float32 and bf16 hold for this process. int8 is a part of the encoder's name, which an index keeps.

    :param precision: fp32, bf16, int8 or auto, which checks int8 on passages of the folders, for a new index alone.
    :param where: the place of the index.
    :param exclude: patterns of files that the index leaves out.
    :raises InputError: for fp32 or bf16 if the encoder is one in int8.
    """
    from ..retriever.models.model_files import DEFAULT_MODEL, INT8, split_length
    from ..retriever.retriever import Retriever

    try:
        present = Retriever.open(where).snapshot().head.encoder.model
    except NoIndexError:
        present = ""
    name = model or present or DEFAULT_MODEL
    if precision in _OF_A_RUN:
        if split_length(name)[0].endswith(INT8):
            raise InputError(f"{name} encodes documents in int8, not in {precision}: leave --precision out")
        os.environ["BINOCLE_PRECISION"] = _OF_A_RUN[precision]
        return model
    whole, length = split_length(name)
    if whole.endswith(INT8):
        return model
    if length is not None:
        raise InputError(f"{name} has shortened vectors: expected {whole}{INT8}@{length} as --model, not --precision")
    if precision == "int8" or present == name + INT8:
        return name + INT8
    return model if present or not _passes(name, folders, exclude) else name + INT8


def _passes(model: str, folders: Sequence[Path], exclude: Sequence[str]) -> bool:
    """Check int8 on some of the files, unless this machine remembers a check of the encoder, and print the result."""
    from ..retriever.models.int8_check import check_int8, memory_of, reason_against_int8, remember, remembered

    if reason := reason_against_int8(model):
        echo(f"not int8: {reason}", err=True)
        return False
    memory = memory_of(model)
    check = remembered(memory)
    if check is not None:
        echo(f"{check.as_text()}; checked before: remove {memory} to check anew", err=True)
        return check.passed
    check = check_int8(model, _passages(model, _sample(folders, exclude)))
    note = "; remembered for this machine" if remember(check, memory) else ""
    echo(f"{check.as_text()}{note}", err=True)
    return check.passed


def _sample(folders: Sequence[Path], exclude: Sequence[str]) -> list[Path]:
    """Choose evenly spaced files, as many as fit the limit of bytes."""
    sizes: dict[Path, int] = {}
    for folder in folders:
        sizes |= {file: size for file, size in _files(folder, exclude) if size <= _BYTES}
    files, left = list(sizes), _BYTES
    sample = []
    for file in files[:: max(1, -(-len(files) // _FILES))]:
        if sizes[file] <= left and file.is_file():
            sample.append(file)
            left -= sizes[file]
    return sample


def _files(folder: Path, exclude: Sequence[str]) -> list[tuple[Path, int]]:
    """Return the files that the index would read, with their sizes in bytes; a file itself is one."""
    from ..retriever.documents.scan import scan

    if folder.is_file():
        return [(folder, folder.stat().st_size)]
    if not folder.is_dir():
        return []  # the command says later that there is no such folder
    return [(folder / entry.path, entry.size) for entry in scan(folder, exclude=exclude) if not entry.reason]


def _passages(model: str, files: Sequence[Path]) -> list[str]:
    """Return the passages that an index would have of files."""
    from ..retriever.documents.chunker import chunk
    from ..retriever.documents.scan import Entry
    from ..retriever.indexing.sync.nested_files import read_entries
    from ..retriever.models.load import load_encoder

    encoder = load_encoder(model)
    entries = [Entry(str(file.absolute()), 0, 0) for file in files]
    return [
        passage.text
        for _, reading in read_entries(Path(), entries)
        if reading is not None and reading.document is not None
        for passage in chunk(reading.document, encoder.offsets, encoder.max_tokens)
    ]
