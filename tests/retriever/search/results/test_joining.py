from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from binocle import Retriever
from binocle.core.errors import InputError
from binocle.retriever.search.mode import MODES
from binocle.retriever.search.results.hit import Hit
from binocle.retriever.search.results.hits import Hits
from binocle.retriever.search.results.joining import runs_of
from binocle.retriever.search.results.snippet import blocks
from binocle.training.evaluation.measures import ndcg_at_10

WORDS = "the cat sat on a mat by river moon bread dog ran swam under tree house red blue old new".split()


@pytest.fixture(scope="session")
def library(tmp_path_factory, tiny_model):
    """Six documents of some twenty passages each, and their texts."""
    draw = random.Random(3)
    texts = {
        f"{name}.md": "\n\n".join(
            f"# Part {part}\n\n" + " ".join(draw.choice(WORDS) for _ in range(150)) for part in range(4)
        )
        for name in "abcdef"
    }
    retriever = Retriever.open(tmp_path_factory.mktemp("joining") / "index", model=tiny_model)
    retriever.add([{"id": name, "text": text} for name, text in texts.items()])
    return retriever, texts


def passages_of(hits):
    return [part.passage for hit in hits for part in hit.parts or (hit,)]


@pytest.mark.parametrize("mode", MODES)
def test_neighbours_are_one_hit_with_the_scores_of_the_best(mode, library):
    retriever, texts = library
    plain = retriever.search("cat under the moon", 12, mode=mode)
    hits = retriever.search("cat under the moon", 12, mode=mode, join=True)
    by_rank = {hit.rank: hit for hit in plain}
    assert sorted(passages_of(hits)) == sorted(passages_of(plain))
    assert len(hits) < len(plain) == 12
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert [hit.best.rank for hit in hits if hit.parts] == sorted(hit.best.rank for hit in hits if hit.parts)
    by_passage = {hit.passage: hit for hit in plain}
    for hit in hits:
        best = by_passage[hit.passage]
        assert (hit.score, hit.scores, hit.relevance, hit.passage) == (
            *(best.score, best.scores, best.relevance, best.passage),
        )
        assert hit.text == texts[hit.path][hit.char_start : hit.char_end]
        first = texts[hit.path].count("\n", 0, hit.char_start) + 1
        assert (hit.line_start, hit.line_end) == (first, first + hit.text.count("\n"))
        assert hit.best.text == best.text
        assert all(by_rank[part.rank] == part for part in hit.parts)


def test_no_two_hits_of_a_page_are_neighbours(library):
    hits = library[0].search("cat under the moon", 60, join=True, per_document=0)
    spans = sorted((hit.path, hit.char_start, hit.char_end) for hit in hits)
    for (path, _, end), (following, start, _) in itertools.pairwise(spans):
        assert path != following or library[1][path][end:start].strip()


@pytest.mark.parametrize("per_document", [0, 2, None])
def test_every_passage_is_on_the_page_where_it_is_without_joining(per_document, library):
    for offset in (0, 5, 10):
        options = {"offset": offset, "per_document": per_document}
        plain = library[0].search("bread by the river", 5, **options)
        hits = library[0].search("bread by the river", 5, join=True, **options)
        assert sorted(passages_of(hits)) == sorted(passages_of(plain))
        assert [hit.rank for hit in hits] == list(range(offset + 1, offset + len(hits) + 1))
    (many,) = library[0].search_many(["bread by the river"], 5, offset=5, join=True)
    assert many == library[0].search("bread by the river", 5, offset=5, join=True)


def test_the_order_of_documents_and_so_their_evaluation_stay_the_same(library):
    draw = random.Random(5)
    for _ in range(5):
        query = " ".join(draw.sample(WORDS, 3))
        runs = []
        for join in (False, True):
            best = {}
            for hit in library[0].search(query, 30, join=join, per_document=0):
                best.setdefault(hit.path, hit.score)
            runs.append(list(best.items()))
        assert runs[0] == runs[1]
        assert ndcg_at_10({"q": {"a.md": 1}}, {"q": runs[0]}) == ndcg_at_10({"q": {"a.md": 1}}, {"q": runs[1]})


def test_parts_below_the_least_relevance_are_not_joined(library):
    plain = library[0].search("cat under the moon", 12)
    least = sorted(hit.relevance for hit in plain)[6]
    hits = library[0].search("cat under the moon", 12, join=True, min_relevance=least)
    assert sorted(passages_of(hits)) == sorted(hit.passage for hit in plain if hit.relevance >= least)


def test_all_passages_for_measurements_are_not_joined(library):
    with pytest.raises(InputError, match="join"):
        library[0].search("cat", join=True, collapse=False)


def test_a_part_says_how_it_was_found_and_a_hit_is_still_current(library):
    hit = next(hit for hit in library[0].search("cat under the moon", 12, join=True) if hit.parts)
    assert library[0].check(hit) == "exact"
    assert all(part.explanation["ranks"] for part in hit.parts)
    (block,) = blocks([hit], "moon", colour=False, width=80, explain=True)
    first, *_, last = block.splitlines()
    assert f"({len(hit.parts)} passages, lines {hit.line_start}-{hit.line_end})" in first
    assert f"{hit.line_start}-{hit.parts[0].line_end} (rank {hit.parts[0].rank})" in last
    (whole,) = blocks([hit], "moon", colour=False, width=80, full=True)
    assert len(whole.split()) >= len(hit.text.split())


def made(passage, document, page=None, rank=1):
    return Hit(
        rank=rank,
        score=1.0,
        scores={},
        path="x",
        sha256="",
        char_start=0,
        char_end=0,
        line_start=1,
        line_end=1,
        page=page,
        heading=(),
        text="",
        title="",
        format="text",
        metadata={},
        source="file",
        document_row=document,
        passage=passage,
    )


def test_runs_are_those_that_comparing_all_pairs_gives():
    draw = random.Random(11)
    for _ in range(50):
        chosen = draw.sample(range(30), 12)
        hits = [made(number, number // 9, number // 4 % 2) for number in chosen]
        groups = [{hit.passage} for hit in hits]
        for hit in hits:
            for other in hits:
                if other.passage == hit.passage + 1 and (other.document_row, other.page) == (
                    hit.document_row,
                    hit.page,
                ):
                    first, second = (next(g for g in groups if x.passage in g) for x in (hit, other))
                    if first is not second:
                        groups.remove(second)
                        first |= second
        assert [[hit.passage for hit in run] for run in runs_of(hits)] == sorted(map(sorted, groups))


def test_passages_on_different_pages_of_a_document_stay_apart():
    hits = Hits([made(1, 1, page=1), replace(made(2, 1, page=2), rank=2)])
    assert [len(run) for run in runs_of(hits)] == [1, 1]
