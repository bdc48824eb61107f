"""Measure `enrich` with one head and with three, in passages a second of processor time and as a share of `index`.

    python -m benchmarks.heads.enrich --data /data --work /tmp/enrich

The documents are pages of tldr. Each round indexes them anew, then enriches the index with one set of heads after the
other. A probe takes the stored vectors. A tagger or a fine-tuned classifier has a body of its own, which reads each
passage once; it has all layers of the encoder, or its first two. Heads are trained for a few steps: their quality does
not count here.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle import Retriever
from binocle.training.heads.config import ClassifierConfig, HeadConfig
from binocle.training.heads.train import train_classifier, train_tagger

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable

_PLATFORMS = ("linux", "osx", "windows", "common")
_PLACEHOLDER = re.compile(r"\{\{([^{}]+)\}\}")  # of a command's argument: the name that the tagger learns
_STEPS = 20
_SETS = {
    "a tagger": ("tagger",),
    "a fine-tuned classifier": ("fine-tuned",),
    "three probes": ("probe", "probe", "probe"),
    "two probes, a tagger": ("probe", "probe", "tagger"),
    "a probe, a tagger, a fine-tuned classifier": ("probe", "tagger", "fine-tuned"),
    "a tagger, two fine-tuned classifiers": ("tagger", "fine-tuned", "other fine-tuned"),
    "the same of two layers": ("tagger of 2", "fine-tuned of 2", "other fine-tuned of 2"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="with docs_tldr.tar.gz")
    parser.add_argument("--work", type=Path, required=True, help="keeps the trained heads")
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    pages = _pages(options.data)
    heads = _heads(options.work / "heads", pages[: len(pages) // 2])
    folder = options.work / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, (_, text) in enumerate(pages[-options.documents :]):
        (folder / f"{number}.md").write_text(text, "utf-8")
    with Retriever.open(options.work / "warm") as warm:  # models and libraries load once
        warm.add([{"id": "a", "text": "a page"}])
        warm.enrich({f"key {number}": path for number, path in enumerate(heads.values())})
    shutil.rmtree(options.work / "warm")
    rounds = [_round(folder, heads) for _ in range(options.rounds)]
    save("enrich", {"documents": options.documents, **_summary(rounds)}, seed=0)


def _pages(data: Path) -> list[tuple[str, str]]:
    """The platform and the text of each page, at random."""
    rows = []
    with tarfile.open(data / "docs_tldr.tar.gz") as archive:
        for member in archive:
            parts = member.name.split("/")
            if member.isfile() and len(parts) == 4 and parts[2] in _PLATFORMS:
                content = archive.extractfile(member)
                assert content is not None
                rows.append((member.name, parts[2], content.read().decode()))
    rows.sort()
    random.Random(0).shuffle(rows)
    return [(platform, text) for _, platform, text in rows]


def _heads(folder: Path, pages: list[tuple[str, str]]) -> dict[str, Path]:
    """Train the heads that are not in the folder yet."""
    classes = [{"text": text[:400], "label": platform} for platform, text in pages[:600]]
    tagged = [_tagged(text) for _, text in pages[:600]]
    quick = {"steps": _STEPS, "evaluations": 1, "held_out": 0.05, "max_length": 256}
    trainings: dict[str, Callable[[Path], Any]] = {"probe": lambda out: train_classifier(classes, out)}
    for ending, layers in {"": None, " of 2": 2}.items():
        config = HeadConfig(learning_rate=5e-4, layers=layers, **quick)
        trainings[f"tagger{ending}"] = lambda out, config=config: train_tagger(tagged, out, config=config)
        for seed, name in enumerate(("fine-tuned", "other fine-tuned")):
            tuning = ClassifierConfig(fine_tune=True, seed=seed, layers=layers, **quick)
            trainings[name + ending] = lambda out, config=tuning: train_classifier(classes, out, config=config)
    for name, train in trainings.items():
        if not (folder / name / "binocle.json").is_file():
            train(folder / name)
    return {name: folder / name for name in trainings}


def _tagged(text: str) -> dict[str, Any]:
    entities = [
        {"start": match.start(1), "end": match.end(1), "label": "ARGUMENT"} for match in _PLACEHOLDER.finditer(text)
    ]
    return {"text": text, "entities": [entity for entity in entities if text[entity["start"] : entity["end"]].strip()]}


def _round(folder: Path, heads: dict[str, Path]) -> dict[str, float]:
    """Return the passages a second of processor time of each task."""
    rates: dict[str, float] = {}
    shutil.rmtree(folder / ".binocle", ignore_errors=True)
    with Retriever.open(folder) as retriever:
        seconds = _seconds(retriever.sync)
        rates["index"] = len(retriever) / seconds
        for name, kinds in _SETS.items():
            sources = {f"key {number}": heads[kind] for number, kind in enumerate(kinds)}
            rates[name] = len(retriever) / _seconds(lambda sources=sources: retriever.enrich(sources))
            retriever.enrich(remove=list(sources))
    return rates


def _seconds(task: Callable[[], Any]) -> float:
    start = time.process_time()
    task()
    return time.process_time() - start


def _summary(rounds: list[dict[str, float]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in rounds[0]:
        shares = [times[name] / times["index"] for times in rounds]
        table[name] = {
            "passages a second of processor time": round(float(np.median([times[name] for times in rounds])), 1),
            "share of index": round(float(np.median(shares)), 3),
            "lowest and highest share": [round(min(shares), 3), round(max(shares), 3)],
        }
    return table


if __name__ == "__main__":
    main()
