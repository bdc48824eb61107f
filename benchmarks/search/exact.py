"""Whether exact parts of a query come first: rare tokens, names defined once, and phrases, with grep as the truth.

    python -m benchmarks.search.exact FOLDER...

Each folder is indexed, unless it holds an index. The passages of the index are written to files of their own, and
`grep -wF` says which of them hold a token. A token is rare if at most three do. A definition is where Python's own
parser sees it. A phrase is right if every hit holds it.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle.retriever.retriever import Retriever

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from binocle.retriever.search.results.hit import Hit

_KINDS = {
    "snake_case": r"(?<![\w./-])[a-z]+(?:_[a-z0-9]+)+(?![\w./-])",
    "CamelCase": r"(?<![\w./-])(?:[A-Z][a-z]+){2,}(?![\w./-])",
    "numbers": r"(?<![\w.,/#-])\d{3,}(?:\.\d+)?(?![\w.,/-])",
    "codes with #": r"(?<![\w&#])#(?=[A-Za-z]*\d)[0-9A-Fa-f]{2,}(?![\w-])",
    "paths": r"(?<![\w./:-])\w+(?:/[\w-]+)+\.[a-z]{1,4}(?![\w/-])",
}
_TOKENS, _NAMES, _PHRASES = 40, 60, 40
_RARE = 3  # passages
_DEPTHS = (1, 3, 10)
_MODES = ("hybrid", "lexical")
_CANDIDATES = 20  # times as many tokens are tried as are needed: most are too common


def tokens(passages: Path, kind: str, random_: random.Random) -> dict[str, set[int]]:
    """Rare tokens of a kind, each with the ids of the passages that hold it."""
    pattern = re.compile(_KINDS[kind])
    texts = (file.read_text("utf-8") for file in passages.iterdir())
    candidates = sorted({token for text in texts for token in pattern.findall(text)})
    random_.shuffle(candidates)
    rare = {}
    for token in candidates[: _TOKENS * _CANDIDATES]:
        holders = grep(passages, token)
        if 1 <= len(holders) <= _RARE:
            rare[token] = holders
        if len(rare) == _TOKENS:
            break
    return rare


def grep(passages: Path, token: str) -> set[int]:
    """The ids of the passages that hold a token as a whole word."""
    command = ["grep", "-rlwF", "--", token, str(passages)]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return {int(Path(line).name) for line in lines}


def definitions(retriever: Retriever, random_: random.Random) -> dict[str, tuple[str, int]]:
    """Names that Python files define exactly once, each with the path and the line."""
    lines_by_name: dict[str, list[tuple[str, int]]] = {}
    for row in retriever.documents():
        if not row["path"].endswith(".py") or not row["chunks"]:
            continue
        for node in ast.walk(ast.parse(retriever.text(row["path"]))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                lines_by_name.setdefault(node.name, []).append((row["path"], node.lineno))
    once = sorted(name for name, locations in lines_by_name.items() if len(locations) == 1 and len(name) > 3)
    return {name: lines_by_name[name][0] for name in random_.sample(once, min(_NAMES, len(once)))}


def phrases(passages: Path, random_: random.Random) -> Iterator[str]:
    """Three to five neighbouring words of passages."""
    files = sorted(passages.iterdir())
    random_.shuffle(files)
    count = 0
    for file in files:
        words = re.findall(r"\b[^\W\d_]{2,}(?: [^\W\d_]{2,}){2,4}\b", file.read_text("utf-8"))
        if words and count < _PHRASES:
            count += 1
            yield random_.choice(words)


def ranks(search: Callable[[str], list[Hit]], right: dict[str, Callable[[Hit], bool]]) -> dict[str, Any]:
    """How many queries have a right hit at each depth, and which have none at the first place."""
    first: dict[str, int | None] = {}
    for query, is_right in right.items():
        first[query] = next((hit.rank for hit in search(query) if is_right(hit)), None)
    return {
        "queries": len(first),
        **{f"top {depth}": sum(rank is not None and rank <= depth for rank in first.values()) for depth in _DEPTHS},
        "not first": {query: rank for query, rank in first.items() if rank != 1},
    }


def measure(retriever: Retriever, passages: Path) -> dict[str, Any]:
    """Results by kind of query and mode."""
    table = retriever.snapshot().read("chunks", ["id", "context"])
    for number, context in zip(table["id"].to_pylist(), table["context"].to_pylist(), strict=True):
        (passages / str(number)).write_text(context, "utf-8")
    random_ = random.Random(0)
    right: dict[str, dict[str, Callable[[Hit], bool]]] = {}
    for kind in _KINDS:
        rare = tokens(passages, kind, random_)
        right[kind] = {token: lambda hit, holders=holders: hit.passage in holders for token, holders in rare.items()}
    right["names defined once"] = {
        name: lambda hit, location=location: hit.path == location[0] and hit.line_start <= location[1] <= hit.line_end
        for name, location in definitions(retriever, random_).items()
    }
    results: dict[str, Any] = {"passages": len(table)}
    for mode in _MODES:
        results[mode] = {
            kind: ranks(lambda query: retriever.search(query, mode=mode), checks)  # noqa: B023
            for kind, checks in right.items()
            if checks
        }
    wrong = {}
    sample = list(phrases(passages, random_))
    for phrase in sample:
        hits = retriever.search(f'"{phrase}"')
        if not hits or any(phrase.casefold() not in " ".join(hit.context.split()).casefold() for hit in hits):
            wrong[phrase] = len(hits)
    results["phrases in quotes"] = {"queries": len(sample), "right": len(sample) - len(wrong), "wrong": wrong}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="FOLDER", type=Path, nargs="+")
    results = {}
    for folder in parser.parse_args().folders:
        with tempfile.TemporaryDirectory() as temporary:
            is_indexed = (folder / ".binocle").is_dir()
            retriever = Retriever.open(folder if is_indexed else Path(temporary, "index"))
            if not is_indexed:
                retriever.sync(folder)
            passages = Path(temporary, "passages")
            passages.mkdir()
            results[folder.name] = measure(retriever, passages)
    kinds = [*_KINDS, "names defined once"]
    means = {
        mode: {kind: summed([result[mode].get(kind, {}) for result in results.values()]) for kind in kinds}
        for mode in _MODES
    }
    save("exact", {"all": means, **results}, seed=0)


def summed(rows: list[dict[str, Any]]) -> dict[str, int]:
    """The counts of several folders together."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update({name: count for name, count in row.items() if isinstance(count, int)})
    return dict(total)


if __name__ == "__main__":
    main()
