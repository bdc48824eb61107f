"""LlamaIndex: the vector store against its own in-memory one, and the other classes."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("llama_index.core")

from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import (
    Document,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from pydantic import ValidationError

from binocle import F, InputError, NotFoundError, Retriever
from binocle.retriever.adapters.conversion.llama_index_filters import where_of
from binocle.retriever.adapters.llama_index import (
    BinocleEmbedding,
    BinocleNodeParser,
    BinocleReader,
    BinocleReranker,
    BinocleRetriever,
    BinocleVectorStore,
)
from binocle.retriever.store.documents import ids_passing

VALUES = [None, 0, 1, 2.5, -1, "", "a", "Ab", "a*b", "b[c", ["a"], ["a", "b"], [], [1, 2]]  # 1 is not True here
DIM = 8


def node(number, generator):
    metadata = {key: value for key in "xyz" if (value := generator.choice(VALUES)) is not None}
    parent = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc-{number % 5}")}
    embedding = [generator.gauss(0, 1) for _ in range(DIM)]
    text = generator.choice(["the cat sat", "income tax is due", "the ship sails the sea"])
    return TextNode(id_=f"n{number}", text=text, metadata=metadata, embedding=embedding, relationships=parent)


@pytest.fixture(scope="session")
def nodes():
    generator = random.Random(3)
    return [node(number, generator) for number in range(60)]


@pytest.fixture(scope="session")
def filled(tmp_path_factory, nodes):
    """A store that no test changes."""
    path = tmp_path_factory.mktemp("llama") / "index"
    store = BinocleVectorStore(Retriever.open(path, encoder=None, dim=DIM, durable=False))
    assert store.add(nodes) == [node.node_id for node in nodes]
    return store


@pytest.fixture(scope="session")
def simple(nodes):
    store = SimpleVectorStore()
    store.add(nodes)
    return store


@pytest.fixture
def store(tmp_path, nodes):
    store = BinocleVectorStore(tmp_path / "index", embedding_dim=DIM)
    store.add(nodes[:12])
    return store


def found(store, filters, count=100):
    query = VectorStoreQuery(query_embedding=[1.0] * DIM, similarity_top_k=count, filters=filters)
    return store.query(query)


def passing(store, filters):
    """The ids of the nodes that pass a filter, without the cost of a search and its texts."""
    snapshot = store.client.snapshot()
    rows = ids_passing(snapshot, where_of(filters))
    names = snapshot.document_rows
    return {name for name, row in zip(names["path"].to_pylist(), names["id"].to_pylist(), strict=True) if row in rows}


@pytest.mark.thorough
def test_random_filters_pass_what_the_simple_store_passes(filled, simple):
    generator = random.Random(11)
    compared, operators = 0, dict.fromkeys(FilterOperator, 0)
    while compared < 500 or min(operators.values()) < 20:
        parts = []
        for _ in range(generator.randint(1, 3)):
            value = generator.choice(VALUES) if generator.random() < 0.6 else generator.choice([["a", "b"], "a", 1])
            key = generator.choice(["x", "y", "z", "nobody", "doc_id"])
            parts.append(MetadataFilter(key=key, operator=generator.choice(list(FilterOperator)), value=value))
        filters = MetadataFilters(filters=parts, condition=generator.choice(list(FilterCondition)))
        try:
            ids, expected = passing(filled, filters), set(found(simple, filters).ids)
        except (InputError, TypeError):  # a text compared with a number, or a list that is none
            continue
        assert ids == expected, filters
        assert compared % 10 or set(found(filled, filters).ids) == expected, filters
        compared += 1
        for part in parts:
            operators[part.operator] += 1


@pytest.mark.parametrize(
    ("operator", "value"),
    [(">", None), (">=", ["a"]), ("in", 1), ("nin", "a"), ("any", 1), ("all", None), ("text_match", 1)],
)
def test_a_filter_without_a_meaning_is_refused(filled, operator, value):
    part = MetadataFilter(key="x", operator=operator, value=value)
    with pytest.raises(InputError, match="expected a"):
        found(filled, MetadataFilters(filters=[part]))


def test_filters_stand_in_each_other(filled, nodes):
    def has(key, value):
        return MetadataFilter(key=key, value=value)

    inner = MetadataFilters(filters=[has("x", "a"), has("y", "a")], condition=FilterCondition.OR)
    negated = MetadataFilters(filters=[inner], condition=FilterCondition.NOT)
    outer = MetadataFilters(filters=[negated, has("doc_id", "doc-1")], condition=FilterCondition.AND)
    expected = {
        node.node_id for node in nodes if node.ref_doc_id == "doc-1" and "a" not in map(node.metadata.get, ("x", "y"))
    }
    assert set(found(filled, outer).ids) == expected


def test_the_nearest_nodes_come_first_as_in_the_simple_store(filled, simple, nodes):
    for query in (nodes[3].embedding, [1.0] * DIM):
        request = VectorStoreQuery(query_embedding=query, similarity_top_k=7)
        result, expected = filled.query(request), simple.query(request)
        assert result.ids == expected.ids
        assert result.similarities == pytest.approx(expected.similarities, abs=1e-3)
        assert asyncio.run(filled.aquery(request)) == result
        for threshold in (0.2, 0.9):
            request.mode = VectorStoreQueryMode.MMR
            options = {"mmr_threshold": threshold}
            assert filled.query(request, mmr_prefetch_k=60, **options).ids == simple.query(request, **options).ids


def test_nodes_come_back_as_they_were(filled, nodes):
    (result,) = filled.query(VectorStoreQuery(query_embedding=nodes[3].embedding, similarity_top_k=1)).nodes
    assert result.to_dict() == {**nodes[3].to_dict(), "embedding": None}
    stored = {node.node_id: node for node in filled.get_nodes()}
    assert len(stored) == len(nodes)
    for original in nodes:
        node = stored[original.node_id]
        np.testing.assert_allclose(node.embedding, original.embedding, rtol=1e-5)
        assert {**node.to_dict(), "embedding": None} == {**original.to_dict(), "embedding": None}
    np.testing.assert_allclose(filled.get("n7"), nodes[7].embedding, rtol=1e-5)
    with pytest.raises(NotFoundError):
        filled.get("nobody")


def test_a_node_without_text_in_an_index_with_an_encoder_has_no_embedding(tmp_path, tiny_model):
    store = BinocleVectorStore(Retriever.open(tmp_path / "index", model=tiny_model))
    store.add([TextNode(id_="a", text="The cat."), TextNode(id_="b", text="")])
    assert len(store.get("a")) == 32
    with pytest.raises(NotFoundError, match="'b' has no embedding"):
        store.get("b")


def test_a_search_is_limited_to_nodes_and_documents(filled):
    request = {"query_embedding": [1.0] * DIM, "similarity_top_k": 100}
    assert set(filled.query(VectorStoreQuery(node_ids=["n1", "n2"], **request)).ids) == {"n1", "n2"}
    assert set(filled.query(VectorStoreQuery(doc_ids=["doc-2"], **request)).ids) == {f"n{n}" for n in range(2, 60, 5)}
    assert filled.query(VectorStoreQuery(doc_ids=["nobody"], **request)).ids == []
    assert len(filled.query(VectorStoreQuery(node_ids=[], doc_ids=[], **request)).ids) == 60
    filters = MetadataFilters(filters=[MetadataFilter(key="doc_id", value="doc-1")])
    assert {node.node_id for node in filled.get_nodes(["n1", "n2"], filters)} == {"n1"}


def test_words_are_searched_too(filled, nodes):
    for mode in ("sparse", "text_search"):
        result = filled.query(
            VectorStoreQuery(query_str="income", similarity_top_k=60, mode=VectorStoreQueryMode(mode))
        )
        assert set(result.ids) == {node.node_id for node in nodes if "income" in node.text}
    both = VectorStoreQuery(
        query_str="income", query_embedding=nodes[0].embedding, similarity_top_k=5, mode=VectorStoreQueryMode.HYBRID
    )
    assert len(filled.query(both).ids) == 5
    both.alpha = 0
    assert all("income" in node.text for node in filled.query(both).nodes)
    both.alpha = 1
    assert filled.query(both).ids[0] == "n0"
    both.alpha = 0.7
    for query, problem in (
        (both, "alpha is 0 for words"),
        (VectorStoreQuery(query_embedding=[1.0] * DIM, mode=VectorStoreQueryMode.SVM), "mode 'svm' is not possible"),
        (VectorStoreQuery(query_str="a", mode=VectorStoreQueryMode.MMR), "expected a query_embedding"),
    ):
        with pytest.raises(InputError, match=problem):
            filled.query(query)


def test_nodes_are_deleted_by_document_id_and_filter(store, nodes):
    def ids():
        return {node.node_id for node in store.get_nodes()}

    store.delete("doc-1")
    assert ids() == {f"n{n}" for n in range(12) if n % 5 != 1}
    store.delete_nodes(["n0"])
    asyncio.run(store.adelete("doc-2"))
    doc = MetadataFilters(filters=[MetadataFilter(key="doc_id", value="doc-3")])
    asyncio.run(store.adelete_nodes(filters=doc))
    assert ids() == {"n4", "n5", "n9", "n10"}
    with pytest.raises(InputError, match="clear"):
        store.delete_nodes()
    store.clear()
    assert ids() == set()
    assert asyncio.run(store.async_add(nodes[:2])) == ["n0", "n1"]
    assert [node.node_id for node in asyncio.run(store.aget_nodes())] == ["n0", "n1"]
    asyncio.run(store.aclear())
    assert found(store, None).ids == []


def test_an_empty_store_has_nothing(tmp_path):
    store = BinocleVectorStore(tmp_path / "index", embedding_dim=DIM)
    store.delete("doc-1")
    assert store.get_nodes() == []
    assert found(store, None).ids == []


def test_an_index_of_llama_index_is_filled_asked_and_changed(tmp_path, tiny_model):
    store = BinocleVectorStore(Retriever.open(tmp_path / "index", model=tiny_model, durable=False))
    embedding = BinocleEmbedding(tiny_model)
    index = VectorStoreIndex(
        [TextNode(id_=word, text=f"the {word} sat") for word in ("cat", "dog", "ship")],
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=embedding,
    )
    (best,) = index.as_retriever(similarity_top_k=1).retrieve("the ship sat")
    assert best.node.node_id == "ship"
    assert best.score == pytest.approx(1, abs=1e-3)
    again = VectorStoreIndex.from_vector_store(store, embed_model=embedding)
    again.insert_nodes([TextNode(id_="moon", text="the moon sat")])
    hybrid = again.as_retriever(similarity_top_k=2, vector_store_query_mode="hybrid")
    assert asyncio.run(hybrid.aretrieve("the moon sat"))[0].node.node_id == "moon"
    (best,) = BinocleRetriever(store.client, similarity_top_k=1).retrieve("the moon sat")
    assert best.node == store.query(VectorStoreQuery(query_str="the moon sat", similarity_top_k=1)).nodes[0]


def test_passages_of_files_come_with_their_citation(request):
    index = Retriever.open(request.getfixturevalue("_synced"))
    retriever = BinocleRetriever(index.scope(F.path == "notes/guide/tasks.md"), similarity_top_k=1)
    for (best,) in (retriever.retrieve("cancel a task"), asyncio.run(retriever.aretrieve("cancel a task"))):
        place = best.node.metadata["citation"]
        assert best.node.get_content() == index.text(place["path"])[place["char_start"] : place["char_end"]]
        assert best.node.ref_doc_id == best.node.metadata["source"] == "notes/guide/tasks.md"
        assert place["heading"][0] == "Tasks"
        assert "sha256" not in best.node.get_content("llm")


def test_a_reader_gives_the_documents_that_an_index_would_have(retriever, folder):
    texts = {str(folder / record.id): record.text for record in retriever.iterate() if record.text}
    documents = {document.id_: document for document in BinocleReader(folder).load_data()}
    assert {source: document.text for source, document in documents.items()} == texts
    assert {document.metadata["source"] for document in documents.values()} == texts.keys()
    assert len(BinocleReader(folder, exclude=["*.md"]).load_data()) < len(documents)
    assert VectorStoreIndex.from_documents(list(documents.values()), embed_model=MockEmbedding(8)).index_struct
    with pytest.raises(InputError, match="there is no folder or file nowhere"):
        BinocleReader("nowhere").load_data()


def cut(parser, documents):
    """The nodes of a parser, whose declared class has no text."""
    return parser(documents)


def test_a_node_parser_cuts_as_an_index_cuts(retriever, folder):
    parser = BinocleNodeParser(retriever)
    documents = BinocleReader(folder).load_data()
    for document in documents:
        document.excluded_embed_metadata_keys = list(document.metadata)
    formats = {"markdown", "text", "csv"}  # the word "heading" takes tokens of its own, which cuts code elsewhere
    rows = retriever.snapshot().chunks.to_table(columns=["document", "text", "heading"]).to_pylist()
    names = retriever.snapshot().document_rows.select(["id", "path", "format"]).to_pylist()
    ids = {row["id"]: str(folder / row["path"]) for row in names if row["format"] in formats}
    expected = {
        (ids[row["document"]], row["text"], " > ".join(row["heading"])) for row in rows if row["document"] in ids
    }
    nodes = [node for node in cut(parser, documents) if node.metadata["format"] in formats]
    assert {(node.ref_doc_id, node.text, node.metadata.get("heading", "")) for node in nodes} == expected
    assert len({node.metadata["format"] for node in nodes}) == len(formats)


def test_nodes_of_a_parser_fit_the_encoder_with_their_metadata_and_know_their_places(tiny):
    text = "# Cats\n\n" + "The cat sat on the mat. " * 200 + "\n\n# Dogs\n\n" + "The dog ran. " * 9
    document = Document(id_="a", text=text, metadata={"file_name": "x/guide.md", "team": "the cats and the dogs"})
    parser = BinocleNodeParser(tiny)
    nodes = cut(parser, [document])
    assert len(nodes) > 9
    assert [node.metadata["heading"] for node in (nodes[0], nodes[-1])] == ["Cats", "Dogs"]
    for before, node in pairwise(nodes):
        assert node.prev_node.node_id == before.node_id and before.next_node.node_id == node.node_id
        assert before.end_char_idx <= node.start_char_idx
    for node in nodes:
        assert node.ref_doc_id == "a" and node.metadata["team"] == "the cats and the dogs"
        assert text[node.start_char_idx : node.end_char_idx] == node.text
        assert len(tiny.offsets([node.get_content(MetadataMode.EMBED)])[0]) <= tiny.max_tokens
    again = asyncio.run(parser.aget_nodes_from_documents([document]))
    assert [node.get_content() for node in again] == [node.get_content() for node in nodes]
    stored = IngestionPipeline(transformations=[parser, BinocleEmbedding(tiny)]).run(documents=[document])
    assert len(stored[0].embedding) == tiny.dim
    long = Document(text="the cat " * 99, metadata={"to": "the dogs " * 99})  # more metadata than fits
    assert len(parser([long])) > 1


@pytest.mark.parametrize(
    ("metadata", "heading"),
    [
        ({"format": "markdown"}, "A"),
        ({"file_path": "/x/a.MD"}, "A"),
        ({"format": "pdf", "title": "Mine"}, "Mine"),
        ({"file_name": "a.pdf"}, None),
        ({}, None),
        ({"format": 3, "title": 4, "source": 5}, None),
    ],
)
def test_a_text_is_cut_as_its_format_says(tiny, metadata, heading):
    nodes = BinocleNodeParser(tiny)([Document(text="# A\r\n\r\nthe cat", metadata=metadata)])
    assert [node.metadata.get("heading") for node in nodes] == [heading]
    assert BinocleNodeParser(tiny)([Document(text=" ", metadata=metadata)]) == []


def test_a_reranker_keeps_the_best_nodes(make_reranker, tmp_path):
    reranker = BinocleReranker(str(make_reranker(tmp_path / "reranker")), top_n=2)
    nodes = [NodeWithScore(node=TextNode(text=text), score=9) for text in ("the cat", "a tax", "the sea")]
    best = reranker.postprocess_nodes(nodes, query_str="cat")
    assert len(best) == 2
    assert 1 > best[0].score >= best[1].score > 0
    assert asyncio.run(reranker.apostprocess_nodes(nodes, query_bundle=QueryBundle("cat"))) == best
    assert [node.score for node in nodes] == [9, 9, 9]
    with pytest.raises(InputError, match="no query"):
        reranker.postprocess_nodes(nodes)


def test_an_embedding_gives_the_vectors_of_the_encoder(tiny):
    embedding = BinocleEmbedding(tiny)
    texts = ["the cat", "income tax"]
    np.testing.assert_allclose(embedding.get_text_embedding_batch(texts), tiny.encode(texts), atol=1e-5)
    np.testing.assert_allclose(embedding.get_query_embedding("cat"), tiny.encode(["cat"], kind="query")[0], atol=1e-5)
    assert asyncio.run(embedding.aget_query_embedding("cat")) == embedding.get_query_embedding("cat")
    assert asyncio.run(embedding.aget_text_embedding_batch(texts)) == embedding.get_text_embedding_batch(texts)


def test_a_write_to_a_path_waits_for_another_writer(retriever, write_beside):
    store = BinocleVectorStore(retriever.path)
    assert write_beside(retriever.path, lambda: store.add([TextNode(id_="ship", text="A ship.")])) == ["ship"]


def test_options_that_do_not_exist_are_refused(filled, tiny, make_reranker, tmp_path):
    with pytest.raises(ValidationError, match="foo"):
        BinocleEmbedding(tiny, foo=1)
    for options in ({"top_k": 1}, {"top_n": -1}):
        with pytest.raises(ValidationError, match=next(iter(options))):
            BinocleReranker(str(make_reranker(tmp_path / "reranker")), **options)
    query = VectorStoreQuery(query_embedding=[1.0] * DIM)
    for call in (
        lambda: filled.query(query, where="x=1"),
        lambda: filled.add([], where="x=1"),
        lambda: filled.delete("doc-1", where="x=1"),
        lambda: filled.delete_nodes(["n1"], where="x=1"),
        lambda: asyncio.run(filled.async_add([], where="x=1")),
        lambda: asyncio.run(filled.adelete("doc-1", where="x=1")),
        lambda: asyncio.run(filled.adelete_nodes(["n1"], where="x=1")),
    ):
        with pytest.raises(InputError, match="no option 'where' here"):
            call()
