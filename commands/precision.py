"""`--precision` of `binocle index`: the precision that documents are encoded in."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import NoIndexError
from .output import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILES = 60  # to take passages from
_FILE_BYTES = 2**20


def model_in_precision(precision: str | None, model: str | None, where: Path, folders: Sequence[Path]) -> str | None:
    """Return the name of the encoder to open the index with; None for the index's own, or the default.

    float32 holds for this process. int8 is a part of the encoder's name, which an index keeps.

    :param where: the place of the index.
    :param precision: fp32, int8, auto, or None for that of the index. auto checks int8 on passages of the folders, for
        a new index alone.
    """
    from ..retriever.models.files import DEFAULT_MODEL, INT8
    from ..retriever.retriever import Retriever

    if precision == "fp32":
        os.environ["BINOCLE_PRECISION"] = "float32"
    if precision not in ("int8", "auto"):
        return model
    try:
        present = Retriever.open(where).snapshot().head.encoder.model
    except NoIndexError:
        present = None
    name = model or present or DEFAULT_MODEL
    if name.endswith(INT8) or (present and precision == "auto"):
        return model
    if precision == "int8":
        return name + INT8
    from ..retriever.models.precision import check_int8

    check = check_int8(name, _passages(name, folders))
    echo(check.as_text(), err=True)
    return name + INT8 if check.passed else model


def _passages(model: str, folders: Sequence[Path]) -> list[str]:
    """Return the passages of some files of the folders, from an index in a temporary folder."""
    from ..retriever.documents.scan import scan
    from ..retriever.retriever import Retriever

    files: list[Path] = []
    for folder in folders:
        below = scan(folder) if folder.is_dir() else ()
        files += [folder / entry.path for entry in below if not entry.reason and entry.size <= _FILE_BYTES]
        files += [folder] if folder.is_file() else []
    sample = files[:: max(1, -(-len(files) // _FILES))]
    if not sample:
        return []
    with (
        tempfile.TemporaryDirectory(prefix="binocle-") as temporary,
        Retriever.open(Path(temporary) / "i", model=model) as index,
    ):
        index.sync(sample)
        texts: list[str] = index.snapshot().chunks.to_table(columns=["text"])["text"].to_pylist()
        return texts
