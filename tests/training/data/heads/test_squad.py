"""Questions are read from SQuAD's layout and from rows, and each fault is named with its place."""

from __future__ import annotations

import gzip
import json

import pytest

from binocle.core.errors import InputError
from binocle.training.data.heads import squad

PASSAGE = "The cat sat on the mat. The mat was red."


def article(*questions: dict) -> dict:
    return {"version": "1.1", "data": [{"title": "Cats", "paragraphs": [{"context": PASSAGE, "qas": list(questions)}]}]}


def asked(**fields: object) -> dict:
    return {"question": "Where?", "answers": [{"text": "the mat", "answer_start": 15}], **fields}


@pytest.mark.parametrize("name", ["train.json", "train.json.gz"])
def test_squads_layout_and_rows_give_the_same_questions(tmp_path, name):
    whole = json.dumps(article(asked(), {"question": "Why?", "answers": [], "is_impossible": True})).encode()
    (tmp_path / name).write_bytes(gzip.compress(whole) if name.endswith("gz") else whole)
    rows = [
        {
            "title": "Cats",
            "context": PASSAGE,
            "question": "Where?",
            "answers": {"text": ["the mat"], "answer_start": [15]},
        },
        {"title": "Cats", "context": PASSAGE, "question": "Why?", "answers": []},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    nested = [
        {"title": "Cats", "context": PASSAGE, "qas": [asked(answers=["the mat"]), {"question": "Why?", "answers": []}]}
    ]
    questions = squad.read_questions(tmp_path / name)
    assert questions == squad.read_questions(tmp_path / "rows.jsonl") == squad.read_questions(nested)
    assert questions[0] == squad.Question("Where?", PASSAGE, ("the mat",), (15,), "Cats")
    assert (questions[1].answers, questions[1].passage is questions[0].passage) == ((), True)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (asked(question=" "), "question is ' ': expected a text"),
        (asked(answers=None), "has no list of 'answers'"),
        (asked(answers=[{"text": "the mat", "answer_start": 3}]), "does not have the answer 'the mat' at character 3"),
        (asked(answers=["a dog"]), "does not have the answer 'a dog': an answer is a part"),
        (asked(answers=[{"text": "mat", "answer_start": -20}]), "at character -20"),
        (asked(answers={"text": ["mat"], "answer_start": []}), "has 1 answers with 0 starts"),
        (asked(is_impossible=True), "is_impossible is true, but there are answers"),
        (asked(is_impossible="no"), "is_impossible is true or false, not 'no'"),
        ("Where?", "expected an object with fields"),
    ],
)
def test_a_wrong_question_is_named_with_its_place(tmp_path, question, message):
    file = tmp_path / "train.json"
    file.write_text(json.dumps(article(asked(), question)), "utf-8")
    with pytest.raises(InputError) as error:
        squad.read_questions(file)
    assert message in str(error.value)
    assert f"{file}, data[0].paragraphs[0].qas[1]" in str(error.value)


def test_other_json_is_refused(tmp_path):
    file = tmp_path / "train.json"
    for text, message in (
        ('{"version": 1}', "no list 'data'"),
        ('{"data": [{"title": "a"}]}', "no list 'paragraphs'"),
        ('{"data": [{', "is not JSON"),
        ('{"data": []}', "no questions"),
    ):
        file.write_text(text, "utf-8")
        with pytest.raises(InputError, match=message):
            squad.read_questions(file)


def test_whole_documents_are_held_out():
    rows = [{"title": str(n % 10), "context": PASSAGE, **asked(question=f"Where {n}?")} for n in range(100)]
    learned, held_out = squad.split(squad.read_questions(rows), 0.2, 1_000, 0)
    assert (len(learned), len(held_out)) == (80, 20)
    assert {row.document for row in learned}.isdisjoint(row.document for row in held_out)


def test_a_question_about_one_passage_of_several_documents_is_not_in_both_parts():
    rows = [{"title": str(n), "context": PASSAGE, **asked(question=f"Where {n % 30}?")} for n in range(60)]
    learned, held_out = squad.split(squad.read_questions(rows), 0.2, 1_000, 0)
    assert held_out and {row.text for row in learned}.isdisjoint(row.text for row in held_out)


@pytest.mark.parametrize("row", [{"title": 2}, {"doc_id": 2}, {"Source_ID": "2", "title": "Mats"}])
def test_a_number_names_a_document_and_a_list_does_not(row):
    (question,) = squad.read_questions([{"context": PASSAGE, **row, **asked()}])
    (in_group,) = (
        squad.read_questions([{"context": PASSAGE, **row, "qas": [asked()]}]) if "doc_id" in row else (question,)
    )
    assert question.document == in_group.document == "2"
    with pytest.raises(InputError, match="expected the name of a document in 'title'"):
        squad.read_questions([{"context": PASSAGE, "title": ["Mats"], **asked()}])


@pytest.mark.parametrize(
    ("answer", "starts"),
    [("the mat", (15,)), ("mat", (19, 28)), ("at", (5, 9, 20, 29)), ("red.", (36,)), ("The", (0, 24))],
)
def test_an_answer_without_a_start_has_each_place_preferably_as_whole_words(answer, starts):
    (question,) = squad.read_questions([{"question": "Where?", "context": PASSAGE, "answers": [answer]}])
    assert (question.starts, set(question.answers)) == (starts, {answer})
    assert all(PASSAGE[start:].startswith(answer) for start in starts)
