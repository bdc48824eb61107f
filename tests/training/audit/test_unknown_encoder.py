"""A thief who knows neither the encoder nor a pair names the encoder among several, and reads through it."""

from __future__ import annotations

import numpy as np
import pytest

from binocle.indexes.metric import normalized
from binocle.retriever.models.load import load_encoder
from binocle.retriever.models.tokens.token_ids import EncoderTokens
from binocle.training.audit.attacks.unknown_encoder import Suspects, shape_difference

WORDS = "cat dog house moon tax bread cheese salt ship sea night king year task queue oven light network".split()


@pytest.fixture(scope="session")
def texts() -> list[str]:
    random = np.random.default_rng(0)
    return list(dict.fromkeys(" ".join(random.choice(WORDS, 6)) for _ in range(640)))


@pytest.fixture(scope="session")
def encoders(tiny, make_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("suspects") / "cls"
    return [load_encoder(str(make_model(folder, pooling={"pooling_mode_cls_token": True}))), tiny]


@pytest.fixture(scope="session")
def suspects(encoders, tiny, texts) -> Suspects:
    own = texts[:300]
    return Suspects(encoders, own, EncoderTokens.of(tiny)(own), 6, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("defence", ["none", "rotation", "noise", "half"])
def test_the_right_encoder_is_named_whatever_the_defence(defence, suspects, tiny, texts):
    random, stolen = np.random.default_rng(1), tiny.encode(texts[300:])
    changed = {
        "none": stolen,
        "rotation": stolen @ np.linalg.qr(random.standard_normal((tiny.dim, tiny.dim)))[0].astype(np.float32),
        "noise": normalized(stolen + 0.02 * random.standard_normal(stolen.shape).astype(np.float32)),
        "half": normalized(stolen[:, : tiny.dim // 2]),
    }[defence]
    first, second, *_ = suspects.likeliest(changed, EncoderTokens.of(tiny)(texts[-40:]))
    assert first.encoder == tiny.name
    assert first.difference < second.difference
    if defence != "rotation":  # of so few vectors it cannot be undone
        assert first.f1 > max(second.f1, 0.3) + 0.1


def test_an_encoder_of_shorter_vectors_is_ruled_out(suspects, texts, tiny):
    stolen = np.random.default_rng(0).standard_normal((100, 2 * tiny.dim)).astype(np.float32)
    assert {(suspect.difference, suspect.f1) for suspect in suspects.likeliest(stolen, [[1]])} == {(None, None)}


def test_no_rotation_and_no_length_changes_the_shape():
    random = np.random.default_rng(0)
    vectors = (random.standard_normal((200, 8)) * np.arange(1, 9) + 3).astype(np.float32)
    turn = np.linalg.qr(random.standard_normal((8, 8)))[0].astype(np.float32)
    assert shape_difference(vectors, 5 * vectors @ turn) == pytest.approx(0, abs=1e-5)
    assert shape_difference(vectors, vectors[:, ::-1] ** 2) > 0.1
