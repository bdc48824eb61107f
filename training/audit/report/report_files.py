"""The two files of an audit's report, report.json and report.html, and the fields of both."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

from ....core.errors import InputError
from ....core.files import write_atomic
from ....core.strict_json import strict_json
from ..result import lengths_as_dict
from . import html_report
from .assumptions import assumptions
from .statements import statements
from .verdict import verdict

if TYPE_CHECKING:
    from pathlib import Path

    from ..result import AuditReport

_PLAIN = (
    *("index", "model", "fingerprint", "documents", "passages", "learned", "queries", "query_source"),
    *("steps_each", "seed", "bleu", "stored_length"),
)


def prepare(folder: Path) -> None:
    """Create the folder and try to write into it, before a long audit begins.

    :raises InputError: when the path is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: expected a folder to write the report into")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def write(report: AuditReport, folder: Path) -> list[Path]:
    """Write both files and return their paths."""
    fields = report_fields(report)
    json_file, html_file = folder / "report.json", folder / "report.html"
    json_file.write_bytes(strict_json(fields, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n")
    write_atomic(html_file, html_report.page(fields))
    return [json_file, html_file]


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
