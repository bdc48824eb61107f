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
from binocle.training.evaluation.evaluate_file import evaluate_file

if importlib.util.find_spec("mteb") is None:
    pytest.skip("needs mteb", allow_module_level=True)


def local_metadata(name, kind, main_score):
    """The metadata of a task of English texts on this machine."""
    from mteb.abstasks.task_metadata import TaskMetadata

    return TaskMetadata(
        name=name,
        description="A test collection on this machine",
        dataset={"path": "local", "revision": "1"},
        type=kind,
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=main_score,
    )


@cache
def task_class():
    """Made when the first test needs it: MTEB takes seconds to import, and one process of a run has these tests."""
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    class Collection(AbsTaskRetrieval):
        """A folder in BEIR's layout as a task."""

        metadata = local_metadata("LocalCollection", "Retrieval", "ndcg_at_10")

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


@cache
def pairs_class():
    """As `task_class`, for pairs of sentences with a score."""
    from datasets import Dataset
    from mteb.abstasks.sts import AbsTaskSTS

    class Pairs(AbsTaskSTS):
        """Rows of two sentences and a score as a task."""

        metadata = local_metadata("LocalPairs", "STS", "cosine_spearman")

        def __init__(self, rows):
            super().__init__()
            self.rows = rows

        def load_data(self, *_, **__):
            names = ("sentence1", "sentence2", "score")
            self.dataset = {"test": Dataset.from_list([dict(zip(names, row, strict=True)) for row in self.rows])}
            self.data_loaded = True

    return Pairs


@pytest.fixture
def adapters():
    from binocle.retriever.adapters import mteb

    return mteb


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


@pytest.mark.filterwarnings("ignore")  # of mteb and its libraries about themselves
def test_an_encoder_has_the_scores_of_evaluate(adapters, collection, tiny_model, tmp_path):
    from mteb.models.models_protocols import EncoderProtocol

    encoder = adapters.BinocleEncoder(tiny_model)
    assert isinstance(encoder, EncoderProtocol)
    assert encoder.mteb_model_meta.name == "binocle/tiny"
    expected = evaluate(collection, mode="semantic", model=tiny_model).per_query["nDCG@10"]
    mean = sum(expected.values()) / len(expected)
    assert scores(encoder, task_class()(collection))["ndcg_at_10"] == pytest.approx(mean, abs=5.1e-6)
    rows = [
        ("the cat", "the dog", 4.0),
        ("the moon", "the sea", 1.0),
        ("a ship", "the sea", 3.0),
        ("a cat", "tax", 0.0),
    ]
    file = tmp_path / "sts.tsv"
    file.write_text("sentence1\tsentence2\tscore\n" + "".join(f"{a}\t{b}\t{c}\n" for a, b, c in rows), "utf-8")
    measured = scores(encoder, pairs_class()(rows))
    assert measured["cosine_spearman"] == pytest.approx(
        evaluate_file(file, model=tiny_model).measures["Spearman"], abs=5e-5
    )


def test_an_encoder_tells_queries_from_documents_and_texts_from_images(adapters, tiny):
    from mteb.types import PromptType

    class Prompted:
        name, dim, max_tokens, fingerprint, kinds = "prompted", tiny.dim, tiny.max_tokens, tiny.fingerprint, []

        def encode(self, texts, *, kind="document"):
            self.kinds.append(kind)
            return tiny.encode(texts)

    encoder = adapters.BinocleEncoder(Prompted())
    batches = [{"text": ["a cat", "a dog"]}, {"text": ["the sea"]}]
    for prompt_type in (PromptType.query, PromptType.document, None):
        assert encoder.encode(batches, prompt_type=prompt_type).shape == (3, tiny.dim)
    assert encoder.encoder.kinds == ["query", "document", "document"]
    with pytest.raises(InputError, match="a batch has image: expected a task of texts"):
        encoder.encode([{"image": [1]}])


@pytest.mark.filterwarnings("ignore")  # of mteb and its libraries about themselves
def test_a_reranker_orders_the_candidates(adapters, collection, make_reranker, tmp_path):
    import ir_measures
    from mteb.models.models_protocols import CrossEncoderProtocol

    reranker = adapters.BinocleReranker(str(make_reranker(tmp_path / "judge")))
    model = reranker.reranker
    assert isinstance(reranker, CrossEncoderProtocol)
    queries = beir.queries(collection)
    texts = {row["id"]: f"{row['title']} {row['text']}" for row in beir.documents(collection)}
    top_ranked = {
        name: [document for document in texts if text.split()[0] in document] for name, text in queries.items()
    }
    run = {
        name: dict(zip(ids, model.score(queries[name], [texts[i] for i in ids]).tolist(), strict=True))
        for name, ids in top_ranked.items()
    }
    measure = ir_measures.nDCG @ 10
    expected = ir_measures.calc_aggregate([measure], beir.qrels(collection, "test"), run)[measure]
    task = task_class()(collection, top_ranked)
    assert scores(reranker, task)["ndcg_at_10"] == pytest.approx(expected, abs=5.1e-6)


@pytest.mark.filterwarnings("ignore")  # of mteb and its libraries about themselves
@pytest.mark.parametrize(("kind", "search"), [("flat", {}), ("hnsw", {"ef_search": 64})])
def test_an_index_answers_below_an_encoder(adapters, collection, tiny_model, kind, search):
    from mteb.models import SearchEncoderWrapper

    encoder = adapters.BinocleEncoder(tiny_model)
    backend = adapters.BinocleIndex(encoder, kind, **search)
    texts = beir.queries(collection)
    top_ranked = {name: [f"{text.split()[0]}-cat", f"{text.split()[0]}-sea"] for name, text in texts.items()}
    for candidates in (None, top_ranked):
        task = task_class()(collection, candidates)
        measured = scores(SearchEncoderWrapper(encoder, index_backend=backend), task)
        assert measured["ndcg_at_10"] == scores(encoder, task)["ndcg_at_10"]
        with pytest.raises(InputError, match=r"add_documents\(\) comes before search"):
            backend.search([[0.0] * 32], 1)


def test_an_index_takes_tensors_of_any_kind_and_refuses_what_it_cannot_build(adapters, tiny):
    import torch
    from mteb.models import ModelMeta
    from mteb.models.model_meta import ScoringFunction

    class Other:
        mteb_model_meta = ModelMeta.create_empty()

    index = adapters.BinocleIndex(Other())
    index.add_documents(torch.tensor([[1.0, 0.0], [0.0, 9.0]], dtype=torch.bfloat16), ["a", "b"])
    index.add_documents([[1.0, 1.0]], ["c"])
    assert index.search(torch.tensor([[2.0, 0.0]]), 9) == ([pytest.approx([1, 0.5**0.5, 0])], [[0, 2, 1]])
    assert index.search([[2.0, 0.0]], 9, None, {"q": ["b", "c"]}, {0: "q"})[1] == [[1, 0]]
    encoder = adapters.BinocleEncoder(tiny)
    for arguments, problem in (
        ((encoder, "tree"), "there is no kind of index 'tree'"),
        ((encoder, "flat", {"depth": 1}), "has no parameter 'depth'"),
    ):
        with pytest.raises(InputError, match=problem):
            adapters.BinocleIndex(*arguments[:2], **dict(*arguments[2:]))
    Other.mteb_model_meta = ModelMeta.create_empty({"similarity_fn_name": ScoringFunction.MAX_SIM})
    with pytest.raises(InputError, match="compares by MaxSim: expected cosine, dot or euclidean"):
        adapters.BinocleIndex(Other())


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
