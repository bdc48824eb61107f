"""Documents encoded by torch on GPUs; a CPU runs the same code here, and what needs a GPU is marked."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from binocle import Retriever
from binocle.core.errors import InputError
from binocle.retriever.models.bert import bert_encoder, torch_gpu
from binocle.retriever.models.bert.bert_encoder import use_gpus
from binocle.retriever.models.encoders.adapted_encoder import AdaptedEncoder
from binocle.retriever.models.load import load_encoder

torch = pytest.importorskip("torch")

TEXTS = [
    "The cat sat on the mat.",
    "",
    "bread",
    "A cancelled task raises an error in the worker; the client retries it. " * 8,
    "größe & ёлка 天気 ☃ 👩‍🚀 xyzzy",
    *(f"{'the moon is full ' * count}and income tax is due" for count in range(20)),
]
POOLINGS = [
    {"pooling_mode_mean_tokens": True},
    {"pooling_mode": ["mean", "cls", "mean_sqrt_len_tokens", "max"]},
]


def gpu_of(encoder):
    """The copy of an encoder on the GPUs; None if there is none."""
    return encoder._gpu


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(torch_gpu, "_TOKENS", 256)
    monkeypatch.setattr(torch_gpu, "_ROWS", 7)
    monkeypatch.setattr(bert_encoder, "_GPU_TEXTS", 10)
    torch.set_num_threads(1)


@pytest.fixture
def gpus(monkeypatch):
    """Let the CPU stand for two GPUs, in float32."""
    monkeypatch.setattr(bert_encoder, "gpus", lambda: (["cpu", "cpu"], "2 GPUs"))
    monkeypatch.setenv("BINOCLE_PRECISION", "float32")


@pytest.mark.parametrize("pooling", POOLINGS, ids=json.dumps)
@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_are_those_of_the_cpu(pooling, normalize, make_model, tmp_path, gpus):
    folder = make_model(tmp_path, pooling=pooling, normalize=normalize)
    on_cpu, on_gpu = load_encoder(folder), load_encoder(folder)
    assert use_gpus(on_gpu) == "2 GPUs"
    np.testing.assert_allclose(on_gpu.encode(TEXTS), on_cpu.encode(TEXTS), atol=2e-5)
    np.testing.assert_array_equal(on_gpu.encode(TEXTS, kind="query"), on_cpu.encode(TEXTS, kind="query"))
    assert on_gpu.fingerprint == on_cpu.fingerprint


@pytest.mark.usefixtures("native_precision")
def test_half_precision_changes_vectors_little(tiny_model, monkeypatch):
    monkeypatch.setattr(bert_encoder, "gpus", lambda: (["cpu"], "1 GPU"))
    on_cpu, on_gpu = load_encoder(tiny_model), load_encoder(tiny_model)
    use_gpus(on_gpu)
    vectors = on_gpu.encode(TEXTS)
    assert gpu_of(on_gpu).parts[0]._type == torch.float16
    assert ((vectors * on_cpu.encode(TEXTS, kind="query")).sum(1) > 0.9999).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_a_text_has_one_vector_whatever_is_beside_it(tiny_model, gpus):
    encoder = load_encoder(tiny_model)
    use_gpus(encoder)
    together = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(alone, together, atol=1e-6)
    assert encoder.encode([]).shape == (0, 32)


@given(st.lists(st.integers(1, 128), max_size=300))
def test_batches_hold_every_text_once_and_no_more_than_fits(lengths):
    expected, seen = np.array(lengths, np.int64), []
    for positions, longest in torch_gpu.batches_of(expected, 128):
        own = expected[positions]
        assert own.max() <= longest <= 128
        assert own.sum() <= torch_gpu._TOKENS
        assert len(positions) <= 4 * torch_gpu._TOKENS // longest
        seen += positions.tolist()
    assert sorted(seen) == list(range(len(lengths)))


@pytest.mark.usefixtures("native_precision")
def test_a_model_that_half_precision_cannot_hold_says_what_to_do(make_model, tmp_path, monkeypatch):
    folder = make_model(tmp_path, seed=5)
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.1.output.dense.bias"] += 1e5
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.setattr(bert_encoder, "gpus", lambda: (["cpu"], "1 GPU"))
    encoder = load_encoder(folder)
    use_gpus(encoder)
    with pytest.raises(InputError, match="overflows half precision on a GPU: set BINOCLE_PRECISION=bfloat16"):
        encoder.encode(["the cat"])
    monkeypatch.setenv("BINOCLE_PRECISION", "bfloat16")
    encoder = load_encoder(folder)
    use_gpus(encoder)
    assert np.isfinite(encoder.encode(["the cat"])).all()


def test_a_gpu_that_fails_says_so_in_one_line(tiny_model, monkeypatch, gpus):
    encoder = load_encoder(tiny_model, gpu=True)

    def failing(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nSee the documentation")

    monkeypatch.setattr(torch_gpu.BertGpu, "vectors", failing)
    with pytest.raises(InputError) as failed:
        encoder.encode(["the cat"])
    assert str(failed.value) == (
        f"{tiny_model} does not run on the GPU (CUDA out of memory. Tried to allocate 2 GiB.): leave the GPU out"
    )


def test_without_a_gpu_the_cpu_encodes_and_it_is_said(tiny_model, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    encoder = load_encoder(tiny_model)
    assert use_gpus(encoder) == "the CPU: torch sees no GPU"
    np.testing.assert_array_equal(encoder.encode(TEXTS), load_encoder(tiny_model).encode(TEXTS))


def test_int8_stays_on_the_cpu_and_an_adapter_hands_its_documents_on(tiny_model, gpus):
    assert use_gpus(load_encoder(f"{tiny_model}@int8")) == "the CPU: int8 is computed there alone"
    assert load_encoder(f"{tiny_model}@int8", gpu=True).encode(["cat"]).shape == (1, 32)
    base = load_encoder(tiny_model, gpu=True)
    assert use_gpus(AdaptedEncoder("adapted", base, np.eye(32, dtype=np.float32))) == "2 GPUs"
    assert gpu_of(base)


def test_an_index_is_filled_and_switched_on_gpus_when_it_is_told_to(folder, tiny_model, make_model, tmp_path, gpus):
    retriever = Retriever.open(folder, model=tiny_model, gpu=True)
    assert retriever.encoded_by == "the CPU"
    retriever.sync()
    assert retriever.encoded_by == "2 GPUs"
    assert not retriever.verify().faults
    assert retriever.search("income tax")[0].path == "notes/taxes.md"
    retriever.switch(make_model(tmp_path / "other", seed=3))
    assert gpu_of(retriever.encoder)


def test_the_command_says_what_encoded(folder, tiny_model, gpus, run):
    shown = run("index", folder, "--model", tiny_model, "--gpu")
    assert "passages were encoded by 2 GPUs" in shown.err
    assert "encoded by" not in run("index", folder, "--gpu").err  # nothing was new


@pytest.mark.gpu
def test_a_gpu_gives_nearly_the_vectors_of_the_cpu_and_one_for_each_text(monkeypatch):
    monkeypatch.undo()  # full batches
    on_cpu, on_gpu = load_encoder(), load_encoder()
    assert "GPU" in use_gpus(on_gpu)
    texts = [*TEXTS, *(" ".join(TEXTS[:4]) + f" {number}" for number in range(300))]
    vectors = on_gpu.encode(texts)
    assert ((vectors[:60] * on_cpu.encode(texts[:60], kind="query")).sum(1) > 0.99999).all()
    for place in (0, 3, 200):
        np.testing.assert_array_equal(on_gpu.encode([texts[place]])[0], vectors[place])
