from __future__ import annotations

import pyarrow as pa
import pytest

from binocle import F, Retriever
from binocle.core.errors import InputError
from binocle.retriever.documents.document import SOURCE_CODE
from binocle.retriever.documents.sections import qualified_name
from binocle.retriever.readers.plain_text.definitions import GRAMMARS

pytest.importorskip("tree_sitter")

BODY = "\n".join(f"        value_{number} = work({number}) + other({number})" for number in range(30))
SOURCE = f"""import os


class Box:
    def open(self):
{BODY}

    def close(self):
{BODY}


def first():
    return 1


def second():
    return 2
"""


@pytest.fixture(scope="session")
def index(tmp_path_factory, tiny_model):
    folder = tmp_path_factory.mktemp("symbols")
    (folder / "box.py").write_text(SOURCE)
    (folder / "notes.md").write_text("# Box.open\n\nIt opens the box.\n")
    retriever = Retriever.open(folder, model=tiny_model)
    retriever.sync()
    retriever.add([{"id": "share", "text": "A share of a company.", "metadata": {"symbol": "ACME"}}])
    return retriever


def test_a_heading_above_a_block_of_code_is_no_symbol(tmp_path, tiny_model):
    (tmp_path / "guide.md").write_text("# Guide\n\n## Install\n\n```sh\npip install it\n```\n")
    retriever = Retriever.open(tmp_path, model=tiny_model)
    retriever.sync()
    assert [hit.symbols for hit in retriever.search("pip install", mode="lexical")] == [()]
    assert not retriever.search("pip install", where=F.symbol.exists(), mode="lexical")


def test_formats_with_symbols_are_those_with_a_grammar():
    assert set(GRAMMARS) == SOURCE_CODE


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("Box", "open"), "Box.open"),
        (("impl Read for File", "read"), "File.read"),
        (("impl<T: Ord> Tree<T>", "insert"), "Tree.insert"),
        (("impl<'a, T> From<&'a T> for Vec<T>", "from"), "Vec.from"),
        (("implement",), "implement"),
    ],
)
def test_a_qualified_name_is_of_the_type_that_is_implemented(path, name):
    assert qualified_name(path) == name


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "lexical"])
@pytest.mark.parametrize(
    ("name", "holds"), [("Box.open", "def open"), ("close", "def close"), ("second", "def second")]
)
def test_a_search_for_a_symbol_finds_passages_of_its_definition_alone(index, mode, name, holds):
    query = f"{name.rpartition('.')[2]} value return"
    hits = index.search(query, 50, mode=mode, where=F.symbol == name, per_document=0)
    assert hits
    assert {hit.path for hit in hits} == {"box.py"}
    assert any(holds in hit.text for hit in hits)
    for hit in hits:
        assert name in {*hit.symbols, *(symbol.rpartition(".")[2] for symbol in hit.symbols)}


def test_small_definitions_in_one_passage_are_all_named(index):
    (hit,) = index.search("return", 20, where="symbol=first")
    assert {"first", "second"} <= {*hit.symbols}


def test_filters_on_symbols_join_with_those_on_documents(index):
    everything = {hit.passage for hit in index.search("value box", 50, per_document=0)}
    named = {hit.passage for hit in index.search("value box", 50, where="symbol=Box.*", per_document=0)}
    others = {hit.passage for hit in index.search("value box", 50, where="not symbol=Box.*", per_document=0)}
    assert named
    assert named | others == everything
    assert not named & others
    assert index.search("value", where=(F.symbol == "Box.open") & (F.type == "md")) == []
    assert index.search("value", where=F.symbol == "Box.shut") == []
    both = index.search("value", 50, where=(F.symbol == "open") | (F.path == "notes.md"), per_document=0)
    assert {hit.path for hit in both} == {"box.py", "notes.md"}


def test_a_document_with_its_own_symbol_is_found_by_it(index):
    (hit,) = index.search("share", where=F.symbol == "ACME")
    assert (hit.path, hit.symbols) == ("share", ())
    with pytest.raises(InputError, match="symbol"):
        index.search("share", where=F.symbl == "ACME")


def test_documents_with_a_symbol_are_those_with_a_passage_that_has_it(index):
    from binocle.retriever.store.documents import ids_passing

    (number,) = ids_passing(index.snapshot(), F.symbol == "Box.open")
    assert index.snapshot().passing(F.symbol == "Box.open").documents.tolist() == [number]
    assert index.snapshot().documents_by_id([number])[number]["path"] == "box.py"


def test_an_index_without_stored_symbols_has_those_of_its_headings(tmp_path, tiny_model):
    from binocle.retriever.store import tables

    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "box.py").write_text(SOURCE)
    schema = tables.chunk_schema
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("binocle.retriever.store.store.chunk_schema", lambda dim: schema(dim, symbols=False))
        Retriever.open(folder, model=tiny_model).sync()
    retriever = Retriever.open(folder)
    assert not retriever.snapshot().has_symbols
    hits = retriever.search("value", 20, where=F.symbol == "Box.open", per_document=0)
    assert {hit.symbols for hit in hits} == {("Box.open",)}
    (folder / "more.py").write_text(SOURCE.replace("Box", "Bag"))
    retriever.sync()
    assert retriever.search("value", where=F.symbol == "Bag.open")[0].path == "more.py"
    retriever.switch(tiny_model)
    assert retriever.search("value", where=F.symbol == "Bag.open")
    assert retriever.verify().faults == []


def test_a_column_of_another_type_is_no_column_of_symbols(tmp_path, tiny_model):
    from binocle.retriever.store import tables

    schema = tables.chunk_schema
    (tmp_path / "box.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        strange = pa.field("symbols", pa.int64())
        patch.setattr(
            "binocle.retriever.store.store.chunk_schema", lambda dim: schema(dim, symbols=False).append(strange)
        )
        Retriever.open(tmp_path, model=tiny_model).sync()
    retriever = Retriever.open(tmp_path)
    assert not retriever.snapshot().has_symbols
    hits = retriever.search("value", where=F.symbol == "open")
    assert {hit.symbols for hit in hits} == {("Box.open",)}
