"""The report of an audit as aligned plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..attacks.candidates import CANDIDATES
from .assumptions import assumptions
from .statements import statements
from .verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...inversion.metrics import Value
    from ..gate import Gate
    from ..result import AuditReport, ByLength, DefenceResult

_COLUMNS = {  # width
    "bytes": 6,
    "nDCG@10": 8,
    "kept": 6,
    "leak": 6,
    "95th": 6,
    "share": 6,
    "content": 7,
    "names": 6,
    "numbers": 7,
}
_FLOOR = "guessing"
_FIGURES_WIDTH = sum(_COLUMNS.values()) + 2 * (len(_COLUMNS) - 1)


def lines(report: AuditReport, gate: Gate) -> list[str]:
    """Lay out the settings, the attackers, the statements, and the settings within the gate if it sets a limit."""
    return [
        *verdict(report),
        *_table(report),
        *_candidates(report),
        "each attacker must have:",
        *(f"  {name}: {sentence}" for name, sentence in assumptions(report).items()),
        *statements(report),
        *report.notes,
        *(_gate_lines(report, gate) if gate.is_set else ()),
    ]


def _table(report: AuditReport) -> list[str]:
    """Lay out guessing, which no defence goes below, then each setting; a star marks the Pareto front."""
    width = max(len(_FLOOR), *(len(result.name) for result in report.results))
    headings = "".join(f"{_heading(report, length):>8}" for length in report.frequent)
    columns = "".join(f"{name:>{size + 2}}" for name, size in _COLUMNS.items())
    guesses = f"{'':{_FIGURES_WIDTH}}{_f1s(report.frequent, report.frequent)}"
    table = [
        f"  {'':<{width}}{columns}{headings}",
        f"  {_FLOOR:<{width}}  {guesses}  most frequent tokens, without any vector",
    ]
    front = set(report.front())
    for result in report.results:
        table += _rows(result, report.frequent, width, is_best=result.name in front)
    return [
        *table,
        "* on the Pareto front",
        "leak: the highest token F1 at any length, of all attackers; share: 0 is guessing, 1 the whole text",
        "95th: the highest 95th percentile of F1 over texts: one text in twenty is read at least so well",
        "content: the same of tokens that are not common; names, numbers: the share that came back",
    ]


def _heading(report: AuditReport, length: int) -> str:
    return "stored" if length == report.stored_length else f"F1@{length}"


def _rows(result: DefenceResult, lengths: Iterable[int], width: int, *, is_best: bool) -> list[str]:
    """Lay out a setting: its figures with the first attacker's F1, then a line for each further attacker."""
    figures = f"{result.bytes:>6,}  {result.ndcg.value or 0:>8.4f}  {result.keep:>6.3f}  {result.leak:>6.3f}"
    figures += f"  {result.leak_95th:>6.3f}  {_short(result.share):>6}  {_short(result.highest('content_f1')):>7}"
    figures += f"  {_short(result.highest('names')):>6}  {_short(result.highest('numbers')):>7}"
    (name, first), *rest = result.attacks.items()
    rows = [f"{'*' if is_best else ' '} {result.name:<{width}}  {figures}{_f1s(first.by_length, lengths)}  {name}"]
    return rows + [
        f"  {'':<{width}}  {'':{_FIGURES_WIDTH}}{_f1s(attack.by_length, lengths)}  {name}" for name, attack in rest
    ]


def _candidates(report: AuditReport) -> list[str]:
    """Lay out how often the true fact is the nearest candidate, and how many indexed texts are recognized."""
    rows = []
    for result in report.results:
        parts = [
            f"{kind} {' '.join(_short(value) for value in fact.first.values())}" for kind, fact in result.facts.items()
        ]
        if result.membership:
            parts.append(f"indexed texts recognized {_short(result.membership)}")
        rows += [f"  {result.name}: {'; '.join(parts)}"] if parts else []
    heading = f"picked out of {CANDIDATES} candidates with the rest of the text known, half known and unknown:"
    return [heading, *rows] if rows else []


def _short(value: Value) -> str:
    return "–" if value.value is None else f"{value.value:.3f}"


def _f1s(by_length: ByLength, lengths: Iterable[int]) -> str:
    """F1 of each length; blank for a length without texts."""
    return "".join(f"{by_length[length]['f1']:>8.3f}" if length in by_length else " " * 8 for length in lengths)


def _gate_lines(report: AuditReport, gate: Gate) -> list[str]:
    passing, unmeasured = gate.passing(report), gate.unmeasured(report)
    closed = [f"not measured: {result.name}, for {gate.unknown(report, result)}" for result in unmeasured]
    if passing:
        first = "best nDCG@10" if gate.limits_leak else "least leak"
        return [*closed, f"within the gate, {first} first: {', '.join(map(_brief, passing))}"]
    if gate.exceeds_known(report):
        closed.append(
            f"up to {report.known.sharing.high:.1%} of passages have text that the attacker has, more than "
            f"--max-known {gate.max_known:g}: no defence changes that"
        )
    if not unmeasured:
        closed.append(f"no setting is within the gate; nearest: {', '.join(map(_brief, gate.nearest(report)))}")
    floor, length = max((recovery["f1"], length) for length, recovery in report.frequent.items())
    if gate.max_token_f1 is not None and gate.max_token_f1 < floor:
        closed.append(
            f"the most frequent tokens alone, without any vector, have F1 {floor:.3f} at {length} tokens: "
            "--max-token-f1 below that asks an attacker to know less; --lengths leaves lengths out"
        )
    return closed


def _brief(result: DefenceResult) -> str:
    return f"{result.name} (F1 {result.leak:.3f}, at most {result.leak_high:.3f}, kept {result.keep:.3f})"
