"""Metadata of any JSON value keep their shape in an index, and filters tell them apart."""

from __future__ import annotations

import importlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binocle import F, InputError, MissingExtraError, Retriever
from binocle.retriever.adapters.conversion.stored_values import unique_values
from binocle.retriever.adapters.conversion.values import (
    JSON_VALUES,
    contains,
    equals,
    exists,
    from_metadata,
    is_list,
    to_metadata,
)

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab\n\xe9", max_size=3)
KEYS = st.text("ab.", min_size=1, max_size=3)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2), max_leaves=5
)


@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_values_come_back_as_they_were(values):
    assert from_metadata(to_metadata(values)) == values


def test_metadata_of_another_origin_are_left_as_they_are():
    for strange in (7, ["no JSON"], ["[1]"], ["{}"], [7], "[" * 100_000):
        assert from_metadata({"a": 1, JSON_VALUES: strange}) == {"a": 1, JSON_VALUES: strange}
    with pytest.raises(InputError, match=JSON_VALUES):
        to_metadata({JSON_VALUES: 1})


VALUES = [None, "a", 1, True, 1.5, [], ["a"], ["a", "b"], [["a"]], {"b": "a"}, {}, "missing"]


@pytest.fixture(scope="session")
def index(tmp_path_factory, tiny_model):
    index = Retriever.open(tmp_path_factory.mktemp("values") / "index", model=tiny_model, durable=False)
    documents = ({"key": value} if value != "missing" else {} for value in VALUES)
    index.add(
        {"id": str(number), "text": "the cat", "metadata": to_metadata(values)}
        for number, values in enumerate(documents)
    )
    return index


@pytest.mark.parametrize("value", VALUES[:-1])
def test_a_value_equals_itself_alone(index, value):
    found = {int(record.id) for record in index.iterate(equals("key", value))}
    expected = {n for n, other in enumerate(VALUES) if other == value and type(other) is type(value)}
    assert found == expected | ({len(VALUES) - 1} if value is None else set())


def test_lists_are_told_from_other_values(index):
    def numbers(where):
        return [VALUES[int(record.id)] for record in index.iterate(where)]

    assert numbers(contains("key", "a")) == [["a"], ["a", "b"]]
    assert sorted(map(str, numbers(is_list("key")))) == sorted(map(str, [[], ["a"], ["a", "b"], [["a"]]]))
    assert len(numbers(exists("key"))) == len(VALUES) - 2
    assert numbers(equals("key.b", "a")) == [{"b": "a"}]


def test_values_of_another_origin_are_no_values_of_a_key(tmp_path, tiny_model):
    index = Retriever.open(tmp_path / "index", model=tiny_model, durable=False)
    index.add(
        [
            {"id": str(number), "text": "the cat", "metadata": {JSON_VALUES: [f'["key", {rest}']}}
            for number, rest in enumerate(('["a"]]', "no JSON", "", "[" * 9_000))
        ]
    )
    assert unique_values(index, "key") == [["a"]]


def test_a_filter_on_a_key_that_no_document_has_passes_nothing_if_it_asks_for_the_key_first(index):
    assert index.count(F.nobody.exists() & (F.nobody == 1)) == 0
    assert index.count(~(F.nobody.exists() & ((F.nobody == 1) | (F.nobody > 2)))) == len(VALUES)
    for where in (F.nobody.exists() | (F.nobody == 1), F.other.exists() & (F.nobody == 1)):
        with pytest.raises(InputError, match="no document has 'nobody'"):
            index.count(where)


@pytest.mark.parametrize(
    ("module", "package"),
    [("langchain", "langchain_core"), ("haystack", "haystack"), ("llama_index", "llama_index"), ("mteb", "mteb")],
)
def test_a_framework_that_is_not_installed_is_named_with_its_pip_line(module, package, monkeypatch):
    name = f"binocle.retriever.adapters.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'binocle\[{module}\]'"):
        importlib.import_module(name)
