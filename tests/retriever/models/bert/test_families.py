"""Model types that are computed as BERT: vectors, scores and logits equal transformers'."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from binocle.core.errors import InputError
from binocle.retriever.inspection.token_states import Inspector
from binocle.retriever.models.bert import bert_encoder, torch_gpu
from binocle.retriever.models.bert.bert_encoder import BertEncoder, use_gpus
from binocle.retriever.models.bert.bert_reranker import BertReranker
from binocle.retriever.models.bert.families import FAMILIES
from binocle.retriever.models.bert.rotary import Rotary
from binocle.retriever.models.bert.weights import BertConfig, distance_bias, load_bert
from binocle.retriever.models.heads.bert_head import BertHead
from binocle.retriever.models.heads.head import load_head
from binocle.retriever.models.heads.head_settings import CLASSIFIER, TAGGER
from binocle.retriever.models.heads.torch_head import TorchHead
from binocle.retriever.models.load import load_encoder, load_reranker

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
CONFIGS = {
    "roberta": transformers.RobertaConfig(**SIZES, type_vocab_size=1, layer_norm_eps=1e-5),
    "xlm-roberta": transformers.XLMRobertaConfig(**SIZES, type_vocab_size=1, layer_norm_eps=1e-5),
    "camembert": transformers.CamembertConfig(**SIZES, type_vocab_size=1, layer_norm_eps=1e-5),
    "distilbert": transformers.DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    "mpnet": transformers.MPNetConfig(**SIZES, layer_norm_eps=1e-5),
    "modernbert": transformers.ModernBertConfig(
        **{**SIZES, "num_hidden_layers": 3},
        local_attention=10,
        cls_token_id=0,
        sep_token_id=2,
        bos_token_id=0,
        eos_token_id=2,
    ),  # the first layer is global, the others are local
}
OWN_HEADS = {"modernbert": [CLASSIFIER, TAGGER]}  # their heads are not BERT's
LETTERS = "abcdefghijklmnopqrstuvwxyzéü.,;!?"
TEXTS = ["the cat sat on the mat.", "", "bread", "a task, which was cancelled; " * 20, "größe & été", "x " * 200]
PAIRS = [(TEXTS[0], text) for text in TEXTS]


def word_pieces() -> Tokenizer:
    pieces = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "cat", "##ed"]
    tokenizer = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def byte_pairs() -> Tokenizer:
    pieces = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the"]
    merges = [("t", "h"), ("th", "e")]
    tokenizer = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def unigrams() -> Tokenizer:
    pieces = [(piece, 0.0) for piece in SPECIAL] + [("▁", -2.0), ("▁the", -3.0)]
    tokenizer = Tokenizer(models.Unigram([*pieces, *((letter, -4.0) for letter in LETTERS)], unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    return tokenizer


TOKENIZERS = {
    "roberta": ("RobertaTokenizer", byte_pairs),
    "xlm-roberta": ("XLMRobertaTokenizer", unigrams),
    "camembert": ("XLMRobertaTokenizer", unigrams),
    "distilbert": ("DistilBertTokenizer", word_pieces),
    "mpnet": ("MPNetTokenizer", word_pieces),
    "modernbert": ("PreTrainedTokenizerFast", byte_pairs),
}


def build(folder: Path, family: str, task: str = "", *, labels: int = 1) -> Path:
    """A random model as transformers saves it, with a tokenizer of the family's own kind."""
    name, make = TOKENIZERS[family]
    tokenizer = make()
    tokenizer.add_special_tokens(SPECIAL)
    processor = processors.BertProcessing if family == "distilbert" else processors.RobertaProcessing
    tokenizer.post_processor = processor(("</s>", 2), ("<s>", 0))
    tokens = {f"{kind}_token": f"<{kind}>" for kind in ("pad", "unk", "mask")} | {"cls_token": "<s>"}
    ends = {"sep_token": "</s>", "bos_token": "<s>", "eos_token": "</s>", "model_max_length": 64}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens, **ends).save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": name}))
    config = CONFIGS[family].to_dict() | {"vocab_size": tokenizer.get_vocab_size(), "pad_token_id": 1}
    config |= {"max_position_embeddings": 64 if family in ("distilbert", "modernbert") else 66, "num_labels": labels}
    config = type(CONFIGS[family]).from_dict(config | {"initializer_range": 0.2})
    torch.manual_seed(3)
    getattr(transformers, f"AutoModel{task}").from_config(config).eval().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """The folders of encoders by family. Not to be changed."""
    root = tmp_path_factory.mktemp("families")
    return {family: build(root / family, family) for family in CONFIGS}


@pytest.fixture(params=CONFIGS)
def family(request):
    return request.param


def test_every_family_beside_bert_is_tested():
    assert {"bert", *CONFIGS} == FAMILIES.keys()


def test_vectors_are_those_of_sentence_transformers(family, folders, monkeypatch):
    st = pytest.importorskip("sentence_transformers")
    monkeypatch.setenv("BINOCLE_PRECISION", "float32")
    folder = folders[family]
    encoder = load_encoder(folder)
    assert isinstance(encoder, BertEncoder)
    assert encoder.max_tokens == 62
    expected = st.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode(TEXTS, kind="query"), expected, atol=2e-6)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=2e-6)


@pytest.mark.thorough
def test_the_first_token_alone_and_other_pooling_are_those_of_all_tokens(family, folders, tmp_path, monkeypatch):
    monkeypatch.setenv("BINOCLE_PRECISION", "float32")
    folder = shutil.copytree(folders[family], tmp_path / "model")
    modules = [{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    for pooling in ("cls", ["cls", "max"]):
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
        encoder = load_encoder(folder)
        np.testing.assert_allclose(encoder.encode(TEXTS), encoder.encode(TEXTS, kind="query"), atol=2e-6)


@pytest.mark.thorough
def test_vectors_on_a_gpu_are_those_of_the_cpu(family, folders, monkeypatch):
    monkeypatch.setattr(torch_gpu, "_TOKENS", 256)
    monkeypatch.setattr(bert_encoder, "gpus", lambda: (["cpu", "cpu"], "2 GPUs"))
    monkeypatch.setenv("BINOCLE_PRECISION", "float32")
    on_gpu = load_encoder(folders[family])
    assert use_gpus(on_gpu) == ("1 GPU" if family == "modernbert" else "2 GPUs")
    np.testing.assert_allclose(on_gpu.encode(TEXTS), load_encoder(folders[family]).encode(TEXTS), atol=2e-6)


@pytest.mark.thorough
def test_in_int8_vectors_are_nearly_the_same(family, folders):
    if family == "modernbert":
        with pytest.raises(InputError, match="is no encoder of a family that is computed in int8"):
            load_encoder(f"{folders[family]}@int8")
        return
    own, int8 = load_encoder(folders[family]), load_encoder(f"{folders[family]}@int8")
    assert own.fingerprint != int8.fingerprint
    cosines = (own.encode(TEXTS) * int8.encode(TEXTS)).sum(1)
    assert 0.9 < cosines.min() < 1 - 1e-7


def cross_encoder_scores(folder: Path) -> np.ndarray:
    """The logits of the pairs by sentence-transformers."""
    model = pytest.importorskip("sentence_transformers").CrossEncoder(str(folder), device="cpu", local_files_only=True)
    return model.predict(PAIRS, activation_fn=torch.nn.Identity(), show_progress_bar=False)


def test_a_reranker_scores_as_transformers(family, tmp_path, monkeypatch):
    monkeypatch.setenv("BINOCLE_PRECISION", "float32")
    folder = build(tmp_path / "model", family, "ForSequenceClassification")
    reranker = load_reranker(folder)
    assert isinstance(reranker, BertReranker)
    expected = cross_encoder_scores(folder)
    np.testing.assert_allclose(reranker.score_pairs(PAIRS), expected, atol=1e-4)
    assert reranker.max_tokens == (61 if family == "distilbert" else 60)  # one separator between the texts, or two


@pytest.mark.parametrize(("kind", "task"), [(TAGGER, "TokenClassification"), (CLASSIFIER, "SequenceClassification")])
def test_the_logits_of_a_head_are_those_of_transformers(kind, task, family, tmp_path, monkeypatch):
    monkeypatch.setenv("BINOCLE_PRECISION", "float32")
    folder = build(tmp_path / "model", family, f"For{task}", labels=3)
    head = load_head(folder, kind)
    assert isinstance(head, TorchHead if kind in OWN_HEADS.get(family, []) else BertHead)
    model = getattr(transformers, f"AutoModelFor{task}").from_pretrained(folder).eval()
    texts = [encoding for encoding in head.tokenizer().encode_batch(TEXTS) if len(encoding.ids) <= 62]
    for encoding, logits in zip(texts, head.logits(texts), strict=True):
        with torch.no_grad():
            expected = model(input_ids=torch.tensor([encoding.ids])).logits[0].numpy()
        np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.thorough
def test_layers_and_attention_are_those_of_transformers(family, folders):
    text = Inspector.load(folders[family]).read(TEXTS[0])
    model = transformers.AutoModel.from_pretrained(folders[family], attn_implementation="eager").eval()
    with torch.no_grad():
        output = model(torch.tensor([text.ids]), output_hidden_states=True, output_attentions=True)
    np.testing.assert_allclose(text.states, torch.cat(output.hidden_states).numpy(), atol=1e-4)
    np.testing.assert_allclose(text.attention, torch.cat(output.attentions).numpy(), atol=1e-4)


def test_the_bias_of_every_distance_is_that_of_mpnet(folders):
    folder = folders["mpnet"]
    config = BertConfig.from_json(json.loads((folder / "config.json").read_text()))
    assert config is not None
    model = transformers.AutoModel.from_pretrained(folder)
    with torch.no_grad():
        expected = model.encoder.compute_position_bias(torch.empty(1, 600, 32))[0].numpy()
    bias = distance_bias(config, load_bert(folder / "model.safetensors", config), 600)
    np.testing.assert_array_equal(bias, expected)


@pytest.mark.parametrize("layers", [1, 4])  # the last one is global
def test_the_first_token_of_a_global_layer_is_that_of_all_tokens(layers, folders, tmp_path, monkeypatch):
    monkeypatch.setenv("BINOCLE_PRECISION", "float32")
    folder = shutil.copytree(folders["modernbert"], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": layers, "layer_types": None, "norm_bias": True, "attention_bias": True}
    config = transformers.ModernBertConfig.from_dict(config | {"mlp_bias": True})
    torch.manual_seed(4)
    model = transformers.AutoModel.from_config(config).eval()
    for weight in model.parameters():
        if weight.ndim == 1:
            torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(folder)
    modules = [{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "cls"}))
    encoder = load_encoder(folder)
    ids = torch.tensor([Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXTS[0]).ids])
    with torch.no_grad():
        expected = torch.nn.functional.normalize(model(ids).last_hidden_state[:, 0]).numpy()
    for kind in ("document", "query"):
        np.testing.assert_allclose(encoder.encode(TEXTS[:1], kind=kind), expected, atol=2e-6)


def test_a_modernbert_reranker_may_pool_all_tokens_and_has_no_int8(tmp_path, monkeypatch):
    monkeypatch.setenv("BINOCLE_PRECISION", "float32")
    folder = build(tmp_path / "model", "modernbert", "ForSequenceClassification")
    config = json.loads((folder / "config.json").read_text())
    first = load_reranker(folder).score_pairs(PAIRS)
    (folder / "config.json").write_text(json.dumps(config | {"classifier_pooling": "mean"}))
    expected = cross_encoder_scores(folder)
    scores = load_reranker(folder).score_pairs(PAIRS)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert np.abs(scores - first).max() > 1e-3
    with pytest.raises(InputError, match="is no reranker of a family that is computed in int8"):
        load_reranker(f"{folder}@int8")
    (folder / "config.json").write_text(json.dumps(config | {"classifier_activation": "relu"}))
    assert not isinstance(load_reranker(folder), BertReranker)


def test_a_modernbert_is_read_as_versions_4_and_5_of_transformers_write_it(folders):
    config = json.loads((folders["modernbert"] / "config.json").read_text())
    read = BertConfig.from_json(config)
    assert read is not None and read.rotary is not None
    assert read.rotary == Rotary(160_000.0, 10_000.0, 5, (True, False, False))
    older = {name: value for name, value in config.items() if name not in ("layer_types", "rope_parameters")}
    older |= {"global_attn_every_n_layers": 3, "global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0}
    assert BertConfig.from_json(older) == read
    scaled = config["rope_parameters"]["full_attention"] | {"rope_type": "yarn"}
    for change in (
        {"local_rope_theta": None, "rope_parameters": None},
        {"global_attn_every_n_layers": 0},
        {"layer_types": ["full_attention"]},
        {"layer_types": ["full_attention", "chunked", "chunked"]},
        {"rope_scaling": {"factor": 2}},
        {"rope_parameters": {"full_attention": scaled}},
        {"hidden_activation": "silu"},
    ):
        assert BertConfig.from_json(config | change) is None


def test_a_long_query_is_computed_by_the_graph(folders, monkeypatch):
    monkeypatch.setenv("BINOCLE_PRECISION", "float32")
    monkeypatch.setattr(bert_encoder, "_NUMPY_LONGEST", 20)
    encoder = load_encoder(folders["modernbert"])
    assert isinstance(encoder, BertEncoder)
    compiled = []
    monkeypatch.setattr(type(encoder._model), "run_uncompiled", lambda self, texts: compiled.append(texts) or iter(()))
    expected = load_encoder(folders["modernbert"]).encode(["x " * 30])
    np.testing.assert_allclose(encoder.encode(["x " * 30], kind="query"), expected, atol=1e-6)
    assert not compiled


def test_an_mpnet_that_pads_otherwise_needs_torch(folders):
    config = json.loads((folders["mpnet"] / "config.json").read_text())
    assert BertConfig.from_json(config | {"pad_token_id": 0}) is None


@pytest.mark.parametrize("name", ["add_prefix_space", "truncation_side"])
def test_a_tokenizer_that_its_settings_change_needs_torch(name, folders, tmp_path):
    folder = shutil.copytree(folders["roberta"], tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    value = {"add_prefix_space": True, "truncation_side": "left"}[name]
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, name: value}))
    assert not isinstance(load_encoder(folder), BertEncoder)


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("mpnet", {"relative_attention_num_buckets": 2}, "relative_attention_num_buckets 2: expected a number from 4"),
        ("mpnet", {"relative_attention_num_buckets": 64}, r"has shape \(32, 4\) where \(64, 4\) was expected"),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings 2: expected more than 2"),
        ("distilbert", {"n_layers": 3}, "not a whole distilbert: its weight for BERT's encoder.layer.2.*is missing"),
        ("distilbert", {"n_heads": "four"}, "n_heads 'four': expected a positive number"),
        (
            "modernbert",
            {"num_hidden_layers": 4, "layer_types": None},
            "whole modernbert: its weight for BERT's .*missing",
        ),
    ],
)
def test_wrong_sizes_are_refused_in_one_line(family, change, message, folders, tmp_path):
    folder = shutil.copytree(folders[family], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(InputError, match=message) as caught:
        load_encoder(folder)
    assert "\n" not in str(caught.value)


def test_weights_without_embeddings_are_refused(folders, tmp_path):
    folder = shutil.copytree(folders["distilbert"], tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    word = "embeddings.word_embeddings.weight"
    for changed in (weights | {word: np.float32(1.0)[None]}, {k: v for k, v in weights.items() if k != word}):
        save_file(changed, folder / "model.safetensors")
        with pytest.raises(InputError, match="is not a whole distilbert"):
            load_encoder(folder)
