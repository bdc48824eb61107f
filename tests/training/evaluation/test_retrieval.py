from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from binocle import Retriever, evaluate
from binocle.core.errors import InputError
from binocle.training.data import beir
from binocle.training.evaluation.measures import mean, values

NAMES = ["nDCG@10", "Recall@100", "MRR@10", "MAP"]


def means(qrels, run):
    return {name: sum(of.values()) / max(1, len(of)) for name, of in values(qrels, run).items()}


@pytest.fixture(scope="session")
def oracle():
    return pytest.importorskip("ir_measures")


def judged(draw):
    """Random judgements and rankings: grades 0 to 4, queries that found nothing, documents that nobody judged."""
    documents = [f"d{number}" for number in range(draw.choice([5, 40, 300]))]
    qrels, run = {}, {}
    for number in range(draw.randint(1, 12)):
        query = f"q{number}"
        some = draw.sample(documents, draw.randint(1, min(len(documents), 30)))
        qrels[query] = {document: draw.choice([0, 0, 1, 1, 2, 3, 4]) for document in some}
        qrels[query][some[0]] = draw.randint(1, 4)
        if draw.random() < 0.15:
            continue
        found = draw.sample(documents, draw.randint(0, min(len(documents), 200)))
        scores = sorted((draw.random() for _ in found), reverse=True)
        run[query] = list(zip(found, scores, strict=True))
    return qrels, run


@pytest.mark.parametrize("seed", range(25))
def test_measures_equal_those_of_ir_measures(seed, oracle):
    qrels, run = judged(random.Random(seed))
    theirs = {"nDCG@10": oracle.nDCG @ 10, "Recall@100": oracle.R @ 100, "MRR@10": oracle.RR @ 10, "MAP": oracle.AP}
    scored = [oracle.ScoredDoc(query, document, score) for query, ranking in run.items() for document, score in ranking]
    given = [
        oracle.Qrel(query, document, grade) for query, grades in qrels.items() for document, grade in grades.items()
    ]
    expected = oracle.calc_aggregate(list(theirs.values()), given, scored)
    assert means(qrels, run) == pytest.approx({name: expected[of] for name, of in theirs.items()}, abs=1e-9)


def test_measures_of_a_ranking_counted_by_hand():
    qrels = {"q": {"a": 2, "b": 1, "c": 0}}
    run = {"q": [("x", 9.0), ("b", 8.0), ("c", 7.0), ("a", 6.0)]}
    gained, ideal = 1 / math.log2(3) + 2 / math.log2(5), 2 + 1 / math.log2(3)
    expected = {"nDCG@10": gained / ideal, "Recall@100": 1, "MRR@10": 0.5, "MAP": (1 / 2 + 2 / 4) / 2}
    assert means(qrels, run) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (10, {"nDCG@10": 1 / math.log2(11), "MRR@10": 0.1, "Recall@100": 1, "MAP": 0.1}),
        (11, {"nDCG@10": 0, "MRR@10": 0, "Recall@100": 1, "MAP": 1 / 11}),
        (100, {"nDCG@10": 0, "MRR@10": 0, "Recall@100": 1, "MAP": 0.01}),
        (101, {"nDCG@10": 0, "MRR@10": 0, "Recall@100": 0, "MAP": 1 / 101}),
    ],
)
def test_a_measure_reads_the_ranking_down_to_its_depth(rank, expected):
    ranking = [(f"d{place}", 1.0 / place) for place in range(1, 151)]
    assert means({"q": {f"d{rank}": 1}}, {"q": ranking}) == pytest.approx(expected)


def test_a_query_that_found_nothing_counts_as_zero_and_one_without_answers_does_not_count():
    qrels = {"found": {"a": 1}, "not found": {"b": 1}, "nothing to find": {"c": 0}}
    run = {"found": [("a", 1.0)], "nothing to find": [("c", 1.0)]}
    assert means(qrels, run) == dict.fromkeys(NAMES, 0.5)


def test_no_judgements_measure_nothing():
    assert means({}, {}) == dict.fromkeys(NAMES, 0.0)
    assert mean({}) == 0.0


def test_negative_grades_gain_nothing():
    found = means({"q": {"a": -1, "b": 2}}, {"q": [("a", 2.0), ("b", 1.0)]})
    assert found["nDCG@10"] == pytest.approx(1 / math.log2(3))


# A collection, end to end

CORPUS = {
    "d1": ("Cats", "The cat sat on the mat."),
    "d2": ("", "Income tax is due every year."),
    "d3": ("Bread", "Bake the bread in a hot oven. " * 40),
    "d4": ("Title only", ""),
    "d5": ("", "The ship sails the sea by the light of the moon."),
}
QUERIES = {"q1": "cat on a mat", "q2": "tax of a year", "q3": "how to bake bread", "q4": "ship at sea"}


@pytest.fixture
def collection(tmp_path):
    folder = tmp_path / "tiny-collection"
    (folder / "qrels").mkdir(parents=True)
    corpus = "".join(
        json.dumps({"_id": number, "title": title, "text": text}) + "\n" for number, (title, text) in CORPUS.items()
    )
    (folder / "corpus.jsonl").write_text(corpus)
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": number, "text": text}) + "\n" for number, text in QUERIES.items())
    )
    rows = ["query-id\tcorpus-id\tscore", "q1\td1\t1", "q2\td2\t2", "q2\td1\t0", "q3\td3\t1", "q4\td1\t0"]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")
    return folder


def test_documents_are_counted_as_they_are_read_and_queries_as_they_are_asked(collection, tiny_model, monkeypatch):
    monkeypatch.setattr("binocle.core.progress._INTERVAL", 0.0)
    events = []
    evaluate(collection, model=tiny_model, progress=events.append)
    indexing = [("indexing tiny-collection", number, 0) for number in range(len(CORPUS) + 1)]
    queries = [("3 queries", number, 3) for number in range(4)]
    assert [(event.stage, event.done, event.total) for event in events] == [*indexing, *queries]
    assert events[2].message == "indexing tiny-collection: 2 documents read"


@pytest.mark.parametrize(("mode", "reranks"), [("lexical", False), ("hybrid", False), ("semantic", True)])
def test_queries_searched_together_have_the_rankings_of_single_searches(
    mode, reranks, collection, tiny_model, make_reranker, tmp_path, monkeypatch
):
    monkeypatch.setattr("binocle.training.evaluation.retrieval._TIMED", 1)
    monkeypatch.setattr("binocle.training.evaluation.retrieval._TOGETHER", 3)
    queries = QUERIES | {f"q{number}": f"{text} again" for number, text in enumerate(QUERIES.values(), 5)}
    asked, judged, searches = tmp_path / "queries.tsv", tmp_path / "qrels.tsv", []
    asked.write_text("".join(f"{number}\t{text}\n" for number, text in queries.items()))
    judged.write_text("".join(f"{number}\td1\t1\n" for number in queries))
    many = Retriever.search_many
    monkeypatch.setattr(
        Retriever, "search_many", lambda self, texts, *a, **k: searches.append(len(texts)) or many(self, texts, *a, **k)
    )
    options = {"rerank": str(make_reranker(tmp_path / "reranker")), "rerank_depth": 2} if reranks else {}
    run, index = tmp_path / "run.txt", tmp_path / "index"
    arguments = {"mode": mode, "model": tiny_model, "index": index, "queries": asked, "qrels": judged, **options}
    events = []
    monkeypatch.setattr("binocle.core.progress._INTERVAL", 0.0)
    evaluate(collection, run_file=run, progress=events.append, **arguments)
    together = [line.split() for line in run.read_text().splitlines()]
    assert searches == [3, 3, 1]
    assert [event.done for event in events if event.stage == "8 queries"] == [0, 1, 4, 7, 8]
    monkeypatch.setattr("binocle.training.evaluation.retrieval._TIMED", 8)
    evaluate(collection, run_file=run, **arguments)
    assert searches == [3, 3, 1]
    alone = [line.split() for line in run.read_text().splitlines()]
    assert [row[:4] for row in alone] == [row[:4] for row in together]  # a vector encoded in a batch differs by 1e-7
    assert [float(row[4]) for row in alone] == pytest.approx([float(row[4]) for row in together], abs=1e-4)


@pytest.mark.parametrize("mode", ["lexical", "hybrid", "semantic"])
def test_a_collection_is_indexed_searched_and_measured(mode, collection, tiny_model, tmp_path, oracle):
    events = []
    result = evaluate(collection, mode=mode, model=tiny_model, run_file=tmp_path / "run.txt", progress=events.append)
    assert (result.collection, result.split, result.mode, result.model) == ("tiny-collection", "test", mode, tiny_model)
    assert (result.queries, result.documents) == (3, 5)
    assert result.chunks >= 6
    if mode == "lexical":
        assert result.measures == dict.fromkeys(NAMES, 1.0)
    qrels = [
        oracle.Qrel("q1", "d1", 1),
        oracle.Qrel("q2", "d2", 2),
        oracle.Qrel("q2", "d1", 0),
        oracle.Qrel("q3", "d3", 1),
    ]
    run = list(oracle.read_trec_run(str(tmp_path / "run.txt")))
    assert {row.query_id for row in run} <= {"q1", "q2", "q3"}
    assert len({(row.query_id, row.doc_id) for row in run}) == len(run)
    values = oracle.calc_aggregate([oracle.nDCG @ 10, oracle.AP], qrels, run)
    assert result.measures["nDCG@10"] == pytest.approx(values[oracle.nDCG @ 10], abs=1e-4)
    assert result.measures["MAP"] == pytest.approx(values[oracle.AP], abs=1e-4)
    assert json.loads(json.dumps(result.as_dict()))["measures"] == result.measures
    assert len(events) >= 2
    assert result.query_milliseconds > 0


def test_an_index_that_is_kept_is_not_made_again(collection, tiny_model, tmp_path):
    first = evaluate(collection, model=tiny_model, index=tmp_path / "index")
    commits = json.loads((tmp_path / "index" / "HEAD.json").read_text())["commits"]
    again = evaluate(collection, mode="semantic", index=tmp_path / "index")
    assert json.loads((tmp_path / "index" / "HEAD.json").read_text())["commits"] == commits
    assert (first.documents, again.model) == (again.documents, tiny_model)


def test_an_index_of_another_collection_is_not_measured_as_this_one(collection, tiny_model, tmp_path):
    """Documents left in it from before would take the place of the collection's own."""
    from binocle import Retriever

    Retriever.open(tmp_path / "index", model=tiny_model).add([{"id": "alien", "text": "The cat sat on the mat."}])
    try:
        result = evaluate(collection, model=tiny_model, index=tmp_path / "index", run_file=tmp_path / "run.txt")
    except InputError:
        return
    assert "alien" not in (tmp_path / "run.txt").read_text()
    assert result.documents == 5


def test_nothing_is_left_behind(collection, tiny_model, tmp_path, monkeypatch):
    import tempfile

    (tmp_path / "t").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    before = {path: path.stat().st_mtime_ns for path in collection.rglob("*")}
    evaluate(collection, model=tiny_model)
    assert list((tmp_path / "t").iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in collection.rglob("*")} == before


def test_a_document_ranks_where_its_best_passage_does(collection, tiny_model, tmp_path):
    evaluate(collection, mode="lexical", model=tiny_model, run_file=tmp_path / "run.txt")
    lines = [line.split() for line in (tmp_path / "run.txt").read_text().splitlines()]
    assert next(line[2] for line in lines if line[0] == "q3") == "d3"
    assert [line[3] for line in lines if line[0] == "q3"] == [
        str(rank) for rank in range(1, sum(line[0] == "q3" for line in lines) + 1)
    ]
    assert all(len(line) == 6 and line[1] == "Q0" for line in lines)


def test_numbers_as_ids_and_a_missing_title_are_read(tmp_path, tiny_model):
    folder = tmp_path / "numbers"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        '{"_id": 1, "text": "The cat sat."}\n\n{"_id": 2, "text": "Bread.", "title": null, "metadata": {}}\n'
    )
    (folder / "queries.jsonl").write_text('{"_id": 7, "text": "cat"}\n')
    (folder / "qrels" / "dev.tsv").write_text("7\t1\t1\n")
    assert evaluate(folder, split="dev", mode="lexical", model=tiny_model).measures["MRR@10"] == 1


BROKEN = {
    "no corpus": ("corpus.jsonl", None, "corpus.jsonl is missing"),
    "no queries": ("queries.jsonl", None, "queries.jsonl is missing"),
    "no judgements": ("qrels/test.tsv", None, "the splits that are there: none"),
    "corpus not json": ("corpus.jsonl", b'{"_id": "1", "text": "a"}\n{"_id": 2, \n', "corpus.jsonl:2 is not JSON"),
    "corpus not utf-8": (
        "corpus.jsonl",
        b'{"_id": "1", "text": "a"}\n{"_id": "2", "text": "caf\xe9"}\n',
        "corpus.jsonl",
    ),
    "corpus without text": ("corpus.jsonl", b'{"_id": "1"}\n', "corpus.jsonl:1"),
    "corpus with a number for text": ("corpus.jsonl", b'{"_id": "1", "text": 3}\n', "corpus.jsonl:1"),
    "corpus of lists": ("corpus.jsonl", b"[1]\n", "corpus.jsonl:1"),
    "corpus without ids": ("corpus.jsonl", b'{"text": "a"}\n', "corpus.jsonl:1"),
    "corpus nested beyond reason": ("corpus.jsonl", b"[" * 100_000, "corpus.jsonl:1"),
    "corpus with an empty id": ("corpus.jsonl", b'{"_id": "", "text": "a"}\n', "id"),
    "queries not json": ("queries.jsonl", b"q1: cat\n", "queries.jsonl:1 is not JSON"),
    "queries not utf-8": ("queries.jsonl", b'{"_id": "q1", "text": "\xff"}\n', "queries.jsonl"),
    "an empty query": ("queries.jsonl", b'{"_id": "q1", "text": " "}\n', "queries.jsonl:1"),
    "a judgement of an unknown query": ("qrels/test.tsv", b"q9\td1\t1\n", "'q9'"),
    "judgements with spaces": ("qrels/test.tsv", b"q1 d1 1\n", "test.tsv:1"),
    "judgements in TREC's four columns": ("qrels/test.tsv", b"q1\t0\td1\t1\n", "test.tsv:1"),
    "a grade in words": ("qrels/test.tsv", b"q1\td1\t1\nq1\td2\tgood\n", "test.tsv:2"),
    "an infinite grade": ("qrels/test.tsv", b"q1\td1\tinf\n", "test.tsv:1"),
    "a grade that is no number": ("qrels/test.tsv", b"q1\td1\tnan\n", "test.tsv:1"),
    "a grade with a fraction": (
        "qrels/test.tsv",
        b"q1\td1\t1\nq1\td2\t0.9\n",
        "test.tsv:2: expected query, document and a",
    ),
    "contradicting grades": (
        "qrels/test.tsv",
        b"q1\td1\t1\nq1\td1\t0\n",
        "test.tsv:2 gives 'd1' another grade for 'q1'",
    ),
    "judgements not utf-8": ("qrels/test.tsv", b"q1\td\xff\t1\n", "test.tsv"),
    "nothing relevant": ("qrels/test.tsv", b"q1\td1\t0\n", "no document relevant"),
    "empty judgements": ("qrels/test.tsv", b"", "no document relevant"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_collection_is_refused_with_file_and_line(case, collection, tiny_model):
    name, content, message = BROKEN[case]
    if content is None:
        (collection / name).unlink()
    else:
        (collection / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        evaluate(collection, model=tiny_model, mode="lexical")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("header", ["score", "grade", "Relevance\r", "rel"])
def test_a_header_is_no_judgement(header, collection):
    (collection / "qrels" / "dev.tsv").write_bytes(f"query\tdocument\t{header}\nq1\td1\t2.0\nq1\td1\t2\n".encode())
    assert beir.qrels(collection, "dev") == {"q1": {"d1": 2}}


def test_an_unknown_split_names_those_that_are_there(collection, tiny_model):
    (collection / "qrels" / "dev.tsv").write_text("q1\td1\t1\n")
    with pytest.raises(InputError, match="dev, test"):
        evaluate(collection, split="train", model=tiny_model)


@pytest.mark.parametrize("split", ["../test", "/etc/passwd", "", "a/b"])
def test_a_split_is_a_name(split, collection, tiny_model):
    with pytest.raises(InputError):
        evaluate(collection, split=split, model=tiny_model)


def test_a_folder_that_is_not_there_is_refused(tmp_path, tiny_model):
    with pytest.raises(InputError, match=r"absent.*corpus\.jsonl"):
        evaluate(tmp_path / "absent", model=tiny_model)


def test_a_bad_mode_is_refused_before_anything_is_indexed(collection, tiny_model, tmp_path):
    with pytest.raises(InputError, match="mode"):
        evaluate(collection, mode="bm25", model=tiny_model, index=tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_judging_a_document_that_is_not_in_the_corpus_costs_recall(collection, tiny_model):
    (collection / "qrels" / "test.tsv").write_text("q1\td1\t1\nq1\tnowhere\t1\n")
    assert evaluate(collection, mode="lexical", model=tiny_model).measures["Recall@100"] == 0.5


def test_a_path_may_be_a_string_with_a_slash_at_its_end(collection, tiny_model):
    assert evaluate(f"{collection}/", mode="lexical", model=tiny_model).collection == "tiny-collection"
    assert isinstance(collection, Path)


# What each query got


def test_intervals_hold_the_means_and_values_are_kept_for_each_query(collection, tiny_model):
    result = evaluate(collection, mode="semantic", model=tiny_model)
    assert list(result.per_query) == list(result.intervals) == NAMES
    for name, of in result.per_query.items():
        assert set(of) == {"q1", "q2", "q3"}
        assert result.measures[name] == pytest.approx(sum(of.values()) / 3, abs=1e-4)
        low, high = result.intervals[name]
        assert low <= result.measures[name] <= high
    assert "per_query" not in result.as_dict()
    assert json.loads(json.dumps(result.as_dict(per_query=True)))["per_query"] == result.per_query


@pytest.mark.parametrize("seed", range(5))
def test_values_of_each_query_equal_those_of_ir_measures(seed, oracle):
    qrels, run = judged(random.Random(seed))
    theirs = {"nDCG@10": oracle.nDCG @ 10, "Recall@100": oracle.R @ 100, "MRR@10": oracle.RR @ 10, "MAP": oracle.AP}
    names = {str(measure): name for name, measure in theirs.items()}
    scored = [oracle.ScoredDoc(query, document, score) for query, ranking in run.items() for document, score in ranking]
    given = [
        oracle.Qrel(query, document, grade) for query, grades in qrels.items() for document, grade in grades.items()
    ]
    ours = values(qrels, run)
    for metric in oracle.iter_calc(list(theirs.values()), given, scored):
        assert ours[names[str(metric.measure)]][metric.query_id] == pytest.approx(metric.value, abs=1e-9)


# Queries and judgements of one's own


@pytest.fixture
def own(tmp_path):
    """A function that writes queries and judgements and gives the arguments that name them."""

    def writing(queries="q1\tcat on the mat\nq2\tincome tax\n", qrels="q1 0 notes/cats.txt 1\nq2 0 notes/taxes.md 2\n"):
        (tmp_path / "queries.tsv").write_text(queries)
        (tmp_path / "mine.qrels").write_text(qrels)
        return {"queries": tmp_path / "queries.tsv", "qrels": tmp_path / "mine.qrels"}

    return writing


def test_a_folder_of_documents_is_measured_by_judgements_of_ones_own(folder, own, tiny_model):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    result = evaluate(folder, mode="lexical", model=tiny_model, **own())
    assert (result.collection, result.split, result.queries) == ("folder", "mine", 2)
    assert result.measures["MRR@10"] == 1
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_an_indexed_folder_is_measured_as_its_index_stands(retriever, own, tiny_model):
    head = (retriever.path / "HEAD.json").read_bytes()
    folder = retriever.path.parent
    (folder / "notes" / "cats.txt").write_text("Nothing about them.")
    result = evaluate(folder, mode="lexical", **own())
    assert result.measures["MRR@10"] == 1
    assert result.index_seconds == 0
    assert (retriever.path / "HEAD.json").read_bytes() == head
    assert evaluate(folder, mode="lexical", model=tiny_model, **own()).per_query["MRR@10"]["q1"] < 1


def test_a_collection_may_be_asked_other_queries(collection, own, tiny_model):
    words = own(
        '{"_id": "a", "text": "cat mat"}\n{"_id": 7, "text": "tax"}\n', "query\tdocument\tscore\na\td1\t1\n7\td2\t1\n"
    )
    assert evaluate(collection, mode="lexical", model=tiny_model, **words).measures["MRR@10"] == 1


def test_names_with_white_space_are_one_column_of_a_run(tmp_path, own, write, tiny_model):
    folder = write(tmp_path / "spaced", {"a cat.txt": "The cat sat.", "b.txt": "Income tax is due."})
    words = own(qrels="q1\ta cat.txt\t1\n")
    evaluate(folder, mode="lexical", model=tiny_model, run_file=tmp_path / "x.run", **words)
    assert (tmp_path / "x.run").read_text().split()[:4] == ["q1", "Q0", "a%20cat.txt", "1"]


OWN_BROKEN = {
    "a query without a tab": ({"queries": "q1 cat\n"}, "queries.tsv:1: expected an id, a tab"),
    "a query without an id": ({"queries": "\tcat\n"}, "queries.tsv:1: expected an id and a text"),
    "an id twice": ({"queries": "q1\tcat\n\nq1\tdog\n"}, "queries.tsv:3 has the id 'q1' for the second time"),
    "broken json": ({"queries": '{"_id": 1\n'}, "queries.tsv:1 is not JSON"),
    "an object without text": ({"queries": '{"_id": 1}\n'}, "queries.tsv:1: expected an object"),
    "two columns": ({"qrels": "q1 notes/cats.txt\n"}, "mine.qrels:1: expected query, document and a whole"),
    "five columns": ({"qrels": "q1 0 a b 1\n"}, "mine.qrels:1: expected query, document and a whole"),
    "a grade in words": ({"qrels": "q1 0 notes/cats.txt 1\nq1 0 b good\n"}, "mine.qrels:2"),
    "a name with a space, separated by spaces": ({"qrels": "q1 my file.md 1\n"}, "mine.qrels:1: expected query"),
    "a grade between two": (
        {"qrels": "q1\ta\t0.5\n"},
        "mine.qrels:1: expected query, document and a whole number as grade",
    ),
    "two grades of one pair": ({"qrels": "q1 0 a 1\nq1 Q0 a 1.0\nq1 0 a 2\n"}, "mine.qrels:3 gives 'a' another grade"),
    "nothing relevant": ({"qrels": "q1 0 a 0\n"}, "judges no document relevant"),
    "a query that is not there": ({"qrels": "q9 0 a 1\n"}, "judges query 'q9'"),
    "documents that are not there": ({"qrels": "q1 0 cats.txt 1\n"}, "'cats.txt'"),
}


@pytest.mark.parametrize("case", OWN_BROKEN)
def test_broken_queries_and_judgements_are_told_with_file_and_line(case, folder, own, tiny_model):
    given, message = OWN_BROKEN[case]
    with pytest.raises(InputError) as caught:
        evaluate(folder, mode="lexical", model=tiny_model, **own(**given))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["queries", "qrels"])
def test_a_folder_of_documents_needs_both(missing, folder, own, tiny_model, tmp_path):
    words = own()
    del words[missing]
    (given,) = words
    with pytest.raises(InputError, match=f"^{given} came without {missing}: .* has none of its own, so give both$"):
        evaluate(folder, model=tiny_model, **words)
    with pytest.raises(InputError, match="give queries and qrels of your own"):
        evaluate(folder, model=tiny_model)
    with pytest.raises(InputError, match="no file"):
        evaluate(folder, model=tiny_model, **words, **{missing: tmp_path / "absent"})
