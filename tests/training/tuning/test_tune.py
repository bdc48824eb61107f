"""An index's encoder is fitted to its documents and changes only if documents that it has not seen gain."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from binocle.retriever.models.load import load_encoder

pytest.importorskip("torch")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

from binocle import Retriever, evaluate
from binocle.core.errors import InputError
from binocle.training.data import documents as corpus
from binocle.training.encoders import distill as distillation
from binocle.training.encoders.base_model import make_model
from binocle.training.encoders.config import EncoderConfig
from binocle.training.encoders.distill import distill
from binocle.training.evaluation import significance
from binocle.training.runs.training_run import TrainingRun
from binocle.training.tuning import index_tuning, ranking_distillation, teachers, tune
from binocle.training.tuning.bm25 import BM25, stems
from binocle.training.tuning.query_generation import SyntheticPair
from binocle.training.tuning.ranking_distillation import learn_ranking
from binocle.training.tuning.tuning_config import DistillationConfig, TuningConfig
from binocle.training.tuning.verdict import Verdict, even, judge, judging_share, query_ndcg

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
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(documents())
    return retriever


FAST = TuningConfig(
    pairs=60, queries=40, held_out=0.3, learning=DistillationConfig(steps=4, queries=16, passages=6, learning_rate=1e-3)
)


def tuning_of(index, out):
    return index_tuning.IndexTuning(TrainingRun(out, index.encoder.name, FAST), index)


def verdict(value=0.1, p=0.001, **kinds):
    return Verdict(40, 0.5, 0.5 + value, significance.Difference(value, value - 0.05, value + 0.05, p), kinds)


@pytest.mark.parametrize("p", [0.001, 0.2])
def test_only_a_significant_gain_changes_the_index_and_rollback_undoes_it(p, index, monkeypatch):
    monkeypatch.setattr(index_tuning, "judge", lambda *_: verdict(p=p, title=0.1, claim=0.1))
    before = index.encoder.fingerprint
    found = index.search("the cat ran", 5, mode="semantic")
    made = tune.tune(index, recipe=FAST)
    assert made.published == (p < 0.05)
    assert (index.encoder.fingerprint != before) == made.published
    assert index.verify().faults == []
    if made.published:
        assert index.encoder.fingerprint == load_encoder(str(made.folder)).fingerprint
        index.rollback()
    assert [(hit.path, hit.score) for hit in index.search("the cat ran", 5, mode="semantic")] == [
        (hit.path, pytest.approx(hit.score)) for hit in found
    ]


def test_a_gain_is_one_that_is_significant_and_of_more_than_one_kind_of_query():
    assert verdict(title=0.1, claim=0.1).is_gain
    assert not verdict(value=-0.1, title=-0.1, claim=-0.1).is_gain
    assert not verdict(p=0.2, title=0.1, claim=0.1).is_gain
    assert not verdict(title=0.3, claim=-0.02, cloze=0.01).is_gain
    assert verdict(title=0.3, claim=-0.02, cloze=0.01).carried_by == "title"
    assert verdict(title=0.3).is_gain


def test_kinds_of_queries_count_alike_however_many_there_are_of_each():
    asked = [SyntheticPair("q", "p", kind, "d", 1.0) for kind in ("title", *["keywords"] * 9)]
    before = np.zeros(10, np.float32)
    after = np.array([0.5, *[0.1] * 9], np.float32)
    found = judge(asked, before, after, seed=0)
    assert (found.before, found.after) == (0, pytest.approx(0.3))
    assert found.difference.value == pytest.approx(0.3)
    assert found.kinds == {"keywords": pytest.approx(0.1), "title": pytest.approx(0.5)}
    sampled = even(asked, 4, seed=0)
    assert [pair.kind for pair in sampled] == ["title", "keywords", "keywords"]


def test_queries_of_one_document_are_one_witness():
    asked = [SyntheticPair("q", "p", "title", document, 1.0) for document in "abc" for _ in range(20)]
    before = np.zeros(60, np.float32)
    after = np.repeat(np.array([0.1, 0.2, 0.3], np.float32), 20)
    found = judge(asked, before, after, seed=0).difference
    assert (found.value, found.p) == (pytest.approx(0.2), 2 / 2**3)  # all signs as they are, or none of them
    assert (found.low, found.high) == (pytest.approx(0.1), pytest.approx(0.3))


def test_of_few_documents_more_judge():
    assert [judging_share(count, 0.1) for count in (0, 10, 24, 48, 1000)] == [0.5, 0.5, 0.5, 0.25, 0.1]
    assert judging_share(48, 0.3) == 0.3


def test_the_folder_holds_the_encoder_and_what_was_measured(index, tiny_model, tmp_path):
    made = tune.tune(index, recipe=FAST, out=tmp_path / "out", publish=False)
    assert not made.published
    assert made.folder.parent == tmp_path / "out"
    facts = json.loads((made.folder / "binocle.json").read_text("utf-8"))
    assert facts["tuning"]["difference"]["p"] == pytest.approx(made.verdict.difference.p, abs=1e-4)
    assert facts["config"]["learning"]["steps"] == facts["steps"] == 4
    assert "gain in nDCG@10" in (made.folder / "README.md").read_text("utf-8")
    assert load_encoder(str(made.folder)).max_tokens == load_encoder(tiny_model).max_tokens
    assert not (made.folder / "run").exists()


def test_a_killed_run_goes_on_and_ends_with_the_same_weights(index, tmp_path, monkeypatch):
    class KilledError(Exception):
        pass

    def kill_after(steps):
        def loss(student, step):
            if step == steps:
                raise KilledError
            return real(student, step)

        return loss

    whole = tune.tune(index, recipe=FAST, out=tmp_path / "whole", publish=False)
    real = ranking_distillation.RankingStudent.loss
    monkeypatch.setattr(ranking_distillation.RankingStudent, "loss", kill_after(3))
    with pytest.raises(KilledError):
        tune.tune(index, recipe=FAST, out=tmp_path / "killed", publish=False)
    steps = []
    monkeypatch.setattr(
        ranking_distillation.RankingStudent, "loss", lambda student, step: steps.append(step) or real(student, step)
    )
    resumed = tune.tune(index, recipe=FAST, out=tmp_path / "killed", publish=False)
    assert steps == [3]
    assert load_encoder(str(resumed.folder)).fingerprint == load_encoder(str(whole.folder)).fingerprint


def test_the_judging_queries_are_of_documents_that_were_not_learned_from(index, tmp_path):
    session = tuning_of(index, tmp_path / "out")
    learned = {pair.document for pair in session.pairs}
    assert learned <= session.passages.numbers.keys()
    assert not session.passages.numbers.keys() & {pair.document for pair in session.judging_pairs}
    contexts = {passage.context for source in corpus.from_index(index.snapshot()) for passage in source.passages}
    assert set(session.passages.texts) < contexts


def test_judging_is_ndcg_of_the_one_passage_among_those_of_other_documents():
    class Fake:
        def encode(self, texts, kind="document"):
            table = {"q": (1, 0), "own": (0.5, 0.5), "near": (1, 0), "r": (0, 1), "far": (0, 1), "same": (1, 0)}
            return np.array([table[text] for text in texts], np.float32)

    rivals = np.array([(0, 1), (0.9, 0), (0.4, 0)], np.float32)
    asked = [
        SyntheticPair("q", "own", "title", "d", 1.0),
        SyntheticPair("q", "same", "title", "d", 1.0),
        SyntheticPair("r", "far", "title", "e", 1.0),
    ]
    found = query_ndcg(Fake(), asked, ["far", "near", "else"], rivals)
    np.testing.assert_allclose(found, [1 / np.log2(3), 1, 1], atol=1e-6)
    found = query_ndcg(Fake(), asked, ["else", "near", "far"], rivals)
    np.testing.assert_allclose(found, [1 / np.log2(3), 1, 1 / np.log2(3)], atol=1e-6)


def test_an_encoder_that_tells_nothing_apart_finds_nothing():
    class Collapsed:
        def encode(self, texts, kind="document"):
            return np.full((len(texts), 3), 3**-0.5, np.float32)

    asked = [SyntheticPair("q", f"p{n}", "title", f"{n}", 1.0) for n in range(11)]
    assert query_ndcg(Collapsed(), asked, ["r"], Collapsed().encode("r")).tolist() == [0] * 11


def test_too_few_documents_are_told(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "a", "text": "the cat sat"}])
    with pytest.raises(InputError, match="holds too little to learn from"):
        tune.tune(retriever, recipe=FAST)


# Rankings


def test_bm25_is_the_formula_over_beginnings_of_words():
    passages = ["The retrying worker retries", "retried once", "a queue", "a server", "a task", "a file"]
    scores = BM25(passages).scores("Retry retrying worker worker")
    lengths = np.array([4, 2, 1, 1, 1, 1])
    idf = {"retryin": np.log1p(5.5 / 1.5), "worker": np.log1p(5.5 / 1.5)}
    weight = 2.2 / (1 + 1.2 * (0.25 + 0.75 * 4 / lengths.mean()))
    np.testing.assert_allclose(scores, [sum(idf.values()) * weight, 0, 0, 0, 0, 0], rtol=1e-6)
    assert stems("Retries, of 7 tokenizers!") == ["retries", "of", "tokeniz"]


def test_standard_scores_are_taken_over_the_best():
    scores = np.concatenate([np.linspace(5, 3, 200), np.full(1000, -50.0)]).astype(np.float32)[None]
    found = teachers.standard_rows(scores)
    assert (found[0, :200].mean(), found[0, :200].std()) == (pytest.approx(0, abs=1e-5), pytest.approx(1, abs=1e-5))
    assert np.isfinite(teachers.standard_rows(np.zeros((2, 3), np.float32))).all()


def test_the_hybrid_teacher_adds_words_and_meaning(tiny_model):
    passages = [row["text"] for row in documents()]
    encoder = load_encoder(tiny_model)
    vectors = encoder.encode(passages)
    asked = ["the price of bread", "a ship at night"]
    found = teachers.teacher("hybrid", encoder, passages, vectors).scores(asked)
    words = np.stack([BM25(passages).scores(text) for text in asked])
    expected = teachers.standard_rows(words) + teachers.standard_rows(encoder.encode(asked, kind="query") @ vectors.T)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_cross_encoder_orders_what_the_hybrid_finds_and_has_no_opinion_of_the_rest(tiny_model):
    class Longest:
        name = "longest"

        def score(self, query, passages):
            return np.array([len(text) for text in passages], np.float32)

    passages = [f"{row['text']} {'cat ' * n}" for n, row in enumerate(documents())]
    encoder = load_encoder(tiny_model)
    hybrid = teachers.Hybrid(encoder, passages, encoder.encode(passages))
    first = hybrid.scores(["the queen"])[0]
    found = teachers.CrossEncoderTeacher(Longest(), hybrid, passages).scores(["the queen"])[0]
    known = np.flatnonzero(found > teachers.NEVER)
    assert set(known) == set(np.argsort(-first, kind="stable")[: len(known)])
    assert len(known) == 16
    lengths = np.array([len(passages[place]) for place in known])
    assert np.corrcoef(found[known], lengths)[0, 1] == pytest.approx(1)


def test_another_encoder_teaches_its_cosines(index, tiny_model, tmp_path):
    from dataclasses import replace

    passages = ["the cat sat", "a ship at night", "bread and cheese"]
    taught = teachers.teacher(tiny_model, None, passages, None).scores(["the cat"])
    encoder = load_encoder(tiny_model)
    expected = 2 * teachers.standard_rows(encoder.encode(["the cat"]) @ encoder.encode(passages).T)
    np.testing.assert_allclose(taught, expected, atol=1e-4)
    made = tune.tune(index, recipe=replace(FAST, teacher=tiny_model), out=tmp_path / "out", publish=False)
    assert made.verdict.queries > 8


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


def test_the_loss_falls_and_a_query_s_own_document_is_not_taught(index, tmp_path):
    from dataclasses import replace

    session = tuning_of(index, tmp_path / "out")
    model = make_model(session.base.name, EncoderConfig())
    settings = replace(FAST.learning, steps=30)
    student = ranking_distillation.RankingStudent(model, session.pairs, session.passages, session.teacher, settings, 0)
    pair = session.pairs[0]
    own = session.passages.documents == session.passages.numbers[pair.document]
    taught = student._teacher_scores([pair])[0]
    assert (taught[own] == teachers.NEVER).all()
    assert (taught[~own] > -100).all()
    learned = learn_ranking(model, session.pairs, session.passages, session.teacher, settings)
    losses = [row["loss"] for row in learned.history]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:3])


def test_the_weights_are_the_mean_of_those_in_the_last_steps(index, tmp_path, monkeypatch):
    from dataclasses import replace

    session = tuning_of(index, tmp_path / "out")
    model = make_model(session.base.name, EncoderConfig())
    weight = next(model.parameters())
    seen = []
    real = ranking_distillation.RankingStudent.loss

    def loss(student, step):
        seen.append(weight.detach().clone())
        return real(student, step)

    monkeypatch.setattr(ranking_distillation.RankingStudent, "loss", loss)
    settings = replace(FAST.learning, steps=5, averaged=0.5)
    learn_ranking(model, session.pairs, session.passages, session.teacher, settings)
    np.testing.assert_allclose(weight.detach(), np.mean([one.numpy() for one in seen[2:]], 0), atol=1e-6)


# Distillation


def texts(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in documents()), "utf-8")
    return file


def test_a_student_of_fewer_layers_comes_nearer_to_its_teacher(tmp_path, tiny_model):
    config = EncoderConfig(epochs=3, batch_size=16, learning_rate=1e-3, patience=None, evaluations=1)
    made = distill(tiny_model, tmp_path / "out", texts=texts(tmp_path), layers=1, config=config)
    layers = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))["num_hidden_layers"]
    assert (layers, made.layers) == (1, 1)
    assert made.measures["cosine to the teacher"][1] > 0.5
    (measured,) = json.loads((tmp_path / "out" / "binocle.json").read_text("utf-8"))["measures"]
    assert (measured["on"], measured["rows"]) == ("held-out texts", 6)
    low, high = measured["interval"]
    assert low < measured["value"] < high
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_table_of_words_encodes_as_sentence_transformers_does(tmp_path, tiny_model):
    from sentence_transformers import SentenceTransformer

    config = EncoderConfig(epochs=1, batch_size=32, patience=None, evaluations=1)
    made = distill(tiny_model, tmp_path / "out", texts=texts(tmp_path), layers=0, config=config)
    encoder = load_encoder(str(made.folder))
    assert type(encoder).__name__ == "StaticEncoder"
    some = ["The cat sat", "a ship, at night", ""]
    expected = SentenceTransformer(str(made.folder), device="cpu").encode(some)
    np.testing.assert_allclose(encoder.encode(some), expected, atol=1e-6)
    assert encoder.offsets(["The cat"])[0][0] == (0, 3)


def test_teacher_and_student_are_measured_on_a_collection(tmp_path, tiny_model):
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    rows = [{"_id": f"d{number}", "title": "", "text": row["text"]} for number, row in enumerate([*documents()][:12])]
    (beir / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    asked = [{"_id": f"q{number}", "text": row["text"]} for number, row in enumerate(rows[:6])]
    (beir / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), "utf-8")
    judged = "".join(f"q{number}\td{number}\t1\n" for number in range(6))
    (beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", "utf-8")
    config = EncoderConfig(epochs=1, batch_size=32, patience=None, evaluations=1)
    made = distill(tiny_model, tmp_path / "out", texts=texts(tmp_path), layers=1, evaluate_on=beir, config=config)
    expected = [
        evaluate(beir, mode="semantic", model=name).measures["nDCG@10"] for name in (tiny_model, str(made.folder))
    ]
    assert made.measures["nDCG@10"] == tuple(expected)
    measures = json.loads((tmp_path / "out" / "binocle.json").read_text("utf-8"))["measures"]
    shown = [(row["when"], row["value"], row["rows"], row["on"]) for row in measures if row["name"] == "nDCG@10"]
    assert shown == [("teacher", expected[0], 6, "beir test"), ("student", expected[1], 6, "beir test")]


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
