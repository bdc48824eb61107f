"""Settings of the training of encoders."""

from __future__ import annotations

from binocle.training.encoders.config import EncoderConfig, with_rate


def test_low_rank_training_has_a_rate_of_its_own():
    rates = [with_rate(EncoderConfig(**options)).learning_rate for options in ({}, {"lora": 8}, {"learning_rate": 1.0})]
    assert rates == [2e-5, 2e-4, 1.0]
