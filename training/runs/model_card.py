"""The model card: README.md of a trained folder, made from what was measured and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from ...core.errors import InputError, MissingExtraError
from ...core.version import __version__
from .plots import curves
from .run_folder import write_log

_TAGS = {
    "encoder": ("sentence-transformers", "sentence-similarity"),
    "reranker": ("sentence-transformers", "text-ranking"),
    "masked": ("transformers", "fill-mask"),
    "inverter": ("binocle", "feature-extraction"),
}
_LIBRARIES = ("torch", "sentence-transformers", "transformers")


@dataclass(frozen=True, slots=True)
class Card:
    """The facts of a run."""

    kind: str  # "encoder", "reranker", "masked" or "inverter"
    base: str
    objective: str
    data: dict[str, Any]
    config: dict[str, Any]
    measures: list[dict[str, Any]]  # name, value, interval, rows and, if wanted, when and on what
    seconds: float
    steps: int
    texts_per_second: float
    fingerprint: str
    device: str
    bf16: bool
    plots: tuple[str, ...] = field(default=())


def write_card(folder: Path, card: Card) -> None:
    """Write README.md for people and binocle.json for programs."""
    (folder / "README.md").write_text(render(card), "utf-8")
    file = folder / "binocle.json"
    facts = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    facts |= {
        "binocle": __version__,
        "base": _base(card),
        "objective": card.objective,
        "data": card.data,
        "config": card.config,
        "measures": card.measures,
        "steps": card.steps,
        "seconds": round(card.seconds, 1),
        "texts_per_second": round(card.texts_per_second, 1),
        "fingerprint": card.fingerprint,
        "hardware": hardware(card.device),
        "versions": _versions(),
    }
    file.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")


def finish(ready: Path, out: Path, card: Card, history: list[dict[str, Any]], metric: str | None) -> None:
    """Write the card, the log and its curves beside a finished model, and move all of it to its place."""
    write_log(ready / "log.jsonl", history)
    drawn: tuple[str, ...] = ()
    with contextlib.suppress(MissingExtraError, InputError):  # without matplotlib, or of a run without a logged step
        drawn = (curves(history, ready / "curves.svg", metric=metric or "metric").name,)
    write_card(ready, replace(card, plots=drawn))
    for path in ready.iterdir():
        place = out / path.name
        if place.is_dir():  # of a run that was killed right here
            shutil.rmtree(place)
        path.replace(place)


def _base(card: Card) -> str:
    """What training began with, without the path of a folder of this machine."""
    return Path(card.base).name if os.sep in card.base and Path(card.base).exists() else card.base


def render(card: Card) -> str:
    library, pipeline = _TAGS[card.kind]
    lines = [
        "---",
        f"library_name: {library}",
        f"pipeline_tag: {pipeline}",
        "tags: [binocle]",
        "---",
        "",
        f"# {card.kind.capitalize()} trained from {_base(card)}",
        "",
        f"Objective: {card.objective}.",
        "",
        *_measures(card),
        "## Data",
        "",
        *(f"- {name.replace('_', ' ')}: {_said(value)}" for name, value in card.data.items()),
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
        f"| {one['name']} | {', '.join(filter(None, (one.get('on', 'held-out rows'), one.get('when'))))} | "
        f"{one['value']:.4f} | {one['interval'][0]:.4f} to {one['interval'][1]:.4f} | {one['rows']:,} |"
        for one in card.measures
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
    """The processor, or the GPU, that a run was on."""
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
    found = {"binocle": __version__}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
