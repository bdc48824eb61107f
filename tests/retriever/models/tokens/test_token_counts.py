from __future__ import annotations

import random
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
    assert encoder.texts == ["a mouse"]
    encoder.texts.clear()
    count("y" * 41)
    assert encoder.texts == ["y" * 41]  # a word so long is not kept


def test_words_that_were_learned_at_once_are_not_tokenized_again(tiny):
    encoder = Recorded(tiny, "c")
    count = TokenCounter(encoder)
    encoder.texts.clear()
    count.learn(["the cat", "a cat's house"])
    assert encoder.texts == ["the cat a cat's house"]
    assert count("a cat's\nthe cat") == len(tiny.offsets(["a cat's the cat"])[0])
    assert len(encoder.texts) == 1


def test_exact_counts_are_those_of_the_tokenizer_for_any_characters(tiny):
    count, choice = TokenCounter(tiny), random.Random(0)
    alphabet = (
        "thecatsan \n\t\r\x0b\x0c\x1c\x1f\x85\xa0\u2003\u2028\u3000\u200b\ufeff\x00é\u0301İßΣ敏,.-[]#'’中\U0001f600"
    )
    for _ in range(2_000):
        text = "".join(choice.choices(alphabet, k=choice.randrange(30)))
        assert count.exact(text) == len(tiny.offsets([text])[0]), ascii(text)


def test_berts_tokenizer_need_not_read_a_known_text_again(tiny):
    assert tiny.splits_at_white_space
    count = TokenCounter(tiny)
    count("the cat")
    count._encoder = None
    assert count.exact("the cat") == 2


def test_where_words_do_not_add_up_a_text_is_tokenized_whole():
    encoder = Recorded(Characters(), "b")
    assert TokenCounter(encoder)("the cat") == 7
    assert encoder.texts[-1] == "the cat"
