"""A scope shows, adds and deletes the documents of one tenant, whatever its caller asks."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from dataclasses import replace

import numpy as np
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


@pytest.fixture(scope="session")
def shared(tmp_path_factory, tiny_model):
    retriever = Retriever.open(tmp_path_factory.mktemp("shared"), model=tiny_model)
    retriever.add(documents())
    return retriever


@pytest.fixture(scope="session")
def _index(tmp_path_factory, tiny_model):
    """What `index` is copied from. Not to be changed."""
    retriever = Retriever.open(tmp_path_factory.mktemp("scoped") / "index", model=tiny_model)
    retriever.add(
        [
            {"id": "a", "text": "The cat sat.", "metadata": {"tenant": "t1"}},
            {"id": "b", "text": "The queen sat.", "metadata": {"tenant": "t2"}},
            {"id": "a/b", "text": "The moon shone.", "metadata": {"tenant": "t2"}},
        ]
    )
    return retriever.path


@pytest.fixture
def index(tmp_path, _index):
    return Retriever.open(shutil.copytree(_index, tmp_path / "index"))


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


def hostile_vector(draw):
    forms = [
        lambda: np.random.default_rng(draw.randrange(99)).standard_normal(32),
        lambda: [0.0] * 31 + [1],
        lambda: [float("nan")] * 32,
        lambda: [1.0] * 3,
        lambda: "d/1",
        lambda: None,
    ]
    return draw.choice([forms[0], forms[0], *forms])()


def hostile_options(draw):
    chosen = {
        "mmr": draw.choice([0, 0.5, 1, "x"]),
        "group_by": draw.choice(["document", "passage", "tenant"]),
        "with_vectors": True,
        "deadline": draw.choice([100, 1e-9]),
        "per_document": draw.choice([0, 1]),
        "collapse": False,
        "min_relevance": 0.0,
    }
    return {name: chosen[name] for name in draw.sample(sorted(chosen), draw.randrange(3))}


def hostile_writes(draw, scope, name):
    """A random write on the scope that does not change the documents of the scope."""
    document = {
        "id": name,
        "text": "taken",
        "embedding": hostile_vector(draw),
        "metadata": {"tenant": draw.choice(VALUES)},
    }
    writes = [
        lambda: scope.update([name], metadata={"tenant": "t2"}),
        lambda: scope.update(
            where=hostile_where(draw), metadata={"tenant": draw.choice(["t2", "", 1])}, mode="replace"
        ),
        lambda: scope.update(["d/1", name], metadata={"mark": "mine"}),
        lambda: scope.delete("d/1", "t2/", where=F.tenant == "t2"),
        lambda: scope.delete(where=~(F.tenant == "t1") | F["only t2"].exists()),
        lambda: scope.add([document | {"id": "d/1"}]),
        lambda: scope.add([document | {"metadata": {"tenant": "t2"}}], on_error="skip"),
        lambda: scope.scope(F.tenant == "t2").clear(),
    ]
    return draw.choice(writes)()


def stolen(hits):
    """A hit of another's document, or with its place."""
    return replace(hits[0], path="d/1") if hits else None


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
        lambda: seen(scope.search(vector=hostile_vector(draw), k=100, **hostile_options(draw))),
        lambda: seen(scope.search(query, 100, vector=hostile_vector(draw), mode=mode, **hostile_options(draw))),
        lambda: scope.search_many([query, "moon"], 9, where=hostile_where(draw), mode=mode),
        lambda: scope.search_many(vectors=[hostile_vector(draw)] * 2, k=100, ids=[name, "d/1"]),
        lambda: asyncio.run(scope.asearch(query, 100, vector=hostile_vector(draw), **hostile_options(draw))),
        lambda: asyncio.run(scope.acontext(query, mode=mode, where=hostile_where(draw))).text,
        lambda: scope.check(stolen(scope.search(query, 1))) if scope.search(query, 1) else None,
        lambda: [(record.id, len(record.vectors)) for record in scope.iterate(hostile_where(draw), vectors=True)],
        lambda: hostile_writes(draw, scope, name) if draw.random() < 0.3 else None,
    ]
    try:
        return repr(draw.choice(reads)())
    except BinocleError as error:
        return str(error).replace(repr(name), "").replace("only t2", "")


def check_inside(shared, seed, count):
    draw, scope = random.Random(seed), shared.scope(F.tenant == "t1")
    before = list(shared.iterate(vectors=True))
    said = [hostile_reads(draw, scope) for _ in range(count)]
    after = list(shared.iterate(vectors=True))
    assert after == before
    assert all(np.array_equal(record.vectors, earlier.vectors) for record, earlier in zip(after, before, strict=True))
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
    for query in ({"query": "cat"}, {"vector": np.eye(32)[0]}):
        hits = scope.search(**query, k=2, where=F.n > 20)
        assert (len(hits), hits.total) == (2, scope.count(F.n > 20))
    assert shared.search("cat").total == shared.search("cat", min_relevance=1).total == len(shared)
    assert (scope.search("cat", k=0).total, scope.search("cat", where=F.n == -1).total) == (len(scope), 0)


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


@pytest.mark.parametrize(
    ("where", "metadata"),
    [
        ("tenant=t2", {"tenant": "t2"}),
        ('tenant="t2"', {"tenant": "t2"}),
        ("tenant=t2 and level=3", {"tenant": "t2", "level": 3}),
        ('tenant="007"', {"tenant": "007"}),
    ],
)
def test_an_added_document_gets_the_values_of_a_scope_in_words(index, where, metadata):
    scope = index.scope(where)
    assert scope.add([{"id": "own", "text": "The moon."}]).ids == ["own"]
    assert index.get("own").metadata == metadata
    scope.update(["own"], metadata={"x": 1}, mode="replace")
    assert index.get("own").metadata == {**metadata, "x": 1}
    with pytest.raises(InputError, match="outside of this scope"):
        index.scope("tenant=t*").add([{"text": "The moon."}])


@pytest.mark.parametrize(
    "where", [F.tenant == "t1", "tenant=t1", F.tenant.is_in(["t1", "t3"]), (F.tenant == "t1") | (F.level < 3)]
)
@pytest.mark.parametrize("values", [["t1", "t2"], ("t2", "t1")])
def test_a_scope_puts_no_document_into_another_scope(index, where, values):
    scope = index.scope(where)
    says = "has 2 values under 'tenant', which this scope compares: expected one"
    with pytest.raises(InputError, match=f"^document 0 {says}"):
        scope.add([{"id": "n", "text": "x", "metadata": {"tenant": values}}])
    for mode in ("merge", "replace"):
        with pytest.raises(InputError, match=f"^the change {says}"):
            scope.update(["a"], metadata={"tenant": values}, mode=mode)
        with pytest.raises(InputError, match=f"^the change {says}"), scope.batch() as batch:
            batch.update(ids=["a"], metadata={"tenant": values}, mode=mode)
    index.add([{"id": "shared", "text": "x", "metadata": {"tenant": ["t1", "t2"]}}])
    scope.update(["shared"], metadata={"checked": True})
    assert index.get("shared").metadata == {"tenant": ["t1", "t2"], "checked": True}
    scope.add([{"id": "n", "text": "x", "metadata": {"tenant": ["t1"], "tags": ["x", "y"]}}])
    assert "n" not in index.scope(F.tenant == "t2")


@pytest.mark.parametrize("together", [False, True])
def test_documents_outside_of_a_scope_can_be_skipped(index, together):
    scope = index.scope(F.tenant == "t1")
    rows = [
        {"id": "m1", "text": "The moon."},
        {"id": "m2", "text": "The moon.", "metadata": [1]},
        {"id": "m3", "text": 7},
        {"id": "m4", "text": "The moon.", "metadata": {"tenant": "t2"}},
        {"id": "b", "text": "The moon."},
        5,
        {"id": "m5", "text": "The moon.", "metadata": {"x": {1}}},
        {"id": "m6", "text": "The moon."},
    ]
    if together:
        with scope.batch(on_error="skip") as batch:
            batch.add(rows[:4])
            batch.add(rows[4:])
        report = batch.report
    else:
        report = scope.add(rows, on_error="skip")
    assert report.ids == ["m1", "m6"]
    assert [(failure.number, failure.id) for failure in report.failures] == [
        (1, "m2"),
        (2, "m3"),
        (3, "m4"),
        (4, "b"),
        (5, None),
        (6, "m5"),
    ]
    assert index.text("b") == "The queen sat."


def test_the_error_of_a_scope_says_how_many_documents_were_added(index):
    rows = [{"id": f"n{number}", "text": f"The moon {number}."} for number in range(1_200)]
    rows[1_100]["metadata"] = {"tenant": "t2"}
    with pytest.raises(InputError, match=r"^document 1100 is outside of this scope: .*; the first 1,000 were added$"):
        index.scope(F.tenant == "t1").add(rows)
    assert index.count(F.tenant == "t1") == 1_001


def test_a_vector_finds_only_passages_of_the_scope_with_their_own_vectors(shared):
    scope = shared.scope(F.tenant == "t1")
    foreign = shared.get("d/1", vectors=True).vectors[0]
    for options in ({}, {"mmr": 0.3}, {"group_by": "document"}, {"where": F.n > 0}):
        hits = scope.search(vector=foreign, k=100, with_vectors=True, **options)
        assert len(hits) >= 8
        for hit in hits:
            assert hit.metadata["tenant"] == "t1"
            assert np.array_equal(scope.get(hit.path, vectors=True).vectors, [hit.vector])
    assert scope.search_many(vectors=[foreign], k=5) == [scope.search(vector=foreign, k=5)]


def test_a_document_with_an_embedding_is_added_to_the_scope(index):
    scope, vector = index.scope(F.tenant == "t1"), np.eye(32, dtype=np.float32)[1]
    scope.add([{"id": "own", "embedding": vector}])
    assert index.get("own").metadata == {"tenant": "t1"}
    assert [hit.path for hit in scope.search(vector=vector, k=1)] == ["own"]
    assert index.scope(F.tenant == "t2").search(vector=vector, k=9)[0].score < 0.9


@pytest.mark.parametrize("where", [[], (), {}])
def test_a_filter_without_conditions_chooses_nothing_to_delete_or_change(index, where):
    for documents in (index, index.scope(F.tenant == "t2")):
        assert documents.delete(where=where).removed == 0
        with pytest.raises(InputError, match="nothing is chosen"):
            documents.update(where=where, metadata={"x": 1})
    assert index.scope(F.tenant == "t2").clear().removed == 2
    assert len(index) == 1


def test_the_title_of_markdown_does_not_leave_the_scope(index):
    scope = index.scope(F.title != "Secret")
    with pytest.raises(InputError, match="document 0 is outside of this scope"):
        scope.add([{"id": "x", "text": "# Secret\n\nThe ship.", "format": "markdown"}])
    assert scope.add([{"id": "x", "text": "# Plain\n\nThe ship.", "format": "markdown"}]).ids == ["x"]


def test_an_update_keeps_a_document_in_the_scope(index):
    scope = index.scope((F.tenant == "t1") & (F.level < 3))
    assert index.update(["a"], metadata={"level": 1}).indexed == 1
    assert scope.update(["a"], metadata={"x": 1, "tenant": None}).indexed == 1
    assert index.get("a").metadata == {"tenant": "t1", "level": 1, "x": 1}
    assert scope.update(where="x=1", metadata={"level": 2}, mode="replace").ids == ["a"]
    assert index.get("a").metadata == {"tenant": "t1", "level": 2}
    for change in ({"tenant": "t2"}, {"level": 3}, {"level": None}):
        with pytest.raises(InputError, match="document 'a' is outside of this scope: expected one that passes"):
            scope.update(["a"], metadata=change)
    with pytest.raises(InputError, match="outside of this scope"):
        scope.update(["a"], metadata={}, mode="replace")
    for name in ("b", "nothing"):
        with pytest.raises(NotFoundError, match=f"^'{name}' is not in the index$"):
            scope.update(["a", name], metadata={"level": 1})
    assert scope.update(where=F.tenant == "t2", metadata={"level": 1}).ids == []
    assert index.get("a").metadata == {"tenant": "t1", "level": 2}
    assert index.get("b").metadata == {"tenant": "t2"}


def test_a_passage_of_another_is_gone(index):
    scope, hits = index.scope(F.tenant == "t1"), {hit.path: hit for hit in index.search("the", mode="semantic")}
    assert scope.check(hits["a"]) == "exact"
    assert scope.check(hits["b"]) == scope.check(replace(hits["b"], path="nothing")) == "gone"
    scope.add([{"id": "a", "text": "Now the cat stands."}])
    assert scope.check(hits["a"]) == "stale"


def test_async_calls_stay_in_the_scope(index):
    scope = index.scope(F.tenant == "t1")

    async def calls():
        await scope.aadd([{"id": "new", "text": "The queen and the moon."}])
        await scope.aupdate(["new"], metadata={"x": 1})
        removed = await scope.adelete("a", "b")
        return await scope.asearch("queen"), removed.removed, (await scope.acontext("moon")).passages

    hits, removed, passages = asyncio.run(calls())
    assert [hit.path for hit in hits] == [passage.path for passage in passages] == ["new"]
    assert (hits[0].metadata, removed) == ({"tenant": "t1", "x": 1}, 1)


def test_a_batch_of_a_scope_is_one_commit_of_its_documents(index):
    scope, before = index.scope(F.tenant == "t1"), index.snapshot().head
    with scope.batch(wait=1) as batch:
        batch.add([{"id": "new", "text": "a walrus"}])
        batch.update(ids=["a"], metadata={"n": 9, "tenant": None})
        batch.update(where=F.tenant == "t2", metadata={"n": 9})
        batch.delete("b", where=F.tenant == "t2")
    assert (batch.report.ids, batch.report.removed) == (["a", "new"], 0)
    assert {record.id: record.metadata for record in index.iterate()} == {
        "a": {"n": 9, "tenant": "t1"},
        "a/b": {"tenant": "t2"},
        "b": {"tenant": "t2"},
        "new": {"tenant": "t1"},
    }
    assert index.snapshot().head.rows == before.rows + 1


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda batch, _: batch.add([{"id": "b", "text": "taken"}]), "'b', which cannot be used here"),
        (lambda batch, _: batch.add([{"text": "x", "metadata": {"tenant": "t2"}}]), "outside of this scope"),
        (lambda batch, _: batch.update(ids=["b"], metadata={"n": 1}), "'b' is not in the index"),
        (lambda batch, _: batch.update(ids=["a"], metadata={"tenant": "t2"}), "outside of this scope"),
        (lambda batch, _: batch.update(metadata={"n": 1}), "nothing is chosen"),
        (lambda batch, _: batch.delete(folder="a"), "a scope has no folders"),
        (
            lambda batch, index: (batch.add([{"id": "late", "text": "x"}]), index.add([{"id": "late", "text": "y"}])),
            "'late', which cannot be used here",
        ),
    ],
)
def test_a_batch_of_a_scope_changes_nothing_outside(index, write, says):
    with pytest.raises((InputError, NotFoundError), match=says), index.scope(F.tenant == "t1").batch() as batch:
        write(batch, index)
    assert index.text("b") == "The queen sat."
    assert "late" not in index or index.text("late") == "y"


def test_the_report_of_a_write_counts_the_passages_of_the_scope(index):
    scope = index.scope(F.tenant == "t1")
    added = scope.add([{"id": "c", "text": "The sea."}])
    assert (added.embedded, added.chunks_total) == (1, 2)
    assert scope.update(["c"], metadata={"n": 1}).chunks_total == 2
    with scope.batch() as batch:
        batch.add([{"id": "d", "text": "The ship."}])
    assert batch.report.chunks_total == 3
    assert [scope.delete("d").chunks_total, scope.clear().chunks_total] == [2, 0]


def test_clearing_a_scope_leaves_the_others(index):
    assert index.scope(F.tenant == "t2").clear(erase=True).removed == 2
    assert [record.id for record in index.iterate()] == ["a"]


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ([], {"metadata": {"x": 1}}, "nothing is chosen"),
        (["a"], {"metadata": {"x": 1}}, "ids is a list"),
        ([["a"]], {"metadata": 3}, "metadata is a mapping"),
        ([["a"]], {"metadata": {"x": 1}, "mode": "add"}, "mode is one of"),
        ([[3]], {"metadata": {"x": 1}}, "3 is not a document"),
    ],
)
def test_an_update_that_cannot_be_is_refused(index, arguments, options, says):
    with pytest.raises(InputError, match=says):
        index.scope(F.tenant == "t1").update(*arguments, **options)


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
        ({"text": "x", "format": 3}, "document 0 has format 3"),
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
