"""Tokens on disk: every text whole and in order, cut where words and sentences begin."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from binocle.training.data import tokenized as module
from binocle.training.data.tokenized import (
    INSIDE,
    SENTENCE,
    WORD,
    Row,
    TokenRows,
    TokenRowWriter,
    cut,
    pack_rows,
    tokenize,
    windows,
)

PROSE = "The cat sat on the mat. The dog ran to the house at night! Was it due? It was not (yet). "


@pytest.fixture(scope="session")
def tokenizer(tiny_model):
    """What of a transformers tokenizer is used, without transformers."""
    fast = Tokenizer.from_file(f"{tiny_model}/tokenizer.json")
    fast.encode_special_tokens = True

    def call(texts, **_):
        return SimpleNamespace(encodings=fast.encode_batch(texts, add_special_tokens=False))

    return SimpleNamespace(fast=fast, call=call)


def row(starts: str) -> Row:
    """ "S", "w" and "." for tokens that begin a sentence, a word and nothing; the tokens are 0, 1, …"""
    kinds = {"S": SENTENCE, "w": WORD, ".": INSIDE}
    return Row(np.arange(len(starts)), np.array([kinds[letter] for letter in starts], np.uint8))


def test_each_text_gives_its_tokens_and_what_begins_with_them(tokenizer):
    (made,) = tokenize(["The cats sat. Un-able!\n\nNo"], tokenizer.call)
    tokens = [tokenizer.fast.id_to_token(token) for token in made.tokens.tolist()]
    assert list(zip(tokens, made.starts.tolist(), strict=True)) == [
        ("the", SENTENCE),
        ("cat", WORD),
        ("##s", INSIDE),
        ("sat", WORD),
        (".", WORD),
        ("u", SENTENCE),
        ("##n", INSIDE),
        ("-", WORD),
        ("a", WORD),
        ("##b", INSIDE),
        ("##l", INSIDE),
        ("##e", INSIDE),
        ("!", WORD),
        ("no", SENTENCE),
    ]


def test_a_mask_token_in_a_text_is_text(tokenizer):
    (made,) = tokenize(["[MASK] and [SEP]"], tokenizer.call)
    special = [tokenizer.fast.token_to_id(token) for token in ("[MASK]", "[SEP]", "[CLS]")]
    assert not np.isin(made.tokens, special).any()


def test_long_documents_and_many_batches_give_what_each_alone_gives(tokenizer, monkeypatch):
    texts = [PROSE * times for times in (1, 30, 2, 0, 500, 1)]
    whole = [made.tokens.tolist() for made in tokenize(texts, tokenizer.call)]
    monkeypatch.setattr(module, "_WINDOW", 200)
    monkeypatch.setattr(module, "_BATCH_CHARACTERS", 1_000)
    assert [made.tokens.tolist() for made in tokenize(texts, tokenizer.call)] == whole
    assert [len(tokens) for tokens in whole] == [len(whole[0]) * times for times in (1, 30, 2, 0, 500, 1)]


@given(st.text(alphabet="ab \n", max_size=300))
@settings(max_examples=200, deadline=None)
def test_windows_are_the_text_and_not_longer_than_they_may_be(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WINDOW", 20)
        pieces = list(windows(text))
    assert "".join(pieces) == text
    assert all(len(piece) <= 20 for piece in pieces)


@pytest.mark.parametrize(
    ("starts", "room", "ends"),
    [
        ("SwwwSwww", 8, [8]),
        ("SwwwwSww", 6, [4, 8]),  # halves of equal length
        ("SwwSwwww", 6, [3, 8]),  # a sentence near the middle is better
        ("Sw.....w", 6, [4, 8]),  # no word begins in the second half: the word is cut
        ("Sww..www", 6, [2, 8]),  # the word keeps its pieces
        ("", 6, []),
    ],
)
def test_a_document_is_cut_into_equal_rows_where_a_sentence_or_a_word_begins(starts, room, ends):
    assert list(np.cumsum([len(piece) for piece in cut(row(starts), room)])) == ends


@given(st.text(alphabet="Sw.", max_size=200), st.integers(5, 40))
@settings(max_examples=300, deadline=None)
def test_rows_of_a_document_are_all_of_it_in_order_and_fit(starts, room):
    pieces = list(cut(row(starts), room))
    assert np.concatenate([np.empty(0, int), *(piece.tokens for piece in pieces)]).tolist() == list(range(len(starts)))
    assert all(0 < len(piece) <= room for piece in pieces)


@given(st.lists(st.integers(1, 60), max_size=20), st.integers(5, 40))
@settings(max_examples=200, deadline=None)
def test_packed_rows_are_all_documents_with_separators_between(lengths, room):
    given_rows = [row("S" + "w" * (length - 1)) for length in lengths]
    rows = list(pack_rows(given_rows, room, -1))
    expected = [token for one in given_rows for token in [*one.tokens.tolist(), -1]][:-1]
    assert [token for one in rows for token in one.tokens.tolist()] == expected
    assert all(len(one) <= room for one in rows)
    assert all(2 * len(one) >= room for one in rows[:-1])


@pytest.mark.parametrize("count", [0, 1, 1_023, 1_024, 1_025, 3_000])
def test_rows_are_read_as_they_were_written(tmp_path, count):
    random = np.random.default_rng(count)
    given_rows = [
        Row(random.integers(0, 30_000, n), random.integers(0, 3, n).astype(np.uint8))
        for n in random.integers(1, 9, count)
    ]
    writer = TokenRowWriter(tmp_path / "rows.arrow")
    for number, one in enumerate(given_rows):
        writer.add(one, number // 3)
    writer.close()
    rows = TokenRows(tmp_path / "rows.arrow")
    assert (len(rows), writer.rows, writer.tokens) == (count, count, sum(map(len, given_rows)))
    assert rows.lengths.tolist() == [len(one) for one in given_rows]
    assert rows.documents.tolist() == [number // 3 for number in range(count)]
    for number, one in enumerate(given_rows):
        assert rows[number].tokens.tolist() == one.tokens.tolist()
        assert rows[number].starts.tolist() == one.starts.tolist()
