"""How often a search of a small folder says that nothing answers, where something does and where nothing does.

    python -m benchmarks.search.small_folders --data DIR [--sizes 15 40] [--seeds 1]

DIR holds scifact/ and cranfield/ in BEIR's layout, squad11/squad11_dev.jsonl.gz and debian_descriptions/*.jsonl.gz.
A folder of each size is drawn from each collection, and one from all of them. It is asked questions that its documents
answer, questions of the other collections, everyday questions and nonsense. Another folder has documents of one passage
with six subjects each: sentences of six articles of SQuAD. It is asked what one of them answers.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from binocle.retriever.retriever import Retriever
from binocle.training.data import beir

from .. import collections
from ..machine import save
from .relevance import EVERYDAY, auc, calibration_error, nonsense

if TYPE_CHECKING:
    from .relevance import Floats

OWN, FOREIGN = 30, 10  # questions of a folder, and of each other collection
SUBJECTS = 6  # of a document with many
_SENTENCE = range(40, 300)  # characters
Pairs = dict[str, list[tuple[str, str]]]  # collection -> a question and the name of its document
Texts = dict[str, dict[str, str]]  # collection -> name -> text


def read(data: Path, articles: Path) -> tuple[Texts, Pairs]:
    packages = next((data / "debian_descriptions").glob("*.jsonl.gz"))
    folders = {
        "scifact": data / "scifact",
        "cranfield": data / "cranfield",
        "squad": collections.squad(data / "squad11" / "squad11_dev.jsonl.gz", articles / "squad", count=2_000),
        "debian": collections.debian(packages, articles / "debian", count=2_000),
    }
    texts: Texts = {}
    pairs: Pairs = {}
    for name, folder in folders.items():
        texts[name] = {row["id"]: beir.passage(row) for row in beir.documents(folder)}
        queries = beir.queries(folder)
        best = {query: max(grades, key=grades.__getitem__) for query, grades in beir.qrels(folder, "test").items()}
        pairs[name] = [(queries[query], document) for query, document in sorted(best.items())]
    return texts, pairs


def draw_folder(sources: list[str], pairs: Pairs, size: int, draw: random.Random) -> dict[tuple[str, str], str]:
    """Map the documents of a small folder, each by its collection and name, to a question that it answers."""
    drawn = [(source, *pair) for source in sources for pair in draw.sample(pairs[source], min(3 * size, 150))]
    chosen: dict[tuple[str, str], str] = {}
    for source, question, document in draw.sample(drawn, len(drawn)):
        if len(chosen) < size:
            chosen.setdefault((source, document), question)
    return chosen


def answering_sentences(file: Path) -> dict[str, list[tuple[str, str]]]:
    """Map each article of SQuAD to questions, each with the sentence that answers it."""
    answers = defaultdict(list)
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            for question in row["qas"][:2]:
                text, start = row["context"], row["context"].find(question["answers"][0])
                end = text.find(". ", start) + 1 or len(text)
                sentence = text[text.rfind(". ", 0, start) + 2 if ". " in text[:start] else 0 : end]
                if len(sentence) in _SENTENCE:
                    answers[row["title"]].append((question["question"], sentence))
    return dict(answers)


def draw_many_subjects(
    answers: dict[str, list[tuple[str, str]]], size: int, draw: random.Random
) -> tuple[list[str], list[str]]:
    """Draw documents of sentences of different articles, and questions that they answer."""
    documents, questions = [], []
    for _ in range(size):
        drawn = [draw.choice(answers[title]) for title in draw.sample(sorted(answers), SUBJECTS)]
        documents.append("\n\n".join(sentence for _, sentence in drawn))
        questions += [question for question, _ in drawn]
    return documents, draw.sample(questions, min(OWN, len(questions)))


def ask(retriever: Retriever, questions: dict[str, list[str]], best: dict[str, list[float]]) -> None:
    """Add the best relevance of each question, by kind."""
    for kind, texts in (questions | {"everyday": EVERYDAY, "nonsense": nonsense(20)}).items():
        for hits in map(retriever.search, texts):
            best[kind].append(hits[0].relevance if hits else 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[15, 40])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    arguments = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        texts, pairs = read(arguments.data, Path(temporary))
        answers = answering_sentences(arguments.data / "squad11" / "squad11_dev.jsonl.gz")
        for size in arguments.sizes:
            best: dict[str, list[float]] = defaultdict(list)
            mixed: dict[str, list[float]] = defaultdict(list)
            for seed in arguments.seeds:
                for name in [*texts, "all"]:
                    draw = random.Random(f"{seed} {size} {name}")
                    sources = list(texts) if name == "all" else [name]
                    chosen = draw_folder(sources, pairs, size, draw)
                    retriever = Retriever.open(Path(temporary) / f"{seed}-{size}-{name}")
                    retriever.add(
                        [{"id": "/".join(passage), "text": texts[passage[0]][passage[1]]} for passage in chosen]
                    )
                    unrelated = [source for source in texts if source not in sources]
                    foreign = [question for source in unrelated for question, _ in draw.sample(pairs[source], FOREIGN)]
                    ask(retriever, {"own": list(chosen.values())[:OWN], "others": foreign}, best)
                    print(size, seed, name, retriever.status().chunks, flush=True)
                draw = random.Random(f"{seed} {size} subjects")
                documents, own = draw_many_subjects(answers, size, draw)
                retriever = Retriever.open(Path(temporary) / f"{seed}-{size}-subjects")
                retriever.add({"id": f"{number}", "text": text} for number, text in enumerate(documents))
                unrelated = [source for source in texts if source != "squad"]
                foreign = [question for source in unrelated for question, _ in draw.sample(pairs[source], FOREIGN)]
                ask(retriever, {"own": own, "others": foreign}, mixed)
                print(size, seed, "subjects", retriever.status().chunks, flush=True)
            for name, values in ((f"{size} documents", best), (f"{size} documents of {SUBJECTS} subjects", mixed)):
                results[name] = summary({kind: np.array(relevances) for kind, relevances in values.items()})
                print(name, results[name], flush=True)
    save("small_folders", results, seed=min(arguments.seeds))


def summary(best: dict[str, Floats]) -> dict[str, float | int]:
    own = best.pop("own")
    shares = {f"answered: {kind}": round(float(np.mean(values >= 0.5)), 3) for kind, values in best.items()}
    return {
        "questions": len(own),
        "refused": round(float(np.mean(own < 0.5)), 3),
        **shares,
        "AUC": round(auc(own, np.concatenate(list(best.values()))), 4),
        "calibration error": round(calibration_error(own, list(best.values())), 4),
    }


if __name__ == "__main__":
    main()
