"""`verify --deep`: planted faults are found and mended, and nothing else is touched."""

from __future__ import annotations

import math
import shutil
from collections import Counter

import lance
import numpy as np
import pyarrow as pa
import pytest

from binocle import Retriever, load_encoder
from binocle.retriever.integrity import vector_regression, wrong_vectors

DIM = 32
COUNT = 240
NEAR = 5e-3  # what bf16 makes of a component


def words(count, seed):
    """Sentences of words, some much more frequent than others."""
    random = np.random.default_rng(seed)
    known = (
        "cat dog house tax file task queue worker server client vector text model sea ship moon sun light king".split()
    )
    known += (
        "city river bread cheese recipe oven butter linux package table row price red blue green time people".split()
    )
    shares = 1 / np.arange(1, len(known) + 1)
    shares /= shares.sum()
    return [random.choice(known, random.integers(8, 20), p=shares).tolist() for _ in range(count)]


# The regression


def similarities(texts):
    """By the formula, one pair at a time."""
    spread = Counter(token for text in texts for token in set(text))
    bags = []
    for text in texts:
        squares = {token: count * math.log(1 + len(texts) / spread[token]) for token, count in Counter(text).items()}
        total = sum(squares.values())
        bags.append({token: math.sqrt(square / total) for token, square in squares.items()})
    return np.array(
        [
            [sum(one[token] * other[token] for token in one.keys() & other if spread[token] > 1) for other in bags]
            for one in bags
        ]
    )


def test_similarity_is_the_cosine_of_weighted_bags(monkeypatch):
    texts = [*words(30, 0), ["alone"], [], ["cat", "alone", "alone"]]
    monkeypatch.setattr(vector_regression, "_BATCH_TOKENS", 7)
    assert vector_regression._similarities(texts) == pytest.approx(similarities(texts), abs=1e-6)


def test_each_row_is_predicted_from_the_others_without_those_that_fit_worst():
    texts = words(60, 1)
    random = np.random.default_rng(2)
    vectors = random.standard_normal((60, 5)).astype(np.float32)
    kernel = similarities(texts)

    def fitted(rows, row):
        mean = vectors[kept].mean(0)
        weights = np.linalg.solve(kernel[np.ix_(rows, rows)] + 0.3 * np.eye(len(rows)), vectors[rows] - mean)
        return mean + kernel[row, rows] @ weights

    everything = np.arange(60)
    kept = everything
    first = np.array([((vectors[row] - fitted(np.delete(everything, row), row)) ** 2).sum() for row in everything])
    kept = np.sort(np.argsort(first)[:54])
    expected = [fitted(kept[kept != row], row) for row in everything]
    assert vector_regression.leave_one_out(texts, vectors) == pytest.approx(np.array(expected), abs=1e-4)


def test_prediction_follows_its_row_in_any_order():
    texts, order = words(50, 3), np.random.default_rng(4).permutation(50)
    vectors = np.random.default_rng(5).standard_normal((50, 4)).astype(np.float32)
    moved = vector_regression.leave_one_out([texts[position] for position in order], vectors[order])
    assert moved == pytest.approx(vector_regression.leave_one_out(texts, vectors)[order], abs=1e-4)


# The search


class Counting:
    """An encoder that knows how many texts it encoded."""

    def __init__(self, encoder):
        self._encoder, self.count = encoder, 0

    def __getattr__(self, name):
        return getattr(self._encoder, name)

    def encode(self, texts, *, kind="document"):
        self.count += len(texts)
        return self._encoder.encode(texts, kind=kind)


@pytest.fixture(scope="session")
def _many(tmp_path_factory, tiny_model):
    path = tmp_path_factory.mktemp("many") / "index"
    rows = ({"id": str(number), "text": " ".join(text)} for number, text in enumerate(words(COUNT, 7)))
    Retriever.open(path, model=tiny_model).add(rows)
    return path


@pytest.fixture
def big_index(tmp_path, _many, monkeypatch, tiny):
    """An index with one passage a document, and its encoder compiled already."""
    for module in ("models.cache", "upkeep"):
        name = f"binocle.retriever.{module}.load_encoder"
        monkeypatch.setattr(name, lambda name: tiny if name == tiny.name else load_encoder(name))
    return Retriever.open(shutil.copytree(_many, tmp_path / "index"))


@pytest.fixture
def not_few(monkeypatch):
    monkeypatch.setattr(wrong_vectors, "_SMALL", 50)
    monkeypatch.setattr(wrong_vectors, "_SAMPLE", 20)


def stored(retriever):
    """Chunk id to vector."""
    table = Retriever.open(retriever.path).snapshot().read("chunks", ["id", "vector"])
    return dict(zip(table["id"].to_pylist(), np.array(table["vector"].to_pylist(), np.float32), strict=True))


def plant(retriever, vectors):
    """Put these vectors, by chunk id, into the store and into its index, as if they had always been there."""
    with Retriever.open(retriever.path)._index.writer() as writer:
        snapshot = writer.snapshot()

        def rows():
            for batch in snapshot.batches(snapshot.chunks.schema.names):
                yield pa.RecordBatch.from_pylist(
                    [row | {"vector": vectors.get(row["id"], row["vector"])} for row in batch.to_pylist()],
                    schema=snapshot.chunks.schema,
                )

        writer.replace_vectors(rows(), writer.head.encoder, writer.head.previous)


def flip(retriever, number, component, bit):
    """Turn one bit of a stored vector over, where nothing notices."""
    path = retriever.path / "chunks.lance"
    vector = stored(retriever)[number]
    (position,) = [position for position, value in enumerate(stored(retriever)) if value == number]
    needle = vector.tobytes()
    bits = vector.view(np.uint32)
    bits[component] ^= np.uint32(1) << np.uint32(bit)
    for file in (path / "data").glob("*.lance"):
        data = file.read_bytes()
        if data.count(needle) == 1:
            file.write_bytes(data.replace(needle, vector.tobytes()))
            return
    raise AssertionError(position)


def search(retriever, encoder):
    return wrong_vectors.search(Retriever.open(retriever.path).snapshot(), encoder)


def swapped(vectors, ids):
    return {number: vectors[source] for number, source in zip(ids, [*ids[1:], ids[0]], strict=True)}


def test_right_vectors_are_never_called_wrong(big_index, tiny, not_few):
    encoder = Counting(tiny)
    check = search(big_index, encoder)
    assert (check.wrong, check.rows) == ((), COUNT)
    assert check.embedded == encoder.count <= 0.1 * COUNT + 20 + 20
    rest = COUNT - check.embedded + 20
    assert check.missed == math.floor(rest * (1 - 0.05 ** (1 / 20)))
    assert check.as_text().startswith(f"{check.embedded} of {COUNT} passages embedded anew; at most {check.missed} of")


def test_swapped_vectors_and_those_of_another_encoder_are_found(big_index, tiny, not_few, make_model, tmp_path):
    vectors = stored(big_index)
    ids = np.random.default_rng(1).permutation(list(vectors))[:16].tolist()
    texts = Retriever.open(big_index.path).snapshot().chunks_by_id(ids[8:], ["context"])
    other_encoder = load_encoder(str(make_model(tmp_path / "other", seed=9)))
    planted = swapped(vectors, ids[:8])
    planted |= {number: other_encoder.encode([texts[number]["context"]])[0] for number in ids[8:]}
    plant(big_index, planted)
    encoder = Counting(tiny)
    check = search(big_index, encoder)
    apart = {number for number in ids if planted[number] @ vectors[number] < 0.98}  # some texts are much alike
    assert len(apart) > 12
    wrong = {row.chunk for row in check.wrong}
    assert {number for number in apart if planted[number] @ vectors[number] < 0.9} <= wrong <= apart
    assert len(apart - wrong) <= check.missed
    assert encoder.count < 0.4 * COUNT
    for row in check.wrong:
        assert row.vector == pytest.approx(vectors[row.chunk], abs=NEAR)
        assert row.cosine == pytest.approx(float(planted[row.chunk] @ vectors[row.chunk]), abs=NEAR)


def test_it_goes_on_as_long_as_it_finds_some(big_index, tiny, not_few):
    """A third of the rows are wrong, more than a tenth, where it would have stopped."""
    vectors = stored(big_index)
    ids = np.random.default_rng(2).permutation(list(vectors))[: COUNT // 3].tolist()
    plant(big_index, swapped(vectors, ids))
    apart = {number for number in ids if stored(big_index)[number] @ vectors[number] < 0.98}
    check = search(big_index, tiny)
    assert {row.chunk for row in check.wrong} <= apart
    assert len(check.wrong) >= 0.95 * len(apart) > 0.1 * COUNT


def test_a_wrong_vector_in_the_sample_has_every_row_embedded(big_index, tiny, not_few, monkeypatch):
    vectors = stored(big_index)
    monkeypatch.setattr(
        wrong_vectors, "leave_one_out", lambda _texts, given: given
    )  # a regression that suspects nothing
    monkeypatch.setattr(wrong_vectors, "_SAMPLE", 150)
    ids = sorted(vectors)[::10]
    plant(big_index, {number: -vectors[number] for number in ids})
    check = search(big_index, tiny)
    assert [row.chunk for row in check.wrong] == ids
    assert (check.embedded, check.missed) == (COUNT, 0)
    assert check.as_text() == f"{COUNT} of {COUNT} passages embedded anew"


def test_an_equal_text_is_judged_with_the_one_that_was_found(big_index, tiny, not_few):
    """The second one got its vector from the first when it was added."""
    vectors = stored(big_index)
    first = min(vectors)
    plant(big_index, {first: -vectors[first]})
    text = big_index.snapshot().chunks_by_id([first], ["context"])[first]["context"]
    big_index.add([{"id": "twin", "text": text}])
    twin = max(stored(big_index))
    assert stored(big_index)[twin] == pytest.approx(-vectors[first])
    assert [row.chunk for row in search(big_index, tiny).wrong] == [first, twin]


def test_few_rows_are_all_embedded(retriever, tiny):
    count = len(stored(retriever))
    check = search(retriever, tiny)
    assert check == wrong_vectors.VectorCheck((), count, count, 0)


def test_an_empty_index_has_nothing_wrong(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([])
    assert retriever.verify(deep=True).faults == []
    retriever.repair(deep=True)


def test_rows_after_deleted_ones_are_judged_by_their_own_text(big_index, tiny, not_few):
    big_index.delete(*map(str, range(0, COUNT, 3)))
    vectors = stored(big_index)
    ids = sorted(vectors)[5:9]
    plant(big_index, swapped(vectors, ids))
    big_index.delete(*map(str, range(1, 60, 3)))
    left = stored(big_index)
    assert {row.chunk for row in search(big_index, tiny).wrong} == set(ids) & left.keys()
    assert search(big_index, tiny).rows == len(left)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38, 0.0])
def test_a_vector_that_is_no_direction_is_found_and_mended(value, big_index, not_few):
    vectors = stored(big_index)
    plant(big_index, {11: np.full(DIM, value, np.float32)})
    faults = Retriever.open(big_index.path).verify(deep=True).faults
    assert [fault.path for fault in faults if fault.kind == "vector"] == ["11"]
    Retriever.open(big_index.path).repair(deep=True)
    assert stored(big_index)[11] == pytest.approx(vectors[11], abs=NEAR)
    assert Retriever.open(big_index.path).verify(deep=True).faults == []


@pytest.mark.parametrize("bit", [0, 22, 23, 30, 31])
def test_a_flipped_bit_is_found_and_no_repair_trusts_it(bit, big_index, not_few):
    """Bits of the mantissa, the exponent and the sign: after the index was published, each is seen."""
    big_index.delete("3", erase=True)  # places of rows are not their ids
    vectors = stored(big_index)
    flip(big_index, 17, 3, bit)
    faults = Retriever.open(big_index.path).verify(deep=True).faults
    assert [(fault.kind, fault.path) for fault in faults if fault.kind == "vector"] == [("vector", "17")]
    Retriever.open(big_index.path).repair()
    assert stored(big_index)[17] == pytest.approx(vectors[17], abs=NEAR)
    assert Retriever.open(big_index.path).verify().faults == []


def test_a_flipped_bit_is_mended_where_rows_do_not_lie_in_order_of_id(big_index, not_few, small_fragments):
    for name in ("3", "4"):
        big_index.delete(name, erase=True)
    vectors = stored(big_index)
    assert [*vectors] != sorted(vectors)  # else this test proves nothing
    flip(big_index, 17, 3, 30)
    Retriever.open(big_index.path).repair()
    again = stored(big_index)
    assert [*again] == sorted(vectors)
    for number, vector in vectors.items():
        assert again[number] == pytest.approx(vector, abs=NEAR if number == 17 else 0)
    assert Retriever.open(big_index.path).verify().faults == []


@pytest.mark.parametrize("deep", [False, True])
def test_repair_loses_nothing_that_is_stored(deep, big_index, not_few, make_model, tmp_path):
    """Texts, ids, documents and the vectors of the encoder before stay; of the vectors only the wrong ones change."""
    first = stored(big_index)
    big_index.switch(str(make_model(tmp_path / "second", seed=3)))
    columns = [name for name in big_index.snapshot().chunks.schema.names if name != "vector"]
    assert "previous_vector" in columns
    before, vectors = big_index.snapshot().read("chunks", columns), stored(big_index)
    plant(big_index, swapped(vectors, [20, 30]))
    Retriever.open(big_index.path).repair(deep=deep)
    again = Retriever.open(big_index.path)
    assert again.snapshot().read("chunks", columns).equals(before)
    after = stored(big_index)
    assert [number for number in after if not np.array_equal(after[number], vectors[number])] in ([], [20, 30])
    assert np.allclose(after[20], vectors[20 if deep else 30], atol=NEAR)
    assert again.verify(deep=deep).faults == []
    again.rollback()
    assert all(np.array_equal(vector, first[number]) for number, vector in stored(big_index).items())


def test_a_text_that_was_never_embedded_does_not_replace_a_vector(big_index, tiny, not_few):
    """The text is damaged, and the vector is all that remains of it."""
    vectors = stored(big_index)
    path = big_index.path / "chunks.lance"
    dataset = lance.dataset(path)
    dataset.update({"context": "'butter cheese oven'"}, "id = 9")
    many_head = big_index.path / "HEAD.json"
    many_head.write_text(
        many_head.read_text().replace(f'"chunks": {dataset.version - 1}', f'"chunks": {dataset.version}')
    )
    faults = Retriever.open(big_index.path).verify(deep=True).faults
    assert {fault.kind for fault in faults} == {"passage"}
    Retriever.open(big_index.path).repair(deep=True)
    assert np.array_equal(stored(big_index)[9], vectors[9])


def test_deep_verification_names_document_and_place(retriever):
    vectors = stored(retriever)
    number = min(vectors)
    plant(retriever, {number: -vectors[number]})
    row = retriever.snapshot().chunks_by_id([number], ["document", "char_start", "char_end"])[number]
    path = next(document["path"] for document in retriever.documents() if document["id"] == row["document"])
    assert Retriever.open(retriever.path).verify().faults == []
    (fault,) = Retriever.open(retriever.path).verify(deep=True).faults
    assert (fault.kind, fault.path) == ("vector", path)
    assert fault.problem == (
        f"passage {number} (characters {row['char_start']} to {row['char_end']}) has a vector that its text does not "
        "have (cosine -1.0000)"
    )


def test_progress_comes_to_its_end(big_index, not_few):
    events = []
    big_index.verify(deep=True, progress=events.append)
    assert [at.done for at in events] == sorted({at.done for at in events})
    assert all(at.done <= at.total for at in events)
    assert events[-1].done > COUNT


def test_the_command_says_what_it_looked_at_and_mends(retriever, here, run):
    vectors = stored(retriever)
    count, number = len(vectors), min(vectors)
    looked = f"{count} of {count} passages embedded anew\n"
    assert run("verify", "--deep") == (0, "clean\n", looked)
    plant(retriever, {number: -vectors[number]})
    assert run("verify") == (0, "clean\n", "")
    outcome = run("verify", "--deep")
    assert (outcome.code, outcome.err) == (1, looked + "1 fault\n")
    assert outcome.out.startswith("vector: ")
    (row,) = run("verify", "--deep", "--json").rows
    assert f"{row['kind']}: {row['path']}: {row['problem']}\n" == outcome.out
    mended = "1 fault mended\n"
    assert run("verify", "--deep", "--repair") == (0, "clean\n", looked + mended)
    assert run("verify", "--deep") == (0, "clean\n", looked)
