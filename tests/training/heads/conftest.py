"""A tiny reader, trained once."""

from __future__ import annotations

import numpy as np
import pytest

WHO, WHERE = "cat dog queen king".split(), "mat house river mountain".split()


def make_rows(count: int = 160) -> list[dict]:
    """Two facts a context; the question asks for the place in one of them."""
    random = np.random.default_rng(0)
    rows = []
    for number in range(count):
        one, two = (WHO[pick] for pick in random.permutation(4)[:2])
        here, there = (WHERE[pick] for pick in random.permutation(4)[:2])
        context = f"the {one} sat on the {here} and the {two} ran to the {there}"
        rows.append({"title": f"{number % 20}", "context": context, "question": f"where the {one}", "answers": [here]})
    return rows


@pytest.fixture(scope="session")
def squad_rows():
    """`make_rows(count)`."""
    return make_rows


@pytest.fixture(scope="session")
def trained_reader(made_once, tiny_model):
    """Its folder, for all processes of the run. Not to be changed."""
    pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    from binocle.training.heads.config import ReaderConfig
    from binocle.training.heads.train import train_reader

    config = ReaderConfig(
        steps=40, max_length=48, learning_rate=5e-3, unanswerable=0.2, held_out=0.1, evaluations=1, bf16=False
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BINOCLE_PRECISION", "float32")
        return made_once("reader", lambda folder: train_reader(make_rows(), folder, base=tiny_model, config=config))
