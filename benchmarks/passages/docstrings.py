"""Code cut at its definitions against the cutting without a parser: does a question find its function?

    python -m benchmarks.passages.docstrings --tree NAME=FOLDER --tree NAME=FOLDER [--count 200]

The first sentence of a function's docstring is the question, and the function is the answer. The index holds a copy of
the Python files without the docstrings of functions. A hit is right if half of its lines, or half of the function's
lines, are in both. nDCG@10 counts the first right hit; the rate is passages a second of processor time, reading and
encoding included. Both cuttings answer the same questions, in one run.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import random
import re
import resource
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle.retriever.retriever import Retriever
from binocle.training.evaluation.significance import difference

from ..machine import save

if TYPE_CHECKING:
    from binocle.retriever.search.results.hit import Hit

SEED, QUESTIONS, TOP, WORDS = 0, 200, 10, 5
ENDINGS = {"definitions": ".py", "plain": ".lua"}  # Lua has no parser here; the name of a file is not searched
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Question:
    text: str
    path: str
    lines: tuple[int, int]  # of the function in the copy, without its docstring

    def is_answered(self, hit: Hit) -> bool:
        """Whether a hit and the function have half of the lines of the shorter one in common."""
        first, last = self.lines
        shared = min(hit.line_end, last) - max(hit.line_start, first) + 1
        return hit.path == self.path and 2 * shared >= min(hit.line_end - hit.line_start, last - first) + 1


def copy_of(source: str) -> tuple[str, list[tuple[str, int, int]]]:
    """A source without the docstrings of its functions; the first sentence of each, and the function's new lines."""
    lines = source.split("\n")
    gone: set[int] = set()  # lines, from 1
    documented = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function) and len(node.body) > 1 and (docstring := ast.get_docstring(node)):
            gone.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
            documented.append((sentence(docstring), node.lineno, node.end_lineno))
    remaining = [number for number in range(1, len(lines) + 1) if number not in gone]
    new_numbers = {number: new_number for new_number, number in enumerate(remaining, 1)}
    questions = [
        (text, new_numbers[first], new_numbers[last])
        for text, first, last in documented
        if len(text.split()) >= WORDS and first in new_numbers and last in new_numbers
    ]
    return "\n".join(lines[number - 1] for number in remaining), questions


def sentence(docstring: str) -> str:
    """The first sentence, without marks of reStructuredText."""
    paragraph = " ".join(docstring.split("\n\n", maxsplit=1)[0].split())
    return re.sub(r":\w+:|[`*]", "", re.split(r"(?<=[.!?])\s", paragraph)[0]).strip()


def write_copies(folder: Path, copies: Path, ending: str, count: int) -> list[Question]:
    """Copy a tree without docstrings, and return questions on it."""
    questions = []
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).with_suffix(ending)
        try:
            text, documented = copy_of(path.read_text("utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        (copies / name).parent.mkdir(parents=True, exist_ok=True)
        (copies / name).write_text(text, "utf-8")
        questions += [Question(text, str(name), (first, last)) for text, first, last in documented]
    by_text = {question.text: question for question in questions}
    alone = [question for question in by_text.values() if sum(item.text == question.text for item in questions) == 1]
    return random.Random(SEED).sample(alone, min(count, len(alone)))


def processor_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(copies: Path, index: Path, questions: list[Question]) -> dict[str, Any]:
    """Fill an index as the present cutting does, and ask all questions."""
    start = processor_seconds()
    retriever = Retriever.open(index)
    retriever.sync(copies)
    seconds = processor_seconds() - start
    passages = retriever.snapshot().chunks.count_rows()
    gains = []
    for question in questions:
        hits = retriever.search(question.text, TOP, collapse=False)
        ranks = [rank for rank, hit in enumerate(hits, 1) if question.is_answered(hit)]
        gains.append(1 / math.log2(1 + ranks[0]) if ranks else 0.0)
    return {
        "passages": passages,
        "passages_per_second": round(passages / seconds, 1),
        "ndcg_at_10": round(sum(gains) / len(gains), 4),
        "found_at_10": round(sum(gain > 0 for gain in gains) / len(gains), 4),
        "gains": gains,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", action="append", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--count", type=int, default=QUESTIONS, help="questions of each tree")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for tree in options.tree:
        name, _, folder = tree.partition("=")
        with tempfile.TemporaryDirectory() as temporary:
            results[name] = compare(Path(folder), Path(temporary), options.count)
        print(name, json.dumps(results[name]), flush=True)
    save("docstrings", results, seed=SEED)


def compare(folder: Path, work: Path, count: int) -> dict[str, Any]:
    """Both cuttings of one tree; the gain of cutting at definitions with its 95 % interval and p."""
    result: dict[str, Any] = {}
    gains = {}
    for name, ending in ENDINGS.items():
        questions = write_copies(folder, work / name, ending, count)
        result[name] = measure(work / name, work / f"{name}-index", questions)
        gains[name] = result[name].pop("gains")
    gain = difference(gains["definitions"], gains["plain"])
    return {
        "questions": len(questions),
        **result,
        "gain": {key: round(value, 4) for key, value in asdict(gain).items()},
    }


if __name__ == "__main__":
    main()
