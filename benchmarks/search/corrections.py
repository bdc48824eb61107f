"""How often a word of a query is corrected: a right word that the documents lack, and a misspelt one that they have.

    python -m benchmarks.search.corrections --data DIR

DIR holds what `benchmarks.search.relevance` reads; words come from the questions of squad11/squad11_dev.jsonl.gz and of
squad11_train.jsonl.gz. A right word occurs in three contexts of SQuAD or more, so that it is no typing error itself.
Words that are one token of the encoder are left out: these are never corrected.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle.core.terms import stems_by_word
from binocle.retriever.models.load import load_encoder
from binocle.retriever.retriever import Retriever
from binocle.retriever.search.words.corrections import corrections_for
from binocle.retriever.search.words.exact import parse
from binocle.training.data import beir

from ..machine import save
from .relevance import collect, with_typing_error

if TYPE_CHECKING:
    from binocle.retriever.models.encoder import Encoder

WORDS = 200  # of each kind
_FREQUENT = 3  # contexts, at least, that hold a right word
_WORD = re.compile(r"(?<![\w'’-])[a-z]{4,30}(?![\w'’-])")


def question_words(folder: Path) -> list[str]:
    """The words of all questions, in order; rare words are left out."""
    contexts: Counter[str] = Counter()
    words: set[str] = set()
    for file in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                contexts.update(set(_WORD.findall(row["context"])))
                words.update(word for entry in row["qas"] for word in _WORD.findall(entry["question"]))
    return sorted(word for word in words if contexts[word] >= _FREQUENT)


def texts_of(folder: Path) -> list[str]:
    """The texts of a collection or of a folder of Markdown."""
    if beir.is_collection(folder):
        return [f"{row['title']}\n{row['text']}" for row in beir.documents(folder)]
    return [file.read_text("utf-8") for file in sorted(folder.rglob("*.md"))]


def measure(index: Retriever, words: list[str], encoder: Encoder, *, seed: int = 0) -> dict[str, int]:
    """Count the corrections of each kind of word, and how many of the misspelt words became the right ones."""
    draw = random.Random(seed)
    snapshot = index.snapshot()
    lexical = snapshot.lexical
    assert lexical is not None
    stems = stems_by_word(words)
    known = [word for word in words if any(lexical.document_frequencies(list(stems[word])))]

    def is_broken(word: str) -> bool:
        return len(encoder.offsets([word])[0]) > 1

    def correction(word: str) -> str | None:
        query = parse(f"how do I find the {word}")
        return corrections_for(snapshot, query, lambda: encoder, None).get(word)

    lacking = draw.sample([word for word in sorted(set(words) - set(known)) if is_broken(word)], WORDS)
    typed = [(with_typing_error(word, draw), word) for word in draw.sample([w for w in known if len(w) > 4], 2 * WORDS)]
    own = stems_by_word([wrong for wrong, _ in typed])
    wrong = [
        pair
        for pair in typed
        if pair[0] != pair[1] and not any(lexical.document_frequencies(list(own[pair[0]]))) and is_broken(pair[0])
    ][:WORDS]
    results = [(correction(misspelt), word) for misspelt, word in wrong]
    correct_stems = stems_by_word([correct for correct, _ in results if correct is not None])
    right = sum(bool({*correct_stems.get(correct or "", ())} & {*stems[word]}) for correct, word in results)
    return {
        "right words": len(lacking),
        "right words corrected": sum(correction(word) is not None for word in lacking),
        "misspelt words": len(wrong),
        "misspelt words corrected": sum(correct is not None for correct, _ in results),
        "to the right word": right,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    words, encoder = question_words(options.data / "squad11"), load_encoder()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, folder in collect(options.data, Path(temporary)).items():
            if name == "squad":
                continue
            index = Retriever.open(Path(temporary, f"{name}-index"), encoder=None, dim=1)
            index.add({"text": text, "embedding": [1.0]} for text in texts_of(folder))
            results[name] = measure(index, words, encoder)
    save("corrections", results, seed=0)


if __name__ == "__main__":
    main()
