"""An encoder that pools an earlier layer, or several: its vectors, its folder, and its training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

from sentence_transformers import SentenceTransformer

from binocle.core.errors import InputError
from binocle.retriever.models.bert.bert_encoder import BertEncoder
from binocle.retriever.models.load import load_encoder
from binocle.training.encoders.base_model import make_model
from binocle.training.encoders.config import EncoderConfig, check
from binocle.training.encoders.train import train_encoder

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves

TEXTS = ["The cat sat on the mat.", "Income tax"]
PAIRS = [{"query": f"cat {n}", "positive": f"The cat number {n} sat on the mat."} for n in range(20)]


@pytest.fixture(scope="module")
def deep(tmp_path_factory, tiny_model) -> str:
    """A BERT of four layers without modules.json, its tokenizer that of the tiny model."""
    folder = tmp_path_factory.mktemp("deep") / "deep"
    torch.manual_seed(3)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def expected(model: str, numbers: tuple[int, ...], pooling: str = "mean") -> np.ndarray:
    """The pooled mean of the states of layers, by transformers alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    bert = transformers.AutoModel.from_pretrained(model).eval()
    vectors = []
    for text in TEXTS:
        with torch.no_grad():
            states = bert(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        mean = torch.stack([states[number][0] for number in numbers]).mean(0)
        vectors.append(mean[0] if pooling == "cls" else mean.mean(0))
    return torch.nn.functional.normalize(torch.stack(vectors), dim=1).numpy()


@pytest.mark.thorough
@pytest.mark.parametrize("numbers", [(1,), (3,), (4,), (1, 2), (2, 4), (4, 1, 3)], ids=str)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_the_layers_in_every_loader(numbers, pooling, deep, tmp_path):
    model = make_model(deep, EncoderConfig(pooling=(pooling,), pooling_layers=numbers))
    model.save_pretrained(str(tmp_path / "out"), create_model_card=False)
    own = load_encoder(str(tmp_path / "out"))
    plain = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    vectors = expected(deep, numbers, pooling)
    np.testing.assert_allclose(plain.encode(TEXTS), vectors, atol=1e-5)
    np.testing.assert_allclose(own.encode(TEXTS), vectors, atol=1e-5)
    assert isinstance(own, BertEncoder) == (len(numbers) == 1)
    assert json.loads((tmp_path / "out/config.json").read_text())["num_hidden_layers"] == max(numbers)


def test_other_layers_of_a_model_with_several_replace_them(deep, tmp_path):
    make_model(deep, EncoderConfig(pooling_layers=(1, 2, 3))).save_pretrained(str(tmp_path / "three"))
    for numbers in ((1, 2), (2,)):
        model = make_model(str(tmp_path / "three"), EncoderConfig(pooling_layers=numbers))
        np.testing.assert_allclose(model.encode(TEXTS), expected(deep, numbers), atol=1e-5)


@pytest.mark.parametrize("numbers", [(2,), (1, 3)], ids=str)
def test_such_an_encoder_trains_and_its_layers_keep_their_weights(numbers, deep, tmp_path):
    config = EncoderConfig(steps=2, batch_size=8, learning_rate=1e-2, pooling_layers=numbers, evaluations=1)
    result = train_encoder(PAIRS, tmp_path / "out", base=deep, config=config)
    own, plain = load_encoder(str(result.folder)), SentenceTransformer(str(result.folder), device="cpu")
    np.testing.assert_allclose(own.encode(TEXTS), plain.encode(TEXTS, normalize_embeddings=True), atol=1e-5)
    assert np.abs(own.encode(TEXTS) - expected(deep, numbers)).max() > 1e-3
    if len(numbers) > 1:
        assert plain[1].layer_weights.tolist() == [1, 0, 1]
    card = json.loads(Path(result.folder, "binocle.json").read_text("utf-8"))
    assert card["config"]["pooling_layers"] == list(numbers)


def test_layers_that_are_not_there_are_told(deep, tmp_path):
    def message(base: str, *numbers: int) -> str:
        with pytest.raises(InputError) as caught:
            make_model(base, EncoderConfig(pooling_layers=numbers))
        return str(caught.value)

    assert message(deep, 2, 5) == f"{deep} has 4 layers, not 5: pool layers from 1 to 4"
    table = SentenceTransformer(modules=[make_static(deep)])
    table.save_pretrained(str(tmp_path / "table"), create_model_card=False)
    assert "has no layers to choose from: leave the pooling layers out" in message(str(tmp_path / "table"), 1)
    for numbers in ((0,), (2, 2), (-1, 3)):
        with pytest.raises(InputError, match="pooling layers are different numbers from 1, not"):
            check(EncoderConfig(steps=1, pooling_layers=numbers))


def make_static(model: str):
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    return StaticEmbedding(tokenizer, embedding_weights=np.eye(tokenizer.get_vocab_size(), 8, dtype=np.float32))
