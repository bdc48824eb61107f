from __future__ import annotations

import errno
import json
import os
import shutil

import pytest

pytest.importorskip("sentence_transformers", reason="training needs torch", exc_type=ImportError)

from binocle.core.errors import InputError
from binocle.retriever.models.load import load_encoder
from binocle.training.encoders import distill as distillation
from binocle.training.encoders import students
from binocle.training.encoders.distill import distill, student_settings
from binocle.training.encoders.train import train_encoder

TEXTS = [f"the cat number {number} sat on the mat" for number in range(40)]
SETTINGS = {"steps": 2, "batch_size": 4, "max_length": 16, "patience": None}


def table(teacher, out):
    return distill(str(teacher), out, texts=TEXTS, layers=0, config=student_settings(0, **SETTINGS))


def test_a_run_that_was_killed_while_it_measured_the_student_is_repeated(tmp_path, tiny_model, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(distillation, "_rate", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            table(tiny_model, tmp_path / "student")
    weights = (tmp_path / "student" / "model.safetensors").stat().st_mtime_ns
    card = tmp_path / "student" / "binocle.json"
    card.write_text(json.dumps(json.loads(card.read_text("utf-8")) | {"seconds": 1234.5}), "utf-8")
    with pytest.raises(InputError, match="is not empty"):
        distill(tiny_model, tmp_path / "student", texts=TEXTS[1:], layers=0, config=student_settings(0, **SETTINGS))
    assert table(tiny_model, tmp_path / "student").seconds == 1234.5  # of the process that trained
    facts = json.loads(card.read_text("utf-8"))
    assert (facts["config"]["layers"], facts["seconds"]) == (0, 1234.5)
    assert (tmp_path / "student" / "model.safetensors").stat().st_mtime_ns == weights
    assert [path.name for path in tmp_path.iterdir()] == ["student"]
    with pytest.raises(InputError, match="is not empty"):
        table(tiny_model, tmp_path / "student")
    with pytest.raises(InputError, match="student is a table of word vectors and has no layers"):
        distill(str(tmp_path / "student"), tmp_path / "next", texts=TEXTS, layers=1)


def test_an_interrupted_run_is_resumed_and_nothing_stays_beside_the_student(tmp_path, tiny_model, monkeypatch):
    calls = []
    for module, name in ((students, "as_table"), (distillation, "train_encoder")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                table(tiny_model, tmp_path / "student")
    make = students.as_table
    monkeypatch.setattr(students, "as_table", lambda *words: calls.append(words) or make(*words))
    table(tiny_model, tmp_path / "student")
    assert calls == []
    assert [path.name for path in tmp_path.iterdir()] == ["student"]
    assert not (tmp_path / "student" / "run").exists()


@pytest.mark.parametrize("card", ["{", "[]", "{}", '{"base": 3}'])
def test_a_card_of_another_program_is_no_student(card, tmp_path, tiny_model):
    (tmp_path / "student").mkdir()
    (tmp_path / "student" / "binocle.json").write_text(card)
    with pytest.raises(InputError, match="is not empty"):
        table(tiny_model, tmp_path / "student")


def test_a_full_disk_is_noticed_before_the_teachers_vectors_are_written(tmp_path, tiny_model, monkeypatch):
    def fallocate(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", fallocate, raising=False)
    with pytest.raises(OSError, match="No space left"):
        table(tiny_model, tmp_path / "student")


def test_a_student_is_not_written_inside_its_teacher(tmp_path, tiny_model):
    teacher = shutil.copytree(tiny_model, tmp_path / "teacher")
    with pytest.raises(InputError, match="inside the model"):
        table(teacher, teacher / "student")
    with pytest.raises(InputError, match="inside the model"):
        train_encoder([{"query": "a", "positive": "b"}] * 9, teacher / "new", base=str(teacher))
    assert load_encoder(str(teacher)).fingerprint == load_encoder(tiny_model).fingerprint


def test_shortened_vectors_are_refused_for_a_student_with_layers_before_anything_is_read(tmp_path, tiny_model):
    with pytest.raises(InputError, match=r"a student with layers has whole ones: expected .*, or --layers 0 for a"):
        distill(f"{tiny_model}@8", tmp_path / "student", texts=tmp_path / "missing.txt", layers=1)
    result = distill(
        f"{tiny_model}@8", tmp_path / "table", texts=TEXTS, layers=0, config=student_settings(0, **SETTINGS)
    )
    assert load_encoder(str(result.folder)).dim == 8
