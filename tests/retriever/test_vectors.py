"""Vectors come out of an index, and go into it: with a query, with a document, or instead of an encoder."""

from __future__ import annotations

import asyncio
import json
import pickle
import random
import shutil

import numpy as np
import pytest

from binocle import EncoderMismatchError, F, InputError, Retriever

TEXTS = {"a": "the cat sat", "b": "the dog ran home at night", "c": "a ship at sea", "d": "bread in the oven"}


def unit(*numbers):
    return np.array(numbers, np.float32) / np.float32(np.linalg.norm(numbers))


def paths(hits):
    return [hit.path for hit in hits]


@pytest.fixture
def notes(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "notes", model=tiny_model)
    retriever.add([{"id": name, "text": text} for name, text in TEXTS.items()])
    return retriever


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """An index without an encoder, not to be changed."""
    retriever = Retriever.open(tmp_path_factory.mktemp("given") / "index", encoder=None, dim=3)
    retriever.add(
        [
            {"id": "a", "text": "the cat sat", "embedding": [1, 0, 0], "metadata": {"n": 1}},
            {"id": "b", "embedding": [0, 2, 0], "title": "Dogs"},
            {"id": "c", "metadata": {"n": 3}},
            {"id": "d", "text": "\n\n a ship \n at sea \n", "embedding": np.array([0, 1, 1], np.float64)},
            {"id": "e", "text": " \n ", "embedding": (0.0, 0.1, 0.9)},
        ]
    )
    return retriever


@pytest.fixture
def given(shared, tmp_path):
    """A copy of that index."""
    return Retriever.open(shutil.copytree(shared.path, tmp_path / "given"))


# Out


def test_a_hit_has_the_stored_vector_of_its_passage(notes, tiny):
    hits = notes.search("cat", with_vectors=True)
    assert len(hits) == 4
    for hit in hits:
        assert hit.vector.dtype == np.float32
        np.testing.assert_allclose(hit.vector, tiny.encode([hit.context])[0], atol=1e-3)
        assert np.array_equal(hit.vector, notes.get(hit.path, vectors=True).vectors[0])
    assert notes.search("cat") == hits
    assert notes.search("cat")[0].vector is None
    assert notes.search("cat", where=F.path == "nowhere", with_vectors=True) == []


def test_documents_come_with_the_vectors_of_their_passages(retriever):
    records = list(retriever.iterate(vectors=True))
    assert all(len(record.vectors) == record.passages for record in records)
    assert sum(len(record.vectors) for record in records) == retriever.status().chunks
    assert all(record.vectors is None for record in retriever.iterate())


# A query's


def test_the_vector_of_a_text_finds_what_the_text_finds_by_meaning(notes, tiny):
    vector = tiny.encode(["dog"], kind="query")[0]
    by_text = notes.search("dog", mode="semantic")
    by_vector = notes.search(vector=5 * vector.astype(np.float64))
    assert paths(by_vector) == paths(by_text)
    assert by_vector[0].explanation["mode"] == "semantic"
    np.testing.assert_allclose([hit.score for hit in by_vector], [hit.score for hit in by_text], atol=1e-5)
    assert paths(notes.search("dog", vector=vector)) == paths(notes.search("dog"))


def test_words_come_from_the_text_and_meaning_from_the_vector(shared):
    hits = shared.search("ship", vector=[1, 0, 0])
    scores = {hit.path: hit.scores for hit in hits}
    assert scores["d"]["lexical"] > 0
    assert scores["a"]["semantic"] == pytest.approx(1)
    assert {hits[0].path, hits[1].path} == {"a", "d"}


def test_no_model_is_loaded_for_a_vector(notes, monkeypatch, tiny):
    vector = tiny.encode(["dog"], kind="query")[0]
    reader = Retriever.open(notes.path)
    monkeypatch.setattr("binocle.retriever.models.cache.load_encoder", None)
    assert paths(reader.search(vector=vector)) == paths(notes.search(vector=vector))
    assert reader.search("dog", vector=vector)[0].path == "b"


def test_many_vectors_are_searched_as_one_by_one(shared):
    vectors = random.Random(0).choices([[1, 0, 0], [0, 1, 0], [0, 1, 2]], k=5)
    texts = ["cat", "ship", "sea", "dogs", "nothing"]
    for options in ({"vectors": vectors}, {"vectors": np.array(vectors), "texts": texts}, {"texts": texts}):
        many = shared.search_many(k=2, **options)
        pairs = zip(options.get("texts") or [None] * 5, options.get("vectors", [None] * 5), strict=True)
        assert many == [shared.search(text, 2, vector=vector) for text, vector in pairs]
    assert paths(asyncio.run(shared.asearch(vector=[0, 1, 0], k=1))) == ["b"]
    assert shared.search_many([]) == shared.search_many(vectors=[]) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "there is no query: give a text, a vector, or both"),
        ({"vector": [1, 2]}, "the vector of the query has dimension 2, but the vectors of the index have 3"),
        ({"vector": [1, float("nan"), 0]}, "a number that is not finite"),
        ({"vector": [1, float("inf"), 0]}, "a number that is not finite"),
        ({"vector": [0, 0, 0]}, "the vector of the query is zero"),
        ({"vector": []}, "is empty: expected a list of numbers"),
        ({"vector": [None] * 32}, "is a list of NoneType: expected a list of numbers"),
        ({"vector": [[1, 2, 3]]}, r"an array of shape \(1, 3\)"),
        ({"vector": [[1], [2, 3]]}, "of type list"),
        ({"vector": "abc"}, "of type str"),
        ({"vector": ["1", "2", "3"]}, "is a list of str"),
        ({"vector": [1, 0, 0], "mode": "lexical"}, "mode 'lexical' searches by words, and a vector has none"),
        ({"vector": [1, 0, 0], "rerank": "x"}, "a reranker reads the words"),
        ({"vector": [1, 0, 0], "k": -1}, "k is the number of passages"),
        ({"vector": [1, 0, 0], "mode": "best"}, "there is no mode"),
        ({"query": "", "vector": [1, 0, 0]}, "the query is empty"),
        ({"query": "cat", "mode": "semantic"}, "this index has no encoder.*give the vector of the query"),
    ],
)
def test_a_vector_that_cannot_be_searched_for_is_refused(shared, options, says):
    with pytest.raises(InputError, match=says) as raised:
        shared.search(**options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "there are no queries"),
        ({"texts": "cat"}, "expected a list of queries"),
        ({"texts": 3}, "expected a list of queries"),
        ({"texts": ["a", "b"], "vectors": [[1, 0, 0]]}, "there are 2 queries and 1 vectors"),
        ({"vectors": [1, 0, 0]}, "the vector of the query is of type int"),
    ],
)
def test_many_queries_that_cannot_be_are_refused(shared, options, says):
    with pytest.raises(InputError, match=says):
        shared.search_many(**options)


def test_numbers_that_only_just_fit_a_float_have_a_direction(shared):
    assert paths(shared.search(vector=[1e308, 1e308, 0], k=2)) in (["a", "b"], ["b", "a"])
    assert paths(shared.search(vector=[0, 1e-300, 0], k=1)) == ["b"]


# A document's


def test_a_document_with_an_embedding_is_one_passage(notes):
    vector = np.eye(32, dtype=np.float32)[3]
    text = "a long story. " * 400
    report = notes.add([{"id": "long", "text": text, "title": "Tale", "embedding": vector}])
    assert (report.ids, report.embedded) == (["long"], 0)
    record = notes.get("long", vectors=True)
    assert (record.passages, record.text, record.state) == (1, text, "indexed")
    assert np.array_equal(record.vectors, [vector])
    hit = notes.search(vector=vector, k=1)[0]
    assert (hit.path, hit.text, hit.heading, hit.score) == ("long", text.strip(), ("Tale",), 1)
    assert not notes.verify(deep=True).faults


def test_an_embedding_is_of_one_document_even_if_others_have_its_text(notes, tiny):
    vector = np.eye(32, dtype=np.float32)[3]
    notes.add([{"id": "own", "text": TEXTS["a"], "embedding": vector}, {"id": "own 2", "text": TEXTS["a"]}])
    notes.add([{"id": "own 3", "text": TEXTS["a"], "embedding": -vector}, {"id": "own 4", "text": TEXTS["a"]}])
    vectors = {record.id: record.vectors[0] for record in notes.iterate(vectors=True)}
    assert np.array_equal(vectors["own"], vector)
    assert np.array_equal(vectors["own 3"], -vector)
    for name in ("own 2", "own 4"):
        assert np.array_equal(vectors[name], vectors["a"])


def test_the_same_document_with_another_embedding_is_another(given):
    document = {"id": "a", "text": "the cat sat", "metadata": {"n": 1}}
    assert given.add([document | {"embedding": [1, 0, 0]}]).unchanged == 1
    assert given.add([document | {"embedding": [1, 1, 0]}]).indexed == 1
    assert given.update(["a"], metadata={"n": 2}).indexed == 1
    assert given.add([document | {"metadata": {"n": 2}, "embedding": [2, 2, 0]}]).unchanged == 1
    np.testing.assert_allclose(given.get("a", vectors=True).vectors, [unit(1, 1, 0)])


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"text": "x"}, "has a text and no 'embedding', which this index needs: it has no encoder"),
        ({"text": "x", "embedding": [1, 2]}, "has dimension 2, but the vectors of the index have 3"),
        ({"embedding": [0, 0, 0]}, "the embedding of document 0 is zero"),
        (
            {"embedding": [1, np.nan, 0], "id": "q"},
            r"the embedding of document 0 \('q'\) has a number that is not finite",
        ),
        ({"embedding": "abc"}, "of type str: expected a list of numbers"),
        ({"id": "q"}, "document 0 \\('q'\\) has no text"),
        ({"text": None, "title": "x"}, "has no text"),
    ],
)
def test_a_document_that_an_index_without_an_encoder_cannot_hold_is_refused(shared, document, says):
    with pytest.raises(InputError, match=says) as raised:
        shared.add([document])
    assert "\n" not in str(raised.value)
    report = shared.add([document, {"id": "c", "metadata": {"n": 3}}], on_error="skip")
    assert (report.ids, [failure.number for failure in report.failures]) == (["c"], [0])
    assert len(shared) == 5


def test_an_embedding_keeps_its_length_beside_an_encoder_for_dot_products(make_model, tmp_path):
    model = make_model(tmp_path / "model", normalize=False)
    (model / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "dot"}', "utf-8")
    retriever = Retriever.open(tmp_path / "i", model=model)
    document = {"id": "own", "embedding": 7 * np.eye(32)[0]}
    retriever.add([document, {"id": "a", "text": TEXTS["a"]}])
    np.testing.assert_array_equal(retriever.get("own", vectors=True).vectors[0], 7 * np.eye(32)[0])
    assert np.linalg.norm(retriever.get("a", vectors=True).vectors[0]) != pytest.approx(1, abs=0.1)
    assert retriever.search(vector=np.eye(32)[0], k=1)[0].score == pytest.approx(7)
    assert retriever.add([document]).unchanged == 1
    assert retriever.add([document | {"embedding": 8 * np.eye(32)[0]}]).indexed == 1


# Instead of an encoder


def test_an_index_without_an_encoder_searches_texts_by_words_and_vectors_by_meaning(shared):
    assert paths(shared.search(vector=[0, 1, 0.1])) == ["b", "d", "e", "a"]
    assert [hit.explanation["mode"] for hit in shared.search("cat")] == ["lexical"]
    assert paths(shared.search("cat", vector=[0, 0, 1])[:1]) != []
    assert paths(shared.search(vector=[0, 0, 1], where=F.n == 1)) == ["a"]
    assert paths(shared.similar("a", 1))
    hit = shared.search(vector=[0, 1, 1], k=1)[0]
    assert (hit.path, hit.text, hit.line_start, hit.line_end) == ("d", "a ship \n at sea", 3, 4)
    assert shared.text("d")[hit.char_start : hit.char_end] == hit.text
    assert shared.context("cat", tokenizer=str.split).passages[0].path == "a"


def test_an_index_without_an_encoder_is_optimized_for_vectors_of_queries(tmp_path):
    random = np.random.default_rng(0)
    retriever = Retriever.open(tmp_path / "i", encoder=None, dim=4)
    retriever.add({"id": str(number), "embedding": vector} for number, vector in enumerate(random.normal(size=(60, 4))))
    result = retriever.optimize(0.9, queries=random.normal(size=(200, 4)), kinds=["flat"])
    assert result.choice and result.choice.spec.kind == "flat"
    assert retriever.search(vector=[1, 0, 0, 0], k=1)


def test_passages_without_text_are_no_copies_of_each_other(tmp_path):
    retriever = Retriever.open(tmp_path / "i", encoder=None, dim=2)
    retriever.add({"id": str(number), "embedding": [1, number]} for number in range(10))
    assert paths(retriever.search(vector=[0, 1], k=9)) == [str(number) for number in range(9, 0, -1)]


def test_an_index_without_an_encoder_can_be_opened_measured_verified_and_rebuilt(given, tmp_path):
    again = Retriever.open(given.path)
    assert paths(again.search(vector=[0, 1, 0.1])) == ["b", "d", "e", "a"]
    assert len(pickle.loads(pickle.dumps(given))) == len(Retriever.open(given.path, encoder=None, dim=3)) == 5
    status = again.status()
    assert (status.model, status.dim, status.documents["indexed"]) == ("", 3, 4)
    assert again.verify(deep=True).faults == []
    assert again.repair(deep=True).faults == []
    again.build_index("flat")
    again.warm_up()
    with again.batch() as batch:
        batch.add([{"id": "f", "embedding": [1, 1, 1]}])
        batch.delete("a")
    assert again.delete("b", erase=True).removed == 1
    assert again.verify().faults == []
    assert paths(again.search(vector=[1, 1, 1])) == ["f", "d", "e"]
    assert again.clear().removed == 4
    assert again.search(vector=[1, 1, 1]) == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda retriever: retriever.sync(retriever.path.parent), "it can only hold added documents"),
        (lambda retriever: retriever.optimize(), "has no encoder.*: give vectors of queries to optimize for"),
        (lambda retriever: retriever.optimize(queries=np.eye(3, 7)), "a query has dimension 7, but .* have 3"),
        (lambda retriever: retriever.context("cat"), "it cannot count tokens: give a tokenizer"),
        (lambda retriever: Retriever.open(retriever.path, model="x").add([{"embedding": [1, 2, 3]}]), "no encoder"),
        (lambda retriever: Retriever.open(retriever.path, encoder=None, dim=4).add([]), "dimension 3"),
    ],
)
def test_what_an_index_without_an_encoder_cannot_do_is_said_in_a_line(shared, call, says):
    before = shared.snapshot().head
    with pytest.raises((InputError, EncoderMismatchError), match=says) as raised:
        call(shared)
    assert "\n" not in str(raised.value)
    assert Retriever.open(shared.path).snapshot().head == before


def test_a_new_index_without_an_encoder_takes_no_folder(tmp_path, folder):
    retriever = Retriever.open(tmp_path / "i", encoder=None, dim=3)
    with pytest.raises(InputError, match="it can only hold added documents"):
        retriever.sync(folder)
    assert not (tmp_path / "i").exists()


def test_an_encoder_does_not_replace_given_vectors(given, notes, tiny_model, make_model, tmp_path):
    other = make_model(tmp_path / "other", seed=1)
    with pytest.raises(InputError, match="this index has no encoder.*there is none to replace"):
        given.switch(other)
    notes.add([{"id": "own", "text": "x", "embedding": np.eye(32)[0]}])
    with pytest.raises(EncoderMismatchError, match="1 document came with an embedding of their own"):
        notes.switch(other)
    notes.delete("own")
    assert notes.switch(other).switched


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dim": 3}, "needs both encoder=None and dim"),
        ({"encoder": None}, "needs both encoder=None and dim"),
        ({"encoder": "x", "dim": 3}, "name one by model="),
        ({"encoder": None, "dim": 0}, "dim is the dimension of vectors"),
        ({"encoder": None, "dim": True}, "dim is the dimension of vectors"),
        ({"encoder": None, "dim": 2**16}, "dim is the dimension of vectors"),
        ({"encoder": None, "dim": 3, "model": "x"}, "names one"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(tmp_path, options, says):
    with pytest.raises(InputError, match=says):
        Retriever.open(tmp_path, **options)


def test_an_index_with_an_encoder_is_not_opened_as_one_without(notes):
    with pytest.raises(EncoderMismatchError, match="open it without encoder=None"):
        Retriever.open(notes.path, encoder=None, dim=32).add([{"embedding": np.eye(32)[0]}])


def test_a_strangers_settings_load_no_model(given, monkeypatch):
    monkeypatch.setattr("binocle.retriever.store.foreign.trust.is_trusted", lambda *_: False)
    monkeypatch.setattr("binocle.retriever.models.cache.load_encoder", None)
    file = given.path / "HEAD.json"
    head = json.loads(file.read_text("utf-8"))
    for dim, says in ((4, "does not hold vectors of dimension 4"), (2**16, "is not what was written"), (0, "not what")):
        head["encoder"] |= {"dim": dim, "fingerprint": f"none-{dim}"}
        file.write_text(json.dumps(head), "utf-8")
        (given.path / "HEAD.previous.json").unlink(missing_ok=True)
        with pytest.raises(Exception, match=says):
            Retriever.open(given.path).search("cat", vector=[1, *[0] * (dim - 1)])
    head["encoder"] |= {"dim": 3, "fingerprint": "none-3"}
    file.write_text(json.dumps(head), "utf-8")
    stranger = Retriever.open(given.path)
    assert paths(stranger.search(vector=[1, 0, 0], k=1)) == paths(stranger.search("cat")) == ["a"]


def test_a_damaged_vector_of_a_document_is_put_back(given):
    table = given.snapshot().read("chunks", given.snapshot().chunks.schema.names)
    vectors = np.stack(table["vector"].to_pylist()).astype(np.float32)
    vectors[0] = [0, 0, 1]
    import lance
    import pyarrow as pa

    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 3)
    changed = table.set_column(table.schema.names.index("vector"), table.schema.field("vector"), column)
    written = lance.write_dataset(changed, str(given.path / "chunks.lance"), mode="overwrite")
    file = given.path / "HEAD.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | {"chunks": written.version}), "utf-8")
    again = Retriever.open(given.path)
    assert [fault.kind for fault in again.verify().faults] == ["vector index"]
    assert again.repair().vectors.wrong
    assert again.verify(deep=True).faults == []
    assert np.array_equal(again.get("a", vectors=True).vectors, [[1, 0, 0]])
