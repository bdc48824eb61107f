"""A map of the query vectors is learned from vectors alone, and judged, published and undone as a tuned encoder is."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from binocle import load_encoder
from binocle.core.errors import InputError
from binocle.retriever.models.encoders.adapted_encoder import AdaptedEncoder
from binocle.training.tuning import adapter, tune
from binocle.training.tuning.adapter import Candidates, fit_adapter
from binocle.training.tuning.tuning_config import TuningConfig
from binocle.training.tuning.verdict import Judges

from .test_tune import FAST, SAME, comparison, index, verdict  # noqa: F401 - fixtures

ADAPTER = TuningConfig(pairs=60, queries=40, held_out=0.3, adapter=True)


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def mirrored(count=120, dim=8, rivals=20):
    """Queries that find their own passage once their first half of dimensions is mirrored."""
    generator = np.random.default_rng(0)
    own = unit(generator.normal(size=(count, dim)))
    signs = np.where(np.arange(dim) < dim // 2, -1, 1).astype(np.float32)
    queries = unit(own * signs + 0.05 * generator.normal(size=own.shape))
    numbers = (np.arange(count)[:, None] + 1 + np.arange(rivals)) % count
    rest = np.zeros((count, 1 + rivals), np.float32)
    return Candidates(queries, own, numbers, own, np.ones((count, 1), np.float32), rest, np.arange(count))


def reciprocal_rank(data, matrix):
    return adapter._reciprocal_rank(data, np.arange(len(data.queries)), matrix)


def test_the_map_finds_more_of_the_own_passages(monkeypatch):
    monkeypatch.setattr(adapter, "_RATE", 0.02)
    data = mirrored()
    matrix, share = fit_adapter(data, seed=0)
    assert share > 0
    assert reciprocal_rank(data, matrix) > reciprocal_rank(data, np.eye(8, dtype=np.float32)) + 0.2
    assert np.array_equal(fit_adapter(data, seed=0)[0], matrix)


def test_queries_without_anything_to_learn_keep_the_identity():
    data = mirrored()
    noise = unit(np.random.default_rng(1).normal(size=data.own.shape))
    at_their_best = Candidates(data.own, data.own, data.rivals, noise, data.slope, data.rest, data.documents)
    matrix, share = fit_adapter(at_their_best, seed=0)
    assert share == 0
    assert np.array_equal(matrix, np.eye(8, dtype=np.float32))


def test_the_gradient_is_that_of_the_loss():
    data = mirrored(count=6, dim=4, rivals=3)
    rest = np.random.default_rng(2).normal(size=(6, 4)).astype(np.float32)
    data = replace(data, slope=data.slope * 3, rest=rest)
    rows, matrix = np.arange(6), np.random.default_rng(3).normal(size=(4, 4))

    def loss(matrix):
        images = unit64(data.queries @ matrix)
        cosines = np.einsum("nkd,nd->nk", data.vectors(rows), images)
        total = 0.0
        for scale, scores in zip(adapter._SCALES, (cosines, data.fused(rows, cosines)), strict=True):
            total -= (scale * scores[:, 0] - np.log(np.exp(scale * scores).sum(1))).mean() / 2
        return total

    found = adapter._gradient(data, rows, matrix)
    for place in [(0, 0), (1, 3), (3, 2)]:
        step = np.zeros((4, 4))
        step[place] = 1e-5
        assert found[place] == pytest.approx((loss(matrix + step) - loss(matrix - step)) / 2e-5, rel=1e-3, abs=1e-4)


def unit64(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("p", [0.001, 0.2])
def test_only_a_significant_gain_puts_the_adapter_in_service(p, index, monkeypatch):  # noqa: F811
    gain = comparison(p=p, title=0.1, claim=0.1)
    monkeypatch.setattr(Judges, "judge", lambda *_: verdict(gain, SAME))
    before, head = index.encoder.fingerprint, index.snapshot().head
    result = tune.tune(index, recipe=ADAPTER)
    assert (result.published, result.teaching) == (p < 0.05, None)
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


def test_an_adapter_takes_neither_a_log_nor_a_teacher(index):  # noqa: F811
    for wrong in ({"log": "queries.txt"}, {"teacher": "some-model"}):
        with pytest.raises(InputError, match="leave out --queries and --teacher"):
            tune.tune(index, recipe=TuningConfig(adapter=True, **wrong))
