"""Documents by id, by page, counts and facets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from binocle import F, NotFoundError, Retriever
from binocle.core.errors import DamagedError, InputError
from binocle.retriever.documents.document import metadata_of
from binocle.retriever.store.documents import readable
from binocle.retriever.store.tables import document_schema
from binocle.retriever.store.writer import open_writer


@pytest.fixture(scope="session")
def faq(tmp_path_factory, tiny_model):
    retriever = Retriever.open(tmp_path_factory.mktemp("faq"), model=tiny_model)
    retriever.add(
        {
            "id": f"{number:02}",
            "text": f"Document {number}. The cat sat.",
            "title": f"Number {number}",
            "metadata": {
                "odd": number % 2,
                "n": number,
                "tags": ["a", "b"][: number % 3],
                "name": f"name {number % 4}",
            },
        }
        for number in range(20)
    )
    retriever.add([{"id": "empty", "text": ""}])
    return retriever


def test_a_document_by_its_id_has_its_text_and_metadata(faq):
    record = faq.get("07")
    assert (record.id, record.text, record.title) == ("07", "Document 7. The cat sat.", "Number 7")
    assert record.metadata == {"odd": 1, "n": 7, "tags": ["a"], "name": "name 3"}
    assert (record.source, record.state, record.passages, record.vectors) == ("added", "indexed", 1, None)
    assert faq.get("empty").state == "skipped"
    assert hash(record) == hash(faq.get("07"))


def test_several_documents_come_in_the_order_of_their_ids(faq):
    assert [record.id for record in faq.get(["03", "empty", "01", "03"])] == ["03", "empty", "01", "03"]
    assert faq.get([]) == []


def test_the_vectors_of_a_document_are_those_of_its_passages(faq, tmp_path):
    first, empty = faq.get(["02", "empty"], vectors=True)
    text = first.title + "\n" + first.text
    np.testing.assert_allclose(first.vectors, faq.encoder.encode([text]), atol=1e-3)
    assert empty.vectors.shape == (0, faq.encoder.dim)


def test_documents_that_are_not_there_are_told(faq):
    with pytest.raises(NotFoundError, match=r"'x' is not in the index$"):
        faq.get("x")
    with pytest.raises(NotFoundError, match=r"'x' is not in the index, nor are 1 more of the 3 documents"):
        faq.get(["01", "x", "y"])
    with pytest.raises(NotFoundError):
        faq.text("x")
    with pytest.raises(NotFoundError):
        faq.similar("x", 1)
    assert issubclass(NotFoundError, InputError)


def test_an_index_knows_which_documents_it_has_and_how_many(faq):
    assert "01" in faq
    assert "empty" in faq
    assert "x" not in faq
    assert 3 not in faq
    assert len(faq) == 21
    assert bool(faq)


def test_documents_are_counted_by_a_filter(faq):
    assert faq.count() == 21
    assert faq.count({"odd": 1}) == 10
    assert faq.count(F.n < 5) == 5
    assert faq.count("n<5 and odd=1") == 2
    with pytest.raises(InputError, match="did you mean 'odd'"):
        faq.count({"od": 1})


@pytest.mark.parametrize("size", [1, 3, 256])
def test_documents_are_iterated_in_order_of_id_in_pages(size, faq, monkeypatch):
    monkeypatch.setattr("binocle.retriever.store.records._PAGE", size)
    names = [f"{number:02}" for number in range(20)]
    assert [record.id for record in faq.iterate()] == [*names, "empty"]
    assert [record.id for record in faq.iterate(F.odd == 1)] == names[1::2]
    assert [record.id for record in faq.iterate(after="05", limit=4)] == names[6:10]
    assert [record.id for record in faq.iterate(after="055", limit=1)] == ["06"]
    assert list(faq.iterate(limit=0)) == list(faq.iterate(after="z")) == []


def test_large_documents_come_in_smaller_pages(faq, monkeypatch):
    monkeypatch.setattr("binocle.retriever.store.records._PAGE_BYTES", 60)
    assert len(list(faq.iterate())) == 21


def test_facets_have_counts_and_the_least_and_the_greatest(faq):
    facets = faq.facets(["odd", "n", "tags", "name", "type", "size"])
    assert facets["odd"].counts == ((0, 10), (1, 10))
    assert (facets["n"].min, facets["n"].max, facets["n"].distinct, facets["n"].documents) == (0, 19, 20, 20)
    assert facets["tags"].counts == (("a", 13), ("b", 6))
    assert (facets["tags"].documents, facets["name"].min, facets["name"].max) == (13, "name 0", "name 3")
    assert facets["type"].counts == (("text", 21),)
    assert facets["size"].min == 0
    assert faq.facets("n", F.n > 15, limit=2)["n"].counts == ((16, 1), (17, 1))
    with pytest.raises(InputError, match="no document has 'tag' "):
        faq.facets("tag")


def test_values_of_different_types_are_counted_apart(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    values = [1, 1.0, "1", True, True, [1, 1, "1"]]
    retriever.add({"text": f"The cat sat {number}.", "metadata": {"v": value}} for number, value in enumerate(values))
    facet = retriever.facets("v")["v"]
    assert [(type(value), value, count) for value, count in facet.counts] == [
        (int, 1, 3),
        (bool, True, 2),
        (str, "1", 2),
    ]
    assert (facet.documents, facet.distinct, facet.min, facet.max) == (6, 3, 1, 1)


def test_a_facet_counts_a_document_once_that_has_1_and_1_0(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    values = [[1, 1.0], [1], [1.0, 2], ["1", 2.0], [0.5]]
    retriever.add({"text": f"The cat {n}.", "metadata": {"v": value}} for n, value in enumerate(values))
    facet = retriever.facets("v")["v"]
    assert dict(facet.counts) == {0.5: 1, 1: 3, "1": 1, 2: 2}
    assert (facet.documents, facet.distinct, facet.min, facet.max) == (5, 4, 0.5, 2)


def test_a_file_and_an_added_document_of_one_name_are_both_iterated(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": name, "text": f"The cat {name}"} for name in ("a", "b.txt", "c")])
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "b.txt").write_text("a file")
    retriever.sync(tmp_path / "notes")
    names = ["a", "b.txt", "b.txt", "c"]
    for limit in (1, 2, 3):
        found, after = [], None
        while page := list(retriever.iterate(after=after, limit=limit)):
            found += [record.id for record in page]
            after = page[-1].id
        assert found == names
    assert [record.id for record in retriever.iterate(limit=2)] == names[:3]
    assert list(retriever.iterate(limit=0)) == []


def test_value_that_only_a_foreign_index_has_is_neither_the_least_nor_the_greatest(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add({"id": value, "text": f"The cat {value}.", "metadata": {"v": value}} for value in "abc")
    with open_writer(retriever.snapshot().store) as writer:
        rows = writer.snapshot().documents.to_table(filter="path = 'c'").to_pylist()
        foreign = pa.Table.from_pylist([{**rows[0], "metadata": '{"v": NaN}'}], document_schema())
        writer.replace_rows(foreign)
    facet = Retriever.open(retriever.path).facets("v")["v"]
    assert (facet.min, facet.max, facet.documents) == ("a", "b", 3)


@pytest.mark.parametrize("mode", ["lexical", "semantic", "hybrid"])
def test_a_search_has_pages(mode, faq):
    whole = faq.search("the cat sat", 12, mode=mode, per_document=0)
    pages = [hit for offset in (0, 5, 10) for hit in faq.search("the cat sat", 5, mode=mode, offset=offset)]
    assert [(hit.rank, hit.path, hit.score) for hit in pages[:12]] == [(hit.rank, hit.path, hit.score) for hit in whole]
    assert faq.search("the cat sat", 5, mode=mode, offset=1_000) == []


def test_a_search_may_be_limited_to_some_documents(faq):
    hits = faq.search("the cat sat", mode="semantic", ids=["03", "07", "08", "nowhere"], where="odd=1")
    assert {hit.path for hit in hits} == {"03", "07"}
    assert faq.search("the cat sat", ids=[]) == []


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda index: index.get(3), "by an id or a list of ids, not by 3"),
        (lambda index: index.get(b"01"), "not by b'01'"),
        (lambda index: index.get([3]), "3 is not a document"),
        (lambda index: index.iterate(limit=-1), "limit is the number of documents"),
        (lambda index: index.iterate(after=3), "after is the id of a document, not 3"),
        (lambda index: index.search("cat", ids="01"), "ids is a list of ids or paths, not '01'"),
        (lambda index: index.search("cat", ids=[1]), "ids is a list of ids or paths"),
        (lambda index: index.search("cat", offset=-1), "offset is the number of passages to leave out"),
        (lambda index: index.search("cat", -1, offset=5), "k is the number of passages"),
        (lambda index: index.facets([3]), "facets are named by keys"),
        (lambda index: index.facets(None), "facets are named by keys"),
        (lambda index: index.text("01", lines=5), "lines are the first and the last one"),
        (lambda index: index.text("01", lines=(1, "x")), "a line is a whole number from 1"),
        (lambda index: index.facets("odd", limit=-1), "limit is the number of values"),
    ],
)
def test_what_cannot_be_read_is_refused(read, message, faq):
    with pytest.raises(InputError, match=message):
        read(faq)


def test_lines_that_end_before_they_begin_are_refused(faq):
    with pytest.raises(InputError, match=r"lines 2 to 1 of '07': the first comes after the last$"):
        faq.text("07", lines=(2, 1))


@pytest.mark.parametrize("metadata", ["{x", "[]", "[" * 100_000])
def test_metadata_that_is_not_what_was_written_is_damage(metadata, faq):
    row = faq.documents()[0] | {"metadata": metadata}
    for read in (readable, metadata_of):
        with pytest.raises(DamagedError, match=r"^the metadata of '00' is not what was written: .*says more$"):
            read(row)
