"""From a folder of documents to the first answer, beside other tools: `python -m benchmarks.speed.first_answer`.

    python -m benchmarks.speed.first_answer --folder DIR [--rounds 3] [--tools binocle,lancedb,chroma,txtai]

Every tool has the same encoder, all-MiniLM-L6-v2 from the same folder, and is used as its own documentation shows: it
reads the texts of the folder, embeds them, stores them on disk and answers one question. The tools take turns. Binocle
runs as two commands, `index` and `search`, and so starts twice. The others start once. They get one text per file;
Binocle cuts long ones into passages, and builds an index of words as well.

    pip install chromadb txtai lancedb
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from binocle.retriever.models.model_files import DEFAULT_MODEL, find

from ..machine import save

_READ = """
import pathlib, sys
folder, model, question, store = sys.argv[1:]
files = [file for file in sorted(pathlib.Path(folder).rglob("*.md"))]
paths = [str(file.relative_to(folder)) for file in files]
texts = [file.read_text("utf-8") for file in files]
"""

_TOOLS = {
    "lancedb": """
import lancedb
from lancedb.embeddings import get_registry
from lancedb.pydantic import LanceModel, Vector

encoder = get_registry().get("sentence-transformers").create(name=model)

class Page(LanceModel):
    path: str
    text: str = encoder.SourceField()
    vector: Vector(encoder.ndims()) = encoder.VectorField()

table = lancedb.connect(store).create_table("pages", schema=Page)
table.add([{"path": path, "text": text} for path, text in zip(paths, texts)])
print(table.search(question).limit(1).to_list()[0]["path"])
""",
    "chroma": """
import chromadb
from chromadb.utils.embedding_functions import SentenceTransformerEmbeddingFunction

client = chromadb.PersistentClient(path=store)
encoder = SentenceTransformerEmbeddingFunction(model_name=model)
pages = client.create_collection("pages", embedding_function=encoder)
size = client.get_max_batch_size()
for start in range(0, len(paths), size):
    pages.add(ids=paths[start : start + size], documents=texts[start : start + size])
print(pages.query(query_texts=[question], n_results=1)["ids"][0][0])
""",
    "txtai": """
from txtai import Embeddings

embeddings = Embeddings(path=model, content=True)
embeddings.index(zip(paths, texts))
embeddings.save(store)
print(embeddings.search(question, 1)[0]["id"])
""",
}
_QUESTION = "list the files of an archive without extracting it"


def _seconds(commands: list[list[str]]) -> tuple[float, str]:
    """Run commands one after another; return their time, and the last line of the last one."""
    began = time.perf_counter()
    output = ""
    for command in commands:
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return time.perf_counter() - began, output.strip().split("\n")[-1]


def _commands(tool: str, folder: Path, store: Path, model: str) -> list[list[str]]:
    if tool == "binocle":
        binocle = [sys.executable, "-m", "binocle.cli"]
        copied = shutil.copytree(folder, store / "folder")
        return [[*binocle, "index", str(copied)], [*binocle, "search", _QUESTION, str(copied), "-k", "1", "--json"]]
    return [[sys.executable, "-c", _READ + _TOOLS[tool], str(folder), model, _QUESTION, str(store / "store")]]


def measure(folder: Path, tools: list[str], rounds: int) -> dict[str, Any]:
    """Time all tools in turn, so that a change of the machine's speed meets all of them."""
    model = str(find(DEFAULT_MODEL))
    taken: dict[str, list[float]] = {tool: [] for tool in tools}
    answers: dict[str, str] = {}
    for _ in range(rounds):
        for tool in tools:
            with tempfile.TemporaryDirectory() as store:
                seconds, answer = _seconds(_commands(tool, folder, Path(store), model))
            answers[tool] = json.loads(answer)["path"] if tool == "binocle" else answer
            taken[tool].append(seconds)
            print(f"{tool}: {seconds:.1f} s", file=sys.stderr, flush=True)
    results: dict[str, Any] = {
        tool: {
            "seconds": [round(seconds, 1) for seconds in of],
            "median": round(statistics.median(of), 1),
            "times binocle's": round(statistics.median(a / b for a, b in zip(of, taken["binocle"], strict=True)), 2),
            "answer": answers[tool],
        }
        for tool, of in taken.items()
    }
    return {"files": sum(1 for _ in folder.rglob("*.md")), "question": _QUESTION, "tools": results}


def main() -> None:
    """Measure, and save the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tools", default="binocle,lancedb,chroma,txtai")
    options = parser.parse_args()
    tools = ["binocle", *(tool for tool in options.tools.split(",") if tool != "binocle")]
    save("first_answer", measure(options.folder, tools, options.rounds))


if __name__ == "__main__":
    main()
