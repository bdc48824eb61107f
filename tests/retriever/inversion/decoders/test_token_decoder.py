"""A decoder of hidden states begins as the encoder's own layers, and reads around hidden tokens."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from binocle.retriever.inversion.decoders.decoder_settings import TokenDecoderSettings
from binocle.retriever.inversion.decoders.token_decoder import _FAST, TokenDecoder
from binocle.retriever.inversion.hidden_states import HiddenStates
from binocle.training.inversion.sampled_vocabulary import round_mask, sample_vocabulary


@pytest.fixture(scope="session")
def states(tiny_model: str) -> HiddenStates:
    return HiddenStates.load(tiny_model)


def begun(states: HiddenStates):
    config = states.model.config
    width, heads, inner = config.hidden_size, config.num_attention_heads, config.intermediate_size
    settings = TokenDecoderSettings(
        "transformer", width, config.vocab_size, width, config.num_hidden_layers, heads=heads, inner=inner
    )
    torch.manual_seed(0)
    decoder = TokenDecoder(settings).eval()
    decoder.copy_bert(states.model, states.tokenizer.mask_token_id)
    with torch.no_grad():
        for layer in (decoder.linear, decoder.into, decoder.out):
            layer.weight.zero_()
            layer.bias.zero_()
        decoder.into.weight.copy_(torch.eye(width))
        decoder.out.weight.copy_(torch.eye(width) / _FAST)
    return decoder


def test_a_transformer_that_reads_word_embeddings_begins_as_the_encoder(states: HiddenStates):
    ids, mask = states.frame(states.ids(["moon cheese ship night", "cat dog"]))
    with torch.no_grad():
        outputs = begun(states).targets(states.words[ids], mask)
    assert torch.allclose(outputs[mask == 1], states.at(ids, mask)[mask == 1], atol=1e-4)


def test_what_is_not_seen_is_read_as_the_encoders_mask(states: HiddenStates):
    ids, mask = states.frame(states.ids(["moon cheese ship night"]))
    unseen = torch.zeros(ids.shape, dtype=torch.bool)
    unseen[0, 2] = True
    with torch.no_grad():
        outputs = begun(states).targets(states.words[ids], mask, unseen)
    assert torch.allclose(outputs, states.at(ids.masked_fill(unseen, states.tokenizer.mask_token_id), mask), atol=1e-4)


def test_tokens_are_as_likely_as_they_are_frequent_only_where_the_state_is_not_seen(states: HiddenStates):
    decoder = begun(states)
    targets = torch.zeros(2, decoder.settings.target_width)
    with torch.no_grad():
        decoder.common.copy_(torch.arange(len(decoder.common)).float())
        visible, hidden = decoder.logits(targets, hidden=torch.tensor([False, True]))
        assert torch.equal(visible, decoder.bias)
        assert torch.equal(hidden, decoder.common)
        assert torch.equal(decoder.logits(targets, torch.tensor([3, 1]), torch.tensor([True, True]))[0], hidden[[3, 1]])


@pytest.mark.parametrize(("own", "extra", "among"), [(3, 10, 1_000), (300, 250, 1_000), (5, 600, 700), (40, 10, 50)])
def test_the_tokens_told_apart_are_a_multiple_of_256_where_there_are_as_many(own, extra, among):
    ids = torch.arange(own).repeat(2) * 2
    outputs = sample_vocabulary(ids, torch.arange(among), extra)
    assert outputs.tolist() == sorted(set(outputs.tolist()))
    assert set(ids.tolist()) <= set(outputs.tolist())
    assert len(outputs) == min(-(-(own + extra) // 256) * 256, len({*range(among), *ids.tolist()}))


@pytest.mark.parametrize(("count", "rounded"), [(0, 0), (63, 63), (64, 64), (65, 64), (200, 192)])
def test_as_many_places_are_judged_as_make_round_numbers(count, rounded):
    mask = torch.zeros(15, 20, dtype=torch.bool)
    mask.view(-1)[torch.randperm(300)[:count]] = True
    before = mask.clone()
    outputs = round_mask(mask)
    assert outputs.sum() == rounded
    assert not (outputs & ~mask).any()
    assert (mask == before).all()
