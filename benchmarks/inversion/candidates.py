"""The attacks of an audit that learn nothing by steps: ridge, alignment without pairs, candidates and membership.

    python -m benchmarks.inversion.candidates --index DIR --queries scifact/

The index is of the collection's documents; texts have 32 tokens. Seconds are CPU time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle.retriever.retriever import Retriever
from binocle.training.audit.audit import audit
from binocle.training.audit.report.report_files import report_fields

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from binocle.core.arrays import Floats
    from binocle.core.progress import Progress
    from binocle.retriever.models.encoder import Encoder

LENGTH = 32
SETTINGS = ("noise=0.03", "noise=0.06", "truncate=96", "int8", "binary", "pq=96", "pq=48", "rotation")


class NoDecoder:
    """In the place of the attacker that trains a decoder: it reads nothing."""

    def __init__(self, dim: int, seed: int, encoder: Encoder) -> None:
        pass

    def fit(self, vectors: Floats, texts: Sequence[str], steps: int, seconds: float) -> bool:  # noqa: ARG002
        return False

    def recover(self, vectors: Floats) -> list[str]:
        return [""] * len(vectors)


class CandidateSeconds:
    """The CPU time of candidates and membership, by the stages that an audit reports."""

    def __init__(self) -> None:
        self.total, self._last, self._counts = 0.0, time.process_time(), False

    def __call__(self, event: Progress) -> None:
        now = time.process_time()
        self.total += (now - self._last) * self._counts
        self._last, self._counts = now, event.stage.endswith("candidates")


def shown(setting: dict[str, Any]) -> dict[str, Any]:
    length = str(LENGTH)
    attacks = {name: attack for name, attack in setting["attacks"].items() if name.startswith("ridge")}
    f1s = {name: attack["lengths"][length]["f1"]["value"] for name, attack in attacks.items()}
    names = ("keep", "leak", "leak_high", "share", "highest_content_f1", "facts", "membership", "epsilon")
    return {**{name: setting[name] for name in names}, "f1": f1s, "alignment": setting.get("alignment")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--queries", type=Path)
    options = parser.parse_args()
    began, seconds = time.process_time(), CandidateSeconds()
    report = audit(
        Retriever.open(options.index),
        attacker=NoDecoder,
        progress=seconds,
        settings=SETTINGS,
        lengths=(LENGTH,),
        stored=False,
        corpus_texts=9_000,
        texts_per_length=200,
        examples=0,
        queries=options.queries,
    )
    fields = report_fields(report)
    results = {
        "cpu_seconds": {
            "whole audit": round(time.process_time() - began),
            "candidates and membership": round(seconds.total),
        },
        "guessing": fields["frequent"][str(LENGTH)]["f1"]["value"],
        "verdict": fields["verdict"],
        "settings": {setting["name"]: shown(setting) for setting in fields["settings"]},
    }
    save("candidates", results, seed=0)


if __name__ == "__main__":
    main()
