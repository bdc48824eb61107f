"""A temperature makes the probabilities of named tokens hold, and does not change the tokens."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import cross_entropy

from binocle.training.inversion.token_calibration import calibrate


def sample(temperature: float, *, seed: int = 0, texts: int = 200, tokens: int = 8, vocabulary: int = 50):
    """Logits of texts; the softmax at a temperature draws their true tokens."""
    torch.manual_seed(seed)
    logits = 3 * torch.randn(texts, tokens, vocabulary)
    true = torch.multinomial((logits / temperature).softmax(-1).flatten(0, 1), 1).view(texts, tokens)
    return list(zip(logits, true, strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_the_temperature_that_the_tokens_were_drawn_at_is_found(temperature):
    fitted, (raw, calibrated) = calibrate(sample(temperature), 0)
    assert fitted == pytest.approx(temperature, rel=0.1)
    assert (raw["name"], calibrated["name"]) == ("calibration error, raw", "calibration error")
    assert calibrated["value"] < 0.06 and raw["rows"] == calibrated["rows"] == 200
    assert calibrated["value"] < raw["value"] / 3 or temperature == 1


@pytest.mark.parametrize("seed", range(8))
def test_the_tokens_stay_and_the_true_ones_are_no_less_likely(seed):
    random = np.random.default_rng(seed)
    rows = sample(float(random.uniform(0.1, 8)), seed=seed, texts=5, tokens=int(random.integers(1, 40)))
    fitted, _ = calibrate(rows, 0)
    every = -(-len(rows[0][1]) // 8)
    logits, true = (torch.cat([row[part][::every] for row in rows]) for part in (0, 1))
    assert (logits / fitted).argmax(-1).equal(logits.argmax(-1))
    assert cross_entropy(logits / fitted, true) <= cross_entropy(logits, true) + 1e-6


def test_without_texts_nothing_is_fitted():
    assert calibrate([], 0) == (1.0, [])
