"""A reader learns the probabilities of another one, whatever the tokenizer of that one is."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from binocle.core.errors import InputError, ModelNotFoundError
from binocle.retriever.models.heads.reader import load_reader
from binocle.retriever.models.heads.windows import Window, windows
from binocle.training.heads.config import ReaderConfig
from binocle.training.heads.reader_teacher import Lesson, ReaderTeacher, _of_student
from binocle.training.heads.train import train_reader

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves

QUESTION, PASSAGE = "where the cat", "the cat sat on the river and the dog ran to the mountain"


@pytest.fixture
def own_window(trained_reader):
    """A window of the teacher's own tokenizer, and its logits, (tokens, 2)."""
    head = load_reader(trained_reader).head
    (window,) = windows(head.tokenizer(), QUESTION, PASSAGE, 48, 16)
    return window, head.logits([window])[0]


def test_the_divergence_from_oneself_is_none_and_the_least(trained_reader, own_window):
    teacher, (window, logits) = ReaderTeacher.load(str(trained_reader)), own_window
    lesson = teacher.lesson(QUESTION, PASSAGE, window)
    assert teacher.loss(torch.tensor(logits)[None], [None]) == 0
    # the teacher's probability of the question's tokens is not given to anyone
    logits[1 : window.first] = logits[window.first + len(window.offsets) :] = -1e4
    same = torch.tensor(logits)[None].requires_grad_()
    loss = teacher.loss(same, [lesson])
    loss.backward()
    assert abs(loss.item()) < 1e-3 and same.grad.abs().max() < 1e-3
    other = torch.tensor(np.random.default_rng(0).permutation(logits))[None]
    assert teacher.loss(other, [lesson]) > 0.1
    assert teacher.loss(other.expand(2, -1, -1), [lesson, None]) == pytest.approx(teacher.loss(other, [lesson]) / 2)


def test_the_teacher_reads_a_part_of_a_passage_once(trained_reader, monkeypatch):
    teacher = ReaderTeacher.load(str(trained_reader))
    long = f"{'bread and salt ' * 30} {PASSAGE}"
    parts = windows(teacher._tokenizer, QUESTION, long, 48, 16)
    lessons = [teacher.lesson(QUESTION, long, part) for part in parts]
    assert len(lessons) > 2 and len({lesson.key for lesson in lessons}) == len(lessons)
    for part, lesson in zip(parts, lessons, strict=True):
        assert lesson.window.ids == part.ids and (lesson.first, lesson.tokens) == (part.first, len(part.offsets))
        assert lesson.starts.tolist() == lesson.ends.tolist() == list(range(lesson.tokens))
    read = []
    logits = teacher._head.logits
    monkeypatch.setattr(teacher._head, "logits", lambda texts: read.append(len(texts)) or logits(texts))
    first = teacher._probabilities([*lessons, lessons[0], None])
    again = teacher._probabilities(lessons)
    assert read == [len(lessons), 0] and first[-1] is None
    assert all(one is other for one, other in zip(first, again, strict=False))


def test_probabilities_go_to_the_token_with_the_same_character():
    # the passage "unbound tie": the teacher's tokens un, bound, tie; the student's unb, ound, t, ie
    teachers = Window([0, 5, 0, 6, 7, 8, 0], [0] * 7, 3, [])
    lesson = Lesson(0, teachers, np.array([0, 0, 2]), np.array([0, 1, 3]), 2, 4)
    logits = np.zeros((7, 2), np.float32)
    logits[:, 0] = 2 * np.log([2, 99, 99, 1, 2, 3, 99])  # twice: the temperature is 2
    logits[:, 1] = 2 * np.log([1, 99, 99, 1, 1, 5, 99])
    given = _of_student(lesson, logits)
    np.testing.assert_allclose(given[:, 0], np.array([2, 3, 0, 3, 0]) / 8, atol=1e-3)
    np.testing.assert_allclose(given[:, 1], np.array([1, 1, 1, 0, 5]) / 8, atol=1e-3)


def test_another_tokenizer_reads_the_same_characters(trained_reader):
    teacher = ReaderTeacher.load(str(trained_reader))
    words = [(0, 3), (4, 11), (12, 24)]  # the student's tokens: "the", "cat sat", "on the river"
    lesson = teacher.lesson(QUESTION, PASSAGE, Window([0] * 8, [0] * 8, 4, words))
    tokens = [teacher._tokenizer.id_to_token(number) for number in lesson.window.ids]
    assert tokens[lesson.window.first : -1] == "the cat sat on the river".split()
    assert lesson.starts.tolist() == lesson.ends.tolist() == [0, 1, 1, 2, 2, 2]
    assert teacher.lesson(QUESTION, "", Window([0], [0], 1, [])) is None
    long = "bread " * 600  # more than the teacher can read at once
    assert teacher.lesson(QUESTION, long, Window([0], [0], 0, [(0, len(long))])) is None


@pytest.mark.thorough
def test_a_student_learns_from_its_teacher_what_the_answers_do_not_say(
    tmp_path, tiny_model, trained_reader, squad_rows
):
    config = ReaderConfig(steps=30, max_length=48, learning_rate=5e-3, held_out=0.1, evaluations=1, bf16=False)
    rows = [row | {"answers": ["sat"]} for row in squad_rows(160)]  # all wrong
    answers = {}
    for name, teacher in (("alone", None), ("taught", str(trained_reader))):
        train_reader(rows, tmp_path / name, base=tiny_model, teacher=teacher, config=config)
        answers[name] = load_reader(tmp_path / name).read(QUESTION, [PASSAGE])[0].text
    assert answers == {"alone": "sat", "taught": "river"}
    facts = json.loads((tmp_path / "taught" / "binocle.json").read_text("utf-8"))
    assert facts["data"]["teacher"] == str(trained_reader) and "teacher" in facts["objective"]


def test_a_teacher_that_is_no_reader_is_refused(tmp_path, tiny_model, squad_rows, run):
    with pytest.raises(InputError, match="no reader: expected one that 'binocle train reader' wrote"):
        train_reader(squad_rows(40), tmp_path / "out", base=tiny_model, teacher=tiny_model)
    with pytest.raises(ModelNotFoundError, match="no/such"):
        train_reader(squad_rows(40), tmp_path / "out", base=tiny_model, teacher="no/such")
    assert not (tmp_path / "out").exists()
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in squad_rows(40)), "utf-8")
    options = ("--base", tiny_model, "--teacher", tiny_model, "--out", tmp_path / "out")
    shown = run("train", "reader", tmp_path / "rows.jsonl", *options)
    assert shown.code == 2 and "no reader" in shown.err and "Traceback" not in shown.err
