"""Generate the parts of the documentation that the code decides: `python .ci/docs.py`, or `--check`.

It writes reference/cli.md from the commands, the tables between `<!-- generated: NAME -->` and `<!-- end -->` in other
pages, and the pictures of the three walks. `--check` writes nothing and names the files that would change.
"""

from __future__ import annotations

import ast
import configparser
import importlib.util
import inspect
import json
import re
import sys
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_ROOMS = ("core", "indexes", "retriever", "training", "commands")
_BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def import_checkout() -> None:
    """Import the package that holds this file as `binocle`, whichever one is installed."""
    spec = importlib.util.spec_from_file_location("binocle", ROOT / "__init__.py")
    assert spec
    assert spec.loader
    sys.modules["binocle"] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


def generated() -> dict[Path, str]:
    """Return every generated file with the content that it should have."""
    files = {DOCS / "reference" / "cli.md": command_reference()}
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text("utf-8")
        if page not in files and _BLOCK.search(text):
            files[page] = _BLOCK.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}\n{match[3]}", text)
    for name, steps in _WALKS.items():
        files[DOCS / "pictures" / f"{name}.svg"] = walk(steps)
    return files


# Command line


def command_reference() -> str:
    """Return the page of all commands, in the order of `binocle --help`."""
    from binocle.cli import cli

    parts = [
        "# Command line",
        "<!-- Written by .ci/docs.py from the commands: change their help instead. -->",
        "Every command takes `--help`. Exit codes: 0 found or done, 1 nothing found or not reached, 2 an error.",
    ]
    for name, command, context in _commands(cli, click.Context(cli, info_name="binocle")):
        if not isinstance(command, click.Group):
            parts += _command(name, command, context)
    return "\n\n".join(parts) + "\n"


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.commands[name]
        inner = click.Context(command, parent=context, info_name=name)
        yield inner.command_path, command, inner
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def _command(name: str, command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {name}"
    arguments = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{name} {arguments}\n```"
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        if "\b" in paragraph:  # click's mark of examples, lines that it does not wrap
            yield f"```text\n{textwrap.dedent(paragraph.replace(chr(8), '')).strip()}\n```"
        else:
            yield _escaped(" ".join(paragraph.split()))
    options = [option for option in command.params if isinstance(option, click.Option)]  # all but --help
    records = [record for option in options if (record := option.get_help_record(context))]
    rows = [f"| `{flags.replace('|', chr(92) + '|')}` | {_escaped(text)} |" for flags, text in records]
    if rows:
        yield "\n".join(["| option | meaning |", "|---|---|", *rows])


def _escaped(text: str) -> str:
    """Escape the signs of Markdown."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


# Tables


def formats() -> str:
    """Return the table of documents that have a reader."""
    from binocle.retriever.readers import formats as table

    rows = (
        f"| {name} | {_endings(ending for ending, (form, reader) in table.FORMATS.items() if form == name)} |"
        for name in dict.fromkeys(form for form, _ in table.FORMATS.values())
        if name not in _languages()
    )
    return "\n".join(["| format | endings |", "|---|---|", *rows])


def languages() -> str:
    """Return the table of programming languages."""
    rows = (f"| {name} | {_endings(endings)} |" for name, endings in sorted(_languages().items()))
    return "\n".join(["| language | endings |", "|---|---|", *rows])


def names() -> str:
    """Return the list of whole file names that say how a file is read."""
    from binocle.retriever.readers import formats as table

    return ", ".join(f"`{name}`" for name in sorted(table.NAMES)) + "."


def unread() -> str:
    """Return the endings of files that are not read."""
    from binocle.retriever.readers import formats as table

    return _endings(sorted(table.WITHOUT_TEXT | (table.OLD_OFFICE - table.FORMATS.keys()))) + "."


def attackers() -> str:
    """Return the table of the audit's attackers."""
    from binocle.training.audit.report.assumptions import table

    rows = (f"| {name} | {_cell(sentence)} |" for name, sentence in table())
    return "\n".join(["| attacker | must have |", "|---|---|", *rows])


def rooms() -> str:
    """Return the table of rooms, from the docstring of each folder's `__init__.py`."""
    rows = []
    for file in sorted((file for room in _ROOMS for file in (ROOT / room).rglob("__init__.py")), key=_layer):
        folder = file.parent.relative_to(ROOT).as_posix()
        purpose, _, rest = (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").partition("\n\n")
        rows.append(f"| `{folder}/` | {_cell(purpose)} | {_cell(rest)} |")
    return "\n".join(["| room | purpose | way in |", "|---|---|---|", *rows])


def layers() -> str:
    """Return the layers of each room, from the contract of import-linter."""
    contract = configparser.ConfigParser()
    contract.read(ROOT / ".importlinter")
    rows = []
    for section in contract.sections():
        if contract.get(section, "type", fallback="") == "layers":
            names = contract[section]["layers"].replace("binocle.", "").split("\n")
            layers = (
                ", ".join(f"`{name.strip()}`" for name in re.split("[|:]", line)) for line in names if line.strip()
            )
            container = contract.get(section, "containers", fallback="binocle").removeprefix("binocle.")
            rows.append(f"- `{container}`: {'; '.join(layers)}.")
    return "\n".join(rows)


def results() -> str:
    """Return the table of committed results, with the commit, the processor and the arguments of each."""
    rows = []
    for file in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        result = json.loads(file.read_text("utf-8"))
        processor = re.sub(r"\(R\)| Processor|\(.*\)", "", result["machine"]["processor"]).strip()
        arguments = f"`{_cell(' '.join(result['arguments']))}`" if result.get("arguments") else ""
        rows.append(f"| {file.stem} | {result.get('commit') or 'not recorded'} | {processor} | {arguments} |")
    return "\n".join(["| result | commit | processor | arguments |", "|---|---|---|---|", *rows])


TABLES: dict[str, Callable[[], str]] = {
    "formats": formats,
    "languages": languages,
    "names": names,
    "unread": unread,
    "attackers": attackers,
    "rooms": rooms,
    "layers": layers,
    "results": results,
}


def _languages() -> dict[str, list[str]]:
    """Return the endings of each language."""
    from binocle.retriever.readers import formats as table

    endings: dict[str, list[str]] = {}
    for ending, (form, reader) in table.FORMATS.items():
        if reader.endswith(":read_code") and form != "xml":
            endings.setdefault(form, []).append(ending)
    return endings


def _endings(endings: Iterator[str] | list[str]) -> str:
    return " ".join(f"`{ending}`" for ending in endings)


def _layer(file: Path) -> tuple[int, str]:
    """Sort rooms from the top layer down."""
    folder = file.parent.relative_to(ROOT).as_posix()
    return -_ROOMS.index(folder.split("/")[0]), folder


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# Pictures

_WALKS: dict[str, list[tuple[str, str, str]]] = {  # title, room, and what happens
    "document": [
        ("Scan", "retriever/documents", "files that git does not ignore"),
        ("Compare", "retriever/indexing", "new, changed, moved, deleted"),
        ("Read", "retriever/readers", "text with lines and pages"),
        ("Split", "retriever/documents", "passages in tokens"),
        ("Encode", "retriever/models", "unit vectors"),
        ("Commit", "retriever/store", "rows, then HEAD.json"),
    ],
    "query": [
        ("Snapshot", "retriever/store", "committed versions"),
        ("Filter", "retriever/store", "documents that pass"),
        ("BM25 and cosine", "retriever/search", "200 best of each"),
        ("Fuse", "retriever/search", "standard scores added"),
        ("Rerank", "retriever/models", "50 best, if asked for"),
        ("Hits", "retriever/search", "text and exact place"),
    ],
    "training": [
        ("Read", "training/data", "rows checked by columns"),
        ("Hold out", "training/encoders", "whole documents"),
        ("Mine", "training/mining", "hard negatives"),
        ("Learn", "training/runs", "batch, loss, step"),
        ("Measure", "training/evaluation", "intervals and tests"),
        ("Publish", "training/runs", "model and card"),
    ],
}


def walk(steps: list[tuple[str, str, str]]) -> str:
    """Draw steps as boxes in two rows of three, joined by arrows."""
    width, height, gap = 228, 84, 36
    style = "font-family:system-ui,sans-serif;font-size:13px;text-anchor:middle"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 804 256" style="{style}">',
        f"<title>{escape(', '.join(title for title, _, _ in steps))}</title>",
        '<rect width="804" height="256" fill="#fff"/>',
    ]
    for number, (title, room, note) in enumerate(steps):
        x, y = 24 + number % 3 * (width + gap), 20 + number // 3 * (height + 48)
        centre = x + width / 2
        parts += [
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="#eef4fa" stroke="#0072B2"/>',
            f'<text x="{centre}" y="{y + 27}" font-weight="bold">{number + 1}. {escape(title)}</text>',
            f'<text x="{centre}" y="{y + 48}">{escape(note)}</text>',
            f'<text x="{centre}" y="{y + 69}" fill="#666" font-family="monospace">{escape(room)}/</text>',
        ]
        if number % 3 < 2:
            parts.append(_arrow(x + width + 4, y + height / 2, x + width + gap - 4, y + height / 2))
    parts.append('<path d="M666 108 V128 H138 V148" fill="none" stroke="#666"/>')  # to the second row
    parts.append('<path d="M134 142 L138 150 L142 142" fill="#666"/>')
    return "\n".join([*parts, "</svg>\n"])


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    head = f'<path d="M{to_x - 7} {to_y - 4} L{to_x} {to_y} L{to_x - 7} {to_y + 4}" fill="#666"/>'
    return f'<path d="M{x} {y} L{to_x} {to_y}" stroke="#666"/>{head}'


def main(arguments: list[str]) -> int:
    """Write the generated files, or name the stale ones."""
    stale = [file for file, text in generated().items() if not file.is_file() or file.read_text("utf-8") != text]
    for file in stale:
        print(f"{file.relative_to(ROOT)} is stale" if "--check" in arguments else f"{file.relative_to(ROOT)} written")
    if "--check" in arguments:
        return int(bool(stale))
    for file in stale:
        file.parent.mkdir(exist_ok=True)
        file.write_text(generated()[file], "utf-8")
    return 0


if __name__ == "__main__":
    import_checkout()
    sys.exit(main(sys.argv[1:]))
