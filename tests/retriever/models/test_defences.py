"""Defences of vectors, the encoders that carry them, and indexes that change to them and back."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat

import numpy as np
import pytest
from safetensors.numpy import save_file

from binocle import Retriever, load_encoder
from binocle.core.errors import BinocleError, EncoderMismatchError, InputError
from binocle.retriever.indexing import switch as switching
from binocle.retriever.models.defences import KINDS, Binary, Int8, Noise, ProductCodes, Rotation, from_parts, to_parts
from binocle.retriever.models.encoders.defended_encoder import DefendedEncoder, save_defended_encoder
from binocle.training.audit import defences
from binocle.training.audit.apply import check, defend

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
NAMES = ["none", "noise=0.01", "truncate=16", "int8", "binary", "pq=8", "rotation"]
TEXTS = [f"text {number}" for number in range(400)]


@pytest.fixture(scope="session")
def vectors():
    random = np.random.default_rng(0).standard_normal((400, 32)).astype(np.float32)
    return random / np.linalg.norm(random, axis=1, keepdims=True)


def made(name, vectors, key=KEY):
    return defences.fit(defences.parse([name])[-1], vectors, key)


# The effect of a defence


@pytest.mark.parametrize("name", NAMES)
def test_stored_vectors_have_length_one_and_the_shape_that_is_told(name, vectors):
    defence = made(name, vectors)
    stored, asked = defence.documents(vectors, TEXTS), defence.queries(vectors)
    for found in (stored, asked):
        assert found.shape == (400, defence.stored_dim)
        assert found.dtype == np.float32 and found.flags.c_contiguous
        assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-5)
    assert (stored == made(name, vectors).documents(vectors, TEXTS)).all()


@pytest.mark.parametrize("name", NAMES)
def test_other_lengths_are_kept_too(name, vectors):
    longer = 3 * vectors
    stored = made(name, longer).documents(longer, TEXTS)
    assert np.linalg.norm(stored, axis=1) == pytest.approx(3, abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_is_stored_alike_whatever_it_is_stored_with(name, vectors):
    defence = made(name, vectors)
    together = defence.documents(vectors[:9], TEXTS[:9])
    alone = np.concatenate([defence.documents(vectors[n : n + 1], TEXTS[n : n + 1]) for n in range(9)])
    assert alone == pytest.approx(together, abs=1e-6)
    assert defence.documents(vectors[:0], []).shape == (0, defence.stored_dim)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("none", 128),
        ("noise=0.1", 128),
        ("truncate=16", 64),
        ("int8", 32),
        ("binary", 4),
        ("pq=8", 8),
        ("rotation", 128),
    ],
)
def test_the_bytes_of_a_vector(name, taken, vectors):
    assert made(name, vectors).bytes == taken


def test_a_rotation_keeps_every_inner_product(vectors):
    defence = made("rotation", vectors)
    stored, asked = defence.documents(vectors, TEXTS), defence.queries(vectors)
    assert np.abs(stored @ asked.T - vectors @ vectors.T).max() < 1e-6
    assert np.abs(stored - vectors).max() > 0.1
    assert np.abs(stored - made("rotation", vectors, OTHER_KEY).documents(vectors, TEXTS)).max() > 0.1


def test_a_rotation_is_orthogonal_and_follows_from_its_key_alone():
    matrix = defences.rotation(48, KEY)
    assert np.abs(matrix @ matrix.T - np.eye(48)).max() < 1e-12
    assert (matrix == defences.rotation(48, KEY)).all()
    assert (matrix != defences.rotation(48, OTHER_KEY)).any()


def test_rotations_favour_no_direction():
    firsts = np.array([defences.rotation(3, hashlib.sha256(b"%d" % n).digest())[0] for n in range(2_000)])
    assert np.abs(firsts.mean(0)).max() < 0.05
    assert np.abs(np.cov(firsts.T) - np.eye(3) / 3).max() < 0.05


def test_noise_is_of_the_text_and_the_key_and_not_of_the_query(vectors):
    defence = made("noise=0.05", vectors)
    same = np.repeat(vectors[:1], 400, 0)
    stored = defence.documents(same, TEXTS)
    assert len(np.unique(stored, axis=0)) == 400
    assert (stored != made("noise=0.05", vectors, OTHER_KEY).documents(same, TEXTS)).any(1).all()
    assert (defence.queries(vectors) == vectors).all()


def test_noise_is_normal_with_the_deviation_asked_for():
    defence = Noise(1_000, 0.01, np.frombuffer(KEY, np.uint8))
    vectors = np.zeros((100, 1_000), np.float32)
    vectors[:, 0] = 1
    stored = defence.documents(vectors, TEXTS[:100])
    noise = (stored / stored[:, :1] * (1 + 0))[:, 1:]  # before it was scaled, but for the noise of the first coordinate
    assert noise.std() == pytest.approx(0.01, rel=0.02)
    assert abs(noise.mean()) < 1e-4
    assert (noise**4).mean() / noise.var() ** 2 == pytest.approx(3, abs=0.1)  # kurtosis of a normal distribution


def test_truncation_keeps_the_first_dimensions_of_documents_and_queries(vectors):
    defence = made("truncate=5", vectors)
    expected = vectors[:, :5] / np.linalg.norm(vectors[:, :5], axis=1, keepdims=True)
    assert defence.documents(vectors, TEXTS) == pytest.approx(expected, abs=1e-6)
    assert defence.queries(vectors) == pytest.approx(expected, abs=1e-6)


def test_int8_is_one_byte_a_dimension_within_half_a_level(vectors):
    defence = made("int8", vectors)
    assert isinstance(defence, Int8)
    codes = defence.codes(vectors)
    assert codes.dtype == np.uint8 and codes.nbytes == defence.bytes * len(vectors)
    assert codes.min() == 0 and codes.max() == 255
    decoded = defence.low + codes * (defence.high - defence.low) / 255
    assert (np.abs(decoded - vectors) <= (defence.high - defence.low) / 255 / 2 + 1e-6).all()
    assert (defence.codes(10 * vectors) <= 255).all()  # what lies outside of the bounds is cut off


def test_a_dimension_that_never_changes_is_no_obstacle(vectors):
    flat = vectors.copy()
    flat[:, 3] = 0
    stored = made("int8", flat).documents(flat, TEXTS)
    assert np.isfinite(stored).all() and np.abs(stored[:, 3]).max() < 1e-6


def test_binary_is_the_sign_alone(vectors):
    stored = Binary(32).documents(vectors, TEXTS)
    assert (np.sign(stored) == np.where(vectors < 0, -1, 1)).all()
    assert np.abs(stored) == pytest.approx(1 / np.sqrt(32))


def test_product_codes_are_the_nearest_centroids(vectors):
    defence = made("pq=4", vectors)
    assert isinstance(defence, ProductCodes)
    assert defence.centroids.shape == (4, 256, 8)
    distances = ((vectors.reshape(400, 4, 1, 8) - defence.centroids[None]) ** 2).sum(3)
    assert (defence.codes(vectors) == distances.argmin(2)).mean() > 0.999  # of equal distances either


def test_few_vectors_get_fewer_centroids_and_faiss_says_nothing(vectors, capfd):
    defence = made("pq=4", vectors[:20])
    assert isinstance(defence, ProductCodes)
    assert defence.centroids.shape == (4, 16, 8)
    assert defence.bytes == 2
    assert capfd.readouterr() == ("", "")


# Names


@pytest.mark.parametrize("name", ["int8", "pq=4"])
def test_what_is_fitted_needs_two_vectors_of_finite_numbers(name, vectors):
    with pytest.raises(InputError, match="to 2 finite vectors and more, but 1 of 1 are finite"):
        made(name, vectors[:1])
    with pytest.raises(InputError, match="but 0 of 0 are finite"):
        made(name, vectors[:0])
    some = vectors[:5].copy()
    some[2, 1] = np.nan
    with pytest.raises(InputError, match="but 4 of 5 are finite"):
        made(name, some)
    assert made(name, vectors[:2]).documents(vectors[:2], ["a", "b"]).shape == vectors[:2].shape


def test_no_defence_comes_first_and_each_setting_once():
    assert [one.name for one in defences.parse(["int8", "noise=0.010", "none", "int8"])] == [
        "none",
        "int8",
        "noise=0.01",
    ]


def test_the_defaults_are_made_for_the_dimension(vectors):
    assert [one.name for one in defences.default(384)] == [
        *("none", "noise=0.01", "noise=0.03", "noise=0.06", "truncate=192", "truncate=96", "int8", "binary"),
        *("pq=96", "pq=48", "rotation"),
    ]
    for dim in (1, 2, 7, 30):
        for setting in defences.default(dim):
            if dim > 1 or setting.kind != "truncate":
                assert defences.fit(setting, vectors[:, :dim], KEY).dim == dim


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("blur", "there is no defence 'blur': expected some of none, noise=NUMBER"),
        ("noise", "expected noise=NUMBER"),
        ("int8=3", "expected int8"),
        ("noise=much", "a number above 0"),
        ("noise=-1", "a number above 0"),
        ("noise=nan", "a number above 0"),
        ("truncate=0.5", "a whole number"),
        ("truncate=32", "cut to fewer"),
        ("pq=5", "a divisor of 32"),
    ],
)
def test_names_that_mean_nothing_are_refused(name, says, vectors):
    with pytest.raises(InputError, match=says):
        made(name, vectors)


@pytest.mark.parametrize("name", NAMES)
def test_a_defence_is_what_it_is_made_of(name, vectors):
    defence = made(name, vectors)
    again = from_parts(defence.kind, *to_parts(defence))
    assert (again.documents(vectors, TEXTS) == defence.documents(vectors, TEXTS)).all()
    assert set(KINDS) == set(defences.TABLE)


def test_parts_that_do_not_fit_are_refused():
    secret = np.frombuffer(KEY, np.uint8)
    for kind, numbers, arrays in (
        ("blur", {}, {}),
        ("noise", {"dim": 4}, {"secret": secret}),
        ("noise", {"dim": 4, "strength": 0.1}, {"secret": secret[:4]}),
        ("noise", {"dim": True, "strength": 0.1}, {"secret": secret}),
        ("rotation", {}, {"matrix": np.ones((4, 4))}),
        ("rotation", {}, {"matrix": np.full((4, 4), np.nan)}),
        ("int8", {}, {"low": np.zeros(4, np.float32), "high": np.zeros(3, np.float32)}),
        ("pq", {}, {"centroids": np.zeros((2, 2), np.float32)}),
        ("truncate", {"dim": 4, "length": 5}, {}),
    ):
        with pytest.raises(InputError):
            from_parts(kind, numbers, arrays)


# Encoders with a defence


@pytest.fixture(scope="session")
def encoders(tmp_path_factory, tiny):
    """The folder of a defended encoder for each defence. Not to be changed."""
    root = tmp_path_factory.mktemp("defended")
    vectors = tiny.encode([f"{text} cat dog {number}" for number, text in enumerate(TEXTS[:100])])
    return {name: save_defended_encoder(root / name, tiny, made(name, vectors)) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_defended_encoder_is_loaded_from_its_folder_and_encodes_as_its_base_with_the_defence(name, encoders, tiny):
    encoder = load_encoder(str(encoders[name]))
    assert isinstance(encoder, DefendedEncoder)
    texts = ["the cat sat", "income tax \ud800"]
    clean = [text.replace("\ud800", "\ufffd") for text in texts]
    assert (encoder.encode(texts) == encoder.defence.documents(tiny.encode(texts), clean)).all()
    assert (encoder.encode(texts, kind="query") == encoder.defence.queries(tiny.encode(texts, kind="query"))).all()
    assert encoder.dim == encoder.defence.stored_dim and encoder.max_tokens == tiny.max_tokens
    assert encoder.offsets(texts) == tiny.offsets(texts)
    assert encoder.name == str(encoders[name])


def test_fingerprints_tell_bases_kinds_strengths_and_secrets_apart(encoders, tmp_path, tiny, make_model):
    other_base = load_encoder(str(make_model(tmp_path / "base", seed=5)))
    more = [
        save_defended_encoder(tmp_path / "strength", tiny, Noise(32, 0.02, np.frombuffer(KEY, np.uint8))),
        save_defended_encoder(tmp_path / "secret", tiny, Noise(32, 0.01, np.frombuffer(OTHER_KEY, np.uint8))),
        save_defended_encoder(tmp_path / "other", other_base, Noise(32, 0.01, np.frombuffer(KEY, np.uint8))),
        save_defended_encoder(tmp_path / "turned", tiny, Rotation(defences.rotation(32, OTHER_KEY))),
    ]
    found = [load_encoder(str(folder)).fingerprint for folder in [*encoders.values(), *more]]
    assert len(set(found)) == len(NAMES) + 4
    assert tiny.fingerprint not in found
    assert all(len(one) == 32 for one in found)


def test_only_its_owner_can_read_the_secret_and_nothing_is_written_over(encoders, tiny):
    folder = encoders["rotation"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    with pytest.raises(InputError, match="there already"):
        save_defended_encoder(folder, tiny, Binary(32))


def test_damaged_folders_and_lost_bases_are_told(encoders, tmp_path, tiny, make_model):
    def changed(**values):
        folder = tmp_path / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(encoders["rotation"], folder)
        settings = json.loads((folder / "defence.json").read_text()) | values
        (folder / "defence.json").write_text(json.dumps(settings))
        return folder

    for values, says in (
        ({"fingerprint": "0" * 32}, "put the encoder back"),
        ({"model": str(make_model(tmp_path / "else", seed=9))}, "where it is now"),
        ({"model": str(encoders["int8"])}, "a defended encoder itself"),
        ({"model": str(tmp_path / "changed")}, "a defended encoder itself"),
        ({"model": "no/such"}, "not on this machine"),
        ({"format": 9}, "format 9"),
        ({"kind": "int8"}, "but other values came"),
        ({"numbers": []}, "expected an object"),
    ):
        with pytest.raises(BinocleError, match=says):
            load_encoder(str(changed(**values)))
    folder = changed()
    for matrix, says in ((np.ones((32, 32)), "orthogonal"), (np.eye(16), "16 dim"), (np.eye(32) * np.nan, "other val")):
        save_file({"matrix": matrix}, folder / "defence.safetensors")
        with pytest.raises(InputError, match=f"{folder / 'defence.safetensors'} does not fit defence.json: .*{says}"):
            load_encoder(str(folder))
    (folder / "defence.safetensors").write_bytes(b"torn")
    with pytest.raises(InputError, match="cannot be read"):
        load_encoder(str(folder))
    (folder / "defence.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        load_encoder(str(folder))
    with pytest.raises(InputError, match="defended encoder already"):
        save_defended_encoder(tmp_path / "twice", load_encoder(str(encoders["int8"])), Binary(32))
    with pytest.raises(InputError, match="for vectors of 16 dimensions"):
        DefendedEncoder("x", tiny, Binary(16))


# Indexes that change to one


@pytest.fixture(scope="session")
def _filled(tmp_path_factory, tiny_model):
    """An index of added documents alone, which costs no readers."""
    place = tmp_path_factory.mktemp("filled") / "index"
    words = "cat tax income bread cheese task cancel".split()
    texts = [f"The {a} and the {b} are in the house." for a in words for b in words]
    Retriever.open(place, model=tiny_model).add({"id": f"{n}", "text": text} for n, text in enumerate(texts))
    return place


@pytest.fixture
def retriever(_filled, tmp_path):
    return Retriever.open(shutil.copytree(_filled, tmp_path / "index"))


def found(retriever):
    queries = ("cancel a task", "income tax", "bread and cheese")
    return {(hit.path, hit.char_start, query): hit.score for query in queries for hit in retriever.search(query, 5)}


@pytest.mark.parametrize("name", ["rotation", "truncate=16"])
def test_an_index_changes_to_a_defended_encoder_and_back(name, retriever, tmp_path):
    before, plain = found(retriever), retriever.encoder
    done = defend(retriever, name, folder=tmp_path / "secret")
    assert done.report.switched and done.report.chunks == retriever.snapshot().chunks.count_rows()
    again = Retriever.open(retriever.path)
    assert again.encoder.fingerprint == load_encoder(str(tmp_path / "secret")).fingerprint
    assert again.verify().faults == []
    if name == "rotation":
        assert found(again) == pytest.approx(before, abs=1e-4)
    again.add([{"id": "new", "text": "Bread and cheese."}])  # goes on with the same encoder
    assert again.verify().faults == []
    again.delete("new")
    again.rollback()
    assert Retriever.open(retriever.path).encoder.fingerprint == plain.fingerprint
    assert found(Retriever.open(retriever.path)) == pytest.approx(before, abs=1e-4)


def test_every_application_has_a_secret_of_its_own(retriever, tmp_path):
    one = defend(retriever, "rotation", folder=tmp_path / "one")
    retriever.rollback()
    other = defend(retriever, "rotation", folder=tmp_path / "other")
    assert one.report.fingerprint != other.report.fingerprint


def stored_bytes(retriever):
    return b"".join(file.read_bytes() for file in retriever.path.rglob("*") if file.is_file())


def test_documents_with_embeddings_of_their_own_are_refused_before_an_audit(retriever):
    retriever.add([{"id": "own", "text": "a text", "embedding": [1.0] + [0.0] * (retriever.encoder.dim - 1)}])
    with pytest.raises(EncoderMismatchError, match="embedding of their own"):
        check(retriever, None)


def test_an_interrupted_defence_keeps_its_key_and_goes_on_with_it(tmp_path, retriever, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(switching, "_rows", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            defend(retriever, "rotation", folder=tmp_path / "key")
    report = retriever.switch(tmp_path / "key")
    assert (report.switched, report.embedded) == (True, 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("logged", [False, True])
def test_a_defence_that_stops_leaves_its_key_only_if_vectors_were_embedded_with_it(
    logged, error, tmp_path, retriever, monkeypatch
):
    def stop(*_, **__):
        raise error

    monkeypatch.setattr(switching, "_rows" if logged else "_embed", stop)
    with pytest.raises(error):
        defend(retriever, "rotation", folder=tmp_path / "key")
    assert (tmp_path / "key").exists() is logged


def test_undefended_vectors_stay_for_a_rollback_unless_they_are_erased(retriever, tmp_path):
    snapshot = retriever.snapshot()
    vector = np.array(snapshot.read("chunks", ["vector"])["vector"][3].as_py(), np.float32).tobytes()
    assert vector in stored_bytes(retriever)
    defend(retriever, "rotation", folder=tmp_path / "one")
    assert vector in stored_bytes(retriever)
    retriever.rollback()
    defend(retriever, "rotation", folder=tmp_path / "two", keep=False)
    assert vector not in stored_bytes(retriever)
    with pytest.raises(BinocleError, match="nothing to roll back"):
        retriever.rollback()
    assert retriever.verify().faults == []


def test_the_secret_stays_out_of_the_index_and_goes_to_the_users_data_by_default(retriever, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="is in the index"):
        defend(retriever, "rotation", folder=retriever.path / "encoders" / "secret")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    done = defend(retriever, "rotation")
    assert done.folder.parent == (tmp_path / "data/binocle/encoders").resolve()
    matrix = load_encoder(str(done.folder)).defence.matrix  # type: ignore[attr-defined]
    assert matrix.tobytes()[:256] not in stored_bytes(retriever)


def test_a_lost_secret_is_an_error_and_not_another_answer(retriever, tmp_path):
    defend(retriever, "rotation", folder=tmp_path / "secret")
    shutil.rmtree(tmp_path / "secret")
    again = Retriever.open(retriever.path)
    with pytest.raises(BinocleError):
        again.search("bread", mode="semantic")
    with pytest.raises(EncoderMismatchError):
        Retriever.open(retriever.path, model=again.snapshot().head.previous.model).search("bread", mode="semantic")


@pytest.mark.parametrize(("name", "says"), [("none", "is no defence"), ("truncate=64", "cut to fewer")])
def test_what_cannot_be_applied_changes_nothing(name, says, retriever, tmp_path):
    with pytest.raises(InputError, match=says):
        defend(retriever, name, folder=tmp_path / "secret")
    assert not (tmp_path / "secret").exists()
    defend(retriever, "int8", folder=tmp_path / "first")
    with pytest.raises(InputError, match="defended encoder already"):
        defend(retriever, "binary", folder=tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_defended_index_is_not_tuned(retriever, tmp_path, monkeypatch):
    from binocle.training.tuning.tune import tune

    monkeypatch.setattr("binocle.training.runs.environment.require", lambda _: None)  # which wants torch
    defend(retriever, "int8", folder=tmp_path / "secret")
    with pytest.raises(InputError, match="has a defended or shortened encoder"):
        tune(retriever)
