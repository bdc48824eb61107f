from __future__ import annotations

import re

import pytest

from binocle.retriever.models.tokens import token_counts
from binocle.retriever.models.tokens.token_boundaries import SAMPLES
from binocle.retriever.models.tokens.token_counts import TokenCounter


class Recorded:
    """An encoder that notes the texts that it tokenizes."""

    def __init__(self, encoder, fingerprint):
        self.encoder, self.fingerprint, self.texts = encoder, fingerprint, []

    def offsets(self, texts):
        self.texts += texts
        return self.encoder.offsets(texts)


class Characters:
    def offsets(self, texts):
        return [[match.span() for match in re.finditer(r".", text)] for text in texts]


@pytest.fixture(autouse=True)
def no_words(monkeypatch):
    monkeypatch.setattr(token_counts, "_WORDS", {})


def test_tokens_are_counted_as_the_encoder_does(tiny):
    count = TokenCounter(tiny)
    for text in (*SAMPLES, "", " \n", "the cat\n\nsat  on", "x" * 500):
        assert count(text) == len(tiny.offsets([text])[0])


def test_a_word_is_tokenized_once(tiny):
    encoder = Recorded(tiny, "a")
    TokenCounter(encoder)("the cat and the dog " + "y" * 41)
    encoder.texts.clear()
    count = TokenCounter(encoder)
    assert count("the dog\nand a mouse") == len(tiny.offsets(["the dog and a mouse"])[0])
    assert encoder.texts == ["a", "mouse"]
    encoder.texts.clear()
    count("y" * 41)
    assert encoder.texts == ["y" * 41]  # a word so long is not kept


def test_where_words_do_not_add_up_a_text_is_tokenized_whole():
    encoder = Recorded(Characters(), "b")
    assert TokenCounter(encoder)("the cat") == 7
    assert encoder.texts[-1] == "the cat"
