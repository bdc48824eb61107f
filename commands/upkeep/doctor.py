"""`binocle doctor, completion`: check an installation, and set up the shell."""

from __future__ import annotations

import os
import platform
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...core.errors import BinocleError
from ..configuration import check_all
from ..options import EXIT_NEGATIVE, json_option
from ..output import echo, echo_json

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check that this installation works.

    Prints versions, processor and encoder, and builds and searches a small index. Exit 0 when that works, else 1.

    \b
    binocle doctor
    """
    results = list(checks())
    for check in results:
        if as_json:
            echo_json({"name": check.name, "ok": check.ok, "detail": check.detail})
        else:
            echo(f"{'ok ' if check.ok else 'BAD'}  {check.name:<13} {check.detail}")
    return 0 if all(check.ok for check in results) else EXIT_NEGATIVE


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands in a shell.

    \b
    binocle completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    shell_class = get_completion_class(shell)
    assert shell_class is not None
    echo(shell_class(context.find_root().command, {}, "binocle", "_BINOCLE_COMPLETE").source())


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    ok: bool
    detail: str


def checks() -> Iterator[Check]:
    """Run the checks one by one; the last builds a small index and searches it."""
    yield Check("python", True, f"{platform.python_version()} on {platform.platform()}, {os.cpu_count()} processors")
    for package in ("pylance", "faiss-cpu", "openvino", "tokenizers", "pypdfium2"):
        yield _version(package)
    yield _configuration()
    yield _precision()
    yield _gpus()
    yield _encoder()
    yield _round_trip()


def _version(package: str) -> Check:
    try:
        return Check(package, True, metadata.version(package))
    except metadata.PackageNotFoundError:
        return Check(package, False, f"not installed: pip install {package}")


def _configuration() -> Check:
    context = click.get_current_context().find_root()
    assert isinstance(context.command, click.Group)
    try:
        return Check("configuration", True, check_all(context.command))
    except BinocleError as error:
        return Check("configuration", False, str(error))


def _precision() -> Check:
    from ...retriever.models.bert.openvino import import_openvino

    core = import_openvino().Core()
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    name = core.get_property("CPU", "FULL_DEVICE_NAME").strip()
    precision = (
        "bf16, about twice the speed of float32" if "BF16" in capabilities else "float32 (the processor has no bf16)"
    )
    return Check("processor", True, f"{name}: encodes in {precision}")


def _gpus() -> Check:
    from ...core.runtime.device import gpus

    devices, description = gpus()
    if devices:
        return Check("gpu", True, f"{description}: 'binocle index --gpu' encodes there")
    return Check("gpu", True, f"encodes on {description}")


def _encoder() -> Check:
    from ...retriever.models.load import load_encoder

    try:
        encoder = load_encoder()
    except BinocleError as error:
        return Check("encoder", False, str(error))
    return Check("encoder", True, f"{encoder.name}, {encoder.dim} dimensions, fingerprint {encoder.fingerprint[:8]}")


def _round_trip() -> Check:
    from ...retriever.retriever import Retriever

    with tempfile.TemporaryDirectory(prefix="binocle-") as folder:
        try:
            retriever = Retriever.open(Path(folder) / "index")
            retriever.add([{"id": "cat", "text": "The cat sat on the mat."}, {"id": "tax", "text": "Taxes are due."}])
            first = retriever.search("feline", k=1)[0].path
        except BinocleError as error:
            return Check("index", False, str(error))
    return Check(
        "index", first == "cat", "built, searched and removed" if first == "cat" else f"found {first}, not cat"
    )
