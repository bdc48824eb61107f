"""The attention of training in bfloat16 has the values and gradients of exact attention, up to its rounding."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from binocle.training.runs import attention

ROUNDING = 2**-6  # of bfloat16, added over a few sums


def layer(parts, mask, precision, **options):
    """Return the output of a layer and the gradients of its parts."""
    parts = [part.detach().to(precision, copy=True).requires_grad_() for part in parts]
    query, key, value = parts
    output, _ = attention._forward(torch.nn.Module(), query, key, value, mask, is_causal=False, **options)
    (output * torch.linspace(-1, 1, output.numel()).view(output.shape)).sum().backward()
    return [output.detach().float(), *(part.grad.float() for part in parts)]


@pytest.mark.parametrize("scaling", [None, 0.5])
def test_it_is_exact_attention_rounded(scaling):
    torch.manual_seed(0)
    parts = [torch.randn(2, 3, 7, 4).bfloat16().float() for _ in range(3)]
    mask = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    mask[0, :, :, 5:] = False
    for visible in (mask, None):
        exact = layer(parts, visible, torch.float32, scaling=scaling)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = layer(parts, visible, torch.bfloat16, scaling=scaling)
        assert all(one.shape == other.shape for one, other in zip(exact, rounded, strict=True))
        for one, other in zip(exact, rounded, strict=True):
            assert (one - other).abs().max() < ROUNDING * one.abs().max()
    assert exact[0].shape == (2, 7, 3, 4)


def test_a_token_that_sees_none_leaves_the_others_finite():
    """Padding of a local attention, further from the last token than the window."""
    torch.manual_seed(0)
    parts = [torch.randn(1, 2, 6, 4) for _ in range(3)]
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[..., 3:] = False
    whole = layer(parts, mask, torch.bfloat16)
    mask[:, :, 5] = False
    results = layer(parts, mask, torch.bfloat16)
    assert all(torch.isfinite(result).all() for result in results)
    torch.testing.assert_close(results[0][:, :5], whole[0][:, :5], rtol=0, atol=0)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"is_causal": False, "softcap": 30.0}])
def test_causal_attention_and_other_variants_stay_with_torch(options, monkeypatch):
    monkeypatch.setattr(attention, "sdpa_attention_forward", lambda *_, **__: ("torch's", None))
    part = torch.randn(1, 2, 6, 4).bfloat16()
    assert attention._forward(torch.nn.Module(), part, part, part, None, **options)[0] == "torch's"


def test_long_texts_stay_with_torch_whose_memory_grows_with_their_length_alone(monkeypatch):
    monkeypatch.setattr(attention, "sdpa_attention_forward", lambda *_, **__: ("torch's", None))
    monkeypatch.setattr(attention, "_MAX_SHARES", 1 * 2 * 6 * 6)
    results = []
    for tokens in (6, 7):
        part = torch.randn(1, 2, tokens, 4).bfloat16()
        results.append(attention._forward(torch.nn.Module(), part, part, part, None, is_causal=False)[0])
    assert isinstance(results[0], torch.Tensor) and results[1] == "torch's"


def test_hidden_tokens_change_nothing():
    torch.manual_seed(0)
    parts = [torch.randn(1, 2, 6, 4) for _ in range(3)]
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[..., 4:] = False
    before = layer(parts, mask, torch.bfloat16)
    for part in parts[1:]:
        part[:, :, 4:] = 9.0
    after = layer(parts, mask, torch.bfloat16)
    torch.testing.assert_close(before[0], after[0], rtol=0, atol=0)
    assert not after[2][:, :, 4:].any() and not after[3][:, :, 4:].any()


def test_a_model_computes_the_same_loss_and_gradients(tiny_model):
    from transformers import AutoModelForQuestionAnswering

    losses, gradients = [], []
    for fast in (False, True):
        torch.manual_seed(0)
        model = AutoModelForQuestionAnswering.from_pretrained(tiny_model)
        if fast:
            attention.speed_up(model)
            assert model.config._attn_implementation == attention._NAME
        ids = torch.arange(5, 29).view(2, 12) % 20
        mask = torch.ones(2, 12, dtype=torch.long)
        mask[1, 8:] = 0
        with torch.autocast("cpu", torch.bfloat16, enabled=fast):
            output = model(input_ids=ids, attention_mask=mask, start_positions=ids[:, 1], end_positions=ids[:, 2])
        output.loss.backward()
        losses.append(output.loss.item())
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]))
    assert losses[1] == pytest.approx(losses[0], rel=ROUNDING)
    assert torch.cosine_similarity(*gradients, dim=0) > 0.999


def test_the_saved_configuration_does_not_name_it(tiny_model, tmp_path):
    from transformers import AutoModel

    model = AutoModel.from_pretrained(tiny_model)
    attention.speed_up(model)
    model.save_pretrained(tmp_path)
    assert attention._NAME not in (tmp_path / "config.json").read_text("utf-8")
