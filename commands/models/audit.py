"""`binocle audit`: measure the text that an index's vectors give away, and the cost of defences."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from ...core.printable import printable, shell_word
from ...core.units import count_of
from ..index_lookup import command_hint, open_index
from ..options import (
    EXIT_NEGATIVE,
    FOLDER,
    folder_argument,
    index_option,
    json_option,
    print_note,
    split_names,
    wait_option,
)
from ..output import echo, echo_json
from ..progress_bar import ProgressBar
from .idle_options import refuse_given_options

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ...retriever.retriever import Retriever
    from ...training.audit.apply import AppliedDefence
    from ...training.audit.gate import Gate
    from ...training.audit.result import AuditReport, DefenceResult


_QUICK = {"texts": 50, "lengths": "8,32,stored"}
_QUICK_LIMITS = {"quick": True, "corpus_texts": 6_000}
_STORED = "stored"  # the whole passages, among lengths


def _lengths(_context: click.Context, _option: click.Parameter, value: str) -> tuple[tuple[int, ...], bool]:
    """Return the lengths of cut texts, and whether whole passages are attacked too."""
    parts = value.split(",")
    try:
        return tuple(int(part) for part in parts if part != _STORED), _STORED in parts
    except ValueError:
        raise click.BadParameter(f"expected lengths such as 8,32,stored, not {value!r}") from None


def _quick(context: click.Context, _option: click.Parameter, value: bool) -> bool:
    """Take smaller numbers for the options that are not given."""
    if value:
        context.default_map = {**_QUICK, **(context.default_map or {})}
    return value


class _Share(click.FloatRange):
    """A share from 0 to 1. It refuses 30 for 30 %: everything would pass such a limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = click.FLOAT.convert(value, param, ctx)
        if not 0 <= number <= 1:
            self.fail(f"expected a share from 0 to 1, not {number}", param, ctx)
        return number


_SHARE = _Share(0, 1)
_EXIT_UNMEASURED = 2  # exit code if settings pass a gate, but the attack was too weak to prove it


@click.command()
@folder_argument
@index_option
@click.option(
    "--quick",
    is_flag=True,
    is_eager=True,
    callback=_quick,
    help="Attacks in closed form alone, on fewer texts: intervals are wider, and no gate is passed.",
)
@click.option("--out", metavar="DIR", type=FOLDER, help="Write report.json and report.html into this folder.")
@click.option(
    "--defences",
    metavar="NAMES",
    callback=split_names,
    help="Such as noise=0.01,truncate=128,int8,binary,pq=48,rotation. Default: several strengths of each.",
)
@click.option("--queries", metavar="DIR", type=FOLDER, help="Judged queries in BEIR's layout. Default: generated.")
@click.option("--split", default="test", show_default=True, help="The judgements to use: qrels/SPLIT.tsv.")
@click.option(
    "--steps",
    type=int,
    default=250,
    show_default=True,
    help="Steps of learning for each defence; the first decoder takes four times as many.",
)
@click.option(
    "--seconds",
    type=float,
    default=600.0,
    show_default=True,
    help="Limit of learning for each defence, fourfold for the first decoder. A run that it ends passes no gate.",
)
@click.option(
    "--lengths",
    default="8,16,32,64,128,stored",
    show_default=True,
    callback=_lengths,
    help="Lengths of the attacked texts, in tokens; 'stored': the index's passages with their stored vectors.",
)
@click.option("--texts", type=int, default=100, show_default=True, help="Maximum of attacked texts of each length.")
@click.option(
    "--suspects",
    metavar="MODELS",
    callback=split_names,
    help="Encoders to try for a thief who does not know the index's encoder, beside that encoder.",
)
@click.option(
    "--examples", type=int, default=2, show_default=True, help="Examples of each length to print; 0 for none."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--max-token-f1",
    type=_SHARE,
    metavar="X",
    help="A gate: the highest F1 that may be recovered at any length, by its upper bound.",
)
@click.option("--max-content-f1", type=_SHARE, metavar="X", help="The highest F1 of uncommon tokens.")
@click.option("--max-names", type=_SHARE, metavar="X", help="The highest share of names read, or picked of 30.")
@click.option("--max-numbers", type=_SHARE, metavar="X", help="The highest share of numbers read, or picked of 30.")
@click.option(
    "--max-known",
    type=_SHARE,
    metavar="X",
    help="The highest share of passages with text that the attacker has, by its upper bound.",
)
@click.option(
    "--min-ndcg-keep",
    type=_SHARE,
    metavar="Y",
    help="A gate: the lowest share of nDCG@10 that must remain.",
)
@click.option(
    "--apply",
    is_flag=True,
    help="Embed the index anew with the best setting within the gate: by nDCG@10, or by leak if none is limited.",
)
@click.option(
    "--encoder",
    metavar="DIR",
    type=FOLDER,
    help="Where --apply puts the defended encoder, with its secret. Default: in ~/.local/share/binocle.",
)
@click.option("--erase", is_flag=True, help="With --apply: erase the undefended vectors; no rollback then.")
@wait_option
@json_option
def audit(
    folder: Path | None,
    index: Path | None,
    quick: bool,
    out: Path | None,
    defences: tuple[str, ...] | None,
    texts: int,
    apply: bool,
    encoder: Path | None,
    erase: bool,
    wait: float,
    as_json: bool,
    lengths: tuple[tuple[int, ...], bool],
    suspects: tuple[str, ...] | None,
    **options: Any,
) -> int:
    """Measure how much text an index's vectors give away.

    An attacker learns from one part of the documents to recover texts from vectors, and is tested on the other. The
    test runs without a defence, and with noise, shorter or coded vectors and a secret rotation, each with its cost in
    nDCG@10. With a gate the exit code is 1 when no setting is within it, and 2 when the attack was too weak to tell.

    \b
    binocle audit docs --out leak
    binocle audit docs --defences int8,rotation --max-token-f1 0.3 --min-ndcg-keep 0.98
    """
    from ...training.audit.gate import Gate

    gate = Gate(**{field.name: options.pop(field.name) for field in fields(Gate)})
    _check_options(gate, encoder, quick=quick, apply=apply, erase=erase)
    from ...training.audit.audit import audit as run_audit
    from ...training.audit.report import report_files, text_report

    retriever = open_index(folder, index, wait=wait)
    _prepare(retriever, out, encoder, apply=apply)
    with ProgressBar("reading the index", lines=10) as progress:
        options |= {"settings": defences, "texts_per_length": texts, "lengths": lengths[0], "stored": lengths[1]}
        options |= _QUICK_LIMITS if quick else {}
        report = run_audit(retriever, suspects=suspects or (), progress=progress, **options)
    passing = gate.passing(report)
    if not as_json:
        _print(text_report.lines(report, gate))
    applied = None
    try:
        files = report_files.write(report, out) if out else []
        if not as_json:
            _print(map(str, files))
        if apply and passing:
            applied = _apply(retriever, passing[0], encoder, erase=erase)
    finally:  # an audit takes long: its results are printed even when they cannot be written or applied
        if as_json:
            echo_json(_as_dict(report, gate, applied))
    if apply and passing and not as_json:
        _print(_changes(applied, retriever, erased=erase))
    return _exit_code(gate, report)


def _check_options(gate: Gate, encoder: Path | None, *, quick: bool, apply: bool, erase: bool) -> None:
    if quick:
        refuse_given_options(("steps", "seconds"), "--quick trains nothing; leave one of them out")
    if apply and quick:
        raise click.UsageError("--apply needs the whole audit, since a quick one passes no gate: leave --quick out")
    if apply and not gate.is_set:
        raise click.UsageError("--apply needs --max-token-f1 or another limit, to choose the setting by")
    if (encoder or erase) and not apply:
        raise click.UsageError("--encoder and --erase go with --apply")


def _prepare(retriever: Retriever, out: Path | None, encoder: Path | None, *, apply: bool) -> None:
    """Refuse an audit that could not be applied or written at its end."""
    from ...training.audit.apply import check
    from ...training.audit.report import report_files

    if apply:
        check(retriever, encoder)
    if out:
        report_files.prepare(out)


def _exit_code(gate: Gate, report: AuditReport) -> int:
    if not gate.is_set or gate.passing(report):
        return 0
    return _EXIT_UNMEASURED if gate.unmeasured(report) else EXIT_NEGATIVE


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        echo(printable(line))


def _as_dict(report: AuditReport, gate: Gate, applied: AppliedDefence | None) -> dict[str, Any]:
    from ...training.audit.report.report_files import report_fields

    fields = report_fields(report)
    if gate.is_set:
        fields["gate"] = gate.as_dict(report)
    if applied:
        fields["applied"] = applied.as_dict()
    return fields


def _apply(retriever: Retriever, result: DefenceResult, encoder: Path | None, *, erase: bool) -> AppliedDefence | None:
    """Put a setting into service; "none" needs no change."""
    from ...training.audit.apply import defend

    if result.kind == "none":
        return None
    action = f"embedding the index anew with {result.name}"
    if not sys.stderr.isatty():
        echo(f"{action} …", err=True)
    try:
        with ProgressBar(action) as progress:
            return defend(retriever, result.name, folder=encoder, keep=not erase, progress=progress)
    except KeyboardInterrupt:
        print_note(_continuation(retriever, erase=erase))
        raise


def _continuation(retriever: Retriever, *, erase: bool) -> str:
    """Say how to go on with an interrupted embedding, if it has begun: the same command would audit again."""
    unfinished = retriever.status().switching
    if unfinished is None or not unfinished["model"]:
        return ""
    rest = "; it keeps the undefended vectors, unlike switch(…, keep=False) in Python" if erase else ""
    command = command_hint(f"switch {shell_word(unfinished['model'])}")
    return f"{command} goes on with the embedding from there{rest}"


def _changes(applied: AppliedDefence | None, retriever: Retriever, *, erased: bool) -> list[str]:
    """Name the applied setting, and the places of the secret and of the old vectors."""
    if applied is None:
        return ["the index is unchanged: its stored vectors are within the gate"]
    old = (
        "the undefended vectors are erased"
        if erased
        else f"the undefended vectors are kept in {retriever.location} for 'binocle rollback': --erase leaves none"
    )
    report = applied.report
    return [
        f"{count_of(report.chunks, 'passage')} now of {applied.setting}, in {report.seconds:.1f} s; {old}",
        (
            f"{applied.folder} is the encoder, with its secret key: keep it outside of the index; back it up, for "
            "without it the index cannot be searched by meaning, and give it to nobody who gets the vectors"
        ),
    ]
