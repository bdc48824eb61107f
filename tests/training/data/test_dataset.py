"""Rows of every shape and from every source; a wrong one is told with its line before anything is trained."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import os
from itertools import permutations

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binocle.core.errors import InputError
from binocle.training.data import batches as module
from binocle.training.data import beir, length_groups
from binocle.training.data import dataset as data
from binocle.training.data.batches import Batches
from binocle.training.data.dataset import Shape
from binocle.training.data.sources import rows

PAIR = {"query": "who sat", "positive": "the cat sat"}


def lines(path, *records):
    path.write_text("".join(json.dumps(row) + "\n" for row in records), "utf-8")
    return path


SHAPES = {
    "pairs": (PAIR, Shape.PAIRS, ("query", "positive")),
    "question and answer": ({"question": "a?", "answer": "b"}, Shape.PAIRS, ("query", "positive")),
    "triplets": (PAIR | {"negative": "a dog ran"}, Shape.TRIPLETS, ("query", "positive", "negative")),
    "numbered negatives": (
        {"anchor": "a", "positive": "b", "negative_2": "d", "negative_1": "c", "negative_10": "e"},
        Shape.TRIPLETS,
        ("query", "positive", "negative_1", "negative_2", "negative_3"),
    ),
    "lists": (
        {"query": "a", "pos": ["b"], "neg": ["c", "d"]},
        Shape.TRIPLETS,
        ("query", "positive", "negative_1", "negative_2"),
    ),
    "scores": ({"sentence1": "a", "sentence2": "b", "score": "4.5"}, Shape.SCORED, ("sentence1", "sentence2")),
    "labels": ({"text1": "a", "text2": "b", "label": 1}, Shape.LABELLED, ("sentence1", "sentence2")),
    "classes": ({"premise": "a", "hypothesis": "b", "label": "entailment"}, Shape.CLASSED, ("sentence1", "sentence2")),
    "teacher": (
        {"query": "a", "positive": "b", "negative": "c", "scores": [3, 1.5]},
        Shape.GRADED,
        ("query", "positive", "negative"),
    ),
    "FlagEmbedding's": (
        {"query": "a", "pos": ["b"], "neg": ["c"], "pos_scores": [2], "neg_scores": [1]},
        Shape.GRADED,
        ("query", "positive", "negative"),
    ),
    "labels in words": ({"text1": "a", "text2": "b", "duplicate": "True"}, Shape.LABELLED, ("sentence1", "sentence2")),
    "pairs with a number": ({"pair_ID": 7, "text1": "a", "text2": "b"}, Shape.PAIRS, ("query", "positive")),
    "classes by number": ({"premise": "a", "hypothesis": "b", "label": 1}, Shape.CLASSED, ("sentence1", "sentence2")),
    "scores of answers": ({"query": "a", "passage": "b", "score": 0.5}, Shape.SCORED, ("query", "document")),
    "labels of answers": ({"question": "a", "answer": "b", "label": 1}, Shape.LABELLED, ("query", "document")),
    "names in another case": ({"Query": "a", "Positive": "b"}, Shape.PAIRS, ("query", "positive")),
    "Quora's": ({"question1": "a", "question2": "b", "is_duplicate": 0}, Shape.LABELLED, ("sentence1", "sentence2")),
    "a subject that is no label": (
        {"question": "a", "answer": "b", "category": "c"},
        Shape.PAIRS,
        ("query", "positive"),
    ),
    "scores of either": (
        {"query": "a", "positive": ["b"], "negative": ["c"], "positive_scores": [2], "negative_scores": [1]},
        Shape.GRADED,
        ("query", "positive", "negative"),
    ),
    "a teacher's margin": (
        {"query": "a", "positive": "b", "negative": "c", "score": "2.5"},
        Shape.GRADED,
        ("query", "positive", "negative"),
    ),
    "no negatives yet": ({"query": "a", "pos": ["b"], "neg": [], "score": None}, Shape.PAIRS, ("query", "positive")),
    "grouped": ({"text": "a", "label": "animal"}, Shape.GROUPED, ("text",)),
    "texts": ({"_id": "1", "title": "t", "text": "a"}, Shape.TEXTS, ("text",)),
}


def test_negatives_that_are_not_used_are_counted(tmp_path):
    from binocle.training.encoders import heldout
    from binocle.training.encoders.teacher_scores import score

    rows = [{"query": f"q{n}", "positive": f"p{n}", "negative": [f"n{n}", "x", "y"][: 1 + n]} for n in range(3)]
    dataset = data.prepare(rows, tmp_path / "rows", held_out=0)
    assert (dataset.texts, dataset.unused_negatives) == (("query", "positive", "negative"), 3)
    data.save(dataset)
    assert data.load(tmp_path / "rows").unused_negatives == 3
    assert heldout.account(dataset).endswith("; 3 negatives are not used, of rows that have more than the first one")
    file = lines(tmp_path / "rows.jsonl", *rows)
    with pytest.raises(InputError, match="has rows with more negatives than its first row: expected as many in each"):
        score(file, tmp_path / "out.jsonl", models=["any"])
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("name", SHAPES)
def test_columns_say_what_the_rows_are(name, tmp_path):
    row, shape, texts = SHAPES[name]
    dataset = data.prepare([row], tmp_path, held_out=0)
    assert (dataset.shape, dataset.texts) == (shape, texts)
    assert len(dataset.table()) == 1


def test_values_arrive_as_they_were_given(tmp_path):
    row = {"query": "a", "pos": ["b", "c"], "neg": ["d", "e"], "pos_scores": [2, 3], "neg_scores": [1, 0.5]}
    dataset = data.prepare([row], tmp_path, held_out=0)
    assert dataset.table().to_pylist() == [
        {"query": "a", "positive": "b", "negative_1": "d", "negative_2": "e", "label": [2.0, 1.0, 0.5]},
        {"query": "a", "positive": "c", "negative_1": "d", "negative_2": "e", "label": [3.0, 1.0, 0.5]},
    ]


def test_a_margin_is_the_score_of_a_positive_whose_only_negative_has_none(tmp_path):
    records = [
        {"query": "a", "positive": "b", "negative_1": "c", "score": 2.5},
        {"query": "d", "positive": "e", "negative_1": "f", "score": -1},
    ]
    dataset = data.prepare(records, tmp_path, held_out=0)
    assert dataset.table()["label"].to_pylist() == [[2.5, 0.0], [-1.0, 0.0]]


LABELS = [  # numbers in `label`, and what the rows are, whatever their order
    ((0, 1, 1), Shape.LABELLED),
    ((False, True, False), Shape.LABELLED),
    ((0.0, 1.0, 0), Shape.LABELLED),
    (("0", "1", "1"), Shape.LABELLED),
    (("0.0", "1.0", "1.0"), Shape.LABELLED),
    (("False", "true", 1), Shape.LABELLED),
    ((5, 2, 0, 1), Shape.SCORED),
    ((3.8, 0.0, 2.0), Shape.SCORED),
    (("0", "1", "0.5"), Shape.SCORED),
    (("0.0", "1.0", "2.0"), Shape.SCORED),
    ((0, 0.25, -1), Shape.SCORED),
]


@pytest.mark.parametrize(("labels", "shape"), LABELS)
def test_numbers_in_label_mean_the_same_in_any_order(labels, shape, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "_BATCH", 2)
    for order in permutations(labels):
        dataset = data.prepare([{"text1": "a", "text2": "b", "label": label} for label in order], tmp_path, held_out=0)
        column = dataset.table()["label"]
        assert dataset.shape is shape
        assert column.type == (pa.int64() if shape is Shape.LABELLED else pa.float32())
        words = {"False": 0, "true": 1}
        assert column.to_pylist() == pytest.approx([float(words.get(label, label)) for label in order])


@pytest.mark.parametrize("judged", [0, "1", 0.5, True, "false"])
def test_a_judgement_under_an_unknown_name_is_told_instead_of_learning_all_pairs_as_alike(judged, tmp_path):
    file = lines(tmp_path / "a.jsonl", {"sentence1": "a", "sentence2": "b", "gold": judged})
    with pytest.raises(InputError) as raised:
        data.prepare(file, tmp_path / "made", held_out=0)
    assert str(raised.value) == (
        f"{file}:1: 'gold' may be a judgement of the two texts: call it score or label, or leave it out"
    )


@pytest.mark.parametrize("labels", [(0, 1, 2), (2, 2, 1), (-1, 1, 0), ("0", "1", "2")])
def test_numbers_in_label_that_may_be_classes_or_scores_are_told_in_any_order(labels, tmp_path):
    for order in permutations(labels):
        lines(tmp_path / "a.jsonl", *({"text1": "a", "text2": "b", "label": label} for label in order))
        odd = next(number for number, label in enumerate(order, 1) if int(label) not in (0, 1))
        with pytest.raises(InputError) as raised:
            data.prepare(tmp_path / "a.jsonl", tmp_path / "made", held_out=0)
        assert str(raised.value) == (
            f"{tmp_path}/a.jsonl:{odd}: expected 0 or 1 in 'label', but {order[odd - 1]!r} came, which may be a class or "
            "a score: call the texts premise and hypothesis for classes, or the column score for scores"
        )


def files(folder):
    """The same two rows in every kind of file."""
    two = [PAIR, {"query": 'wer, "saß"?', "positive": "die Katze\nsaß"}]
    table = pa.Table.from_pylist(two)
    pq.write_table(table, folder / "a.parquet")
    lance.write_dataset(table, folder / "a.lance")
    lines(folder / "a.jsonl", *two)
    with gzip.open(folder / "b.jsonl.gz", "wt", encoding="utf-8") as stream:
        stream.write((folder / "a.jsonl").read_text("utf-8"))
    cells = [["query", "positive"], *([row["query"], row["positive"]] for row in two)]
    text = "\n".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in cells)
    (folder / "a.csv").write_text("\ufeff" + text, "utf-8")
    return two


@pytest.mark.parametrize("name", ["a.parquet", "a.lance", "a.jsonl", "b.jsonl.gz", "a.csv"])
def test_every_kind_of_file_gives_the_same_rows(name, tmp_path):
    two = files(tmp_path)
    assert [row for _, row in rows(tmp_path / name)] == two


def test_quotes_in_tab_separated_values_are_text(tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text('query\tpositive\n"to be or not\tHamlet\n… that is the question"\tHamlet too\n', "utf-8")
    assert [row for _, row in rows(file)] == [
        {"query": '"to be or not', "positive": "Hamlet"},
        {"query": '… that is the question"', "positive": "Hamlet too"},
    ]


@given(st.lists(st.tuples(*[st.text(st.sampled_from("\"'`,; a\\é\x0b\u2028"), min_size=1)] * 2), min_size=1))
def test_every_line_of_tab_separated_values_is_one_row_as_it_stands(tmp_path_factory, pairs):
    file = tmp_path_factory.mktemp("tsv") / "a.tsv"
    file.write_text("query\tpositive\n" + "".join(f"{query}\t{positive}\n" for query, positive in pairs), "utf-8")
    assert [(row["query"], row["positive"]) for _, row in rows(file)] == pairs


def test_a_row_of_a_separated_file_stands_where_it_begins(tmp_path):
    files(tmp_path)
    (tmp_path / "c.csv").write_text('query,positive\na,"b\nc"\nd,e\n', "utf-8")
    assert [where for where, _ in rows(tmp_path / "c.csv")] == [f"{tmp_path}/c.csv:2", f"{tmp_path}/c.csv:4"]


def test_a_beir_folder_gives_judged_queries_with_their_documents(tmp_path):
    lines(
        tmp_path / "corpus.jsonl", {"_id": "d1", "title": "T", "text": "one"}, {"_id": "d2", "title": "", "text": "two"}
    )
    lines(tmp_path / "queries.jsonl", {"_id": "q1", "text": "first"}, {"_id": "q2", "text": "second"})
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td2\t2\n")
    assert [row for _, row in rows(tmp_path)] == [
        {"query": "first", "positive": "T\none", "document_id": "d1"},
        {"query": "second", "positive": "two", "document_id": "d2"},
    ]


WRONG = {  # name -> (file name, bytes, the message)
    "no known column": ("a.jsonl", b'{"foo": "a"}\n', "a.jsonl:1: the columns 'foo' are no training data"),
    "a missing text": (
        "a.jsonl",
        b'{"query": "a", "positive": "b"}\n{"query": "a"}\n',
        "a.jsonl:2: expected a text in 'positive'",
    ),
    "an empty text": (
        "a.jsonl",
        b'{"query": "a", "positive": "b"}\n\n{"query": " ", "positive": "b"}\n',
        "a.jsonl:3: .* an empty text",
    ),
    "a number for a text": (
        "a.jsonl",
        b'{"query": "a", "positive": 7}\n',
        "a.jsonl:1: expected a text in 'positive', .* 7 came",
    ),
    "not JSON": ("a.jsonl", b'{"query": "a", "positive": "b"}\n{oops\n', "a.jsonl:2 is not JSON"),
    "not an object": ("a.jsonl", b'["a"]\n', "a.jsonl:1: expected an object .* not list"),
    "not UTF-8": ("a.jsonl", b'{"query": "a", "positive": "b"}\n\xff\xfe\n', "a.jsonl:2 is not UTF-8"),
    "a negative now and then": (
        "a.jsonl",
        b'{"query": "a", "positive": "b"}\n{"query": "a", "positive": "b", "negative": "c"}\n',
        "a.jsonl:2: has 'negative'",
    ),
    "too few negatives": (
        "a.jsonl",
        b'{"query": "a", "pos": ["b"], "neg": ["c", "d"]}\n{"query": "a", "pos": ["b"], "neg": ["c"]}\n',
        "a.jsonl:2 has 1 negative, .*:1 had 2",
    ),
    "a label of 2": ("a.csv", b"text1,text2,label\na,b,1\na,b,2\n", "a.csv:3: expected 0 or 1 in 'label'"),
    "a word for a score": (
        "a.tsv",
        b"sentence1\tsentence2\tscore\na\tb\t4\na\tb\thigh\n",
        "a.tsv:3: expected a number in 'score'",
    ),
    "NaN for a score": ("a.tsv", b"sentence1\tsentence2\tscore\na\tb\tnan\n", "a.tsv:2: expected a number in 'score'"),
    "no class": ("a.csv", b"premise,hypothesis,label\na,b,entailment\na,b,-\n", "a.csv:3: expected a class"),
    "a short row": ("a.csv", b"query,positive\na\n", "a.csv:2 has 1 field where the header has 2"),
    "column names in quotes": ("a.tsv", b'"query"\t"positive"\n"a"\t"b"\n', "a.tsv:1 has its names in quotes"),
    "a tab too many": ("a.tsv", b"query\tpositive\na\tb\tc\n", "a.tsv:2 has 3 fields where the header has 2"),
    "an open quote": ("a.csv", b'query,positive\na,"b\n', "a.csv:2 is not well-formed"),
    "a column twice": ("a.csv", b"query,query\na,b\n", "a.csv:1 names the column 'query' twice"),
    "a key twice": (
        "a.jsonl",
        b'{"query": "a", "positive": "b", "query": "c"}\n',
        "a.jsonl:1 is not JSON .it has 'query' twice",
    ),
    "tabs in .csv": ("a.csv", b"query\tpositive\na\tb\n", "a.csv:1 is separated by tabs: name the file .tsv"),
    "tabs in .csv with commas between": ("a.csv", b"a\tb, c\td\n", "a.csv:1 is separated by tabs"),
    "scores of another number": (
        "a.jsonl",
        b'{"query": "a", "positive": "b", "negative": "c", "scores": [1]}\n',
        "a.jsonl:1: expected 2 numbers in 'scores'",
    ),
    "nothing": ("a.jsonl", b"\n", "a.jsonl holds no rows"),
    "half a gzip": (
        "a.jsonl.gz",
        gzip.compress(b'{"query": "a", "positive": "b"}\n' * 99)[:-12],
        "is not whole gzip data",
    ),
    "no Parquet": ("a.parquet", b"PAR1 oops", "is not a whole Parquet file"),
    "no known kind": ("a.pickle", b"oops", "has no known kind: expected .jsonl"),
    "a class in place of its text": ("a.csv", b"text,label\nfish,animal\nfish,\n", "a.csv:3: expected a class"),
    "an empty text in the first row": (
        "a.jsonl",
        b'{"query": "a", "positive": ""}\n',
        "a.jsonl:1: expected a text in 'positive', but an empty text came",
    ),
    "a list of lists": ("a.jsonl", b'{"query": "a", "positive": [["b"]]}\n', r"a.jsonl:1: .* \['b'\] came"),
    "a score beyond any number": (
        "a.jsonl",
        b'{"sentence1": "a", "sentence2": "b", "score": 1' + b"0" * 400 + b"}\n",
        "a.jsonl:1: expected a number in 'score', but 1000.*… came$",
    ),
    "a score beyond 32 bits": (
        "a.csv",
        b"sentence1,sentence2,score\na,b,1\na,b,1e300\n",
        "a.csv:3: expected a number in 'score', as in .*a.csv:2, but '1e300' came",
    ),
    "one score in every row": (
        "a.csv",
        b"sentence1,sentence2,score\na,b,3\nc,d,3.0\n",
        "a.csv has 3 in 'score' in every row: nothing can be told apart by it",
    ),
    "one label in every row": ("a.csv", b"text1,text2,label\na,b,1\nc,d,1\n", "a.csv has 1 in 'label' in every row"),
    "one class in every row": ("a.csv", b"text,class\na,fish\nb,fish\n", "a.csv has 'fish' in 'class' in every row"),
    "NaN for a class": (
        "a.jsonl",
        b'{"text": "a", "label": "fish"}\n{"text": "a", "label": NaN}\n',
        "a.jsonl:2: expected a class in 'label', .* nan came",
    ),
    "nobody agreed on the class": (
        "a.csv",
        b"premise,hypothesis,label\na,b,1\na,b,-1\n",
        "a.csv:3: expected a class in 'label'",
    ),
    "a score now and then": (
        "a.csv",
        b"sentence1,sentence2,score\na,b,\na,b,3\n",
        "a.csv:3: has 'score', which .*a.csv:2 had not: rows must be of one shape",
    ),
    "a class now and then": ("a.csv", b"text,label\na,\nb,fish\n", "a.csv:3: has 'label', which .*a.csv:2 had not"),
    "negatives after none": (
        "a.jsonl",
        b'{"query": "a", "pos": ["b"], "neg": []}\n{"query": "a", "pos": ["b"], "neg": ["c"]}\n',
        "a.jsonl:2: has 'neg', which .*:1 had not",
    ),
    "a document now and then": ("a.csv", b"query,positive,doc_id\na,b,\na,b,d1\n", "a.csv:3: has 'doc_id', which"),
    "a document that is a table": (
        "a.jsonl",
        b'{"query": "a", "positive": "b", "doc_id": {"id": 1}}\n',
        "a.jsonl:1: expected the name of a document in 'doc_id'",
    ),
    "scores of no negative": ("a.jsonl", b'{"query": "a", "positive": "b", "scores": [1]}\n', "but no negative"),
    "more scores than texts": (
        "a.jsonl",
        b'{"query": "a", "pos": ["b"], "neg": ["c"], "scores": [3, 2, 1]}\n',
        r"a.jsonl:1: expected 2 numbers in 'scores', .* \[3, 2, 1\] came",
    ),
    "one score for two negatives": (
        "a.jsonl",
        b'{"query": "a", "positive": "b", "negative_1": "c", "negative_2": "d", "score": 3}\n',
        "a.jsonl:1: has one 'score' for 2 negatives: expected 'scores', the positive's and then each negative's",
    ),
    "one score for two negatives further down": (
        "a.jsonl",
        b'{"query": "a", "pos": "b", "neg": ["c"], "score": 3}\n{"query": "a", "pos": "b", "neg": ["c", "d"]}\n',
        "a.jsonl:2: has one 'score' for 2 negatives",
    ),
    "a margin that is no number": (
        "a.csv",
        b"query,positive,negative,score\na,b,c,1\na,b,c,\n",
        "a.csv:3: expected a number in 'score'",
    ),
    "a margin now and then": (
        "a.csv",
        b"query,positive,negative,score\na,b,c,\na,b,c,1\n",
        "a.csv:3: has 'score', which .*a.csv:2 had not",
    ),
    "a label beside a negative": (
        "a.csv",
        b"query,positive,negative,label\na,b,c,1\n",
        "a.csv:2: has 'label' beside a negative: expected 'scores', the positive's and then each negative's",
    ),
    "what may be pairs or texts": ("a.csv", b"query,text\na,b\n", "a.csv:2: has 'query' and 'text', which may be"),
    "lines of an old Mac": ("a.csv", b"query,positive\ra,b\r", "a.csv:1 has a carriage return within a line"),
    "zeros of a disk that was full": ("a.jsonl", b'{"query": "a", "positive": "b"}\n\0\0\0', "a.jsonl:2 is not JSON"),
    "an array": ("a.json", b'[{"query": "a", "positive": "b"}]', "a.json:1: expected an object .* each line, not list"),
    "a gzip that is damaged": (
        "a.jsonl.gz",
        gzip.compress(b"")[:10] + b"\x07" * 20,
        "a.jsonl.gz:1 is not whole gzip data .*: copy it here again",
    ),
    "UTF-16": ("a.csv", "query,positive\na,b\n".encode("utf-16"), "a.csv:1 is not UTF-8 .*: save it as UTF-8"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_data_is_told_with_file_and_line(name, tmp_path):
    file, content, message = WRONG[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError, match=message):
        data.prepare(tmp_path / file, tmp_path / "made")


def test_a_column_twice_in_parquet_is_told_and_times_are_passed_over(tmp_path):
    names = ["query", "query", "positive"]
    pq.write_table(pa.table([["a"], ["b"], ["c"]], names=names), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="a.parquet names the column 'query' twice"):
        data.prepare(tmp_path / "a.parquet", tmp_path / "made")
    far = pa.array([10**15], pa.timestamp("s"))  # beyond the dates of Python
    pq.write_table(pa.table({"query": ["a"], "positive": ["b"], "when": far}), tmp_path / "b.parquet")
    assert [row for _, row in rows(tmp_path / "b.parquet")] == [{"query": "a", "positive": "b"}]


def test_a_table_of_vectors_alone_is_told(tmp_path):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(8, np.float32)), 4)
    lance.write_dataset(pa.table({"vector": vectors}), tmp_path / "a.lance")
    with pytest.raises(InputError, match="a.lance, row 1: the columns 'vector' are no training data: expected query"):
        data.prepare(tmp_path / "a.lance", tmp_path / "made")


def test_half_a_character_in_a_documents_name_is_a_sign_like_others(tmp_path):
    dataset = data.prepare([PAIR | {"doc_id": "\ud800"}], tmp_path, held_out=0)
    assert dataset.table()["group"].to_pylist() == ["\ufffd"]


QRELS = {
    "a document that is not there": (b"q1\td1\t1\nq1\td9\t1\n", "train.tsv:2: corpus.jsonl has no 'd9': add it there"),
    "a query that is not there": (b"q1\td1\t1\nq9\td1\t1\n", "train.tsv:2: queries.jsonl has no 'q9': add it there"),
    "TREC's columns": (b"q1\t0\td1\t1\n", "train.tsv:1: expected query, document and a whole number as grade"),
    "nothing": (None, "train.tsv is missing: the splits that are there: none"),
}


@pytest.mark.parametrize("name", QRELS)
def test_judgements_of_what_is_not_there_are_told(name, tmp_path):
    content, message = QRELS[name]
    lines(tmp_path / "corpus.jsonl", {"_id": "d1", "text": "one"})
    lines(tmp_path / "queries.jsonl", {"_id": "q1", "text": "first"})
    if content is not None:
        (tmp_path / "qrels").mkdir()
        (tmp_path / "qrels" / "train.tsv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        data.prepare(tmp_path, tmp_path / "made")


def test_the_same_query_id_twice_is_told(tmp_path):
    lines(tmp_path / "corpus.jsonl", {"_id": "d1", "text": "one"})
    lines(tmp_path / "queries.jsonl", {"_id": "q1", "text": "first"}, {"_id": "q1", "text": "second"})
    with pytest.raises(InputError, match="queries.jsonl:2 has the id 'q1' for the second time"):
        data.prepare(tmp_path, tmp_path / "made")


def test_the_same_document_id_twice_is_told(tmp_path):
    lines(tmp_path / "corpus.jsonl", {"_id": "1", "text": "one"}, {"_id": 1, "text": "another"})
    with pytest.raises(InputError, match="corpus.jsonl:2 has the id '1' for the second time"):
        list(beir.documents(tmp_path))


def test_a_pipe_is_told(tmp_path):
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match="a.jsonl is a pipe or a device: expected a file or a folder"):
        data.prepare(tmp_path / "a.jsonl", tmp_path / "made")


def test_no_file_and_no_data_set_of_that_name(tmp_path):
    with pytest.raises(InputError, match="there is no file or folder"):
        data.prepare(tmp_path / "none.jsonl", tmp_path / "made")
    with pytest.raises(InputError, match="a folder without training data: .*; documents are for 'binocle tune'"):
        data.prepare(tmp_path, tmp_path / "made")
    with pytest.raises(InputError, match="'' is no name of data"):
        data.prepare("", tmp_path / "made")


def test_a_data_set_by_name_and_one_that_is_not_to_be_had(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    calls = []

    def load_dataset(name, configuration, split):
        if name == "no/such":
            raise datasets.exceptions.DatasetNotFoundError("Dataset 'no/such' doesn't exist\nand a second line")
        calls.append((name, configuration, split))
        return datasets.Dataset.from_list([PAIR])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert list(rows("owner/name:pair", "dev")) == [("owner/name, row 1", PAIR)]
    assert calls == [("owner/name", "pair", "dev")]
    with pytest.raises(InputError, match=r"there is no file or folder no/such, nor a data set .* doesn't exist\)$"):
        data.prepare("no/such", tmp_path / "made")
    for name in ("a text in place of a file", "-"):
        with pytest.raises(InputError, match=f"no file or folder '{name}', and no data set can have this name$"):
            data.prepare(name, tmp_path / "made")


# Held-out rows


def many(count, documents):
    return [{"query": f"query {n}", "positive": f"text {n}", "doc_id": f"d{n % documents}"} for n in range(count)]


def test_whole_documents_are_held_out(tmp_path):
    dataset = data.prepare(many(600, 60), tmp_path, held_out=0.1)
    groups = np.array(dataset.table()["group"].to_pylist())
    held_out, trained = set(groups[dataset.held_out()]), set(groups[dataset.training()])
    assert not held_out & trained
    assert len(dataset.held_out()) == 60
    assert len(dataset.held_out()) + len(dataset.training()) == 600


@pytest.mark.parametrize("seed", range(8))
def test_documents_are_held_out_in_the_order_of_their_hashes_while_they_fit(seed):
    random = np.random.default_rng(seed)
    keys = random.choice(random.integers(0, 2**63, 1 + 5 * seed).astype(np.uint64), random.integers(3, 90))
    for share, maximum in ((0.05, 1_000), (0.3, 1_000), (0.999, 1_000), (0.5, 4)):
        held_out = data.hold_out(keys, share, maximum, seed) == data.HELD_OUT
        target = min(maximum, round(share * len(keys)))
        different, counts = np.unique(keys, return_counts=True)
        salt = int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=8).digest(), "little")
        order = sorted(range(len(different)), key=lambda index: int(different[index]) ^ salt)
        if target and counts[order[0]] > target:  # the first one has too many rows
            order = [index for index in order if counts[index] <= target] or (
                [min(order, key=lambda index: counts[index])] if counts.min() <= maximum else []
            )
        taken = [different[index] for n, index in enumerate(order) if not n or counts[order[: n + 1]].sum() <= target]
        assert (held_out == np.isin(keys, taken if target and len(different) > 2 else [])).all()


def test_few_large_documents_are_not_held_out_whole():
    keys = np.repeat(np.array([5, 6, 7], np.uint64), (10_000, 10_000, 800))
    for seed in range(6):
        assert (data.hold_out(keys, 0.05, 1_000, seed) == data.HELD_OUT).nonzero()[0].tolist() == [
            *range(20_000, 20_800)
        ]
        assert (data.hold_out(keys, 0.01, 1_000, seed) == data.HELD_OUT).sum() == 800  # the smallest
        assert (data.hold_out(keys, 0.01, 700, seed) == data.HELD_OUT).sum() == 0


def test_another_seed_holds_out_others_and_the_same_seed_the_same(tmp_path):
    parts = [data.prepare(many(600, 60), tmp_path, held_out=0.1, seed=seed).part for seed in (1, 1, 2)]
    assert (parts[0] == parts[1]).all()
    assert (parts[0] != parts[2]).any()


def test_a_row_that_shares_a_text_with_a_held_out_one_is_in_neither_part(tmp_path):
    records = [{"query": f"q{n}", "positive": f"p{n}"} for n in range(100)]
    records += [{"query": f"Q{n} ", "positive": f"another {n}"} for n in range(100)]  # the same queries but for case
    dataset = data.prepare(records, tmp_path, held_out=0.2)
    table = dataset.table().to_pylist()
    held_out = {data.hash_of(table[n][name]) for n in dataset.held_out() for name in dataset.texts}
    trained = {data.hash_of(table[n][name]) for n in dataset.training() for name in dataset.texts}
    assert held_out
    assert not held_out & trained
    assert (dataset.part == data.LEFT_OUT).any()


def test_near_copies_are_one_text(tmp_path):
    copies = ["The “cat’s” mat — it's here…", "the cat's mat, it's\u00a0HERE", " the «cat’s» mat; it’s here. "]
    assert len(set(map(data.hash_of, copies))) == 1
    different = ["a + b", "a = b", "a b", "ab", "…", "?", "!", "猫。犬", "猫犬", "naïve", "naive", "के", "का"]
    assert len(set(map(data.hash_of, different))) == len(different)
    records = [{"query": f"{name} {n}", "positive": f"{text} {n}{end}"} for n in range(100)
               for name, text, end in (("q", "The text", "."), ("other", "the text,", " !"))]  # fmt: skip
    dataset = data.prepare(records, tmp_path, held_out=0.2)
    groups = np.arange(200) // 2
    assert len(dataset.held_out()) == 40
    assert not set(groups[dataset.held_out()]) & set(groups[dataset.training()])


def test_held_out_rows_of_ones_own_are_those(tmp_path):
    dev = lines(tmp_path / "dev.jsonl", {"query": "x", "positive": "y"})
    dataset = data.prepare([PAIR, {"query": "x", "positive": "z"}], tmp_path / "made", development=dev)
    assert dataset.held_out().tolist() == [2]
    assert dataset.training().tolist() == [0]  # the second shares its query


def test_held_out_rows_of_ones_own_that_cannot_be_are_told(tmp_path):
    for rows_held_out, message in (
        ((), r"dev\.jsonl holds no rows"),
        ((PAIR,), r"every row of the data .* one of .*dev\.jsonl$"),
    ):
        dev = lines(tmp_path / "dev.jsonl", *rows_held_out)
        with pytest.raises(InputError, match=message):
            data.prepare([PAIR], tmp_path / "made", development=dev)


def test_rows_that_can_be_read_once_are_held_out_by_others_too(tmp_path):
    dev = lines(tmp_path / "dev.jsonl", *many(5, 5))
    records = ({"query": f"q{n}", "positive": f"p{n}", "doc_id": "d"} for n in range(100))
    dataset = data.prepare(records, tmp_path / "made", development=dev)
    assert dataset.training().tolist() == list(range(100))
    assert dataset.held_out().tolist() == list(range(100, 105))


def test_labels_of_rows_and_of_those_held_out_are_of_one_kind(tmp_path):
    records = [{"text1": f"a{n}", "text2": f"b{n}", "label": n % 2} for n in range(4)]
    dev = lines(tmp_path / "dev.jsonl", {"text1": "c", "text2": "d", "label": 0.5})
    dataset = data.prepare(records, tmp_path / "made", development=dev)
    assert dataset.shape is Shape.SCORED
    assert dataset.table()["label"].to_pylist() == [0, 1, 0, 1, 0.5]


def test_what_was_prepared_is_loaded_as_it_was(tmp_path):
    dataset = data.prepare(lines(tmp_path / "many.jsonl", *many(50, 10)), tmp_path, held_out=0.2)
    data.save(dataset)
    again = data.load(tmp_path)
    assert data.describe(again) == data.describe(dataset)
    assert list(data.describe(dataset).items())[:2] == [("source", "many.jsonl"), ("shape", dataset.shape.value)]
    assert (again.shape, again.texts, again.classes) == (dataset.shape, dataset.texts, dataset.classes)
    assert (again.part == dataset.part).all()


def test_rows_are_taken_as_arrow_takes_them():
    batches = [
        pa.record_batch({"a": [f"{n}" for n in range(start, start + size)]}) for start, size in ((0, 5), (5, 1), (6, 9))
    ]
    table = pa.Table.from_batches(batches)
    for positions in ([14, 0, 5, 5, 7], [3], [], range(15)):
        numbers = np.array(list(positions), np.uint32)
        assert data.take(table, numbers).to_pylist() == table.take(pa.array(numbers)).to_pylist()


# Batches


def sampler(texts, size=4, *, different=True, seed=0):
    table = pa.table({"query": [text[0] for text in texts], "positive": [text[1] for text in texts]})
    return Batches(
        table,
        np.arange(len(texts), dtype=np.uint32),
        ("query", "positive"),
        batch_size=size,
        different=different,
        seed=seed,
    )


def test_an_epoch_gives_each_row_once_in_full_batches():
    batches = list(sampler([(f"q{n}", "x" * n + str(n)) for n in range(403)]))
    assert len(batches) == 100
    assert all(len(batch) == 4 for batch in batches)
    flat = [row for batch in batches for row in batch]
    assert len(set(flat)) == 400


def test_rows_of_a_batch_are_of_like_length():
    texts = [(f"q{n}", str(n).zfill(1 + n * 7 % 97)) for n in range(256)]
    spread = [np.ptp([len(texts[row][1]) for row in batch]) for batch in sampler(texts)]
    assert np.mean(spread) < 16  # 97 * 3 / 5 = 58 for rows that meet by chance


@pytest.mark.parametrize("count", [640, 2_000, 8_000])
def test_rows_meet_others_in_the_next_epoch(count):
    random = np.random.default_rng(0)
    batches = sampler([(f"q{n}", "x" * int(random.integers(1, 500)) + str(n)) for n in range(count)], size=32)
    epochs = []
    for epoch in range(2):
        batches.set_epoch(epoch)
        epochs.append(list(batches))
    owner = {row: number for number, batch in enumerate(epochs[1]) for row in batch}
    again = [owner.get(a, -1) == owner.get(b, -2) for batch in epochs[0] for a, b in itertools.combinations(batch, 2)]
    assert np.mean(again) < 5 * 31 / (count - 1)


@pytest.mark.parametrize(("count", "size", "epochs"), [(1_007, 64, 10), (127, 64, 2), (130, 8, 4)])
def test_every_epoch_leaves_out_other_rows(count, size, epochs):
    random = np.random.default_rng(0)
    lengths = random.integers(8, 300, count)
    batches = sampler([(f"q{n}", str(n).zfill(length)) for n, length in enumerate(lengths)], size)
    missing, rates = [], []
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        rows = [row for batch in batches for row in batch]
        assert len(rows) == len(set(rows)) == count // size * size
        missing.append(set(range(count)) - set(rows))
        rates.append(padding(lengths, list(batches)))
    assert all(first.isdisjoint(second) for first, second in itertools.pairwise(missing[: max(2, min(batches._sizes))]))
    assert not set.intersection(*missing)
    assert max(rates) < rates[0] + 0.01


def test_fewer_rows_than_a_batch_make_a_short_one():
    assert sorted(*sampler([(f"q{n}", f"p{n}") for n in range(3)], size=8)) == [0, 1, 2]


def padding(lengths, batches):
    cells = sum(len(batch) * lengths[batch].max() for batch in batches)
    return 1 - sum(lengths[batch].sum() for batch in batches) / cells


@pytest.mark.parametrize("count", [640, 2_000, 8_000])
def test_batches_need_little_more_padding_than_sorted_rows(count):
    lengths = np.random.default_rng(0).gamma(4, 150, count).astype(int) + 20
    ordered = np.argsort(lengths)[: count // 32 * 32].reshape(-1, 32)
    batches = list(sampler([("q" * 10, str(n).zfill(length)) for n, length in enumerate(lengths)], 32, different=False))
    by_chance = np.arange(count // 32 * 32).reshape(-1, 32)
    sorted_padding, random_padding = padding(lengths, ordered), padding(lengths, by_chance)
    assert padding(lengths, batches) < sorted_padding + (random_padding - sorted_padding) / 3


@pytest.mark.parametrize("groups", [1, 3])
def test_the_sizes_of_groups_need_the_least_padding_of_all_that_keep_to_the_limit(groups):
    lengths = np.repeat(np.arange(30, dtype=np.int32), 4)[::-1, None] ** 2
    sizes = length_groups.group_sizes(lengths, 4)

    def cells(sizes):
        starts = np.cumsum([0, *sizes])
        widths = [length_groups._expected_width(lengths[4 * a : 4 * b], 4) for a, b in itertools.pairwise(starts)]
        return sum(width * size for width, size in zip(widths, sizes, strict=True))

    assert sum(sizes) == 30
    for first, second in itertools.combinations(range(4, 27), 2):
        chosen = [30] if groups == 1 else [first, second - first, 30 - second]
        if min(chosen) >= 4:  # with four batches or more, rows do not meet again
            assert cells(sizes) <= cells(chosen)


def test_no_two_rows_meet_twice_in_a_cycle_of_a_group_of_a_prime_number_of_batches():
    rows, met = np.arange(7 * 5, dtype=np.uint32), set()
    for epoch in range(7):
        batches = length_groups.deal(rows, 7, epoch, np.random.default_rng(0))
        assert sorted(batches.reshape(-1)) == list(rows)
        pairs = {frozenset(pair) for batch in batches.tolist() for pair in itertools.combinations(batch, 2)}
        assert met.isdisjoint(pairs)
        met |= pairs


@pytest.mark.parametrize(("size", "batches"), [(32, 4), (32, 19), (32, 40), (5, 1), (1, 3)])
def test_the_share_of_rows_that_meet_again_is_that_of_the_batches(size, batches):
    rows = np.arange(size * batches, dtype=np.uint32)
    first, second = (length_groups.deal(rows, batches, epoch, np.random.default_rng(0)) for epoch in (0, 1))
    owner = {row: number for number, batch in enumerate(second.tolist()) for row in batch}
    again = [owner[a] == owner[b] for batch in first.tolist() for a, b in itertools.combinations(batch, 2)]
    assert length_groups.meeting_again(size, batches) == pytest.approx(np.mean(again) if again else 0)


def test_rows_that_share_a_text_exchange_places_with_rows_of_similar_length():
    """Each positive has five questions, as in SQuAD: they are neighbours by length."""
    lengths = np.repeat(np.random.default_rng(0).integers(50, 800, 400), 5)
    batches = list(sampler([(f"q{n}", f"p{n // 5}".ljust(length, "x")) for n, length in enumerate(lengths)], 32))
    assert all(len({row // 5 for row in batch}) == 32 for batch in batches)
    alone = list(sampler([("q", str(n).zfill(length)) for n, length in enumerate(lengths)], 32, different=False))
    assert padding(lengths, batches) < padding(lengths, alone) + 0.03


def test_no_text_is_twice_in_a_batch_where_it_must_not():
    texts = [(f"q{n % 11}", f"p{n % 23}") for n in range(200)]
    for batch in sampler(texts):
        assert len({texts[row][0] for row in batch}) == len({texts[row][1] for row in batch}) == len(batch)
    assert any(len({texts[row][0] for row in batch}) < len(batch) for batch in sampler(texts, different=False))


def test_epochs_differ_and_the_same_epoch_repeats():
    batches = sampler([(f"q{n}", f"p{n}") for n in range(40)])
    first = list(batches)
    assert list(batches) == first
    batches.set_epoch(1)
    assert list(batches) != first


def test_every_epoch_has_the_number_of_batches_that_it_says_whatever_the_duplicates():
    for texts in ([("same", f"p{n}") for n in range(30)], [(f"q{n % 3}", f"p{n}") for n in range(30)]):
        for epoch in range(3):
            batches = sampler(texts, seed=epoch)
            batches.set_epoch(epoch)
            assert len(list(batches)) == len(batches)


def test_rows_that_share_their_texts_make_short_batches_rather_than_a_large_one():
    texts = [(f"q{n}", ("yes", "no")[n % 2]) for n in range(200)]
    batches = list(sampler(texts))
    assert {len(batch) for batch in batches} == {2}
    assert len({row for batch in batches for row in batch}) == 100


def test_short_batches_are_of_other_rows_each_epoch():
    batches = sampler([(f"q{n}", f"p{n % 3}") for n in range(600)], size=32)
    batched = set()
    for epoch in range(5):
        batches.set_epoch(epoch)
        batched.update(row for batch in batches for row in batch)
    assert len(batched) > 200  # of 5 * 18 * 3 = 270 that are given


def test_rows_that_fit_no_batch_are_not_looked_at_again_in_every_window(monkeypatch):
    looked = []
    monkeypatch.setattr(module, "_WINDOW", 2)
    whole = Batches._hashes
    monkeypatch.setattr(Batches, "_hashes", lambda self, texts: looked.append(len(texts)) or whole(self, texts))
    list(sampler([(f"q{n}", f"p{n % 3}") for n in range(800)]))
    assert sum(looked) < 4 * 800


@pytest.mark.parametrize(("queries", "positives", "size"), [(40, 40, 8), (40, 3, 3), (2, 5, 2), (40, 1, 1)])
def test_a_batch_can_hold_as_many_rows_as_there_are_different_texts(queries, positives, size):
    table = pa.table(
        {"query": [f"q{n % queries}" for n in range(40)], "positive": [f"p{n % positives}" for n in range(40)]}
    )
    assert module.largest_batch(table, np.arange(40, dtype=np.uint32), ("query", "positive"), 8) == size
