from __future__ import annotations

import json
import re

import numpy as np
import pytest

from binocle.core.errors import InputError
from binocle.training.evaluation import judged_rows
from binocle.training.evaluation.evaluate_file import evaluate_file, evaluate_rows
from binocle.training.evaluation.similarity import MEASURES, thresholds

SIMILARITY, PAIRS = MEASURES["similarity"], MEASURES["pairs"]


def draw(seed, *, ties=False, rows=80):
    """Scores, graded gold and labels that have something to do with each other."""
    random = np.random.default_rng(seed)
    gold = random.normal(size=rows)
    scores = gold + random.normal(size=rows)
    if ties:
        gold, scores = np.round(gold), np.round(scores)
    return scores, gold, (gold > 0.3).astype(float)


# Measures against other implementations


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_correlations_are_those_of_scipy(seed, ties):
    stats = pytest.importorskip("scipy.stats")
    scores, gold, _ = draw(seed, ties=ties)
    assert SIMILARITY["Spearman"].value(scores, gold) == pytest.approx(stats.spearmanr(scores, gold)[0], abs=1e-12)
    assert SIMILARITY["Pearson"].value(scores, gold) == pytest.approx(stats.pearsonr(scores, gold)[0], abs=1e-12)


def test_scores_in_a_narrow_range_are_not_constant():
    assert SIMILARITY["Pearson"].value([0.8000, 0.8001, 0.8002], [1, 2, 3]) == pytest.approx(1)
    assert SIMILARITY["Pearson"].value([1, 2, 3], [100.003, 100.002, 100.001]) == pytest.approx(-1)
    assert np.isnan(SIMILARITY["Pearson"].value([0.8, 0.8, 0.8], [1, 2, 3]))
    weighted = SIMILARITY["Pearson"].of(np.array([1.0, 1.1, -5.0]), np.array([1.0, 2.0, 90.0]))
    assert weighted(np.array([[1, 1, 0], [2, 3, 0]])) == pytest.approx([1, 1])  # samples without the third row


def test_scores_that_are_no_numbers_have_no_order():
    scores, gold = np.array([np.nan, 1.0, np.nan, 0.0, np.nan]), np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    last = np.array([2.0, 1.0, 2.0, 0.0, 2.0])  # equal, above the others
    assert SIMILARITY["Spearman"].value(scores, gold) == SIMILARITY["Spearman"].value(last, gold)
    assert not SIMILARITY["Spearman"].value(np.full(5, np.nan), gold) > 0


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_average_precision_and_area_are_those_of_scikit_learn(seed, ties):
    metrics = pytest.importorskip("sklearn.metrics")
    scores, _, labels = draw(seed, ties=ties)
    theirs = metrics.average_precision_score(labels, scores), metrics.roc_auc_score(labels, scores)
    assert (PAIRS["AP"].value(scores, labels), PAIRS["AUC"].value(scores, labels)) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_accuracy_and_f1_are_the_best_of_all_thresholds_tried(seed, ties):
    scores, _, labels = draw(seed, ties=ties)
    accuracies, f1s = [], []
    for threshold in [*np.unique(scores), np.inf]:
        said = scores >= threshold
        accuracies.append((said == labels).mean())
        f1s.append(2 * (said & (labels == 1)).sum() / (said.sum() + labels.sum()))
    assert PAIRS["Accuracy"].value(scores, labels) == pytest.approx(max(accuracies))
    assert PAIRS["F1"].value(scores, labels) == pytest.approx(max(f1s))
    best = thresholds(scores, labels)
    said = {name: scores >= threshold for name, threshold in best.items()}
    assert (said["Accuracy"] == labels).mean() == pytest.approx(max(accuracies))
    found = 2 * (said["F1"] & (labels == 1)).sum() / (said["F1"].sum() + labels.sum())
    assert found == pytest.approx(max(f1s))


def test_labels_that_nothing_tells_apart_are_best_all_called_negative():
    scores, labels = np.array([0.9, 0.5, 0.1]), np.array([0.0, 0.0, 1.0])
    assert PAIRS["Accuracy"].value(scores, labels) == pytest.approx(2 / 3)
    assert thresholds(scores, labels)["Accuracy"] > 0.9


def test_measures_by_hand():
    scores, labels = [0.9, 0.8, 0.7, 0.1], [1.0, 0.0, 1.0, 0.0]
    assert PAIRS["AP"].value(scores, labels) == pytest.approx((1 + 2 / 3) / 2)
    assert PAIRS["AUC"].value(scores, labels) == pytest.approx(3 / 4)
    assert PAIRS["Accuracy"].value(scores, labels) == pytest.approx(3 / 4)
    assert PAIRS["F1"].value(scores, labels) == pytest.approx(4 / 5)
    assert thresholds(np.array(scores), np.array(labels)) == pytest.approx({"Accuracy": 0.85, "F1": 0.4})


@pytest.mark.parametrize("name", [*SIMILARITY, *PAIRS])
def test_order_of_rows_never_matters_and_equal_scores_are_one_threshold(name):
    statistic = (SIMILARITY | PAIRS)[name]
    scores, gold, labels = draw(3, ties=True)
    gold = gold if name in SIMILARITY else labels
    order = np.random.default_rng(0).permutation(len(scores))
    assert statistic.value(scores[order], gold[order]) == pytest.approx(statistic.value(scores, gold), abs=1e-12)


def test_ranks_do_not_care_for_the_scale():
    scores, gold, labels = draw(1)
    for name, statistic in (SIMILARITY | PAIRS).items():
        if name != "Pearson":
            right = gold if name in SIMILARITY else labels
            assert statistic.value(np.exp(3 * scores), right) == pytest.approx(statistic.value(scores, right))


def test_a_model_that_says_the_same_of_everything_correlates_with_nothing():
    assert all(np.isnan(statistic.value(np.ones(5), np.arange(5.0))) for statistic in SIMILARITY.values())
    assert PAIRS["AUC"].value(np.ones(4), [1.0, 0, 1, 0]) == 0.5


# Weights are repetitions


@pytest.mark.parametrize("name", [*SIMILARITY, *PAIRS])
@pytest.mark.parametrize("ties", [False, True])
def test_a_weight_is_how_often_a_row_is_there(name, ties):
    statistic = (SIMILARITY | PAIRS)[name]
    scores, gold, labels = draw(5, ties=ties, rows=30)
    gold = gold if name in SIMILARITY else labels
    weights = np.random.default_rng(1).integers(0, 4, (6, 30)).astype(float)
    rows = [np.repeat(np.arange(30), row.astype(int)) for row in weights]
    expected = [statistic.value(scores[some], gold[some]) for some in rows]
    assert statistic.of(scores, gold)(weights) == pytest.approx(expected, abs=1e-12)


def test_the_interval_of_a_correlation_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    scores, gold, _ = draw(2)
    theirs = stats.bootstrap(
        (scores, gold),
        lambda x, y, axis: stats.pearsonr(x, y, axis=axis)[0],
        paired=True,
        vectorized=True,
        n_resamples=5_000,
        method="percentile",
        rng=0,
    ).confidence_interval
    assert SIMILARITY["Pearson"].interval(scores, gold) == pytest.approx((theirs.low, theirs.high), abs=0.01)


@pytest.mark.parametrize("name", ["Spearman", "Pearson", "AP"])
def test_equally_good_scores_are_called_different_once_in_twenty(name):
    statistic, called, runs = (SIMILARITY | PAIRS)[name], 0, 150
    for seed in range(runs):
        random = np.random.default_rng(seed)
        gold = random.normal(size=50)
        a, b = 5 * (gold + random.normal(size=50)), gold + random.normal(size=50)  # on scales of their own
        right = gold if name in SIMILARITY else (gold > 0).astype(float)
        called += statistic.difference(a, b, right, samples=199).p < 0.05
    assert 0 < called / runs < 0.11


def test_better_scores_are_told_from_worse_ones():
    random = np.random.default_rng(0)
    gold = random.normal(size=300)
    found = SIMILARITY["Spearman"].difference(
        gold + random.normal(0, 0.5, 300), 100 * gold + random.normal(0, 90, 300), gold
    )
    assert found.p < 0.001
    assert 0 < found.low < found.value < found.high


# Files


def tsv(path, text):
    path.write_text(text.replace("|", "\t"), "utf-8")
    return path


SCORED = "score|sentence1|sentence2\n5|The cat sat on the mat.|A cat was on the mat.\n0|Income tax is due.|The ship sails the sea.\n"
SCORED += (
    "2.5|Bake the bread.|The bread is in the oven.\n1|The moon is out.|Night fell.\n3|A queen of the city.|The king.\n"
)
FILES = {
    "similarity.tsv": SCORED,
    "pairs.csv": 'text1,text2,label\n"a cat, a dog",the cat,1\ntax,sea,0\nbread,oven,1\n"a ""ship""",moon,0\n',
    "reranking.jsonl": json.dumps({"query": "cat", "positive": ["the cat sat"], "negative": ["tax is due", "the sea"]})
    + "\n"
    + json.dumps({"query": "tax", "positive": "income tax", "negative": ["bread", "a ship"]})
    + "\n\n",
}


@pytest.fixture
def files(tmp_path):
    for name, text in FILES.items():
        tsv(tmp_path / name, text)
    return tmp_path


def test_the_columns_say_what_a_file_is(files):
    similarity = judged_rows.read(files / "similarity.tsv")
    assert (similarity.kind, similarity.gold, similarity.right[3]) == ("similarity", [5, 0, 2.5, 1, 3], "Night fell.")
    pairs = judged_rows.read(files / "pairs.csv")
    assert (pairs.kind, pairs.left[0], pairs.left[3], pairs.gold) == ("pairs", "a cat, a dog", 'a "ship"', [1, 0, 1, 0])
    rankings = judged_rows.read(files / "reranking.jsonl")
    assert (rankings.queries, rankings.positives) == (["cat", "tax"], [["the cat sat"], ["income tax"]])
    assert rankings.negatives[1] == ["bread", "a ship"]


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        (("sentence1", "sentence2", "similarity_score"), "similarity"),
        (("Sentence_A", "Sentence_B", "Relatedness_Score"), "similarity"),
        (("question1", "question2", "is_duplicate"), "pairs"),
        (("text_1", "text_2", "label"), "pairs"),
    ],
)
def test_columns_have_the_names_that_data_sets_give_them(header, kind, tmp_path):
    file = tsv(tmp_path / "x.tsv", "|".join(header) + "\na|b|1\nc|d|0\n")
    assert judged_rows.read(file).kind == kind


def test_passages_may_stand_in_numbered_columns(tmp_path):
    file = tsv(tmp_path / "x.tsv", "anchor|positive|negative_1|negative_2\ncat|a cat|a dog|a ship\n")
    result = judged_rows.read(file)
    assert (result.positives, result.negatives) == ([["a cat"]], [["a dog", "a ship"]])


def test_compressed_and_parquet_files_are_read_like_the_others(files):
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    (files / "sts.tsv.gz").write_bytes(gzip.compress((files / "similarity.tsv").read_bytes()))
    result = judged_rows.read(files / "sts.tsv.gz")
    assert (result.name, result.gold) == ("sts", judged_rows.read(files / "similarity.tsv").gold)
    columns = {"query": ["cat"], "positive": [["the cat", "a cat"]], "negative": ["tax"]}
    pq.write_table(pa.table(columns), files / "ranked.parquet")
    assert judged_rows.read(files / "ranked.parquet").positives == [["the cat", "a cat"]]


ROW = {"sentence1": "a", "sentence2": "b", "score": 1}
LABELLED = {"text1": "a", "text2": "b", "label": 1}
RANKED = {"query": "a", "positive": ["b"], "negative": ["c"]}
WRONG = {
    "empty": ("x.tsv", "", "x.tsv holds no rows"),
    "a header alone": ("x.tsv", "sentence1|sentence2|score\n", "holds no rows"),
    "no header": ("x.tsv", "a cat|the cat|4.2\nb|c|1\n", "x.tsv:2 has the columns 'a cat', 'the cat', '4.2'"),
    "unknown columns": ("x.csv", "left,right\na,b\n", "x.csv:2 has the columns 'left', 'right': expected"),
    "a field too many": ("x.csv", "text1,text2,label\na,b,1\na,b,c,0\n", "x.csv:3 has 4 fields where the header has 3"),
    "an open quote": ("x.csv", 'text1,text2,label\n"a,b,1\n', "x.csv:2 is not well-formed"),
    "not utf-8": ("x.tsv", b"text1\ttext2\tlabel\na\tcaf\xe9\t1\n", "x.tsv:2 is not UTF-8"),
    "a word for a score": ("x.tsv", "sentence1|sentence2|score\na|b|high\n", "x.tsv:2: expected a number in 'score', not 'high'"),
    "no number": ("x.tsv", "sentence1|sentence2|score\na|b|1\na|b|nan\n", "x.tsv:3"),
    "a score missing": ("x.tsv", "sentence1|sentence2|score\na|b|1\na|b|\n", "x.tsv:3"),
    "an empty text": ("x.tsv", "sentence1|sentence2|score\na| |1\n", "x.tsv:2: expected a text in 'sentence2', not an empty text"),
    "a graded label": ("x.tsv", "text1|text2|label\na|b|1\na|b|0.4\n", "x.tsv:3: expected 0 or 1 in 'label', not '0.4'"),
    "the same score throughout": ("x.tsv", "sentence1|sentence2|score\na|b|1\nc|d|1\n", "score 1 in every row"),
    "the same label throughout": ("x.tsv", "text1|text2|label\na|b|0\nc|d|0\n", "label 0 in every row"),
    "no json": ("x.jsonl", '{"query": \n', "x.jsonl:1 is not JSON"),
    "a list": ("x.jsonl", "[1]\n", "x.jsonl:1: expected an object"),
    "another shape later": ("x.jsonl", [ROW, {"query": "a", "positive": "b"}], "x.jsonl:2: expected a text in 'sentence1', not nothing"),
    "a number for a text": ("x.jsonl", [ROW, {**ROW, "sentence2": 3}], "x.jsonl:2: expected a text in 'sentence2', not 3"),
    "true for a score": ("x.jsonl", [ROW, {**ROW, "score": True}], "x.jsonl:2: expected a number in 'score', not True"),
    "a number beyond all": ("x.jsonl", [ROW, {**ROW, "score": 10**400}], "x.jsonl:2: expected a number in 'score', not 10000"),
    "null for a label": ("x.jsonl", [LABELLED, {**LABELLED, "label": None}], "x.jsonl:2: expected 0 or 1 in 'label', not nothing"),
    "no negative": ("x.jsonl", [RANKED, {**RANKED, "negative": []}], "x.jsonl:2 has no negative"),
    "no negative column": ("x.jsonl", [RANKED, {"query": "a", "positive": "b"}], "x.jsonl:2 has no negative"),
    "a passage that is none": ("x.jsonl", [{**RANKED, "positive": ["b", 1]}], "x.jsonl:1: expected a text, or a list of them, in 'positive', not 1"),
    "positive and negative at once": ("x.jsonl", [{**RANKED, "negative": ["c", "b"]}], "x.jsonl:1 has 'b' as positive and as negative"),
    "another kind of file": ("x.docx", "a\n", "x.docx has no known kind"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_row_is_told_with_file_and_line(case, tmp_path):
    name, content, message = WRONG[case]
    if isinstance(content, list):
        content = "".join(json.dumps(row) + "\n" for row in content)
    content = content if isinstance(content, bytes) else content.replace("|", "\t").encode()  # type: ignore[attr-defined]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        judged_rows.read(tmp_path / name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_line_break_inside_quotes_does_not_shift_the_lines(tmp_path):
    (tmp_path / "x.csv").write_text('text1,text2,label\n"a\nb",c,1\n\nd,e,2\n')
    with pytest.raises(InputError, match=r"x\.csv:5:"):
        judged_rows.read(tmp_path / "x.csv")


# Models


class Fake:
    """An encoder of one number a text: the length of it, as an angle."""

    name, dim, max_tokens, fingerprint = "fake", 2, 10, "0"

    def __init__(self):
        self.asked = []

    def encode(self, texts, *, kind="document"):
        self.asked += [(kind, text) for text in texts]
        angles = np.array([len(text) for text in texts], np.float32) / 10
        return 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def offsets(self, texts):
        return [[] for _ in texts]


class Cross:
    """A cross-encoder that likes passages as long as the query."""

    name = "cross"

    def score(self, query, passages):
        return np.array([-abs(len(query) - len(passage)) for passage in passages], np.float32)


def test_scores_of_an_encoder_are_cosines_and_each_text_is_encoded_once():
    rows = judged_rows.Pairs("x", "similarity", ["aa", "aa", "b"], ["aa", "cccc", "dd"], [5, 1, 3])
    fake = Fake()
    result = evaluate_rows(rows, fake)
    assert result.scores == pytest.approx(np.cos([0, 0.2, 0.1]), abs=1e-6)
    assert sorted(fake.asked) == [("document", text) for text in ("aa", "b", "cccc", "dd")]
    assert result.measures["Spearman"] == 1
    assert (result.rows, result.model, result.data) == (3, "fake", "x")


def test_scores_of_a_cross_encoder_are_its_own():
    rows = judged_rows.Pairs("x", "pairs", ["aa", "b", "aa"], ["aa", "dd", "c"], [1, 0, 0])
    result = evaluate_rows(rows, Cross())
    assert result.scores.tolist() == [0, -1, -1]
    assert result.measures == {"AP": 1, "AUC": 1, "Accuracy": 1, "F1": 1}
    assert result.thresholds == {"Accuracy": -0.5, "F1": -0.5}


@pytest.mark.parametrize("model", [Fake(), Cross()])
def test_passages_are_ranked_and_equal_scores_are_no_merit(model):
    rows = judged_rows.Rankings("x", ["aaa", "b"], [["bbb"], ["cc", "d"]], [["c", "eeeee"], ["aa", "eeee"]])
    result = evaluate_rows(rows, model)
    assert result.per_query["MRR@10"] == {"1": 1, "2": 1}
    assert result.per_query["MAP"] == {"1": 1, "2": pytest.approx((1 + 2 / 3) / 2)}  # "aa" before "cc"
    assert [name for name, _ in result.run["2"]] == ["p2", "n3", "p1", "n4"]
    assert result.gold.tolist() == [1, 0, 0, 1, 1, 0, 0]
    assert list(result.measures) == ["MAP", "MRR@10", "nDCG@10"]


def test_queries_are_encoded_as_queries():
    fake = Fake()
    evaluate_rows(judged_rows.Rankings("x", ["aaa"], [["bbb"]], [["c"]]), fake)
    assert sorted(fake.asked) == [("document", "bbb"), ("document", "c"), ("query", "aaa")]


def test_scores_that_are_no_numbers_are_refused():
    broken = Cross()
    broken.score = lambda query, passages: np.full(len(passages), np.nan, np.float32)
    with pytest.raises(InputError, match="cross gives scores that are not numbers"):
        evaluate_rows(judged_rows.Pairs("x", "similarity", ["a", "b"], ["c", "d"], [1, 2]), broken)


def test_what_is_not_defined_is_null_in_json():
    constant = Cross()
    constant.score = lambda query, passages: np.zeros(len(passages), np.float32)
    result = evaluate_rows(judged_rows.Pairs("x", "similarity", ["a", "b"], ["c", "d"], [1, 2]), constant)
    assert result.as_dict()["measures"] == result.as_dict()["intervals"] == {"Spearman": None, "Pearson": None}


def test_a_file_is_measured_and_its_json_holds_rows_only_if_asked(files, tiny_model):
    result = evaluate_file(files / "similarity.tsv", model=tiny_model)
    assert result.kind == "similarity"
    assert result.intervals["Pearson"][0] <= result.measures["Pearson"] <= result.intervals["Pearson"][1]
    short, long = result.as_dict(), result.as_dict(per_query=True)
    assert json.loads(json.dumps(short)) == {**short, "intervals": {k: list(v) for k, v in short["intervals"].items()}}
    assert set(long) - set(short) == {"scores", "gold"}
    ranked = evaluate_file(files / "reranking.jsonl", model=tiny_model, run_file=files / "x.run")
    assert set(ranked.as_dict(per_query=True)["per_query"]) == {"MAP", "MRR@10", "nDCG@10"}
    lines = (files / "x.run").read_text().splitlines()
    assert len(lines) == 6
    assert all(re.fullmatch(r"[12] Q0 [pn]\d \d -?[\d.]+ binocle-reranking", line) for line in lines)


def test_pairs_make_no_run(files, tiny_model):
    with pytest.raises(InputError, match="holds pairs"):
        evaluate_file(files / "pairs.csv", model=tiny_model, run_file=files / "x.run")
    with pytest.raises(InputError, match="no folder"):
        evaluate_file(files / "reranking.jsonl", model=tiny_model, run_file=files / "none" / "x.run")


# Against the evaluators of sentence-transformers, on the same model


@pytest.fixture(scope="session")
def theirs(tiny_model):
    pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(tiny_model, device="cpu")


@pytest.fixture(scope="session")
def sentences():
    """Texts of words that the tiny model knows."""
    words = (
        "cat dog mat house tax income year file task queue server network error index vector sea ship moon king".split()
    )
    random = np.random.default_rng(0)
    return [" ".join(random.choice(words, random.integers(2, 7))) for _ in range(120)]


def test_similarity_is_what_their_evaluator_says(theirs, sentences, tiny):
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    gold = np.random.default_rng(1).integers(0, 6, 60).tolist()
    result = evaluate_rows(judged_rows.Pairs("x", "similarity", sentences[:60], sentences[60:], gold), tiny)
    said = EmbeddingSimilarityEvaluator(sentences[:60], sentences[60:], gold, write_csv=False)(theirs)
    expected = (said["spearman_cosine"], said["pearson_cosine"])
    assert (result.measures["Spearman"], result.measures["Pearson"]) == pytest.approx(expected, abs=2e-3)


def test_pair_classification_is_what_their_evaluator_says(theirs, sentences, tiny):
    from sentence_transformers.sentence_transformer.evaluation import BinaryClassificationEvaluator

    labels = np.random.default_rng(2).integers(0, 2, 60).tolist()
    result = evaluate_rows(judged_rows.Pairs("x", "pairs", sentences[:60], sentences[60:], labels), tiny)
    said = BinaryClassificationEvaluator(
        sentences[:60], sentences[60:], labels, write_csv=False, similarity_fn_names=["cosine"]
    )(theirs)
    assert result.measures["AP"] == pytest.approx(said["cosine_ap"], abs=2e-3)
    assert result.measures["Accuracy"] == pytest.approx(said["cosine_accuracy"], abs=1e-4)
    assert result.measures["F1"] == pytest.approx(said["cosine_f1"], abs=1e-4)
    assert result.thresholds["Accuracy"] == pytest.approx(said["cosine_accuracy_threshold"], abs=1e-3)
    assert result.thresholds["F1"] == pytest.approx(said["cosine_f1_threshold"], abs=1e-3)


def test_reranking_is_what_their_evaluator_says(theirs, sentences, tiny):
    from sentence_transformers.sentence_transformer.evaluation import RerankingEvaluator

    texts = list(dict.fromkeys(sentences))
    rows = [(texts[place], texts[place + 1 : place + 3], texts[place + 3 : place + 12]) for place in range(0, 96, 12)]
    result = evaluate_rows(judged_rows.Rankings("x", *(list(column) for column in zip(*rows, strict=True))), tiny)
    samples = [{"query": query, "positive": good, "negative": bad} for query, good, bad in rows]
    said = RerankingEvaluator(samples, write_csv=False)(theirs)
    assert result.measures == pytest.approx(
        {"MAP": said["map"], "MRR@10": said["mrr@10"], "nDCG@10": said["ndcg@10"]}, abs=1e-4
    )
