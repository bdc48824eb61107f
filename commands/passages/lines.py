"""`binocle search --regex, --fixed, -l`: print matching lines of the stored texts, or paths, as grep does for files."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ...core.printable import printable, printable_path
from ...retriever.documents.file_parts import file_of
from ..index_lookup import path_from_here
from ..options import EXIT_NEGATIVE, refuse_options
from ..output import echo_coloured, echo_json, is_coloured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ...retriever.retriever import Retriever
    from ...retriever.search.grep import DocumentMatches, Line
    from ...retriever.search.results.hit import Hit
    from ...retriever.store.filters.where import Where

_PATH, _NUMBER, _MATCH, _FAINT, _END = "\x1b[35m", "\x1b[32m", "\x1b[1;31m", "\x1b[36m", "\x1b[0m"
_SHOWN = 1_000  # characters of a line on a terminal
_OPTIONS = (
    click.option("--regex", is_flag=True, help="QUERY is a regular expression (RE2): print the lines that match it."),
    click.option("--fixed", is_flag=True, help="Print the lines that hold QUERY itself."),
    click.option("-i", "ignore_case", is_flag=True, help="Lines: ignore case."),
    click.option("--word", is_flag=True, help="Lines: match whole words only."),
    click.option("-A", "after", metavar="N", type=click.IntRange(min=0), help="Lines: print N lines after each."),
    click.option("-B", "before", metavar="N", type=click.IntRange(min=0), help="Lines: print N lines before each."),
    click.option("-C", "around", metavar="N", type=click.IntRange(min=0), help="Lines: print N lines around each."),
    click.option(
        "-l",
        "--files-with-matches",
        "paths_only",
        is_flag=True,
        help="Print only paths, each once: of documents with a line, or without --regex and --fixed the best N.",
    ),
    click.option(
        "-L",
        "--files-without-match",
        "paths_without",
        is_flag=True,
        help="Lines: print only the paths of documents without such a line.",
    ),
    click.option("-c", "count_only", is_flag=True, help="Lines: print only their number in each document."),
)
_OF_PASSAGES = (  # options that order or print passages
    *("k", "mode", "rerank", "rerank_seconds", "rerank_depth", "answers", "explain", "inverter", "per_document"),
    *("copies", "join", "model", "ray", "min_relevance", "full", "open_first"),
)
_OF_LINES = ("ignore_case", "word", "after", "before", "around", "paths_without", "count_only")
# Options without effect if only paths are printed.
_OF_TEXTS = ("answers", "explain", "inverter", "per_document", "join", "full", "open_first")


class LineOptions(NamedTuple):
    """The options of --regex and --fixed, and -l."""

    regex: bool
    fixed: bool
    ignore_case: bool
    word: bool
    after: int | None
    before: int | None
    around: int | None
    paths_only: bool
    paths_without: bool
    count_only: bool

    @property
    def context(self) -> tuple[int, int]:
        """The numbers of lines to print before and after each match."""
        around = self.around or 0
        return around if self.before is None else self.before, around if self.after is None else self.after

    @property
    def prints_lines(self) -> bool:
        """Whether lines are printed, not only paths or numbers."""
        return not (self.paths_only or self.paths_without or self.count_only)


def line_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of lines to a command (a decorator)."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check_line_options(options: LineOptions) -> None:
    """Refuse options that have no effect: options of lines for passages, of passages for lines, of texts for paths."""
    if options.regex and options.fixed:
        raise click.UsageError("--regex does not go with --fixed")
    if options.paths_without and (options.paths_only or options.count_only):
        raise click.UsageError("-L does not go with -l and -c")
    if options.regex or options.fixed:
        refuse_options(_OF_PASSAGES, "does not go with --regex and --fixed")
        return
    refuse_options(_OF_LINES, "goes with --regex or --fixed")
    if options.paths_only:
        refuse_options(_OF_TEXTS, "does not go with -l")


def print_lines(retriever: Retriever, pattern: str, where: Where, options: LineOptions, *, as_json: bool) -> int:
    """Print the lines that match, and return the exit code."""
    before, after = options.context
    documents = retriever.grep(
        pattern,
        where=where,
        before=before,
        after=after,
        lines=options.prints_lines,
        fixed=options.fixed,
        ignore_case=options.ignore_case,
        word=options.word,
    )
    from_here = path_from_here(retriever.folder)
    writer = _JsonWriter() if as_json else _TextWriter(separated=bool(before or after))
    if options.paths_without:
        remaining = _files_without(retriever, where, documents)
        _print_paths(remaining, from_here, writer, as_json=as_json)
        return 0 if remaining else EXIT_NEGATIVE
    is_empty = True
    for (stored, source), parts in groupby(documents, _file_and_source):
        is_empty = False
        path = stored if as_json or source != "file" else from_here(stored)
        if options.prints_lines:
            for group in (group for part in parts for group in part.groups):
                writer.group(path, group)
        else:
            writer.count(path, None if options.paths_only else sum(part.count for part in parts))
    return EXIT_NEGATIVE if is_empty else 0


def _files_without(retriever: Retriever, where: Where, documents: Iterable[DocumentMatches]) -> list[tuple[str, str]]:
    """Return the indexed files that pass the filter and are not among documents with a match."""
    matching = set(map(_file_and_source, documents))
    records = (record for record in retriever.iterate(where) if record.state == "indexed")
    files = dict.fromkeys((file_of(record.id), record.source) for record in records)
    return [file for file in files if file not in matching]


def _file_and_source(document: DocumentMatches) -> tuple[str, str]:
    """The path of the file that a document is, or is a part of, and its source: "file" or "added"."""
    return file_of(document.path), document.source


def print_paths(hits: Iterable[Hit], root: Path | None, *, copies: bool, as_json: bool) -> None:
    """Print the files of hits as `--regex -l` prints them, each once, in order of rank.

    :param copies: print the files of the copies of a passage behind its own.
    """
    from_here = path_from_here(root)
    writer = _JsonWriter() if as_json else _TextWriter(separated=False)
    files = (
        (file_of(path), source)
        for hit in hits
        for path, source in [(hit.path, hit.source), *((copy.path, copy.source) for copy in hit.copies if copies)]
    )
    _print_paths(dict.fromkeys(files), from_here, writer, as_json=as_json)


def _print_paths(
    files: Iterable[tuple[str, str]],
    from_here: Callable[[str], str],
    writer: _JsonWriter | _TextWriter,
    *,
    as_json: bool,
) -> None:
    """Print paths of the index, so that they open from the current folder, with their sources: "file" or "added"."""
    for stored, source in files:
        writer.count(stored if as_json or source != "file" else from_here(stored), None)


class _JsonWriter:
    def count(self, path: str, count: int | None) -> None:
        echo_json({"path": path} | ({} if count is None else {"count": count}))

    def group(self, path: str, group: tuple[Line, ...]) -> None:
        for line in group:
            fields = {"path": path, "line": line.number, "page": line.page, "text": line.text}
            echo_json({**fields, "matches": line.matches, "is_match": line.is_match})


class _TextWriter:
    """Print like grep: `path:12:text` for a match, `path-11-text` for a line near one, `--` between groups."""

    def __init__(self, *, separated: bool) -> None:
        self._separated = separated
        self._is_first = True
        self._is_coloured = is_coloured()

    def count(self, path: str, count: int | None) -> None:
        citation = self._in(_PATH, printable_path(path))
        echo_coloured(citation if count is None else f"{citation}{self._in(_FAINT, ':')}{count}")

    def group(self, path: str, group: tuple[Line, ...]) -> None:
        if self._separated and not self._is_first:
            echo_coloured(self._in(_FAINT, "--"))
        self._is_first = False
        for line in group:
            sign = self._in(_FAINT, ":" if line.is_match else "-")
            citation = self._in(_PATH, printable_path(path)), self._in(_NUMBER, str(line.number))
            echo_coloured(f"{citation[0]}{sign}{citation[1]}{sign}{self._text(line)}")

    def _text(self, line: Line) -> str:
        if not self._is_coloured:
            return printable(line.text, "\t")
        first = line.matches[0][0] if line.matches else 0
        start = max(0, first - _SHOWN // 2) if len(line.text) > _SHOWN else 0
        shown = line.text[: start + _SHOWN]
        pieces, position = ["… "] if start else [], start
        for left, right in line.matches:
            pieces += [printable(shown[position:left], "\t"), self._in(_MATCH, printable(shown[left:right], "\t"))]
            position = min(right, len(shown))
        return "".join([*pieces, printable(shown[position:], "\t"), " …" * (len(shown) < len(line.text))])

    def _in(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_END}" if self._is_coloured and text else text
