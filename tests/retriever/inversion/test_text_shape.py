"""The shape of texts' vectors tells them from vectors of no text, with a defence and without."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from binocle.core.errors import InputError
from binocle.indexes.metric import normalized
from binocle.retriever.inversion.text_shape import SHAPE, TextShape
from binocle.training.audit import defences

DIM = 128


def vectors(count: int, seed: int) -> np.ndarray:
    """Vectors that vary along the first of some turned axes more than along the last, as in real texts."""
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((DIM, DIM)))[0]
    spread = np.arange(1, DIM + 1) ** -0.8
    drawn = np.random.default_rng(seed).standard_normal((count, DIM)) * spread
    return normalized((drawn @ turn).astype(np.float32))


@pytest.fixture(scope="module")
def shape() -> TextShape:
    return TextShape.of(vectors(4_000, 1))


def test_the_evidence_is_the_log_likelihood_ratio_of_two_normal_distributions(monkeypatch: pytest.MonkeyPatch):
    module = "binocle.retriever.inversion.text_shape._SHARES"
    random = np.random.default_rng(3)
    known, drawn = (normalized(random.standard_normal((50, 6)) * [3, 2, 1, 1, 0.5, 0.2]) for _ in range(2))
    shape = TextShape.of(known.astype(np.float32))
    covariance = known.T @ known / 50
    expected = np.zeros((3, 50))
    for number, share in enumerate((0.0, 0.5, 0.9)):
        mixed = share**2 * covariance + (1 - share**2) * np.eye(6) / 6
        for own, sign in ((mixed, 1), (np.eye(6) / 6, -1)):
            squares = np.einsum("nd,de,ne->n", drawn, np.linalg.inv(own), drawn)
            expected[number] -= sign * (np.linalg.slogdet(own)[1] + squares) / 2
        monkeypatch.setattr(module, np.array([share]))
        single = shape.evidence(drawn.astype(np.float32))
        np.testing.assert_allclose(single, np.maximum(expected[number], 0), rtol=1e-3, atol=1e-3)
    monkeypatch.setattr(module, np.array([0.0, 0.5, 0.9]))
    np.testing.assert_allclose(shape.evidence(drawn.astype(np.float32)), expected.max(0), rtol=1e-3, atol=1e-3)


@pytest.mark.thorough
def test_one_of_a_thousand_vectors_of_no_text_seems_to_be_of_a_text(shape: TextShape):
    random = np.random.default_rng(4)
    directions = random.standard_normal((20_000, DIM)).astype(np.float32)
    shuffles = np.array([random.permutation(vector) for vector in np.repeat(vectors(500, 5), 10, axis=0)])
    assert 0.0003 < shape.are_of_texts(directions).mean() < 0.002
    assert shape.are_of_texts(shuffles).mean() < 0.003


@pytest.mark.parametrize(
    ("name", "least"),
    [("none", 0.99), ("int8", 0.99), ("pq=16", 0.95), ("binary", 0.95), ("noise=0.05", 0.95), ("noise=0.1", 0.8)],
)
def test_a_text_is_told_from_its_vector_with_each_defence(name: str, least: float, shape: TextShape):
    true, own = vectors(500, 6), vectors(500, 7)
    (setting,) = [setting for setting in defences.parse([name]) if setting.name == name]
    defended = defences.fit(setting, own, b"k" * 32).documents(true, [f"{number}" for number in range(len(true))])
    assert shape.are_of_texts(defended).mean() >= least


def test_a_secret_rotation_leaves_no_shape(shape: TextShape):
    _, rotation = defences.parse(["rotation"])
    turned = defences.fit(rotation, vectors(10, 8), b"k" * 32).documents(vectors(500, 6), ["a"] * 500)
    assert shape.are_of_texts(turned).mean() < 0.02


def test_a_zero_vector_is_of_no_text(shape: TextShape):
    rows = vectors(3, 9)
    rows[1] = 0
    assert shape.evidence(rows)[1] == 0
    assert shape.are_of_texts(rows).tolist() == [True, False, True]


def test_a_saved_shape_is_read_back_and_a_damaged_one_is_told(shape: TextShape, tmp_path: Path):
    assert TextShape.read(tmp_path, DIM) is None
    shape.write(tmp_path)
    again = TextShape.read(tmp_path, DIM)
    assert again and (again.axes == shape.axes).all() and (again.variances == shape.variances).all()
    with pytest.raises(InputError, match="is not of vectors of 4 numbers"):
        TextShape.read(tmp_path, 4)
    (tmp_path / SHAPE).write_bytes(b"damaged")
    with pytest.raises(InputError, match="cannot be read .*: copy its folder again"):
        TextShape.read(tmp_path, DIM)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("axes", lambda axes: axes * 0),
        ("axes", lambda axes: axes * 1e30),
        ("axes", lambda axes: axes + np.float32("nan")),
        ("axes", lambda axes: axes.astype(bool)),
        ("axes", lambda axes: axes.astype(np.complex64)),
        ("axes", lambda axes: axes.astype(np.float64)),
        ("variances", lambda variances: variances * 0),
        ("variances", lambda variances: variances * 2),
        ("variances", lambda variances: variances * 1e38),
        ("variances", lambda variances: variances + np.where(np.arange(DIM) % 2, -99, 99).astype(np.float32)),
        ("variances", lambda variances: variances + np.float32("nan")),
        ("variances", lambda variances: np.ones(len(variances), np.int64)),
    ],
)
def test_a_shape_of_impossible_numbers_is_refused(shape: TextShape, tmp_path: Path, name: str, change):
    shape.write(tmp_path)
    arrays = load_file(tmp_path / SHAPE)
    with np.errstate(all="ignore"):
        changed = np.ascontiguousarray(change(arrays[name]))
    save_file(arrays | {name: changed}, tmp_path / SHAPE)
    with pytest.raises(InputError, match="is damaged: expected finite float32 numbers, .*; copy") as refused:
        TextShape.read(tmp_path, DIM)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("kind", "size"), [("BF16", 2), ("F8_E4M3", 1), ("F8_E5M2", 1)])
def test_a_shape_of_a_type_that_numpy_lacks_is_refused(tmp_path: Path, kind: str, size: int):
    lengths = {"axes": 4 * size, "variances": 2 * size}
    header, start = {}, 0
    for name, shape in (("axes", [2, 2]), ("variances", [2])):
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, start + lengths[name]]}
        start += lengths[name]
    described = json.dumps(header).encode()
    (tmp_path / SHAPE).write_bytes(len(described).to_bytes(8, "little") + described + bytes(start))
    with pytest.raises(InputError, match=r"shape\.safetensors (cannot be read|is damaged)") as refused:
        TextShape.read(tmp_path, 2)
    assert "\n" not in str(refused.value)


def test_a_shape_without_variances_is_refused(shape: TextShape, tmp_path: Path):
    save_file({"axes": np.ascontiguousarray(shape.axes)}, tmp_path / SHAPE)
    with pytest.raises(InputError, match="expected arrays axes and variances; copy"):
        TextShape.read(tmp_path, DIM)
