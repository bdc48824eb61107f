"""The leak audit from end to end on a small index, with an attacker of a few lines in the place of the trained one."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, strategies

pytest.importorskip("sacrebleu")

from binocle import Retriever
from binocle.cli import cli, main
from binocle.core.errors import InputError, MissingExtraError, ModelNotFoundError
from binocle.core.progress import ignore
from binocle.retriever.models.tokens.token_ids import EncoderTokens
from binocle.retriever.store.locations.folder_location import FolderLocation
from binocle.training.audit import audit as auditing
from binocle.training.audit import defences, search_cost
from binocle.training.audit import texts as texts_of_audit
from binocle.training.audit.apply import defend
from binocle.training.audit.audit import audit
from binocle.training.audit.config import (
    AVERAGED,
    CORRECTED,
    PAIRS,
    RIDGE,
    RIDGE_WITHOUT_PAIRS,
    WITHOUT_PAIRS,
    AuditConfig,
)
from binocle.training.audit.experiment import Experiment
from binocle.training.audit.gate import Gate
from binocle.training.audit.known_text import KnownText
from binocle.training.audit.remarks import remarks
from binocle.training.audit.report import text_report
from binocle.training.audit.report.assumptions import table
from binocle.training.audit.report.html_report import page
from binocle.training.audit.report.leak_curves import escaped, overview
from binocle.training.audit.report.report_files import report_fields
from binocle.training.audit.report.shared_words import marked
from binocle.training.audit.report.verdict import verdict
from binocle.training.audit.result import AttackResult, DefenceResult
from binocle.training.audit.texts import LeakTexts, cut
from binocle.training.data import source_documents as corpus
from binocle.training.evaluation.measures import ndcg_at_10
from binocle.training.inversion.metrics import Value, share_above
from binocle.training.inversion.overlap import KnownTexts


class Ridge:
    """Ridge regression from a vector to how often each token comes; the likeliest tokens, as many as texts have."""

    def __init__(self, dim, seed, encoder):
        self.dim, self.tokens = dim, EncoderTokens.of(encoder)

    def _with_one(self, vectors):
        assert vectors.shape[1] == self.dim and vectors.dtype == np.float32
        return np.hstack([vectors, np.ones((len(vectors), 1), np.float32)])

    def fit(self, vectors, texts, steps, seconds):
        counts = np.zeros((len(texts), self.tokens.size + 1), np.float32)
        for row, tokens in zip(counts, self.tokens(texts), strict=True):
            np.add.at(row, tokens, 1)
            row[-1] = len(tokens)
        scores = self._with_one(vectors)
        self.weights = np.linalg.solve(scores.T @ scores + 0.01 * np.eye(scores.shape[1]), scores.T @ counts)
        return False

    def recover(self, vectors):
        scores = self._with_one(vectors) @ self.weights
        return [self.tokens.text(np.argsort(-row[:-1])[: max(1, round(row[-1]))]) for row in scores.astype(np.float32)]


HOSTILE = "<script>alert(1)</script> </td><img src=x onerror=alert(2)> \x1b[31m \u202e & \"quoted\" 'too'"
PLACES = [a + b + c for a in ("Zu", "Ba", "Mi", "Ro") for b in ("ra", "ti", "do", "le") for c in ("n", "x", "sk", "l")]
THINGS = "cat dog queen king moon sun sea ship river mountain bread cheese oven salt task server".split()
OPTIONS = {"lengths": (4, 8), "stored": False, "texts_per_length": 12, "corpus_texts": 200, "steps": 2}
SETTINGS = ("noise=0.5", "truncate=16", "rotation")


def documents():
    for a in THINGS:
        for b in THINGS[:5]:
            text = f"The {a} and the {b} sat in the house by the water. A {b} ran over the mountain at night with {a}."
            yield {"id": f"{a}-{b}", "title": f"{a} {b}", "text": f"{text} {HOSTILE if a == 'cat' else ''}"}


@pytest.fixture(scope="session")
def filled(tmp_path_factory, tiny_model):
    folder = tmp_path_factory.mktemp("audited") / "index"
    Retriever.open(folder, model=tiny_model).add(documents())
    return folder


@pytest.fixture
def index(filled, tmp_path):
    return Retriever.open(shutil.copytree(filled, tmp_path / "index"))


@pytest.fixture(scope="session")
def audited(filled):
    """An audit, not to be changed."""
    return audit(Retriever.open(filled), settings=SETTINGS, attacker=Ridge, **OPTIONS)


# Texts that are cut out


def test_texts_have_the_tokens_asked_for_and_begin_and_end_with_words(index):
    encoder = index.encoder
    sources = list(corpus.from_index(index.snapshot()))
    cuts = cut(sources, encoder, (1, 5, 9), 30, seed=1)
    whole = [passage.text for source in sources for passage in source.passages]
    for length, texts in cuts.items():
        assert len(texts) == len(set(texts)) == (30 if length > 1 else len(texts))
        for text in texts:
            assert len(encoder.offsets([text])[0]) == length
            assert any(
                re.search(rf"(?<!\w){re.escape(text)}(?!\w)", document) or text in document for document in whole
            )
    assert cuts == cut(sources, encoder, (1, 5, 9), 30, seed=1) != cut(sources, encoder, (1, 5, 9), 30, seed=2)
    assert all(not texts for texts in cut(sources, encoder, (5,), 9, without=frozenset(whole)).values())


def test_a_word_is_never_cut_in_two(tiny):
    text = "unfamiliar words: cancellation, ménage naïve of-the-sea"
    (source,) = [corpus.Source("a", "", (corpus.SourcePassage(text),))]
    borders = {0, len(text), *(border for word in re.finditer(r"\w+|[^\w\s]", text) for border in word.span())}
    for length in range(1, 12):
        for part in cut([source], tiny, (length,), 4)[length]:
            start = text.index(part)
            assert start in borders and start + len(part) in borders


def test_few_documents_hold_the_passages_wanted_whatever_their_size():
    sizes = {"large": [300] * 10, "small": [1] * 500, "mixed": [500, *[1] * 50], "none": []}
    for counts in sizes.values():
        sources = [corpus.Source(f"{n}", "", (corpus.SourcePassage("a"),) * count) for n, count in enumerate(counts)]
        for minimum in (1, 60, 240, 10_000):
            taken = [len(source.passages) for source in corpus.sample(sources, minimum, 3)]
            assert sum(taken) >= min(minimum, sum(counts))
            assert sum(taken) - max(taken, default=0) < minimum


def test_an_index_of_few_large_documents_is_audited(tmp_path, tiny_model):
    random = np.random.default_rng(0)
    text = {n: ". ".join(" ".join(random.choice(THINGS, 60)) for _ in range(80)) for n in range(10)}
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add({"id": f"{n}", "text": text[n]} for n in text)
    assert retriever.snapshot().chunks.count_rows() > 250
    config = AuditConfig((4, 8), texts_per_length=12, corpus_texts=200)
    texts = LeakTexts.of(retriever, config, None, ignore)
    assert len(texts.corpus) == 200
    assert {length: len(attacked) for length, attacked in texts.true.items()} == {4: 12, 8: 12}


def test_no_text_is_attacked_that_the_attacker_has_learned_from(tmp_path, tiny_model):
    random = np.random.default_rng(0)
    common = "the queen and the king sat in the house by the water with bread and cheese"
    rows = [{"id": f"{n}", "text": f"{' '.join(random.choice(THINGS, 12))}. {common}."} for n in range(80)]
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(rows)
    config = AuditConfig((4, 8), texts_per_length=30, corpus_texts=400)
    texts = LeakTexts.of(retriever, config, None, ignore)
    learned = set(texts.corpus)
    assert any(text in common for text in learned)
    assert {length: len(attacked) for length, attacked in texts.true.items()} == {4: 30, 8: 30}
    assert not learned & {text for attacked in texts.true.values() for text in attacked}


def test_no_text_is_attacked_of_which_the_attacker_has_learned_most(tmp_path, tiny_model):
    random = np.random.default_rng(0)
    rows = []
    for number in range(60):
        words = random.choice(THINGS, 40).tolist()
        rows.append({"id": f"{number}", "text": " ".join(words)})
        if number < 40:
            rows.append({"id": f"{number} again", "text": " ".join([*words[:39], "edited"])})
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(rows)
    config = AuditConfig((16,), texts_per_length=50, corpus_texts=4_000, held_out=0.5)
    texts = LeakTexts.of(retriever, config, None, ignore)
    known = KnownTexts(texts.tokens(texts.corpus))
    assert not any(map(known.holds, texts.tokens(texts.true[16])))
    assert any("the attacker had learned most of each text" in note for note in texts.notes)


def test_passages_that_repeat_the_attackers_documents_are_counted_and_told(filled, tmp_path):
    random = np.random.default_rng(0)

    def words(count):
        return " ".join(random.choice(THINGS, count))

    licence, sentence = words(40), words(20)
    encoder = Retriever.open(filled).encoder
    attacked = {
        "copied": licence,
        "edited": f"edited {licence[:-9]}",
        "begun": f"{words(40)} {licence}",
        "own": words(60),
    }
    attacked["quoted"] = f"{words(40)} {sentence}"  # 20 tokens are no long run, and a third of the text
    for names, copies, sharing in (
        (("copied", "edited", "begun", "own"), 0.5, 0.75),
        (("own", "quoted"), 0.0, 0.0),
    ):
        own = [corpus.Source("a", "", (corpus.SourcePassage(f"{licence} {words(3)}"), corpus.SourcePassage(sentence)))]
        stolen = [corpus.Source(name, "", (corpus.SourcePassage(attacked[name]),)) for name in names]
        known = KnownText.measure(own, stolen, EncoderTokens.of(encoder), 0, ignore)
        assert (known.passages, known.copies.value, known.sharing.value) == (len(names), copies, sharing)


def test_the_verdict_tells_text_that_is_known_without_an_attack(audited):
    plain = replace(audited.results[0], membership=Value(0.96, 0.9, 1.0))
    known = KnownText(2_000, Value(0.0315, 0.02, 0.04), Value(0.05, 0.04, 0.06))
    assert verdict(replace(audited, known=known, results=[plain]))[1] == (
        "Of 2,000 passages 3.1% mostly repeat text of the attacker's documents, and 5.0% do so or share 32 tokens in a "
        "row: he knows that text; by its vector he recognizes 10 of 10 indexed texts."
    )
    none = KnownText(9, Value(0.0, 0.0, 0.0), Value(0.0, 0.0, 0.0))
    sentence = (
        "None of 9 passages mostly repeats text of the attacker's documents, or shares 32 tokens in a row with them."
    )
    assert verdict(replace(audited, known=none, results=[replace(audited.results[0], membership=None)]))[1] == sentence


# The findings of an audit


def test_an_audit_reports_every_measure_of_every_setting_and_length(audited):
    assert [result.name for result in audited.results] == ["none", *SETTINGS]
    for result in audited.results:
        for attack in result.attacks.values():
            assert list(attack.by_length) == [4, 8]
            for length, recovery in attack.by_length.items():
                assert recovery.texts == len(recovery.f1) == 12, length
                for value in recovery.measures.values():
                    assert value.value is None or value.low <= value.value <= value.high
                assert recovery["f1"] == pytest.approx(np.mean(recovery.f1), abs=1e-4)
        every = [result.guessing, result.nearest, *(attack.by_length for attack in result.attacks.values())]
        assert result.leak == max(by_length[n]["f1"] for by_length in every for n in (4, 8))
    assert [result.dim for result in audited.results] == [32, 32, 16, 32]
    assert [result.bytes for result in audited.results] == [128, 128, 64, 128]
    assert (audited.documents, audited.passages) == (80, 85)  # those with the hostile text are longer
    assert "made" in audited.query_source and audited.queries > 3


def test_texts_read_in_full_show_in_the_95th_percentile_though_not_in_the_mean(audited):
    plain = audited.results[0]
    recovery = plain.attacks[PAIRS].by_length[8]
    measures = recovery.measures | {"f1": Value(0.0909, 0.0, 0.2)}
    recovery = replace(recovery, f1=[1.0] * 2 + [0.0] * 18, measures=measures)
    attack = replace(plain.attacks[PAIRS], by_length={8: recovery})
    result = replace(plain, attacks={PAIRS: attack}, nearest={}, guessing={8: replace(recovery, f1=[0.1] * 20)})
    assert (result.leak, result.leak_95th) == (0.0909, 1.0)
    lines = text_report.lines(replace(audited, results=[result]), Gate())
    row = next(line for line in lines if line.startswith("* none"))
    assert row.split()[5:7] == ["0.091", "1.000"]
    assert any(line.startswith("95th: ") and "one text in twenty is read at least so well" in line for line in lines)
    report = report_fields(audited)
    report["settings"][0] |= {"leak": 0.0909, "leak_95th": 1.0}
    report["settings"][0]["attacks"][PAIRS]["lengths"]["8"]["f1_95th"] = 0.7654
    text = page(report)
    assert re.search(r"<td>0\.091 <small>at most [\d.]+</small></td><td>1\.000</td>", text)
    assert "<td>0.765</td></tr>" in text and text.count("one text in twenty is read at least so well") == 2


def test_the_attacker_learns_something_and_noise_takes_some_of_it_away(audited):
    plain, noise, truncated, _ = (result.attacks[PAIRS].by_length[8]["f1"] for result in audited.results)
    assert plain > audited.frequent[8]["f1"] + 0.05
    assert noise < plain - 0.1 and truncated < plain + 0.05
    assert audited.results[1].keep < 1


def test_an_attacker_that_has_learned_nothing_lowers_no_leak_and_is_told(filled):
    class Silent(Ridge):
        def recover(self, vectors):
            return [""] * len(vectors)

    report = audit(Retriever.open(filled), settings=["int8"], attacker=Silent, **OPTIONS)
    for result in report.results:
        ridge = result.attacks[RIDGE].by_length.values()
        assert result.leak >= max(recovery["f1"] for recovery in (*ridge, *result.nearest.values())) > 0.3
        (remark,) = [note for note in report.notes if note.startswith(f"With {result.name} ")]
        assert "of texts of 4, 8 tokens than the most frequent tokens" in remark
        assert remark in report_fields(report)["statements"]
    drawn = re.findall(r"int8: F1 ([\d.]+)", page(report_fields(report)))
    assert drawn[0] == f"{report.results[1].leak:.3f}"


def test_a_rotation_is_attacked_without_pairs_and_costs_nothing(audited):
    plain, *_, rotated = audited.results
    with_pairs, without = (rotated.attacks[name].by_length[8]["f1"] for name in (PAIRS, WITHOUT_PAIRS))
    assert with_pairs == pytest.approx(plain.attacks[PAIRS].by_length[8]["f1"], abs=0.03)
    assert 0 <= without <= with_pairs + 0.1
    assert rotated.same_ranking and rotated.keep == 1 and rotated.ndcg == plain.ndcg
    assert rotated.nearest[8]["f1"] == plain.nearest[8]["f1"]
    (said,) = [line for line in report_fields(audited)["statements"] if "rotation" in line]
    assert " helps" not in said and "without one known pair" in said
    assert f"with {rotated.alignment.stolen:,} stolen vectors and {rotated.alignment.own:,} texts" in said
    assert f"cosine of {rotated.alignment.cosine:.2f}" in said
    assert "nDCG@10 of every query is exactly what it was" in said


def test_the_parts_share_no_document_and_each_attacker_learns_anew(filled, monkeypatch):
    fits = []

    class Watching(Ridge):
        def fit(self, vectors, texts, steps, seconds):
            fits.append((self.dim, tuple(texts), steps))
            return super().fit(vectors, texts, steps, seconds)

    retriever = Retriever.open(filled)
    report = audit(retriever, settings=["truncate=8"], attacker=Watching, **OPTIONS)
    assert [(dim, steps) for dim, _, steps in fits] == [(32, 2), (8, 2)]
    own, _ = corpus.split(corpus.from_index(retriever.snapshot()), 0.2, 0)
    known = [passage.text for source in own for passage in source.passages]
    assert fits[0][1] == fits[1][1] and all(any(text in example for example in known) for text in fits[0][1])
    attacked = {example.true for result in report.results for example in result.attacks[PAIRS].examples}
    assert attacked and not any(example == text for example in attacked for text in known)


def test_it_is_told_that_many_tokens_are_unknown_to_the_encoder(audited, index):
    remark = "The encoder does not know 25% of the tokens attacked"
    assert not any("does not know" in note for note in audited.notes)
    results = [replace(recovery, attacks=dict(recovery.attacks)) for recovery in audited.results]
    by_length = {at: replace(recovery, unknown=0.25) for at, recovery in results[0].attacks["pairs"].by_length.items()}
    results[0].attacks["pairs"] = replace(results[0].attacks["pairs"], by_length=by_length)
    assert any(note.startswith(remark) for note in remarks(index.encoder, results, audited.frequent))


def test_the_same_seed_gives_the_same_audit(audited, filled):
    again = audit(Retriever.open(filled), settings=SETTINGS, attacker=Ridge, **OPTIONS)
    assert report_fields(again) | {"seconds": 0} == report_fields(audited) | {"seconds": 0}


def test_the_baseline_of_frequent_tokens_is_the_best_of_one_answer_for_all(audited, index):
    assert audited.frequent[8]["cosine"] < 1
    assert 0 < audited.frequent[4]["f1"] < 1
    assert audited.frequent[4]["exact"] == 0


def test_the_cosine_is_that_of_the_recovered_text_with_the_undefended_vector(filled):
    class Knowing(Ridge):
        def recover(self, vectors):
            return ["", *["the cat sat on the mat"] * (len(vectors) - 1)]

    retriever = Retriever.open(filled)
    report = audit(retriever, settings=["rotation"], attacker=Knowing, **OPTIONS)
    values = [result.attacks[PAIRS].by_length[8]["cosine"] for result in report.results]
    assert values[0] == values[1]  # the same text against the same true vectors, turned or not
    assert 0 < values[0] < 1


def test_labelled_queries_are_measured_as_evaluate_measures_them(filled, tmp_path):
    retriever = Retriever.open(filled)
    (tmp_path / "qrels").mkdir()
    names = [row["id"] for row in documents()][:20]
    (tmp_path / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": n, "text": n.replace("-", " and ")}) + "\n" for n in names)
    )
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{n}\t{n}\t1\n" for n in names))
    report = audit(retriever, settings=[], queries=tmp_path, attacker=Ridge, **OPTIONS)
    run = {
        n: [(hit.path, hit.score) for hit in retriever.search(n.replace("-", " and "), 80, mode="semantic")]
        for n in names
    }
    assert report.results[0].ndcg.value == pytest.approx(ndcg_at_10({n: {n: 1} for n in names}, run), abs=1e-3)
    assert report.queries == 20
    assert not any("made from the documents" in line for line in report_fields(report)["statements"])
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\ncat-cat\telsewhere\t1\n")
    with pytest.raises(InputError, match="none of the documents that"):
        audit(retriever, queries=tmp_path, attacker=Ridge, **OPTIONS)


def test_of_a_large_index_the_judged_documents_and_some_others_are_searched(index, monkeypatch):
    monkeypatch.setattr(search_cost, "_SEARCHED_PASSAGES", 10)
    queries = search_cost.Queries("", {"q": "cat"}, {"q": {"ship-sun": 0, "salt-dog": 1}})
    sample = search_cost.sample_passages(index.snapshot(), queries, 0)
    assert len(sample.paths) == len(sample.contexts) == len(sample.vectors) == 10
    ndcg = search_cost.ndcg(queries, search_cost.encode_queries(queries, index.encoder), sample.vectors, sample)
    assert ndcg.keys() == {"q"}
    rows = index.snapshot().read("chunks", ["context", "vector"]).to_pylist()
    stored = {row["context"]: row["vector"] for row in rows}
    assert all(stored[text] == vector.tolist() for text, vector in zip(sample.contexts, sample.vectors, strict=True))


def test_where_no_query_finds_its_document_nothing_is_said_to_be_kept(filled, monkeypatch):
    monkeypatch.setattr(search_cost, "ndcg", lambda queries, *_: dict.fromkeys(queries.texts, 0.0))
    report = audit(Retriever.open(filled), settings=["rotation"], attacker=Ridge, **OPTIONS)
    assert [result.keep for result in report.results] == [0, 0]
    assert Gate(None, 0.9).passing(report) == []
    assert any("No query finds its document" in note for note in report_fields(report)["statements"])
    Reading(page(report_fields(report)))


def test_of_an_index_that_is_defended_already_none_is_its_vectors_as_stored(index, tmp_path):
    defend(index, "truncate=16", folder=tmp_path / "secret")
    events = []
    report = audit(Retriever.open(index.path), settings=["rotation"], attacker=Ridge, progress=events.append, **OPTIONS)
    assert [(result.name, result.dim) for result in report.results] == [("none", 16), ("rotation", 16)]
    said = "\n".join(report_fields(report)["statements"])
    assert "defended already, by truncate: 'none' means its stored vectors" in said
    assert "Nobody picked names and numbers out of candidates" in said
    assert "undefended" not in "\n".join([said, *(event.stage for event in events)])


def test_every_part_of_an_audit_is_reported_with_its_setting(filled):
    events = []
    report = audit(Retriever.open(filled), settings=["int8"], attacker=Ridge, progress=events.append, **OPTIONS)
    assert list(dict.fromkeys(event.stage for event in events)) == [
        "cutting texts out of the passages",
        "looking for text that the attacker has",
        "making queries from the documents",
        "fitting the defences to the passages",
        f"encoding {report.learned} texts that the attacker learns from",
        "encoding the texts that are attacked",
        "encoding candidates",
        *(f"1 of 2, as stored: {stage}" for stage in _stages(report)),
        *(f"2 of 2, int8: {stage}" for stage in _stages(report)),
    ]


def _stages(report):
    attacked = report.results[0].attacks["pairs"].by_length
    recovering = (f"recovering {recovery.texts} texts of {length} tokens" for length, recovery in attacked.items())
    return ["learning", "fitting a ridge", *recovering, "picking candidates"]


# Limits


def test_an_attacker_cut_off_by_its_time_passes_no_gate_and_is_told(filled):
    class Slow(Ridge):
        def fit(self, vectors, texts, steps, seconds):
            super().fit(vectors, texts, steps, seconds)
            return True

    report = audit(Retriever.open(filled), settings=["int8"], attacker=Slow, **OPTIONS)
    assert Gate(max_token_f1=1).passing(report) == []
    lines = text_report.lines(report, Gate(max_token_f1=1))
    assert any(line.startswith("not measured: int8, for the limit of time stopped") for line in lines)


def test_an_attacker_that_corrects_its_texts_attacks_a_sample(filled):
    class Correcting(Ridge):
        def correct(self, vectors, comparison, extra):
            assert len(vectors) == len(extra) == 10
            true = comparison.texts(Retriever.open(filled).encoder.encode(["the cat"]), ["the cat"])
            assert true.shape[1] == comparison.stolen(vectors).shape[1]
            return [self.tokens.text(tokens) for tokens in extra]

    report = audit(Retriever.open(filled), settings=["truncate=16", "rotation"], attacker=Correcting, **OPTIONS)
    for result in report.results:
        assert list(result.attacks[CORRECTED].by_length) == [8]
        assert result.attacks[CORRECTED].by_length[8].texts == 10
        assert result.leak >= result.attacks[CORRECTED].by_length[8]["f1"]
    Reading(page(report_fields(report)))


def test_settings_within_the_gate_come_best_first_and_the_nearest_where_there_are_none(audited):
    measured = [result for result in audited.results if not result.unmeasured]
    names = [result.name for result in Gate(1, 0).passing(audited)]
    quality = {result.name: result.ndcg.value for result in measured}
    assert sorted(names) == sorted(quality)
    assert [quality[name] for name in names] == sorted(quality.values(), reverse=True)
    leaks = {result.name: result.leak_high for result in measured}
    lowest = min(leaks, key=leaks.get)
    assert [setting.name for setting in Gate(leaks[lowest], None).passing(audited)] == [lowest]
    assert [setting.leak for setting in Gate(None, 0).passing(audited)] == sorted(result.leak for result in measured)
    assert Gate(min(setting.leak_high for setting in audited.results) - 0.01, None).passing(audited) == []
    assert Gate(None, 2).nearest(audited)[0].keep == max(result.keep for result in audited.results)


def test_noise_is_told_with_its_epsilon(audited):
    assert defences.epsilon(0.06) == pytest.approx(715.5, abs=0.5)
    (said,) = [line for line in report_fields(audited)["statements"] if line.startswith("noise=0.5 ")]
    assert said.startswith("noise=0.5 has an epsilon of 27 at delta 1e-5") and "no formal protection" in said
    assert defences.epsilon(2) < 10
    assert [result.epsilon is not None for result in audited.results] == [False, True, False, False]


def test_noise_is_attacked_by_averaging_near_vectors(audited):
    for result in audited.results:
        assert (AVERAGED in result.attacks) == (result.kind == "noise")
        if result.kind == "noise":
            assert list(result.attacks[AVERAGED].by_length) == [4, 8]


def test_the_verdict_names_a_setting_only_if_it_leaks_less(audited):
    first, known, *more = verdict(audited)
    assert re.match(r"Someone with these vectors reads .*\d+ of 10 uncommon words of a text", first)
    (plain, *_) = audited.results
    alone = replace(audited, results=[plain])
    assert verdict(alone)[:2] == [first, known] and "No setting that keeps 95%" in verdict(alone)[2]
    assert len(more) == 2 and report_fields(audited)["verdict"] == [first, known, *more]
    assert all(sentence in page(report_fields(audited)).replace("&#x27;", "'") for sentence in (known, *more))


@pytest.mark.thorough
def test_facts_are_measured_of_every_setting_and_count_for_the_gate(filled):
    texts = [
        {
            "id": f"{n}",
            "text": f"The cat and the dog sat in the house in {location}. The ship of {location} had {100 + n} men.",
        }
        for n, location in enumerate(PLACES)
    ]
    retriever = Retriever.open(filled.parent / "facts", model=Retriever.open(filled).encoder.name)
    retriever.add(texts)
    options = OPTIONS | {"held_out": 0.4, "lengths": (16,), "texts_per_length": 40}
    report = audit(retriever, settings=["rotation", "truncate=8"], attacker=Ridge, **options)
    for result in report.results:
        assert {"names", "numbers"} <= result.facts.keys() and 0 <= result.membership.value <= 1
        assert result.upper("names") >= result.facts["names"].first["rest known"].high
    plain, rotated, _ = report.results
    assert rotated.facts == plain.facts or rotated.facts["names"].rank == plain.facts["names"].rank
    lines = text_report.lines(report, Gate())
    assert any(line.startswith("  rotation: names ") and "indexed texts recognized" in line for line in lines)
    Reading(page(report_fields(report)))


def test_the_report_says_what_each_attacker_must_have(audited):
    sentences = report_fields(audited)["assumptions"]
    attackers = {name for result in audited.results for name in result.attacks}
    assert sentences.keys() == {"guessing", "nearest", *attackers, "indexed texts recognized"}
    ridge = f"{audited.learned:,} texts of his own with their stored vectors"
    assert sentences[RIDGE].startswith(ridge) and sentences[PAIRS].endswith("trains in 2 steps for each defence.")
    stolen = audited.results[-1].alignment.stolen
    assert sentences[WITHOUT_PAIRS].startswith(f"Against a rotation: {stolen:,} stolen vectors")
    lines, text = text_report.lines(audited, Gate()), page(report_fields(audited))
    for name, sentence in sentences.items():
        assert f"  {name}: {sentence}" in lines
        assert f'<tr><td>{name}</td><td class="text">{escaped(sentence)}</td></tr>' in text
    alone = replace(audited, results=[replace(audited.results[0], membership=None)])
    assert report_fields(alone)["assumptions"].keys() == {"guessing", "nearest", RIDGE, PAIRS}


def test_every_attacker_has_its_assumption():
    attackers = {PAIRS, WITHOUT_PAIRS, CORRECTED, RIDGE, RIDGE_WITHOUT_PAIRS, AVERAGED}
    assert attackers < dict(table()).keys()


def test_a_gate_takes_the_upper_bound_of_every_measure(audited):
    plain = audited.results[0]
    assert plain.leak < plain.leak_high
    between = (plain.leak + plain.leak_high) / 2
    assert plain not in Gate(max_token_f1=between).passing(audited)
    for name, measure in (("max_content_f1", "content_f1"), ("max_names", "names"), ("max_numbers", "numbers")):
        upper = plain.upper(measure)
        if upper is None:
            assert plain in Gate(**{name: 1}).unmeasured(audited)
            continue
        assert plain in Gate(**{name: upper}).passing(audited)
        assert not upper or plain not in Gate(**{name: upper - 0.001}).passing(audited)


def test_a_limit_on_names_is_not_met_where_no_attacked_text_has_a_name(audited):
    nameless = [
        replace(
            result,
            guessing=_without(result.guessing),
            nearest=_without(result.nearest),
            facts={},
            attacks={
                name: replace(recovery, by_length=_without(recovery.by_length))
                for name, recovery in result.attacks.items()
            },
        )
        for result in audited.results
    ]
    unnamed, gate = replace(audited, results=nameless), Gate(max_names=1)
    assert gate.passing(unnamed) == [] and gate.unmeasured(unnamed) == nameless
    (reason, *_) = (line for line in text_report.lines(unnamed, gate) if line.startswith("not measured: none"))
    assert reason.endswith("the attacked texts have nothing that counts as names")


def test_a_limit_on_known_text_takes_the_upper_bound_and_no_setting_passes_beyond_it(audited):
    report = replace(audited, known=KnownText(2_000, Value(0.03, 0.02, 0.04), Value(0.05, 0.04, 0.06)))
    within, beyond = Gate(max_known=0.06, max_token_f1=1), Gate(max_known=0.055, max_token_f1=1)
    assert within.passing(report) == Gate(max_token_f1=1).passing(report) != []
    assert (beyond.passing(report), beyond.unmeasured(report)) == ([], [])
    assert beyond.as_dict(report)["max_known"] == 0.055 and beyond.as_dict(report)["within"] == []
    reason = (
        "up to 6.0% of passages have text that the attacker has, more than --max-known 0.055: no defence changes that"
    )
    assert reason in text_report.lines(report, beyond)
    assert not any("--max-known" in line for line in text_report.lines(report, within))
    alone = Gate(max_known=0.06)
    leaks = [result.leak for result in alone.passing(report)]
    assert alone.is_set and leaks == sorted(leaks) != []  # nothing else tells the settings apart


def test_a_limit_on_known_text_is_not_met_where_no_passage_was_compared(audited):
    nothing = Value(None, None, None)
    report, gate = replace(audited, known=KnownText(0, nothing, nothing)), Gate(max_known=1)
    assert gate.passing(report) == [] and gate.unmeasured(report) == report.results
    reason = "not measured: none, for no passage was compared with the attacker's documents"
    assert reason in text_report.lines(report, gate)


def _without(by_length):
    nothing = Value(None, None, None)
    return {
        size: replace(recovery, measures=recovery.measures | {"names": nothing}) for size, recovery in by_length.items()
    }


def test_no_leak_is_below_that_of_the_ridge_or_of_guessing(audited):
    for result in audited.results:
        ridge = [recovery["f1"] for recovery in result.attacks[RIDGE].by_length.values()]
        assert result.leak >= max(*ridge, *(recovery["f1"] for recovery in audited.frequent.values()))
        assert 0 <= result.share.low <= result.share.value <= result.share.high <= 1
    assert audited.results[0].share.value > audited.results[1].share.value


def test_the_share_above_guessing_has_an_interval_over_the_same_texts():
    guess = [0.1, 0.5, 0.2, 0.4]
    paired = share_above([value + 0.5 * (1 - value) for value in guess], guess, 0)
    assert (paired.value, paired.low, paired.high) == (0.5, 0.5, 0.5)  # whichever texts are drawn
    share = share_above([0.6, 0.9, 0.3, 0.4], guess, 0)
    assert share.value == round((0.55 - 0.3) / 0.7, 4) and share.low < share.value < share.high
    assert share_above([0.0, 0.1], [0.5, 0.5], 0) == Value(0.0, 0.0, 0.0)


def test_the_share_of_a_sample_is_measured_above_guessing_of_the_same_texts(audited):
    plain = audited.results[0]
    f1 = plain.guessing[8].f1[:3]
    recovery = replace(plain.guessing[8], f1=[1.0, *f1[1:]])
    sampled = AttackResult({8: recovery}, [], rows=[0, 1, 2])
    alone = replace(plain, attacks={PAIRS: sampled}, nearest={})
    assert alone.share == share_above([1.0, *f1[1:]], f1, 0)


def test_the_page_and_the_report_give_the_share_with_its_interval(audited):
    share = audited.results[0].share
    assert report_fields(audited)["settings"][0]["share"] == {
        "value": share.value,
        "low": share.low,
        "high": share.high,
    }
    cell = f"<td>{share.value:.3f} <small>[{share.low:.3f}, {share.high:.3f}]</small></td>"
    assert cell in page(report_fields(audited))


def test_a_setting_that_was_attacked_too_weakly_is_not_measured_and_passes_no_gate(filled):
    class Silent(Ridge):
        def recover(self, vectors):
            return [""] * len(vectors)

    report = audit(Retriever.open(filled), settings=["int8"], attacker=Silent, **OPTIONS)
    gate = Gate(max_token_f1=1)
    assert gate.passing(report) == []
    assert [result.name for result in gate.unmeasured(report)] == ["none", "int8"]
    lines = text_report.lines(report, gate)
    assert "not measured: int8, for the trained attacker read less of texts of 4, 8 tokens than guessing does" in lines
    assert gate.as_dict(report)["not_measured"] == ["none", "int8"]


def test_the_pareto_front_has_the_settings_that_none_beats_beyond_its_interval(audited, monkeypatch):
    figures = {
        "none": (0.5, 0.52, 1.0),
        "noise=0.5": (0.3, 0.4, 0.9),
        "truncate=16": (0.35, 0.4, 0.9),
        "rotation": (0.45, 0.47, 1.0),
    }
    monkeypatch.setattr(DefenceResult, "leak", property(lambda self: figures[self.name][0]))
    monkeypatch.setattr(DefenceResult, "leak_high", property(lambda self: figures[self.name][1]))
    monkeypatch.setattr(DefenceResult, "unmeasured", "")
    results = [
        replace(result, keep=keep, ndcg=Value(keep, keep - 0.1, keep + 0.1))
        for result in audited.results
        for keep in (figures[result.name][2],)
    ]
    report = replace(audited, results=results)
    assert report.front() == ["noise=0.5", "truncate=16", "rotation"]  # the second one's leak may be the first one's
    worse = [
        replace(result, keep=0.5, ndcg=Value(0.5, 0.4, 0.6)) if result.name == "truncate=16" else result
        for result in results
    ]
    assert replace(audited, results=worse).front() == ["noise=0.5", "rotation"]


def test_the_page_and_the_table_mark_one_front_and_the_verdict_names_a_setting_of_it(audited, monkeypatch):
    figures = {
        "none": (0.5, 0.52, 1.0),
        "noise=0.5": (0.35, 0.4, 0.96),
        "truncate=16": (0.35, 0.4, 0.97),  # leaks as much as noise, and keeps more
        "rotation": (0.34, 0.345, 0.98),  # better still, but attacked too weakly
    }
    monkeypatch.setattr(DefenceResult, "leak", property(lambda self: figures[self.name][0]))
    monkeypatch.setattr(DefenceResult, "leak_high", property(lambda self: figures[self.name][1]))
    monkeypatch.setattr(DefenceResult, "unmeasured", property(lambda self: "weak" if self.kind == "rotation" else ""))
    results = [
        replace(result, keep=keep, ndcg=Value(keep, keep - 0.005, 1.0))
        for result in audited.results
        for keep in (figures[result.name][2],)
    ]
    report = replace(audited, results=results)
    front = report.front()
    assert front == ["none", "truncate=16", "rotation"]
    assert verdict(report)[2].startswith("The best setting that keeps 95% of nDCG@10 is truncate=16")
    starred = [line.split()[1] for line in text_report.lines(report, Gate()) if line.startswith("* ")]
    assert starred == [*front, "on"]  # and the line that explains the star
    text = page(report_fields(report))
    assert re.findall(r'<td class="front">\d+ ([^<]+)</td>', text) == front
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        assert re.findall(r'r="7"[^>]*/><circle[^>]*><title>([^:]+): ', drawing) == front


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lengths": ()}, "numbers of tokens from 1, not none"),
        ({"lengths": (8, 8)}, "different numbers"),
        ({"lengths": (0,)}, "from 1, not 0"),
        ({"lengths": (100,)}, "holds too little to audit"),
        ({"seconds": 0}, "seconds is a number above 0"),
        ({"steps": 0}, "steps is a"),
        ({"texts_per_length": 1}, "texts is a whole number from 2"),
        ({"corpus_texts": 1}, "corpus texts is a whole number from 20"),
        ({"held_out": 1}, "a share from 0 to below 1"),
        ({"seed": -1}, "seed is a whole number from 0"),
        ({"settings": ["blur"]}, "there is no defence 'blur'"),
        ({"queries": "nowhere"}, "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_the_reason(options, says, filled):
    with pytest.raises(InputError, match=says):
        audit(Retriever.open(filled), attacker=Ridge, **{"settings": [], **OPTIONS, **options})


def test_an_index_of_one_passage_holds_too_little(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "only", "text": "The cat and the dog sat in the house by the water and the river."}])
    with pytest.raises(InputError, match="holds too little to audit"):
        audit(retriever, attacker=Ridge, **OPTIONS)


def test_lengths_that_the_encoder_cannot_read_are_left_out_and_told(filled):
    report = audit(Retriever.open(filled), settings=[], attacker=Ridge, **(OPTIONS | {"lengths": (4, 128)}))
    assert list(report.frequent) == [4]
    assert "texts of 128 were left out" in report.notes[0]


def test_without_sacrebleu_nothing_is_begun(filled, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingExtraError, match=r"binocle\[audit\]"):
        audit(Retriever.open(filled), attacker=None)


@pytest.mark.thorough
def test_a_thief_who_does_not_know_the_encoder_names_it(varied, make_model, tmp_path):
    index, queries = varied
    second_encoder = str(make_model(tmp_path / "other", pooling={"pooling_mode_cls_token": True}))
    options = OPTIONS | {
        "queries": queries,
        "suspects": (second_encoder, index.encoder.name),
        "settings": ["int8", "rotation"],
    }
    report = audit(index, attacker=Ridge, **options)
    plain, int8, rotated = report.results
    assert {suspect.encoder for suspect in plain.suspects} == {index.encoder.name, second_encoder}
    assert plain.suspects[0].difference <= plain.suspects[1].difference and not int8.suspects
    assert [suspect.difference for suspect in rotated.suspects] == pytest.approx(
        [suspect.difference for suspect in plain.suspects], abs=1e-3
    )
    said = [line for line in report_fields(report)["statements"] if "who suspects 2 encoders" in line]
    assert [line.split(",")[0] for line in said] == ["With none", "With rotation"]
    assert [len(setting.get("suspects", [])) for setting in report_fields(report)["settings"]] == [2, 0, 2]


def test_a_suspect_that_is_no_encoder_is_refused_before_anything_is_measured(filled):
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        audit(Retriever.open(filled), suspects=["nowhere/at-all"], attacker=Ridge, **OPTIONS)


def test_a_defence_that_the_dimension_forbids_is_refused_before_anything_is_measured(filled, monkeypatch):
    monkeypatch.setattr("binocle.training.audit.audit.LeakTexts.of", None)
    for setting, reason in (("truncate=9999", "cut to fewer"), ("pq=5", "a divisor of 32, not 5"), ("pq=1.5", "whole")):
        with pytest.raises(InputError, match=reason):
            audit(Retriever.open(filled), settings=["noise=0.1", setting], attacker=Ridge, **OPTIONS)


# Stored passages


@pytest.fixture(scope="session")
def varied(tmp_path_factory, tiny_model):
    """An index of titled documents that are no copies of each other, and the folder of its judged queries."""
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("varied")
    texts = {f"{number}": " ".join(random.choice(THINGS, 12)) for number in range(80)}
    index = Retriever.open(folder / "index", model=tiny_model)
    index.add({"id": name, "title": f"part {name}", "text": text} for name, text in texts.items())
    (folder / "qrels").mkdir()
    lines = [json.dumps({"_id": name, "text": texts[name]}) for name in list(texts)[:9]]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{n}\t{n}\t1\n" for n in range(9)))
    return index, folder


def test_passages_are_attacked_by_the_vectors_that_the_index_stores(varied):
    (index, queries), random = varied, np.random.default_rng(0)
    stored = search_cost.sample_passages(index.snapshot(), search_cost.Queries("", {}, {}), 0)
    vectors = stored.vectors + random.standard_normal(stored.vectors.shape).astype(np.float32) / 50
    passages, changed = replace(stored, vectors=vectors), dict(zip(stored.contexts, vectors, strict=True))
    search = search_cost.DefendedSearch.of(index, AuditConfig(queries=queries), defences.parse([]), ignore)
    stolen = {}

    class Watching(Ridge):
        def fit(self, vectors, texts, steps, seconds):
            stolen.update(zip(texts, vectors, strict=True))
            return super().fit(vectors, texts, steps, seconds)

        def recover(self, vectors):
            stolen["attacked"] = vectors
            return super().recover(vectors)

    config = AuditConfig(lengths=(4,), texts_per_length=12, corpus_texts=200)
    texts = LeakTexts.of(index, config, passages, ignore)
    attacks = Experiment(index.encoder, texts, search, Watching, config, ignore)
    (plain,) = defences.parse([])
    result = attacks.result(plain)
    whole = texts.true[texts.stored_length]
    assert len(whole) == 12 and all(text.startswith("part ") for text in whole)  # the heading, then the text
    assert all((vector == changed[text]).all() for text, vector in zip(whole, stolen["attacked"], strict=True))
    learned = [text for text in texts.by_length[texts.stored_length] if text in changed]
    assert learned and all((stolen[text] == changed[text]).all() for text in learned)
    assert not set(whole) & set(learned)
    assert list(result.attacks[PAIRS].by_length) == [4, texts.stored_length]


def test_stored_passages_are_named_in_every_report(varied):
    index, queries = varied
    audit_report = audit(index, settings=[], attacker=Ridge, queries=queries, **(OPTIONS | {"stored": True}))
    assert list(audit_report.frequent) == [4, 8, audit_report.stored_length]
    lines = text_report.lines(audit_report, Gate())
    assert lines[4].split()[-3:] == ["F1@4", "F1@8", "stored"]
    assert any(
        line.startswith(f"Texts of {audit_report.stored_length} tokens stand for the index's passages")
        for line in lines
    )
    report = json.loads(json.dumps(report_fields(audit_report)))
    assert f"stored passages, about {audit_report.stored_length} tokens" in page(report)


def test_whole_passages_alone_are_attacked(run, varied, monkeypatch, capfd):
    index, queries = varied
    options = ("--lengths", "stored", "--texts", "6", "--defences", "int8", "--queries", str(queries))
    monkeypatch.setattr(sys, "argv", ["binocle", "audit", str(index.path), *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert capfd.readouterr().out.splitlines()[4].split()[-2:] == ["numbers", "stored"]


# The page


class Reading(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]
        if tag not in ("meta", "polyline", "circle", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("polyline", "circle"):
            assert self.open.pop() == tag


def test_the_page_is_whole_needs_nothing_else_and_runs_nothing(audited):
    report = report_fields(audited)
    example = {"length": 4, "f1": 0.5, "true": HOSTILE, "recovered": f"{HOSTILE} \ud800"}
    report["settings"][0]["attacks"][PAIRS]["examples"].append(example)
    report["index"] = f"/tmp/{HOSTILE}"
    text = page(report)
    text.encode()
    read = Reading(text)
    assert read.open == []
    assert not {"script", "img", "link", "iframe", "object", "embed", "form", "a"} & set(read.tags)
    assert read.tags.count("svg") == 3 + len(list(overview(report)))
    for _, name, value in read.attributes:
        assert not name.startswith("on") and name not in ("src", "href", "style")
        assert "javascript" not in (value or "")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text
    assert "\x1b" not in text and "\u202e" not in text
    for name in ("noise=0.5", "truncate=16", "rotation", WITHOUT_PAIRS, "ROUGE-L", "nearest own text"):
        assert name in text
    assert text == page(report)


def test_the_overview_has_a_point_with_its_interval_for_each_setting_and_measure(audited):
    report = report_fields(audited)
    for setting in report["settings"]:
        setting["highest_names"] = {"value": 0.4, "low": 0.25, "high": 1.0}
        setting["highest_numbers"] = {"value": None, "low": None, "high": None}
    drawings = list(overview(report))
    assert [re.search("<title>(.*?)</title>", drawing)[1] for drawing in drawings] == ["content words", "names"]
    assert all(f"<figure>{drawing}</figure>" in page(report) for drawing in drawings)
    heights = []
    for drawing in drawings:
        for number, setting in enumerate(report["settings"], 1):
            assert f"<title>{setting['name']}: " in drawing and f">{number}</text>" in drawing
        heights.append(re.findall(r'cy="([\d.]+)" r="4"', drawing))
        across = [float(x) for x in re.findall(r'cx="([\d.]+)"', drawing)]
        assert min(across) >= 50 and max(across) <= 358
    assert heights[0] == heights[1]  # one axis of quality
    assert f"none: names recovered, of 10 4 [2.5, 10], nDCG@10 kept {report['settings'][0]['keep']:.3f}" in drawings[1]
    for setting in report["settings"]:
        setting["highest_names"] = setting["highest_content_f1"] = setting["highest_numbers"]
    assert "What is read against search quality" not in page(report)


@pytest.mark.parametrize(
    ("true", "recovered", "marks"),
    [
        ("The cat saw the dog.", "the the the CAT", (["The", "cat", "the"], ["the", "the", "CAT"])),
        ("Café in Zürich", "cafe zurich", (["Café", "Zürich"], ["cafe", "zurich"])),
        ("concatenate", "cat", ([], [])),
        ("東京都", "京 都 市", (["京", "都"], ["京", "都"])),
        ("a & b <b>c</b>", "amp lt b", (["b"], ["b"])),
        ("", "the cat", ([], [])),
    ],
)
def test_words_are_marked_as_often_as_both_texts_have_them(true, recovered, marks):
    texts = marked(true, recovered)
    assert tuple(re.findall("<mark>(.*?)</mark>", text) for text in texts) == marks
    assert [re.sub("</?mark>", "", text) for text in texts] == [escaped(true), escaped(recovered)]


@given(strategies.text(), strategies.text())
def test_marked_texts_have_no_markup_but_the_marks(true, recovered):
    for text, shown in zip((true, recovered), marked(true + HOSTILE, recovered + HOSTILE), strict=True):
        assert re.sub("</?mark>", "", shown) == escaped(text + HOSTILE)


def test_recovered_words_are_marked_in_the_examples(audited):
    report = report_fields(audited)
    example = {"length": 4, "f1": 0.5, "true": f"Zu {HOSTILE}", "recovered": "the zu ALERT script"}
    report["settings"][0]["attacks"][PAIRS]["examples"] = [example]
    text = page(report)
    assert '<td class="text"><mark>Zu</mark> &lt;<mark>script</mark>&gt;<mark>alert</mark>(1)&lt;/script&gt; ' in text
    assert '<td class="text">the <mark>zu</mark> <mark>ALERT</mark> <mark>script</mark></td>' in text
    assert Reading(text).open == []


def test_the_page_explains_its_words(audited):
    text = page(report_fields(audited))
    words = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text)
    assert [word for word, _ in words] == ["token F1", "content word", "nDCG@10 kept", "interval", "defence"]
    assert all(meaning.endswith(".") for _, meaning in words)
    assert "two fifths" in words[1][1] and texts_of_audit._COMMON == 2 / 5


def test_text_and_charts_are_readable_on_a_light_and_on_a_dark_page(audited):
    text = page(report_fields(audited))
    light, dark = re.search(r"<style>(.*?)@media\(prefers-color-scheme:dark\)\{(.*?\})\}\n", text, re.DOTALL).groups()
    kinds = list(defences.TABLE)
    for style in (light, dark):
        colours = dict(re.findall(r"--(\w+):(#\w+)", style))
        of_kind = dict(re.findall(r"\.(\w+)\{color:(#\w{6})\}", style))
        assert list(of_kind) == kinds
        assert min(_contrast(colour, colours["page"]) for colour in (colours["ink"], colours["faint"])) >= 4.5
        assert _contrast(colours["ink"], colours["mark"]) >= 4.5
        assert min(_contrast(colour, colours["page"]) for colour in [*of_kind.values(), colours["axis"]]) >= 3
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        assert set(re.findall(r'(?:fill|stroke)="([^"]*)"', drawing)) == {"currentColor", "none"}
    assert text.count("<table>") == text.count('<div class="scroll" tabindex="0"><table>')


def test_the_table_of_settings_has_eleven_columns_whatever_the_number_of_lengths(audited):
    report = report_fields(audited)
    text = page(report)
    settings, by_length = re.search(r"<h2>Settings</h2>\n(.*?</table>)(.*?</table>)", text, re.DOTALL).groups()
    assert settings.count("<th>") == 11 and settings.count("<tr>") == 1 + len(report["settings"])
    heads = re.findall("<th>(.*?)</th>", by_length)
    assert heads == ["setting", *(f"texts of {length} tokens" for length in report["frequent"])]
    plain = report["settings"][0]
    highest = max(attack["lengths"]["4"]["f1"]["value"] for attack in plain["attacks"].values())
    assert f"<tr><td>1 none</td><td>{highest:.3f}</td>" in by_length


def test_numbers_stay_on_one_line_and_the_name_of_a_row_in_sight(audited):
    style = re.search("<style>(.*?)</style>", page(report_fields(audited)), re.DOTALL)[1]
    assert "td{white-space:nowrap}" in style and "td small{display:block}" in style
    assert re.search(r"th:first-child,td:first-child\{position:sticky;left:0;background:var\(--page\)", style)
    (text,) = re.findall(r"td\.text\{[^}]*\}", style)
    assert "white-space:normal" in text


def _contrast(first, second):
    """The ratio of two colours' luminances by WCAG 2.2; 4.5 is enough for text, and 3 for charts."""
    luminances = []
    for colour in (first, second):
        digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        luminances.append(np.dot(linear, [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(luminances) / min(luminances)


def test_no_text_of_the_index_is_in_a_report_without_examples(filled):
    report = audit(Retriever.open(filled), settings=[], attacker=Ridge, examples=0, **OPTIONS)
    assert "house by the water" not in json.dumps(report_fields(report))
    assert "Examples" not in page(report_fields(report))


# The command


@pytest.fixture
def run(monkeypatch, capfd, index):
    monkeypatch.setattr(auditing, "default_attacker", lambda _: Ridge)
    monkeypatch.setattr(search_cost, "_QUERIES", 40)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")

    def running(*arguments):
        options = ("--lengths", "4", "--texts", "6", "--defences", "int8,rotation")
        options += () if "--quick" in arguments else ("--steps", "2")
        monkeypatch.setattr(sys, "argv", ["binocle", "audit", str(index.path), *options, *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return running


def test_audit_prints_a_table_and_writes_its_report(run, tmp_path):
    code, out, _ = run("--out", tmp_path / "leak")
    assert code == 0
    verdict, lines = out.splitlines()[:4], out.splitlines()[4:]
    assert verdict[0].startswith("Someone with these vectors reads ") and "of 10 uncommon words" in verdict[0]
    columns = ["bytes", "nDCG@10", "kept", "leak", "95th", "share", "content", "names", "numbers", "F1@4"]
    assert lines[0].split() == columns
    assert re.fullmatch(r"  guessing +0\.\d{3}  most frequent tokens, without any vector", lines[1])
    assert lines[2].removeprefix("*").split()[0] == "none"
    assert any(line.endswith("without pairs") for line in lines)
    assert lines[-2:] == [str(tmp_path / "leak/report.json"), str(tmp_path / "leak/report.html")]
    report = json.loads((tmp_path / "leak/report.json").read_text())
    assert [setting["name"] for setting in report["settings"]] == ["none", "int8", "rotation"]
    assert (tmp_path / "leak/report.html").read_text() == page(report)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("gate", "code", "says"),
    [
        (("--max-token-f1", 1, "--min-ndcg-keep", 0.5), 0, "within the gate, best nDCG@10 first: "),
        (("--min-ndcg-keep", 0.01), 0, "within the gate, least leak first: "),
        (("--max-token-f1", 0.001, "--min-ndcg-keep", 0.98), 1, "no setting is within the gate; nearest: "),
        (("--max-token-f1", 0, "--min-ndcg-keep", 1), 1, "no setting is within the gate; nearest: "),
        (("--max-known", 1), 0, "within the gate, least leak first: "),
        (("--max-known", 0.001), 1, "no setting is within the gate; nearest: "),
    ],
)
def test_a_gate_is_an_exit_code_and_names_the_settings(gate, code, says, run):
    audited, out, _ = run(*gate)
    assert audited == code
    (line,) = [line for line in out.splitlines() if line.startswith(says)]
    assert "none (F1 " in line and "rotation (F1 " in line


def test_the_exit_code_of_a_gate_is_2_where_nothing_was_measured(run, monkeypatch):
    monkeypatch.setattr(Ridge, "recover", lambda self, vectors: [""] * len(vectors))
    code, out, _ = run("--max-token-f1", 1)
    assert code == 2 and "not measured: none" in out and "within the gate" not in out
    code, _, _ = run("--max-token-f1", 0.001)
    assert code == 1


def test_a_quick_audit_takes_smaller_numbers_unless_others_are_given_and_says_so(run):
    options = cli.commands["audit"].make_context("audit", ["--quick", "--texts", "7"]).params
    assert (options["texts"], options["lengths"]) == (7, ((8, 32), True))
    _, out, _ = run("--quick")
    assert "This was a quick audit: 6 texts of each length at most, and attackers in closed form" in out
    assert "'binocle invert' may read more" in out
    assert "quick audit" not in run()[1]


def test_a_quick_audit_trains_nothing_and_reports_all_attacks_in_closed_form(filled, monkeypatch):
    def train(_):
        raise AssertionError

    monkeypatch.setattr(auditing, "default_attacker", train)
    report = audit(Retriever.open(filled), quick=True, settings=SETTINGS, **OPTIONS)
    plain, noise, _, rotated = report.results
    assert [list(result.attacks) for result in (plain, noise, rotated)] == [
        [RIDGE],
        [RIDGE, AVERAGED],
        [RIDGE, RIDGE_WITHOUT_PAIRS],
    ]
    assert report.steps_each == 0
    (rotation,) = [line for line in report_fields(report)["statements"] if "secret rotation" in line]
    length = max((4, 8), key=lambda size: plain.attacks[RIDGE].by_length[size]["f1"])
    assert f"is {rotated.attacks[RIDGE_WITHOUT_PAIRS].by_length[length]['f1']:.3f}, against" in rotation
    assert "in closed form" in page(report_fields(report))
    gate = Gate(max_token_f1=1)
    assert gate.passing(report) == [] and gate.unmeasured(report) == report.results
    lines = text_report.lines(report, gate)
    assert "not measured: none, for a quick audit trains no attacker: the whole audit may read more" in lines
    assert Gate(max_token_f1=0.01).unmeasured(report) == []  # it can still fail


def test_json_has_the_gate_too(run):
    code, out, _ = run("--json", "--max-token-f1", 0.001)
    record = json.loads(out)
    assert code == 1
    assert record["gate"]["within"] == [] and set(record["gate"]["nearest"]) == {"none", "int8", "rotation"}


def leaking(monkeypatch, leak):
    monkeypatch.setattr(DefenceResult, "leak", property(leak))
    monkeypatch.setattr(DefenceResult, "upper", lambda self, measure: leak(self))


def test_apply_embeds_the_index_anew_and_rollback_undoes_it(run, index, tmp_path, monkeypatch):
    before = index.encoder.fingerprint
    leaking(monkeypatch, lambda self: 0.1 if self.kind == "none" else 0.9)
    code, out, _ = run("--max-token-f1", 0.3, "--apply", "--encoder", tmp_path / "secret")
    assert (code, index.encoder.fingerprint) == (0, before)
    assert "the index is unchanged: its stored vectors are within the gate" in out
    leaking(monkeypatch, lambda self: 0.9 if self.kind == "none" else 0.1)
    moved = []
    monkeypatch.setattr(
        "binocle.commands.progress_bar.ProgressBar.__call__", lambda _, at: moved.append((at.done, at.total))
    )
    code, out, _ = run("--max-token-f1", 0.3, "--apply", "--encoder", tmp_path / "secret")
    assert code == 0
    passages = index.snapshot().chunks.count_rows()
    assert moved[-1] == (passages, passages)
    assert f"{tmp_path / 'secret'} is the encoder, with its secret key: keep it outside of the index" in out
    assert "'binocle rollback'" in out
    now = Retriever.open(index.path)
    assert now.encoder.fingerprint != before and now.encoder.name == str(tmp_path / "secret")
    assert now.search("cat", mode="semantic")
    now.rollback()
    assert Retriever.open(index.path).encoder.fingerprint == before


@pytest.mark.parametrize("form", [(), ("--erase",)])
def test_an_interrupted_apply_says_which_command_goes_on(form, run, index, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    leaking(monkeypatch, lambda self: 0.1 if self.kind == "int8" else 0.9)
    with monkeypatch.context() as patch:
        patch.setattr("binocle.retriever.indexing.switch._rows", interrupted)
        patch.setattr(os, "_exit", sys.exit)
        _, _, err = run("--max-token-f1", 0.3, "--apply", "--encoder", tmp_path / "secret", *form)
    hint = f"'binocle switch {tmp_path / 'secret'} {index.path}' goes on with the embedding from there"
    rest = "; it keeps the undefended vectors, unlike switch(…, keep=False) in Python" if form else ""
    assert err.splitlines()[-2:] == [hint + rest, "binocle: interrupted"]
    report = Retriever.open(index.path).switch(str(tmp_path / "secret"))
    assert (report.embedded, Retriever.open(index.path).encoder.name) == (0, str(tmp_path / "secret"))


def test_a_gate_of_quality_alone_applies_what_leaks_least(run, index, tmp_path, monkeypatch):
    leaking(monkeypatch, lambda self: 0.1 if self.kind == "int8" else 0.9)
    code, out, _ = run("--min-ndcg-keep", 0, "--apply", "--encoder", tmp_path / "secret")
    assert code == 0
    assert "passages now of int8" in out


def test_a_quick_audit_cannot_be_applied(run):
    code, out, err = run("--quick", "--max-token-f1", 0.5, "--apply")
    assert (code, out) == (2, "")
    assert "--apply needs the whole audit" in err.splitlines()[-1]


@pytest.mark.parametrize("option", ["--steps", "--seconds"])
def test_a_quick_audit_takes_no_limit_of_a_learning_that_it_leaves_out(option, run):
    code, out, err = run("--quick", option, "100")
    assert (code, out) == (2, "")
    refusal = f"{option} has no effect here: --quick trains nothing; leave one of them out"
    assert err.splitlines()[-1] == f"binocle: {refusal} (see 'binocle audit --help')"


def test_apply_changes_nothing_where_no_setting_will_do(run, index, tmp_path):
    before = index.snapshot().head
    code, _, _ = run("--max-token-f1", 0.001, "--apply", "--encoder", tmp_path / "secret")
    assert code == 1
    assert index.snapshot().head == before and not (tmp_path / "secret").exists()


def denied(*arguments, **options):
    raise PermissionError(13, "denied")


def test_what_cannot_be_applied_is_refused_before_anything_is_measured(run, index, tmp_path, monkeypatch):
    def measured(*arguments, **options):
        raise AssertionError

    monkeypatch.setattr(auditing, "audit", measured)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    refused = ("--max-token-f1", 1, "--apply", "--encoder")
    monkeypatch.setattr(Retriever, "folders", [tmp_path / "documents"])
    for target, says in (
        (tmp_path / "full", "is there already"),
        (index.path / "secret", "is in the index"),
        (tmp_path / "documents/secret", f"is in the indexed folder {tmp_path / 'documents'}"),
        (tmp_path / "full/file/secret", "full/file/secret cannot be written (Not a directory)"),
    ):
        code, out, err = run(*refused, target)
        assert (code, out) == (2, "")
        assert says in err.splitlines()[-1]
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.TemporaryFile", denied)
        patch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        code, out, err = run(*refused[:-1])
        assert (code, out) == (2, "")
        assert f"{tmp_path / 'data/binocle/encoders'} cannot be written (denied)" in err.splitlines()[-1]
    with monkeypatch.context() as patch:
        patch.setattr(FolderLocation, "_make_folder", denied)
        code, out, err = run(*refused, tmp_path / "secret")
        assert (code, out) == (2, "")
        assert str(index.path) in err.splitlines()[-1] and "denied" in err.splitlines()[-1]
    assert not (tmp_path / "secret").exists()
    defend(index, "int8", folder=tmp_path / "first")
    code, out, err = run(*refused, tmp_path / "second")
    assert (code, out) == (2, "")
    assert "has a defended encoder already" in err.splitlines()[-1]


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(run, tmp_path, monkeypatch):
    def measured(*arguments, **options):
        raise AssertionError

    monkeypatch.setattr(auditing, "audit", measured)
    (tmp_path / "file").touch()
    code, out, err = run("--out", tmp_path / "file/leak")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == f"binocle: {tmp_path / 'file/leak'}: Not a directory"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_was_found_is_told_though_it_cannot_be_written(form, run, tmp_path, monkeypatch):
    def failing(report):
        raise InputError("the disk is full")

    monkeypatch.setattr("binocle.training.audit.report.html_report.page", failing)
    code, out, err = run("--out", tmp_path / "leak", *form)
    assert code == 2 and "the disk is full" in err
    assert "rotation" in out


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_was_found_is_told_though_it_cannot_be_applied(form, run, monkeypatch):
    def failing(*arguments, **options):
        raise InputError("the disk is full")

    monkeypatch.setattr("binocle.training.audit.apply.defend", failing)
    leaking(monkeypatch, lambda self: 0.9 if self.kind == "none" else 0.1)
    code, out, err = run("--max-token-f1", 0.3, "--apply", *form)
    assert code == 2 and "the disk is full" in err
    assert "rotation" in out and "gate" in out
    if form:
        assert json.loads(out)["gate"]["within"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--apply",), "--apply needs --max-token-f1"),
        (("--erase",), "go with --apply"),
        (("--lengths", "short"), "expected lengths such as"),
        (("--lengths", "8,"), "expected lengths such as"),
        (("--defences", "blur"), "there is no defence 'blur'"),
        (("--max-token-f1", "-1"), "expected a share from 0 to 1, not -1.0"),
        (("--max-token-f1", "nan"), "expected a share from 0 to 1, not nan"),
        (("--max-token-f1", "30"), "expected a share from 0 to 1, not 30.0"),
        (("--max-content-f1", "1.01"), "expected a share from 0 to 1, not 1.01"),
        (("--max-names", "5"), "expected a share from 0 to 1, not 5.0"),
        (("--max-numbers", "5"), "expected a share from 0 to 1, not 5.0"),
        (("--max-known", "5"), "expected a share from 0 to 1, not 5.0"),
        (("--min-ndcg-keep", "98"), "expected a share from 0 to 1, not 98.0"),
        (("--min-ndcg-keep", "inf"), "expected a share from 0 to 1, not inf"),
        (("--queries", "nowhere"), "there is no folder nowhere"),
    ],
)
def test_mistakes_are_one_line(arguments, says, run):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert says in err.splitlines()[-1] and err.splitlines()[-1].startswith("binocle: ")


def test_examples_of_the_help_are_commands(run):
    examples = re.findall(r"^ *binocle audit (.*)$", cli.commands["audit"].help, re.MULTILINE)
    assert examples
    for line in examples:
        cli.commands["audit"].make_context("audit", line.split())
