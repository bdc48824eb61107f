"""A scope shows, adds and deletes the documents of one tenant, whatever its caller asks."""

from __future__ import annotations

import json
import random

import pytest

from binocle import F, Filter, NotFoundError, Retriever
from binocle.core.errors import BinocleError, InputError

TENANTS = ["t1", "t2", "T1", "t*", "", "1"]
WORDS = ["cat", "queen", "moon", "secret", "invoice", "bread"]


def documents():
    for number in range(60):
        tenant = TENANTS[number % len(TENANTS)]
        mark = f"{tenant}-owned" if tenant != "t1" else "mine"
        yield {
            "id": f"d/{number}" if number % 5 else f"{tenant}/",
            "text": f"The {WORDS[number % 5]} of {mark} number{number} sat.",
            "title": mark,
            "metadata": {"tenant": tenant, "n": number, f"only {tenant}": 1, "mark": mark, "path": f"d/{number}"},
        }


@pytest.fixture(scope="module")
def shared(tmp_path_factory, tiny_model):
    retriever = Retriever.open(tmp_path_factory.mktemp("shared"), model=tiny_model)
    retriever.add(documents())
    return retriever


@pytest.fixture
def index(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(
        [
            {"id": "a", "text": "The cat sat.", "metadata": {"tenant": "t1"}},
            {"id": "b", "text": "The queen sat.", "metadata": {"tenant": "t2"}},
            {"id": "a/b", "text": "The moon shone.", "metadata": {"tenant": "t2"}},
        ]
    )
    return retriever


VALUES = [*TENANTS, "*", "t1 or tenant=t2", "'", '"', "mine", 1, True, None, 10**30, "\ud800", "%", "d/1"]


def hostile_where(draw):
    value = draw.choice(VALUES)
    key = draw.choice(["tenant", "mark", "n", "only t2", "only t1", "metadata.path", "path", "title", "x"])
    forms = [
        lambda: None,
        lambda: {key: value},
        lambda: f"{key}={value}",
        lambda: f"tenant=t1 or tenant={value} or not tenant=t1",
        lambda: f"not ({key}={value})",
        lambda: f") or (tenant={value}",
        lambda: [f"tenant={value}", F.tenant != "t1"],
        lambda: F[key] != value,
        lambda: ~(F[key] == value) | F.tenant.exists(),
        lambda: ~F.tenant.exists(),
        lambda: F.path.glob("**") | F.metadata["path"].startswith(""),
        lambda: Filter.from_json({"type": "or", "filters": [{"type": "nin", "key": key, "value": ["t1", value]}] * 2}),
    ]
    return draw.choice(forms)()


def seen(hits):
    return [*hits, hits.corrections]


def hostile_reads(draw, scope):
    """Everything that a random call on the scope returns or raises, as text."""
    name = draw.choice([f"d/{draw.randrange(70)}", "t2/", "t1/", "", "*", "d/", "../d/1", "./d/1", "D/1"])
    odd = ['"t2-owned"', "+number13", "number7 -mine", "t2-owned number1 secret", "tenant", "*", "ownde", "mien ownd"]
    query = draw.choice([*WORDS, *odd])
    mode = draw.choice(["lexical", "semantic", "hybrid"])
    line = draw.choice([1, 1, 2, 10**6])
    reads = [
        lambda: seen(scope.search(query, draw.choice([1, 10, 1000]), mode=mode, where=hostile_where(draw))),
        lambda: seen(scope.search(query, mode=mode)),
        lambda: scope.search(query, 20, ids=[name, "d/1", "d/6"], offset=draw.choice([0, 1, 10**6]), mode=mode),
        lambda: scope.similar(name, line, 20, where=hostile_where(draw)),
        lambda: scope.context(query, mode=mode, where=hostile_where(draw)).text,
        lambda: scope.get(draw.choice([name, [name, "d/1"], ["d/6", name]]), vectors=draw.random() < 0.3),
        lambda: scope.text(name),
        lambda: scope.text(name, lines=(1, line)),
        lambda: scope.count(hostile_where(draw)),
        lambda: [scope.facets(["tenant", draw.choice(["mark", "path", "title", "n", "only t2"])], hostile_where(draw))],
        lambda: list(scope.iterate(hostile_where(draw), after=draw.choice([None, "", "d/3"]), limit=40)),
        lambda: list(scope.grep(draw.choice(["sat", ".", "number[0-9]+", "owned", "mine"]), where=hostile_where(draw))),
        lambda: (name in scope, len(scope)),
        lambda: scope.scope(hostile_where(draw)).search(query, 100, mode=mode),
    ]
    try:
        return repr(draw.choice(reads)())
    except BinocleError as error:
        return str(error).replace(repr(name), "").replace("only t2", "")


def check_inside(shared, seed, count):
    draw, scope = random.Random(seed), shared.scope(F.tenant == "t1")
    said = [hostile_reads(draw, scope) for _ in range(count)]
    mine = {row["metadata"]["n"] for row in documents() if row["metadata"]["tenant"] == "t1"}
    others = [f"number{n} " for n in range(60) if n not in mine]
    for text in said:
        assert "-owned" not in text.replace("t2-owned number1 secret", "").replace('"t2-owned"', ""), text
        assert not any(number in text for number in others), text
        assert "'owned'" not in text, text
        assert "only " not in text.replace("only t1", ""), text
    return said


def test_no_query_filter_or_id_leaves_the_scope(shared):
    said = check_inside(shared, 0, 60)
    assert sum("mine" in text for text in said) > 5


@pytest.mark.slow
def test_no_query_filter_or_id_of_a_thousand_leaves_the_scope(shared):
    said = check_inside(shared, 1, 1_000)
    assert sum("mine" in text for text in said) > 100


def test_totals_are_those_of_the_scope(shared):
    scope = shared.scope({"tenant": "t1"})
    assert len(scope) == scope.count() == 9
    assert {record.metadata["tenant"] for record in scope.iterate()} == {"t1"}
    assert scope.facets("tenant")["tenant"].counts == (("t1", len(scope)),)
    assert len(scope.scope(F.n > 20)) == scope.count(F.n > 20) < len(scope)


def test_a_document_of_another_is_not_there_and_errors_are_those_of_no_document(shared):
    scope = shared.scope(F.tenant == "t1")
    for name in ("d/1", "d/1000"):
        assert name not in scope
        for read in (scope.get, scope.text, lambda name: scope.similar(name, 1)):
            with pytest.raises(NotFoundError) as raised:
                read(name)
            assert str(raised.value) == f"{name!r} is not in the index"
    with pytest.raises(InputError) as raised:
        scope.search("cat", where={"only t2": 1})
    assert "only t1" in str(raised.value)
    with pytest.raises(InputError, match="no document has 'only t2'"):
        scope.search("cat", where={"only t2": 1}, ids=["d/1", "d/6"])
    assert "only t2'," not in str(raised.value)


def test_a_scope_of_nothing_yet_is_empty(shared):
    scope = shared.scope(F.tenant == "new")
    assert (len(scope), scope.search("cat"), list(scope.iterate())) == (0, [], [])
    scope = shared.scope(F.nowhere == "new")
    assert (len(scope), scope.search("cat", where="x=1")) == (0, [])


def test_an_added_document_gets_the_values_of_the_scope(index):
    scope = index.scope((F.tenant == "t1") & (F.metadata["path"] == "x") & (F.level < 3))
    scope.add([{"id": "c", "text": "The ship sails.", "metadata": {"level": 1}}])
    assert index.get("c").metadata == {"level": 1, "tenant": "t1", "path": "x"}
    assert [hit.path for hit in scope.search("ship")] == ["c"]
    for metadata in ({"level": 3}, {}, {"level": 1, "tenant": "t2"}, {"level": 1, "tenant": ["t2"]}, {"level": "1"}):
        with pytest.raises(InputError, match="document 1 is outside of this scope: expected one that passes"):
            scope.add([{"id": "d", "text": "x", "metadata": {"level": 2}}, {"text": "y", "metadata": metadata}])
    assert len(index) == 4


def test_no_document_of_another_is_replaced(index):
    scope = index.scope(F.tenant == "t1")
    with pytest.raises(InputError, match="document 1 has id 'b', which cannot be used here"):
        scope.add([{"id": "a", "text": "The new cat."}, {"id": "b", "text": "Mine now."}])
    assert index.get("b").text == "The queen sat."
    scope.add([{"id": "a", "text": "The new cat."}])
    assert scope.get("a").text == "The new cat."


def test_only_documents_of_the_scope_are_deleted(index):
    scope = index.scope(F.tenant == "t1")
    assert scope.delete("b", "a/", "./b", "*", "").removed == 0
    assert scope.delete(where=F.tenant == "t2").removed == 0
    assert len(index) == 3
    assert scope.delete("a").removed == 1
    assert index.scope(F.tenant == "t2").delete(where=F.path.startswith("a/")).removed == 1
    assert [record.id for record in index.iterate()] == ["b"]


@pytest.mark.parametrize("where", [None, [], {}])
def test_a_scope_needs_a_filter(where, shared):
    with pytest.raises(InputError, match="a scope needs a filter"):
        shared.scope(where)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (3, "document 0 is of type int"),
        ({"text": "x", "metadata": 3}, "metadata of type int"),
        ({"text": "x", "metadata": {"x": object()}}, "metadata that cannot be kept"),
        ({"text": "x", "metadata": {"x": {"y": 1}}}, "document 0 has metadata 'x' of type dict that cannot be kept"),
    ],
)
def test_what_cannot_be_added_is_refused(document, message, shared):
    with pytest.raises(InputError, match=message):
        shared.scope(F.tenant == "t1").add([document])


def test_a_scope_says_what_it_is(shared):
    assert "F['tenant'] == 't1'" in repr(shared.scope(F.tenant == "t1"))
    assert json.dumps(shared.scope(F.tenant == "t1")._inside.to_json())
