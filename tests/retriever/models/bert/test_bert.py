from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from binocle.core.errors import BinocleError, InputError
from binocle.retriever.models.bert.numpy import BertNumpy, _gelu
from binocle.retriever.models.bert.weights import BertConfig, load_bert, load_weights

TEXTS = [
    "The cat sat on the mat.",
    "",
    "bread",
    "A cancelled task raises an error in the worker; the client retries it. " * 8,
    "größe & ёлка 天気 ☃ 👩‍🚀 xyzzy",
    "income tax, due every year!",
]


@pytest.fixture(scope="session")
def bert(tiny_model):
    folder = Path(tiny_model)
    config = BertConfig.from_json(json.loads((folder / "config.json").read_text()))
    return config, load_bert(folder / "model.safetensors", config)


@pytest.fixture
def batch():
    random = np.random.default_rng(7)
    lengths = [17, 1, 64, 2, 33, 5]
    ids, mask = np.zeros((6, 64), np.int64), np.zeros((6, 64), np.int64)
    for row, length in enumerate(lengths):
        ids[row, :length] = random.integers(5, 500, length)
        mask[row, :length] = 1
    return ids, mask


def real(hidden, mask):
    return hidden[mask.astype(bool)]


def test_numpy_gives_the_hidden_states_of_transformers(tiny_model, bert, batch):
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    import torch

    torch.set_num_threads(1)
    ids, mask = batch
    model = transformers.BertModel.from_pretrained(tiny_model, attn_implementation="eager").eval()
    with torch.no_grad():
        expected = model(torch.tensor(ids), attention_mask=torch.tensor(mask)).last_hidden_state.numpy()
    hidden = BertNumpy(*bert).forward(ids, mask)
    assert hidden.dtype == np.float32
    assert hidden.shape == (6, 64, 32)
    np.testing.assert_allclose(real(hidden, mask), real(expected, mask), atol=2e-5)


def test_openvino_gives_the_hidden_states_of_numpy(bert, batch):
    from binocle.retriever.models.bert.openvino import BertOpenVINO

    ids, mask = batch
    compiled = BertOpenVINO(*bert, precision="f32")
    assert compiled.precision == "f32" or "float32" in compiled.precision or "f32" in compiled.precision
    alone = BertNumpy(*bert)
    batches = [(ids, mask), (ids[:1, :17], mask[:1, :17]), (ids[1:2, :1], mask[1:2, :1]), (ids[2:], mask[2:])] * 3
    given = [hidden.copy() for hidden in compiled.map(batches)]
    assert len(given) == len(batches)
    for (some_ids, some_mask), hidden in zip(batches, given, strict=True):
        np.testing.assert_allclose(
            real(hidden, some_mask), real(alone.forward(some_ids, some_mask), some_mask), atol=1e-4
        )


@pytest.mark.parametrize("is_int8", [False, True])
def test_graphs_share_the_weights_made_from_the_models(bert, batch, is_int8):
    from binocle.retriever.models.bert.int8 import quantize
    from binocle.retriever.models.bert.openvino import BertOpenVINO

    config, weights = bert
    layers = quantize(config, weights, [batch[0][:1]]) if is_int8 else None
    folded: dict[str, np.ndarray] = {}
    first = BertOpenVINO(*bert, precision="f32", int8=layers, folded=folded)
    arrays = dict(folded)
    second = BertOpenVINO(*bert, precision="f32", int8=layers, folded=folded, one_by_one=True)
    assert bool(arrays) is not is_int8
    assert all(folded[name] is array for name, array in arrays.items())
    (given,), (other,) = ([hidden.copy() for hidden in graph.map([batch])] for graph in (first, second))
    np.testing.assert_allclose(real(given, batch[1]), real(other, batch[1]), atol=1e-5)


def test_in_bf16_only_the_last_norm_is_computed_in_float32(bert):
    from binocle.retriever.models.bert.openvino import import_openvino
    from binocle.retriever.models.bert.openvino_graph import build_graph

    ov = import_openvino()
    core = ov.Core()
    if "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor does not compute in bf16")
    options = {"classifier": False, "has_types": False, "pooling": None, "int8": {}, "folded": {}}
    model = build_graph(ov, *bert, has_bf16=True, **options)
    graph = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "bf16"})
    operations = (operation.get_rt_info() for operation in graph.get_runtime_model().get_ordered_ops())
    norms = [info["runtimePrecision"].astype(str) for info in operations if info["layerType"].astype(str) == "MVN"]
    assert norms == ["bf16"] * (len(norms) - 1) + ["f32"]
    assert len(norms) > 1


def test_openvino_gives_results_in_order_however_many_batches_are_in_flight(bert):
    from binocle.retriever.models.bert.openvino import BertOpenVINO

    compiled = BertOpenVINO(*bert, precision="f32")
    random = np.random.default_rng(0)
    batches = []
    for _ in range(40):
        shape = (int(random.integers(1, 5)), int(random.integers(1, 64)))
        batches.append((random.integers(0, 500, shape), np.ones(shape, np.int64)))
    alone = BertNumpy(*bert)
    for (ids, mask), hidden in zip(batches, compiled.map(iter(batches)), strict=True):
        np.testing.assert_allclose(hidden, alone.forward(ids, mask), atol=1e-4)
    assert list(compiled.map([])) == []


def test_openvino_is_imported_without_its_telemetry():
    code = "import sys\nfrom binocle.retriever.models.bert.openvino import import_openvino\nprint(import_openvino().__name__)\n"
    code += "assert not [name for name in sys.modules if 'telemetry' in name and not name.startswith('openvino.')], sys.modules.keys()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "openvino\n", "")


def test_what_stands_behind_the_mask_does_not_matter(bert, batch):
    ids, mask = batch
    model = BertNumpy(*bert)
    other = np.where(mask == 1, ids, 77)
    np.testing.assert_allclose(real(model.forward(ids, mask), mask), real(model.forward(other, mask), mask), atol=1e-6)


def test_padding_and_company_do_not_change_a_text(bert, batch):
    ids, mask = batch
    model = BertNumpy(*bert)
    together = model.forward(ids, mask)
    for row in range(len(ids)):
        length = int(mask[row].sum())
        alone = model.forward(ids[row : row + 1, :length], mask[row : row + 1, :length])
        np.testing.assert_allclose(alone[0], together[row, :length], atol=1e-5)


def test_the_order_of_texts_does_not_change_them(bert, batch):
    ids, mask = batch
    model = BertNumpy(*bert)
    order = np.array([3, 0, 5, 1, 4, 2])
    np.testing.assert_allclose(
        real(model.forward(ids[order], mask[order]), mask[order]),
        real(model.forward(ids, mask)[order], mask[order]),
        atol=1e-5,
    )


def test_gelu_is_x_times_the_normal_distribution():
    x = np.concatenate([np.linspace(-12, 12, 4001), [0.0, -0.0, 1e-30, -1e-30, 40, -40, 3e38, -3e38]]).astype(
        np.float32
    )
    expected = np.array([0.5 * value * math.erfc(-value / math.sqrt(2)) for value in x.astype(float).tolist()])
    with np.errstate(over="ignore", under="ignore"):
        given = _gelu(x)
    assert given.dtype == np.float32
    np.testing.assert_allclose(given, expected, atol=2e-6, rtol=2e-6)


# The configuration


def test_only_plain_bert_has_a_configuration():
    plain = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 128,
    }
    assert BertConfig.from_json(plain) == BertConfig(layers=2, heads=4, eps=1e-12, max_positions=128)
    for change in (
        {"model_type": "electra"},
        {"model_type": ["bert"]},
        {"hidden_act": "gelu_new"},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
    ):
        assert BertConfig.from_json(plain | change) is None


# The weights' file


def test_weights_come_back_by_value_without_the_prefix(tmp_path):
    random = np.random.default_rng(0)
    given = {
        "bert.a": random.standard_normal((3, 4)).astype(np.float32),
        "b": random.standard_normal((2, 2, 2)).astype(np.float32),
        "empty": np.empty((0, 4), np.float32),
        "scalar": np.array(3, np.float32),
    }
    save_file(given, tmp_path / "model.safetensors", metadata={"format": "pt"})
    read = load_bert(tmp_path / "model.safetensors", BertConfig(layers=1, heads=1, eps=1e-12, max_positions=8))
    assert read.keys() == {"a", "b", "empty", "scalar"}
    for name, array in given.items():
        np.testing.assert_array_equal(read[name.removeprefix("bert.")], array)
        assert read[name.removeprefix("bert.")].dtype == np.float32


def test_half_and_double_precision_become_single(tmp_path):
    values = np.array([[1.5, -2.25], [0.125, 1024]])
    save_file({"half": values.astype(np.float16), "double": values}, tmp_path / "m.safetensors")
    read = load_weights(tmp_path / "m.safetensors")
    assert {array.dtype for array in read.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(read["half"], values)
    np.testing.assert_array_equal(read["double"], values)


def test_bfloat16_weights_are_read(tmp_path):
    """They are float32's upper halves; a model saved in bf16 is still computed without torch."""
    values = np.array([1.5, -2.25, 0.125, 1024], np.float32)
    data = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    file = _raw(tmp_path, {"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}, data)
    np.testing.assert_array_equal(load_weights(file)["w"], values)


def test_integer_buffers_are_left_out(tmp_path):
    save_file({"embeddings.position_ids": np.arange(4), "w": np.ones(2, np.float32)}, tmp_path / "m.safetensors")
    assert load_weights(tmp_path / "m.safetensors").keys() == {"w"}


def _raw(folder: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file = folder / "hostile.safetensors"
    file.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return file


def _entry(**changes: object) -> dict[str, object]:
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


HOSTILE = {
    "header longer than the file": ({}, b"", 1 << 40),
    "header of 2**64-1 bytes": ({}, b"", 2**64 - 1),
    "header that claims the data": ({}, b"", 100),
    "not json": (b"{'w': 1}", b""),
    "not utf-8": (b'{"\xff": 1}', b""),
    "a list": ([1, 2], b"x"),
    "nested beyond reason": (b"[" * 100_000, b""),
    "entry not an object": ({"w": 3}, b"x"),
    "no dtype": ({"w": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "no shape": ({"w": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8)),
    "no offsets": ({"w": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "offsets beyond the file": (_entry(data_offsets=[0, 800], shape=[200]), bytes(8)),
    "offsets that begin beyond the file": (_entry(data_offsets=[800, 808]), bytes(8)),
    "negative offsets": (_entry(data_offsets=[-8, 8], shape=[4]), bytes(8)),
    "offsets backwards": (_entry(data_offsets=[8, 0]), bytes(8)),
    "three offsets": (_entry(data_offsets=[0, 4, 8]), bytes(8)),
    "offsets of text": (_entry(data_offsets=["0", "8"]), bytes(8)),
    "not whole numbers of floats": (_entry(data_offsets=[0, 7]), bytes(8)),
    "shape larger than the data": (_entry(shape=[1 << 40]), bytes(8)),
    "negative shape": (_entry(shape=[-1]), bytes(8)),
    "shape of text": (_entry(shape="2"), bytes(8)),
    "dtype a list": (_entry(dtype=["F32"]), bytes(8)),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_header_is_refused_in_one_line(case, tmp_path):
    file = _raw(tmp_path, *HOSTILE[case])
    with pytest.raises(BinocleError) as caught:
        load_weights(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize("size", [0, 3, 8])
def test_a_cut_file_is_refused(size, tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(size))
    with pytest.raises(InputError):
        load_weights(file)


def test_random_damage_to_a_header_is_refused_in_one_line_or_leaves_arrays_within_the_file(tiny_model, tmp_path):
    whole = (Path(tiny_model) / "model.safetensors").read_bytes()
    random = np.random.default_rng(3)
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    file = tmp_path / "model.safetensors"
    messages = []
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(int(random.integers(1, 4))):
            data[int(random.integers(0, header))] = int(random.integers(0, 256))
        file.write_bytes(data[: int(random.integers(0, len(data)))] if random.random() < 0.3 else data)
        try:
            arrays = load_weights(file)
        except InputError as error:
            messages.append(str(error))
        else:
            assert sum(array.nbytes for array in arrays.values()) <= file.stat().st_size - 8
            assert {array.dtype for array in arrays.values()} <= {np.dtype(np.float32)}
    assert 100 <= len(messages) < 150
    assert all(str(file) in message and "\n" not in message for message in messages)
