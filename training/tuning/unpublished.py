"""A finished encoder that gained, until the index uses it.

The process may be killed before the switch, or the index may be locked. The next run of the same command then switches
to this encoder instead of training another.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...core.files import write_atomic
from ..evaluation.significance import Difference
from .verdict import LogComparison, RankingComparison, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from .tuning_config import TuningConfig

_NAME = "unpublished.json"


@dataclass(frozen=True, slots=True)
class Unpublished:
    """The measurements of a finished run that has not changed the index yet."""

    pairs: int
    teaching: RankingComparison
    verdict: Verdict


def write(folder: Path, encoder: str, config: TuningConfig, finished: Unpublished) -> None:
    """Keep the measures of the run in its folder.

    :param encoder: fingerprint of the index's encoder, which the new one learned from.
    """
    write_atomic(folder / _NAME, json.dumps({**_settings(encoder, config), "finished": asdict(finished)}))


def read(folder: Path, encoder: str, config: TuningConfig) -> Unpublished | None:
    """Return the measures of the same run, if its encoder waits in this folder."""
    file = folder / _NAME
    if not file.is_file():
        return None
    facts = json.loads(file.read_text("utf-8"))
    finished = facts.pop("finished")
    if facts != _settings(encoder, config):
        return None
    verdict = finished["verdict"]
    modes = {mode: _comparison(values) for mode, values in verdict["modes"].items()}
    log = verdict["log"] and LogComparison(**_with_difference(verdict["log"]))
    return Unpublished(
        finished["pairs"], _comparison(finished["teaching"]), Verdict(verdict["queries"], modes, log or None)
    )


def remove(folder: Path) -> None:
    """Forget the encoder, which the index uses now."""
    (folder / _NAME).unlink(missing_ok=True)


def _settings(encoder: str, config: TuningConfig) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(json.dumps({"encoder": encoder, "config": asdict(config)}))
    return settings


def _comparison(values: dict[str, Any]) -> RankingComparison:
    return RankingComparison(**_with_difference(values))


def _with_difference(values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "difference": Difference(**values["difference"])}
