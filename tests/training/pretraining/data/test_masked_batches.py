"""Batches: the inputs of the model, which do not depend on the history of the run."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from binocle.training.data.tokenized import TokenRows, TokenRowWriter, cut, tokenize
from binocle.training.pretraining import masked_model
from binocle.training.pretraining.data.masked_batches import EpochRows, Frame, MaskedBatches
from binocle.training.pretraining.data.masking import IGNORED, Masking
from binocle.training.pretraining.data.segments import CHANGED, GENUINE

TEXTS = [
    f"The cat sat on the mat. The {word} ran to the house. It was not due. We had the bread!"
    for word in ("dog", "ship", "king")
] + ["It was due. We had it. The cat ran. The dog sat."]  # the last row, the only one of several sentences


@pytest.fixture(scope="module", params=["bert", "roberta"])
def parts(request, masked_models, tmp_path_factory):
    """A tokenizer, its frame, rows, and a maker of batches by objective."""
    tokenizer = masked_model.read_tokenizer(masked_models[request.param])
    file = tmp_path_factory.mktemp("rows") / "rows.arrow"
    writer = TokenRowWriter(file)
    for number, document in enumerate(tokenize(TEXTS, tokenizer)):
        for row in cut(document, 20):
            writer.add(row, number)
    writer.close()
    rows = TokenRows(file)
    frame = Frame.of(tokenizer, types=request.param == "bert")
    masking = Masking.of(tokenizer.mask_token_id, tokenizer.all_special_ids, len(tokenizer))

    def batches(objective: str = "mlm", seed: int = 0) -> MaskedBatches:
        return MaskedBatches(rows, masking, frame, 30, objective, seed)

    return tokenizer, frame, rows, batches


def true_ids(batch: dict, line: int) -> list[int]:
    """The row's ids before any were hidden, padding left out."""
    ids, labels = batch["input_ids"][line], batch["labels"][line]
    return torch.where(labels != IGNORED, labels, ids)[batch["attention_mask"][line] == 1].tolist()


def test_a_row_is_framed_as_the_tokenizer_frames_it(parts):
    tokenizer, frame, rows, batches = parts
    batch = batches()([(0, number) for number in range(len(rows))])
    for number in range(len(rows)):
        expected = [*frame.one[0], *rows[number].tokens.tolist(), *frame.one[1]]
        assert true_ids(batch, number) == expected
        text = tokenizer.decode(rows[number].tokens.tolist(), clean_up_tokenization_spaces=False)
        assert tokenizer(text)["input_ids"][0] == expected[0]
        assert tokenizer(text)["input_ids"][-1] == expected[-1]


def test_a_pair_is_framed_as_the_tokenizer_frames_it(parts):
    tokenizer, frame, rows, batches = parts
    own = tokenizer("the cat", "the dog", return_token_type_ids=True)
    alone = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("the cat", "the dog")]
    assert [*frame.two[0], *alone[0], *frame.two[1], *alone[1], *frame.two[2]] == own["input_ids"]
    last = len(rows) - 1
    batch = batches("mlm+sop")([(epoch, last) for epoch in range(30)])
    assert set(batch["pair_labels"].tolist()) == {GENUINE, CHANGED}
    for line, label in enumerate(batch["pair_labels"].tolist()):
        ids = true_ids(batch, line)
        inner = [token for token in ids if token not in tokenizer.all_special_ids]
        assert (inner == rows[last].tokens.tolist()) == (label == GENUINE)
        assert sorted(inner) == sorted(rows[last].tokens.tolist())
        assert len(ids) == len(inner) + frame.size(2)
        if "token_type_ids" in batch:
            types = batch["token_type_ids"][line][: len(ids)].tolist()
            second = ids.index(tokenizer.sep_token_id) + 1
            assert types == [0] * second + [1] * (len(ids) - second)
    assert (frame.size(1), frame.size(2)) == (2, len(own["input_ids"]) - len(alone[0]) - len(alone[1]))


def test_special_tokens_and_padding_are_never_asked_for(parts):
    tokenizer, _, rows, batches = parts
    for objective in ("mlm", "mlm+nsp", "mlm+sop"):
        for epoch in range(20):
            batch = batches(objective)([(epoch, number) for number in range(len(rows))])
            chosen = batch["labels"] != IGNORED
            assert not (chosen & (batch["attention_mask"] == 0)).any()
            assert not torch.isin(batch["labels"][chosen], torch.tensor(tokenizer.all_special_ids)).any()
            assert chosen.any(1).all()


def test_padding_is_the_tokenizers_and_masked_out(parts):
    tokenizer, _, rows, batches = parts
    batch = batches()([(0, number) for number in range(len(rows))])
    assert batch["input_ids"].shape == batch["labels"].shape == batch["attention_mask"].shape
    assert batch["input_ids"].shape[1] in (16, 24, 30)  # multiples of eight, and the length of the model
    outside = batch["attention_mask"] == 0
    assert outside.any()
    assert (batch["input_ids"][outside] == tokenizer.pad_token_id).all()
    assert (batch["labels"][outside] == IGNORED).all()


@pytest.mark.parametrize("objective", ["mlm", "mlm+nsp", "mlm+sop"])
def test_a_row_looks_the_same_in_any_batch(parts, objective):
    _, _, rows, batches = parts
    together = batches(objective)([(3, number) for number in range(len(rows))])
    for number in range(len(rows)):
        alone = batches(objective)([(3, number)])
        width = min(alone["input_ids"].shape[1], together["input_ids"].shape[1])
        for name in ("input_ids", "labels"):
            assert together[name][number][:width].tolist() == alone[name][0][:width].tolist()


def test_masks_are_drawn_anew_each_epoch_and_for_each_seed(parts):
    _, _, rows, batches = parts
    drawn = [(0, number) for number in range(len(rows))]
    labels = batches()(drawn)["labels"]
    assert torch.equal(batches()(drawn)["labels"], labels)
    assert not torch.equal(batches()([(1, number) for number in range(len(rows))])["labels"], labels)
    assert not torch.equal(batches(seed=1)(drawn)["labels"], labels)


@pytest.mark.parametrize("count", [1, 31, 200, 5_000])
def test_an_epoch_has_every_row_once_and_another_order_each_time(count):
    lengths = np.random.default_rng(0).integers(1, 100, count)
    order = EpochRows(lengths, 32, seed=5)
    first = list(order)
    assert sorted(number for _, number in first) == list(range(count))
    assert {epoch for epoch, _ in first} == {0}
    assert list(order) == first
    order.set_epoch(1)
    second = list(order)
    assert {epoch for epoch, _ in second} == {1}
    assert count == 1 or [number for _, number in second] != [number for _, number in first]


def test_batches_are_of_nearly_one_length_and_in_no_order_of_it():
    lengths = np.random.default_rng(0).integers(1, 129, 20_000)
    batches = lengths[[number for _, number in EpochRows(lengths, 32)]].reshape(-1, 32)
    padding = 1 - batches.sum() / (batches.max(1) * 32).sum()
    assert padding < 0.02
    assert abs(np.corrcoef(np.arange(len(batches)), batches.mean(1))[0, 1]) < 0.1
