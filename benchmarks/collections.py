"""Test collections in BEIR's layout, also made from question answering and package descriptions.

SQuAD      a question must find its paragraph (400 of the development set's questions, or `count`)
Debian     a package's one-line description must find its long one (400 of 6,000 packages, or `count`)

`log.txt` beside the queries has others without judgements, one a line: other questions, and other packages' lines.
"""

from __future__ import annotations

import gzip
import json
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_QUERIES = 400
_PACKAGES = 6_000
_LOGGED = 1_000  # queries of a log at most


def squad(file: Path, folder: Path, *, seed: int = 0, count: int = _QUERIES) -> Path:
    """From `squad11_dev.jsonl.gz`: one paragraph a line with title, context and qas."""
    documents, queries, log = [], [], []
    for number, row in enumerate(_lines(file)):
        documents.append((f"p{number}", row["title"].replace("_", " "), row["context"]))
        queries.append((f"p{number}", row["qas"][0]["question"]))
        log += [qa["question"] for qa in row["qas"][1:]]
    random.Random(seed).shuffle(queries)
    random.Random(seed).shuffle(log)
    return _write(folder, documents, queries[:count], log)


def debian(file: Path, folder: Path, *, seed: int = 0, count: int = _QUERIES) -> Path:
    """From `debian12_descriptions.jsonl.gz`: package, short and long description; long ones of 150 characters up."""
    seen: set[str] = set()
    rows = []
    for row in _lines(file):
        if len(row["long"]) >= 150 and row["long"] not in seen:
            seen.add(row["long"])
            rows.append(row)
    random.Random(seed).shuffle(rows)
    rows = rows[:_PACKAGES]
    documents = [(row["package"], "", row["long"]) for row in rows]
    queries = [(row["package"], row["short"]) for row in rows[:count]]
    return _write(folder, documents, queries, [row["short"] for row in rows[count:]])


def _lines(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def _write(folder: Path, documents: list[tuple[str, str, str]], queries: list[tuple[str, str]], log: list[str]) -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as stream:
        for name, title, text in documents:
            stream.write(json.dumps({"_id": name, "title": title, "text": text}) + "\n")
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as stream:
        for name, text in queries:
            stream.write(json.dumps({"_id": name, "text": text}) + "\n")
    judged = {text for _, text in queries}
    others = [text for text in dict.fromkeys(log) if text not in judged][:_LOGGED]
    (folder / "log.txt").write_text("".join(f"{text}\n" for text in others), "utf-8")
    rows = "".join(f"{name}\t{name}\t1\n" for name, _ in queries)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows, "utf-8")
    return folder
