"""Every family trains, saves, loads and serves under each head; most of the BERT family without torch."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from binocle.retriever.models.bert.families import FAMILIES
from binocle.retriever.models.heads.bert_head import BertHead
from binocle.retriever.models.heads.classifier import load_classifier
from binocle.retriever.models.heads.reader import load_reader
from binocle.retriever.models.heads.tagger import load_tagger
from binocle.training.heads.config import ClassifierConfig, HeadConfig, ReaderConfig
from binocle.training.heads.train import train_classifier, train_reader, train_tagger
from binocle.training.runs import attention

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # 21 trainings of a few seconds

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
CONFIGS = {
    "bert": ("BertConfig", {**SIZES}),
    "roberta": ("RobertaConfig", {**SIZES, "pad_token_id": 0}),
    "albert": ("AlbertConfig", {**SIZES, "embedding_size": 16}),
    "distilbert": ("DistilBertConfig", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "deberta": (
        "DebertaV2Config",
        {
            **SIZES,
            "relative_attention": True,
            "position_buckets": 16,
            "norm_rel_ebd": "layer_norm",
            "pos_att_type": ["p2c", "c2p"],
        },
    ),
    "mpnet": ("MPNetConfig", {**SIZES}),
    "modernbert": (
        "ModernBertConfig",
        {**SIZES, "pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3},
    ),
}
STEPS = {"steps": 2, "batch_size": 4, "held_out": 0.2, "evaluations": 1, "bf16": False, "max_length": 32}


def build(folder: Path, family: str, tiny_model: str) -> Path:
    """A random encoder of a family, with the tokenizer of the tiny model."""
    name, options = CONFIGS[family]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=f"{tiny_model}/tokenizer.json",
        **{f"{kind}_token": f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")},
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = getattr(transformers, name)(vocab_size=len(tokenizer), max_position_embeddings=66, **options)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session", params=CONFIGS)
def base(request, tmp_path_factory, tiny_model):
    return request.param, str(build(tmp_path_factory.mktemp(request.param), request.param, tiny_model))


def test_a_reader_of_every_family_is_trained_and_served(base, tmp_path, squad_rows):
    family, folder = base
    train_reader(squad_rows(20), tmp_path / "out", base=folder, config=ReaderConfig(**STEPS))
    reader = load_reader(tmp_path / "out")
    text = "the cat sat on the mat " * 20
    (span,) = reader.read("where the cat", [text])
    assert text[span.start : span.end] == span.text
    assert isinstance(reader.head, BertHead) == (family in FAMILIES and family != "modernbert")


def test_a_classifier_of_every_family_is_trained_and_served(base, tmp_path):
    _, folder = base
    rows = [{"text": f"{word} ran {n}", "label": word} for n in range(10) for word in ("cat", "dog")]
    train_classifier(rows, tmp_path / "out", base=folder, config=ClassifierConfig(fine_tune=True, **STEPS))
    (prediction,) = load_classifier(tmp_path / "out").classify(["the cat ran"])
    assert sum(prediction.scores.values()) == pytest.approx(1, abs=1e-5)


def test_a_tagger_of_every_family_is_trained_and_served(base, tmp_path):
    family, folder = base
    rows = [{"tokens": ["the", "cat", f"{n}"], "tags": ["O", "B-PET", "O"]} for n in range(20)]
    layers = None if family == "albert" else 1  # its layers share one set of weights
    train_tagger(rows, tmp_path / "out", base=folder, config=HeadConfig(**STEPS, layers=layers))
    tagger = load_tagger(tmp_path / "out")
    assert isinstance(tagger.tag(["the cat 3"])[0], list) and tagger.labels == ("O", "B-PET", "I-PET")


def test_the_attention_of_training_gives_every_family_about_the_same_gradients(base):
    _, folder = base
    gradients = []
    for is_fast in (False, True):
        torch.manual_seed(0)
        model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder)
        if is_fast:
            attention.speed_up(model)
        ids = torch.arange(5, 53).view(2, 24) % 20
        mask = torch.ones(2, 24, dtype=torch.long)
        mask[1, 15:] = 0
        with torch.autocast("cpu", torch.bfloat16):
            output = model(input_ids=ids, attention_mask=mask, start_positions=ids[:, 1], end_positions=ids[:, 2])
        output.loss.backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]))
    assert torch.cosine_similarity(*gradients, dim=0) > 0.999
