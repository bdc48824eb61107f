"""`binocle audit`: how much text an index's vectors give away, and what protecting them costs."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError
from ..retriever.search.snippet import printable
from .options import EXIT_NEGATIVE, FOLDER, folder_argument, index_option, json_option, open_index, split_names
from .progress_bar import Live, ProgressBar

if TYPE_CHECKING:
    from pathlib import Path

    from ..retriever.retriever import Retriever
    from ..training.audit.apply import Defended
    from ..training.audit.result import Audit, Result


def _lengths(_context: click.Context, _option: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"expected lengths such as 8,32,128, not {value!r}") from None


def _finite(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"expected a finite number, not {value}")
    return value


_share = click.FloatRange(0)


@click.command()
@folder_argument
@index_option
@click.option("--out", metavar="DIR", type=FOLDER, help="Write report.json and report.html into this folder.")
@click.option(
    "--defences",
    metavar="NAMES",
    callback=split_names,
    help="Such as noise=0.01,truncate=128,int8,binary,pq=48,rotation. Default: some strengths of each.",
)
@click.option("--queries", metavar="DIR", type=FOLDER, help="Judged queries, in BEIR's layout. Default: made ones.")
@click.option("--split", default="test", show_default=True, help="The judgements to use: qrels/SPLIT.tsv.")
@click.option(
    "--seconds",
    type=float,
    default=90.0,
    show_default=True,
    help="Of an attacker's learning, for each defence; he begins with four times as many. Encoding comes on top.",
)
@click.option(
    "--lengths",
    default="8,16,32,64,128",
    show_default=True,
    callback=_lengths,
    help="Of the texts attacked, in tokens.",
)
@click.option("--texts", type=int, default=100, show_default=True, help="Attacked of each length, at most.")
@click.option("--examples", type=int, default=2, show_default=True, help="Shown of each length; 0 for none.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--max-token-f1",
    type=_share,
    callback=_finite,
    metavar="X",
    help="A gate: the leak, what may be recovered at any length.",
)
@click.option(
    "--min-ndcg-keep",
    type=_share,
    callback=_finite,
    metavar="Y",
    help="A gate: the share of nDCG@10 that must be left.",
)
@click.option(
    "--apply",
    is_flag=True,
    help="Embed the index anew with the best setting within the gate; without --max-token-f1 that of least leak.",
)
@click.option(
    "--encoder",
    metavar="DIR",
    type=FOLDER,
    help="Where --apply puts the defended encoder, with its secret. Default: in ~/.local/share/binocle.",
)
@click.option("--erase", is_flag=True, help="With --apply: erase the undefended vectors; no rollback then.")
@json_option
def audit(
    folder: Path | None,
    index: Path | None,
    out: Path | None,
    defences: tuple[str, ...] | None,
    texts: int,
    max_token_f1: float | None,
    min_ndcg_keep: float | None,
    apply: bool,
    encoder: Path | None,
    erase: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure how much text an index's vectors give away.

    An attacker learns from one part of the documents to recover texts from vectors, and is tried on the other: without
    a defence, and with noise, shorter or coded vectors and a secret rotation. Each is held against what it costs in
    nDCG@10. With a gate the exit code is 1 when no setting is within it.

    \b
    binocle audit docs --out leak
    binocle audit docs --defences int8,rotation --max-token-f1 0.3 --min-ndcg-keep 0.98
    """
    gated = max_token_f1 is not None or min_ndcg_keep is not None
    _check(gated=gated, apply=apply, encoder=encoder, erase=erase, out=out)
    from ..training.audit.audit import audit as measure

    retriever = open_index(folder, index)
    if apply:
        from ..training.audit.apply import check

        check(retriever, encoder)
    if out:
        _prepare(out)
    with Live() as live:
        found = measure(retriever, settings=defences, texts_per_length=texts, tell=live.tell, **options)
    within = found.satisfying(max_token_f1, min_ndcg_keep)
    gate = None
    if gated:
        gate = {
            "max_token_f1": max_token_f1,
            "min_ndcg_keep": min_ndcg_keep,
            "within": [one.name for one in within],
            "nearest": [one.name for one in found.nearest(max_token_f1, min_ndcg_keep)[:3]],
        }
    if not as_json:
        for line in [*_table(found), *_verdict(found, within, max_token_f1, min_ndcg_keep, gated=gated)]:
            click.echo(printable(line))
    applied = None
    try:
        written = _write(found, out) if out else []
        for file in [] if as_json else written:
            click.echo(str(file))
        applied = _apply(retriever, within[0], encoder, erase=erase) if apply and within else None
    finally:  # an audit is long: what it found is told also where it cannot be written or applied
        if as_json:
            done = {"applied": applied.as_dict()} if applied else {}
            click.echo(json.dumps({**found.as_dict(), **({"gate": gate} if gate else {}), **done}, ensure_ascii=False))
    for line in _applied(applied, retriever, asked=apply and bool(within) and not as_json, erased=erase):
        click.echo(printable(line))
    return EXIT_NEGATIVE if gated and not within else 0


def _check(*, gated: bool, apply: bool, encoder: Path | None, erase: bool, out: Path | None) -> None:
    if apply and not gated:
        raise click.UsageError("--apply needs --max-token-f1, --min-ndcg-keep or both, to choose the setting by")
    if (encoder or erase) and not apply:
        raise click.UsageError("--encoder and --erase go with --apply")
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: expected a folder to write the report into")


def _prepare(out: Path) -> None:
    """Make the folder for the report, and see that it can be written before an audit that is long is begun."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass


def _write(found: Audit, out: Path) -> list[Path]:
    from ..training.audit.html_report import page

    report = found.as_dict()
    as_json = json.dumps(report, ensure_ascii=False, indent=1).encode("utf-8", "replace")
    (out / "report.json").write_bytes(as_json + b"\n")
    (out / "report.html").write_text(page(report), "utf-8")
    return [out / "report.json", out / "report.html"]


def _table(found: Audit) -> list[str]:
    """A line for each setting, those of the Pareto front marked."""
    lengths = list(found.frequent)
    width = max(len(result.name) for result in found.results)
    head = "".join(f"{f'F1@{length}':>8}" for length in lengths)
    lines = [f"  {'':<{width}}  {'bytes':>6}  {'nDCG@10':>8}  {'kept':>6}  {'leak':>6}{head}"]
    front = set(found.front())
    for one in found.results:
        kept = f"{one.bytes:>6,}  {one.ndcg.value or 0:>8.4f}  {one.keep:>6.3f}  {one.leak:>6.3f}"
        for place, (name, attack) in enumerate(one.attacks.items()):
            leak = "".join(f"{attack.by_length[length]['f1']:>8.3f}" for length in lengths)
            mark = "*" if one.name in front and not place else " "
            lines.append(f"{mark} {'' if place else one.name:<{width}}  {' ' * 32 if place else kept}{leak}")
            if place:
                lines[-1] += f"  {name}"
    frequent = "".join(f"{found.frequent[length]['f1']:>8.3f}" for length in lengths)
    lines.append(f"  {'':<{width}}  {' ' * 32}{frequent}  most frequent tokens")
    told = "leak: the highest F1 at any length, of the attacker or of the nearest text that it learned from"
    return [*lines, "* on the Pareto front", told, *_statements(found)]


def _statements(found: Audit) -> list[str]:
    from ..training.audit.statements import statements

    return [*statements(found), *found.notes]


def _verdict(
    found: Audit, within: list[Result], max_f1: float | None, min_keep: float | None, *, gated: bool
) -> list[str]:
    if not gated:
        return []
    if within:
        first = "best nDCG@10" if max_f1 is not None else "least leak"
        return [f"within the gate, {first} first: {', '.join(map(_of, within))}"]
    nearest = found.nearest(max_f1, min_keep)[:3]
    lines = [f"no setting is within the gate; nearest: {', '.join(map(_of, nearest))}"]
    floor, length = max((recovery["f1"], length) for length, recovery in found.frequent.items())
    if max_f1 is not None and max_f1 < floor:
        guessed = f"the most frequent tokens alone, without any vector, have F1 {floor:.3f} at {length} tokens"
        lines.append(
            f"{guessed}: --max-token-f1 below that asks an attacker to know less; --lengths leaves lengths out"
        )
    return lines


def _of(one: Result) -> str:
    return f"{one.name} (F1 {one.leak:.3f}, kept {one.keep:.3f})"


def _apply(retriever: Retriever, chosen: Result, encoder: Path | None, *, erase: bool) -> Defended | None:
    from ..training.audit.apply import defend

    if chosen.kind == "none":
        return None
    said = f"embedding the index anew with {chosen.name}"
    if not sys.stderr.isatty():
        click.echo(f"{said} …", err=True)
    with ProgressBar(said) as progress:
        return defend(retriever, chosen.name, folder=encoder, keep=not erase, progress=progress)


def _applied(done: Defended | None, retriever: Retriever, *, asked: bool, erased: bool) -> list[str]:
    if not asked:
        return []
    if done is None:
        return ["the index stays as it is: its vectors as stored are within the gate"]
    old = (
        "the undefended vectors are erased"
        if erased
        else f"the undefended vectors are kept in {retriever.path} for 'binocle rollback': --erase leaves none"
    )
    secret = (
        f"{done.folder} is the encoder, with what is secret: it stays outside of the index; back it up, for without it "
        "the index cannot be searched by meaning, and give it to nobody who gets the vectors"
    )
    return [f"{done.report.chunks:,} passages now of {done.setting}, in {done.report.seconds:.1f} s; {old}", secret]
