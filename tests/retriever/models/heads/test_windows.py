"""Windows of a text as tokens; here a token is a word, and [CLS] and [SEP] are the special ones."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from binocle.retriever.models.heads.windows import text_windows, windows

WORDS = [f"w{number}" for number in range(100)]
TEXT = " ".join(WORDS[10:40])  # 30 words


@pytest.fixture
def tokenizer():
    vocabulary = {word: number for number, word in enumerate(["[CLS]", "[SEP]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    return tokenizer


def words_of(window, text=TEXT):
    return [text[start:end] for start, end in window.offsets]


def test_neighbours_share_as_many_tokens_as_the_stride(tokenizer):
    parts = windows(tokenizer, "w1 w2", TEXT, size=15, stride=3)  # 10 words of the text in each
    assert [words_of(part) for part in parts] == [WORDS[10:20], WORDS[17:27], WORDS[24:34], WORDS[31:40]]
    assert all(part.ids[1:3] == [4, 5] for part in parts)  # the question, before each
    assert [part.first for part in parts] == [4] * 4
    assert parts[0].type_ids == [0] * 4 + [1] * 11


def test_neighbours_share_at_most_half_of_a_window(tokenizer):
    parts = windows(tokenizer, "w1 w2", TEXT, size=15, stride=1_000)
    assert [words_of(part)[0] for part in parts] == [WORDS[number] for number in (10, 15, 20, 25, 30)]


@pytest.mark.parametrize(("count", "read"), [(9, 9), (10, 10), (11, 10), (60, 10)])
def test_a_question_fills_at_most_half_of_a_window(count, read, tokenizer):
    (part, *_) = windows(tokenizer, " ".join(WORDS[:count]), TEXT, size=20, stride=2)
    assert part.ids[1 : part.first - 1] == list(range(3, 3 + read))
    assert len(part.ids) == 20


def test_windows_of_a_text_share_a_quarter_of_their_tokens(tokenizer):
    parts = text_windows(tokenizer, TEXT, size=14)  # 12 words in each
    assert [words_of(part) for part in parts] == [WORDS[10:22], WORDS[19:31], WORDS[28:40]]
    assert all(part.type_ids == [0] * len(part.ids) for part in parts)
