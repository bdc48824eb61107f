"""Labels by an encoder alone: what fits is right, and a promise that examples calibrate is kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from binocle import InputError, Retriever
from binocle.retriever.labels import document_labels, precision, zero_shot
from binocle.retriever.labels.document_labels import DocumentLabel, label_documents, read_examples
from binocle.retriever.labels.precision import chance, choose, corrected, log_odds
from binocle.retriever.labels.zero_shot import fit_labels

RESULTS = Path(__file__).parents[3] / "benchmarks/results/labels.json"


def units(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def clusters():
    """Documents around three centres, names a little way off each centre, and the true name of each document."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((3, 48))
    truth = random.integers(0, 3, 90)
    documents = units(centres[truth] + 0.7 * random.standard_normal((90, 48)))
    subjects = units(random.standard_normal((100, 48)))
    return documents, units(centres + 0.9 * random.standard_normal((3, 48))), truth, subjects


def test_documents_get_the_label_of_their_cluster(clusters):
    documents, names, truth, subjects = clusters
    fit = fit_labels(documents, names, subjects)
    assert (fit.labels == truth).mean() > 0.97
    assert (fit.labels == truth).mean() >= ((documents @ names.T).argmax(1) == truth).mean()
    assert fit.evidence.shape == (90, 8)


def test_the_order_of_documents_and_the_scale_of_cosines_do_not_matter(clusters):
    documents, names, _, subjects = clusters
    fit, order = fit_labels(documents, names, subjects), np.random.default_rng(1).permutation(90)
    again = fit_labels(documents[order], names, subjects)
    np.testing.assert_array_equal(again.labels, fit.labels[order])
    np.testing.assert_allclose(again.evidence, fit.evidence[order], atol=1e-3)
    common = np.full((90, 1), 3, np.float32)  # raises and narrows every cosine, as other encoders do
    raised = fit_labels(
        units(np.hstack([documents, common])),
        units(np.hstack([names, common[:3]])),
        units(np.hstack([subjects, np.full((100, 1), 3, np.float32)])),
    )
    np.testing.assert_array_equal(raised.labels, fit.labels)
    np.testing.assert_allclose(raised.evidence, fit.evidence, atol=0.2)


def test_a_name_that_is_near_to_every_document_does_not_take_them_all():
    kinds = np.array([(0.5, 0.55), (0.3, 0.75)])  # cosines with two names: the second is the nearer one of both kinds
    vectors = np.hstack([kinds, np.sqrt(1 - (kinds**2).sum(1, keepdims=True))])
    truth = np.arange(40) % 2
    documents, names = vectors[truth].astype(np.float32), np.eye(2, 3, dtype=np.float32)
    assert (documents @ names.T).argmax(1).tolist() == [1] * 40
    assert fit_labels(documents, names, names).labels.tolist() == truth.tolist()


def test_a_label_is_sure_only_if_it_fits_better_than_other_subjects(clusters):
    documents, names, _, subjects = clusters
    fit = fit_labels(documents, names, subjects)
    assert choose(log_odds(fit.evidence), 0.9).mean() > 0.95
    rivals = fit_labels(documents, names, np.concatenate([subjects[:50], np.repeat(names, 17, axis=0)]))
    np.testing.assert_array_equal(rivals.labels, fit.labels)
    assert not choose(log_odds(rivals.evidence), 0.9).any()


def test_neighbours_are_those_of_brute_force(clusters, monkeypatch):
    documents, _, _, _ = clusters
    cosines = documents @ documents.T
    np.fill_diagonal(cosines, -2)
    expected = np.sort(np.argsort(-cosines, axis=1)[:, :9])  # the root of 90
    monkeypatch.setattr(zero_shot, "_BLOCK", 7)
    np.testing.assert_array_equal(np.sort(zero_shot._neighbours(documents)), expected)
    monkeypatch.setattr(zero_shot, "_REFERENCE", 20)
    assert len(np.unique(zero_shot._neighbours(documents))) <= 20
    assert zero_shot._neighbours(documents[:1]).shape == (1, 0)
    assert zero_shot._neighbours(documents[:2]).tolist() == [[1], [0]]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_documents_are_labelled_too(count, clusters):
    documents, names, _, subjects = clusters
    fit = fit_labels(documents[:count], names, subjects)
    assert np.isfinite(fit.evidence).all()
    assert np.isfinite(log_odds(fit.evidence)).all()


def test_a_label_of_few_documents_in_a_small_folder_is_sure():
    random = np.random.default_rng(0)
    centres = random.standard_normal((3, 200))
    documents = units(np.repeat(centres, 4, axis=0) + 0.3 * random.standard_normal((12, 200)))
    fit = fit_labels(documents, units(centres), units(random.standard_normal((100, 200))))
    assert fit.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert choose(log_odds(fit.evidence), 0.9).all()  # three of ten neighbours would not be enough


def test_a_promise_with_examples_is_kept_although_the_estimate_is_wrong():
    precisions = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        odds = np.clip(2.5 * random.standard_normal(3_000) + 1, -6, 6)
        right = random.random(3_000) < chance(0.6 * odds - 0.9)  # the estimate promises too much
        mask = choose(corrected(odds, odds[:200], right[:200])[200:], 0.9)
        if mask.any():
            precisions.append(right[200:][mask].mean())
        assert right[choose(odds, 0.9)].mean() < 0.8
    assert 0.88 <= np.mean(precisions) <= 0.92
    assert len(precisions) > 50


def test_as_many_labels_are_kept_as_the_precision_allows():
    odds = np.log(np.array([0.95, 0.7, 0.9, 0.2]) / np.array([0.05, 0.3, 0.1, 0.8]))
    assert choose(odds, 0.85).tolist() == [True, True, True, False]
    assert choose(odds, 0.92).tolist() == [True, False, True, False]
    assert choose(odds, 0.96).tolist() == [False] * 4


def test_a_label_that_is_likelier_wrong_is_not_kept_beside_sure_ones():
    odds = np.log(np.array([0.99, 0.99, 0.99, 0.55, 0.1]) / np.array([0.01, 0.01, 0.01, 0.45, 0.9]))
    assert choose(odds, 0.5).tolist() == [True, True, True, True, False]
    assert choose(odds, 0.05).tolist() == [True] * 5


def test_a_correction_needs_its_minimum_of_examples():
    odds = np.zeros(precision.MIN_EXAMPLES)
    assert corrected(odds, odds, odds == 0).shape == odds.shape
    with pytest.raises(InputError, match=f"expected at least {precision.MIN_EXAMPLES}, drawn at random"):
        corrected(odds, odds[1:], odds[1:] == 0)


def test_a_correction_stays_finite_when_all_examples_are_right_or_wrong():
    odds = np.linspace(-6, 6, 80)
    for right in (np.ones(80, bool), np.zeros(80, bool), odds < 0):
        assert np.isfinite(corrected(odds, odds, right)).all()
    assert chance(corrected(odds, odds, np.zeros(80, bool))).max() < 0.5
    with pytest.raises(InputError, match="49 examples came: expected at least 50"):
        corrected(odds, odds[:49], odds[:49] > 0)


def test_the_coefficients_are_those_of_the_benchmark_and_its_promises_hold():
    results = json.loads(RESULTS.read_text("utf-8"))["results"]
    assert list(precision._COEFFICIENTS) == results["coefficients"]
    assert max(results["kept where no name fits"].values()) < 0.01
    promises = {name: value["mean precision"] for name, value in results["measured"].items()}
    assert all(0.88 <= promises[f"debian, {count} examples"] <= 0.92 for count in (50, 100, 200))
    assert all(0.88 <= promises[f"squad, {count} examples"] <= 0.94 for count in (50, 100, 200))


def test_the_page_quotes_the_benchmark():
    measured = json.loads(RESULTS.read_text("utf-8"))["results"]["measured"]
    page = (RESULTS.parents[2] / "docs/how-to/label.md").read_text("utf-8")
    for value in measured.values():
        low, high = value["8 of 10 label sets"]
        assert f"{value['mean precision']:.3f}, {low:.3f} to {high:.3f}".replace("0.", ".") in page


@pytest.fixture
def labelled(tmp_path, tiny_model):
    from binocle import Retriever

    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    words = ["cat", "tax"]
    retriever.add({"id": f"{n}.md", "text": f"{words[n % 2]} " * (1 + n % 7) + f"{n}"} for n in range(60))
    return retriever


def test_a_command_prints_files_as_paths_from_the_current_folder(run, tmp_path, tiny_model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/cat.md").write_text("The cat sat.\n")
    Retriever.open("notes", model=tiny_model).add([{"id": "added", "text": "The tax"}])
    run("index", "notes")
    labels = [DocumentLabel("cat.md", "cat", 0.9, sure=True), DocumentLabel("added", "tax", 0.8, sure=True)]
    monkeypatch.setattr(document_labels, "label_documents", lambda *_, **__: labels)
    assert run("label", "notes", "--as", "cat, tax").out == "0.90  cat  notes/cat.md\n0.80  tax  added\n"
    rows = run("label", "notes", "--as", "cat, tax", "--json").rows
    assert [row["document"] for row in rows] == ["cat.md", "added"]


def test_a_command_samples_calibrates_and_labels(labelled, run, tmp_path):
    index = ["--index", labelled.path]
    sample = run("label", *index, "--as", "cat, tax", "--sample", 55)
    lines = sample.out.splitlines()
    assert lines[0] == "document,label,text"
    assert len(lines) == 56
    truth = ["cat", "tax"]
    filled = [line.replace(",,", f",{truth[int(line.split('.')[0]) % 2]},", 1) for line in lines[1:]]
    file = tmp_path / "examples.csv"
    file.write_text("\n".join([lines[0], *filled, "59.md,,unlabelled"]), "utf-8")
    assert len(read_examples(file)) >= 54
    done = run("label", *index, "--as", "cat, tax", "--examples", file, "--json")
    assert "about 90% of them are right, by" in done.err
    assert len(done.rows) == 60
    right = [row["label"] == truth[int(row["document"].split(".")[0]) % 2] for row in done.rows if row["label"]]
    assert np.mean(right) > 0.8 if right else done.code == 1
    assert [row["chance"] for row in done.rows] == sorted((row["chance"] for row in done.rows), reverse=True)
    estimate = run("label", *index, "--as", "cat, tax", "--precision", 0.5)
    assert "is an estimate, not calibrated on this index" in estimate.err


def test_a_command_says_how_sure_the_best_label_is_where_none_is_sure_enough(labelled, run, monkeypatch):
    labels = [DocumentLabel("1.md", "cat", 0.614, sure=False), DocumentLabel("2.md", "tax", 0.4, sure=False)]
    monkeypatch.setattr(document_labels, "label_documents", lambda *_, **__: labels)
    none = run("label", "--index", labelled.path, "--as", "cat, tax")
    assert (none.code, none.out) == (1, "")
    assert none.err == (
        "binocle: no label is sure enough for any of 2 documents: "
        "the surest has a chance of 0.61, and --precision is 0.90\n"
    )


def test_a_sample_is_json_on_request_and_takes_no_option_of_labels(labelled, run, tmp_path):
    words = ["label", "--index", labelled.path, "--as", "cat, tax", "--sample", 2]
    rows = run(*words, "--json").rows
    assert [(*row, row["label"]) for row in rows] == [("document", "label", "text", "")] * 2
    lines = run(*words).out.splitlines()[1:]
    assert [f"{row['document']},,{row['text']}" for row in rows] == lines
    (tmp_path / "examples.csv").write_text("document,label\n", "utf-8")
    for option, value in (("--precision", 0.8), ("--examples", tmp_path / "examples.csv")):
        refused = run(*words, option, value)
        assert (refused.code, refused.out) == (2, "")
        assert f"{option} has no effect here: --sample prints documents without a label" in refused.err


@pytest.mark.parametrize(
    ("names", "examples", "message"),
    [
        (["cat"], None, "expected at least two different ones"),
        (["cat", "cat"], None, "expected at least two different ones"),
        (["cat", ""], None, "expected at least two different ones"),
        (["cat", " "], None, "expected at least two different ones"),
        (["cat", "none"], None, "and not 'none'"),
        (["cat", "tax"], {"1.md": "dog"}, "has the label 'dog': expected one of --as, or 'none'"),
        (["cat", "tax"], {"x.md": "cat"}, "'x.md' is no labelled document of the index"),
        (["cat", "tax"], {"1.md": "cat"}, "1 examples came: expected at least 50"),
    ],
)
def test_bad_labels_and_examples_are_refused(names, examples, message, labelled):
    with pytest.raises(InputError, match=message):
        label_documents(labelled.iterate(vectors=True), labelled.encoder, names, examples=examples)


def test_a_document_with_two_labels_is_refused_with_its_line(tmp_path):
    file = tmp_path / "examples.csv"
    file.write_text("document,label\na.md,cat\nb.md,tax\na.md,\na.md, cat\n", "utf-8")
    assert read_examples(file) == {"a.md": "cat", "b.md": "tax"}
    file.write_text("document,label\na.md,cat\nb.md,tax\na.md,none\n", "utf-8")
    with pytest.raises(InputError, match=r"examples\.csv:4: 'a\.md' has the label 'none' here and 'cat' above"):
        read_examples(file)


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "", "\x00"])
def test_a_file_without_the_columns_is_refused(text, tmp_path):
    file = tmp_path / "examples.csv"
    file.write_text(text)
    with pytest.raises(InputError):
        read_examples(file)
