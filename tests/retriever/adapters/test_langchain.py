"""LangChain's own tests of stores, retrievers and embeddings, and further tests of ours."""

from __future__ import annotations

import asyncio
import shutil
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("langchain_tests")

from langchain_core import indexing as langchain_indexing
from langchain_core.documents import Document
from langchain_core.documents.base import Blob
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import InMemoryRecordManager
from langchain_core.structured_query import Comparator, Comparison, Operation, Operator
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import (
    EmbeddingsIntegrationTests,
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)
from langchain_tests.unit_tests import EmbeddingsUnitTests
from pydantic import ValidationError

from binocle import F, InputError, Retriever
from binocle.retriever.adapters.langchain import (
    BinocleEmbeddings,
    BinocleLoader,
    BinocleParser,
    BinocleReranker,
    BinocleRetriever,
    BinocleVectorStore,
)


@pytest.fixture
def store(tmp_path, tiny_model):
    return BinocleVectorStore(Retriever.open(tmp_path / "index", model=tiny_model, durable=False))


class TestVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, store):
        return store


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _index(self, files):
        self.index = Retriever.open(files)

    retriever_constructor = BinocleRetriever
    retriever_query_example = "the cat sat on the mat"

    @property
    def retriever_constructor_params(self):
        return {"index": self.index}


class TestEmbeddings(EmbeddingsIntegrationTests):
    embeddings_class = BinocleEmbeddings

    @pytest.fixture(autouse=True)
    def _model(self, tiny):
        self.encoder = tiny

    @property
    def embedding_model_params(self):
        return {"model": self.encoder}


class TestEmbeddingsUnit(EmbeddingsUnitTests):
    embeddings_class = BinocleEmbeddings

    @pytest.fixture(autouse=True)
    def _model(self, tiny):
        self.encoder = tiny

    @property
    def embedding_model_params(self):
        return {"model": self.encoder}


TEXTS = {"a": "the cat sat on the mat", "b": "income tax is due", "c": "the ship sails the sea", "d": "bake the bread"}
METADATA = [
    {"team": "x", "year": 2020, "tags": ["p", "q"], "path": "own", "author": {"name": "Ada"}},
    {"team": "y", "year": 2021, "tags": [], "note": None},
    {"team": "x", "year": 2022, "nested": [{"a": [1, None]}]},
    {"year": 2023.5, "team": ["x"], "draft": True},
]


@pytest.fixture
def filled(store):
    store.add_texts(list(TEXTS.values()), METADATA, ids=list(TEXTS))
    return store


def test_metadata_of_any_json_value_comes_back_as_it_was(filled):
    assert [document.metadata for document in filled.get_by_ids(list(TEXTS))] == METADATA
    assert [document.page_content for document in filled.get_by_ids(["d", "nobody", "a"])] == [TEXTS["d"], TEXTS["a"]]
    (found,) = filled.similarity_search("the ship sails the sea", k=1)
    assert found.metadata == METADATA[2]
    with pytest.raises(InputError, match="of type set cannot be kept"):
        filled.add_texts(["x"], [{"a": {1}}])
    with pytest.raises(InputError, match="2 texts and 1 metadatas"):
        filled.add_texts(["x", "y"], [{}])


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        (None, "abcd"),
        ({}, "abcd"),
        ({"team": "x"}, "ac"),
        ({"team": ["x"]}, "d"),
        ({"nobody": 1}, ""),
        ({"year": {"$gte": 2021, "$lt": 2023}}, "bc"),
        ({"year": {"$in": [2020, 2022]}}, "ac"),
        ({"year": {"$nin": [2020, 2022]}}, "bd"),
        ({"year": {"$between": [2021, 2023.5]}}, "bcd"),
        ({"nobody": {"$ne": 1}}, "abcd"),
        ({"team": {"$ne": "x"}}, "bd"),
        ({"tags": {"$contains": "q"}}, "a"),
        ({"tags": "q"}, ""),
        ({"path": "own"}, "a"),
        ({"author.name": "Ada"}, "a"),
        ({"author": {"name": "Ada"}}, "a"),
        ({"note": None}, "abcd"),
        ({"draft": True}, "d"),
        ({"draft": 1}, ""),
        ({"tags": {"$exists": True}}, "ab"),
        ({"draft": {"$exists": False}}, "abc"),
        ({"team": {"$like": "%x"}}, "acd"),
        ({"$or": [{"team": "y"}, {"year": 2020}]}, "ab"),
        ({"$not": {"$or": [{"team": "y"}, {"year": 2020}]}}, "cd"),
        ({"$and": [{"team": "x"}, {"year": 2020}]}, "a"),
        (F.year > 2021, "cd"),
        (Operation(operator=Operator.NOT, arguments=[Comparison(comparator=Comparator.EQ, attribute="team", value="x")]), "bd"),
        (Comparison(comparator=Comparator.CONTAIN, attribute="tags", value="p"), "a"),
    ],
)  # fmt: skip
def test_filters_of_langchain_choose_documents(langchain_index, where, ids):
    found = langchain_index.similarity_search("the", k=10, filter=where)
    assert {document.id for document in found} == set(ids)


@pytest.fixture(scope="session")
def langchain_index(tmp_path_factory, tiny_model):
    path = tmp_path_factory.mktemp("langchain") / "index"
    store = BinocleVectorStore(Retriever.open(path, model=tiny_model, durable=False), mode="semantic")
    store.add_texts(list(TEXTS.values()), METADATA, ids=list(TEXTS))
    return store


def test_a_filter_that_cannot_be_read_is_refused(langchain_index):
    for where, problem in (
        ({"year": {"$near": 1}}, r"no operator \$near"),
        ({"$or": {"a": 1}}, "joins a list"),
        ({"$and": ["year>2020"]}, "a part of a filter is a mapping"),
        ({"$not": "year>2020"}, "a part of a filter is a mapping"),
        ({"$nor": [{"year": 2020}]}, r"no operator \$nor"),
        ({"year": {"$between": [2020]}}, "a list of two bounds"),
        ({"team": {"$like": 7}}, "with a text"),
        ({"year": {"$gte": 2020, "lt": 2023}}, "no operator lt: expected one of "),
        (lambda _: True, "cannot be a function"),
    ):
        with pytest.raises(InputError, match=problem):
            langchain_index.similarity_search("the", filter=where)


def test_a_threshold_of_relevance_leaves_out_the_rest(langchain_index):
    found = langchain_index.similarity_search_with_relevance_scores("the cat sat on the mat", k=4)
    scores = [score for _, score in found]
    assert all(0 <= score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)
    threshold = (scores[0] + scores[-1]) / 2
    expected = [document.id for document, score in found if score >= threshold]
    retriever = langchain_index.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"k": 4, "score_threshold": threshold}
    )
    assert [document.id for document in retriever.invoke("the cat sat on the mat")] == expected


def test_a_whole_document_is_found_once_however_many_of_its_passages_match(store):
    text = "\n\n".join(f"The cat and the dog ran to the house at night in year {n}." for n in range(40))
    store.add_texts([text, "income tax"], ids=["long", "short"])
    found = store.similarity_search("cat and dog at night", k=4)
    assert [document.id for document in found] == ["long", "short"]
    assert found[0].page_content == text


@pytest.fixture
def files(request):
    """The index of a folder, which no test changes."""
    return request.getfixturevalue("_synced")


def test_passages_of_files_come_with_their_citation(files):
    index = Retriever.open(files)
    where = F.path == "notes/guide/tasks.md"
    for found in (
        BinocleRetriever(index=index, k=1, filter=where).invoke("cancel a task"),
        BinocleRetriever(index=str(files), k=1).invoke("cancel a task", filter=where),
        BinocleRetriever(index=index.scope(where), k=1).invoke("cancel a task"),
        BinocleVectorStore(index).similarity_search("cancel a task", k=1, filter=where),
        asyncio.run(BinocleRetriever(index=index, k=1, filter=where).ainvoke("cancel a task")),
    ):
        (document,) = found
        place = document.metadata["citation"]
        text = index.text(place["path"])
        assert document.page_content == text[place["char_start"] : place["char_end"]]
        assert document.metadata["source"] == place["path"] == "notes/guide/tasks.md"
        assert text.splitlines()[place["line_start"] - 1] in document.page_content
        assert place["heading"][0] == "Tasks"
        lines = "{line_start}-{line_end}".format_map(place)
        assert place["text"] == f"notes/guide/tasks.md:{lines} ({place['heading'][-1]})"
        assert document.id == f"{place['path']}#{place['char_start']}-{place['char_end']}"


def test_a_loader_reads_files_as_an_index_has_them_and_makes_none(files, tmp_path):
    index = Retriever.open(files)
    folder = shutil.copytree(files, tmp_path / "files", ignore=shutil.ignore_patterns(".binocle"))
    before = sorted(folder.rglob("*"))
    documents = {document.id: document for document in BinocleLoader(folder).lazy_load()}
    records = {str(folder / record.id): record for record in index.iterate() if record.state == "indexed"}
    assert documents.keys() == records.keys() and len(records) > 3
    for source, document in documents.items():
        record = records[source]
        assert (document.page_content, document.metadata["title"]) == (record.text, record.title)
        assert document.metadata["source"] == source and document.metadata["format"] == record.format
    assert sorted(folder.rglob("*")) == before
    assert asyncio.run(BinocleLoader(folder).aload()) == list(documents.values())


def test_a_loader_reads_one_file_members_of_files_and_no_text_that_is_hidden(tmp_path):
    (tmp_path / "page.html").write_text("<title>A page</title><p>Seen.</p><p style='display:none'>Unseen.</p>")
    with zipfile.ZipFile(tmp_path / "notes.zip", "w") as archive:
        archive.writestr("inner.md", "# Cats\n\nThe cat sat.\n")
    (document,) = BinocleLoader(tmp_path / "page.html").load()
    assert "Seen." in document.page_content and "Unseen." not in document.page_content
    assert document.metadata["title"] == "A page" and "hidden" not in document.metadata
    sources = [document.metadata["source"] for document in BinocleLoader(tmp_path, exclude=["*.html"]).load()]
    assert sources == [str(tmp_path / "notes.zip/inner.md"), str(tmp_path / "notes.zip")]  # with the names of its files
    with pytest.raises(InputError, match="there is no folder or file nowhere"):
        BinocleLoader("nowhere").load()
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    with pytest.warns(UserWarning, match=r"broken\.pdf was not read: "):
        assert len(BinocleLoader(tmp_path).load()) == 3


def test_a_parser_reads_what_the_loader_reads(files):
    loaded = {document.id: document for document in BinocleLoader(files).load()}
    assert len({document.metadata["format"] for document in loaded.values()}) > 3
    parser, parsed = BinocleParser(), {}
    for path in filter(Path.is_file, map(Path, loaded)):
        documents = parser.parse(Blob.from_path(path))
        assert parser.parse(Blob.from_data(path.read_bytes(), path=str(path))) == documents
        parsed |= {document.id: document for document in documents}
    assert parsed == loaded


def test_a_parser_names_the_files_in_a_file_and_keeps_the_metadata_of_the_blob(tmp_path):
    with zipfile.ZipFile(tmp_path / "notes.zip", "w") as archive:
        archive.writestr("inner.md", "# Cats\n\nThe cat sat.\n")
    data = (tmp_path / "notes.zip").read_bytes()
    blob = Blob.from_data(data, path="s3://bucket/notes.zip", metadata={"team": "x", "title": "Mine"})
    inner, outer = BinocleParser().parse(blob)
    assert (inner.id, outer.id) == ("s3://bucket/notes.zip/inner.md", "s3://bucket/notes.zip")
    assert inner.metadata == {"source": inner.id, "title": "Mine", "format": "markdown", "team": "x"}
    named = Blob.from_path(tmp_path / "notes.zip", metadata={"source": "upload 7"})
    assert [document.id for document in BinocleParser().parse(named)] == ["upload 7/inner.md", "upload 7"]


@pytest.mark.parametrize(
    ("data", "path", "mimetype", "expected"),
    [
        ("# Cats\n\nThe cat.", None, "text/markdown", ("markdown", "Cats", "# Cats\n\nThe cat.")),
        ("def a(): ...\n", "https://x.org/a.py", "text/plain", ("python", "", "def a(): ...")),
        ("<p>Café</p><p hidden>No</p>", "https://x.org/a.php?b=/c.py", "text/html", ("html", "", "Café")),
        (b'{"a": 1}', "notes", "application/json", ("json", "", '{"a": 1}')),
        ("plain \ud800", None, None, ("text", "", "plain")),
    ],
)
def test_a_parser_takes_the_format_from_the_name_or_the_type(data, path, mimetype, expected):
    (document,) = BinocleParser().parse(Blob.from_data(data, path=path, mime_type=mimetype))
    assert (document.metadata["format"], document.metadata["title"]) == expected[:2]
    assert document.page_content.startswith(expected[2])
    assert (document.id, document.metadata["source"]) == (path, path or "a blob")


def test_a_file_that_is_asked_for_and_not_read_gives_a_warning(tmp_path):
    for blob in (Blob.from_data(b"\x89PNG", path="a/b.png"), Blob.from_data(b"%PDF-1.4 broken", path="a/b.pdf")):
        with pytest.warns(UserWarning, match=r"^a/b\.p(ng|df) was not read: "):
            assert BinocleParser().parse(blob) == []
    (tmp_path / "b.png").write_bytes(b"\x89PNG")
    assert BinocleLoader(tmp_path).load() == []
    with pytest.warns(UserWarning, match=r"b\.png was not read: no reader for \.png files"):
        assert BinocleLoader(tmp_path / "b.png").load() == []
    with pytest.raises(InputError, match="there is no folder or file nowhere"):
        BinocleParser().parse(Blob.from_path("nowhere"))


def test_a_reranker_keeps_the_best_documents_and_changes_none(make_reranker, tmp_path):
    reranker = BinocleReranker(model=str(make_reranker(tmp_path / "reranker")), top_n=2)
    documents = [Document(page_content=text, metadata={"n": n}) for n, text in enumerate(TEXTS.values())]
    best = reranker.compress_documents(documents, "cat")
    scores = reranker.model.score("cat", list(TEXTS.values()))
    assert [document.metadata["n"] for document in best] == scores.argsort()[::-1][:2].tolist()
    assert 1 > best[0].metadata["relevance_score"] >= best[1].metadata["relevance_score"] > 0
    assert all("relevance_score" not in document.metadata for document in documents)
    assert asyncio.run(reranker.acompress_documents(documents, "cat")) == best


@pytest.mark.parametrize("cleanup", ["full", "incremental"])
def test_indexing_follows_its_source(store, cleanup):
    records = InMemoryRecordManager("test")
    records.create_schema()

    def index(*texts):
        documents = [Document(page_content=text, metadata={"source": text[0]}) for text in texts]
        result = langchain_indexing.index(
            documents, records, store, cleanup=cleanup, source_id_key="source", key_encoder="sha256"
        )
        return result["num_added"], result["num_updated"], result["num_skipped"], result["num_deleted"]

    def texts():
        return sorted(document.page_content for document in store.similarity_search("the", k=10))

    assert index("a cat", "a dog", "b tax") == (3, 0, 0, 0)
    assert index("a cat", "a dog", "b tax") == (0, 0, 3, 0)
    assert index("a cat", "b bread") == (1, 0, 1, 2)
    assert texts() == ["a cat", "b bread"]
    assert index("b tax") == (1, 0, 0, 2 if cleanup == "full" else 1)
    assert texts() == (["b tax"] if cleanup == "full" else ["a cat", "b tax"])


def test_a_store_is_made_from_texts_and_emptied(tmp_path, tiny_model):
    store = BinocleVectorStore.from_texts(["cat", "dog"], index=Retriever.open(tmp_path / "index", model=tiny_model))
    assert len(store.similarity_search("cat")) == 2
    store.delete()
    assert store.similarity_search("cat") == []
    with pytest.raises(InputError, match="expected one as index="):
        BinocleVectorStore.from_texts(["cat"])
    with pytest.raises(InputError, match="expected a Retriever"):
        BinocleVectorStore(3)


def test_the_loop_is_free_while_a_store_searches(langchain_index):
    async def search():
        beats = 0

        async def beat():
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0)

        beating = asyncio.create_task(beat())
        found = await asyncio.gather(*(langchain_index.asimilarity_search("the cat", k=2) for _ in range(8)))
        beating.cancel()
        return beats, found

    beats, found = asyncio.run(search())
    assert beats > 8
    assert all(documents == found[0] for documents in found)


class Letters(Embeddings):
    """The numbers of a few letters in a text."""

    def embed_query(self, text):
        return [float(text.count(letter)) for letter in "abcd"]

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


def test_a_store_takes_the_vectors_of_any_embeddings(tmp_path):
    path = tmp_path / "vectors"
    store = BinocleVectorStore(path, Letters())
    texts = ["aaa", "aab", "bbb", "ccc"]
    store.add_texts(texts, [{"n": n} for n in range(4)], ids=texts)
    store = BinocleVectorStore(path, Letters(), mode="semantic")
    found = store.similarity_search_with_score("aaaaab", k=2)
    assert [document.id for document, _ in found] == ["aaa", "aab"]
    assert found[1][1] == pytest.approx(11 / (26 * 5) ** 0.5, abs=1e-3)
    assert [document.id for document in store.similarity_search_by_vector([0, 0, 1, 0], k=1)] == ["ccc"]
    assert [document.id for document in store.similarity_search("aab", mode="lexical")] == ["aab"]
    assert store.similarity_search_by_vector([0, 1, 0, 0], k=1, filter={"n": {"$ne": 2}})[0].id == "aab"
    for chosen in (
        store.max_marginal_relevance_search("aaac", k=2, fetch_k=4, lambda_mult=0.5),
        store.max_marginal_relevance_search_by_vector([3, 0, 1, 0], k=2, fetch_k=4, lambda_mult=0.5),
        asyncio.run(store.amax_marginal_relevance_search("aaac", k=2, fetch_k=4, lambda_mult=0.5)),
        store.as_retriever(search_type="mmr", search_kwargs={"k": 2, "fetch_k": 4}).invoke("aaac"),
    ):
        assert [document.id for document in chosen] == ["aaa", "ccc"]
    nearest = store.max_marginal_relevance_search("aaac", k=2, fetch_k=4, lambda_mult=1)
    assert [document.id for document in nearest] == ["aaa", "aab"]


def test_a_diverse_choice_uses_the_encoder_of_the_index(langchain_index):
    reference = InMemoryVectorStore(BinocleEmbeddings(langchain_index.index))
    reference.add_texts(list(TEXTS.values()), ids=list(TEXTS))
    for query in ("the cat", "income", "sea"):
        options = {"k": 3, "fetch_k": 4, "lambda_mult": 0.3}
        found = langchain_index.max_marginal_relevance_search(query, **options)
        expected = reference.max_marginal_relevance_search(query, **options)
        assert [document.id for document in found] == [document.id for document in expected]


def test_options_that_do_not_exist_are_refused(langchain_index, tiny_model, make_reranker, tmp_path):
    index = langchain_index.index
    for options in ({"where": {"team": "x"}}, {"filters": {"team": "x"}}, {"k": -1}, {"min_relevance": 7.0}):
        with pytest.raises(ValidationError, match=next(iter(options))):
            BinocleRetriever(index=index, **options)
    model = str(make_reranker(tmp_path / "reranker"))
    for options in ({"top_k": 1}, {"top_n": -1}):
        with pytest.raises(ValidationError, match=next(iter(options))):
            BinocleReranker(model=model, **options)
    with pytest.raises(InputError, match="expected filter= or where=, not both"):
        langchain_index.similarity_search("the", filter={"team": "x"}, where={"team": "y"})
    with pytest.raises(InputError, match="no option 'metadata' here: expected ids, batch_size"):
        langchain_index.add_texts(["a text"], metadata=[{"team": "x"}])
    with pytest.raises(InputError, match="no option 'filter' here: expected none"):
        langchain_index.delete(filter={"team": "x"})
    retriever = BinocleRetriever(index=index)
    for search in (
        lambda: langchain_index.similarity_search("the", fliter={"team": "x"}),
        lambda: langchain_index.max_marginal_relevance_search("the", fliter={"team": "x"}),
        lambda: langchain_index.as_retriever(search_kwargs={"fliter": {"team": "x"}}).invoke("the"),
        lambda: retriever.invoke("the", fliter={"team": "x"}),
        lambda: asyncio.run(retriever.ainvoke("the", fliter={"team": "x"})),
    ):
        with pytest.raises(InputError, match="no option 'fliter' here: expected filter, .*min_relevance"):
            search()
    with pytest.raises(InputError, match="no option 'where' here"):
        retriever.invoke("the", where={"team": "x"})


def test_a_write_to_a_path_waits_for_another_writer(retriever, write_beside):
    store = BinocleVectorStore(retriever.path)
    assert write_beside(retriever.path, lambda: store.add_texts(["A ship."], ids=["ship"])) == ["ship"]


def test_one_text_or_id_is_no_list_of_them(langchain_index):
    """The letters of a text are no texts, and those of an id are no ids: "faq-1" deleted nothing, and said nothing."""
    for call, problem in (
        (lambda: langchain_index.add_texts("a text"), "expected a list of texts, not 'a text'"),
        (lambda: langchain_index.add_texts(None), "expected a list of texts, not None"),
        (lambda: langchain_index.add_texts(["a", "b"], ids="ab"), "expected a list of ids, not 'ab'"),
        (lambda: langchain_index.delete("faq-1"), "expected a list of ids, not 'faq-1'"),
        (lambda: langchain_index.get_by_ids("faq-1"), "expected a list of ids, not 'faq-1'"),
        (lambda: langchain_index.add_texts(["a"], ["b"]), "metadata are a mapping of names to values, not 'b'"),
        (lambda: langchain_index.add_texts(["a"], [{1: 2}]), "a key of metadata is a text, not 1"),
    ):
        with pytest.raises(InputError, match=problem):
            call()
