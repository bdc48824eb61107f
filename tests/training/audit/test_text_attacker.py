"""The audit's attacker on a tiny encoder: it reads stolen vectors back, also rotated ones that it has pairs of."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("datasets")

from binocle.indexes.metric import normalized
from binocle.retriever.inversion.inverter import EmbeddingInverter
from binocle.retriever.inversion.inverter_info import InverterInfo
from binocle.retriever.inversion.proposals import TokenProposer
from binocle.training.audit.attacks.alignment import align
from binocle.training.audit.attacks.candidates import AttackerSpace
from binocle.training.audit.attacks.text_attacker import TextAttackers
from binocle.training.inversion.metrics import overlap

pytestmark = pytest.mark.thorough  # all need a trained attacker

WORDS = "cat dog house moon tax bread cheese salt ship sea night morning year task queue oven light network".split()


@pytest.fixture(scope="session")
def texts() -> list[str]:
    random = np.random.default_rng(0)
    return list(dict.fromkeys(" ".join(random.choice(WORDS, random.integers(3, 7))) for _ in range(900)))


@pytest.fixture(scope="session")
def rotation(tiny) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(1).standard_normal((tiny.dim, tiny.dim)))[0].astype(np.float32)


@pytest.fixture(scope="session")
def attackers(tiny, texts, rotation):
    """Three attackers: of plain vectors, of rotated ones, and of the first half of each vector."""
    make, own = TextAttackers(), tiny.encode(texts[:-60])
    attackers = {}
    for name, stolen, steps in (
        ("plain", own, 30),  # which trains the decoder of all, with four times as many
        ("rotated", own @ rotation, 25),
        ("half", own[:, : tiny.dim // 2], 10),
    ):
        attackers[name] = make(stolen.shape[1], 0, tiny)
        attackers[name].fit(stolen, texts[:-60], steps=steps)
    return attackers


def test_an_attacker_tells_what_takes_time(tiny, texts, monkeypatch):
    monkeypatch.setattr("binocle.training.runs.run_progress._SELDOM", 0.0)
    events = []
    make, vectors = TextAttackers(events.append), tiny.encode(texts[:40])
    make(tiny.dim, 0, tiny).fit(vectors, texts[:40], steps=3)
    attacker = make(tiny.dim // 4, 0, tiny)
    attacker.fit(vectors[:, : tiny.dim // 4], texts[:40], steps=3)
    attacker.recover(vectors[:3, : tiny.dim // 4])
    stages = [event.stage for event in events if "step" not in event.stage]
    assert list(dict.fromkeys(stages)) == [
        "encoding the vocabulary",
        "learning which words a vector holds",
        "learning to put them into texts",
        "proposing texts for 3 vectors",
        events[-1].stage,
    ]
    assert events[-1].stage.startswith("choosing among ")
    steps = [event.stage.partition(",")[0] for event in events if "step" in event.stage]
    assert steps == sorted(steps, reverse=True)
    assert set(steps) == {"learning to invert", "learning"}


def f1(true: list[str], found: list[str]) -> float:
    return float(np.mean([overlap(one.split(), other.split())[2] for one, other in zip(true, found, strict=True)]))


def test_stolen_vectors_give_words_back_whatever_their_defence(attackers, tiny, texts, rotation):
    true, vectors = texts[-60:], tiny.encode(texts[-60:])
    chance = f1(true, [texts[0]] * 60)
    plain = f1(true, attackers["plain"].recover(vectors))
    assert plain > chance + 0.05
    assert f1(true, attackers["rotated"].recover(vectors @ rotation)) > chance + 0.05
    assert len(attackers["half"].recover(vectors[:10, : tiny.dim // 2])) == 10


def test_rotated_vectors_are_read_without_pairs_once_they_are_aligned(attackers, tiny, texts, rotation):
    true, vectors = texts[-60:], tiny.encode(texts[-60:])
    stolen = np.concatenate([tiny.encode(texts[:400]), vectors]) @ rotation
    aligned = align(stolen, tiny.encode(texts[400:-60]))(vectors @ rotation)
    without = f1(true, attackers["plain"].recover(vectors @ rotation))
    assert f1(true, attackers["plain"].recover(aligned)) > without + 0.05


def test_every_attacker_begins_from_the_same_decoder(attackers):
    assert len({id(one._base["decoder"]) for one in attackers.values()}) == 1


def test_a_defence_that_the_map_undoes_needs_no_learning(tiny, texts, rotation):
    events = []
    make, own = TextAttackers(events.append), tiny.encode(texts[:-60])
    plain = make(tiny.dim, 0, tiny)
    plain.fit(own, texts[:-60], steps=2)
    events.clear()
    rotated = make(tiny.dim, 0, tiny)
    rotated.fit(own @ rotation, texts[:-60], steps=2)
    assert events == [] and rotated._decoder is make._base["decoder"]
    vectors = tiny.encode(texts[-60:])
    pairs = zip(plain.recover(vectors), rotated.recover(vectors @ rotation), strict=True)
    assert np.mean([first == second for first, second in pairs]) > 0.8


def test_long_texts_are_answered_with_their_tokens(tiny, texts, monkeypatch):
    monkeypatch.setattr("binocle.training.audit.attacks.text_attacker._ORDERED", 0)
    monkeypatch.setattr("binocle.retriever.inversion.proposals.TokenProposer._fill", None)
    attacker = TextAttackers()(tiny.dim, 0, tiny)
    attacker.fit(tiny.encode(texts[:40]), texts[:40], steps=2)
    assert all(attacker.recover(tiny.encode(texts[:3])))


def test_correction_compares_defended_texts_and_comes_nearer(attackers, tiny, texts):
    true, vectors = texts[-60:-56], tiny.encode(texts[-60:-56])
    half = AttackerSpace(lambda stolen: stolen, lambda plain, _: normalized(plain[:, : tiny.dim // 2]), defended=True)
    stolen = half.texts(vectors, true)
    drafts = attackers["half"].recover(stolen)
    corrected = attackers["half"].correct(stolen, half, [[]] * 4)
    before, after = (half.texts(tiny.encode(found), found) for found in (drafts, corrected))
    assert (after * stolen).sum(1).mean() > (before * stolen).sum(1).mean() - 1e-3
    assert (after * stolen).sum(1).mean() > 0.9


@pytest.mark.slow
def test_correction_in_an_audit_reads_no_less_than_invert_does_in_five_seconds(attackers, tiny, texts):
    attacker = attackers["plain"]
    vectors, true = tiny.encode(texts[-60:-52]), texts[-60:-52]
    info = InverterInfo("embedding", tiny.name, tiny.fingerprint, tiny.dim, {})
    inverter = EmbeddingInverter(info, TokenProposer.of(attacker._decoder, attacker._tokens), tiny, attacker._tokens)
    inverted = [inverter.tokens.text(inverter.correct(vector, 5.0).ids) for vector in normalized(vectors)]
    plain = AttackerSpace(lambda stolen: stolen, lambda plain, _: plain)
    corrected = attacker.correct(vectors, plain, [[]] * len(true))
    assert f1(true, corrected) >= f1(true, inverted) - 0.05


def test_a_limit_of_time_that_was_hit_is_told(tiny, texts):
    own = tiny.encode(texts[:40])
    assert TextAttackers()(tiny.dim, 0, tiny).fit(own, texts[:40], steps=50, seconds=1e-3)
    assert not TextAttackers()(tiny.dim, 0, tiny).fit(own, texts[:40], steps=2, seconds=1_000)
