"""Test collections in BEIR's layout, also made from question answering, package descriptions and older formats.

SQuAD      a question must find its paragraph (400 of the development set's questions, or `count`).
Debian     a package's one-line description must find its long one (400 of 6,000 packages, or `count`).
tldr       the description of a command must find the page on its use (400 of 2,000 pages, or `count`).

`log.txt` beside the queries has others without judgements, one a line: other questions, and other packages' lines.

Three collections judged by people, in the files that http://ir.dcs.gla.ac.uk/resources/test_collections/ offers:

CACM       3,204 titles and abstracts on computing, 52 queries (cacm.all, query.text, qrels.text).
CISI       1,460 titles and abstracts on libraries, 76 queries (CISI.ALL, CISI.QRY, CISI.REL).
NPL        11,400 abstracts on electronics, 93 queries (doc-text, query-text, rlv-ass).
"""

from __future__ import annotations

import gzip
import json
import random
import re
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
    known: set[str] = set()
    rows = []
    for row in _lines(file):
        if len(row["long"]) >= 150 and row["long"] not in known:
            known.add(row["long"])
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


def cacm(source: Path, folder: Path) -> Path:
    """From a folder with `cacm.all`, `query.text` and `qrels.text`."""
    judgements = [line.split()[:2] for line in _read(source / "qrels.text").splitlines() if line.strip()]
    qrels = [(str(int(query)), str(int(document))) for query, document in judgements]
    return _write_smart(folder, source / "cacm.all", source / "query.text", qrels)


def cisi(source: Path, folder: Path) -> Path:
    """From a folder with `CISI.ALL`, `CISI.QRY` and `CISI.REL`."""
    judgements = [line.split()[:2] for line in _read(source / "CISI.REL").splitlines() if line.strip()]
    qrels = [(query, document) for query, document in judgements]
    return _write_smart(folder, source / "CISI.ALL", source / "CISI.QRY", qrels)


def npl(source: Path, folder: Path) -> Path:
    """From a folder with `doc-text`, `query-text` and `rlv-ass`: numbered items, each ended by a line with a slash."""

    def items(name: str) -> dict[str, str]:
        parts = re.split(r"^\s*/\s*$", _read(source / name), flags=re.MULTILINE)
        numbered = [part.split(maxsplit=1) for part in parts if part.strip()]
        return {number: " ".join(text.split()) for number, text in numbered}

    documents = [(number, "", text) for number, text in items("doc-text").items()]
    qrels = [(query, document) for query, judged in items("rlv-ass").items() for document in judged.split()]
    queries = [(number, text.lower()) for number, text in items("query-text").items()]  # documents have no capitals
    _write_texts(folder, documents, queries)
    return _write_qrels(folder, qrels)


UNSEEN = {"cacm": cacm, "cisi": cisi, "npl": npl}  # nothing was chosen on them


def unseen(data: Path, work: Path) -> dict[str, Path]:
    """Bring CACM, CISI and NPL into BEIR's layout, as far as `data` has them, and return their folders."""
    return {name: read(data / name, work / name) for name, read in UNSEEN.items() if (data / name).is_dir()}


def _write_smart(folder: Path, documents: Path, queries: Path, qrels: list[tuple[str, str]]) -> Path:
    """From two files of the SMART system, with `.T` for titles and `.W` for texts."""
    texts = [(number, item.get("T", ""), item.get("W", "")) for number, item in _smart(documents).items()]
    queries_by_number = {
        number: f"{item.get('T', '')} {item.get('W', '')}".strip() for number, item in _smart(queries).items()
    }
    _write_texts(folder, texts, list(queries_by_number.items()))
    return _write_qrels(folder, qrels)


def _smart(file: Path) -> dict[str, dict[str, str]]:
    """The fields of each item by its number. `.I NUMBER` begins an item, a dot and a letter begin a field."""
    items: dict[str, dict[str, str]] = {}
    for item in re.split(r"^\.I\s+", _read(file), flags=re.MULTILINE)[1:]:
        number, *fields = re.split(r"^\.([A-Z])\s*$", item, flags=re.MULTILINE)
        items[number.strip()] = {
            name: " ".join(text.split()) for name, text in zip(fields[::2], fields[1::2], strict=True)
        }
    return items


def _read(file: Path) -> str:
    return file.read_text("latin-1").replace("\r\n", "\n")


def _lines(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def _write(folder: Path, documents: list[tuple[str, str, str]], queries: list[tuple[str, str]], log: list[str]) -> Path:
    """Each query has the name of the document that answers it."""
    _write_texts(folder, documents, queries)
    judged = {text for _, text in queries}
    logged = [text for text in dict.fromkeys(log) if text not in judged][:_LOGGED]
    (folder / "log.txt").write_text("".join(f"{text}\n" for text in logged), "utf-8")
    return _write_qrels(folder, [(name, name) for name, _ in queries])


def _write_texts(folder: Path, documents: list[tuple[str, str, str]], queries: list[tuple[str, str]]) -> None:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as stream:
        for name, title, text in documents:
            stream.write(json.dumps({"_id": name, "title": title, "text": text}) + "\n")
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as stream:
        for name, text in queries:
            stream.write(json.dumps({"_id": name, "text": text}) + "\n")


def _write_qrels(folder: Path, qrels: list[tuple[str, str]]) -> Path:
    """:param qrels: each query with a document that is relevant to it."""
    rows = "".join(f"{query}\t{document}\t1\n" for query, document in qrels)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows, "utf-8")
    return folder
