"""Test collections in BEIR's layout, also made from question answering and package descriptions.

SQuAD      a question must find its paragraph (400 of the development set's questions, or `count`)
Debian     a package's one-line description must find its long one (400 of 6,000 packages, or `count`)
tldr       what a command is must find its page, which says how to use it (400 of 2,000 pages, or `count`)

`log.txt` beside the queries has others without judgements, one a line: other questions, and other packages' lines.
"""

from __future__ import annotations

import gzip
import json
import random
import tarfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_QUERIES = 400
_PACKAGES = 6_000
_PAGES = 2_000
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


def tldr(archive: Path, folder: Path, *, seed: int = 0, count: int = _QUERIES) -> Path:
    """From `docs_tldr.tar.gz`: a page's description, in lines that begin with ">", and the rest of the page."""
    rows = []
    with tarfile.open(archive) as files:
        for member in files:
            if member.name.endswith(".md") and "/pages/" in member.name and (stream := files.extractfile(member)):
                lines = stream.read().decode("utf-8").splitlines()
                about = [line[2:] for line in lines if line.startswith("> ") and "More information" not in line]
                rest = [line for line in lines[1:] if line.strip() and not line.startswith(">")]
                if len(rest) > 3 and len(" ".join(about).split()) > 3:
                    rows.append((member.name, lines[0].removeprefix("# "), "\n".join(rest), " ".join(about)))
    random.Random(seed).shuffle(rows)
    documents = [(name, title, text) for name, title, text, _ in rows[:_PAGES]]
    queries = [(name, about) for name, _, _, about in rows[:count]]
    return _write(folder, documents, queries, [about for *_, about in rows[count:_PAGES]])


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
