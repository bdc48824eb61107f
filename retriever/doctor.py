"""Whether this installation can make and search an index, and how fast it may expect to be."""

from __future__ import annotations

import os
import platform
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ..indexes.errors import BinocleError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    detail: str


def checks() -> Iterator[Check]:
    """Each check in turn; the last makes a small index and finds something in it."""
    yield Check("python", True, f"{platform.python_version()} on {platform.platform()}, {os.cpu_count()} processors")
    for package in ("pylance", "faiss-cpu", "openvino", "tokenizers", "pypdfium2"):
        yield _version(package)
    yield _precision()
    yield _encoder()
    yield _round_trip()


def _version(package: str) -> Check:
    try:
        return Check(package, True, metadata.version(package))
    except metadata.PackageNotFoundError:
        return Check(package, False, f"not installed: pip install {package}")


def _precision() -> Check:
    from .bert_openvino import import_openvino

    core = import_openvino().Core()
    abilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    name = core.get_property("CPU", "FULL_DEVICE_NAME").strip()
    fast = "bf16, about twice the speed of float32" if "BF16" in abilities else "float32 (the processor has no bf16)"
    return Check("processor", True, f"{name}: encodes in {fast}")


def _encoder() -> Check:
    from .encoder import load

    try:
        encoder = load()
    except BinocleError as error:
        return Check("encoder", False, str(error))
    return Check("encoder", True, f"{encoder.name}, {encoder.dim} dimensions, fingerprint {encoder.fingerprint[:8]}")


def _round_trip() -> Check:
    from .retriever import Retriever

    with tempfile.TemporaryDirectory(prefix="binocle-") as folder:
        try:
            retriever = Retriever.open(Path(folder) / "index")
            retriever.add([{"id": "cat", "text": "The cat sat on the mat."}, {"id": "tax", "text": "Taxes are due."}])
            first = retriever.search("feline", k=1)[0].path
        except BinocleError as error:
            return Check("index", False, str(error))
    return Check("index", first == "cat", "made, searched and removed" if first == "cat" else f"found {first}, not cat")
