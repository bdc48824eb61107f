"""The report of an audit as aligned plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .result import statements

if TYPE_CHECKING:
    from .gate import Gate
    from .result import AuditReport, ByLength, DefenceResult

_FIGURES_WIDTH = 32  # of the columns before F1


def lines(report: AuditReport, gate: Gate) -> list[str]:
    """Lay out a table of all settings, the statements, and the settings within the gate if it sets a limit."""
    return [*_table(report), *statements(report), *report.notes, *(_verdict(report, gate) if gate.is_set else ())]


def _table(report: AuditReport) -> list[str]:
    """Lay out a line for each setting; a star marks the Pareto front."""
    width = max(len(result.name) for result in report.results)
    headings = "".join(f"{f'F1@{length}':>8}" for length in report.frequent)
    table = [f"  {'':<{width}}  {'bytes':>6}  {'nDCG@10':>8}  {'kept':>6}  {'leak':>6}{headings}"]
    front = set(report.front())
    for result in report.results:
        table += _rows(result, width, is_best=result.name in front)
    table.append(f"  {'':<{width}}  {'':{_FIGURES_WIDTH}}{_f1s(report.frequent)}  most frequent tokens")
    return [
        *table,
        "* on the Pareto front",
        "leak: the highest F1 at any length, of the attacker or of the nearest text that it learned from",
    ]


def _rows(result: DefenceResult, width: int, *, is_best: bool) -> list[str]:
    """Lay out a setting: its figures with the first attacker's F1, then a line for each further attacker."""
    figures = f"{result.bytes:>6,}  {result.ndcg.value or 0:>8.4f}  {result.keep:>6.3f}  {result.leak:>6.3f}"  # 32 wide
    (_, first), *more = result.attacks.items()
    rows = [f"{'*' if is_best else ' '} {result.name:<{width}}  {figures}{_f1s(first.by_length)}"]
    return rows + [f"  {'':<{width}}  {'':{_FIGURES_WIDTH}}{_f1s(attack.by_length)}  {name}" for name, attack in more]


def _f1s(by_length: ByLength) -> str:
    return "".join(f"{recovery['f1']:>8.3f}" for recovery in by_length.values())


def _verdict(report: AuditReport, gate: Gate) -> list[str]:
    passing = gate.passing(report)
    if passing:
        first = "best nDCG@10" if gate.max_token_f1 is not None else "least leak"
        return [f"within the gate, {first} first: {', '.join(map(_brief, passing))}"]
    verdict = [f"no setting is within the gate; nearest: {', '.join(map(_brief, gate.nearest(report)))}"]
    floor, length = max((recovery["f1"], length) for length, recovery in report.frequent.items())
    if gate.max_token_f1 is not None and gate.max_token_f1 < floor:
        verdict.append(
            f"the most frequent tokens alone, without any vector, have F1 {floor:.3f} at {length} tokens: "
            "--max-token-f1 below that asks an attacker to know less; --lengths leaves lengths out"
        )
    return verdict


def _brief(result: DefenceResult) -> str:
    return f"{result.name} (F1 {result.leak:.3f}, kept {result.keep:.3f})"
