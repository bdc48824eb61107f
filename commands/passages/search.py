"""`binocle search`: find passages, and print the text that they cite."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ...core.errors import InputError, UntrustedError
from ..index import open_or_make
from ..index_lookup import folder_filter, path_from_here
from ..options import (
    DURATION,
    EXIT_NEGATIVE,
    FOLDER,
    FloatRange,
    check_rerank_options,
    folders_argument,
    grouped,
    index_option,
    is_typed,
    json_option,
    k_option,
    ray_option,
    rerank_depth_option,
    rerank_option,
    stdout_for_answers,
    where_option,
)
from ..output import echo
from .answer import print_answer
from .hits import PrintOptions, comment, print_hits
from .lines import LineOptions, check_line_options, line_options, print_lines, print_paths
from .places import open_in_editor
from .remarks import corrected, say_language, say_named, say_nothing, say_too_long
from .retained import recovered, recovery
from .word_shares import word_shares

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ...retriever.inversion.facts import RetainedFacts
    from ...retriever.models.encoder import Kind
    from ...retriever.retriever import Retriever
    from ...retriever.search.answers import Answer
    from ...retriever.search.arguments import GroupBy
    from ...retriever.search.mode import Mode
    from ...retriever.search.results.hits import Hits
    from ...retriever.store.filters.filter import Filter


class _RankingOptions(NamedTuple):
    """Options with the names and values that `Retriever.search` takes."""

    k: int
    mode: Mode
    rerank: str | None
    rerank_depth: int
    rerank_seconds: float | None
    per_document: int | None
    join: bool | None
    min_relevance: float | None

    def arguments(self, *, join: bool) -> dict[str, Any]:
        """The arguments of `Retriever.search`: limits of a reranker, which a configuration may set, only with one.

        :param join: whether to join neighbours, unless an option says so.
        """
        limits = ("rerank_depth", "rerank_seconds") if self.rerank is None else ()
        values = {name: value for name, value in self._asdict().items() if name not in limits}
        return values | {"join": join if self.join is None else self.join}


class _IndexOptions(NamedTuple):
    """The index, and how long to keep it open."""

    index: Path | None  # type: ignore[assignment]  # the name of the option; nobody calls the method of a tuple
    model: str | None
    ray: str | None
    stay: float | None


class _ScopeOptions(NamedTuple):
    """The part of the index to search."""

    folder: tuple[Path, ...]
    where: tuple[str, ...]
    files: str | None

    @property
    def conditions(self) -> tuple[str, ...]:
        """The filters, without FOLDER."""
        return self.where if self.files is None else (*self.where, f"path={self.files}")

    def filters(self, retriever: Retriever) -> list[str | Filter]:
        """The filters, with FOLDER."""
        return [*self.conditions, *folder_filter(self.folder, retriever.folder, retriever.location)]


class _ReadingOptions(NamedTuple):
    """Options for the hits: an answer by a reader, words from vectors, an editor."""

    answers: bool
    reader: str | None
    inverter: Path | None
    open_first: bool

    def check(self) -> None:
        """Refuse one of --answer and --reader without the other."""
        if self.answers and not self.reader:
            raise click.UsageError("--answer needs --reader MODEL: 'binocle train reader' makes one")
        if self.reader and not self.answers and is_typed("reader"):
            raise click.UsageError("--reader goes with --answer")


class _Result(NamedTuple):
    """The hits of a query, and whether they answer it."""

    query: str
    hits: Hits
    retriever: Retriever
    ranking: _RankingOptions

    @property
    def may_answer(self) -> bool:
        """False if the search says that no hit answers, unless --min-relevance asks for hits."""
        return not self.hits or self.hits.answerable is not False or self.ranking.min_relevance is not None

    @property
    def answering(self) -> Hits:
        """The hits that are not weak; with --min-relevance, all hits."""
        if self.ranking.min_relevance is not None:
            return self.hits
        return self.hits.replaced_by(hit for hit in self.hits if self.may_answer and not hit.weak)

    def say_notes(self, *, is_shown: bool) -> None:
        """Print notes on the query, and that nothing answers it.

        :param is_shown: whether the nearest hit was printed all the same.
        """
        if self.ranking.mode != "lexical":
            say_too_long(self.query, self.retriever)
            say_language(self.query, self.retriever)
        if not self.may_answer:
            say_nothing(self.hits, path_from_here(self.retriever.folder), is_shown=is_shown)


class _QueryCommand(click.Command):
    """Explain how to pass a query that looks like an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities and not first.startswith(error.option_name):
                raise
            hint = "A query that begins with - goes behind --, after all options"
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


@click.command(cls=_QueryCommand)
@click.argument("query")
@folders_argument
@index_option
@k_option
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "semantic", "lexical"]),
    default="hybrid",
    show_default=True,
    help="Match meaning (semantic), words (lexical) or both.",
)
@where_option
@click.option("--files", metavar="GLOB", help="Search only these files: the same as --where path=GLOB.")
@line_options
@rerank_option
@rerank_depth_option
@click.option("--rerank-seconds", metavar="S", type=float, help="Rerank for about S seconds, the best passages first.")
@click.option(
    "--per-document",
    metavar="N",
    type=click.IntRange(min=0),
    help="Print at most N passages of a document; 0: any number. Default: 3, and more where others have none.",
)
@click.option(
    "--join/--no-join",
    default=None,
    help="Print neighbouring passages of a document as one, or each by itself. Default: as one, but not with --json.",
)
@click.option("--copies", is_flag=True, help="List the places of the copies of each passage.")
@click.option("--full", is_flag=True, help="Print whole passages.")
@click.option("--open", "open_first", is_flag=True, help="Open the first passage in $VISUAL or $EDITOR, at its line.")
@click.option(
    "--min-relevance",
    metavar="X",
    type=FloatRange(0, 1),
    help="Print passages from this relevance, 0 to 1. By default all, but none if the best is weak.",
)
@click.option("--answer", "answers", is_flag=True, help="Read the passages, and mark the answer. Needs --reader.")
@click.option("--reader", metavar="MODEL", help="The trained reader of --answer: its folder, or its name on the hub.")
@click.option("--explain", is_flag=True, help="Show what each stage contributed to the score.")
@click.option(
    "--inverter",
    metavar="DIR",
    type=FOLDER,
    help="With --explain, also show which words can be read from the vectors: the folder of a trained inverter.",
)
@click.option("--model", metavar="NAME", help="Where the index's encoder is now, if it was moved.")
@ray_option
@click.option(
    "--stay",
    metavar="TIME",
    type=DURATION,
    help="Keep the index open in the background until TIME (15m) after the last search: the next searches take "
    "a seventh of the time. 0 ends it.",
)
@json_option
@grouped(
    source=_IndexOptions,
    scope=_ScopeOptions,
    lines=LineOptions,
    ranking=_RankingOptions,
    reading=_ReadingOptions,
    printing=PrintOptions,
)
def search(
    query: str,
    source: _IndexOptions,
    scope: _ScopeOptions,
    lines: LineOptions,
    ranking: _RankingOptions,
    reading: _ReadingOptions,
    printing: PrintOptions,
) -> int:
    """Find the passages that answer QUERY.

    Searches FOLDER, which may also be a file, a glob, or several of these in one index. Without it, searches the whole
    index of the current folder or of the nearest one above it. The QUERY "-" is read from standard input. Paths open
    from the current folder; JSON has them relative to the indexed folder. Exit 1 when nothing is found, or nothing that
    answers QUERY; then the command names files that have words of QUERY in their names.

    Passages that hold an identifier of QUERY literally (max_size, BadParameter, 1.2.3, #2809, src/main.rs) come first,
    definitions before uses; in a sentence, only the definition of a plain name does. "Words in quotes" and +word must
    be in every passage. Words with a minus at the end of QUERY (-word) must not.

    With --regex or --fixed it prints the lines that match QUERY in the stored texts, as grep does, for PDF and office
    files too. With -l it prints paths alone, for programs: without --regex and --fixed those of the best N documents,
    best first.

    A word that no passage has is corrected to the nearest word of the index, unless it is in quotes.

    With --answer a reader marks the answer in the passages, with its place and the probability that it is right. Exit 1
    when they have no answer.

    With --rerank a cross-encoder reads the best passages again, together with the query, and orders them.

    \b
    binocle search '"invoice of march" -draft' docs
    binocle search "lifetime of a borrowed value" docs
    binocle search "how to install it" docs/guide/*.md docs/report.pdf
    binocle search "invoice march" --where type=pdf --where 'modified>=2026-01-01' --json
    binocle search --regex "install (the|a) " docs --files "*.md" -i -C 2
    binocle search "how to install it" docs --rerank models/reranker --rerank-seconds 2
    binocle search "who may cancel a task" docs --answer --reader models/reader
    """
    _leave_behind(source.stay)
    check_line_options(lines)
    reading.check()
    check_rerank_options(used=ranking.rerank is not None, by="--rerank")
    query = _read_query(query)
    if lines.regex or lines.fixed:
        pattern = _pattern(query)
        retriever = _opened(source, scope)
        return print_lines(retriever, pattern, scope.filters(retriever), lines, as_json=printing.as_json)
    retriever = _opened(source, scope)
    root, filters = retriever.folder, scope.filters(retriever)
    recover = recovery(reading.inverter, retriever, explain=printing.explain)
    ranking = _allowed_ranking(ranking, retriever)
    arguments = ranking.arguments(join=not (printing.as_json or lines.paths_only))
    group_by: GroupBy = "document" if lines.paths_only else "passage"
    with stdout_for_answers(source.ray):
        hits = retriever.search(query, where=filters, group_by=group_by, **arguments)
        reader = reading.reader if reading.answers and not lines.paths_only else None
        answered = retriever.answer(query, reader=reader, hits=hits) if reader else None
    result = _Result(query, hits, retriever, ranking)
    if not (hits and result.may_answer):
        say_named(query, retriever, filters, path_from_here(root))
    result = result._replace(query=corrected(query, hits))
    if lines.paths_only:
        hits = result.answering
        print_paths(hits, root, copies=printing.copies, as_json=printing.as_json)
        result.say_notes(is_shown=False)
    else:
        _print_result(result, printing, recover, answered)
        if reading.open_first and hits and result.may_answer:
            open_in_editor(hits[0], root)
    if result.hits and not (hits and result.may_answer):
        return EXIT_NEGATIVE
    code = comment(hits, result.query, scope.conditions, scope.folder, root, retriever, as_json=printing.as_json)
    return EXIT_NEGATIVE if answered == [] else code


def _opened(source: _IndexOptions, scope: _ScopeOptions) -> Retriever:
    return open_or_make(next(iter(scope.folder), None), source.index, source.model, source.ray)


def _leave_behind(seconds: float | None) -> None:
    """Keep the index open in the background when the command ends, if --stay was given."""
    if seconds is None:
        return
    from ..background.server import leave_behind

    click.get_current_context().call_on_close(lambda: leave_behind(seconds))


def _read_query(query: str) -> str:
    """Return the query, or for "-" the standard input."""
    if query != "-":
        return query
    if sys.stdin is None:
        raise InputError("the query '-' is read from standard input, but that is closed")
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace")  # editors may put a BOM before it


def _pattern(query: str) -> str:
    """A pattern for lines, without the line break that ends it in a file or a pipe."""
    pattern = query.removesuffix("\n").removesuffix("\r")
    if "\n" in pattern:
        raise click.UsageError("--regex and --fixed take a pattern of one line: it is compared with single lines")
    return pattern


def _allowed_ranking(ranking: _RankingOptions, retriever: Retriever) -> _RankingOptions:
    """Rank by words alone, with a note, if the user has not allowed the encoder that the index names."""
    if ranking.mode == "hybrid" and not retriever.trusted:
        try:
            _ = retriever.encoder
        except UntrustedError as error:
            echo(f"binocle: searched by words alone: {error}", err=True)
            return ranking._replace(mode="lexical")
    return ranking


def _print_result(
    result: _Result,
    printing: PrintOptions,
    recover: Callable[[str, Kind], RetainedFacts] | None,
    answers: list[Answer] | None,
) -> None:
    """Print the answer, the hits and notes on the query.

    Hits that do not answer the query are printed only as JSON, or if the user asked for them with --min-relevance.
    """
    query, retriever, as_json = result.query, result.retriever, printing.as_json
    if recover and not as_json:
        echo(f"query: {recovered(recover(query.strip(), 'query'))}\n")
    if answers is not None and result.may_answer and not as_json:
        print_answer(answers, retriever)
    has_meaning = result.ranking.mode != "lexical"
    shares_of = word_shares(query, retriever) if printing.explain and has_meaning else None
    shown = result.hits if result.may_answer or as_json else []
    print_hits(shown, query, retriever.folder, printing, recover, shares_of, answers)
    result.say_notes(is_shown=as_json)
