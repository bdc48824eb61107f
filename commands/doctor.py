"""`binocle doctor` and `binocle completion`: what a new installation needs."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import BinocleError
from .options import NOTHING, json_option

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check this installation.

    Versions, processor, encoder. Exit 0 when an index can be made and searched.

    \b
    binocle doctor
    """
    found = list(checks())
    for check in found:
        if as_json:
            click.echo(json.dumps({"name": check.name, "ok": check.ok, "detail": check.detail}))
        else:
            click.echo(f"{'ok ' if check.ok else 'BAD'}  {check.name:<12} {check.detail}")
    return 0 if all(check.ok for check in found) else NOTHING


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    binocle completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(maker(context.find_root().command, {}, "binocle", "_BINOCLE_COMPLETE").source())


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
    from ..retriever.models.bert.openvino import import_openvino

    core = import_openvino().Core()
    abilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    name = core.get_property("CPU", "FULL_DEVICE_NAME").strip()
    fast = "bf16, about twice the speed of float32" if "BF16" in abilities else "float32 (the processor has no bf16)"
    return Check("processor", True, f"{name}: encodes in {fast}")


def _encoder() -> Check:
    from ..retriever.models.load import load_encoder

    try:
        encoder = load_encoder()
    except BinocleError as error:
        return Check("encoder", False, str(error))
    return Check("encoder", True, f"{encoder.name}, {encoder.dim} dimensions, fingerprint {encoder.fingerprint[:8]}")


def _round_trip() -> Check:
    from ..retriever.retriever import Retriever

    with tempfile.TemporaryDirectory(prefix="binocle-") as folder:
        try:
            retriever = Retriever.open(Path(folder) / "index")
            retriever.add([{"id": "cat", "text": "The cat sat on the mat."}, {"id": "tax", "text": "Taxes are due."}])
            first = retriever.search("feline", k=1)[0].path
        except BinocleError as error:
            return Check("index", False, str(error))
    return Check("index", first == "cat", "made, searched and removed" if first == "cat" else f"found {first}, not cat")
