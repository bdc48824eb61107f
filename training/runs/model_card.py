"""The model card: README.md of a trained folder, written from the facts of its run."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ...core.errors import InputError, MissingExtraError
from ...core.files import write_atomic
from ...core.printable import printable
from ...core.strict_json import strict_json
from ...core.version import __version__
from ...retriever.models.model_files import split_length, split_precision
from . import hub_metadata
from .plots import curves
from .run_folder import RECIPE, write_log

_LIBRARIES = ("torch", "sentence-transformers", "transformers")


@dataclass(frozen=True, slots=True)
class Card:
    """The facts of a run."""

    kind: str  # of `_TAGS`
    base: str
    objective: str
    data: dict[str, Any]
    config: dict[str, Any]
    measures: list[dict[str, Any]]  # name, value, interval, rows, and optionally `when` and `on`
    seconds: float
    steps: int
    texts_per_second: float
    fingerprint: str
    device: str
    bf16: bool
    plots: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = ()  # sentences: the verdict, why the run stopped, which weights it kept
    verdict: dict[str, Any] | None = None  # of the paired difference to the base: value, low, high, p, verdict
    planned: int = 0  # steps, unless the run stops early
    kept_step: int | None = None  # of the weights; None: the last


def write_card(folder: Path, card: Card, name: str | None = None) -> None:
    """Write README.md for people and binocle.json for programs.

    :param name: of the model, if it is not the folder's.
    """
    base, _ = split_precision(split_length(card.base)[0])  # its weights are those, in floating point
    card = replace(card, base=base)
    write_atomic(folder / "README.md", render(card, name or folder.resolve().name))
    file = folder / "binocle.json"
    facts = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    facts |= {
        "binocle": __version__,
        "base": _base(card),
        "objective": card.objective,
        "data": card.data,
        "config": card.config,
        "measures": card.measures,
        "verdict": card.verdict,
        "notes": list(card.notes),
        "steps": card.steps,
        "seconds": round(card.seconds, 1),
        "texts_per_second": round(card.texts_per_second, 1),
        "fingerprint": card.fingerprint,
        "hardware": hardware(card.device),
        "versions": _versions(),
    }
    file.write_text(strict_json(facts, indent=1) + "\n", "utf-8")


def finish(ready: Path, out: Path, card: Card, history: list[dict[str, Any]], metric: str | None) -> None:
    """Write the card, the log, its curves and the recipe beside a finished model, and move all of it to `out`."""
    write_log(ready / "log.jsonl", history)
    plots: tuple[str, ...] = ()
    with contextlib.suppress(MissingExtraError, InputError):  # without matplotlib, or of a run without a logged step
        stop = next((note for note in card.notes if note.startswith("stopped early")), "")
        file = ready / "curves.svg"
        plots = (curves(history, file, metric=metric or "metric", kept_step=card.kept_step, note=stop).name,)
    write_card(ready, replace(card, plots=plots), out.resolve().name)
    if recipe := RECIPE.get():
        write_atomic(ready / "recipe.toml", recipe)
    for path in ready.iterdir():
        target = out / path.name
        if target.is_dir():  # from a run that was killed here
            shutil.rmtree(target)
        path.replace(target)


def _base(card: Card) -> str:
    """Return the name of the base model, without the path of a folder on this machine."""
    return printable(Path(card.base).name if os.sep in card.base and Path(card.base).exists() else card.base)


def render(card: Card, name: str) -> str:
    """Return the text of README.md: a YAML header, then Markdown.

    :param name: of the model.
    """
    lines = [
        *hub_metadata.header(card, name),
        "",
        f"# {card.kind.capitalize()} trained from {_base(card)}",
        "",
        f"Objective: {printable(card.objective)}.",
        "",
        "## Use",
        "",
        hub_metadata.usage(card, name),
        "",
        *_measures(card),
        *(f"{note[0].upper()}{printable(note[1:])}.\n" for note in card.notes),
        "## Data",
        "",
        *(f"- {name.replace('_', ' ')}: {printable(_said(value))}" for name, value in card.data.items()),
        "",
        "## Run",
        "",
        f"- {card.steps:,} steps in {card.seconds:,.0f} s, {card.texts_per_second:,.0f} texts/s",
        f"- {hardware(card.device)}, {'bfloat16' if card.bf16 else 'float32'}",
        f"- {', '.join(f'{name} {version}' for name, version in _versions().items())}",
        f"- fingerprint `{card.fingerprint}`",
        "",
        "```json",
        json.dumps({k: v for k, v in card.config.items() if v not in (None, (), [])}, indent=1),
        "```",
        "",
        *(f"![{name.rsplit('.', 1)[0]}]({name})\n" for name in card.plots),
    ]
    return "\n".join(lines)


def _measures(card: Card) -> list[str]:
    if not card.measures:
        why = "The held-out rows are too few or too much alike" if card.data.get("held_out") else "Nothing was held out"
        return [f"{why}, so nothing was measured.", ""]
    head = ["## Measured", "", "| measure | on | value | 95 % interval | n |", "|---|---|---|---|---|"]
    rows = [
        f"| {row['name']} | {', '.join(filter(None, (row.get('on', 'held-out rows'), row.get('when'))))} | "
        f"{row['value']:.4f} | {row['interval'][0]:.4f} to {row['interval'][1]:.4f} | {row['rows']:,} |"
        for row in card.measures
    ]
    return [*head, *rows, ""]


def _said(value: Any) -> str:
    return (
        f"{value:,}"
        if isinstance(value, int)
        else ", ".join(map(str, value))
        if isinstance(value, list)
        else str(value)
    )


def hardware(device: str) -> str:
    """Name the processor or the GPU of a device."""
    if device == "cuda":
        import torch

        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def _versions() -> dict[str, str]:
    versions = {name: _version(name) for name in _LIBRARIES}
    return {"binocle": __version__} | {name: version for name, version in versions.items() if version}


@cache
def _version(name: str) -> str:
    """Read the version of an installed library, which takes some milliseconds; "" without the library."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
