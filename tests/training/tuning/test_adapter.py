"""A map of the query vectors is learned from vectors alone, and judged, published and undone as a tuned encoder is."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")

from binocle import Retriever, load_encoder
from binocle.core.errors import InputError
from binocle.retriever.models.encoders.adapted_encoder import AdaptedEncoder
from binocle.retriever.models.model_files import INT8
from binocle.training.tuning import adapter, index_tuning, tune, tuning_queries
from binocle.training.tuning.adapter import fit_map, weaken
from binocle.training.tuning.base_share import MIN_QUERIES
from binocle.training.tuning.teachers import NEVER
from binocle.training.tuning.tuning_config import TuningConfig
from binocle.training.tuning.verdict import Judges

from .test_tune import FAST, SAME, comparison, documents, index, same_index, verdict  # noqa: F401 - fixtures

ADAPTER = TuningConfig(pairs=60, queries=40, held_out=0.3)
BETTER = comparison(p=0.001, title=0.1, claim=0.1)


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def turned():
    """Queries and passages; the teacher ranks by the cosine after each pair of dimensions is turned by 60 degrees."""
    generator = np.random.default_rng(0)
    queries, passages = (unit(generator.normal(size=(count, 8))) for count in (120, 60))
    turn = np.kron(np.eye(4), [[0.5, 0.75**0.5], [-(0.75**0.5), 0.5]]).astype(np.float32)
    return queries, passages, 30 * (queries @ turn) @ passages.T


def even(count):
    return np.full(count, 1 / count)


def agreement(queries, passages, scores):
    """Return the share of queries for which map and teacher have the same best passage."""
    return float(((queries @ passages.T).argmax(1) == scores.argmax(1)).mean())


def test_the_map_ranks_as_the_teacher_does_for_queries_that_it_did_not_learn(turned, monkeypatch):
    monkeypatch.setattr(adapter, "_RATE", 0.02)
    queries, passages, scores = turned
    matrix = fit_map(queries[:90], scores[:90], passages, even(90), seed=0)
    assert matrix.shape == (8, 8)
    assert matrix.dtype == np.float32
    assert agreement(queries[90:], passages, scores[90:]) < 0.5
    assert agreement(queries[90:] @ matrix, passages, scores[90:]) > 0.8
    assert np.array_equal(fit_map(queries[:90], scores[:90], passages, even(90), seed=0), matrix)


def test_a_map_that_ranks_as_the_teacher_does_stays_the_identity(turned):
    queries, passages, _ = turned
    matrix = fit_map(queries, 30 * queries @ passages.T, passages, even(len(queries)), seed=0)
    np.testing.assert_allclose(matrix, np.eye(8), atol=0.01)


def test_passages_that_the_teacher_did_not_score_teach_nothing(turned):
    queries, passages, scores = turned
    unscored = np.where(np.arange(len(passages)) < 30, scores, NEVER).astype(np.float32)
    expected = fit_map(queries, scores[:, :30], passages[:30], even(len(queries)), seed=0)
    np.testing.assert_allclose(fit_map(queries, unscored, passages, even(len(queries)), seed=0), expected, atol=1e-4)


class JudgesStub:
    """Judges of a stub: the quality of a map is told by a function of its first element."""

    def __init__(self, quality, count=MIN_QUERIES):
        self.quality, self.pairs = quality, [None] * count

    def stored_vectors(self, encoder):
        return encoder

    def by_mode(self, encoder, base):
        assert encoder.base is base
        return {mode: np.array([value]) for mode, value in self.quality(float(encoder.matrix[0, 0])).items()}

    def judge(self, before, after, seed):
        modes = {mode: comparison(value=float(after[mode][0] - before[mode][0]), p=0.2) for mode in before}
        return verdict(modes["semantic"], modes["hybrid"])


@pytest.mark.parametrize(
    ("quality", "count", "share"),
    [
        (lambda value: {"semantic": value, "hybrid": value}, MIN_QUERIES, 1.0),
        (lambda value: {"semantic": value, "hybrid": -2 * value}, MIN_QUERIES, 0.0),
        (lambda value: {"semantic": 0.0, "hybrid": -abs(value - 2)}, MIN_QUERIES, 0.5),
        (lambda value: {"semantic": value, "hybrid": value}, MIN_QUERIES - 1, 0.5),
    ],
)
def test_the_map_is_mixed_with_the_identity_in_the_share_that_is_best_in_both_modes(quality, count, share, tiny_model):
    base = load_encoder(tiny_model)
    identity = np.eye(base.dim, dtype=np.float32)
    matrix, chosen = weaken(3 * identity, base, JudgesStub(quality, count))
    assert chosen == share
    np.testing.assert_allclose(matrix, (1 + 2 * share) * identity)


class LogStub:
    """Queries of a log; a function of a map's first element gives its agreement with the teacher."""

    seed = 0

    def __init__(self, agreement):
        self._agreement = agreement

    def agreement(self, encoder):
        return np.array([self._agreement(float(encoder.matrix[0, 0]))])


@pytest.mark.parametrize(
    ("agreement", "semantic", "hybrid", "share"),
    [
        (lambda value: value, lambda _: 0, lambda _: 0, 1.0),
        (lambda value: value, lambda value: -0.002 * value, lambda value: 0.001 * value, 1.0),  # they lose little
        (lambda value: value, lambda _: 0, lambda value: -0.004 * (value - 1), 0.5),  # at .75 they lose .6 points
        (lambda value: value, lambda value: -value, lambda _: 0, 0.0),
        (lambda value: -abs(value - 2), lambda value: value, lambda value: value, 0.5),
        (lambda value: -value, lambda value: value, lambda value: value, 0.0),
    ],
)
def test_queries_of_a_log_choose_the_share_unless_generated_ones_lose_much(
    agreement, semantic, hybrid, share, tiny_model
):
    base = load_encoder(tiny_model)
    matrix = 3 * np.eye(base.dim, dtype=np.float32)
    judges = JudgesStub(lambda value: {"semantic": semantic(value), "hybrid": hybrid(value)})
    assert weaken(matrix, base, judges, LogStub(agreement))[1] == share


def test_few_generated_queries_exclude_no_share_from_those_of_a_log(tiny_model):
    base = load_encoder(tiny_model)
    judges = JudgesStub(lambda value: {"semantic": -value, "hybrid": -value}, MIN_QUERIES - 1)
    assert weaken(3 * np.eye(base.dim, dtype=np.float32), base, judges, LogStub(lambda value: value))[1] == 1


@pytest.mark.thorough
@pytest.mark.parametrize("p", [0.001, 0.2])
def test_only_a_significant_gain_puts_the_adapter_in_service(p, index, monkeypatch):  # noqa: F811
    gain = comparison(p=p, title=0.1, claim=0.1)
    monkeypatch.setattr(index_tuning.IndexTuning, "teaching", lambda _: BETTER)
    monkeypatch.setattr(Judges, "judge", lambda *_: verdict(gain, SAME))
    before, head = index.encoder.fingerprint, index.snapshot().head
    result = tune.tune(index, recipe=ADAPTER)
    assert (result.published, result.teaching) == (p < 0.05, BETTER)
    assert (index.encoder.fingerprint != before) == result.published
    assert index.snapshot().head.chunks == head.chunks
    assert json.loads((result.folder / "binocle.json").read_text())["tuning"]["pairs"] == result.pairs
    adapted = load_encoder(str(result.folder))
    assert isinstance(adapted, AdaptedEncoder)
    assert adapted.base.fingerprint == before
    if result.published:
        assert index.encoder.fingerprint == load_encoder(str(result.folder)).fingerprint
        with pytest.raises(InputError, match="has an adapter: 'binocle rollback'"):
            tune.tune(index, recipe=FAST)
        index.rollback()
    else:
        assert tune.tune(index, recipe=ADAPTER).folder != result.folder  # the next one goes beside it
    assert index.encoder.fingerprint == before


@pytest.mark.thorough
def test_an_adapter_of_an_index_in_int8_keeps_its_vectors(tmp_path, tiny_model, monkeypatch):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model + INT8)
    retriever.add(documents())
    monkeypatch.setattr(index_tuning.IndexTuning, "teaching", lambda _: BETTER)
    monkeypatch.setattr(Judges, "judge", lambda *_: verdict(BETTER, SAME))
    base, head = retriever.encoder, retriever.snapshot().head
    result = tune.tune(retriever, recipe=ADAPTER)
    assert result.published
    assert result.model == str(result.folder)
    assert isinstance(retriever.encoder, AdaptedEncoder)
    assert retriever.encoder.base.name == base.name
    assert retriever.encoder.base.fingerprint == base.fingerprint
    assert retriever.snapshot().head.chunks == head.chunks


def test_an_adapter_learns_nothing_from_a_teacher_that_is_no_better(index, monkeypatch):  # noqa: F811
    monkeypatch.setattr(index_tuning.IndexTuning, "teaching", lambda _: comparison(p=0.2, title=0.1, claim=0.1))
    result = tune.tune(index, recipe=ADAPTER)
    assert (result.verdict, result.published) == (None, False)
    assert not result.folder.exists()


@pytest.mark.thorough
def test_queries_of_a_log_that_were_held_back_judge_the_adapter(same_index, tmp_path, monkeypatch):  # noqa: F811
    words = "queen king moon sun sea ship river mountain bread cheese".split()
    (tmp_path / "log.txt").write_text("".join(f"where is the {word}\n" for word in words), "utf-8")
    monkeypatch.setattr(tuning_queries, "_LOG_ALONE", 10)
    monkeypatch.setattr(index_tuning.IndexTuning, "teaching", lambda _: BETTER)
    recipe = replace(ADAPTER, log=str(tmp_path / "log.txt"))
    runs = {}
    for share in (0.0, 1.0):
        monkeypatch.setattr(index_tuning, "weaken", partial(mixed, share=share))
        result = tune.tune(same_index, recipe=recipe, out=tmp_path / f"out-{share}", publish=False)
        runs[share] = result.verdict.log
        assert (result.pairs, result.verdict.log.queries) == (6, 2)
        assert json.loads((result.folder / "binocle.json").read_text())["tuning"]["log"] == runs[share].as_dict()
    assert runs[0.0].before == runs[0.0].after == runs[1.0].before
    assert 0 < runs[0.0].before < 1


def mixed(matrix, *_, share):
    """Return the map mixed with the identity, and the share of the map."""
    return np.ascontiguousarray(np.eye(len(matrix), dtype=np.float32) * (1 - share) + np.float32(share) * matrix), share


@pytest.mark.parametrize(
    ("config", "maximum"),
    [(TuningConfig(), 4_000), (TuningConfig(adapter=False), 10_000), (TuningConfig(pairs=3_000), 3_000)],
)
def test_an_adapter_learns_from_fewer_queries_unless_their_number_is_set(config, maximum):
    assert config.adapter == (maximum != 10_000)
    assert config.generated == maximum
