"""How often a search says that an index has an answer, where it has one and where it has none; and typing errors.

    python -m benchmarks.search.relevance --data DIR [--unseen DIR] [--indexes DIR]

The folder of --data holds scifact/ and cranfield/ in BEIR's layout, squad11/squad11_dev.jsonl.gz, docs_rust_book/ and
docs_tldr.tar.gz; a collection that is missing is left out. Each collection is asked its own queries, queries of the
others, everyday questions and nonsense. Of its own queries, 200 are asked again with one typing error in one word.

The folder of --unseen holds cacm/, cisi/ and npl/ with the files that `benchmarks.collections` names. Then these
collections are asked in place of the others. Nothing was chosen on them.

The indexes are made in the folder of --indexes, and used again if they are there.
"""

from __future__ import annotations

import argparse
import random
import re
import string
import tarfile
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.retriever import Retriever
from binocle.training.data import beir
from binocle.training.evaluation.indexed_collection import fill
from binocle.training.evaluation.measures import ndcg_at_10

from .. import collections
from ..machine import save

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

QUERIES = 200  # of a collection, at most
UNRELATED = {  # it does not answer the queries of these; tldr and the Rust book both treat commands
    "scifact": ("tldr", "rust", "cranfield"),
    "cranfield": ("scifact", "rust", "tldr"),
    "squad": ("scifact", "cranfield", "rust", "tldr"),
    "rust": ("scifact", "cranfield", "squad"),
    "tldr": ("scifact", "cranfield", "squad"),
    "cacm": ("scifact", "cranfield", "squad"),
    "cisi": ("scifact", "cranfield", "squad", "rust"),
    "npl": ("scifact", "squad", "rust"),
}
RUST = [
    "how do I install rust on my machine",
    "what is the difference between a mutable variable and shadowing",
    "how does the compiler decide which type a number has",
    "why can I not use a value after it has moved",
    "can I have two mutable references at once",
    "what is a dangling reference",
    "how do I take part of a string without copying it",
    "how do I define a struct with named fields",
    "how to print a struct for debugging",
    "what does a method take as its first parameter",
    "how do enums hold different kinds of data",
    "what replaces null in this language",
    "how to handle only one case of a match",
    "how do I split a package into modules",
    "how do I make a function visible outside its module",
    "how to add an element to the end of a vector",
    "why can't I index into a string",
    "how do I count words with a hash map",
    "when should a program panic instead of returning an error",
    "how does the question mark operator propagate errors",
    "how to write a function for several types without duplicating code",
    "how do I share behaviour between types",
    "why does a function that returns a reference need a lifetime",
    "how do I write a test that expects a panic",
    "how to run only some of the tests",
    "where do integration tests go",
    "how do I read the arguments of the command line",
    "how do I read an environment variable",
    "how to print errors to standard error",
    "what does a closure capture from its environment",
    "are iterators as fast as loops",
    "how do I publish my library so that others can use it",
    "how do several crates share one lock file",
    "when do I need to store data on the heap with a box",
    "what runs when a value goes out of scope",
    "how can several owners share one value",
    "how can two values that point to each other leak memory",
    "how to start a thread and wait until it finishes",
    "how do threads send messages to each other",
    "what makes a piece of code unsafe",
]
EVERYDAY = [  # none that `search.everyday` measures with
    "capital of mongolia",
    "best recipe for apple pie",
    "who won the world cup in 1998",
    "how tall is mount everest",
    "symptoms of a broken ankle",
    "train times from berlin to munich",
    "how to tune a guitar",
    "what do koalas eat",
    "biography of napoleon bonaparte",
    "how to get a mortgage with bad credit",
    "paint colours for a small bedroom",
    "rules of badminton",
    "when was the eiffel tower built",
    "how to grow tomatoes on a balcony",
    "cheap flights to lisbon",
    "what is the tallest animal",
    "lyrics of yesterday by the beatles",
    "how to knit a scarf",
    "price of gold today",
    "who wrote hamlet",
    "my cat does not eat",
    "income tax deadline",
    "population of brazil",
    "how to change a bicycle tyre",
    "wedding speech for the best man",
    "vegan chocolate cake",
    "history of the ottoman empire",
    "hotels near the beach in spain",
    "how to remove red wine stains",
    "what is the speed of light",
    "kings of england in order",
    "how to iron a shirt",
    "football results saturday",
    "opening hours of the louvre",
    "planets of the solar system",
    "how to train a puppy",
    "what causes earthquakes",
    "yoga for back pain",
    "the meaning of life",
    "which wine goes with fish",
]


def nonsense(count: int = 100, *, seed: int = 2) -> list[str]:
    draw = random.Random(seed)

    def word() -> str:
        return "".join(draw.choices(string.ascii_lowercase, k=draw.randint(4, 12)))

    return [" ".join(word() for _ in range(draw.choice((1, 2, 2, 3, 4)))) for _ in range(count)]


def tldr_questions(folder: Path, *, seed: int = 1) -> list[str]:
    """Questions made from the descriptions of pages and of their examples."""
    draw = random.Random(seed)
    pages = sorted(page for part in ("common", "linux") for page in folder.rglob(f"pages/{part}/*.md"))
    questions = []
    for page in draw.sample(pages, QUERIES):
        text = page.read_text("utf-8")
        examples = [re.sub(r"[\[\]`]", "", example) for example in re.findall(r"^- (.*):$", text, re.MULTILINE)]
        descriptions = re.findall(r"^> (.*?)\.?$", text, re.MULTILINE)
        if examples and draw.random() < 0.6:
            example = draw.choice(examples)
            form = draw.choice(("how to {}", "how do I {}", "command to {}", "{}"))
            questions.append(form.format(example[:1].lower() + example[1:]))
        else:
            questions.append(f"what command is for: {descriptions[0].lower()}")
    return questions


def with_typing_error(text: str, draw: random.Random) -> str:
    """One letter left out, doubled, replaced, or swapped with the next, in a word of five letters or more."""
    words = [match.span() for match in re.finditer(r"[a-z]{5,}", text)]
    if not words:
        return text
    start, end = draw.choice(words)
    position = draw.randrange(start, end - 1)
    letter, following = text[position], text[position + 1]
    changed = {
        "omission": "",
        "repetition": letter * 2,
        "replacement": draw.choice(string.ascii_lowercase),
        "swap": following + letter,
    }
    kind = draw.choice(sorted(changed))
    return text[:position] + changed[kind] + text[position + 1 + (kind == "swap") :]


def relevances(retriever: Retriever, queries: list[str]) -> tuple[Floats, float]:
    """The relevance of the best hit of each query, and the share of the queries that are answered."""
    results = [retriever.search(query) for query in queries]
    best = np.array([hits[0].relevance if hits else 0.0 for hits in results])
    return best, float(np.mean([hits.answerable for hits in results]))


def auc(positive: Floats, negative: Floats) -> float:
    """The probability that an answerable query has the higher relevance; ties count half."""
    order = np.sort(negative)
    below = np.searchsorted(order, positive, "left") + np.searchsorted(order, positive, "right")
    return float(below.mean() / (2 * len(negative)))


def calibration_error(positive: Floats, groups: list[Floats]) -> float:
    """Expected calibration error in ten bins. Answerable queries weigh as much as all groups of others together."""
    values = np.concatenate([positive, *groups])
    labels = np.arange(len(values)) < len(positive)
    parts = [(0.5, len(positive)), *((0.5 / len(groups), len(group)) for group in groups)]
    weights = np.repeat([share / count for share, count in parts], [count for _, count in parts])
    bins = np.minimum((values * 10).astype(int), 9)
    return float(sum(abs((weights * (values - labels))[bins == number].sum()) for number in range(10)))


def answers(retriever: Retriever, name: str, queries: dict[str, list[str]]) -> dict[str, Any]:
    own, answered = relevances(retriever, queries[name])
    names = [source for source in (*UNRELATED[name], "nonsense", "everyday") if source in queries]
    foreign = {source: relevances(retriever, queries[source]) for source in names}
    groups = [best for best, _ in foreign.values()]
    return {
        "queries": len(own),
        "refused": round(1 - answered, 3),
        "answered of others": {source: round(share, 3) for source, (_, share) in foreign.items()},
        "AUC": round(auc(own, np.concatenate(groups)), 4),
        "calibration error": round(calibration_error(own, groups), 4),
        "measured by the index": asdict(retriever.snapshot().scale),
    }


def typing_errors(retriever: Retriever, folder: Path, *, seed: int = 0) -> dict[str, Any]:
    """nDCG@10 of queries without an error and with one each, and how many of the errors were corrected."""
    draw = random.Random(seed)
    qrels, texts = beir.qrels(folder, "test"), beir.queries(folder)
    names = draw.sample(sorted(qrels), min(QUERIES, len(qrels)))
    typed = {name: with_typing_error(texts[name], draw) for name in names}
    sampled = {name: qrels[name] for name in names}

    def run(queries: dict[str, str]) -> tuple[float, int]:
        rankings, corrected = {}, 0
        for name in names:
            hits = retriever.search(queries[name], 50, collapse=False)
            corrected += bool(hits.corrections)
            scores: dict[str, float] = {}
            for hit in hits:
                scores.setdefault(hit.path, hit.score)
            rankings[name] = list(scores.items())
        return ndcg_at_10(sampled, rankings), corrected

    (before, _), (after, corrected) = run(texts), run(typed)
    return {
        "queries": len(names),
        "nDCG@10": round(before, 4),
        "with an error": round(after, 4),
        "share": round(after / before, 4),
        "corrected": corrected,
    }


def collect(data: Path, folder: Path) -> dict[str, Path]:
    """The folder of each collection that is there."""
    folders = {name: data / name for name in ("scifact", "cranfield") if (data / name).is_dir()}
    if (questions := data / "squad11" / "squad11_dev.jsonl.gz").is_file():
        folders["squad"] = collections.squad(questions, folder / "squad")
    if (data / "docs_rust_book").is_dir():
        folders["rust"] = data / "docs_rust_book"
    if (data / "docs_tldr.tar.gz").is_file():
        with tarfile.open(data / "docs_tldr.tar.gz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
            archive.extractall(folder / "tldr")
        folders["tldr"] = folder / "tldr"
    return folders


def queries_of(name: str, folder: Path) -> list[str]:
    if name == "rust":
        return RUST
    if name == "tldr":
        return tldr_questions(folder)
    texts = beir.queries(folder)
    return [texts[number] for number in sorted(beir.qrels(folder, "test"))][:QUERIES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--unseen", type=Path)
    parser.add_argument("--indexes", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        folders_of_data = collect(options.data, work)
        folders = collections.unseen(options.unseen, work) if options.unseen else folders_of_data
        queries = {name: queries_of(name, folder) for name, folder in (folders_of_data | folders).items()}
        queries |= {"nonsense": nonsense(), "everyday": EVERYDAY}
        results: dict[str, Any] = {"answers": {}, "typing errors": {}}
        for name, folder in folders.items():
            retriever = Retriever.open((options.indexes or work) / f"{name}-index", trust=True)
            if not (retriever.path / "HEAD.json").is_file():
                fill(retriever, folder, lambda _: None)
            retriever.warm_up()
            results["answers"][name] = answers(retriever, name, queries)
            if beir.is_collection(folder):
                results["typing errors"][name] = typing_errors(retriever, folder)
            print(name, results["answers"][name], results["typing errors"].get(name), flush=True)
    save("relevance-unseen" if options.unseen else "relevance", results, seed=0)


if __name__ == "__main__":
    main()
