"""An index's encoder is fitted to its documents and changes only if documents that it has not seen gain."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from binocle.retriever.models.load import load_encoder
from binocle.retriever.models.model_files import INT8

pytest.importorskip("torch")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

from binocle import Retriever, evaluate
from binocle.core.errors import InputError, LockedError
from binocle.training.data import source_documents as corpus
from binocle.training.encoders import distill as distillation
from binocle.training.encoders.base_model import make_model
from binocle.training.encoders.config import EncoderConfig
from binocle.training.encoders.distill import distill
from binocle.training.evaluation import significance
from binocle.training.mining.bm25 import BM25
from binocle.training.runs.training_run import TrainingRun
from binocle.training.tuning import (
    base_share,
    index_tuning,
    ranking_distillation,
    teachers,
    tune,
    tuning_queries,
)
from binocle.training.tuning.passages import Passages
from binocle.training.tuning.queries import query_generation
from binocle.training.tuning.queries.query_generation import SyntheticPair
from binocle.training.tuning.queries.query_log import read_log
from binocle.training.tuning.ranking_distillation import learn_ranking
from binocle.training.tuning.tuning_config import HYBRID, DistillationConfig, TuningConfig
from binocle.training.tuning.verdict import (
    Judges,
    LogComparison,
    RankingComparison,
    Verdict,
    agreement,
    compare,
    judging_share,
    natural,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves

THINGS = "cat dog queen king moon sun sea ship river mountain bread cheese oven salt task server".split()


def documents():
    for a in THINGS:
        for b in THINGS[:8]:
            text = (
                f"The {a} and the {b} sat in the house by the water. A {b} ran over the mountain at night with the {a}."
            )
            more = f" Salt and bread are in the oven of the {a}. The price of a {b} is not in the table of the {a}."
            yield {"id": f"{a}-{b}", "title": f"{a} {b}", "text": text + more}


@pytest.fixture
def index(tmp_path, tiny_model):
    """An index to change."""
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(documents())
    return retriever


@pytest.fixture(scope="session")
def same_index(tmp_path_factory, tiny_model):
    """An index that no test changes."""
    retriever = Retriever.open(tmp_path_factory.mktemp("same") / "index", model=tiny_model)
    retriever.add(documents())
    return retriever


FAST = TuningConfig(
    pairs=60,
    queries=40,
    held_out=0.3,
    adapter=False,
    learning=DistillationConfig(steps=4, queries=16, passages=6, learning_rate=1e-3),
)


def tuning_of(index, out):
    return index_tuning.IndexTuning.open(TrainingRun(out, index.encoder.name, FAST), index)


def comparison(value=0.1, p=0.001, **kinds):
    return RankingComparison(0.5, 0.5 + value, significance.Difference(value, value - 0.05, value + 0.05, p), kinds)


def verdict(semantic, hybrid):
    return Verdict(40, {"semantic": semantic, "hybrid": hybrid})


SAME = comparison(value=0.0, p=1.0)


@pytest.fixture
def willing(monkeypatch):
    """The teacher is taken for better than the tiny encoder."""
    monkeypatch.setattr(index_tuning.IndexTuning, "teaching", lambda _: comparison())


@pytest.mark.thorough
@pytest.mark.parametrize("p", [0.001, 0.2])
def test_only_a_significant_gain_changes_the_index_and_rollback_undoes_it(p, index, willing, monkeypatch):
    gain = comparison(p=p, title=0.1, claim=0.1)
    monkeypatch.setattr(Judges, "judge", lambda *_: verdict(gain, SAME))
    before = index.encoder.fingerprint
    hits = index.search("the cat ran", 5, mode="semantic")
    result = tune.tune(index, recipe=FAST)
    assert result.published == (p < 0.05)
    assert (index.encoder.fingerprint != before) == result.published
    assert index.verify().faults == []
    if result.published:
        assert index.encoder.fingerprint == load_encoder(str(result.folder)).fingerprint
        index.rollback()
    assert [(hit.path, hit.score) for hit in index.search("the cat ran", 5, mode="semantic")] == [
        (hit.path, pytest.approx(hit.score)) for hit in hits
    ]


@pytest.mark.thorough
def test_a_finished_encoder_is_published_by_the_next_run_if_the_index_was_locked(index, willing, monkeypatch):
    monkeypatch.setattr(Judges, "judge", lambda *_: verdict(comparison(title=0.1, claim=0.1), SAME))

    def locked(*_):
        raise LockedError("another process is writing")

    with monkeypatch.context() as patch:
        patch.setattr(index, "switch", locked)
        with pytest.raises(LockedError, match="is writing; the encoder is finished: the same command, or 'binocle swi"):
            tune.tune(index, recipe=FAST)
    monkeypatch.setattr(index_tuning.IndexTuning, "open", None)  # nothing is learned again
    result = tune.tune(index, recipe=FAST)
    assert (result.published, result.folder.parent.name) == (True, "tuned-1")
    assert result.verdict == verdict(comparison(title=0.1, claim=0.1), SAME)
    assert index.encoder.fingerprint == load_encoder(result.model).fingerprint
    assert [path.name for path in result.folder.parent.iterdir()] == ["model"]
    index.rollback()
    with pytest.raises(TypeError):  # it learns: the rolled-back encoder does not come again
        tune.tune(index, recipe=FAST)


@pytest.mark.thorough
def test_an_index_in_int8_stays_in_int8_and_is_judged_in_it(tmp_path, tiny_model, willing, monkeypatch):
    index = Retriever.open(tmp_path / "index", model=tiny_model + INT8)
    index.add(documents())
    judged = []

    def judge(_, before, after, seed):
        judged.append((before, after, seed))
        return verdict(comparison(title=0.1, claim=0.1), SAME)

    monkeypatch.setattr(Judges, "judge", judge)
    monkeypatch.setattr(base_share, "best", lambda *_: 0.0)  # the weights stay the weights of the base
    result = tune.tune(index, recipe=FAST)
    assert result.published
    assert result.model == result.as_dict()["model"] == f"{result.folder}{INT8}"
    assert index.encoder.name.endswith(INT8)
    assert index.encoder.fingerprint == load_encoder(result.model).fingerprint
    ((before, after, _),) = judged
    for mode, values in before.items():
        np.testing.assert_array_equal(after[mode], values)
    assert index.verify().faults == []
    index.rollback()
    assert index.encoder.name == tiny_model + INT8


def test_a_gain_is_significant_of_more_than_one_kind_and_no_loss_in_the_other_mode():
    gain = comparison(title=0.1, claim=0.1)
    assert verdict(gain, SAME).is_gain
    assert verdict(SAME, gain).is_gain
    assert not verdict(SAME, SAME).is_gain
    assert not verdict(gain, comparison(value=-0.001, p=0.9)).is_gain
    assert not verdict(comparison(p=0.03, title=0.1, claim=0.1), SAME).is_gain  # of two tests
    assert not verdict(comparison(title=0.3, claim=-0.02, cloze=0.01), SAME).is_gain
    assert comparison(title=0.3, claim=-0.02, cloze=0.01).carried_by == "title"
    # cranfield: hybrid search of real queries lost .008, and of titles alone of the held-out documents
    assert not verdict(gain, comparison(value=0.003, p=0.7, title=-0.0133, claim=0.0192)).is_gain
    assert verdict(gain, comparison(value=0.003, p=0.7, title=-0.004, claim=0.01)).is_gain
    assert verdict(comparison(title=0.3), SAME).is_gain


def test_a_teacher_that_is_no_better_teaches_nothing(same_index, tmp_path, monkeypatch):
    equal = {mode: np.ones(1, np.float32) for mode in ("semantic", "hybrid")}
    monkeypatch.setattr(
        Judges, "by_mode", lambda judges, *_: {k: np.repeat(v, len(judges.pairs)) for k, v in equal.items()}
    )
    before = same_index.encoder.fingerprint
    result = tune.tune(same_index, recipe=FAST, out=tmp_path / "out")
    assert (result.verdict, result.published, result.as_dict()["folder"]) == (None, False, None)
    assert result.teaching.difference.verdict == "same"
    assert same_index.encoder.fingerprint == before
    assert not (tmp_path / "out" / "model").exists()


def test_a_log_must_gain_and_no_mode_may_lose_half_a_point():
    def of_log(value, p):
        return LogComparison(40, 0.5, 0.5 + value, significance.Difference(value, value, value, p))

    def gains(semantic, hybrid, log):
        return Verdict(40, {"semantic": semantic, "hybrid": hybrid}, log).is_gain

    better, little = of_log(0.1, 0.001), comparison(value=-0.003, p=0.4, title=-0.004, claim=-0.002)
    assert gains(SAME, SAME, better)
    assert gains(little, little, better)
    assert not gains(SAME, SAME, of_log(0.1, 0.2))
    assert not gains(comparison(), comparison(), of_log(-0.1, 0.001))
    assert not gains(SAME, comparison(value=-0.006, p=0.4), better)
    assert not gains(SAME, comparison(value=-0.003, p=0.4, title=-0.006, claim=0.0), better)
    assert not gains(SAME, comparison(value=-0.003, p=0.01), better)


def test_agreement_is_ndcg_with_the_teachers_ten_best_as_relevant():
    teacher = -np.arange(12, dtype=np.float32)[None]
    swapped = teacher.copy()
    swapped[0, [0, 10]] = swapped[0, [10, 0]]  # the best falls to rank 11
    discounts = 1 / np.log2(np.arange(2, 12))
    relevance = np.arange(10, 0, -1)
    expected = 1 - 10 * discounts[0] / (relevance @ discounts)
    assert agreement(teacher, teacher).tolist() == [1]
    assert agreement(swapped, teacher).tolist() == [pytest.approx(expected)]
    three = agreement(np.array([[1.0, 2.0, 3.0]]), np.array([[3.0, 2.0, 1.0]]))[0]
    best = 10 + 9 / np.log2(3) + 8 / 2
    assert three == pytest.approx((8 + 9 / np.log2(3) + 10 / 2) / best)


def test_kinds_of_queries_count_alike_however_many_there_are_of_each():
    pairs = [SyntheticPair("q", "p", kind, "d", 1.0) for kind in ("title", *["keywords"] * 9)]
    before = np.zeros(10, np.float32)
    after = np.array([0.5, *[0.1] * 9], np.float32)
    comparison = compare(pairs, before, after, seed=0)
    assert (comparison.before, comparison.after) == (0, pytest.approx(0.3))
    assert comparison.difference.value == pytest.approx(0.3)
    assert comparison.kinds == {"keywords": pytest.approx(0.1), "title": pytest.approx(0.5)}
    pairs += [SyntheticPair("q", "p", "claim", "d", 1.0)] * 3
    assert [pair.kind for pair in natural(pairs, 4, seed=0)] == ["title", "claim", "claim"]
    pairs_left = [pair for pair in pairs if pair.kind != "claim"] + [SyntheticPair("q", "p", "cloze", "d", 1.0)]
    assert {pair.kind for pair in natural(pairs_left, 4, seed=0)} == {"title", "cloze"}  # of one natural kind alone


def test_queries_of_one_document_are_one_witness():
    pairs = [SyntheticPair("q", "p", "title", document, 1.0) for document in "abc" for _ in range(20)]
    before = np.zeros(60, np.float32)
    after = np.repeat(np.array([0.1, 0.2, 0.3], np.float32), 20)
    comparison = compare(pairs, before, after, seed=0).difference
    assert (comparison.value, comparison.p) == (pytest.approx(0.2), 2 / 2**3)  # all signs unchanged, or none of them
    assert (comparison.low, comparison.high) == (pytest.approx(0.1), pytest.approx(0.3))


def test_of_few_documents_more_judge():
    assert [judging_share(count, 0.1) for count in (0, 10, 24, 48, 1000)] == [0.5, 0.5, 0.5, 0.25, 0.1]
    assert judging_share(48, 0.3) == 0.3


def test_the_folder_holds_the_encoder_and_what_was_measured(same_index, tiny_model, tmp_path, willing):
    result = tune.tune(same_index, recipe=FAST, out=tmp_path / "out", publish=False)
    assert not result.published
    assert result.folder.parent == tmp_path / "out"
    facts = json.loads((result.folder / "binocle.json").read_text("utf-8"))
    for mode, measured in result.verdict.modes.items():
        assert facts["tuning"]["modes"][mode]["difference"]["p"] == pytest.approx(measured.difference.p, abs=1e-4)
        assert f"gain in nDCG@10, {mode}" in (result.folder / "README.md").read_text("utf-8")
    assert facts["config"]["learning"]["steps"] == facts["steps"] == 4
    assert load_encoder(str(result.folder)).max_tokens == load_encoder(tiny_model).max_tokens
    assert not (result.folder / "run").exists()


@pytest.mark.thorough
def test_a_killed_run_goes_on_and_ends_with_the_same_weights(same_index, tmp_path, monkeypatch, willing):
    class KilledError(Exception):
        pass

    def kill_after(steps):
        def loss(student, step):
            if step == steps:
                raise KilledError
            return real(student, step)

        return loss

    whole = tune.tune(same_index, recipe=FAST, out=tmp_path / "whole", publish=False)
    real = ranking_distillation.RankingStudent.loss
    monkeypatch.setattr(ranking_distillation.RankingStudent, "loss", kill_after(3))
    with pytest.raises(KilledError):
        tune.tune(same_index, recipe=FAST, out=tmp_path / "killed", publish=False)
    steps = []
    monkeypatch.setattr(
        ranking_distillation.RankingStudent, "loss", lambda student, step: steps.append(step) or real(student, step)
    )
    resumed = tune.tune(same_index, recipe=FAST, out=tmp_path / "killed", publish=False)
    assert steps == [3]
    assert load_encoder(str(resumed.folder)).fingerprint == load_encoder(str(whole.folder)).fingerprint


def test_the_judging_queries_are_of_documents_that_were_not_learned_from(same_index, tmp_path):
    session = tuning_of(same_index, tmp_path / "out")
    learned = {pair.document for pair in session.queries.teaching}
    assert learned <= session.passages.numbers.keys()
    assert not session.passages.numbers.keys() & {pair.document for pair in session.queries.judging}
    contexts = {passage.context for source in corpus.from_index(same_index.snapshot()) for passage in source.passages}
    assert set(session.passages.texts) < contexts


def test_a_title_that_documents_share_judges_nothing(tmp_path, tiny_model):
    shared = [
        {"id": row["id"], "title": "The Sea" if n % 2 else row["title"], "text": row["text"]}
        for n, row in enumerate(documents())
    ]
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(shared)
    session = tuning_of(retriever, tmp_path / "out")
    titles = {pair.query for pair in session.queries.judging if pair.kind == "title"}
    assert titles
    assert titles <= {row["title"] for row in shared} - {"The Sea"}
    assert session.queries.headings.is_shared("the sea")


def test_a_sentence_of_two_documents_does_not_teach_and_judge(tmp_path, tiny_model):
    copies = [
        row | {"id": f"{row['id']}-{copy}", "title": f"{row['title']} {copy}"} for row in documents() for copy in (1, 2)
    ]
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(copies)
    session = tuning_of(retriever, tmp_path / "out")
    assert session.queries.judging
    assert not {pair.query for pair in session.queries.teaching} & {pair.query for pair in session.queries.judging}


def test_a_heading_or_link_text_of_several_documents_is_shared():
    def page(name, title, *headings, text="a text"):
        return corpus.Source(name, title, tuple(corpus.SourcePassage(text, (title, heading)) for heading in headings))

    counts = query_generation.HeadingCounts(
        [
            page("a.md", "Queues", "Install", "Limits", "Limits", text="[the guide](b.md) [workers](b.md)"),
            page("b.md", "Workers", "Install", text="[the guide](a.md)"),
        ]
    )
    queries = ("Install", "install!", "the guide", "Limits", "Queues", "workers", "a text")
    assert [query for query in queries if counts.is_shared(query)] == ["Install", "install!", "the guide"]


def passages(texts, vectors, documents=None):
    count = len(texts)
    owners = np.arange(count) if documents is None else np.array(documents)
    return Passages(list(texts), np.array(vectors, np.float32), owners, {}, np.arange(count))


def test_judging_is_ndcg_of_the_own_document_among_others():
    class Fake:
        def encode(self, texts, kind="document"):
            table = {"q": (1, 0), "own": (0.5, 0.5), "near": (1, 0), "r": (0, 1), "far": (0, 1), "same": (1, 0)}
            return np.array([table[text] for text in texts], np.float32)

    pairs = [
        SyntheticPair("q", "own", "title", "d", 1.0),
        SyntheticPair("q", "same", "title", "d", 1.0),
        SyntheticPair("r", "far", "title", "e", 1.0),
    ]
    rivals = passages(["far", "near", "else"], [(0, 1), (0.9, 0), (0.4, 0)])
    judges = Judges(pairs, rivals)
    measures = judges.by_mode(Fake(), judges.stored_vectors(Fake()))
    np.testing.assert_allclose(measures["semantic"], [1 / np.log2(3), 1, 1], atol=1e-6)
    index_of_three = passages(["near", "near too", "else"], [(0.9, 0), (0.8, 0), (0, 1)], [0, 0, 1])
    scores = Judges(pairs, index_of_three).ndcg(
        Fake().encode(["q", "q", "r"]) @ Judges(pairs, index_of_three).stored_vectors(Fake()).T
    )
    np.testing.assert_allclose(scores, [1 / np.log2(3), 1, 1 / np.log2(3)], atol=1e-6)  # two passages, one document


def test_an_encoder_that_tells_nothing_apart_finds_nothing():
    class Collapsed:
        def encode(self, texts, kind="document"):
            return np.full((len(texts), 3), 3**-0.5, np.float32)

    pairs = [SyntheticPair("q", f"p{n}", "title", f"{n}", 1.0) for n in range(11)]
    judges = Judges(pairs, passages(["r"], Collapsed().encode("r")))
    measures = judges.by_mode(Collapsed(), judges.vectors(Collapsed()))
    assert [values.tolist() for values in measures.values()] == [[0] * 11] * 2


def test_hybrid_is_judged_by_words_too():
    class Blind:
        def encode(self, texts, kind="document"):
            return np.tile(np.array([(1, 0)], np.float32), (len(texts), 1))

    pairs = [SyntheticPair("queues of workers", "the worker reads its queue", "claim", "d", 1.0)]
    judges = Judges(pairs, passages(["a ship", "a town", "the sea"], [(1, 0)] * 3))
    measures = judges.by_mode(Blind(), judges.vectors(Blind()))
    assert measures["hybrid"] == pytest.approx([1.0])
    assert measures["semantic"] < 0.6


# Logs


def test_a_log_of_queries_is_read_from_lines_and_tables(tmp_path):
    (tmp_path / "log.txt").write_text("how do I  wait\n\nHow do I wait?\nstop a worker\n", "utf-8")
    assert [pair.query for pair in read_log(tmp_path / "log.txt")] == ["how do I wait", "stop a worker"]
    (tmp_path / "log.jsonl").write_text('{"query": "one"}\n{"_id": "2", "text": "two"}\n', "utf-8")
    assert [pair.query for pair in read_log(tmp_path / "log.jsonl")] == ["one", "two"]
    (tmp_path / "log.csv").write_text("id,words\n1,one\n", "utf-8")
    with pytest.raises(InputError, match=r"log.csv:2: expected a query"):
        read_log(tmp_path / "log.csv")
    with pytest.raises(InputError, match="there is no file"):
        read_log(tmp_path / "none.txt")


def test_half_of_the_queries_drawn_are_of_the_log():
    pairs = [SyntheticPair("q", "p", "title", "d", weight) for weight in (1.0, 0.5, 0.5)]
    logged = [SyntheticPair("q", "", "log", "", 1.0)] * 4
    shares = ranking_distillation.drawing_shares([*pairs, *logged])
    assert shares.tolist() == pytest.approx([0.25, 0.125, 0.125, *[0.125] * 4])
    assert ranking_distillation.drawing_shares(logged).tolist() == [0.25] * 4


@pytest.mark.thorough
def test_a_large_log_teaches_alone(same_index, tmp_path, monkeypatch):
    from dataclasses import replace

    monkeypatch.setattr(tuning_queries, "_LOG_ALONE", 3)
    for count in (2, 3, 5):
        log = tmp_path / f"{count}.txt"
        log.write_text("".join(f"query {number}\n" for number in range(count)), "utf-8")
        run = TrainingRun(tmp_path / f"out-{count}", same_index.encoder.name, replace(FAST, log=str(log)))
        session = index_tuning.IndexTuning.open(run, same_index)
        logged = [pair.query for pair in session.queries.teaching if pair.kind == "log"]
        judging = [pair.query for pair in session.queries.judging_log]
        assert len(judging) == (count >= 3)
        assert session.queries.choosing_log == []  # of an adapter alone
        assert sorted(logged + judging) == [f"query {number}" for number in range(count)]
        assert (len(session.queries.teaching) == len(logged)) == (count >= 3)


@pytest.mark.thorough
def test_a_log_teaches_beside_the_documents(same_index, tmp_path, willing):
    from dataclasses import replace

    (tmp_path / "log.txt").write_text("where did the queen sit\nprice of bread\n", "utf-8")
    recipe = replace(FAST, log=str(tmp_path / "log.txt"))
    result = tune.tune(same_index, recipe=recipe, out=tmp_path / "out", publish=False)
    assert result.pairs == FAST.pairs + 2
    assert result.verdict is not None


def test_a_file_in_place_of_the_folder_is_told_before_anything_is_learned(same_index, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="file is a file: expected a folder for the model"):
        tune.tune(same_index, recipe=FAST, out=tmp_path / "file", progress=lambda event: pytest.fail(event.stage))


def test_too_few_documents_are_told(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "a", "text": "the cat sat"}])
    with pytest.raises(InputError, match="holds too little to learn from"):
        tune.tune(retriever, recipe=FAST)


# Rankings


def test_bm25_is_the_formula_over_the_stems_of_full_text_search():
    passages = ["The retrying worker retries", "retried once", "a queue", "a server", "a task", "a file"]
    scores = BM25.of(passages).scores("Retry retrying worker worker")
    lengths = np.array([3, 2, 1, 1, 1, 1])  # without stop words
    counts = {"retri": np.array([2, 1, 0, 0, 0, 0]), "worker": np.array([1, 0, 0, 0, 0, 0])}
    expected = np.zeros(6)
    for count in counts.values():
        idf = np.log1p((6 - (count > 0).sum() + 0.5) / ((count > 0).sum() + 0.5))
        expected += idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * lengths / lengths.mean()))
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_standard_scores_are_taken_over_the_best():
    scores = np.concatenate([np.linspace(5, 3, 200), np.full(1000, -50.0)]).astype(np.float32)[None]
    standard = teachers.standard_rows(scores)
    assert (standard[0, :200].mean(), standard[0, :200].std()) == (
        pytest.approx(0, abs=1e-5),
        pytest.approx(1, abs=1e-5),
    )
    assert np.isfinite(teachers.standard_rows(np.zeros((2, 3), np.float32))).all()


def test_the_teacher_is_the_engines_own_hybrid_search(same_index, tmp_path):
    session = tuning_of(same_index, tmp_path / "out")
    queries = ["the price of fresh bread", "where is the ship of the queen at night"]
    taught = session.teacher.scores(queries)
    assert taught.shape == (2, len(session.passages.texts))
    paths = {number: path for path, number in session.passages.numbers.items()}
    for query, row in zip(queries, taught, strict=True):
        hits = [hit for hit in same_index.search(query, 150, collapse=False) if hit.path in session.passages.numbers]
        by_score = np.argsort(-row, kind="stable")[: len(hits)]
        assert {paths[session.passages.documents[position]] for position in by_score} == {hit.path for hit in hits}
        best = row[by_score]
        np.testing.assert_allclose(best, sorted((2 * hit.score for hit in hits), reverse=True), atol=1e-3)
    np.testing.assert_array_equal(taught, session.teacher.scores(queries))


def test_a_cross_encoder_orders_what_the_hybrid_finds_and_has_no_opinion_of_the_rest(tiny_model):
    class Longest:
        name = "longest"

        def score(self, query, passages):
            return np.array([len(text) for text in passages], np.float32)

    texts = [f"{row['text']} {'cat ' * n}" for n, row in enumerate(documents())]
    encoder = load_encoder(tiny_model)
    hybrid = teachers.Hybrid(encoder, texts, encoder.encode(texts))
    first = hybrid.scores(["the queen"])[0]
    scores = teachers.CrossEncoderTeacher(Longest(), hybrid, texts).scores(["the queen"])[0]
    known = np.flatnonzero(scores > teachers.NEVER)
    assert set(known) == set(np.argsort(-first, kind="stable")[: len(known)])
    assert len(known) == 16
    lengths = np.array([len(texts[position]) for position in known])
    assert np.corrcoef(scores[known], lengths)[0, 1] == pytest.approx(1)


@pytest.mark.thorough
def test_another_encoder_teaches_its_cosines(same_index, tiny_model, tmp_path, willing):
    from dataclasses import replace

    texts, events = ["the cat sat", "a ship at night", "bread and cheese"] * 100, []
    taught = teachers.teacher([tiny_model], texts, pytest.fail, events.append).scores(["the cat"])
    assert [(event.done, event.total) for event in events] == [(0, 2), (1, 2), (2, 2)]
    encoder = load_encoder(tiny_model)
    expected = 2 * teachers.standard_rows(encoder.encode(["the cat"]) @ encoder.encode(texts).T)
    np.testing.assert_allclose(taught, expected, atol=1e-4)
    result = tune.tune(same_index, recipe=replace(FAST, teachers=(tiny_model,)), out=tmp_path / "out", publish=False)
    assert result.verdict.queries > 8


def test_a_mixture_has_the_mean_of_its_teachers_scores(tiny_model, make_reranker, tmp_path):
    texts = [f"{row['text']} {'cat ' * n}" for n, row in enumerate(documents())]
    encoder, reranker = load_encoder(tiny_model), str(make_reranker(tmp_path / "reranker"))
    searches = []

    def hybrid():
        searches.append(teachers.Hybrid(encoder, texts, encoder.encode(texts)))
        return searches[-1]

    names, queries = (HYBRID, tiny_model, reranker), ["the queen", "a ship at night"]
    of_hybrid, of_encoder, of_reranker = (teachers.teacher([name], texts, hybrid).scores(queries) for name in names)
    searches.clear()
    mixture = teachers.teacher(names, texts, hybrid)
    for row, scores in enumerate(mixture.scores(queries)):
        read = of_reranker[row] > teachers.NEVER
        assert read.sum() == 16 < len(texts)
        expected = np.where(read, of_reranker[row], of_reranker[row][read].min())
        np.testing.assert_allclose(scores, (of_hybrid[row] + of_encoder[row] + expected) / 3, rtol=1e-5)
    assert len(searches) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("adapter", [False, True])
def test_a_mixture_teaches(same_index, tiny_model, make_reranker, tmp_path, adapter):
    """It is compared with the encoder first, as any teacher is."""
    from dataclasses import replace

    names = (HYBRID, tiny_model, str(make_reranker(tmp_path / "reranker")))
    recipe = replace(FAST, teachers=names, adapter=adapter)
    run = TrainingRun(tmp_path / "mixture", tiny_model, recipe)
    session = index_tuning.IndexTuning.open(run, same_index)
    texts, vectors = session.judges.texts, session.judges.stored_vectors(same_index.encoder)
    mixture = teachers.teacher(names, texts, lambda: teachers.Hybrid(same_index.encoder, texts, vectors))
    semantic, teaching = session.before["semantic"], session.teaching()
    expected = session.judges.compare(semantic, session.judges.by_teacher(mixture), 0)
    assert (teaching.before, teaching.after) == (expected.before, expected.after)
    result = session.fit_adapter() if adapter else session.train()
    assert result.queries > 8
    if not adapter:
        assert f"the rankings of a teacher ({' + '.join(names)})" in (tmp_path / "mixture" / "README.md").read_text()


@pytest.mark.parametrize("names", [(), "hybrid"])
def test_teachers_are_a_list_of_names(names, same_index):
    from dataclasses import replace

    with pytest.raises(InputError, match="teachers are a list with one name at least, not "):
        tune.tune(same_index, recipe=replace(FAST, teachers=names))


def test_the_divergence_is_that_of_the_softmaxes_over_known_passages():
    import torch

    teacher = torch.tensor([[1.0, 2.0, -1e4, 0.5], [0.0, 1.0, 1.0, -1e4]])
    student = torch.tensor([[0.3, -1.0, 9.0, 2.0], [1.0, 1.0, 0.0, 5.0]])
    expected = 0.0
    for known, row in (([0, 1, 3], 0), ([0, 1, 2], 1)):
        p, q = teacher[row, known].softmax(0), student[row, known].softmax(0)
        expected += float((p * (p / q).log()).sum()) / 2
    assert float(ranking_distillation.divergence(student, teacher)) == pytest.approx(expected, abs=1e-5)
    assert float(ranking_distillation.divergence(teacher, teacher)) == pytest.approx(0, abs=1e-6)


@pytest.mark.thorough
def test_the_loss_falls_and_a_query_s_own_document_is_not_taught(same_index, tmp_path):
    from dataclasses import replace

    session = tuning_of(same_index, tmp_path / "out")
    model = make_model(session.base.name, EncoderConfig())
    settings = replace(FAST.learning, steps=30)
    pair = session.queries.teaching[0]
    own = session.passages.documents == session.passages.numbers[pair.document]
    taught = ranking_distillation.scores_of_others(session.teacher, [pair], session.passages)[0]
    assert (taught[own] == teachers.NEVER).all()
    assert (taught[~own] > -100).all()
    learned = learn_ranking(model, session.queries.teaching, session.passages, session.teacher, settings)
    losses = [row["loss"] for row in learned.history]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:3])


def test_the_weights_are_the_mean_of_those_in_the_last_steps(same_index, tmp_path, monkeypatch):
    from dataclasses import replace

    session = tuning_of(same_index, tmp_path / "out")
    model = make_model(session.base.name, EncoderConfig())
    weight = next(model.parameters())
    weights = []
    real = ranking_distillation.RankingStudent.loss

    def loss(student, step):
        weights.append(weight.detach().clone())
        return real(student, step)

    monkeypatch.setattr(ranking_distillation.RankingStudent, "loss", loss)
    settings = replace(FAST.learning, steps=5, averaged=0.5)
    learn_ranking(model, session.queries.teaching, session.passages, session.teacher, settings)
    np.testing.assert_allclose(
        weight.detach(), np.mean([weight_of_step.numpy() for weight_of_step in weights[2:]], 0), atol=1e-6
    )


# The share of the base


class JudgesStub:
    """Judges of a stub: the quality of a model with one weight is told by a function of the weight."""

    def __init__(self, quality, count=base_share.MIN_QUERIES):
        self.quality, self.pairs = quality, [None] * count

    def vectors(self, encoder):
        return float(encoder.model.weight.detach())

    def by_mode(self, encoder, weight):
        return {mode: np.array([value], np.float32) for mode, value in self.quality(weight).items()}


@pytest.mark.parametrize(
    ("quality", "share"),
    [
        (lambda weight: {"semantic": weight, "hybrid": weight}, 1.0),
        (lambda weight: {"semantic": weight, "hybrid": -1.5 * weight}, 0.25),
        (lambda weight: {"semantic": 0.0, "hybrid": -abs(weight - 1.5)}, 0.75),
        (lambda _: {"semantic": 0.0, "hybrid": 0.0}, 0.25),
    ],
)
def test_the_weights_are_mixed_with_the_base_in_the_share_that_is_best_in_both_modes(quality, share):
    import torch

    model = torch.nn.Linear(1, 1, bias=False)
    base = {"weight": torch.zeros(1, 1)}
    model.weight.data.fill_(2.0)
    assert base_share.choose(model, base, JudgesStub(quality)) == share
    assert float(model.weight.detach()) == 2 * share
    model.weight.data.fill_(2.0)
    assert base_share.choose(model, base, JudgesStub(quality, count=base_share.MIN_QUERIES - 1)) == 0.5
    assert float(model.weight.detach()) == 1.0


def test_without_a_query_to_choose_by_half_of_what_was_learned_is_kept():
    import torch

    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(2.0)
    assert base_share.choose(model, {"weight": torch.zeros(1, 1)}, JudgesStub(lambda _: {}, count=0)) == 0.5
    assert float(model.weight.detach()) == 1.0


def test_the_queries_that_choose_the_share_are_of_documents_that_taught_nothing(same_index, tmp_path):
    session = tuning_of(same_index, tmp_path / "out")
    chosen = session._choosing_judges()
    documents_of = {pair.document for pair in chosen.pairs}
    assert documents_of
    assert documents_of <= session.passages.numbers.keys()
    assert not documents_of & {pair.document for pair in session.queries.teaching}
    numbers = {session.passages.numbers[name] for name in documents_of}
    assert numbers.isdisjoint(chosen.rivals.documents)


def test_a_model_in_training_encodes_as_the_encoder_that_is_written(tiny_model):
    encoder = base_share.ModelInTraining(make_model(tiny_model, EncoderConfig()))
    texts = ["the cat sat", "a ship at night"]
    for kind in ("query", "document"):
        actual, expected = encoder.encode(texts, kind), load_encoder(tiny_model).encode(texts, kind=kind)
        assert (actual * expected).sum(1) == pytest.approx(1, abs=1e-3)  # it may compute in bfloat16


# Distillation


def texts(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in documents()), "utf-8")
    return file


@pytest.mark.thorough
def test_a_student_of_fewer_layers_comes_nearer_to_its_teacher_and_both_are_measured(tmp_path, tiny_model):
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    rows = [{"_id": f"d{number}", "title": "", "text": row["text"]} for number, row in enumerate([*documents()][:12])]
    (beir / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    queries = [{"_id": f"q{number}", "text": row["text"]} for number, row in enumerate(rows[:6])]
    (beir / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries), "utf-8")
    judged = "".join(f"q{number}\td{number}\t1\n" for number in range(6))
    (beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", "utf-8")
    config = EncoderConfig(epochs=3, batch_size=16, learning_rate=1e-3, patience=None, evaluations=1)
    result = distill(tiny_model, tmp_path / "out", texts=texts(tmp_path), layers=1, evaluate_on=beir, config=config)
    layers = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))["num_hidden_layers"]
    assert (layers, result.layers) == (1, 1)
    assert result.measures["cosine to the teacher"][1] > 0.5
    expected = [
        evaluate(beir, mode="semantic", model=name).measures["nDCG@10"] for name in (tiny_model, str(result.folder))
    ]
    assert result.measures["nDCG@10"] == tuple(expected)
    measures = json.loads((tmp_path / "out" / "binocle.json").read_text("utf-8"))["measures"]
    shown = [(row["when"], row["value"], row["rows"], row["on"]) for row in measures if row["name"] == "nDCG@10"]
    assert shown == [("teacher", expected[0], 6, "beir test"), ("student", expected[1], 6, "beir test")]
    (measured,) = [row for row in measures if row["name"] == "cosine to the teacher"]
    assert (measured["on"], measured["rows"]) == ("held-out texts", 6)
    low, high = measured["interval"]
    assert low < measured["value"] < high
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_table_of_words_encodes_as_sentence_transformers_does(tmp_path, tiny_model):
    from sentence_transformers import SentenceTransformer

    config = EncoderConfig(epochs=1, batch_size=32, patience=None, evaluations=1)
    result = distill(tiny_model, tmp_path / "out", texts=texts(tmp_path), layers=0, config=config)
    encoder = load_encoder(str(result.folder))
    assert type(encoder).__name__ == "StaticEncoder"
    some = ["The cat sat", "a ship, at night", ""]
    expected = SentenceTransformer(str(result.folder), device="cpu").encode(some)
    np.testing.assert_allclose(encoder.encode(some), expected, atol=1e-6)
    assert encoder.offsets(["The cat"])[0][0] == (0, 3)


def test_blank_texts_of_a_collection_are_not_learned_from(tmp_path, tiny_model):
    config = EncoderConfig(steps=2, batch_size=4, patience=None, evaluations=1)
    passages = ["a ship", " ", "", "the sea", "a house", "the moon at night", "bread and cheese"]
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": f"d{n}", "title": "", "text": passage} for n, passage in enumerate(passages)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "ship"}\n', "utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n", "utf-8")
    for number, source in enumerate((passages, folder)):
        result = distill(tiny_model, tmp_path / f"out{number}", texts=source, layers=1, config=config)
        assert load_encoder(str(result.folder)).encode(["a ship"]).shape == (1, 32)


def test_a_student_that_cannot_be_trained_leaves_nothing(tmp_path, tiny_model, monkeypatch):
    def refused(*_, base, **__):
        assert (tmp_path / base / "config.json").exists()
        raise InputError("no")

    monkeypatch.setattr("binocle.training.encoders.distill.train_encoder", refused)
    with pytest.raises(InputError, match="no"):
        distill(tiny_model, tmp_path / "out", texts=["a ship", "the sea", "a house"], layers=1)
    assert not list(tmp_path.iterdir())


def test_a_student_as_large_as_its_teacher_is_refused(tmp_path, tiny_model):
    with pytest.raises(InputError, match="would not be smaller"):
        distill(tiny_model, tmp_path / "out", texts=["a b", "c d"], layers=12)


def test_a_student_learns_the_columns_that_are_known_to_be_texts_or_all(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("split,Title,text,score\ntrain,a ship,it sails,0.0\ntrain,a ship,it sank,1.0\n", "utf-8")
    assert list(distillation._texts(file)) == ["a ship", "it sails", "it sank"]
    file.write_text("note,remark,row_id\none,two,x\none,three,y\n", "utf-8")
    assert list(distillation._texts(file)) == ["one", "two", "three"]


@pytest.mark.parametrize(("given", "rate"), [({}, 2e-2), ({"learning_rate": 0.5}, 0.5)])
def test_a_table_learns_at_the_rate_that_is_given_and_in_the_folder_where_one_is(
    given, rate, tmp_path, tiny_model, monkeypatch
):
    file = texts(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    config = distillation.student_settings(0, steps=1, evaluations=1, **given)
    distill(tiny_model, ".", texts=file, layers=0, config=config)
    assert json.loads(Path("binocle.json").read_text("utf-8"))["config"]["learning_rate"] == rate
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", file.name]
