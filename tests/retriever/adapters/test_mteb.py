"""MTEB measures what `binocle evaluate` measures."""

from __future__ import annotations

import importlib.util
import json
import os
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from binocle import InputError, evaluate
from binocle.training.data import beir

if importlib.util.find_spec("mteb") is None:
    pytest.skip("needs mteb", allow_module_level=True)


@cache
def task_class():
    """Made when the first test needs it: MTEB takes seconds to import, and one process of a run has these tests."""
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    class Collection(AbsTaskRetrieval):
        """A folder in BEIR's layout as a task."""

        metadata = TaskMetadata(
            name="LocalCollection",
            description="A test collection on this machine",
            dataset={"path": "local", "revision": "1"},
            type="Retrieval",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def __init__(self, folder, top_ranked=None):
            super().__init__()
            self.folder, self.top_ranked = folder, top_ranked

        def load_data(self, *_, **__):
            qrels = beir.qrels(self.folder, "test")
            texts = beir.queries(self.folder)
            queries = Dataset.from_list([{"id": name, "text": texts[name]} for name in qrels])
            corpus = Dataset.from_list(list(beir.documents(self.folder)))
            split = {"corpus": corpus, "queries": queries, "relevant_docs": qrels, "top_ranked": self.top_ranked}
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    return Collection


@pytest.fixture
def binocle_search():
    from binocle.retriever.adapters.mteb import BinocleSearch

    return BinocleSearch


def scores(search, task):
    import mteb

    result = mteb.evaluate(search, task, cache=None, show_progress_bar=False)
    return result.task_results[0].scores["test"][0]


def exact(search, task):
    """The mean nDCG@10 of a search that has its index: MTEB rounds it to 5 digits."""
    import ir_measures

    task.load_data()
    split = task.dataset["default"]["test"]
    run = search.search(split["queries"], top_k=1000)
    measure = ir_measures.nDCG @ 10
    return ir_measures.calc_aggregate([measure], split["relevant_docs"], run)[measure]


@pytest.fixture(scope="session")
def collection(tmp_path_factory):
    folder = tmp_path_factory.mktemp("collection")
    words = "cat dog queen king moon sun sea ship".split()
    documents = [(f"{a}-{b}", a, f"The {a} and the {b} sat in the house at night.") for a in words for b in words]
    rows = [json.dumps({"_id": name, "title": title, "text": text}) for name, title, text in documents]
    (folder / "corpus.jsonl").write_text("\n".join(rows), "utf-8")
    queries = [json.dumps({"_id": f"q{n}", "text": f"{a} {words[n - 1]}"}) for n, a in enumerate(words)]
    (folder / "queries.jsonl").write_text("\n".join(queries), "utf-8")
    (folder / "qrels").mkdir()
    judged = "".join(f"q{n}\t{a}-{words[n - 1]}\t2\nq{n}\t{words[n - 2]}-{a}\t1\n" for n, a in enumerate(words))
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged, "utf-8")
    return folder


@pytest.mark.filterwarnings("ignore")  # of mteb and its libraries about themselves
def test_mteb_measures_what_evaluate_measures(collection, binocle_search, tiny_model):
    from mteb.models.models_protocols import SearchProtocol

    for mode in ("hybrid", "lexical"):
        search = binocle_search(tiny_model, mode=mode)
        assert isinstance(search, SearchProtocol)
        expected = evaluate(collection, mode=mode, model=tiny_model).per_query["nDCG@10"]
        mean = sum(expected.values()) / len(expected)
        task = task_class()(collection)
        assert scores(search, task)["ndcg_at_10"] == pytest.approx(mean, abs=5.1e-6)
        assert exact(search, task) == pytest.approx(mean, abs=1e-6)


@pytest.mark.filterwarnings("ignore")  # of mteb and its libraries about themselves
def test_each_query_ranks_only_its_candidates(collection, binocle_search, tiny_model):
    texts = beir.queries(collection)
    top_ranked = {name: [f"{text.split()[0]}-cat", f"{text.split()[0]}-sea"] for name, text in texts.items()}
    task = task_class()(collection, top_ranked)
    task.load_data()
    search = binocle_search(tiny_model)
    split = task.dataset["default"]["test"]
    place = {"task_metadata": task.metadata, "hf_split": "test", "hf_subset": "default"}
    with pytest.raises(InputError, match=r"index\(\) comes before"):
        search.search(split["queries"], top_k=10, **place)
    search.index(split["corpus"], encode_kwargs={}, num_proc=None, **place)
    run = search.search(split["queries"], top_k=10, top_ranked=top_ranked, **place)
    assert {name: set(ranked) for name, ranked in run.items()} == {name: set(ids) for name, ids in top_ranked.items()}
    for ranked in search.search(split["queries"], top_k=7, **place).values():
        values = list(ranked.values())
        assert len(values) == 7
        assert all(before > after for before, after in pairwise(values))
    assert scores(search, task)["ndcg_at_10"] >= 0


@pytest.mark.filterwarnings("ignore")  # of mteb and its libraries about themselves
def test_the_hybrid_wrapper_of_mteb_joins_two_searches(collection, binocle_search, tiny_model):
    from mteb.models.hybrid_wrappers import HybridSearch

    both = HybridSearch([binocle_search(tiny_model, mode=mode) for mode in ("semantic", "lexical")])
    assert 0 < scores(both, task_class()(collection))["ndcg_at_10"] <= 1


def test_results_are_stored_under_the_name_of_all_models(binocle_search, tiny_model, make_reranker, tmp_path):
    search = binocle_search(tiny_model, mode="semantic", rerank=str(make_reranker(tmp_path / "judge")))
    assert search.mteb_model_meta.name == "binocle/tiny-semantic-judge"
    assert search.mteb_model_meta.revision == search.encoder.fingerprint[:12]


def part_of(folder, part, *, queries=50, documents=300):
    """The first queries of a collection, their judged documents, and others up to a number."""
    judged = dict(list(beir.qrels(folder, "test").items())[:queries])
    needed = {document for row in judged.values() for document in row}
    rows = [(json.loads(line)["_id"], line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()]
    others = [name for name, _ in rows if name not in needed][: documents - len(needed)]
    kept = needed | set(others)
    (part / "qrels").mkdir(parents=True)
    (part / "corpus.jsonl").write_text("\n".join(line for name, line in rows if name in kept), "utf-8")
    (part / "queries.jsonl").write_bytes((folder / "queries.jsonl").read_bytes())
    lines = [f"{query}\t{name}\t{grade}\n" for query, row in judged.items() for name, grade in row.items()]
    (part / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines), "utf-8")
    return part


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of mteb and its libraries about themselves
@pytest.mark.skipif("BINOCLE_COLLECTION" not in os.environ, reason="BINOCLE_COLLECTION names no test collection")
def test_a_real_collection_scores_the_same_in_mteb(binocle_search, tmp_path):
    folder = part_of(Path(os.environ["BINOCLE_COLLECTION"]), tmp_path / "part")
    search = binocle_search(folder=tmp_path / "indexes")
    task = task_class()(folder)
    measured = scores(search, task)["ndcg_at_10"]
    expected = evaluate(folder, index=next((tmp_path / "indexes").iterdir())).per_query["nDCG@10"]
    mean = sum(expected.values()) / len(expected)
    assert measured == pytest.approx(mean, abs=5.1e-6)
    assert exact(search, task) == pytest.approx(mean, abs=1e-6)
