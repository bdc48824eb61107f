"""Training from the command line, as the help and README have it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields

import pytest

pytest.importorskip("torch")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

from safetensors import SafetensorError

from binocle import Retriever
from binocle.cli import cli
from binocle.training.encoders import train as encoder
from binocle.training.inversion import train as inverter
from binocle.training.mining.config import MiningConfig
from binocle.training.pretraining import pretrain as pretraining
from binocle.training.rerankers import train as reranker

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves

THINGS = "cat dog queen king moon sun sea ship river mountain bread cheese".split()
PAIRS = [
    {"query": f"{a} {b}", "positive": f"The {a} and the {b} sat in the house. A {b} ran at night."}
    for a in THINGS
    for b in THINGS
]


@pytest.fixture(scope="session")
def _home(tmp_path_factory, tiny_model):
    """What `home` is copied from. Not to be changed."""
    home = tmp_path_factory.mktemp("examples") / "home"
    scifact = home / "scifact"
    (scifact / "qrels").mkdir(parents=True)
    (home / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS), "utf-8")
    rows = "".join(f"{row['query']}\t{row['positive']}\t{n % 5}\n" for n, row in enumerate(PAIRS, 3))
    (home / "sts.tsv").write_text("sentence1\tsentence2\tscore\n" + rows, "utf-8")
    for name, column in (("corpus", "positive"), ("queries", "query")):
        lines = [json.dumps({"_id": f"{n}", "title": "", "text": row[column]}) for n, row in enumerate(PAIRS)]
        (scifact / f"{name}.jsonl").write_text("\n".join(lines), "utf-8")
    judged = "".join(f"{n}\t{n}\t1\n" for n in range(0, len(PAIRS), 2))
    for split in ("train", "test"):
        (scifact / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged, "utf-8")
    (home / "two_steps.toml").write_text("steps = 2\n", "utf-8")
    (home / "texts.jsonl").write_text("".join(f'{{"text": "a ship at sea {n}"}}\n' for n in range(9)), "utf-8")
    (home / "wrong.toml").write_text('data = "pairs.jsonl"\nstepz = 3\n', "utf-8")
    for folder in ("docs", "notes"):
        retriever = Retriever.open(home / folder / ".binocle", model=tiny_model)
        retriever.add({"id": f"{n}", "text": row["positive"]} for n, row in enumerate(PAIRS))
    return home


@pytest.fixture
def home(tmp_path, monkeypatch, tiny_model, _home):
    """Where the examples run: pairs, judged rows, a collection and two indexes."""
    monkeypatch.setattr("binocle.retriever.models.model_files.DEFAULT_MODEL", tiny_model)
    for module in ("retriever.models.cache", "training.mining.corpus", "training.encoders.mining_rounds"):
        monkeypatch.setattr(f"binocle.{module}.DEFAULT_MODEL", tiny_model)
    home = shutil.copytree(_home, tmp_path / "home")
    monkeypatch.chdir(home)
    return home


FAST = ("--steps", "4", "--evaluations", "1")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ("train", "encoder", "pairs.jsonl", "--out", "my-encoder"),
        ("train", "encoder", "pairs.jsonl", "sts.tsv:cosent", "--sampler", "round-robin", "--out", "my-encoder"),
        (
            "train",
            "encoder",
            "sts.tsv",
            "--pooling",
            "cls",
            "--objective",
            "cosine",
            "--epochs",
            "4",
            "--out",
            "my-encoder",
        ),
        ("train", "encoder", "scifact", "--mine", "1", "--rounds", "2", "--epochs", "4", "--out", "my-encoder"),
        ("train", "reranker", "scifact", "--out", "my-reranker"),
    ],
)
def test_the_examples_of_training_train(words, home, run):
    command = cli.commands["train"].commands[words[1]]  # type: ignore[attr-defined]
    assert " ".join(("binocle", *words)) in command.help
    start = words.index("--epochs") if "--epochs" in words else len(words)
    code, out, err = run(*words[:start], *words[start + 2 :], *FAST)  # steps instead of epochs
    assert code == 0, err
    assert f"{2 if '--rounds' in words else 4} steps in" in out
    assert (home / words[-1] / "model.safetensors").is_file()
    assert "step 2 of 2" in err or "step 4 of 4" in err


def test_the_result_is_json_when_asked(home, run):
    code, out, _ = run("train", "encoder", "pairs.jsonl", "--out", "out", "--json", *FAST, "--held-out", "0.3")
    facts = json.loads(out)
    assert (code, facts["steps"], facts["objective"]) == (0, 4, "ranking")
    assert sum(facts["rows"].values()) == len(PAIRS)
    assert facts["after"]["interval"][0] <= facts["after"]["value"] <= facts["after"]["interval"][1]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["encoder", "reranker"])
def test_a_trained_model_has_its_recipe_which_trains_the_same_again(kind, home, run, tiny_model):
    options = {"encoder": ("--pooling", "cls,mean", "--fp32"), "reranker": ("--negatives", "2")}[kind]
    code, out, err = run("train", kind, "pairs.jsonl", "--out", "one", "--base", tiny_model, *options, *FAST, "--json")
    assert code in (0, 1), err
    recipe = (home / "one" / "recipe.toml").read_text("utf-8")
    assert 'data = "../pairs.jsonl"\n' in recipe
    assert "steps = 4\n" in recipe
    code, again, err = run("train", kind, "--recipe", "one/recipe.toml", "--out", "two", "--json")
    assert code in (0, 1), err
    assert json.loads(again)["fingerprint"] == json.loads(out)["fingerprint"]
    assert (home / "two" / "recipe.toml").read_text("utf-8") == recipe
    code, third, err = run("train", kind, "--recipe", "one/recipe.toml", "--out", "three", "--steps", "2", "--json")
    assert json.loads(third)["steps"] == 2, err


def test_a_run_killed_after_its_last_step_has_a_recipe(home, run, monkeypatch):
    def killed(*_, **__):
        raise SystemExit(9)

    monkeypatch.setattr("binocle.commands.models.train._print_result", killed)
    run("train", "encoder", "pairs.jsonl", "--out", "out", *FAST)
    assert tomllib.loads((home / "out" / "recipe.toml").read_text("utf-8"))["data"] == "../pairs.jsonl"


def test_a_name_that_is_not_utf8_is_read_but_not_written(home, run, tiny_model):
    data, out = (os.fsdecode(b"caf\xe9" + end) for end in (b".jsonl", b""))
    try:
        (home / "pairs.jsonl").rename(data)
    except OSError:
        pytest.skip("this file system has no such names")
    code, _, err = run("train", "encoder", data, "--base", tiny_model, "--steps", "2", "--out", "one")
    assert code in (0, 1), err
    assert tomllib.loads((home / "one" / "recipe.toml").read_text("utf-8"))["data"] == "../caf?.jsonl"
    assert "- source: caf\ufffd.jsonl\n" in (home / "one" / "README.md").read_text("utf-8")
    files = sorted(home.iterdir())
    for words in (
        ("train", "encoder", "sts.tsv", "--base", tiny_model, "--out", out),
        ("train", "encoder", "sts.tsv", "--base", tiny_model, "--mine", "1", "--out", out),
        ("train", "inverter", "texts.jsonl", "--encoder", tiny_model, "--out", out),
        ("mine", data, "--out", f"{out}.parquet"),
        ("index", "docs", "--index", out),
    ):
        code, _, err = run(*words)
        assert (code, err.count("\n")) == (2, 1)
        assert "has a name that is not UTF-8: rename it, or give another" in err
    assert sorted(home.iterdir()) == files


def test_the_recipe_of_several_data_sets_trains_the_same_again(home, run, tiny_model):
    data = ("pairs.jsonl", "sts.tsv:cosine")
    code, out, err = run("train", "encoder", *data, "--out", "one", "--base", tiny_model, *FAST, "--json")
    assert code in (0, 1), err
    assert json.loads(out)["objective"] == "ranking, cosine"
    assert 'data = ["../pairs.jsonl", "../sts.tsv:cosine"]\n' in (home / "one" / "recipe.toml").read_text("utf-8")
    code, again, err = run("train", "encoder", "--recipe", "one/recipe.toml", "--out", "two", "--json")
    assert code in (0, 1), err
    assert json.loads(again)["fingerprint"] == json.loads(out)["fingerprint"]


@pytest.mark.thorough
def test_the_paths_of_a_recipe_hold_in_any_folder(home, run, tiny_model, tmp_path, monkeypatch):
    shutil.copytree(tiny_model, home / "base")
    options = ("--base", "base", "--negatives", "2", "--index", "docs/.binocle")
    code, out, err = run("train", "reranker", "pairs.jsonl", "--out", "models/one", *options, *FAST, "--json")
    assert code in (0, 1), err
    recipe = (home / "models" / "one" / "recipe.toml").read_text("utf-8")
    paths = {name: f"../../{path}" for name, path in (("data", "pairs.jsonl"), ("base", "base"))}
    assert tomllib.loads(recipe).items() >= (paths | {"index": "../../docs/.binocle"}).items()
    assert str(home) not in recipe  # a published model does not tell where its author keeps files
    monkeypatch.chdir(tmp_path)
    for file in ("home/models/one/recipe.toml", tmp_path / "home" / "models" / "one" / "recipe.toml"):
        code, again, err = run("train", "reranker", "--recipe", file, "--out", "home/models/two", "--json")
        assert code in (0, 1), err
        assert json.loads(again)["fingerprint"] == json.loads(out)["fingerprint"]
        assert (home / "models" / "two" / "recipe.toml").read_text("utf-8") == recipe
        shutil.rmtree(home / "models" / "two")


SHORT = ("--steps", "3", "--batch-size", "8")
TRAINERS = {  # command -> its words, and what its recipe has for their paths
    "classifier": (
        ("train", "classifier", "rows.jsonl", "--base", "base", "--fine-tune", "--max-length", "32", *SHORT),
        {"data": "../rows.jsonl", "base": "../base", "fine_tune": True, "max_length": 32},
    ),
    "probe": (
        ("train", "classifier", "rows.jsonl", "--base", "base", "--unlabelled", "texts.jsonl", "--seed", "3"),
        {"data": "../rows.jsonl", "base": "../base", "unlabelled": "../texts.jsonl", "seed": 3},
    ),
    "tagger": (
        ("train", "tagger", "rows.jsonl", "--base", "base", *SHORT),
        {"data": "../rows.jsonl", "base": "../base"},
    ),
    "reader": (
        ("train", "reader", "rows.jsonl", "--base", "base", "--unanswerable", "0.3", *SHORT),
        {"data": "../rows.jsonl", "base": "../base", "unanswerable": 0.3},
    ),
    "inverter": (
        ("train", "inverter", "docs/.binocle", "--from", "hidden", "--decoder", "linear", "--encoder", "base", *SHORT),
        {"texts": "../docs/.binocle", "encoder": "../base", "kind": "hidden", "decoder": "linear"},
    ),
    "pretrain": (
        ("pretrain", "docs/.binocle", "texts.jsonl", "--base", "base", "--whole-words", "--column", "text", *SHORT),
        {"texts": ["../docs/.binocle", "../texts.jsonl"], "base": "../base", "whole_words": True, "column": "text"},
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_trained_model_has_a_recipe_that_trains_the_same_from_another_folder(
    trainer, home, run, tiny_model, tmp_path, monkeypatch
):
    shutil.copytree(tiny_model, home / "base")
    rows = [
        {
            "text": f"the {a} ran to {b} {c}",
            "label": "ship" if a in ("ship", "sea") else "none",
            "entities": [{"start": 4, "end": 4 + len(a), "label": "THING"}],
            "context": f"the {a} ran to {b} {c}",
            "question": f"where is the {a}",
            "answers": [b],
        }
        for c in "night house".split()
        for a in THINGS
        for b in THINGS
    ]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    words, expected = TRAINERS[trainer]
    code, _, err = run(*words, "--out", "one")
    assert code in (0, 1), err
    recipe = (home / "one" / "recipe.toml").read_text("utf-8")
    steps = {"steps": 3, "batch_size": 8} if "--steps" in words else {}
    assert tomllib.loads(recipe) == expected | steps
    monkeypatch.chdir(tmp_path)
    command = words[: 1 if trainer == "pretrain" else 2]
    code, _, err = run(*command, "--recipe", "home/one/recipe.toml", "--out", "home/two")
    assert code in (0, 1), err
    weights = sorted(path.relative_to(home / "one") for path in (home / "one").rglob("*.safetensors"))
    assert weights
    for path in weights:
        assert (home / "two" / path).read_bytes() == (home / "one" / path).read_bytes()
    assert (home / "two" / "recipe.toml").read_text("utf-8") == recipe


@pytest.mark.thorough
def test_a_recipe_of_binocles_own_is_called_by_its_name(home, run, tiny_model):
    from binocle.commands.models.recipes import BUILT_IN

    options = ("--recipe", "general", "--out", "one", "--base", tiny_model, "--negatives", "2", *FAST)
    code, _, err = run("train", "reranker", "pairs.jsonl", *options)
    assert code in (0, 1), err
    recipe = tomllib.loads((home / "one" / "recipe.toml").read_text("utf-8"))
    general = BUILT_IN["reranker"]["general"]
    assert {name: recipe[name] for name in general} == general | {"negatives": 2}
    code, _, err = run("train", "encoder", "pairs.jsonl", "--recipe", "general", "--out", "two")
    assert (code, "general is no recipe" in err) == (2, True)


@pytest.mark.thorough
def test_tune_says_what_it_measured_and_whether_the_index_changed(home, run):
    code, out, err = run("tune", "docs", "--no-publish", "--out", "tuned", "--pairs", "30", "--full", "--steps", "3")
    assert code == 0, err
    assert "step 3 of 3" in err
    assert "queries from held-out documents" in out
    assert "hybrid nDCG@10" in out
    assert "the index is unchanged" in out
    code, out, err = run("tune", "notes", "--pairs", "30", "--full", "--steps", "3", "--json")
    assert code == (0 if json.loads(out)["published"] else 1), err
    assert json.loads(out)["teacher"]["difference"]["verdict"] in ("better", "same", "worse")


def test_distill_prints_price_and_gain(home, run):
    code, out, err = run(
        "distill", "sentence-transformers/all-MiniLM-L6-v2", "none.jsonl", "--layers", "0", "--out", "small"
    )
    assert (code, out) == (2, "")
    assert err.endswith("there is no file or folder none.jsonl\n")


def test_distill_refuses_bad_options_before_it_makes_a_student(home, run, tiny_model):
    (home / "taken").write_text("a file", "utf-8")
    for options, message in (
        (("--out", "small", "--on", "nowhere"), "nowhere/corpus.jsonl is missing"),
        (("--out", "small", "--on", "docs"), "docs/corpus.jsonl is missing"),
        (("--out", "taken"), "taken is a file: expected a folder for the student"),
    ):
        code, out, err = run("distill", tiny_model, "pairs.jsonl", "--layers", "1", *options)
        assert (code, out) == (2, "")
        assert message in err
    assert not (home / "small").exists()


@pytest.mark.slow
def test_two_processes_train_one_encoder(home, tiny_model):
    from pathlib import Path

    torchrun = Path(sys.executable).with_name("torchrun")
    command = [
        torchrun,
        "--nproc_per_node",
        "2",
        "-m",
        "binocle.cli",
        "train",
        "encoder",
        "pairs.jsonl",
        "--base",
        tiny_model,
    ]
    done = subprocess.run([*command, "--out", "out", "--json", *FAST], capture_output=True, text=True, check=True)
    (line,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert line["steps"] == 4
    assert (home / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "encoder", "none.jsonl", "--out", "out"), "there is no file or folder none.jsonl"),
        (("train", "encoder", "pairs.jsonl", "--out", "scifact"), "is not empty: give another folder"),
        (
            ("train", "encoder", "pairs.jsonl", "--out", "out", "--objective", "nonsense"),
            "there is no objective 'nonsense'",
        ),
        (
            ("train", "encoder", "pairs.jsonl", "--out", "out", "--base", "none/such"),
            "none/such is not on this machine",
        ),
        (("train", "encoder", "pairs.jsonl", "--out", "out", "--pooling", "sum"), "there is no pooling 'sum'"),
        (
            ("train", "encoder", "pairs.jsonl", "--out", "sts.tsv", "--mine", "1"),
            "sts.tsv is a file: expected a folder",
        ),
        (("train", "encoder", "pairs.jsonl", "--out", "out", "--rounds", "3"), "--rounds goes with --mine"),
        (("train", "encoder", "pairs.jsonl", "sts.tsv", "--out", "out", "--mine", "1"), "--mine takes one data set"),
        (("train", "encoder", "pairs.jsonl", "pairs.jsonl", "--out", "out"), "pairs.jsonl is given twice"),
        (("train", "encoder", "pairs.jsonl:cosent", "--out", "out"), "the objective cosent takes pairs with a score"),
        (("train", "encoder", "pairs.jsonl", "--out", "out", "--matryoshka", "a"), "expected numbers such as"),
        (("train", "encoder", "scifact", "--out", "out", "--split", "dev"), "dev.tsv is missing"),
        (("train", "encoder", "--recipe", "pairs.jsonl", "--out", "out"), "pairs.jsonl is no recipe"),
        (("train", "encoder", "--recipe", "wrong.toml", "--out", "out"), "wrong.toml has 'stepz': expected some of"),
        (("train", "encoder", "pairs.jsonl", "--out", "out", "--split", "dev"), "--split has no effect here"),
        (
            ("train", "encoder", "pairs.jsonl", "--out", "out", "--sampler", "proportional"),
            "--sampler has no effect here: there is one data set",
        ),
        (
            ("train", "classifier", "pairs.jsonl", "--out", "out", "--split", "dev"),
            "--split has no effect here: pairs.jsonl is a file without splits",
        ),
        (("tune", "docs", "--steps", "3"), "--steps has no effect here: it goes with --full"),
        (
            ("train", "reranker", "pairs.jsonl", "--out", "out", "--epochs", "2", "--steps", "3"),
            "--epochs has no effect here: --steps or the recipe's steps say how long",
        ),
        (
            ("train", "encoder", "pairs.jsonl", "--out", "out", "--recipe", "two_steps.toml", "--epochs", "3"),
            "--epochs has no effect here: --steps or the recipe's steps say how long",
        ),
        (
            ("train", "inverter", "docs", "--out", "out", "--steps", "2", "--minutes", "3"),
            "--minutes has no effect here: --steps says how long",
        ),
        (
            ("mine", "pairs.jsonl", "--out", "out.jsonl", "--judge-margin", "5"),
            "--judge-margin has no effect here: it goes with --judge",
        ),
        (
            ("mine", "pairs.jsonl", "--out", "out.jsonl", "--column", "text"),
            "--column has no effect here: it goes with --corpus",
        ),
        (
            ("mine", "pairs.jsonl", "--out", "out.jsonl", "--corpus", "scifact", "--column", "title"),
            "--column has no effect here: no columns are in scifact",
        ),
        (
            ("mine", "pairs.jsonl", "--out", "out.jsonl", "--corpus", "scifact/corpus.jsonl", "--column", "title"),
            "--column has no effect here: scifact/corpus.jsonl belongs to a test collection",
        ),
        (
            ("mine", "pairs.jsonl", "--out", "out.jsonl", "--split", "dev"),
            "--split has no effect here: pairs.jsonl is a file without splits",
        ),
        (
            ("mine", "pairs.jsonl", "--out", "out.jsonl", "--seed", "3"),
            "--seed has no effect here: it goes with --strategy random",
        ),
        (
            ("score", "pairs.jsonl", "--out", "out.jsonl", "--model", "none/such", "--split", "dev"),
            "--split has no effect here: pairs.jsonl is a file without splits",
        ),
        (
            ("pretrain", "docs", "docs/.binocle", "--out", "out", "--column", "body"),
            "--column has no effect here: no columns are in docs, docs/.binocle",
        ),
        (
            ("train", "inverter", "docs", "--out", "out", "--column", "body"),
            "--column has no effect here: no columns are in docs",
        ),
        (
            ("fill", "The [MASK]", "--model", "none/such", "--in-turn", "-k", "1"),
            "-k has no effect here: --in-turn fills each mask with one word",
        ),
        (
            ("evaluate", "scifact", "--qrels", "scifact/qrels/test.tsv", "--split", "dev"),
            "--split has no effect here: --qrels names the judgements",
        ),
        (
            ("compare", "a", "b", "--data", "sts.tsv", "--split", "dev"),
            "--split has no effect here: the data are files of judged rows",
        ),
        (
            ("compare", "a", "b", "--data", "sts.tsv", "--indexes", "kept"),
            "--indexes has no effect here: the data are files of judged rows",
        ),
        (
            ("compare", "a", "b", "--data", "sts.tsv", "--mode", "hybrid"),
            "--mode has no effect here: the data are files of judged rows",
        ),
        (
            ("compare", "a", "b", "--data", "scifact", "--plots", "png"),
            "--plots has no effect here: it goes with --out",
        ),
        (("enrich", "docs", "--precision", "0.8"), "--precision has no effect here: it goes with --head or --as"),
        (
            ("pretrain", "docs", "--out", "out", "--vocabulary", "300"),
            "--vocabulary has no effect here: only --from-scratch learns one",
        ),
        (
            ("train", "encoder", "texts.jsonl", "--out", "out", "--lora", "4"),
            "the objective tsdae trains all weights with its decoder's: leave --lora out",
        ),
        (
            ("train", "encoder", "pairs.jsonl", "--out", "out", "--dev", "pairs.jsonl", "--held-out", "0.1"),
            "--held-out has no effect here: the rows of --dev are held out",
        ),
        (
            ("train", "encoder", "pairs.jsonl", "--out", "out", "--held-out", "0", "--patience", "2"),
            "--patience has no effect here: nothing is held out",
        ),
        (("train", "reranker", "pairs.jsonl", "--out", "out", "--index", "nowhere"), "no index at"),
        (("tune", "nowhere"), "there is no folder nowhere"),
        (("tune", "docs", "--pairs", "0"), "pairs is a whole number from 1"),
        (("tune", "docs", "--seed", "-1"), "Invalid value for '--seed': -1 is not in the range x>=0"),
        (("tune", "docs", "--full", "--steps", "0"), "steps is a whole number above 0"),
        (("tune", "docs", "--teacher", "none/such"), "none/such is not on this machine"),
        (("tune", "docs", "--teacher", "hybrid", "--teacher", "none/such"), "none/such is not on this machine"),
    ],
)
def test_a_mistake_is_one_line(words, message, home, run, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, err = run(*words)
    lines = err.strip().splitlines()
    assert (code, out) == (2, "")
    assert message in lines[-1]
    assert lines[-1].startswith("binocle: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "writer"),
    [
        (("train", "encoder", "pairs.jsonl", *FAST), "runs.start_weights.save_file"),
        (("train", "encoder", "pairs.jsonl", *FAST), "runs.trainers.resumable_trainer.save_model"),
        (("train", "classifier", "classes.jsonl"), "heads.classifiers.probe.save_file"),
    ],
)
def test_a_full_disk_is_one_line_and_not_the_code_of_a_worse_model(words, writer, home, run, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    rows = [{"text": row["query"], "label": "ship" if "ship" in row["query"] else "none"} for row in PAIRS]
    (home / "classes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    monkeypatch.setattr(f"binocle.training.{writer}", full)
    code, out, err = run(*words, "--out", "out")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == "binocle: weights cannot be written: No space left on device (os error 28)"
    assert "Traceback" not in err
    assert not (home / "out").exists()


@pytest.mark.parametrize(
    ("words", "setting", "kind"),
    [
        ("train encoder", "batch_size = 4.5", "a whole number"),
        ("train encoder", "lora = true", "a whole number"),
        ("train encoder", "learning_rate = false", "a number"),
        ("train encoder", "base = true", "a text"),
        ("train encoder", 'base = ["tiny"]', "a text"),
        ("train encoder", 'data = ["a.jsonl", 3]', "a list of texts"),
        ("train reranker", 'batch_size = "8"', "a whole number"),
        ("train classifier", 'fine_tune = "yes"', "true or false"),
        ("train classifier", "label = 2026", "a text"),
        ("train tagger", "epochs = [1, 2]", "a number"),
        ("train reader", 'unanswerable = "high"', "a number"),
        ("train inverter", "layer = 1.0", "a whole number"),
        ("train inverter", 'texts = "docs"\nkind = 1', "a text"),
        ("pretrain", "pack = 1", "true or false"),
        ("pretrain", "texts = []", "a list of texts"),
    ],
)
def test_a_value_of_a_recipe_is_never_converted_to_another(words, setting, kind, tmp_path, run):
    (tmp_path / "recipe.toml").write_text(f"{setting}\n", "utf-8")
    code, out, err = run(*words.split(), "x.jsonl", "--out", tmp_path / "out", "--recipe", tmp_path / "recipe.toml")
    assert (code, out, err.count("\n")) == (2, "", 1)
    name, _, value = setting.splitlines()[-1].partition(" = ")
    assert f"recipe.toml has {name} = {value}: expected {kind}" in err


@pytest.mark.parametrize("words", ["train classifier", "train tagger", "train reader", "train inverter", "pretrain"])
def test_an_option_that_a_trainer_lacks_is_refused_in_its_recipe(words, home, run):
    code, out, err = run(*words.split(), "--recipe", "wrong.toml", "--out", "out")
    unknown = "stepz" if "inverter" not in words and words != "pretrain" else "data"  # which those call texts
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"wrong.toml has '{unknown}': expected some of" in err


def test_mistakes_are_reported_before_training_libraries_are_imported(home, tiny_model):
    wrong = [dict(row) for row in PAIRS]
    wrong[20]["positive"] = 7
    (home / "wrong.jsonl").write_text("".join(json.dumps(row) + "\n" for row in wrong), "utf-8")
    cases = {
        "train encoder none.jsonl --out out --base TINY": "there is no file or folder none.jsonl",
        "train encoder wrong.jsonl --out out --base TINY": "wrong.jsonl:21: expected a text in 'positive'",
        "train encoder pairs.jsonl --out scifact --base TINY": "scifact is not empty",
        "train encoder pairs.jsonl --out out --base TINY --objective nonsense": "there is no objective 'nonsense'",
        "train encoder pairs.jsonl --out out --base TINY --pooling nonsense": "there is no pooling 'nonsense'",
        "train encoder pairs.jsonl --out out --base TINY --mine 1 --objective nonsense": "there is no objective",
        "train reranker wrong.jsonl --out out --base TINY": "wrong.jsonl:21: expected a text in 'positive'",
        "train reranker pairs.jsonl --out out --base TINY --objective nonsense": "there is no objective 'nonsense'",
        "train inverter none.txt --out out --encoder TINY": "there is no file or folder none.txt",
        "train inverter pairs.jsonl --out out --encoder TINY": "expected a column 'text'",
        "train inverter docs --out scifact --encoder TINY": "scifact is not empty: give another folder for the inverter",
        "pretrain docs /none.txt --out out --base TINY": "there is no file or folder /none.txt",
        "pretrain docs --out scifact --base TINY": "scifact is not empty",
        "pretrain docs --out out --base none/such": "none/such is not on this machine",
        "distill TINY none.jsonl --out out": "there is no file or folder none.jsonl",
        "distill TINY pairs.jsonl --out scifact": "scifact is not empty: give another folder for the student",
        "distill TINY pairs.jsonl --out out --epochs 0": "epochs is a number above 0",
        "tune docs --pairs 0": "pairs is a whole number from 1",
    }
    code = (
        "import sys\nfrom binocle.cli import main\n"
        "for words in sys.stdin.read().splitlines():\n"
        "    sys.argv = ['binocle', *words.split()]\n"
        "    try:\n        main()\n    except SystemExit as end:\n        assert end.code == 2, (words, end.code)\n"
        "print(*{'torch', 'transformers', 'sentence_transformers'} & set(sys.modules))"
    )
    lines = "\n".join(cases).replace("TINY", tiny_model)
    done = subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=False)
    for said, message in zip(done.stderr.splitlines(), cases.values(), strict=True):
        assert message in said
    assert (done.returncode, done.stdout) == (0, "\n")
    assert not (home / "out").exists()


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (("train", "encoder", "pairs.jsonl"), encoder.EncoderConfig),
        (("train", "reranker", "pairs.jsonl"), reranker.RerankerConfig),
        (("train", "inverter", "docs"), inverter.InverterConfig),
        (("pretrain", "docs"), pretraining.PretrainingConfig),
        (("mine", "pairs.jsonl"), MiningConfig),
    ],
)
def test_defaults_of_options_are_those_of_the_library(words, settings, tmp_path):
    *names, _ = words
    command = cli
    for name in names:
        command = command.commands[name]
    parameters = command.make_context(names[-1], [words[-1], "--out", str(tmp_path / "out.jsonl")]).params
    parameters["texts"] = parameters.get("text_limit")  # the option of an inverter for the field `texts`
    usual = {field.name: field.default for field in fields(settings) if field.name in parameters}
    assert len(usual) > 8
    assert {name: parameters[name] for name in usual} == usual


@pytest.mark.parametrize("fault", ["weights cut short", "no tokenizer"])
@pytest.mark.parametrize("kind", ["encoder", "reranker", "tagger"])
def test_a_damaged_base_is_named_before_a_training(kind, fault, tmp_path, tiny_model, run):
    base = shutil.copytree(tiny_model, tmp_path / "base")
    if fault == "no tokenizer":
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
            (base / name).unlink(missing_ok=True)
        says = "are files missing? copy the model folder again"
    else:
        (base / "model.safetensors").write_bytes((base / "model.safetensors").read_bytes()[:1_000])
        says = f"{base} does not load as "
    triplet = {"query": "the cat", "positive": "a cat", "negative": "a dog"}
    row = {"tokens": ["cat", "ran"], "tags": ["B-IT", "O"]} if kind == "tagger" else triplet
    data = tmp_path / "rows.jsonl"
    data.write_text(20 * (json.dumps(row) + "\n"), "utf-8")
    shown = run("train", kind, data, "--base", base, "--out", tmp_path / "out", "--steps", 1)
    assert shown.code == 2
    assert says in shown.err.splitlines()[-1], shown.err
    assert not (tmp_path / "out").exists()
