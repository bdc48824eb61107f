"""`binocle …`: translates options into one library call each and prints the answer.

Exit codes are grep's: 0 found (or done), 1 nothing found (or not clean), 2 an error, in one line on stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from . import __version__
from .indexes.errors import BinocleError, InputError, NoIndexError
from .retriever.passage import blocks, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    from .retriever.query import Hit
    from .retriever.retriever import Retriever
    from .retriever.sync import Progress, Report

_NOTHING, _ERROR, _INTERRUPTED = 1, 2, 130


def main() -> NoReturn:
    """Run the command line: every error one line, never a traceback for a user's mistake."""
    # One query is one small product after another: a second thread for each only waits, up to 0.4 s on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("LANCE_LOG", "error")  # its warnings are not for the one who searches
    if sys.stdout is None:  # closed by the caller, who then wants the exit code alone
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        if "_BINOCLE_COMPLETE" in os.environ:
            cli.main(prog_name="binocle")
        with cli.make_context("binocle", sys.argv[1:]) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(_ERROR)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "binocle"
        _fail(f"{error.format_message()} (see '{command} --help')")
    except click.ClickException as error:
        _fail(error.format_message())
    except BinocleError as error:
        _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        click.echo("binocle: interrupted; what was committed is kept, the same command goes on from there", err=True)
        os._exit(_INTERRUPTED)  # threads of native libraries must not hold up a Ctrl-C
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.filename or 'input/output'}: {error.strerror or error}")


def _fail(message: str) -> NoReturn:
    click.echo(f"binocle: {printable(' '.join(message.split()))}", err=True)
    sys.exit(_ERROR)


class _Group(click.Group):
    """Lists the commands in the order of need."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="binocle")
def cli() -> None:
    """Search a folder of documents by meaning and by words, with exact citations.

    \b
    binocle index ~/notes
    binocle search "how do I cancel a running task" ~/notes
    """


class _Folder(click.Path):
    """Completes folders; whether one is there is for the command to say."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("'' is empty; '.' is the folder you are in", param, ctx)
        return super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="dir")]


_FOLDER = _Folder()
_index_option = click.option(
    "--index",
    "index",
    metavar="DIR",
    type=_FOLDER,
    envvar="BINOCLE_INDEX",
    help="The index folder. Default: .binocle in FOLDER, or here, or in the nearest folder above.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_folder_argument = click.argument("folder", required=False, type=_FOLDER)
_where_option = click.option(
    "--where",
    "-w",
    multiple=True,
    metavar="FILTER",
    help="Only documents such as path='docs/**', type=pdf, modified>=2026-01-01, size<1MB, KEY=VALUE. Repeatable.",
)
_k_option = click.option("-k", default=10, show_default=True, metavar="N", type=int, help="How many passages.")


def _open(folder: Path | None, index: Path | None, model: str | None = None) -> Retriever:
    """The existing index meant by FOLDER and --index."""
    from .retriever.folder import find_index
    from .retriever.retriever import Retriever

    if index:
        return Retriever.open(index, model=model)
    start = folder or Path.cwd()
    if not start.exists():
        raise InputError(f"there is no folder {start}")
    if start.is_file():
        raise InputError(f"{start} is a file: expected a folder; narrow a search with --where path={start.name}")
    found = start if (start / "HEAD.json").is_file() else find_index(start)
    if found is None:
        raise NoIndexError(f"no index in {start} or above it: make one with 'binocle index {folder or '.'}'")
    return Retriever.open(found, model=model)


def _within(retriever: Retriever, folder: Path | None) -> list[str]:
    """The filter that FOLDER adds when it lies below the indexed folder."""
    from .retriever.where import folder as below

    root = retriever.folder
    if folder is None or folder.resolve() == retriever.path:
        return []
    if not folder.exists():
        raise InputError(f"there is no folder {folder}")
    if root is None or not folder.resolve().is_relative_to(root.resolve()):
        raise InputError(f"{folder} is not in {root}, the folder that the index at {retriever.path} is of")
    inside = folder.resolve().relative_to(root.resolve()).as_posix()
    return [] if inside == "." else [below(inside)]


def _below(retriever: Retriever) -> str:
    """What to put before a path of the index, so that it opens from here."""
    root = retriever.folder
    if root is None:
        return ""
    way = os.path.relpath(root.resolve())
    return "" if way == "." else f"{root.resolve()}/" if way.startswith("..") else f"{way}/"


@cli.command()
@click.argument("folder", type=_FOLDER)
@click.option(
    "--index", "index", metavar="DIR", type=_FOLDER, envvar="BINOCLE_INDEX", help="Default: .binocle in FOLDER."
)
@click.option("--model", metavar="NAME", help="Encoder for a new index: a sentence-transformers folder or hub name.")
@click.option("--retry", is_flag=True, help="Read again what failed before or was forgotten.")
@_json_option
def index(folder: Path, index: Path | None, model: str | None, retry: bool, as_json: bool) -> None:
    """Index FOLDER, or bring its index up to date.

    Only what is new or changed is read and embedded. Interrupt it when you like: it goes on where it stopped.

    \b
    binocle index ~/notes
    binocle index docs --index /tmp/docs-index --json
    """
    from .retriever.retriever import INDEX_NAME, Retriever

    if (folder / "HEAD.json").is_file():
        raise InputError(f"{folder} is an index, not a folder of documents: binocle index {folder.resolve().parent}")
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}" if not folder.exists() else f"{folder} is a file, not a folder")
    retriever = Retriever.open(index or folder / INDEX_NAME, model=model)
    with _Bar() as progress:
        report = retriever.sync(folder, retry=retry, progress=progress)
    click.echo(json.dumps(report.as_dict()) if as_json else _summary(report))


def _summary(report: Report) -> str:
    from .retriever.sync import FILE_STATES

    counts = [f"{getattr(report, name):,} {name}" for name in FILE_STATES if getattr(report, name)]
    embedded = f"{report.embedded:,} embedded" if report.embedded else "none embedded"
    passages = f"{report.chunks_total:,} passage{'s' * (report.chunks_total != 1)}"
    return f"{', '.join(counts) or 'no files'}; {passages}, {embedded}, in {report.seconds:.1f} s" + (
        "; 'binocle files --state failed' says why" if report.failed else ""
    )


class _Bar:
    """A live bar on a terminal, nothing elsewhere. Gives the callback that moves it, or None."""

    def __enter__(self) -> Callable[[Progress], None] | None:
        self._bar: Any = None
        if not sys.stderr.isatty():
            return None
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.fields[what]}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=None, what="looking through the folder")
        return self._move

    def _move(self, at: Progress) -> None:
        elapsed = self._bar.tasks[0].elapsed or 1e-9
        rate = f"{at.chunks / elapsed:.0f} passages/s" if at.chunks else "reading"
        what = f"{at.files_done:,} of {at.files_total:,} files, {rate}"
        self._bar.update(self._task, completed=at.bytes_done, total=max(1, at.bytes_total), what=what)

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()


@cli.command()
@click.argument("query")
@_folder_argument
@_index_option
@_k_option
@click.option("--mode", type=click.Choice(["hybrid", "semantic", "lexical"]), default="hybrid", show_default=True)
@_where_option
@click.option("--explain", is_flag=True, help="Show what each stage contributed.")
@click.option("--model", metavar="NAME", help="Where the index's encoder is now, if it has moved.")
@_json_option
def search(
    query: str,
    folder: Path | None,
    index: Path | None,
    k: int,
    mode: str,
    where: tuple[str, ...],
    explain: bool,
    model: str | None,
    as_json: bool,
) -> int:
    """Find the passages that answer QUERY.

    Looks in FOLDER, or in the whole index found here or above. QUERY "-" is read from standard input. Paths are
    printed as they open from here; JSON has them as the index does, relative to the indexed folder.

    \b
    binocle search "lifetime of a borrowed value" docs
    binocle search "invoice march" --where type=pdf --where 'modified>=2026-01-01' --json
    """
    if query == "-":
        if sys.stdin is None:
            raise InputError("the query is to be read from standard input, but that is closed")
        query = sys.stdin.buffer.read().decode("utf-8", "replace")
    retriever = _open(folder, index, model)
    hits = retriever.search(query, k, mode=mode, where=[*where, *_within(retriever, folder)])
    _print_hits(hits, query, _below(retriever), explain=explain, as_json=as_json)
    if not hits and not retriever.snapshot().chunks.count_rows():
        click.echo(f"binocle: the index at {retriever.path} holds no passages yet: 'binocle index' fills it", err=True)
    return 0 if hits else _NOTHING


@cli.command()
@click.argument("place", metavar="FILE:LINE")
@_folder_argument
@_index_option
@_k_option
@_where_option
@_json_option
def similar(place: str, folder: Path | None, index: Path | None, k: int, where: tuple[str, ...], as_json: bool) -> int:
    """Find passages like the one at FILE:LINE.

    FILE is a path as search prints it, or of the file itself.

    \b
    binocle similar guide/install.md:40 docs
    """
    retriever = _open(folder, index)
    path, line = _place(retriever, place)
    hits = retriever.similar(path, line, k, where=[*where, *_within(retriever, folder)])
    _print_hits(hits, "", _below(retriever), explain=False, as_json=as_json)
    return 0 if hits else _NOTHING


@cli.command()
@click.argument("place", metavar="FILE[:LINE[-LINE]]")
@_folder_argument
@_index_option
def show(place: str, folder: Path | None, index: Path | None) -> None:
    """Print the text read from a document.

    The whole of it, or the lines of a citation.

    \b
    binocle show report.pdf docs
    binocle show guide/install.md:40-60 docs
    """
    retriever = _open(folder, index)
    match = re.fullmatch(r"(.+):([0-9]+)(?:-([0-9]+))?", place, re.DOTALL)
    if match and not _is_known(retriever, place):
        first = int(match[2])
        text = retriever.lines(_known(retriever, match[1]), first, int(match[3] or first))
    else:
        text = retriever.text(_known(retriever, place))
    if sys.stdout.isatty():
        text = "\n".join(map(printable, text.split("\n")))
    click.echo(text)


def _place(retriever: Retriever, place: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.+):([0-9]+)", place, re.DOTALL)
    if not match:
        raise InputError(f"{place!r} is not a place: expected FILE:LINE, such as guide.md:12")
    return _known(retriever, match[1]), int(match[2])


def _is_known(retriever: Retriever, path: str) -> bool:
    return path in retriever.snapshot().document_rows["path"].to_pylist()


def _known(retriever: Retriever, path: str) -> str:
    """The path of a document or a folder in the index that a user means: as search prints it, or as it is from here."""
    paths = set(retriever.snapshot().document_rows["path"].to_pylist())
    root = retriever.folder
    choices = [path.rstrip("/")]
    if root is not None and "\0" not in path:
        with contextlib.suppress(ValueError, OSError):  # somewhere else altogether
            choices.append(Path(path).resolve().relative_to(root.resolve()).as_posix())
    for choice in choices:
        if choice in paths or any(one.startswith(choice + "/") for one in paths):
            return choice
    raise InputError(f"{path!r} is not in the index: 'binocle files' lists what is")


@cli.command()
@_folder_argument
@_index_option
@_json_option
def status(folder: Path | None, index: Path | None, as_json: bool) -> None:
    """Show what an index holds and what it was made with.

    \b
    binocle status ~/notes
    """
    from dataclasses import asdict

    from .retriever.status import measure

    found = measure(_open(folder, index))
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    states = ", ".join(f"{count:,} {state}" for state, count in found.documents.items())
    vectors = found.vector_index or "none yet"
    if found.newer_rows or found.deleted_rows:
        vectors += f" ({found.newer_rows:,} newer rows searched exactly, {found.deleted_rows:,} deleted ones masked)"
    for name, value in (
        ("index", found.path),
        ("folder", found.folder or "none: added documents only"),
        ("documents", states),
        ("passages", f"{found.chunks:,}"),
        ("encoder", f"{found.model}, {found.dim} dimensions, fingerprint {found.fingerprint[:8]}"),
        ("vectors", vectors),
        ("size", f"{found.bytes / 1e6:,.1f} MB"),
    ):
        click.echo(f"{name:<10} {value}")


@cli.command()
@_folder_argument
@_index_option
@click.option("--state", type=click.Choice(["indexed", "skipped", "failed"]), help="Only files in this state.")
@_json_option
def files(folder: Path | None, index: Path | None, state: str | None, as_json: bool) -> int:
    """List every file and what became of it.

    Indexed, skipped or failed, and why; with FOLDER below the indexed one, the files there.

    \b
    binocle files ~/notes --state failed
    """
    from .retriever.where import parse

    retriever = _open(folder, index)
    within = parse(_within(retriever, folder))
    rows = [
        row for row in retriever.documents() if state in (None, row["state"]) and (within is None or within.passes(row))
    ]
    names = ("path", "state", "reason", "format", "chunks", "size", "sha256", "title", "source")
    for row in rows:
        if as_json:
            click.echo(json.dumps({name: row[name] for name in names}, ensure_ascii=False))
        else:
            detail = row["reason"] or f"{row['chunks']} passage{'s' * (row['chunks'] != 1)}, {row['format']}"
            click.echo(printable(f"{row['state']:<8} {row['path']}  ({detail})"))
    return 0 if rows else _NOTHING


@cli.command()
@_folder_argument
@_index_option
@click.option("--repair", is_flag=True, help="Mend what is found: rebuild from the store, read changed files again.")
@_json_option
def verify(folder: Path | None, index: Path | None, repair: bool, as_json: bool) -> int:
    """Check passages against their documents.

    Every passage of the index is held to its document as it is now, and the index to the store. Exit 0 when clean.

    \b
    binocle verify ~/notes
    """
    from dataclasses import asdict

    retriever = _open(folder, index)
    if repair:
        retriever.repair()
    found = retriever.verify()
    for fault in found:
        line = (
            json.dumps(asdict(fault))
            if as_json
            else printable(": ".join(filter(None, (fault.kind, fault.path, fault.problem))))
        )
        click.echo(line)
    if not as_json:
        click.echo(f"{len(found):,} fault{'s' * (len(found) != 1)}" if found else "clean", err=bool(found))
    return _NOTHING if found else 0


@cli.command()
@click.argument("path")
@_folder_argument
@_index_option
def forget(path: str, folder: Path | None, index: Path | None) -> int:
    """Take a document or a folder out and erase it.

    What the index stored of it is erased from the disk; the file itself is not touched.

    A file that is still there stays out until 'binocle index --retry'.

    \b
    binocle forget private/diary.md ~/notes
    """
    retriever = _open(folder, index)
    path = _known(retriever, path)
    count = retriever.delete(path, path + "/")
    click.echo(f"{count:,} document{'s' * (count != 1)} forgotten" if count else f"{path} was forgotten already")
    return 0 if count else _NOTHING


@cli.command()
@click.argument("collection", type=_FOLDER)
@click.option("--mode", type=click.Choice(["hybrid", "semantic", "lexical"]), default="hybrid", show_default=True)
@click.option("--split", default="test", show_default=True, help="The judgements to use: qrels/SPLIT.tsv.")
@click.option("--model", metavar="NAME", help="Encoder: a sentence-transformers folder or hub name.")
@click.option("--index", "index", metavar="DIR", type=_FOLDER, help="Keep the index here, for the next mode.")
@click.option("--run", "run_file", metavar="FILE", help="Write the rankings as a TREC run.")
@_json_option
def evaluate(
    collection: Path,
    mode: str,
    split: str,
    model: str | None,
    index: Path | None,
    run_file: str | None,
    as_json: bool,
) -> None:
    """Measure quality on a test collection.

    COLLECTION has BEIR's layout: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv.

    \b
    binocle evaluate scifact --mode semantic --run scifact.run
    """
    from .training.evaluation import evaluate as measure

    tell = _tell if sys.stderr.isatty() else None
    found = measure(collection, mode=mode, split=split, model=model, index=index, run_file=run_file, progress=tell)
    if as_json:
        click.echo(json.dumps(found.as_dict()))
        return
    click.echo(f"{found.collection} {found.split}: {found.queries:,} queries, {found.documents:,} documents, {mode}")
    for name, value in found.measures.items():
        click.echo(f"{name:<11} {value:.4f}")
    click.echo(f"indexed in {found.index_seconds:.1f} s, {found.query_milliseconds:.1f} ms a query")


@cli.command()
@_json_option
def doctor(as_json: bool) -> int:
    """Check this installation.

    Versions, processor, encoder. Exit 0 when an index can be made and searched.

    \b
    binocle doctor
    """
    from .retriever.doctor import checks

    found = list(checks())
    for check in found:
        if as_json:
            click.echo(json.dumps({"name": check.name, "ok": check.ok, "detail": check.detail}))
        else:
            click.echo(f"{'ok ' if check.ok else 'BAD'}  {check.name:<12} {check.detail}")
    return 0 if all(check.ok for check in found) else _NOTHING


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    binocle completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(maker(cli, {}, "binocle", "_BINOCLE_COMPLETE").source())


def _tell(text: str) -> None:
    click.echo(f"{text} …", err=True)


def _print_hits(hits: list[Hit], query: str, below: str, *, explain: bool, as_json: bool) -> None:
    if as_json:
        for hit in hits:
            click.echo(json.dumps(_as_json(hit, explain=explain), ensure_ascii=False))
        return
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for block in blocks(hits, query, below=below, colour=colour, width=_width(), explain=explain):
        click.echo(block)


def _width() -> int:
    import shutil

    return max(40, min(shutil.get_terminal_size((100, 24)).columns, 120))


_JSON_FIELDS = [
    "rank",
    "score",
    "scores",
    "path",
    "sha256",
    "char_start",
    "char_end",
    "line_start",
    "line_end",
    "page",
    "heading",
    "text",
    "title",
    "metadata",
]


def _as_json(hit: Hit, *, explain: bool) -> dict[str, Any]:
    row = {name: getattr(hit, name) for name in _JSON_FIELDS}
    return row | ({"explanation": hit.explanation} if explain else {})


if __name__ == "__main__":
    main()
