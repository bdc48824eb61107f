"""A thief with candidates: questions about facts, the ranks of the true ones, and membership."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from binocle.indexes import metric
from binocle.training.audit.attacks.candidates import (
    CANDIDATES,
    HALF_KNOWN,
    REST_KNOWN,
    UNKNOWN,
    AttackerSpace,
    CandidateAttack,
    membership,
    questions,
)
from binocle.training.audit.texts import LeakTexts

PLACES = [
    f"{first}{second}" for first in ("Zu", "Ba", "Mi", "Ro", "Ka", "Le") for second in ("ra", "tin", "dor", "lox")
]
SAME = AttackerSpace(lambda stolen: stolen, lambda plain, _: plain)


class Words:
    """An encoder that adds up a random vector for each word."""

    dim = 64

    def encode(self, texts):
        sums = [sum((self._vector(word) for word in text.split()), np.zeros(self.dim)) for text in texts]
        return metric.normalized(np.array(sums, np.float32).reshape(len(texts), self.dim))

    def _vector(self, word):
        return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(self.dim)


@pytest.fixture(scope="session")
def texts():
    random = np.random.default_rng(0)
    all_texts = [
        f"the ship sailed to {random.choice(PLACES)} with {random.integers(100, 999)} men in {random.integers(1900, 2000)}"
        for _ in range(60)
    ]
    return LeakTexts(all_texts[:45], {}, {8: ["no fact"], 32: all_texts[45:]}, None, [], None, np.ones(45, bool))


def test_questions_have_the_true_fact_first_and_others_that_the_text_lacks(texts):
    length, asked = questions(texts, 0)
    assert length == 32 and {question.kind for question in asked} == {"names", "numbers", "dates"}
    for question in asked:
        true = texts.true[32][question.row]
        assert question.texts[REST_KNOWN][0] == true
        assert len(set(question.texts[UNKNOWN])) == len(question.texts[UNKNOWN]) <= CANDIDATES
        assert question.texts[UNKNOWN][0] in true
        assert not any(rival in true for rival in question.texts[UNKNOWN][1:])
        assert all(len(half.split()) < len(true.split()) for half in question.texts[HALF_KNOWN])
    assert [question.texts for question in questions(texts, 0)[1]] == [question.texts for question in asked]


def test_facts_are_picked_where_vectors_are_plain_and_guessed_where_they_are_not(texts):
    attack = CandidateAttack(texts, Words(), 0)
    stolen = Words().encode(texts.true[attack.length])
    facts = attack.facts(stolen, SAME)
    noise = np.random.default_rng(1).standard_normal(stolen.shape).astype(np.float32)
    nothing = attack.facts(noise, SAME)
    for kind in ("names", "numbers", "dates"):
        assert facts[kind].first[REST_KNOWN].value > 0.9 and facts[kind].rank[REST_KNOWN] == 1
        assert nothing[kind].first[REST_KNOWN].value < 0.35
        assert facts[kind].as_dict()["rest known"]["median rank"] == 1


def test_equally_near_candidates_share_the_first_place(texts):
    attack = CandidateAttack(texts, Words(), 0)
    (fact, *_) = attack.facts(np.zeros((15, Words.dim), np.float32), SAME).values()
    assert fact.first[REST_KNOWN].value == pytest.approx(1 / fact.candidates, abs=0.01)


def test_membership_is_a_true_positive_rate_at_one_percent_of_other_texts():
    random = np.random.default_rng(0)
    store, others = (metric.normalized(random.standard_normal((400, 16)).astype(np.float32)) for _ in range(2))
    assert membership(store[:50], others, store, 0).value == 1
    assert membership(others[:50], others[50:], store, 0).value < 0.15
