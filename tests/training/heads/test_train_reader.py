"""Readers learn, resume, and are ordinary folders of transformers; a search cites their answers."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from binocle import Retriever
from binocle.commands.background.kept import Retrievers
from binocle.core.errors import InputError, ModelNotFoundError
from binocle.retriever.models.heads.bert_head import BertHead
from binocle.retriever.models.heads.reader import load_reader
from binocle.retriever.models.heads.torch_head import inputs
from binocle.retriever.models.heads.windows import windows
from binocle.training.heads.config import ReaderConfig, default_learning_rate
from binocle.training.heads.train import train_reader
from binocle.training.runs.checkpoints import last_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves


def test_a_reader_learns_and_its_card_says_how_well(trained_reader):
    facts = json.loads((trained_reader / "binocle.json").read_text("utf-8"))
    measures = {row["name"]: row for row in facts["measures"]}
    assert measures["F1"]["value"] > 0.8 > measures["F1"]["interval"][0] - 1
    assert {"exact match", "no answer found where there is none", "calibration error"} <= measures.keys()
    assert facts["reader"]["window"] == 48
    card = (trained_reader / "README.md").read_text("utf-8")
    assert "# Reader trained from" in card and "| F1 |" in card
    assert not (trained_reader / "run").exists()


def test_the_folder_is_one_of_transformers_and_its_logits_are_served_without_torch(trained_reader):
    from transformers import AutoModelForQuestionAnswering

    reader = load_reader(trained_reader)
    assert isinstance(reader.head, BertHead)
    model = AutoModelForQuestionAnswering.from_pretrained(trained_reader, attn_implementation="eager").eval()
    texts = ["the cat sat on the mat and the dog ran to the river", "bread"]
    texts += ["salt the cheese and bake the bread in a hot oven until the night is over " * 9]
    parts = [part for text in texts for part in windows(reader.head.tokenizer(), "where the cat", text, 48, 16)]
    assert len(parts) > 3
    with torch.no_grad():
        output = model(**inputs(model, parts))
    several = output.start_logits, output.end_logits
    for few in (parts[:2], parts * 8):  # numpy, and OpenVINO
        for part, logits, start, end in zip(few, reader.head.logits(few), *several, strict=False):
            size = len(part.ids)
            np.testing.assert_allclose(logits, torch.stack([start[:size], end[:size]], 1), atol=1e-4)


def test_windows_cover_a_long_passage_and_share_tokens(trained_reader):
    tokenizer = load_reader(trained_reader).head.tokenizer()
    passage = " ".join(["bread"] * 200)
    parts = windows(tokenizer, "where " * 90, passage, 40, 10)
    covered = {offset for part in parts for offset in part.offsets}
    assert covered == {(6 * n, 6 * n + 5) for n in range(200)}
    assert all(len(part.ids) <= 40 and part.type_ids[part.first - 1 : part.first + 1] == [0, 1] for part in parts)
    assert set(parts[0].offsets) & set(parts[1].offsets)
    assert windows(tokenizer, "where", "", 40, 10)[0].offsets == []


def test_a_reader_reads_the_answer_wherever_it_stands(trained_reader):
    reader = load_reader(trained_reader)
    plain = "the cat sat on the river and the dog ran to the mountain"
    long = f"{'bread and salt ' * 40} {plain}"
    found = reader.read("where the cat", [plain, "bread", "", "  \n "])
    assert (found[0].text, plain[found[0].start : found[0].end]) == ("river", "river")
    assert found[2:] == [None, None]
    assert reader.read("where the cat \udce9", [plain]) == reader.read("where the cat \ufffd", [plain])
    (far,) = reader.read("where the cat", [long])
    assert long[far.start : far.end] == far.text
    with pytest.raises(InputError, match="a question is a text with words"):
        reader.read(" ", [plain])


def test_a_killed_run_resumes_and_takes_the_same_steps(tmp_path, tiny_model, squad_rows, monkeypatch):
    from binocle.training.heads.reader_training import ReaderTraining

    config = ReaderConfig(steps=6, max_length=48, batch_size=4, held_out=0.1, evaluations=3, bf16=False)
    whole = train_reader(squad_rows(40), tmp_path / "whole", base=tiny_model, config=config)
    taken = []
    loss = ReaderTraining.loss

    def killed(self, batch):
        if len(taken) == 5:
            raise KeyboardInterrupt
        taken.append(1)
        return loss(self, batch)

    monkeypatch.setattr(ReaderTraining, "loss", killed)
    with pytest.raises(KeyboardInterrupt):
        train_reader(squad_rows(40), tmp_path / "out", base=tiny_model, config=config)
    assert last_checkpoint(tmp_path / "out" / "run" / "checkpoints").name == "checkpoint-4"
    monkeypatch.undo()
    monkeypatch.setenv("BINOCLE_PRECISION", "float32")
    resumed = train_reader(squad_rows(40), tmp_path / "out", base=tiny_model, config=config)
    assert (resumed.loop.resumed_from, resumed.loop.steps) == (4, 6)
    assert resumed.fingerprint == whole.fingerprint  # of the same weights
    facts = json.loads((tmp_path / "out" / "binocle.json").read_text("utf-8"))
    assert facts["config"]["learning_rate"] == 1e-3  # the highest that is chosen, for a base of 32 dimensions


def test_a_loss_that_is_no_number_ends_the_run_and_leaves_no_model(tmp_path, tiny_model, squad_rows):
    config = ReaderConfig(steps=6, max_length=48, learning_rate=1e30, evaluations=1, bf16=False)
    with pytest.raises(InputError, match=r"no number any more at step \d: give a learning rate below 1e\+30"):
        train_reader(squad_rows(40), tmp_path / "out", base=tiny_model, config=config)
    assert not (tmp_path / "out" / "config.json").exists()


def test_a_reader_that_could_not_be_measured_says_so(tmp_path, tiny_model, squad_rows):
    config = ReaderConfig(steps=1, max_length=48, batch_size=4, bf16=False)
    rows = [row | {"title": "one document"} for row in squad_rows(8)]
    result = train_reader(rows, tmp_path / "out", base=tiny_model, config=config)
    assert not result.measures and result.notes == [
        "nothing was measured, and no probability is calibrated: 8 rows are of too few documents to hold any out"
    ]


def test_a_wide_base_learns_more_slowly():
    assert [default_learning_rate(width) for width in (32, 384, 768, 1024)] == pytest.approx(
        [1e-3, 2e-4, 5e-5, 2.8125e-5]
    )


def test_wrong_data_and_settings_are_refused_and_leave_nothing(tmp_path, tiny_model, squad_rows):
    rows = squad_rows(40)
    for data, options, message in (
        ([{"context": "a", "question": "b"}], {}, "row 1 has no list of 'answers'"),
        ([row | {"answers": []} for row in rows], {}, "no question to learn from has an answer"),
        (rows, {"steps": 1, "minutes": 1.0}, "steps and minutes"),
        (rows, {"unanswerable": 1.0}, "unanswerable is a share"),
        (rows, {"max_length": 8}, "max length is in tokens"),
    ):
        with pytest.raises(InputError, match=message):
            train_reader(data, tmp_path / "out", base=tiny_model, config=ReaderConfig(**options))
        assert not (tmp_path / "out").exists()


@pytest.fixture
def answering(tmp_path, tiny_model, write):
    """An index of two documents; one has an answer."""
    files = {
        "cat.txt": "the cat sat on the\nriver and the dog ran to the mountain\n",
        "b.txt": "Bread.\n",
    }
    retriever = Retriever.open(write(tmp_path / "folder", files), model=tiny_model)
    retriever.sync()
    return retriever


def test_an_index_that_stays_open_takes_a_reader_that_was_trained_anew(answering, trained_reader, tmp_path):
    model, retrievers = shutil.copytree(trained_reader, tmp_path / "reader"), Retrievers(60)
    retriever = retrievers.get(answering.path, None)
    retriever.answer("where the cat", reader=model, mode="lexical")
    retrievers.end_command()
    assert retrievers.get(answering.path, None) is retriever
    os.utime(model / "model.safetensors", ns=(1, 1))
    assert retrievers.get(answering.path, None) is not retriever


def test_an_answer_cites_its_own_characters_and_lines(answering, trained_reader):
    answers = answering.answer("where the cat", reader=trained_reader, mode="lexical")
    best = answers[0]
    text = answering.text("cat.txt")
    assert (best.path, best.text, text[best.char_start : best.char_end]) == ("cat.txt", "river", "river")
    assert (
        text.splitlines()[best.line_start - 1] == "river and the dog ran to the mountain"
        and best.line_end == best.line_start
    )
    assert 0 < best.probability < 1 and best.hit.text.count("river") == 1
    assert (
        answering.scope("path=cat.txt").answer("where the cat", reader=trained_reader, mode="lexical")[0].text
        == "river"
    )
    assert answering.scope("path=b.txt").answer("where the cat", reader=trained_reader) == []
    hits = answering.search("cat", mode="lexical")
    assert answering.answer("where the cat", reader=load_reader(trained_reader), hits=hits)[0].text == "river"


def test_hidden_text_is_no_answer(answering, trained_reader):
    from dataclasses import replace

    (hit,) = answering.search("cat", 1, mode="lexical")
    at = hit.char_start + hit.text.index("river")
    assert answering.answer("where the cat", reader=trained_reader, hits=[hit])
    hidden = replace(hit, hidden=((at, at + 5),))
    assert answering.answer("where the cat", reader=trained_reader, hits=[hidden]) == []


def test_search_prints_the_answer_and_its_line(answering, trained_reader, run, monkeypatch):
    monkeypatch.chdir(answering.folder)
    options = ("--answer", "--reader", trained_reader, "--mode", "lexical", "--min-relevance", "0")
    shown = run("search", "where the cat", *options)
    first, second = shown.out.splitlines()[:2]
    assert shown.code == 0 and first.startswith("river  (") and first.endswith("cat.txt:2")
    assert "[river]" in second
    rows = run("search", "where the cat", *options, "--json").rows
    assert rows[0]["answer"]["text"] == "river" and rows[0]["answer"]["line_start"] == 2
    assert set(rows[0]["answer"]) == {
        "text",
        "char_start",
        "char_end",
        "line_start",
        "line_end",
        "page",
        "score",
        "probability",
    }
    assert run("search", "where the cat \udce9", *options).out.startswith("river  (")  # no valid UTF-8
    nothing = run("search", "bread", *options, "--files", "b.txt")
    assert (nothing.code, "no answer" in nothing.err, "b.txt:1" in nothing.out) == (1, True, True)
    assert run("search", "cat", "--answer") == (
        2,
        "",
        "binocle: --answer needs --reader MODEL: 'binocle train reader' makes one (see 'binocle search --help')\n",
    )
    assert "--reader goes with --answer" in run("search", "cat", "--reader", "x").err


def test_answer_reads_files_and_standard_input(tmp_path, trained_reader, run):
    file = tmp_path / "a.txt"
    file.write_text("the cat sat on the\nriver and the dog ran to the mountain\n", "utf-8")
    reader = ("--reader", trained_reader)
    shown = run("answer", "where the cat", file, *reader)
    assert (shown.code, shown.out.split("  ")[0], f"{file}:2" in shown.out) == (0, "river", True)
    (row,) = run("answer", "where the cat", "-", *reader, "--json", stdin=file.read_bytes()).rows
    assert (row["file"], row["text"], row["line_start"], row["char_start"]) == ("-", "river", 2, 19)
    marked = b"\xef\xbb\xbf" + file.read_bytes()  # a byte order mark
    file.write_bytes(marked)
    assert run("answer", "where the cat", "-", *reader, "--json", stdin=marked).rows == [row]
    assert run("answer", "where the cat", file, *reader, "--json").rows == [row | {"file": str(file)}]
    assert run("answer", "where the cat", *reader, stdin=b"bread").code == 1
    assert "is no text in UTF-8" in run("answer", "where", "-", *reader, stdin=b"\xff").err


def test_another_model_is_no_reader(tmp_path, tiny_model, trained_reader, make_reranker):
    with pytest.raises(InputError, match="is BertModel and no reader: expected one that 'binocle train reader' wrote"):
        load_reader(tiny_model)
    with pytest.raises(ModelNotFoundError):
        load_reader("no-such-reader")
    shutil.copytree(trained_reader, tmp_path / "copy")
    for text, message in (
        (
            '{"reader": {"window": "long"}}',
            "in .reader.: window is .long., expected a whole number of tokens from 8; copy",
        ),
        ('{"reader": {"evil": 1}}', "does not describe a reader"),
        ("[", "does not describe a reader"),
    ):
        (tmp_path / "copy" / "binocle.json").write_text(text, "utf-8")
        with pytest.raises(InputError, match=message):
            load_reader(tmp_path / "copy")


def test_a_run_limited_by_time_warms_up_in_few_steps_whatever_the_size_of_the_data(tmp_path, tiny_model, squad_rows):
    from binocle.training.data.heads.squad import read_questions
    from binocle.training.heads.reader_training import ReaderTraining
    from binocle.training.runs.training_run import TrainingRun

    questions = read_questions(squad_rows(160)) * 100
    warmups = []
    for length in ({"minutes": 1.0}, {"epochs": 2.0}):
        config = ReaderConfig(**length, bf16=False)
        training = ReaderTraining.load(TrainingRun(tmp_path / "out", tiny_model, config, None), questions, [])
        warmups.append(training._schedule().warmup)
    assert warmups == [50, 200]


def test_a_question_without_answer_is_read_with_a_passage_of_about_its_own_length():
    from binocle.training.data.heads.squad import read_questions
    from binocle.training.heads.reader_training import _DocumentPassages

    rows = [
        {"title": "a", "context": "the cat sat " * length, "question": "who?", "answers": []} for length in range(1, 31)
    ]
    questions, random = read_questions(rows), np.random.default_rng(0)
    others = _DocumentPassages(questions)
    drawn = [(question, others.without_answer(question, random)) for question in questions * 20]
    gaps = [abs(len(given.passage) - len(asked.passage)) / 12 for asked, given in drawn if given]
    assert len(gaps) == 600 and np.mean(gaps) < 6  # ten, for any passage


def test_a_question_whose_document_is_one_passage_is_read_with_a_passage_of_another():
    from binocle.training.data.heads.squad import read_questions
    from binocle.training.heads.reader_training import _DocumentPassages

    rows = [{"context": f"the cat sat {n}", "question": "who?", "answers": []} for n in range(5)]
    questions, random = read_questions(rows), np.random.default_rng(0)
    others = _DocumentPassages(questions)
    drawn = [(question, others.without_answer(question, random)) for question in questions * 20]
    assert all(other and other.passage != question.passage for question, other in drawn)
    assert _DocumentPassages([]).without_answer(questions[0], random) is None
    assert _DocumentPassages(questions[:1]).without_answer(questions[0], random) is None


def test_the_loss_is_the_cross_entropy_of_both_ends_and_adds_the_probabilities_of_places():
    from binocle.training.heads.reader_training import span_loss

    torch.manual_seed(0)
    logits = torch.randn(2, 5, 2)
    ends = torch.tensor([[1, 2], [0, 0]])
    plain = torch.nn.functional.cross_entropy(logits.transpose(1, 2).flatten(0, 1), ends.flatten())
    torch.testing.assert_close(span_loss(logits, [[(1, 2)], [(0, 0)]]), plain)
    start, end = logits[0].softmax(0).T
    both = -torch.log(start[1] * end[2] + start[3] * end[4]) / 2
    torch.testing.assert_close(span_loss(logits[:1], [[(1, 2), (3, 4)]]), both)


def test_every_place_of_an_answer_is_learned_and_rows_are_as_long_as_their_tokens(tmp_path, tiny_model):
    from binocle.training.data.heads.squad import read_questions
    from binocle.training.heads.reader_training import ReaderTraining
    from binocle.training.runs.training_run import TrainingRun

    context = "the cat sat on the mat and the cat ran"
    (question,) = read_questions([{"question": "who", "context": context, "answers": ["cat"]}])
    run = TrainingRun(tmp_path / "out", tiny_model, ReaderConfig(max_length=48, bf16=False), None)
    training = ReaderTraining.load(run, [question], [])
    window, places, _ = training._drawn(question, np.random.default_rng(0))
    words = [context[slice(*window.offsets[first - window.first])] for first, _ in places]
    assert (words, len(places)) == (["cat", "cat"], 2)
    assert training.length(question) == len(window.ids) - window.ids.count(window.ids[0]) - 2
