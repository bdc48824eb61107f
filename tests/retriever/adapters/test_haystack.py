"""Haystack's own tests of a document store, all its mixins, and ours of the components."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest

pytest.importorskip("haystack")

import haystack.testing.document_store as suite
import haystack.testing.document_store_async as asynchronous
from haystack import Document, Pipeline
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy
from haystack.errors import FilterError
from haystack.utils.filters import document_matches_filter

from binocle import F, InputError, Retriever
from binocle.retriever.adapters.haystack import (
    BinocleConverter,
    BinocleDocumentEmbedder,
    BinocleDocumentStore,
    BinocleRanker,
    BinocleRetriever,
    BinocleSplitter,
    BinocleTextEmbedder,
)
from binocle.retriever.store import records


@pytest.fixture
def document_store(tmp_path):
    return BinocleDocumentStore(Retriever.open(tmp_path / "index", encoder=None, dim=768, durable=False))


class TestDocumentStore(
    suite.DocumentStoreBaseExtendedTests,
    suite.CountDocumentsByFilterTest,
    suite.CountUniqueMetadataByFilterTest,
    suite.GetMetadataFieldsInfoTest,
    suite.GetMetadataFieldMinMaxTest,
    suite.GetMetadataFieldUniqueValuesTest,
    asynchronous.CountDocumentsAsyncTest,
    asynchronous.WriteDocumentsAsyncTest,
    asynchronous.DeleteDocumentsAsyncTest,
    asynchronous.DeleteAllAsyncTest,
    asynchronous.DeleteByFilterAsyncTest,
    asynchronous.FilterDocumentsAsyncTest,
    asynchronous.UpdateByFilterAsyncTest,
    asynchronous.CountDocumentsByFilterAsyncTest,
    asynchronous.CountUniqueMetadataByFilterAsyncTest,
    asynchronous.GetMetadataFieldsInfoAsyncTest,
    asynchronous.GetMetadataFieldMinMaxAsyncTest,
    asynchronous.GetMetadataFieldUniqueValuesAsyncTest,
):
    @pytest.fixture
    def document_store(self, document_store):
        return document_store

    @staticmethod
    def assert_documents_are_equal(received, expected):
        """A store has documents in order of id, and embeddings in 32 bits."""
        assert [document.id for document in received] == sorted(document.id for document in expected)
        for document, original in zip(received, sorted(expected, key=lambda document: document.id), strict=True):
            assert {**document.to_dict(), "embedding": None} == {**original.to_dict(), "embedding": None}
            assert (document.embedding is None) == (original.embedding is None)
            if document.embedding is not None:
                np.testing.assert_allclose(document.embedding, original.embedding, atol=1e-6)

    def test_write_documents(self, document_store):
        assert document_store.write_documents([Document(id="1", content="cat")]) == 1
        with pytest.raises(suite.DuplicateDocumentError):
            document_store.write_documents([Document(id="2", content="dog"), Document(id="1", content="dog")])
        assert document_store.count_documents() == 1

    async def test_write_documents_async(self, document_store):
        assert await document_store.write_documents_async([Document(id="1", content="cat")]) == 1


@pytest.fixture
def store(tmp_path, tiny_model):
    return BinocleDocumentStore(Retriever.open(tmp_path / "own", model=tiny_model, durable=False))


def test_every_field_of_a_document_comes_back(document_store):
    documents = [
        Document(id="a", content=None, blob=ByteStream(b"\0\xff", {"page": 1}, "image/png")),
        Document(id="b", content="", meta={"nested": {"a": [1, None, {"b": 2}]}, "tags": ["x"], "none": None}),
        Document(id="c", content="cat", score=0.5, sparse_embedding=SparseEmbedding([1, 7], [0.1, 0.2])),
        Document(id="d", content="dog", embedding=[0.0] * 768),
        Document(id="e", content="ship", embedding=[3.0, 4.0, *[0.0] * 766]),
        Document(id="f", content=None, embedding=[1.0, 0.5, *[0.0] * 766]),
    ]
    document_store.write_documents(documents)
    TestDocumentStore.assert_documents_are_equal(document_store.filter_documents(), documents)
    document_store.update_by_filter({"field": "id", "operator": "in", "value": ["a", "b"]}, {"tags": "y", "path": "p"})
    updated = {document.id: document for document in document_store.filter_documents()}
    assert updated["a"] == Document(id="a", blob=documents[0].blob, meta={"tags": "y", "path": "p"})
    assert updated["b"].meta == {**documents[1].meta, "tags": "y", "path": "p"}
    document_store.return_embedding = False
    assert all(document.embedding is None for document in document_store.filter_documents())
    with pytest.raises(InputError, match="binocle_length"):
        document_store.write_documents([Document(content="x", meta={"binocle_length": 1})])


def unit(*numbers):
    return [*map(float, numbers), *[0.0] * (768 - len(numbers))]


def test_an_embedding_finds_documents_with_embeddings_alone(document_store):
    document_store.write_documents(
        [
            Document(id="a", content="cat", embedding=unit(2, 1), meta={"n": 1}),
            Document(id="b", content="the cat and the dog", embedding=unit(0, 1), meta={"n": 2}),
            Document(id="c", content="cat without embedding", meta={"n": 3}),
        ]
    )
    retriever = BinocleRetriever(document_store, top_k=5)

    def ids(**request):
        return [document.id for document in retriever.run(**request)["documents"]]

    assert ids(query_embedding=unit(1, 0)) == ["a", "b"]
    assert ids(query_embedding=unit(0, 1), top_k=1) == ["b"]
    assert ids(query_embedding=unit(1), filters={"field": "meta.n", "operator": ">", "value": 1}) == ["b"]
    assert set(ids(query="cat")) == {"a", "b", "c"}
    assert ids(query="cat", query_embedding=unit(0, 1), top_k=0) == []
    (best,) = retriever.run(query_embedding=unit(1, 0), top_k=1)["documents"]
    assert best.embedding == pytest.approx(unit(2, 1), abs=1e-6)
    assert best.score == pytest.approx(2 / 5**0.5, abs=1e-3)
    assert asyncio.run(retriever.run_async(query_embedding=unit(1, 0), top_k=1))["documents"] == [best]
    with pytest.raises(InputError, match="expected a query or a query_embedding"):
        retriever.run()


def test_an_embedding_without_effect_is_refused(document_store):
    with pytest.raises(InputError, match="the reranker a-model reads the words of a query"):
        BinocleRetriever(document_store, rerank="a-model").run(query_embedding=unit(1))
    for query in ({}, {"query": "cat"}):
        with pytest.raises(InputError, match="expected a query, and no query_embedding"):
            BinocleRetriever(document_store, mode="lexical").run(query_embedding=unit(1), **query)


def test_a_pipeline_embeds_writes_finds_and_ranks(store, tiny_model, make_reranker, tmp_path):
    documents = [
        Document(content=text, meta={"title": text[:3]}) for text in ("the cat sat", "income tax", "the dog ran")
    ]
    embedded = BinocleDocumentEmbedder(tiny_model, ["title"]).run(documents)["documents"]
    assert all(document.embedding is None for document in documents)
    assert store.write_documents(embedded, DuplicatePolicy.OVERWRITE) == 3
    pipeline = Pipeline()
    pipeline.add_component("embedder", BinocleTextEmbedder(tiny_model))
    pipeline.add_component("retriever", BinocleRetriever(store, top_k=3))
    pipeline.add_component("ranker", BinocleRanker(str(make_reranker(tmp_path / "reranker")), top_k=2))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    pipeline.connect("retriever.documents", "ranker.documents")
    request = {"embedder": {"text": "cat"}, "ranker": {"query": "cat"}}
    best = pipeline.run(request)["ranker"]["documents"]
    assert len(best) == 2
    assert 1 > best[0].score >= best[1].score > 0
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["binocle"])
    assert again.run(request)["ranker"]["documents"] == best
    with pytest.raises(InputError, match="a scope cannot be written"):
        BinocleDocumentStore(store.index.scope(F.title == "the")).to_dict()


def test_a_converter_gives_the_documents_that_an_index_would_have(retriever, folder, store):
    texts = {str(folder / record.id): record.text for record in retriever.iterate() if record.text}
    pipeline = Pipeline()
    pipeline.add_component("converter", BinocleConverter())
    pipeline.add_component("writer", DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE))
    pipeline.connect("converter", "writer")
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["binocle"])
    for run in (pipeline, again):  # the second run replaces the documents
        assert run.run({"converter": {"sources": [folder]}}) == {"writer": {"documents_written": len(texts)}}
        assert {document.id: document.content for document in store.filter_documents()} == texts
    assert {document.meta["source"] for document in store.filter_documents()} == texts.keys()
    converter = BinocleConverter(exclude=["*.md"])
    fewer = asyncio.run(converter.run_async([str(folder)]))["documents"]
    assert 0 < len(fewer) < len(texts)
    with pytest.raises(InputError, match="a source is a path or a ByteStream, not bytes"):
        converter.run([b"text"])


def test_a_converter_reads_byte_streams_as_files():
    page = ByteStream(b"<title>Cats</title><p>The cat.</p>", {"url": "https://x.org/a.php", "team": "x"}, "text/html")
    mail = ByteStream(
        b"Subject: Plan\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\nSee below.\n"
        b"--x\nContent-Disposition: attachment; filename=plan.md\n\n# Plan\n\nSail.\n--x--\n",
        {"file_path": "box/7.eml"},
    )
    unnamed = ByteStream(b"# Notes\n", mime_type="text/markdown")
    documents = BinocleConverter().run([page, mail, unnamed])["documents"]
    assert [document.id for document in documents[:3]] == ["https://x.org/a.php", "box/7.eml/plan.md", "box/7.eml"]
    assert [document.meta["format"] for document in documents] == ["html", "markdown", "email", "markdown"]
    meta = {"url": page.meta["url"], "team": "x", "source": page.meta["url"], "title": "Cats", "format": "html"}
    assert documents[0].meta == meta
    assert documents[3].meta["source"] == "a byte stream" and len(documents[3].id) == 64
    with pytest.warns(UserWarning, match=r"^x\.png was not read: no reader"):
        assert BinocleConverter().run([ByteStream(b"\x89PNG", {"file_name": "x.png"})]) == {"documents": []}


def test_a_splitter_cuts_as_an_index_cuts(retriever, folder, tiny_model):
    documents = BinocleConverter().run(sources=[folder])["documents"]
    formats = {"markdown", "python", "text", "csv"}
    rows = retriever.snapshot().chunks.to_table(columns=["document", "char_start", "text", "context"]).to_pylist()
    table = retriever.snapshot().document_rows.select(["id", "path", "format"]).to_pylist()
    names = {row["id"]: str(folder / row["path"]) for row in table if row["format"] in formats}
    expected = {(names[row["document"]], row["char_start"], row["text"]) for row in rows if row["document"] in names}
    splitter = BinocleSplitter(tiny_model)
    passages = [part for part in splitter.run(documents)["documents"] if part.meta["format"] in formats]
    assert {(part.meta["source_id"], part.meta["split_idx_start"], part.content) for part in passages} == expected
    assert asyncio.run(splitter.run_async(documents)) == splitter.run(documents)
    with pytest.raises(InputError, match="has no text: expected documents with content"):
        splitter.run([Document(content=None, blob=ByteStream(b"x"))])
    embedder = BinocleDocumentEmbedder(tiny_model, meta_fields_to_embed=["heading"])
    headed = [part for part in passages if "heading" in part.meta]
    context = "\n".join([headed[0].meta["heading"], headed[0].content])
    assert context in {row["context"] for row in rows}
    assert (
        embedder.run(headed[:1])["documents"][0].embedding
        == BinocleDocumentEmbedder(tiny_model).run([Document(content=context)])["documents"][0].embedding
    )


def test_a_pipeline_converts_splits_and_writes(store, folder, tiny_model):
    pipeline = Pipeline()
    pipeline.add_component("converter", BinocleConverter())
    pipeline.add_component("splitter", BinocleSplitter(tiny_model))
    pipeline.add_component("writer", DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE))
    pipeline.connect("converter", "splitter")
    pipeline.connect("splitter", "writer")
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["binocle"])
    sizes = [run.run({"converter": {"sources": [folder]}})["writer"]["documents_written"] for run in (pipeline, again)]
    assert sizes[0] == sizes[1] == store.count_documents()
    (best,) = BinocleRetriever(store, top_k=1).run("cancel a task")["documents"]
    assert best.meta["heading"].startswith("Tasks") and best.meta["source"].endswith("tasks.md")


def test_passages_of_files_come_with_their_citation(request):
    index = Retriever.open(request.getfixturevalue("_synced"))
    where = {"field": "id", "operator": "==", "value": "notes/guide/tasks.md"}
    for store in (BinocleDocumentStore(index), BinocleDocumentStore(index.scope(F.path.exists()))):
        (document,) = BinocleRetriever(store, top_k=1, filters=where).run("cancel a task")["documents"]
        place = document.meta["citation"]
        assert document.content == index.text(place["path"])[place["char_start"] : place["char_end"]]
        assert (place["path"], place["heading"][0], document.meta["source"]) == (
            where["value"],
            "Tasks",
            where["value"],
        )


VALUES = [None, 0, 1, 2.5, -1, "a", "2020-01-01", "2021-02-03", ["a"], [1, 2], {"b": 1}]  # 1 is not True here
VALUES += [{"b": value} for value in (None, ["a"], [{"c": 1}], {"c": None}, {"c": ["a"]}, {})]


def test_a_write_to_a_path_waits_for_another_writer(retriever, write_beside):
    store = BinocleDocumentStore(retriever.path)
    assert write_beside(retriever.path, lambda: store.write_documents([Document(id="ship", content="A ship.")])) == 1


@pytest.mark.thorough
def test_random_filters_pass_what_haystack_passes(store):
    generator = random.Random(7)
    documents = [
        Document(
            id=str(n),
            content="cat",
            meta={key: value for key in "xyz" if (value := generator.choice(VALUES)) is not None},
        )
        for n in range(60)
    ]
    store.write_documents(documents)

    def comparison():
        operator = generator.choice(["==", "!=", ">", ">=", "<", "<=", "in", "not in"])
        key = generator.choice(["meta.x", "meta.y", "meta.z.b", "meta.x.b.c", "meta.y.b", "meta.nobody", "z"])
        if operator in ("in", "not in"):
            return {"field": key, "operator": operator, "value": generator.sample(VALUES, 3)}
        values = [0, 1, 2.5, None] if operator[0] in "<>" else VALUES
        return {"field": key, "operator": operator, "value": generator.choice(values)}

    def tree(depth):
        if depth == 0 or generator.random() < 0.4:
            return comparison()
        conditions = [tree(depth - 1) for _ in range(generator.randint(1, 3))]
        return {"operator": generator.choice(["AND", "OR", "NOT"]), "conditions": conditions}

    compared = 0
    while compared < 400:
        filters = tree(3)
        try:
            expected = {document.id for document in documents if document_matches_filter(filters, document)}
        except (FilterError, TypeError):  # it compares the order of a text and a number
            continue
        assert {document.id for document in store.filter_documents(filters)} == expected, filters
        compared += 1


def test_only_hits_of_a_filter_are_read(store, monkeypatch):
    store.write_documents([Document(id=str(n), content="cat", meta={"n": n}) for n in range(50)])
    read = []
    records_of = records._records
    monkeypatch.setattr(
        records, "_records", lambda snapshot, ids, **options: read.extend(ids) or records_of(snapshot, ids, **options)
    )
    three = {"field": "meta.n", "operator": "<", "value": 3}
    assert len(store.filter_documents(three)) == 3
    assert len(read) == 3
    assert store.count_documents_by_filter(three) == 3
    assert store.get_metadata_field_unique_values("n", filters=three) == ([0, 1, 2], 3)
    assert store.count_unique_metadata_by_filter(three, ["n", "meta.m"]) == {"n": 3, "m": 0}
    assert len(read) == 3
    assert BinocleRetriever(store, three, 2).run("cat")["documents"]
    assert len(read) == 5
    assert store.delete_by_filter(three) == 3
    assert len(read) == 5


def test_values_of_any_kind_are_counted_and_told_apart(store):
    values = [1, 1.0, "1", True, ["a", "b"], ["a", "b"], {"c": 1}, None]
    store.write_documents([Document(content=f"cat {n}", meta={"type": value}) for n, value in enumerate(values)])
    found, count = store.get_metadata_field_unique_values("meta.type")
    assert count == 6
    assert sorted(map(repr, found)) == sorted(map(repr, [1, 1.0, "1", True, ["a", "b"], {"c": 1}]))
    assert store.get_metadata_field_min_max("type") == {"min": 1, "max": 1}
    assert set(store.get_metadata_fields_info()) == {"type", "type.c"}


def test_a_filter_that_cannot_be_read_is_refused(store):
    for filters, problem in (
        ({"field": "content", "operator": "==", "value": "x"}, "cannot compare 'content'"),
        ({"field": "id", "operator": ">", "value": "x"}, "ids can be compared"),
        ({"field": "meta.x", "operator": "~", "value": 1}, "no operator '~'"),
        ({"operator": "XOR", "conditions": []}, "no operator 'XOR'"),
        ({"operator": "AND", "conditions": 5}, "conditions are a list of filters, not 5"),
        ({"field": 5, "operator": "==", "value": 1}, "a field has a name such as meta.year, not 5"),
        ({"field": "meta.x", "operator": ["=="], "value": 1}, "no operator"),
        ({"field": "meta.x", "operator": ">", "value": True}, "the order with True"),
    ):
        with pytest.raises(FilterError, match=problem):
            store.filter_documents(filters)
    no_condition = {"operator": "AND", "conditions": []}
    store.write_documents([Document(content="The cat sat on the mat.")])
    for filters in ({}, no_condition, {"operator": "NOT", "conditions": [{"operator": "OR", "conditions": []}]}):
        with pytest.raises(FilterError, match="delete_all_documents"):
            store.delete_by_filter(filters)
        with pytest.raises(FilterError, match="delete_all_documents"):
            store.update_by_filter(filters, {"read": True})
    assert store.count_documents() == 1


def test_wrong_arguments_are_refused(store, document_store, tiny_model):
    store.write_documents([Document(id="a", content="The cat sat on the mat.")])
    splitter, embedder = BinocleSplitter(str(tiny_model)), BinocleDocumentEmbedder(str(tiny_model))
    for call, problem in (
        (lambda: store.delete_documents("a"), "expected a list of ids, not 'a'"),
        (lambda: store.write_documents([Document(id="a", content="")], policy="skip"), "policy is a DuplicatePolicy"),
        (lambda: store.write_documents([Document(meta={1: 2})]), "a key of metadata is a text, not 1"),
        (lambda: document_store.write_documents([Document(id="b", embedding="x")]), "the embedding of document 'b' is"),
        (lambda: document_store.write_documents([Document(embedding=[np.nan] * 768)]), "a number that is not finite"),
        (lambda: BinocleRetriever(None), "expected a BinocleDocumentStore, not None"),
        (lambda: BinocleRetriever(store, top_k="3"), "at least 1, not '3'"),
        (lambda: BinocleRetriever(store, filter_policy="join"), "Unknown FilterPolicy type 'join'"),
        (lambda: BinocleConverter().run("notes"), "expected a list of sources, not 'notes'"),
    ):
        with pytest.raises(ValueError, match=problem):
            call()
    for component in (splitter, embedder):
        with pytest.raises(TypeError, match=r"expected a list of documents, not \['a text'\]"):
            component.run(["a text"])
    assert [document.content for document in store.filter_documents()] == ["The cat sat on the mat."]
    assert BinocleRetriever(store, filter_policy="merge").filter_policy is FilterPolicy.MERGE


def test_nothing_is_sent_to_the_makers_of_haystack():
    from haystack.telemetry import _telemetry

    assert _telemetry.telemetry is None  # as tests/conftest.py sets the environment
