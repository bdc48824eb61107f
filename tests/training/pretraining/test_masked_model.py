"""Models with a head for masked words: every family, loaded, begun anew and trained towards the same loss."""

from __future__ import annotations

import json
import shutil

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from binocle.core.errors import InputError, ModelNotFoundError
from binocle.training.pretraining import masked_model
from binocle.training.pretraining.config import SIZES
from binocle.training.pretraining.data.masking import IGNORED
from binocle.training.pretraining.learner import MaskedLearner
from binocle.training.pretraining.masked_model import load, new_bert
from binocle.training.pretraining.vocabulary import learn_vocabulary
from binocle.training.runs import environment

_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
FAMILIES = {
    "bert": {},
    "roberta": {"type_vocab_size": 1},
    "xlm-roberta": {"type_vocab_size": 1},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    "albert": {"embedding_size": 16},
    "mpnet": {},
    "modernbert": {"global_attn_every_n_layers": 2},
    "deberta": {},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "electra": {"embedding_size": 16},
}


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    environment.silence()


def configuration(family: str):
    sizes = {} if family == "distilbert" else _SIZES
    settings = {
        "vocab_size": 200,
        "max_position_embeddings": 66,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
    }
    return transformers.AutoConfig.for_model(family, **settings, **sizes, **FAMILIES[family])


def inputs():
    torch.manual_seed(0)
    ids = torch.randint(5, 200, (3, 20))
    attention = torch.ones_like(ids)
    attention[1, 15:] = 0
    labels = torch.where(torch.rand(3, 20) < 0.2, ids, IGNORED)
    labels[1, 15:] = IGNORED
    return ids, attention, labels


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_is_that_of_the_models_own_head_and_so_are_its_gradients(family):
    torch.manual_seed(1)
    model = transformers.AutoModelForMaskedLM.from_config(configuration(family)).eval()
    ids, attention, labels = inputs()
    own = model(input_ids=ids, attention_mask=attention, labels=labels).loss
    expected = torch.autograd.grad(own, model.get_input_embeddings().weight)[0]
    outputs = MaskedLearner(model, pairs=True)(input_ids=ids, attention_mask=attention, labels=labels)
    assert outputs["tokens"].shape == ((labels != IGNORED).sum(),)
    assert outputs["pairs"].shape == (3, 2)
    torch.testing.assert_close(outputs["tokens"].mean(), own, rtol=1e-5, atol=1e-6)
    gradient = torch.autograd.grad(outputs["tokens"].mean(), model.get_input_embeddings().weight)[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def test_the_models_own_forward_is_as_before(masked_models):
    model = load(str(masked_models["bert"])).model
    ids, attention, labels = inputs()
    before = model(input_ids=ids).logits
    MaskedLearner(model, pairs=False)(input_ids=ids, attention_mask=attention, labels=labels)
    assert torch.equal(model(input_ids=ids).logits, before)


def with_tokenizer(folder, family: str, masked_models, *, head: bool):
    """A random model of a family, saved with or without the head."""
    source = masked_models["roberta" if "roberta" in family else "bert"]
    torch.manual_seed(2)
    kind = transformers.AutoModelForMaskedLM if head else transformers.AutoModel
    config = configuration(family)
    config.vocab_size = 700
    kind.from_config(config).save_pretrained(folder)
    for file in source.glob("*token*"):
        shutil.copy(file, folder)
    return str(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_a_head_gets_one_tied_to_its_words_and_the_rest_is_kept(family, masked_models, tmp_path):
    name = with_tokenizer(tmp_path / "model", family, masked_models, head=False)
    masked = load(name)
    assert masked.new_head
    body = transformers.AutoModel.from_pretrained(name).state_dict()
    loaded = masked.model.base_model.state_dict()
    assert all(torch.equal(loaded[part], body[part]) for part in loaded)
    words = masked.model.get_input_embeddings().weight
    assert masked.model.get_output_embeddings().weight is words
    masked.model.save_pretrained(tmp_path / "with")
    for file in (tmp_path / "model").glob("*token*"):
        shutil.copy(file, tmp_path / "with")
    assert not load(str(tmp_path / "with")).new_head


@pytest.mark.parametrize(("family", "limit", "types"), [("bert", 64, True), ("roberta", 64, False)])
def test_a_model_with_a_head_keeps_it(family, limit, types, masked_models):
    masked = load(str(masked_models[family]))
    assert not masked.new_head
    assert masked.max_length == limit
    assert masked.has_types is types
    own = transformers.AutoModelForMaskedLM.from_pretrained(masked_models[family]).state_dict()
    assert all(torch.equal(tensor, own[name]) for name, tensor in masked.model.state_dict().items())


def test_a_sentence_transformers_folder_is_a_base(tiny_model):
    masked = load(tiny_model)
    assert masked.new_head
    assert masked.max_length == 64


def test_weights_in_half_precision_are_trained_in_full(masked_models, tmp_path):
    shutil.copytree(masked_models["bert"], tmp_path / "half")
    transformers.AutoModelForMaskedLM.from_pretrained(masked_models["bert"], dtype=torch.bfloat16).save_pretrained(
        tmp_path / "half"
    )
    assert {tensor.dtype for tensor in load(str(tmp_path / "half")).model.parameters()} == {torch.float32}


@pytest.mark.parametrize("size", ["tiny", "mini"])
def test_a_new_model_has_its_size_and_its_vocabularys_embeddings(size, masked_models):
    tokenizer = masked_model.read_tokenizer(masked_models["bert"])
    masked = new_bert(size, tokenizer)
    layers, width = SIZES[size]
    assert (masked.model.config.num_hidden_layers, masked.model.config.hidden_size) == (layers, width)
    assert masked.model.get_input_embeddings().weight.shape == (len(tokenizer), width)
    assert masked.model.get_output_embeddings().weight is masked.model.get_input_embeddings().weight
    assert masked.has_types and masked.new_head


def test_a_vocabulary_is_learnt_from_the_texts_and_is_berts(tmp_path):
    texts = [f"The lifetimes of borrowed {word} end. " * 3 for word in ("values", "strings", "vectors", "slices")]
    tokenizer = learn_vocabulary(texts, 200)
    assert len(tokenizer) <= 200
    assert tokenizer.all_special_tokens == ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"]
    encoded = tokenizer("THE lifetimes", "of them")
    assert encoded["input_ids"][0] == tokenizer.cls_token_id
    assert set(encoded["token_type_ids"]) == {0, 1}
    assert tokenizer.unk_token_id not in encoded["input_ids"]
    assert tokenizer.decode(encoded["input_ids"], skip_special_tokens=True).startswith("the lifetimes of the")
    tokenizer.save_pretrained(tmp_path)
    assert (
        masked_model.read_tokenizer(tmp_path)("THE lifetimes")["input_ids"] == tokenizer("THE lifetimes")["input_ids"]
    )
    assert tokenizer.unk_token_id not in tokenizer("Quite other letters, and 0 < 1!")["input_ids"]
    assert learn_vocabulary(texts, 200).get_vocab() == tokenizer.get_vocab()


def damaged(folder, change):
    change(folder)
    return str(folder)


def _no_weights(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"pickle")


def _no_mask(folder):
    file = folder / "tokenizer_config.json"
    facts = json.loads(file.read_text("utf-8"))
    facts.pop("mask_token")
    file.write_text(json.dumps(facts | {"tokenizer_class": "PreTrainedTokenizerFast"}), "utf-8")


def _other_vocabulary(folder):
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["vocab_size"] = 100
    model = transformers.BertForMaskedLM(transformers.BertConfig.from_dict(config))
    model.save_pretrained(folder)


def _missing_layer(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    save_file({name: t for name, t in tensors.items() if "layer.1" not in name}, folder / "model.safetensors")


def _decoder(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}), "utf-8")


def _cut_short(folder):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_no_weights, "has no .safetensors weights: other formats are pickles and are not loaded"),
        (_no_mask, "tokenizer without a mask token"),
        (_other_vocabulary, "tokens but embeddings for 100: they are not of one model"),
        (_missing_layer, r"lacks weights of its own, such as bert.encoder.layer.1.*copy the model folder again"),
        (_decoder, r"does not load as an encoder with masked words \("),
        (_cut_short, r"does not load as an encoder with masked words \("),
    ],
)
def test_what_cannot_be_a_base_is_told_in_one_line(change, message, masked_models, tmp_path):
    folder = shutil.copytree(masked_models["bert"], tmp_path / "model")
    with pytest.raises(InputError, match=message) as raised:
        load(damaged(folder, change))
    assert "\n" not in str(raised.value)


def test_a_base_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ModelNotFoundError):
        load(str(tmp_path / "gone"))
