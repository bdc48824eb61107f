"""Taggers and readers in `evaluate` and `compare`: the measures of seqeval and SQuAD, and tests of differences."""

from __future__ import annotations

import json

import numpy as np
import pytest

from binocle.core.errors import InputError
from binocle.retriever.models.heads.reader import load_reader
from binocle.retriever.models.heads.tagger import load_tagger
from binocle.training.evaluation.heads import span_metrics
from binocle.training.evaluation.heads.names import MEASURES
from binocle.training.evaluation.judged_rows import read

TEXTS = ["the cat ran to the house", "salt in the oven", "the queen and the king sat", "the dog ran at night"]


@pytest.fixture(scope="module")
def heads(tmp_path_factory, make_head):
    """A random tagger and a random reader; another of each; and rows that the first ones judge right."""
    folder = tmp_path_factory.mktemp("heads")
    for name in ("tagger", "other-tagger"):
        make_head(folder / name, "TokenClassification", ["O", "B-PET", "I-PET"], seed=name == "tagger")
    for name in ("reader", "other-reader"):
        make_head(folder / name, "QuestionAnswering", ["start", "end"], seed=name == "reader")
    tagged = load_tagger(folder / "tagger").tag(TEXTS)
    names = [
        {"text": text, "entities": [{"label": one.label, "start": one.start, "end": one.end} for one in entities]}
        for text, entities in zip(TEXTS, tagged, strict=True)
    ]
    spans = load_reader(folder / "reader").read_pairs([("where is the cat", text) for text in TEXTS])
    answers = [
        {"question": "where is the cat", "context": text, "answers": [span.text if span else text]}
        for text, span in zip(TEXTS, spans, strict=True)
    ]
    for name, rows in (("names", names), ("answers", answers)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_span_f1_under_weights_is_that_of_repeated_texts():
    random = np.random.default_rng(0)
    for _ in range(50):
        right, wrong, missed, weights = random.integers(0, 4, (4, 9))
        scores, gold = np.stack([right, right + wrong], 1).astype(float), (right + missed).astype(float)
        hits, marked, true = (np.repeat(column, weights).sum() for column in (right, right + wrong, right + missed))
        of = {name: measure.of(scores, gold)(weights[None].astype(float))[0] for name, measure in MEASURES.items()}
        assert of["Span precision"] == pytest.approx(hits / marked if marked else 0)
        assert of["Span recall"] == pytest.approx(hits / true if true else 0)
        assert of["Span F1"] == pytest.approx(2 * hits / (marked + true) if marked + true else 0)


@pytest.mark.parametrize(
    ("kind", "noun", "measure"), [("names", "tagger", "Span F1"), ("answers", "reader", "Exact match")]
)
def test_evaluate_and_compare_take_the_head_of_the_rows(heads, run, kind, noun, measure):
    file = heads / f"{kind}.jsonl"
    (row,) = run("evaluate", file, "--model", heads / noun, "--json").rows
    assert row["kind"] == kind and row["rows"] == len(TEXTS) and row["measures"][measure] == 1
    answer = run("compare", heads / noun, heads / f"other-{noun}", "--data", file, "--measure", measure, "--json")
    assert answer.code == 0, answer.err
    assert '"baseline"' in answer.out
    table = run("evaluate", file, "--model", heads / noun).out.splitlines()[1:-1]
    assert len({line.index("[") for line in table}) == 1  # the columns stand below each other
    wrong = run("evaluate", file)
    assert wrong.code == 2 and f"are for a {noun}: give it as --model" in wrong.err
    lexical = run("compare", heads / noun, "lexical", "--data", file)
    assert lexical.code == 2 and f"lexical is no {noun}" in lexical.err


def test_an_answer_below_the_threshold_counts_as_none_where_some_questions_have_none(heads, run, tmp_path):
    rows = [json.loads(line) for line in (heads / "answers.jsonl").read_text().splitlines()]
    rows.append({"question": "who is it", "context": TEXTS[0], "answers": []})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reader = load_reader(heads / "reader")
    spans = reader.read_pairs([(row["question"], row["context"]) for row in rows])
    given = [span.text if span and span.score >= reader.settings.threshold else "" for span in spans]
    expected = [span_metrics.exact_match(text, row["answers"]) for text, row in zip(given, rows, strict=True)]
    (row,) = run("evaluate", tmp_path / "rows.jsonl", "--model", heads / "reader", "--json").rows
    assert row["measures"]["Exact match"] == round(float(np.mean(expected)), 4)


def test_files_of_conll_and_squad_are_rows_too(heads, run, tmp_path):
    (tmp_path / "pets.conll").write_text("the O\ncat B-PET\nran O\n\nsalt O\n")
    (row,) = run("evaluate", tmp_path / "pets.conll", "--model", heads / "tagger", "--json").rows
    assert row["kind"] == "names" and row["rows"] == 2
    paragraph = {
        "context": TEXTS[0],
        "qas": [{"question": "who ran", "answers": [{"text": "the cat", "answer_start": 0}]}],
    }
    (tmp_path / "squad.json").write_text(json.dumps({"data": [{"title": "a", "paragraphs": [paragraph]}]}))
    (row,) = run("evaluate", tmp_path / "squad.json", "--model", heads / "reader", "--json").rows
    assert row["kind"] == "answers" and row["rows"] == 1


def test_rows_that_could_be_of_two_kinds_and_empty_files_are_told_apart(tmp_path):
    rows, single, empty = tmp_path / "rows.jsonl", tmp_path / "row.json", tmp_path / "none.conll"
    row = {"text": "the cat sat", "label": "pets", "entities": []}
    rows.write_text(json.dumps(row) + "\n" + json.dumps(row | {"label": "wild"}) + "\n", "utf-8")
    assert read(rows).labels == ["pets", "wild"]
    single.write_text(json.dumps({"text": "the cat sat", "label": "pets"}), "utf-8")
    assert read(single).labels == ["pets"]
    empty.write_text("\n", "utf-8")
    with pytest.raises(InputError, match="holds no rows"):
        read(empty)
