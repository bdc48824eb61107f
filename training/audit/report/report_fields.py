"""The report of an audit as JSON has it, and the page: all figures, and what they mean in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..result import lengths_as_dict
from .assumptions import assumptions
from .statements import statements
from .verdict import verdict

if TYPE_CHECKING:
    from ..result import AuditReport

_PLAIN = (
    *("index", "model", "fingerprint", "documents", "passages", "learned", "queries", "query_source"),
    *("steps_each", "seed", "bleu", "stored_length"),
)


def report_fields(report: AuditReport) -> dict[str, Any]:
    """Return the report for JSON, with the front of best settings and the statements in words."""
    return {
        **{name: getattr(report, name) for name in _PLAIN},
        "seconds": round(report.seconds, 1),
        "verdict": verdict(report),
        "front": report.front(),
        "known": report.known.as_dict(),
        "frequent": lengths_as_dict(report.frequent),
        "assumptions": assumptions(report),
        "settings": [result.as_dict() for result in report.results],
        "statements": [*statements(report), *report.notes],
    }
