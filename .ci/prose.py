"""Hold the names and the prose to plain English: `python .ci/prose.py [PATH ...]`, exit 1 with a line for each breach.

- No name is a word for the thing's history, such as made or given.
- A sentence of a docstring or comment has at most 25 words.
- Relative clauses that open with "of which" and the like stay rare: 2 in 1,000 words.

A line that ends with `# prose: REASON` is let through. `--count` prints the totals of each path instead.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("__init__.py", "cli.py", "core", "indexes", "retriever", "training", "commands", "benchmarks")
LONGEST = 25  # words in a sentence
CLAUSES = 2.0  # inverted clauses in 1,000 words, over all paths
NAMES = frozenset(
    [
        "made",
        "found",
        "given",
        "held",
        "told",
        "asked",
        "wanted",
        "some",
        "one",
        "place",
        "places",
        "other",
        "seen",
        "kept",
        "lost",
        "least",
        "most",
        "few",
        "many",
        "others",
        "tell",
    ]
)
CLAUSE = re.compile(
    r"\b(of which|of whom|in which|by which|to which|from which|than which|what is|"
    r"what was|what are|what it|what the|what they|"
    r"what an?|those that|those of|that which|as it is|as they are|as it was|who wants|who has|of those|the ones? that|"
    r"for what|by what|of what|to what|with what|from what|than what|whose|where there (?:is|are) none)\b",
    re.IGNORECASE,
)
ENDS = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*(?=[-*>:])|\n {4,}")


def main(arguments: list[str]) -> int:
    count = "--count" in arguments
    paths = [Path(name).resolve() for name in arguments if name != "--count"] or [ROOT / name for name in ROOMS]
    breaches, words, clauses, bindings, bad = [], 0, 0, 0, 0
    for file in sorted({file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])}):
        source = file.read_text("utf-8")
        excused = {number for number, line in enumerate(source.splitlines(), 1) if "# prose:" in line}
        name = file.relative_to(ROOT)
        for number, binding in names(ast.parse(source)):
            bindings += 1
            if binding.strip("_").lower() in NAMES and number not in excused:
                bad += 1
                breaches.append(f"{name}:{number}: name {binding!r}: name the thing, not what happened to it")
        for number, text in prose(source):
            words += len(re.findall(r"\w+", text))
            opened = [] if number in excused else CLAUSE.findall(text)
            clauses += len(opened)
            if opened and count is False:
                breaches.extend(f"{name}:{number}: clause {clause!r} (warning)" for clause in opened)
            for sentence in ENDS.split(text):
                size = len(re.findall(r"[\w'-]+", re.sub(r"`[^`]*`|\([^()]*\)", "x", sentence)))
                if size > LONGEST and number not in excused:
                    breaches.append(f"{name}:{number}: sentence of {size} words: {' '.join(sentence.split())[:60]}…")
    rate = 1_000 * clauses / max(1, words)
    if count:
        print(f"{words} words, {rate:.1f} clauses in 1,000; {bad} of {bindings} names; {len(breaches)} breaches")
        return 0
    severe = [breach for breach in breaches if not breach.endswith("(warning)")]
    shown = breaches if arguments or rate > CLAUSES else severe
    print(*shown, sep="\n", end="\n" * bool(shown))
    if rate > CLAUSES:
        print(f"{rate:.1f} inverted clauses in 1,000 words of prose: at most {CLAUSES} are allowed")
    return int(bool(severe) or rate > CLAUSES)


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every binding with its line: functions, classes, constants, locals, parameters, attributes of self."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings, and comments with those on the next lines, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.lineno, re.sub(r"\n\s*>>>.*", "", first.value.value)
    block: list[str] = []
    begun = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = re.sub(r"^#\s*(noqa|type:|prose:|fmt:).*", "", token.string).lstrip("# ")
        alone = token.line.lstrip().startswith("#")
        if block and (token.start[0] != last + 1 or not alone):
            yield begun, " ".join(block)
            block = []
        if not block:
            begun = token.start[0]
        block.append(text)
        last = token.start[0]
    if block:
        yield begun, " ".join(block)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
