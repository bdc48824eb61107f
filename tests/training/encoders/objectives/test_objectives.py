"""Objectives: their choice by shape, their losses, and what they do to texts and to vectors of a teacher."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

from binocle.training.data.dataset import Shape, prepare
from binocle.training.encoders.objectives import losses, objectives
from binocle.training.encoders.objectives.teacher_vectors import _shortener
from binocle.training.encoders.objectives.tsdae import delete_words

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves


def test_texts_are_thinned_by_words_and_where_no_spaces_part_them_by_characters():
    words = "the cat sat on the mat and the dog ran over the mountain at night".split()
    kept = delete_words("  ".join(words), 0, 0).split()
    assert 0 < len(kept) < len(words)
    rest = iter(words)
    assert all(word in rest for word in kept)
    for text in ("私は昨日の夜に船で海を渡って山に登りました", "我昨天晚上坐船过海爬山", "ฉันข้ามทะเลเมื่อคืนนี้"):
        kept = delete_words(text, 0, 0)
        assert 0 < len(kept) < len(text)
        rest = iter(text)
        assert all(character in rest for character in kept)


def test_the_objective_follows_from_the_shape():
    assert {shape: objectives.choose(None, shape) for shape in Shape} == {
        Shape.PAIRS: "ranking",
        Shape.TRIPLETS: "ranking",
        Shape.SCORED: "cosent",
        Shape.LABELLED: "online-contrastive",
        Shape.CLASSED: "softmax",
        Shape.GRADED: "kl",
        Shape.GROUPED: "batch-semi-hard",
        Shape.TEXTS: "tsdae",
    }


def test_vectors_are_shortened_with_the_cosines_that_they_had():
    generator = np.random.default_rng(0)
    flat = generator.standard_normal((500, 8)) @ generator.standard_normal((8, 20))  # 8 directions hold all of them
    vectors = (flat / np.linalg.norm(flat, axis=1, keepdims=True)).astype(np.float32)

    class Teacher:
        dim = 20

        def encode(self, texts, *, kind):
            return vectors[[int(text) for text in texts]]

    short = _shortener(Teacher(), [str(n) for n in range(500)], 8)(vectors)
    assert short.shape == (500, 8)
    np.testing.assert_allclose(short @ short.T, vectors @ vectors.T, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("triplet-cosine", 2 * (1 - 0.6) - 2 * (1 - 0.8) + 0.2),  # FaceNet's: squared distances at length 1
        ("triplet-euclidean", 0.8**0.5 - 0.4**0.5 + 1),  # Sentence-BERT's
    ],
)
def test_a_triplet_has_the_distance_of_its_source(name, loss):
    import torch

    anchor, positive, negative = (torch.tensor([row]) for row in ((1.0, 0.0), (0.6, 0.8), (0.8, 0.6)))
    built = losses._BUILDERS[name](None, None, losses.LossOptions())
    assert float(built.compute_loss_from_embeddings([anchor, positive, negative], None)) == pytest.approx(loss)


@pytest.mark.parametrize(("name", "distance"), [("batch-hard", 0.8**0.5), ("batch-semi-hard", 0.8)])
def test_triplets_in_a_batch_have_the_distance_of_their_source(name, distance):
    import torch

    built = losses._BUILDERS[name](None, None, losses.LossOptions())
    distances = built.distance_metric(torch.tensor([(1.0, 0.0), (0.6, 0.8)]))
    assert float(distances[0, 1]) == pytest.approx(distance)


@pytest.fixture
def unbounded_model(tiny_model):
    """The tiny encoder without the module that brings its vectors to length 1."""
    from binocle.training.encoders.base_model import make_model
    from binocle.training.encoders.config import EncoderConfig

    model = make_model(tiny_model, EncoderConfig()).eval()
    return type(model)(modules=list(model)[:2])


def test_the_beginning_of_a_teachers_vector_is_learned_at_length_1(unbounded_model):
    import torch
    from torch.nn.functional import mse_loss, normalize

    model = unbounded_model
    texts, size = ["the cat", "a king and a queen"], model.get_embedding_dimension()
    teacher = normalize(torch.randn(2, size, generator=torch.Generator().manual_seed(0)), dim=1)
    loss = losses.build("embeddings", model, None, losses.LossOptions(), [4])
    with torch.no_grad():
        vectors = torch.from_numpy(model.encode(texts))
        parts = [mse_loss(*(normalize(own[:, :length], dim=1) for own in (vectors, teacher))) for length in (size, 4)]
        assert float(loss([model.preprocess(texts)], teacher)) == pytest.approx(float(sum(parts)), rel=1e-4)


@pytest.mark.parametrize(
    ("scores", "scale"),
    [
        ((1.6, -1.2), 1),
        ((2.5, 0.1), 20),
        (([0.6, 0.2], [0.4, -0.9]), 1),
        (([1.6, 0.2], [0.4, 0.0]), 20),
    ],
)
def test_differences_of_cosines_reach_from_minus_2_to_2(scores, scale, tmp_path, tiny_model):
    from binocle.training.encoders.base_model import make_model
    from binocle.training.encoders.config import EncoderConfig

    row = {"query": "a", "positive": "b", "negative": "c"}
    name = "scores" if isinstance(scores[0], list) else "score"
    data = prepare([row | {name: value} for value in scores], tmp_path, held_out=0)
    loss = losses.build("margin-mse", make_model(tiny_model, EncoderConfig()), data, losses.LossOptions())
    assert loss.similarity_fct.keywords == {"scale": scale}


def test_margins_of_vectors_that_matryoshka_brings_to_length_1_are_scaled(unbounded_model, monkeypatch):
    monkeypatch.setattr(losses, "are_cosines", lambda _: False)
    plain, shortened = (
        losses.build("margin-mse", unbounded_model, None, losses.LossOptions(), dims) for dims in ((), [4])
    )
    assert plain.similarity_fct.keywords == {"scale": 1.0}  # dot products of any size reach a teacher's margins
    assert shortened.loss.similarity_fct.keywords == {"scale": 20.0}


QUERIES = [(1.0, 0.0), (0.0, 1.0)]
DOCUMENTS = [(0.8, 0.6), (0.6, 0.8)]  # cosines .8 and .6 with the first query, .6 and .8 with the second


@pytest.mark.parametrize(("name", "directions"), [("ranking", 1), ("symmetric-ranking", 2)])
def test_the_ranking_loss_of_two_pairs_is_the_cross_entropy_of_their_scaled_cosines(name, directions):
    import torch

    built = losses._BUILDERS[name](None, None, losses.LossOptions(scale=10.0))
    loss = built.compute_loss_from_embeddings([torch.tensor(QUERIES), torch.tensor(DOCUMENTS)], None)
    expected = np.log(1 + np.exp(10 * (0.6 - 0.8)))  # the same in both directions
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert len(built.directions) == directions


def test_labels_from_1_to_5_are_learned_as_cosines_from_0_to_1():
    import torch

    class Encoded(torch.nn.Module):
        """A model that takes vectors as its inputs."""

        def forward(self, vectors):
            return {"sentence_embedding": vectors}

    columns = [torch.tensor([(1.0, 0.0), (1.0, 0.0)]), torch.tensor(DOCUMENTS)]
    loss = losses.RescaledCosineLoss(Encoded(), 1.0, 5.0)(columns, torch.tensor([5.0, 2.0]))
    assert float(loss) == pytest.approx(((0.8 - 1) ** 2 + (0.6 - 0.25) ** 2) / 2)


def test_a_classifier_takes_the_beginnings_of_three_vectors_as_if_the_rest_were_0():
    import torch

    linear = losses.PaddedLinear(9, 2)
    short = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])  # u, v and |u - v|, of length 2 instead of 3
    whole = torch.tensor([[1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 5.0, 6.0, 0.0]])
    assert linear(short).tolist() == torch.nn.functional.linear(whole, linear.weight, linear.bias).tolist()
    assert linear(whole).tolist() == torch.nn.functional.linear(whole, linear.weight, linear.bias).tolist()


@pytest.mark.parametrize(
    ("temperature", "cosines", "expected"), [(None, True, 0.05), (None, False, 1.0), (0.3, True, 0.3)]
)
def test_a_teacher_with_cosines_for_scores_is_as_sure_as_the_student(temperature, cosines, expected, monkeypatch):
    import torch

    monkeypatch.setattr(losses, "are_cosines", lambda _: cosines)
    loss = losses._BUILDERS["kl"](None, None, losses.LossOptions(temperature=temperature))
    assert (loss.student_temperature, loss.teacher_temperature) == (1.0, pytest.approx(expected))
    left, right = torch.tensor([(1.0, 0.0)]), torch.tensor([(1.2, 1.6)])
    assert float(loss.similarity_fct(left, right)[0]) == pytest.approx(20 * 0.6)
