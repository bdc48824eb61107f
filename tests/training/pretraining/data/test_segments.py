"""Pairs of segments are true or false as labelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from binocle.training.data.tokenized import INSIDE, SENTENCE, WORD, Row, TokenRows, TokenRowWriter
from binocle.training.pretraining.data.masking import IGNORED
from binocle.training.pretraining.data.segments import CHANGED, GENUINE, elsewhere, next_sentence, sentence_order

DOCUMENTS, ROWS, LENGTH = 6, 4, 24


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> TokenRows:
    """Six documents of four rows of four sentences of three words of two pieces. A token is 1000 * document + place."""
    file = Path(tmp_path_factory.mktemp("segments")) / "rows.arrow"
    writer = TokenRowWriter(file)
    starts = np.tile([SENTENCE, INSIDE, WORD, INSIDE, WORD, INSIDE], 4).astype(np.uint8)
    for document in range(DOCUMENTS):
        for row in range(ROWS):
            writer.add(Row(1_000 * document + LENGTH * row + np.arange(LENGTH), starts), document)
    writer.close()
    return TokenRows(file)


def drawn(pairing, rows: TokenRows, number: int, times: int = 400):
    return [pairing(rows, number, np.random.default_rng((7, number, seed))) for seed in range(times)]


@pytest.mark.parametrize("pairing", [next_sentence, sentence_order])
def test_half_of_the_pairs_are_changed(rows, pairing):
    labels = np.array([pair.label for number in range(len(rows)) for pair in drawn(pairing, rows, number)])
    assert set(labels) == {GENUINE, CHANGED}
    assert abs(labels.mean() - 0.5) < 5 * 0.5 / len(labels) ** 0.5


@pytest.mark.parametrize("pairing", [next_sentence, sentence_order])
def test_a_genuine_pair_is_the_row_cut_where_a_sentence_begins(rows, pairing):
    for number in range(len(rows)):
        genuine = [pair for pair in drawn(pairing, rows, number, 40) if pair.label == GENUINE]
        for pair in genuine:
            assert (pair.first + pair.second).tokens.tolist() == rows[number].tokens.tolist()
            assert pair.second.starts[0] == SENTENCE
        assert {len(pair.first) for pair in genuine} == {6, 12, 18}


def test_a_changed_order_is_the_row_with_its_parts_swapped(rows):
    for number in range(len(rows)):
        for pair in drawn(sentence_order, rows, number, 40):
            if pair.label == CHANGED:
                assert (pair.second + pair.first).tokens.tolist() == rows[number].tokens.tolist()
                assert pair.first.starts[0] == pair.second.starts[0] == SENTENCE


def test_a_changed_next_sentence_is_from_another_document_and_in_its_order(rows):
    for number in range(len(rows)):
        own = number // ROWS
        changed = [pair for pair in drawn(next_sentence, rows, number) if pair.label == CHANGED]
        documents = {int(pair.second.tokens[0]) // 1_000 for pair in changed}
        assert documents == set(range(DOCUMENTS)) - {own}
        for pair in changed:
            assert pair.first.tokens.tolist() == rows[number].tokens[: len(pair.first)].tolist()
            assert pair.second.starts[0] == SENTENCE
            assert (np.diff(pair.second.tokens) == 1).all()  # one document, on from row to row
            assert len({int(token) // 1_000 for token in pair.second.tokens}) == 1


def test_a_second_part_goes_on_into_the_last_row(rows):
    start = 1_000 * (DOCUMENTS - 1) + LENGTH * (ROWS - 1)  # of the last row
    seconds = [pair.second.tokens for number in range(ROWS) for pair in drawn(next_sentence, rows, number)]
    assert any(tokens[0] < start <= tokens[-1] for tokens in seconds)


def test_length_does_not_tell_a_changed_pair(rows):
    pairs = [pair for number in range(len(rows)) for pair in drawn(next_sentence, rows, number)]
    lengths = {label: np.mean([len(p.second) for p in pairs if p.label == label]) for label in (GENUINE, CHANGED)}
    full = np.mean([len(p.first) + len(p.second) == LENGTH for p in pairs if p.label == CHANGED])
    assert full > 0.85  # the others come from the ends of documents
    assert abs(lengths[GENUINE] - lengths[CHANGED]) < 1


def test_another_document_is_drawn_row_by_row_evenly(rows):
    drawn = [elsewhere(rows, 5, np.random.default_rng(seed)) for seed in range(10_000)]
    often = np.bincount(drawn, minlength=len(rows)) / len(drawn)
    assert (often[4:8] == 0).all()
    elsewhere_often = np.delete(often, slice(4, 8))
    assert np.abs(elsewhere_often - 1 / 20).max() < 5 * (0.05 * 0.95 / 10_000) ** 0.5


@pytest.mark.parametrize("pairing", [next_sentence, sentence_order])
def test_a_row_of_one_sentence_is_no_pair(tmp_path, pairing):
    writer = TokenRowWriter(tmp_path / "rows.arrow")
    for document in range(2):
        writer.add(Row(np.arange(4), np.array([SENTENCE, WORD, WORD, INSIDE], np.uint8)), document)
    writer.close()
    pair = pairing(TokenRows(tmp_path / "rows.arrow"), 0, np.random.default_rng(0))
    assert (pair.second, pair.label) == (None, IGNORED)
    assert pair.first.tokens.tolist() == [0, 1, 2, 3]
