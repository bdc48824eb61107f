"""Check the headings of code passages against the parser of each language.

    python -m benchmarks.passages.code_symbols --python FOLDER --go FOLDER --rust FOLDER --javascript FOLDER
        --go-command go --babel FOLDER_WITH_NODE_MODULES [--count 100]

For each language it takes passages at random from the files below the folders. The right heading of a passage has the
names, outermost first, that all of its code is within; a method of Go is within its type.
Definitions come from Python's `ast`, Go's `go/parser`,
rustc's syntax tree and Babel. Comments, attributes and closing brackets at either end of a passage do not count as its
code.
Files that the language's own parser does not read are left out. So are those with other characters than ASCII, since
the parsers count in different units. The rate is of reading and cutting, in one process.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import random
import re
import subprocess
import time
import tokenize
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle.core.errors import UnreadableError
from binocle.retriever.documents.chunker import chunk
from binocle.retriever.documents.sections import common
from binocle.retriever.models.load import load_encoder
from binocle.retriever.readers import read

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from binocle.retriever.documents.chunker import Chunk
    from binocle.retriever.models.encoder import Encoder

HERE = Path(__file__).parent
ENDINGS = {"python": ".py", "go": ".go", "rust": ".rs", "javascript": ".js"}
SEED, FILES, MAX_FILE = 0, 40, 25_000

Names = tuple[str, ...]


@dataclass
class Oracle:
    """The definitions of a file, each as (start, end, names), and the spans that are no code."""

    definitions: list[tuple[int, int, Names]]
    comments: list[tuple[int, int]] = field(default_factory=list)

    def heading(self, text: str, start: int, end: int) -> Names | None:
        """The names around the code of a passage; None if it has no code."""
        code = bytearray(text.encode())
        for first, last in self.comments:
            code[first:last] = b" " * (last - first)
        offsets = [start + match.start() for match in re.finditer(r"\w+", code[start:end].decode())]
        while offsets and re.fullmatch(r"\W*end\b\W*", code[offsets[-1] : end].decode()):
            offsets.pop()
        if not offsets:
            return None
        return reduce(common, {self._around(offset) for offset in offsets})

    def _around(self, offset: int) -> Names:
        around = sorted(item for item in self.definitions if item[0] <= offset < item[1])
        return tuple(name for _, _, names in around for name in names)


def of_python(paths: list[Path], _: argparse.Namespace) -> Iterator[Oracle | None]:
    for path in paths:
        text = path.read_text()
        lines = [0]
        for line in text.splitlines(keepends=True):
            lines.append(lines[-1] + len(line))
        try:
            nodes = list(ast.walk(ast.parse(text)))
            tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        except (SyntaxError, tokenize.TokenError):
            yield None
            continue
        definitions = []
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
                definitions.append((lines[first - 1], lines[node.end_lineno - 1] + node.end_col_offset, (node.name,)))
        comments = [item for item in tokens if item.type == tokenize.COMMENT]
        spans = [(lines[item.start[0] - 1] + item.start[1], lines[item.end[0] - 1] + item.end[1]) for item in comments]
        yield Oracle(definitions, spans)


def of_go(paths: list[Path], options: argparse.Namespace) -> Iterator[Oracle | None]:
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    yield from _from_program([options.go_command, "run", str(HERE / "code_symbols.go")], paths, environment)


def of_javascript(paths: list[Path], options: argparse.Namespace) -> Iterator[Oracle | None]:
    yield from _from_program(["node", str(HERE / "code_symbols.mjs"), str(options.babel.resolve())], paths, None)


def _from_program(command: list[str], paths: list[Path], environment: dict[str, str] | None) -> Iterator[Oracle | None]:
    names = "".join(f"{path}\n" for path in paths)
    run = subprocess.run(command, input=names, capture_output=True, text=True, check=True, env=environment)
    for line in run.stdout.splitlines():
        answer = json.loads(line)
        yield answer and Oracle(
            [(item["start"], item["end"], tuple(item["names"])) for item in answer["definitions"]],
            [tuple(span) for span in answer["comments"]],
        )


_SPAN = re.compile(r"( *)span: ([^\n]*?):(\d+):(\d+): (\d+):(\d+) \(#0\),")
_KIND = re.compile(r" *kind: (Fn|Struct|Enum|Union|Trait|Impl|Mod|MacroDef)\(")
_IDENTIFIER = re.compile(r"(?:ident: )?((?:r#)?\w+)#0,")
_NO_CODE = re.compile(r"^[ \t]*//[^\n]*|^[ \t]*#!?\[[^\n]*|/\*.*?\*/|(?<=[ \t;,{}])//[^\n]*", re.MULTILINE | re.DOTALL)


def of_rust(paths: list[Path], _: argparse.Namespace) -> Iterator[Oracle | None]:
    command = ["rustc", "+nightly", "-Zunpretty=ast-tree", "--edition=2024", "--crate-type=lib"]
    for path in paths:
        run = subprocess.run([*command, path.name], cwd=path.parent, capture_output=True, text=True, check=False)
        if run.returncode:
            yield None
            continue
        text = path.read_text()
        lines = [0]
        for line in text.splitlines(keepends=True):
            lines.append(lines[-1] + len(line))
        definitions = []
        for file, span, kind, name in _items(run.stdout.split("\n")):
            start, stop = lines[span[0] - 1] + span[1] - 1, lines[span[2] - 1] + span[3] - 1
            if kind == "Impl":
                names: Names = (" ".join(re.split(r"\{|\bwhere\b", text[start:stop])[0].split()),)
            elif name and file == path.name and not (kind == "Mod" and text[stop - 1] == ";"):
                names = (name,)
            else:
                continue
            definitions.append((start, stop, names))
        yield Oracle(definitions, [match.span() for match in _NO_CODE.finditer(text)])


def _items(lines: list[str]) -> Iterator[tuple[str, tuple[int, ...], str, str | None]]:
    """The items in rustc's print of a syntax tree: file, span, kind, and name.

    An item has its span, its visibility and its kind at the same indentation, in this order.
    """
    for number, line in enumerate(lines):
        span = _SPAN.fullmatch(line)
        if not span or lines[number + 1] != f"{span[1]}vis: Visibility {{":
            continue
        end = lines.index(f"{span[1]}}},", number)
        kind = _KIND.fullmatch(lines[end + 1])
        if kind:
            names = (_IDENTIFIER.search(below) for below in lines[end + 2 : end + 5])
            name = next((match[1] for match in names if match), None)
            yield span[2], tuple(int(span[group]) for group in (3, 4, 5, 6)), kind[1], name


PARSERS = {"python": of_python, "go": of_go, "rust": of_rust, "javascript": of_javascript}


def files(folders: Iterable[Path], ending: str) -> list[Path]:
    """At most `FILES` ASCII files below the folders, in random order."""
    paths = sorted(path for folder in folders for path in folder.rglob(f"*{ending}") if path.is_file())
    paths = [path for path in paths if 0 < path.stat().st_size <= MAX_FILE and _is_plain(path.read_bytes())]
    return random.Random(SEED).sample(paths, min(FILES, len(paths)))


def _is_plain(data: bytes) -> bool:
    """Whether a file is ASCII, and names no module of Rust in another file, which rustc would print too."""
    return data.isascii() and not re.search(rb"^\s*(?:pub(?:\(\w+\))? )?mod \w+;", data, re.MULTILINE)


def passages(path: Path, encoder: Encoder) -> list[Chunk]:
    try:
        document = read(path.read_bytes(), path.name)
    except UnreadableError:
        return []
    return chunk(document, encoder.offsets, encoder.max_tokens)


def measure(language: str, options: argparse.Namespace, encoder: Encoder) -> dict[str, Any]:
    """Compare the headings of random passages of one language with its parser."""
    paths = files(getattr(options, language), ENDINGS[language])
    oracles = dict(zip(paths, PARSERS[language](paths, options), strict=True))
    start = time.process_time()
    chunks = [(path, piece) for path in paths if oracles[path] for piece in passages(path, encoder)]
    seconds = time.process_time() - start
    right, wrong, with_heading, checked = 0, [], 0, 0
    for path, piece in random.Random(SEED).sample(chunks, len(chunks)):
        if checked == options.count:
            break
        text = path.read_text()
        expected = oracles[path].heading(text, piece.start, piece.end)
        if expected is None or text[piece.start : piece.end] != piece.text:
            continue
        checked += 1
        with_heading += bool(piece.heading)
        if piece.heading == expected or (piece.heading and piece.heading == expected[-len(piece.heading) :]):
            right += 1
        else:
            citation = f"{path.name}:{piece.line_start}-{piece.line_end}"
            wrong.append({"place": citation, "expected": expected, "heading": piece.heading})
    size = sum(path.stat().st_size for path in paths if oracles[path])
    return {
        "files": sum(map(bool, oracles.values())),
        "passages": len(chunks),
        "checked": checked,
        "right": right,
        "with_heading": with_heading,
        "mb_per_second": round(size / seconds / 1e6, 2),
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for language in PARSERS:
        parser.add_argument(f"--{language}", type=Path, nargs="+", required=True, metavar="FOLDER")
    parser.add_argument("--go-command", default="go")
    parser.add_argument("--babel", type=Path, required=True, help="a folder with @babel/parser in its node_modules")
    parser.add_argument("--count", type=int, default=100, help="passages of each language")
    options = parser.parse_args()
    encoder = load_encoder()
    languages = {}
    for language in PARSERS:
        languages[language] = measure(language, options, encoder)
        print(language, languages[language]["right"], "of", languages[language]["checked"], flush=True)
    checked, right = (sum(result[key] for result in languages.values()) for key in ("checked", "right"))
    save("code_symbols", {"checked": checked, "right": right, "share": right / checked, **languages}, seed=SEED)


if __name__ == "__main__":
    main()
