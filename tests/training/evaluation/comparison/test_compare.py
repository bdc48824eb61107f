from __future__ import annotations

import json
import math
import random
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from binocle.core.errors import InputError, ModelNotFoundError
from binocle.training.evaluation.comparison import contender_runs
from binocle.training.evaluation.comparison.compare import compare
from binocle.training.evaluation.comparison.contenders import parse
from binocle.training.evaluation.comparison.table import Cell, Comparison, MeasureColumn, format_p
from binocle.training.evaluation.significance import Difference, align, difference

# The names of contenders


def names(*written, modes=("semantic",)):
    return [contender.name for contender in parse(written, modes)]


def test_a_contender_is_a_model_a_mode_and_a_reranker():
    first, second, third, fourth = parse(["a/b", "a/b@hybrid", "x@lexical+org/judge", "lexical+judge"])
    assert (first.model, first.mode, first.reranker) == ("a/b", "semantic", None)
    assert (second.model, second.mode, second.reranker) == ("a/b", "hybrid", None)
    assert (third.model, third.mode, third.reranker) == ("x", "lexical", "org/judge")
    assert (fourth.model, fourth.mode, fourth.reranker) == (None, "lexical", "judge")


def test_an_encoder_in_int8_is_a_model():
    first, second = parse(["a/b@int8", "a/b@int8@hybrid+judge"])
    assert (first.model, first.mode, first.reranker) == ("a/b@int8", "semantic", None)
    assert (second.model, second.mode, second.reranker) == ("a/b@int8", "hybrid", "judge")


def test_an_encoder_is_compared_with_itself_in_int8(collection, tiny_model, tmp_path):
    comparison = compare([tiny_model, f"{tiny_model}@int8"], [collection], indexes=tmp_path / "indexes")
    assert len(list((tmp_path / "indexes").iterdir())) == 2
    assert comparison.contenders == ("tiny", "tiny@int8")


def test_another_pooling_is_part_of_the_model():
    first, second, third, fourth = parse(["a/b@cls", "a/b@mean@hybrid+judge", "a/b", "a/b@max@int8"])
    assert (first.model, first.pooling, first.mode) == ("a/b@cls", "cls", "semantic")
    assert (second.model, second.pooling, second.mode, second.reranker) == ("a/b@mean", "mean", "hybrid", "judge")
    assert (third.pooling, fourth.pooling, fourth.model) == (None, "max", "a/b@max@int8")
    assert names("org/b", "org/b@cls", "org/b@cls@hybrid") == ["b@semantic", "b@cls@semantic", "b@cls@hybrid"]


@pytest.mark.thorough
def test_poolings_of_an_encoder_are_compared_as_those_of_saved_folders(collection, make_model, rows, tmp_path):
    flags = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    saved = make_model(tmp_path / "saved", seed=0, pooling=flags)
    base = make_model(tmp_path / "base", seed=0)
    before = {file: file.read_bytes() for file in base.rglob("*") if file.is_file()}
    indexes = tmp_path / "indexes"
    data = [collection, rows / "sts.tsv"]
    comparison = compare(
        [str(base), f"{base}@cls", f"{base}@mean", f"{base}@cls@int8", str(saved)], data, indexes=indexes
    )
    assert comparison.contenders == ("base", "base@cls", "base@mean", "base@cls@int8", "saved")
    assert len(list(indexes.iterdir())) == 5  # the settings of a pooling have a form of their own
    for column in comparison.columns:
        own, cls, mean, int8, saved_cls = (comparison.cells[name, column].value for name in comparison.contenders)
        assert (cls, mean) == pytest.approx((saved_cls, own))
        assert abs(own - cls) > 1e-6
        assert int8 == pytest.approx(cls, abs=0.2)
    results = comparison.as_dict()["evaluations"]
    assert {result["model"] for result in results if result["contender"] == "base@cls"} == {f"{base}@cls"}
    assert {file: file.read_bytes() for file in base.rglob("*") if file.is_file()} == before


def test_a_transformer_without_modules_is_compared_in_each_pooling(masked_models, rows):
    bert = masked_models["bert"]
    comparison = compare([str(bert), f"{bert}@mean", f"{bert}@cls"], [rows / "sts.tsv"])
    own, mean, cls = (comparison.cells[name, comparison.columns[0]].value for name in comparison.contenders)
    assert mean == pytest.approx(own)
    assert abs(cls - mean) > 1e-6


def test_a_model_without_pooling_has_no_other(make_reranker, make_model, tmp_path, rows):
    judge, plain = make_reranker(tmp_path / "judge"), make_model(tmp_path / "plain")
    with pytest.raises(InputError, match="judge has no pooling to change: expected a transformer that encodes texts"):
        compare([str(plain), f"{judge}@cls"], [rows / "sts.tsv"])
    with pytest.raises(ModelNotFoundError):
        compare([str(plain), f"{tmp_path / 'none'}@cls"], [rows / "sts.tsv"])


def test_a_folder_with_signs_in_its_name_is_a_model(tmp_path, monkeypatch):
    (tmp_path / "a+b@2").mkdir()
    monkeypatch.chdir(tmp_path)
    first, second = parse(["a+b@2", "a+b@2@hybrid"])
    assert (first.model, second.model, second.mode) == ("a+b@2", "a+b@2", "hybrid")


def test_each_model_stands_once_for_each_mode():
    assert names("a", "b@semantic", "lexical", modes=("semantic", "hybrid")) == [
        "a@semantic",
        "a@hybrid",
        "b@semantic",
        "lexical",
    ]


def test_names_are_short_unless_that_would_make_them_the_same():
    assert names("org/model-a", "./runs/b/", "lexical") == ["model-a", "b", "lexical"]
    assert names("x/model", "y/model", "z/other") == ["x/model@semantic", "y/model@semantic", "other"]
    assert names("a@hybrid+org/judge", "a@hybrid") == ["a+judge", "a"]


@pytest.mark.parametrize(
    ("written", "naming"),
    [
        (["a"], "at least two contenders, not 1"),
        ([], "not 0"),
        (["a", "b", "a@semantic"], "a@semantic is there twice"),
        (["a", ""], "'' is no contender"),
        (["a", "b@dense"], "'dense' is no mode and no pooling: expected one of hybrid, semantic, lexical, cls, max, "),
        (["a", "b@"], "'b@' is no contender"),
        (["a", "@hybrid"], "'@hybrid' is no contender"),
        (["a", "b+"], "'b+' is no contender"),
    ],
)
def test_what_is_no_contender_is_told(written, naming):
    with pytest.raises(InputError, match=re.escape(naming)):
        parse(written)


# Data


DOCUMENTS = {f"d{number}": text for number, text in enumerate([
    "The cat sat on the mat.", "Income tax is due every year.", "Bake the bread in a hot oven.",
    "The ship sails the sea.", "The moon is out at night.", "A queue of work for the worker.",
    "The queen of the city.", "A river and a mountain.", "Salt the cheese, then wait.", "Search an index of vectors.",
])}  # fmt: skip
QUERIES = {"q1": "cat mat", "q2": "tax of a year", "q3": "bread oven", "q4": "ship at sea", "q5": "moon night",
           "q6": "queue worker", "q7": "queen", "q8": "river mountain", "q9": "cheese"}  # fmt: skip


@pytest.fixture(scope="session")
def collection(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "tiny"
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", DOCUMENTS), ("queries", QUERIES)):
        lines = (json.dumps({"_id": key, "title": "", "text": text}) + "\n" for key, text in rows.items())
        (folder / f"{name}.jsonl").write_text("".join(lines))
    rows = [f"q{number}\td{number - 1}\t1\n" for number in range(1, 10)]
    (folder / "qrels" / "test.tsv").write_text("".join(rows))
    return folder


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    """Files of judged rows: sts.tsv, same.jsonl and ranked.jsonl."""
    folder, draw = tmp_path_factory.mktemp("rows"), random.Random(0)
    texts = list(DOCUMENTS.values())
    pairs = [(draw.choice(texts), draw.choice(texts)) for _ in range(24)]
    lines = [f"{left}\t{right}\t{draw.randint(0, 5)}" for left, right in pairs]
    (folder / "sts.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *lines]) + "\n")
    labelled = [{"text1": left, "text2": right, "label": int(left == right)} for left, right in pairs]
    labelled += [{"text1": text, "text2": text, "label": 1} for text in texts[:4]]
    (folder / "same.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labelled))
    ranked = [{"query": query, "positive": [text], "negative": [other for other in texts if other != text][:4]}
              for query, text in zip(QUERIES.values(), texts, strict=False)]  # fmt: skip
    (folder / "ranked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ranked))
    return folder


@pytest.fixture(scope="session")
def models(tmp_path_factory, make_model):
    """Two encoders, `a` and `b`, and a cross-encoder, `judge`."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate("ab"):
        make_model(folder / name, seed=seed)
    judge = shutil.copytree(folder / "a", folder / "judge")
    for name in ("modules.json", "1_Pooling", "2_Normalize"):
        shutil.rmtree(judge / name) if (judge / name).is_dir() else (judge / name).unlink()
    weights = load_file(judge / "model.safetensors")
    random = np.random.default_rng(0)
    weights |= {"classifier.weight": random.standard_normal((1, 32)), "classifier.bias": np.zeros(1)}
    named = {name if "classifier" in name else f"bert.{name}": np.float32(value) for name, value in weights.items()}
    save_file(named, judge / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((judge / "config.json").read_text())
    config |= {"architectures": ["BertForSequenceClassification"], "num_labels": 1, "id2label": {"0": "LABEL_0"}}
    (judge / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def indexes(tmp_path_factory):
    """A place for indexes, so that the tests share them."""
    return tmp_path_factory.mktemp("indexes")


# Comparing


def test_modes_share_one_index_and_words_alone_take_it_too(collection, models, indexes, monkeypatch):
    events, encoded = [], []
    from binocle.retriever.models.bert.bert_encoder import BertEncoder

    encode = BertEncoder.encode

    def counting(self, texts, *, kind="document"):
        encoded.extend(texts if kind == "document" else [])
        return encode(self, texts, kind=kind)

    monkeypatch.setattr(BertEncoder, "encode", counting)
    written = [f"{models / 'a'}@{mode}" for mode in ("semantic", "lexical", "hybrid")]
    comparison = compare([*written, "lexical"], [collection], indexes=indexes, progress=events.append)
    assert len(encoded) == len(DOCUMENTS)
    assert len(list(indexes.iterdir())) == 1
    stages = [event.stage for event in events if ":" not in event.stage]
    assert stages == [f"{name} on tiny" for name in comparison.contenders]
    assert comparison.contenders == ("a@semantic", "a@lexical", "a@hybrid", "lexical")
    lexical = [comparison.evaluations[name, "tiny"].per_query for name in ("a@lexical", "lexical")]
    assert lexical[0] == lexical[1]


def test_values_differences_and_corrected_p_are_those_of_the_parts(collection, models, indexes):
    comparison = compare([str(models / "a"), str(models / "b"), "lexical"], [collection], indexes=indexes)
    column = MeasureColumn("tiny", "nDCG@10")
    assert comparison.columns == (column,)
    assert comparison.baseline == "a"
    assert comparison.mode is None
    of = {name: comparison.evaluations[name, "tiny"] for name in comparison.contenders}
    gaps = {
        name: difference(*align(of[name].per_query["nDCG@10"], of["a"].per_query["nDCG@10"]))
        for name in ("b", "lexical")
    }
    surest, least_sure = sorted(gaps, key=lambda name: gaps[name].p)
    cells = {name: comparison.cells[name, column] for name in comparison.contenders}
    assert cells["a"].verdict == "baseline" and cells["a"].difference is None
    assert {name: cells[name].difference for name in gaps} == gaps
    assert cells[surest].p == min(1, 2 * gaps[surest].p)
    assert cells[least_sure].p == max(cells[surest].p, gaps[least_sure].p)
    assert cells["lexical"].value == of["lexical"].measures["nDCG@10"] == 1
    assert (cells["b"].low, cells["b"].high) == of["b"].intervals["nDCG@10"]
    assert cells["lexical"].verdict == "better"  # random encoders find next to nothing
    assert "lexical: better than a on tiny nDCG@10" in "\n".join(comparison.statements())


def test_files_of_judged_rows_are_compared_by_the_measure_of_their_kind(rows, models):
    data = [rows / name for name in ("sts.tsv", "same.jsonl", "ranked.jsonl")]
    comparison = compare([str(models / "a"), str(models / "b")], data, measures=["MAP", "Pearson", "spearman"])
    assert list(map(str, comparison.columns)) == ["sts Pearson", "sts Spearman", "same AP", "ranked MAP"]
    assert comparison.evaluations["a", "same"].measures["AP"] == 1  # equal texts have equal vectors
    assert comparison.cells["b", MeasureColumn("same", "AP")].difference == Difference(0, 0, 0, 1)
    assert comparison.mode is None  # no collection was searched
    theirs = compare([str(models / "a"), str(models / "b")], data[:1], measures=["Pearson"])
    column = MeasureColumn("sts", "Pearson")
    assert theirs.cells["b", column] == comparison.cells["b", column]


def test_words_alone_have_no_similarity_and_an_encoder_is_itself_in_every_mode(rows, models):
    written = [f"{models / 'a'}@semantic", f"{models / 'a'}@hybrid", "lexical", f"{models / 'b'}@semantic"]
    comparison = compare(written, [rows / "sts.tsv"])
    column = MeasureColumn("sts", "Spearman")
    assert comparison.cells["lexical", column] is None
    same = comparison.cells["a@hybrid", column]
    assert (same.difference, same.p, same.verdict) == (None, None, "same")
    cell = comparison.cells["b@semantic", column]
    assert cell.p == cell.difference.p  # the only one tested
    assert "–" in comparison.text()


def test_a_reranker_reads_what_the_first_stage_finds(collection, rows, models, indexes):
    judge = models / "judge"
    written = [f"{models / 'a'}@hybrid", f"{models / 'a'}@hybrid+{judge}", f"lexical+{judge}"]
    comparison = compare(written, [collection, rows / "ranked.jsonl"], indexes=indexes)
    assert comparison.contenders == ("a", "a+judge", "lexical+judge")
    assert comparison.evaluations["a+judge", "tiny"].reranker == str(judge)
    assert comparison.evaluations["a+judge", "ranked"].model == str(judge)


def test_a_cross_encoder_scores_rows_but_finds_nothing(collection, rows, models):
    comparison = compare([str(models / "a"), str(models / "judge")], [rows / "sts.tsv", rows / "ranked.jsonl"])
    assert comparison.evaluations["judge", "sts"].model == str(models / "judge")
    with pytest.raises(InputError, match="can only rerank"):
        compare([str(models / "a"), str(models / "judge")], [collection])


def test_the_baseline_may_be_any_of_them(rows, models):
    a, b = str(models / "a"), str(models / "b")
    first = compare([a, b], [rows / "sts.tsv"])
    second = compare([a, b], [rows / "sts.tsv"], baseline="b")
    assert second.baseline == "b"
    column = MeasureColumn("sts", "Spearman")
    gap, turned = first.cells["b", column].difference, second.cells["a", column].difference
    assert (turned.value, turned.p) == (pytest.approx(-gap.value), pytest.approx(gap.p))
    assert compare([a, b], [rows / "sts.tsv"], baseline=b).baseline == "b"


@pytest.mark.thorough
def test_all_that_was_found_is_written(collection, rows, models, indexes, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "out"
    written, data = [f"{models / 'a'}@semantic", "lexical"], [collection, rows / "same.jsonl", rows / "ranked.jsonl"]
    comparison = compare(written, data, indexes=indexes, out=out, per_query=True)
    assert {path.name for path in out.iterdir()} == {
        "comparison.json", "comparison.txt", "comparison.svg", "tiny.a.run", "tiny.lexical.run", "ranked.a.run",
        "scores.same.a.svg", "scores.ranked.a.svg",
    }  # fmt: skip
    assert (out / "comparison.txt").read_text() == comparison.text()
    data = json.loads((out / "comparison.json").read_text())
    assert data["evaluations"][0]["per_query"]["MAP"] == comparison.evaluations["a", "tiny"].per_query["MAP"]
    lexical = next(row for row in data["results"] if row["contender"] == "lexical")
    assert lexical["p_corrected"] == lexical["p"] == comparison.cells["lexical", comparison.columns[0]].p
    assert lexical["verdict"] == "better"
    assert all(len(line.split()) == 6 for line in (out / "tiny.lexical.run").read_text().splitlines())


def test_files_of_names_with_the_same_slug_are_told_apart(collection, models, indexes, tmp_path):
    names = ["a b", "a-b", "A?b"]
    for name in names:
        shutil.copytree(models / "a", tmp_path / name)
    out = tmp_path / "out"
    compare([str(tmp_path / name) for name in names], [collection], indexes=indexes, out=out, picture=None)
    assert sorted(file.name for file in out.glob("*.run")) == ["tiny.A-b-3.run", "tiny.a-b-2.run", "tiny.a-b.run"]


def test_plots_of_an_earlier_comparison_do_not_stay(rows, models, tmp_path):
    for name in ("comparison.svg", "comparison.png", "scores.same.old.svg", "scores.txt", "mine.svg"):
        (tmp_path / name).touch()
    compare([str(models / "a"), str(models / "b")], [rows / "sts.tsv"], out=tmp_path, picture=None)
    assert {file.name for file in tmp_path.iterdir()} == {
        "comparison.json", "comparison.txt", "scores.txt", "mine.svg",
    }  # fmt: skip


def test_json_has_no_values_of_each_query_unless_asked(collection, models, indexes):
    comparison = compare([str(models / "a"), "lexical"], [collection], indexes=indexes)
    assert "per_query" not in json.dumps(comparison.as_dict())
    assert "per_query" in json.dumps(comparison.as_dict(per_query=True))


def test_nothing_is_left_behind(collection, models, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    compare([str(models / "a"), "lexical"], [collection])
    assert list(tmp_path.iterdir()) == []


def test_data_of_the_same_name_are_told_apart(rows, models, tmp_path):
    shutil.copy(rows / "sts.tsv", tmp_path / "sts.tsv")
    comparison = compare([str(models / "a"), str(models / "b")], [rows / "sts.tsv", tmp_path / "sts.tsv"])
    assert [column.data for column in comparison.columns] == [str(rows / "sts.tsv"), str(tmp_path / "sts.tsv")]


# Errors before anything is measured


@pytest.mark.parametrize(
    ("change", "error", "naming"),
    [
        ({"data": []}, InputError, "needs data"),
        ({"data": ["nowhere.tsv"]}, InputError, "nowhere.tsv"),
        ({"data": ["nowhere"]}, InputError, "nowhere"),
        ({"data": ["sts.tsv", "sts.tsv"]}, InputError, "given twice"),
        ({"data": ["sts.tsv", "."]}, InputError, "corpus.jsonl is missing"),
        ({"measures": ["BLEU"]}, InputError, "no measure 'BLEU'"),
        ({"measures": ["map"]}, InputError, "MAP is no measure of any of these data, which have Spearman, Pearson"),
        ({"baseline": "c"}, InputError, "'c' is not one of the contenders: expected one of a, b"),
        ({"modes": ["dense"]}, InputError, "no mode 'dense'"),
        ({"contenders": ["no-such-model", "lexical"]}, ModelNotFoundError, "no-such-model"),
        ({"contenders": ["lexical", "lexical+no-such-judge"]}, ModelNotFoundError, "no-such-judge"),
        ({"rerank_depth": 0}, InputError, "rerank_depth"),
        ({"out": "sts.tsv"}, InputError, "is a file"),
    ],
)
def test_what_cannot_be_compared_is_told_first(change, error, naming, rows, models, monkeypatch):
    monkeypatch.chdir(rows)
    monkeypatch.setattr(contender_runs, "evaluate_rows", lambda *_: pytest.fail("something was measured"))
    arguments = {"contenders": [str(models / "a"), str(models / "b")], "data": ["sts.tsv"], **change}
    with pytest.raises(error) as caught:
        compare(arguments.pop("contenders"), arguments.pop("data"), **arguments)
    assert naming in str(caught.value)
    assert "\n" not in str(caught.value)


# The report in words


def comparison(**gaps):
    """A comparison of `base` with others: for each column a difference and its p."""
    columns = (MeasureColumn("one", "nDCG@10"), MeasureColumn("two", "Spearman"))
    cells = {("base", column): Cell(0.5, 0.4, 0.6, "baseline") for column in columns}
    for name, values in gaps.items():
        for column, (value, p) in zip(columns, values, strict=True):
            verdict = "same" if p >= 0.05 else "better" if value > 0 else "worse"
            gap = Difference(value, value - 0.1, value + 0.1, p)
            cells[name, column] = Cell(0.5 + value, 0.4, 0.6, verdict, gap, p)
    return Comparison(("base", *gaps), "base", columns, cells, {}, "semantic")


def test_each_contender_has_its_sentence():
    compared = comparison(
        good=((0.1, 0.0001), (0.02, 0.04)), mixed=((0.1, 0.01), (-0.1, 0.001)), none=((0.1, 0.2), (0.0, 1))
    )
    assert compared.statements() == [
        "good: better than base on one nDCG@10 (+0.1000, p < 0.001) and two Spearman (+0.0200, p 0.040).",
        "mixed: better than base on one nDCG@10 (+0.1000, p 0.010); worse than base on two Spearman (-0.1000, p 0.001).",
        "none: no real difference from base on anything measured here.",
    ]


def test_of_what_cannot_be_measured_of_both_no_difference_is_denied(rows, models):
    for written in (["lexical", str(models / "a")], [str(models / "a"), "lexical"]):
        comparison = compare(written, [rows / "sts.tsv"])
        baseline, contender = comparison.contenders
        assert comparison.statements() == [f"{contender}: nothing here can be measured of both it and {baseline}."]
        assert "no real difference" not in comparison.text()


def test_the_table_is_aligned_and_a_row_without_a_real_difference_says_so():
    compared = comparison(better=((0.1, 0.0001), (0.02, 0.3)), other=((-0.1, 0.2), (0.0, 1)))
    assert compared.text() == (
        "3 contenders, semantic; differences are to base\n"
        "\n"
        "                     one                        two\n"
        "                     nDCG@10                    Spearman\n"
        "\n"
        "base                 0.5000 [0.400, 0.600]      0.5000 [0.400, 0.600]\n"
        "                     baseline                   baseline\n"
        "better               0.6000 [0.400, 0.600]      0.5200 [0.400, 0.600]\n"
        "                     +0.1000 p < 0.001 better   +0.0200 p 0.300\n"
        "other                0.4000 [0.400, 0.600]      0.5000 [0.400, 0.600]\n"
        "no real difference   -0.1000 p 0.200            +0.0000 p 1.000\n"
        "\n"
        "better: better than base on one nDCG@10 (+0.1000, p < 0.001); no real difference on two Spearman (+0.0200, p 0.300).\n"
        "other: no real difference from base on anything measured here.\n"
        "In brackets the 95 % interval (bootstrap); p by Fisher's randomisation test, corrected for several contenders (Holm).\n"
    )


def test_many_columns_are_several_tables_of_one_width():
    compared = comparison(other=((0.1, 0.2), (0.1, 0.2)))
    columns = tuple(MeasureColumn(f"data-{number}", "MAP") for number in range(9))
    cells = {(name, column): Cell(0.5, 0.4, 0.6, "same") for name in compared.contenders for column in columns}
    wide = Comparison(compared.contenders, "base", columns, cells, {})
    assert [len(block) for block in wide.blocks(100)] == [3, 3, 3]
    assert max(map(len, wide._table(wide.blocks(100)[0]).splitlines())) <= 100
    assert [len(block) for block in wide.blocks(10)] == [1] * 9


def test_a_value_that_is_not_defined_is_null_in_json_and_not_drawn():
    column = MeasureColumn("sts", "Spearman")
    cells = {("a", column): Cell(0.5, 0.4, 0.6, "baseline"), ("b", column): Cell(math.nan, math.nan, math.nan, "same")}
    compared = Comparison(("a", "b"), "a", (column,), cells, {})
    assert json.loads(json.dumps(compared.as_dict(), allow_nan=False))["results"][1]["value"] is None
    assert [bar.label for bar in compared.bars()] == ["a"]


@pytest.mark.parametrize(("p", "text"), [(1e-4, "< 0.001"), (0.001, "0.001"), (0.0496, "0.050"), (1, "1.000")])
def test_p_is_shown_with_three_digits_and_never_as_zero(p, text):
    assert format_p(p) == text
