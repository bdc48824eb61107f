"""Encoders of every family train, save, load and encode; a run that was killed ends as one that was not."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from binocle.retriever.models.load import load_encoder, load_reranker

pytest.importorskip("torch")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

from binocle import Retriever
from binocle.core.errors import InputError, ModelNotFoundError
from binocle.training.data.batches import Batches
from binocle.training.data.dataset import Shape, TrainingSet, prepare
from binocle.training.data.distributed_batches import SharedBatches
from binocle.training.encoders import encoder_training as encoding
from binocle.training.encoders import heldout
from binocle.training.encoders.base_model import make_model, save_model
from binocle.training.encoders.config import EncoderConfig
from binocle.training.encoders.mining_rounds import train_rounds
from binocle.training.encoders.objectives import losses, objectives
from binocle.training.encoders.objectives.teacher_vectors import teacher_vectors
from binocle.training.encoders.train import train_encoder
from binocle.training.mining.mining_report import MiningReport
from binocle.training.rerankers.config import RerankerConfig
from binocle.training.rerankers.train import train_reranker
from binocle.training.runs import training_run
from binocle.training.runs.checkpoints import last_checkpoint
from binocle.training.runs.run_folder import ORDER, files_of
from binocle.training.runs.trainers import resumable_trainer
from binocle.training.runs.trainers.callbacks import ProgressCallback
from binocle.training.runs.trainers.resumable_trainer import ResumableTrainer
from binocle.training.runs.training_run import TrainingRun

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves

ANIMALS = "cat dog queen king moon sun sea ship river mountain".split()
PAIRS = [{"query": f"{a} and {b}", "positive": f"the {a} sat on the {b} for a time"} for a in ANIMALS for b in ANIMALS]


def family(name, folder, tiny_model):
    """A random model of a family, its tokenizer that of the tiny BERT."""
    import torch
    import transformers as hf

    torch.manual_seed(0)
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_file=str(Path(tiny_model) / "tokenizer.json"),
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )
    sizes = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "pad_token_id": tokenizer.pad_token_id,
    }
    configs = {
        "bert": lambda: hf.BertConfig(**sizes, max_position_embeddings=80),
        "roberta": lambda: hf.RobertaConfig(**sizes, max_position_embeddings=80),
        "albert": lambda: hf.AlbertConfig(**sizes, embedding_size=16, max_position_embeddings=80),
        "distilbert": lambda: hf.DistilBertConfig(
            vocab_size=len(tokenizer), dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=80
        ),
        "deberta-v2": lambda: hf.DebertaV2Config(
            **sizes, max_position_embeddings=80, relative_attention=True, pos_att_type=["p2c", "c2p"]
        ),
        "mpnet": lambda: hf.MPNetConfig(**sizes, max_position_embeddings=80),
        "modernbert": lambda: hf.ModernBertConfig(
            **sizes,
            max_position_embeddings=80,
            cls_token_id=tokenizer.cls_token_id,
            sep_token_id=tokenizer.sep_token_id,
            bos_token_id=tokenizer.cls_token_id,
            eos_token_id=tokenizer.sep_token_id,
        ),
    }
    hf.AutoModel.from_config(configs[name]()).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def same_as_sentence_transformers(folder, texts=("the cat sat", "a ship on the sea in the night")):
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(str(folder), device="cpu")
    expected = loaded.encode(list(texts), normalize_embeddings=True)
    np.testing.assert_allclose(load_encoder(str(folder)).encode(list(texts)), expected, atol=1e-5)


FAST = EncoderConfig(steps=3, batch_size=8, learning_rate=1e-3, evaluations=1, held_out=0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "distilbert", "deberta-v2", "mpnet", "modernbert"])
def test_every_family_trains_saves_loads_and_encodes(name, tmp_path, tiny_model):
    base = family(name, tmp_path / "base", tiny_model)
    result = train_encoder(PAIRS, tmp_path / "out", base=base, config=FAST)
    assert result.steps == 3
    assert result.objective == "ranking"
    same_as_sentence_transformers(tmp_path / "out")
    assert not (tmp_path / "out" / "run").exists()


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_no_more_is_learned_of_a_long_text_than_the_base_has_positions_for(name, tmp_path, tiny_model):
    base = family(name, tmp_path / "base", tiny_model)
    rows = [
        {"query": f"{a} {b} " * 160, "positive": f"{b} {a} " * 160, "negative": a}
        for a, b in itertools.product(ANIMALS[:5], repeat=2)
    ]
    config = EncoderConfig(steps=1, batch_size=4, evaluations=1, max_length=300)
    assert train_encoder(rows, tmp_path / "out", base=base, config=config).steps == 1
    reranker = RerankerConfig(steps=1, batch_size=4, evaluations=1)
    result = train_reranker(rows, tmp_path / "reranker", base=base, config=reranker)
    assert np.isfinite(load_reranker(str(result.folder)).score("cat", ["a dog " * 300])).all()


@pytest.mark.parametrize("pooling", [("cls",), ("mean",), ("max",), ("cls", "mean"), ("mean", "max", "cls")])
def test_pooling_by_name(pooling, tmp_path, tiny_model):
    config = EncoderConfig(steps=1, batch_size=8, pooling=pooling, evaluations=1)
    train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=config)
    encoder = load_encoder(str(tmp_path / "out"))
    assert encoder.dim == load_encoder(tiny_model).dim * len(pooling)
    same_as_sentence_transformers(tmp_path / "out")


TEXTS = [row["positive"] for row in PAIRS]
DATA = {
    Shape.PAIRS: PAIRS,
    Shape.TRIPLETS: [row | {"negative": "a recipe for bread"} for row in PAIRS],
    Shape.SCORED: [
        {"sentence1": r["query"], "sentence2": r["positive"], "score": n % 5} for n, r in enumerate(PAIRS, 3)
    ],
    Shape.LABELLED: [
        {"sentence1": r["query"], "sentence2": r["positive"], "label": n % 2} for n, r in enumerate(PAIRS)
    ],
    Shape.CLASSED: [
        {"premise": r["query"], "hypothesis": r["positive"], "label": "abc"[n % 3]} for n, r in enumerate(PAIRS)
    ],
    Shape.GRADED: [r | {"negative": TEXTS[n - 9], "scores": [2.5, 1.0]} for n, r in enumerate(PAIRS)],
    Shape.GROUPED: [{"text": text, "label": text.split()[1]} for text in TEXTS],
    Shape.TEXTS: [{"text": text} for text in TEXTS],
}


@pytest.mark.thorough
@pytest.mark.parametrize("objective", objectives.OBJECTIVES)
def test_every_objective_trains_on_every_shape_that_it_takes(objective, tmp_path, tiny_model):
    for shape in objectives.OBJECTIVES[objective].shapes:
        out = tmp_path / shape.name
        teacher = tiny_model if objective == "embeddings" else None
        result = train_encoder(
            DATA[shape],
            out,
            base=tiny_model,
            teacher=teacher,
            config=EncoderConfig(objective=objective, steps=2, batch_size=8),
        )
        assert result.objective == objective
        assert (out / "model.safetensors").is_file()


def test_a_guide_keeps_texts_that_it_ranks_above_the_positive_from_being_negatives(tmp_path, tiny_model):
    """The loss is that of the batch without these texts, from the guide's own cosines."""
    import torch

    model = make_model(tiny_model, EncoderConfig())
    rows = PAIRS[:6]
    options = losses.LossOptions(guide=make_model(tiny_model, EncoderConfig()))
    loss = losses.build("guided-ranking", model, prepare(rows, tmp_path, held_out=0.0), options)
    queries, answers = (
        torch.nn.functional.normalize(torch.tensor(model.encode([row[name] for row in rows])))
        for name in ("query", "positive")
    )
    scores = torch.cat([queries @ answers.T, queries @ queries.T, answers @ answers.T], 1)
    own = scores.diagonal()[:, None]
    scores[(scores > own) | (scores > 0.99999)] = -torch.inf  # of the guide, which is the model
    scores[range(6), range(6)] = own[:, 0]
    expected = torch.nn.functional.cross_entropy(20 * scores, torch.arange(6))
    assert torch.isinf(scores[:, :6]).any()
    features = [model.preprocess([row[name] for row in rows]) for name in ("query", "positive")]
    assert float(loss(features, torch.zeros(6))) == pytest.approx(float(expected), rel=1e-4)
    assert all(not weight.requires_grad for weight in options.guide.parameters())


def test_a_guide_asks_for_guided_ranking_with_one_negative_at_most(tmp_path, tiny_model):
    result = train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=replace(FAST, guide=tiny_model))
    assert result.objective == "guided-ranking"
    two = [row | {"negative_1": "salt", "negative_2": "bread"} for row in PAIRS]
    with pytest.raises(InputError, match="takes one negative for each pair, but the data have 2"):
        train_encoder(two, tmp_path / "two", base=tiny_model, config=replace(FAST, guide=tiny_model))
    with pytest.raises(InputError, match="guide is for guided-ranking, not for the objective ranking"):
        train_encoder(
            PAIRS, tmp_path / "other", base=tiny_model, config=replace(FAST, guide=tiny_model, objective="ranking")
        )


@pytest.mark.parametrize(("times", "objective"), [(1, "kl"), (20, "kl"), (1, "margin-mse"), (20, "margin-mse")])
def test_a_teacher_who_says_what_the_student_says_has_nothing_to_teach(times, objective, tmp_path, tiny_model):
    import torch

    model = make_model(tiny_model, EncoderConfig())
    rows = DATA[Shape.GRADED]
    vectors = {name: model.encode([row[name] for row in rows]) for name in ("query", "positive", "negative")}  # type: ignore[attr-defined]
    scores = [(times * (vectors["query"] * vectors[name]).sum(1)).tolist() for name in ("positive", "negative")]
    scored_rows = [row | {"scores": list(pair)} for row, pair in zip(rows, zip(*scores, strict=True), strict=True)]
    data = prepare(scored_rows, tmp_path, held_out=0.0)
    loss = losses.build(objective, model, data, losses.LossOptions())
    labels = torch.tensor([row["scores"] for row in scored_rows])
    labels = labels[:, 0] - labels[:, 1] if objective == "margin-mse" else labels
    features = [model.preprocess([row[name] for row in scored_rows]) for name in vectors]
    assert float(loss(features, labels)) < 1e-6


def test_every_process_of_a_resumed_run_draws_the_epoch_that_it_stopped_in():
    from accelerate.data_loader import BatchSamplerShard, SkipBatchSampler

    table = pa.table({"text": [str(n) for n in range(64)]})

    def drawn(epoch, resumed):
        batches = Batches(table, np.arange(64, dtype=np.uint32), ("text",), batch_size=4, different=False)
        batches.set_epoch(epoch)
        shard = BatchSamplerShard(batches, num_processes=2, process_index=1)
        if resumed:
            callback = ProgressCallback(lambda _: None, texts=4, metric=None)
            callback.on_epoch_begin(
                None, SimpleNamespace(epoch=1.25), None, train_dataloader=SimpleNamespace(batch_sampler=shard)
            )
        return list(SkipBatchSampler(shard, skip_batches=2))

    assert drawn(0, resumed=True) == drawn(1, resumed=False) != drawn(0, resumed=False)


@pytest.mark.parametrize("answers", [60, 7, 5])
def test_what_processes_learn_together_in_a_step_has_no_text_twice(answers):
    from accelerate.data_loader import BatchSamplerShard

    rows = [{"query": f"question {n}", "positive": f"answer {n % answers}"} for n in range(240)]
    table, numbers = pa.Table.from_pylist(rows), np.arange(240, dtype=np.uint32)
    inner = Batches(table, numbers, ("query", "positive"), batch_size=6, different=True)
    shared = SharedBatches(inner, 3)
    assert (len(shared), shared.batch_size) == (120, 2)
    processes = [list(BatchSamplerShard(shared, num_processes=3, process_index=number)) for number in range(3)]
    assert [len(batches) for batches in processes] == [40, 40, 40]
    for parts in zip(*processes, strict=True):
        assert [len(part) for part in parts] == [2, 2, 2]
        if answers > 5:  # else no batch can be full
            assert len({rows[number]["positive"] for part in parts for number in part}) == 6


def test_of_several_processes_one_asks_the_teacher_and_measures_and_the_others_read(tmp_path, monkeypatch):
    calls = []

    class Teacher:
        dim = 2

        def encode(self, texts, kind):
            calls.append(texts)
            time.sleep(0.05)
            return np.eye(2, dtype=np.float32)

    def measure(*_, **__):
        calls.append("measured")
        time.sleep(0.05)
        return heldout.Estimate("agreement", 0.5, 0.4, 0.6, 2)

    def vectors(session):
        vectors_of_teacher = teacher_vectors(session.run, "t", Dataset.from_dict({"text": ["a", "b"]}), 2)
        return np.load(vectors_of_teacher).tolist(), encoding.EncoderTraining._before(session).as_dict()

    from datasets import Dataset

    for module in ("encoder_training", "objectives.teacher_vectors"):
        monkeypatch.setattr(f"binocle.training.encoders.{module}.load_encoder", lambda _: Teacher())
    sessions = []
    for _ in range(3):
        run = TrainingRun(tmp_path / "out", "base", FAST)
        run.open({})
        options = {"_base_encode": lambda: print, "_estimate": measure, "_report_measuring": lambda _: None}
        sessions.append(SimpleNamespace(run=run, **options))
    with ThreadPoolExecutor() as pool:
        first, *others = pool.map(vectors, sessions)
    assert others == [first, first]
    assert calls == [["a", "b"], "measured"]
    assert first == ([[1, 0], [0, 1]], measure().as_dict())


def test_training_brings_a_query_to_its_positive(tmp_path, tiny_model):
    result = train_encoder(
        PAIRS,
        tmp_path / "out",
        base=tiny_model,
        config=EncoderConfig(epochs=6, batch_size=16, learning_rate=2e-3, held_out=0.2, evaluations=2),
    )
    assert result.after.value > result.before.value + 0.1
    assert result.after.low <= result.after.value <= result.after.high


def test_low_rank_training_changes_weights_and_leaves_an_ordinary_folder(tmp_path, tiny_model):
    pytest.importorskip("peft")
    from safetensors.numpy import load_file

    train_encoder(
        PAIRS,
        tmp_path / "out",
        base=tiny_model,
        config=EncoderConfig(steps=3, batch_size=8, lora=2, learning_rate=1e-2, evaluations=1),
    )
    before, after = load_file(Path(tiny_model) / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert {name.removeprefix("bert.") for name in before} == set(after)
    assert any(
        np.abs(after[name.removeprefix("bert.")] - value).max() > 1e-4
        for name, value in before.items()
        if "query.weight" in name
    )
    same_as_sentence_transformers(tmp_path / "out")


def test_shorter_vectors_are_learned_with_the_long_ones(tmp_path, tiny_model):
    result = train_encoder(
        PAIRS,
        tmp_path / "out",
        base=tiny_model,
        config=EncoderConfig(steps=2, batch_size=8, matryoshka=(16, 8), evaluations=1),
    )
    assert result.steps == 2
    with pytest.raises(InputError, match="Matryoshka lengths are from 1 to"):
        train_encoder(PAIRS, tmp_path / "two", base=tiny_model, config=EncoderConfig(steps=2, matryoshka=(1000,)))


@pytest.mark.parametrize("shape", [Shape.CLASSED, Shape.TEXTS])
def test_shorter_vectors_are_learned_where_the_loss_has_a_length_of_its_own(shape, tmp_path, tiny_model):
    teacher = tiny_model if shape is Shape.TEXTS else None
    config = EncoderConfig(steps=1, batch_size=8, matryoshka=(16,), evaluations=1)
    result = train_encoder(DATA[shape], tmp_path / "out", base=tiny_model, teacher=teacher, config=config)
    assert np.isfinite([row["loss"] for row in result.history if "loss" in row]).all()
    assert np.isfinite(load_encoder(str(result.folder)).encode(["the cat sat on the moon"])).all()


def test_an_encoder_that_starts_from_a_reranker_is_told(tmp_path, make_reranker):
    base, stages = str(make_reranker(tmp_path / "base")), []
    config = EncoderConfig(steps=1, batch_size=8, evaluations=1)
    train_encoder(PAIRS, tmp_path / "out", base=base, config=config, progress=lambda event: stages.append(event.stage))
    assert f"{base} is a reranker: the encoder starts with its layers, and their states are averaged" in stages
    assert load_encoder(str(tmp_path / "out")).dim == 32


def test_a_teacher_with_longer_vectors_is_learned_by_their_main_directions(tmp_path, tiny_model):
    long = tmp_path / "long"
    train_encoder(PAIRS, long, base=tiny_model, config=EncoderConfig(steps=1, batch_size=8, pooling=("cls", "mean")))
    config = EncoderConfig(steps=1, batch_size=8, evaluations=1)
    result = train_encoder(DATA[Shape.TEXTS], tmp_path / "out", base=tiny_model, teacher=str(long), config=config)
    assert result.objective == "embeddings"
    assert load_encoder(str(tmp_path / "out")).dim == load_encoder(tiny_model).dim
    with pytest.raises(InputError, match="the teacher's vectors have 32 dimensions, the student's 64"):
        train_encoder(DATA[Shape.TEXTS], tmp_path / "not", base=str(long), teacher=tiny_model, config=config)


@pytest.mark.thorough
@pytest.mark.parametrize("lora", [None, 2])
def test_weights_of_the_base_are_kept_by_share(lora, tmp_path, tiny_model):
    if lora:
        pytest.importorskip("peft")
    from safetensors.numpy import load_file

    for keep in (0.0, 0.75):
        config = EncoderConfig(steps=2, batch_size=8, keep=keep, evaluations=1, lora=lora, learning_rate=1e-2)
        train_encoder(PAIRS, tmp_path / str(keep), base=tiny_model, config=config)
    base = {
        name.removeprefix("bert."): value for name, value in load_file(Path(tiny_model) / "model.safetensors").items()
    }
    whole, part = (load_file(tmp_path / name / "model.safetensors") for name in ("0.0", "0.75"))
    for name, value in whole.items():
        np.testing.assert_allclose(part[name], 0.75 * base[name] + 0.25 * value, atol=1e-6)


def test_the_card_says_what_was_measured(tmp_path, tiny_model):
    result = train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=FAST)
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    facts = json.loads((tmp_path / "out" / "binocle.json").read_text("utf-8"))
    assert f"| ndcg@10 | held-out rows, after | {result.after.value:.4f} |" in card
    assert result.fingerprint == load_encoder(str(tmp_path / "out")).fingerprint == facts["fingerprint"]
    assert facts["data"]["training"] + facts["data"]["held_out"] + facts["data"]["left_out"] == len(PAIRS)
    assert str(tmp_path) not in card + json.dumps(facts)
    steps = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text("utf-8").splitlines()]
    assert [row["step"] for row in steps if "loss" in row] == [1, 2, 3]


@pytest.mark.parametrize("name", ["document", "passage", "corpus"])
def test_a_prompt_of_documents_is_learned_with_under_any_name_that_a_search_knows(
    name, tmp_path, tiny_model, monkeypatch
):
    monkeypatch.setattr(heldout, "_DOCUMENTS", 0)  # among many, some are told apart by rounding
    base = shutil.copytree(tiny_model, tmp_path / "base")
    prompts = {"prompts": {"query": "moon and cat ", name: "the ship on the sea "}}
    (base / "config_sentence_transformers.json").write_text(json.dumps(prompts), "utf-8")
    config = EncoderConfig(steps=1, batch_size=8, learning_rate=1e-12, evaluations=1, held_out=0.2, bf16=False)
    result = train_encoder(PAIRS, tmp_path / "out", base=str(base), config=config)
    assert result.before.value == pytest.approx(result.after.value, abs=1e-4)
    texts = ["the cat sat on the moon"]
    expected, actual = (load_encoder(str(folder)).encode(texts) for folder in (base, result.folder))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_given_prompts_are_learned_with_and_searched_with_and_the_base_is_measured_with_its_own(
    tmp_path, tiny_model, monkeypatch
):
    prompts = {"query": "moon and cat ", "document": ""}
    base = shutil.copytree(tiny_model, tmp_path / "base")
    (base / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"document": "the sea "}}), "utf-8")
    measured = []
    real = encoding.EncoderTraining._encode
    monkeypatch.setattr(
        encoding.EncoderTraining,
        "_encode",
        lambda session, texts, kind, prompts=None: measured.append(prompts) or real(session, texts, kind, prompts),
    )
    config = replace(FAST, query_prompt=prompts["query"], document_prompt=prompts["document"], learning_rate=1e-12)
    result = train_encoder(PAIRS, tmp_path / "out", base=str(base), config=replace(config, bf16=False))
    assert {"document": "the sea "}.items() <= measured[0].items()
    assert "query" not in {name for name, prompt in measured[0].items() if prompt}
    encoder, texts = load_encoder(str(result.folder)), ["the cat sat"]
    plain = load_encoder(tiny_model)
    for kind, prompt in prompts.items():
        expected = plain.encode([prompt + texts[0]], kind=kind)
        np.testing.assert_allclose(encoder.encode(texts, kind=kind), expected, atol=1e-5)


PROMPTS = {"query": "moon and cat ", "document": "the ship on the sea "}


def base_with_prompts(folder, tiny_model):
    base = shutil.copytree(tiny_model, folder)
    (base / "config_sentence_transformers.json").write_text(json.dumps({"prompts": PROMPTS}), "utf-8")
    return str(base)


@pytest.mark.parametrize("columns", [("sentence1", "sentence2"), ("query", "passage")])
def test_of_pairs_with_a_score_only_a_query_has_the_prompt_of_queries(columns, tmp_path, tiny_model):
    base = base_with_prompts(tmp_path / "base", tiny_model)
    rows = [dict(zip(columns, PAIRS[n].values(), strict=True)) | {"score": n % 7} for n in range(60)]
    config = EncoderConfig(objective="cosine", steps=1, learning_rate=1e-12, held_out=0.5, bf16=False)
    result = train_encoder(rows, tmp_path / "out", base=base, config=config)
    data = prepare(rows, tmp_path / "data", held_out=0.5)
    encoder, held_out = load_encoder(base), data.table().take(data.held_out()).to_pydict()
    kinds = ("query" if columns[0] == "query" else "document", "document")
    first, second = (encoder.encode(held_out[name], kind=kind) for name, kind in zip(data.texts, kinds, strict=True))
    expected = heldout.spearman((first * second).sum(1), np.array(held_out["label"]))
    assert result.before.value == pytest.approx(expected, abs=1e-6)
    assert result.after.value == pytest.approx(expected, abs=1e-6)
    loaded = encoding.EncoderTraining.load(TrainingRun(tmp_path / "other", base, config), data, "cosine")
    assert loaded.first.prompts() == {name: PROMPTS[kind] for name, kind in zip(data.texts, kinds, strict=True)}


def test_a_text_and_its_translation_are_measured_with_the_prompt_that_both_learn_with(
    tmp_path, tiny_model, monkeypatch
):
    monkeypatch.setattr(heldout, "_DOCUMENTS", 0)
    base = base_with_prompts(tmp_path / "base", tiny_model)
    rows = [{"english": row["query"], "non_english": row["positive"]} for row in PAIRS]
    config = EncoderConfig(objective="embeddings", steps=1, learning_rate=1e-12, held_out=0.3, bf16=False)
    result = train_encoder(rows, tmp_path / "out", base=base, teacher=base, config=config)
    data, encoder = prepare(rows, tmp_path / "data", held_out=0.3), load_encoder(base)
    expected = heldout.measure(lambda texts, _: encoder.encode(list(texts), kind="document"), data)
    assert result.before.value == pytest.approx(expected.value, abs=1e-4)
    assert result.after.value == pytest.approx(expected.value, abs=1e-4)


def test_symmetric_ranking_ranks_queries_for_a_document_too(tmp_path, tiny_model):
    import torch

    model = make_model(tiny_model, EncoderConfig())
    rows = PAIRS[:6]
    loss = losses.build("symmetric-ranking", model, prepare(rows, tmp_path, held_out=0.0), losses.LossOptions())
    queries, answers = (torch.tensor(model.encode([row[name] for row in rows])) for name in ("query", "positive"))
    scores, own = 20 * queries @ answers.T, torch.arange(6)
    cross_entropy = torch.nn.functional.cross_entropy
    expected = (cross_entropy(scores, own) + cross_entropy(scores.T, own)) / 2
    features = [model.preprocess([row[name] for row in rows]) for name in ("query", "positive")]
    assert float(loss(features, torch.zeros(6))) == pytest.approx(float(expected), rel=1e-4)


def test_the_prompt_is_put_before_what_tsdae_encodes_and_not_before_what_it_is_to_write(tmp_path, tiny_model):
    dataset = prepare([{"text": text} for text in TEXTS], tmp_path / "data", held_out=0)
    run = TrainingRun(tmp_path / "out", tiny_model, EncoderConfig())
    session = encoding.EncoderTraining.load(run, dataset, "tsdae")
    session.model.prompts["document"] = "text: "
    assert session.first.prompts() == {"noisy": "text: "}


def test_progress_is_told(tmp_path, tiny_model):
    events = []
    train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=FAST, progress=events.append)
    steps = [event for event in events if event.stage == "training"]
    assert (steps[-1].done, steps[-1].total) == (3, 3)
    assert ", ndcg@10 " in steps[-1].message
    assert any(", loss " in event.message and not event.message.endswith(", 0 texts/s") for event in steps)


@pytest.mark.parametrize(("count", "texts"), [(6, 12), (10, 16)])
def test_the_rate_counts_the_texts_of_the_batches_that_there_were(tmp_path, tiny_model, monkeypatch, count, texts):
    """Few rows make smaller batches than the configured 8 pairs. All steps together take one second here."""
    monkeypatch.setattr(training_run, "time", SimpleNamespace(monotonic=itertools.count().__next__))
    config = replace(FAST, batch_size=8, held_out=0.0)
    result = train_encoder(PAIRS[::11][:count], tmp_path / "out", base=tiny_model, config=config)
    assert result.texts_per_second == result.steps * texts


# Killed, and gone on from

LONG = EncoderConfig(
    epochs=2, batch_size=8, evaluations=5, dropout=0.1, learning_rate=1e-3, held_out=0.1, patience=None
)
RUN = f"""
import json, os, sys
from binocle.training.encoders.config import EncoderConfig
from binocle.training.encoders.train import train_encoder
print(os.getpid(), flush=True)
train_encoder(json.load(open(sys.argv[1])), sys.argv[3], base=sys.argv[2], config={LONG!r})
"""


@pytest.mark.thorough
def test_a_run_killed_at_any_step_ends_as_one_that_was_not(tmp_path, tiny_model, quick_training):
    from safetensors.numpy import load_file

    (tmp_path / "pairs.json").write_text(json.dumps(PAIRS), "utf-8")
    command = [*quick_training, "-c", RUN, str(tmp_path / "pairs.json"), tiny_model, str(tmp_path / "killed")]
    checkpoints = tmp_path / "killed" / "run" / "checkpoints"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        process = int(run.stdout.readline())
        while not list(checkpoints.glob("checkpoint-*/whole.json")):
            assert run.poll() is None, "ended before it could be killed"
            time.sleep(0.01)
        os.kill(process, signal.SIGKILL)
    resumed, whole = (
        train_encoder(PAIRS, tmp_path / name, base=tiny_model, config=LONG) for name in ("killed", "whole")
    )
    assert resumed.resumed_from
    assert whole.resumed_from is None
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])
    facts = [json.loads((tmp_path / name / "binocle.json").read_text("utf-8")) for name in ("killed", "whole")]
    assert facts[0]["measures"] == facts[1]["measures"]
    assert facts[0]["fingerprint"] == facts[1]["fingerprint"]


def test_a_saved_tokenizer_does_not_depend_on_its_last_call(tmp_path, tiny_model):
    """It was the length of the last texts, 32 or the model's own, by the step that a run was interrupted in."""
    model = make_model(tiny_model, EncoderConfig())
    for length in (6, 12):
        model.tokenizer(["the cat and the dog"], truncation=True, max_length=length, padding="max_length")
        save_model(model, tmp_path / str(length))
    first, second = ((tmp_path / name / "tokenizer.json").read_bytes() for name in ("6", "12"))
    assert first == second
    assert json.loads(first)["truncation"] is json.loads(first)["padding"] is None


# Several data sets

SCORED = [{"sentence1": row["query"], "sentence2": row["positive"], "score": n % 6} for n, row in enumerate(PAIRS)]
CLASSED = [
    {"premise": row["query"], "hypothesis": f"a {row['query']}", "label": ("yes", "no", "maybe")[n % 3]}
    for n, row in enumerate(PAIRS[:40])
]
GROUPED = [{"text": f"{a} {b} {n}", "label": a} for a in ANIMALS[:4] for n, b in enumerate(ANIMALS)]
SENTENCES = [{"text": f"the {a} and the {b} in the night"} for a in ANIMALS for b in ANIMALS]


@pytest.mark.thorough
def test_each_of_several_data_sets_has_its_objective_prompts_and_card(tmp_path, tiny_model):
    data = {"pairs": PAIRS, "first": (SCORED, "cosine"), "classes": CLASSED, "data": GROUPED, "texts": SENTENCES}
    config = replace(FAST, steps=12, sampler="round-robin", query_prompt="query: ")
    result = train_encoder(data, tmp_path / "out", base=tiny_model, config=config)
    assert result.objective == "ranking, cosine, softmax, batch-semi-hard, tsdae"
    same_as_sentence_transformers(tmp_path / "out")
    card = json.loads((tmp_path / "out" / "binocle.json").read_text("utf-8"))
    assert [facts["objective"] for facts in card["data"]["more"].values()] == result.objective.split(", ")[1:]
    assert result.before.name == result.after.name == "ndcg@10"


def test_the_splits_of_one_data_set_are_not_several_data_sets(tmp_path, tiny_model):
    from datasets import Dataset, DatasetDict

    splits = DatasetDict({"train": Dataset.from_list(PAIRS), "test": Dataset.from_list(PAIRS)})
    with pytest.raises(
        InputError, match=r"the splits train, test of one data set: give one of them, such as data\['train"
    ):
        train_encoder(splits, tmp_path / "out", base=tiny_model, config=FAST)


@pytest.mark.parametrize(("sampler", "counts"), [("proportional", (11, 5)), ("round-robin", (5, 5))])
def test_several_data_sets_take_turns_as_the_sampler_says(tmp_path, tiny_model, monkeypatch, sampler, counts):
    """88 rows after 12 are held out, and 40, in batches of 8."""
    steps = []
    for name in ("MultipleNegativesRankingLoss", "SoftmaxLoss"):
        loss = getattr(losses.losses, name)
        forward = loss.forward
        monkeypatch.setattr(
            loss, "forward", lambda self, *args, _n=name, _f=forward: steps.append(_n) or _f(self, *args)
        )
    config = replace(FAST, steps=None, epochs=1, sampler=sampler, held_out=0.0)
    data = {"pairs": PAIRS[:88], "classes": CLASSED}
    result = train_encoder(data, tmp_path / "out", base=tiny_model, config=config)
    assert result.steps == sum(counts)
    assert (steps.count("MultipleNegativesRankingLoss"), steps.count("SoftmaxLoss")) == counts


def test_an_epoch_is_as_long_as_the_batches_of_classes_that_are_drawn(tmp_path, tiny_model, monkeypatch):
    """24 pairs in batches of 8; of classes of 100 and 4 texts, a batch has 4 of each."""
    trainers = []
    make = encoding.EncoderTraining._trainer

    def plan(self):
        trainers.append(make(self))
        raise KeyboardInterrupt

    monkeypatch.setattr(encoding.EncoderTraining, "_trainer", plan)
    texts = [{"text": f"cat {n}", "label": "cats"} for n in range(100)]
    texts += [{"text": f"dog {n}", "label": "dogs"} for n in range(4)]
    config = replace(FAST, steps=None, epochs=1, held_out=0.0)
    for name, data, steps in (("one", texts, 1), ("two", {"pairs": PAIRS[:24], "classes": texts}, 4)):
        with pytest.raises(KeyboardInterrupt):
            train_encoder(data, tmp_path / name, base=tiny_model, config=config)
        trainer = trainers.pop()
        assert trainer.args.max_steps == len(list(trainer.get_train_dataloader())) == steps


def test_fewer_rows_than_processes_are_told(tmp_path, tiny_model, monkeypatch):
    monkeypatch.setattr(encoding.environment, "processes", lambda: 4)
    with pytest.raises(
        InputError, match="the data have 3 rows to train on for 4 processes: expected one each at least"
    ):
        train_encoder(PAIRS[:3], tmp_path / "out", base=tiny_model, config=replace(FAST, held_out=0.0))


def test_no_row_of_another_data_set_shares_a_text_with_a_held_out_row(tmp_path, tiny_model, monkeypatch):
    sets = []
    load = encoding.EncoderTraining.load

    def keep(run, data, objective, **options):
        sets.extend([data, *(part for _, part, _ in options["auxiliary"])])
        return load(run, data, objective, **options)

    monkeypatch.setattr(encoding.EncoderTraining, "load", keep)
    train_encoder({"pairs": PAIRS, "scores": SCORED}, tmp_path / "out", base=tiny_model, config=FAST)
    first, second = sets
    held_out = {PAIRS[row]["query"] for row in first.held_out()} | {PAIRS[row]["positive"] for row in first.held_out()}
    learned = {SCORED[row][name] for row in second.training() for name in ("sentence1", "sentence2")}
    assert held_out
    assert len(second.training()) == len(first.training())
    assert not held_out & learned


@pytest.mark.thorough
def test_a_run_on_several_data_sets_ends_alike_if_it_is_interrupted(tmp_path, tiny_model, monkeypatch):
    """The classifier on top of the encoder is resumed too."""
    from safetensors.numpy import load_file

    config = replace(LONG, epochs=0.5, evaluations=3)
    data = {"pairs": PAIRS, "classes.jsonl": CLASSED, "texts": SENTENCES}
    whole = train_encoder(data, tmp_path / "whole", base=tiny_model, config=config)
    with monkeypatch.context() as patch:
        mark = resumable_trainer.mark_complete

        def interrupt(path):
            mark(path)
            raise KeyboardInterrupt

        patch.setattr(resumable_trainer, "mark_complete", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train_encoder(data, tmp_path / "killed", base=tiny_model, config=config)
    (clock,) = (tmp_path / "killed").glob("run/checkpoints/*/seconds.json")
    clock.write_text(str(float(clock.read_text()) + 1_000))
    resumed = train_encoder(data, tmp_path / "killed", base=tiny_model, config=config)
    assert resumed.resumed_from
    assert json.loads((tmp_path / "killed" / "binocle.json").read_text("utf-8"))["seconds"] > 1_000
    assert resumed.fingerprint == whole.fingerprint
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])


def test_several_data_sets_are_checked_before_the_first_step(tmp_path, tiny_model):
    for data, options, message in (
        ({}, {}, "no data"),
        ({"a": PAIRS, "b": (SCORED, "ranking")}, {}, "the objective ranking takes"),
        ({"a": PAIRS, "b": SCORED}, {"config": replace(FAST, sampler="random")}, "no sampler 'random'"),
        ({"a": PAIRS, "b": SCORED}, {"config": replace(FAST, margin=0.5)}, "not for the objective ranking, cosent"),
        ({"a": SENTENCES, "b": SCORED}, {"teacher": tiny_model}, "without a teacher"),
    ):
        with pytest.raises(InputError, match=message):
            train_encoder(data, tmp_path / "out", base=tiny_model, **{"config": FAST, **options})
    assert not (tmp_path / "out").exists()


def test_without_patience_left_no_step_is_taken_again(tmp_path, tiny_model, monkeypatch):
    """Killed when it had stopped early and not yet written the model."""
    config = EncoderConfig(
        steps=30,
        batch_size=8,
        evaluations=30,
        patience=2,
        learning_rate=0.3,
        warmup=0.5,
        held_out=0.2,
        dropout=0.1,
        bf16=False,
    )
    with monkeypatch.context() as patch:
        patch.setattr(encoding.EncoderTraining, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=config)
    last = last_checkpoint(tmp_path / "out/run/checkpoints")
    result = train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=config)
    assert result.steps == result.resumed_from == int(last.name.split("-")[1]) < 30
    rows = [row for row in result.history if "eval_ndcg@10" in row]
    assert [row["eval_ndcg@10 worse"] for row in rows[-3:]] == [0, 1, 1]
    assert f"step {result.best_step:,}" in result.notes[-1]
    (best,) = (row["eval_ndcg@10"] for row in rows if row["step"] == result.best_step)
    assert result.after.value == pytest.approx(best, abs=1e-6)
    assert "its last 2 evaluations were worse than the best by more than chance" in result.notes[1]
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert all(f"{note[0].upper()}{note[1:]}." in card for note in result.notes)
    assert json.loads((tmp_path / "out" / "binocle.json").read_text("utf-8"))["notes"] == result.notes


@pytest.mark.parametrize(
    ("values", "worse", "chosen"),
    [
        ([0.5, 0.9, 0.7], [0, 0, 1], 2),
        ([0.5, 0.9, 0.85], [0, 0, 0], 3),
        ([0.9, 0.85, 0.78], [0, 0, 1], 2),
        ([0.9, 0.5, 0.85], [0, 1, 0], 3),
    ],
)
def test_of_checkpoints_that_are_not_told_apart_the_last_is_taken(values, worse, chosen):
    from transformers import Trainer, TrainerState

    class ResumableBase(ResumableTrainer, Trainer):
        pass

    trainer = ResumableBase.__new__(ResumableBase)
    trainer.args = SimpleNamespace(metric_for_best_model="eval_m", greater_is_better=True, save_strategy="steps")
    trainer.state = TrainerState()
    for step, value in enumerate(values, 1):
        trainer.state.global_step = step
        trainer._determine_best_metric({"eval_m": value, "eval_m worse": float(worse[step - 1])}, None)
    assert (trainer.state.best_global_step, trainer.state.best_metric) == (chosen, max(values))


EARLIER = [
    ({"order": ORDER}, "holds an unfinished run with other settings"),
    ({}, "holds an unfinished run that an earlier version began: remove it"),
]


@pytest.mark.parametrize(("settings", "message"), EARLIER)
def test_another_run_does_not_go_on_in_an_unfinished_ones_folder(settings, message, tmp_path, tiny_model):
    (tmp_path / "out" / "run").mkdir(parents=True)
    (tmp_path / "out" / "run" / "asked.json").write_text(json.dumps(settings), "utf-8")
    with pytest.raises(InputError, match=message):
        train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=FAST)


def test_nothing_but_safetensors_and_json_is_written(tmp_path, tiny_model):
    endings = set()
    checkpoints = tmp_path / "out" / "run"

    def look(_update):
        endings.update(path.suffix for path in checkpoints.rglob("*") if path.is_file())

    train_encoder(
        PAIRS,
        tmp_path / "out",
        base=tiny_model,
        config=EncoderConfig(steps=6, batch_size=8, evaluations=3),
        progress=look,
    )
    assert endings
    assert not endings & {".bin", ".pt", ".pth", ".pkl"}


# What cannot be

BAD = {
    "no objective of that name": (EncoderConfig(objective="magic"), "there is no objective 'magic'"),
    "an objective for other data": (EncoderConfig(objective="cosine"), "takes pairs with a score"),
    "no pooling of that name": (EncoderConfig(pooling=("sum",)), "there is no pooling 'sum'"),
    "no epochs": (EncoderConfig(epochs=0), "epochs is a number above 0"),
    "a batch of nothing": (EncoderConfig(batch_size=0), "batch size is a whole number above 0"),
    "a share above 1": (EncoderConfig(held_out=1.5), "held out is a share"),
    "a learning rate that is none": (EncoderConfig(learning_rate=float("nan")), "learning rate is a number above 0"),
    "half a step": (EncoderConfig(steps=2.5), "steps is a whole number above 0, not 2.5"),
    "half an evaluation of patience": (EncoderConfig(patience=0.5), "patience is a whole number from 0, not 0.5"),
    "a seed below 0": (EncoderConfig(seed=-1), "seed is a whole number from 0, not -1"),
    "a seed too large": (EncoderConfig(seed=1 << 32), "seed is a whole number below 2"),
    "a weight decay below 0": (EncoderConfig(weight_decay=-0.1), "weight decay is a number from 0"),
    "a margin that is none": (EncoderConfig(margin=float("nan")), "margin is a number from 0, not nan"),
    "a margin without a use": (
        EncoderConfig(margin=0.3),
        "margin is for contrastive, .*, batch-semi-hard, not for the objective ranking: leave it out",
    ),
    "a temperature without a use": (
        EncoderConfig(temperature=2.0),
        "temperature is for kl, not for the objective ranking",
    ),
    "texts in memory without a use": (
        EncoderConfig(mini_batch=8),
        "mini batch is for cached-ranking, not for the objective",
    ),
    "tokens that are too few": (EncoderConfig(max_length=1), "max length is in tokens"),
}


@pytest.mark.parametrize("name", BAD)
def test_settings_that_cannot_be_are_told_before_anything_is_made(name, tmp_path, tiny_model):
    config, message = BAD[name]
    with pytest.raises(InputError, match=message):
        train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=config)
    assert not (tmp_path / "out").exists()


def test_a_loss_that_is_no_number_ends_the_run_and_no_model_comes_of_it(tmp_path, tiny_model):
    config = EncoderConfig(learning_rate=1e30, held_out=0.1, steps=4, batch_size=4, evaluations=1)
    with pytest.raises(InputError, match=r"no number any more at step \d: give a learning rate below 1e\+30"):
        train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=config)
    assert not (tmp_path / "out").exists()


def test_classes_that_cannot_be_set_against_each_other_are_told(tmp_path, tiny_model):
    alone = [{"text": text, "label": f"{n}"} for n, text in enumerate(TEXTS)]
    with pytest.raises(InputError, match=r"expected two classes of two texts or more to train on, but 0 of .* have as"):
        train_encoder(alone, tmp_path / "out", base=tiny_model, config=FAST)


def test_batches_of_classes_are_even_and_no_larger_than_there_is_text_for(tmp_path, tiny_model):
    rows = [{"text": TEXTS[n], "label": "ab"[n % 2]} for n in range(6)]
    config = EncoderConfig(steps=1, batch_size=9, held_out=0, evaluations=1)
    assert train_encoder(rows, tmp_path / "out", base=tiny_model, config=config).steps == 1


def test_rows_of_one_document_are_not_negatives_of_each_other(tmp_path, tiny_model):
    rows = [{**row, "document_id": f"d{number // 4}"} for number, row in enumerate(PAIRS)]
    run = TrainingRun(tmp_path / "out", tiny_model, FAST)
    run.open({})
    data = prepare(rows, tmp_path / "data", held_out=0)
    training = encoding.EncoderTraining.load(run, data, "ranking")
    batches = list(training.first.make_batches())
    assert len(batches) == len(PAIRS) // 8
    groups = data.table()["group"].to_pylist()
    assert all(len({groups[row] for row in batch}) == 8 for batch in batches)


def test_a_worsened_model_is_said_to_be_worse(tmp_path, tiny_model):
    config = EncoderConfig(steps=8, batch_size=8, evaluations=1, learning_rate=0.3, held_out=0.4)
    result = train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=config)
    assert result.is_worse
    assert result.difference.value == pytest.approx(result.after.value - result.before.value)
    assert result.notes[0].endswith(": worse than its base")
    assert result.as_dict()["difference"]["verdict"] == "worse"


@pytest.mark.thorough
def test_of_few_different_positives_every_row_is_learned_from_in_smaller_batches_and_told(tmp_path, tiny_model):
    rows = [{"query": f"{a} {b}", "positive": ANIMALS[n % 3]} for a in ANIMALS for n, b in enumerate(ANIMALS)]
    events = []
    config = EncoderConfig(batch_size=8, held_out=0.0)
    assert train_encoder(rows, tmp_path / "out", base=tiny_model, config=config, progress=events.append).steps == 33
    assert [event.stage for event in events if not event.total][-1] == (
        "batches have 3 rows, not 8, since no two may share a text and few are different: where texts stand for "
        "classes, give text and label"
    )
    with pytest.raises(InputError, match="one text is in every row"):
        train_encoder([row | {"positive": "cat"} for row in rows], tmp_path / "one", base=tiny_model, config=config)


@pytest.mark.parametrize(
    ("shape", "objective"),
    [
        (Shape.PAIRS, "ranking"),
        (Shape.PAIRS, "cached-ranking"),
        (Shape.SCORED, "cosent"),
        (Shape.LABELLED, "online-contrastive"),
    ],
)
def test_a_batch_of_one_row_is_refused_where_it_teaches_nothing(shape, objective, tmp_path, tiny_model):
    config = replace(FAST, objective=objective, batch_size=1)
    with pytest.raises(
        InputError, match=f"the objective {objective} compares the rows of a batch, but the batch size is 1"
    ):
        train_encoder(DATA[shape], tmp_path / "out", base=tiny_model, config=config)
    assert not (tmp_path / "out").exists()


def test_a_base_that_cannot_write_is_told_where_it_should(tmp_path, tiny_model):
    base = family("distilbert", tmp_path / "base", tiny_model)
    with pytest.raises(InputError, match="tsdae needs a base that can write too, .* but this one is distilbert"):
        train_encoder(DATA[Shape.TEXTS], tmp_path / "out", base=base)


def test_texts_alone_are_all_learned_from_and_their_run_says_that_nothing_is_measured(tmp_path, tiny_model):
    config = EncoderConfig(steps=1, batch_size=8)
    result = train_encoder(DATA[Shape.TEXTS], tmp_path / "out", base=tiny_model, config=config)
    assert result.rows == {"training": len(TEXTS), "held_out": 0, "left_out": 0}
    assert result.notes == ["nothing is measured, since texts alone have no measure without a teacher"]
    card = json.loads((tmp_path / "out/binocle.json").read_text("utf-8"))
    assert (card["measures"], result.before, result.after) == ([], None, None)


@pytest.mark.parametrize("option", ["held_out", "evaluations", "patience", "development"])
def test_an_option_of_the_measurement_is_refused_for_texts_alone(option, tmp_path, tiny_model):
    (tmp_path / "dev.jsonl").write_text('{"text": "the cat sat"}', "utf-8")
    options = {"held_out": 0.1, "evaluations": 2, "patience": 1}
    config = EncoderConfig(steps=1, batch_size=8, **{name: options[name] for name in options if name == option})
    development = tmp_path / "dev.jsonl" if option == "development" else None
    with pytest.raises(InputError, match="is for data with a measure, which texts alone do not have without a teacher"):
        train_encoder(DATA[Shape.TEXTS], tmp_path / "out", base=tiny_model, config=config, development=development)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_in_use_is_not_written_to(tmp_path, tiny_model):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine", "utf-8")
    with pytest.raises(InputError, match="is not empty"):
        train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=FAST)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_wrong_data_leaves_nothing_behind(tmp_path, tiny_model):
    with pytest.raises(InputError, match="row 2: expected a text"):
        train_encoder([PAIRS[0], {"query": "a"}], tmp_path / "out", base=tiny_model, config=FAST)
    assert not (tmp_path / "out").exists()


def test_a_mistake_that_shows_after_the_data_were_read_leaves_nothing_behind(tmp_path, tiny_model):
    with pytest.raises(InputError, match="Matryoshka lengths"):
        train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=EncoderConfig(steps=1, matryoshka=(99,)))
    assert not list(tmp_path.iterdir())


def test_a_teacher_of_what_is_no_text_is_told(tmp_path, tiny_model):
    with pytest.raises(InputError, match="learned from texts alone, but the data are pairs .*: leave the teacher out"):
        train_encoder(PAIRS, tmp_path / "out", base=tiny_model, teacher=tiny_model, config=FAST)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("teacher", "pooling"), [("@16", None), ("", ("cls", "mean"))])
def test_a_teacher_with_shorter_vectors_is_told_before_the_data_are_read(teacher, pooling, tmp_path, tiny_model):
    def rows():
        yield pytest.fail("the data are read")

    dim = load_encoder(tiny_model).dim
    expected = (16, dim) if teacher else (dim, 2 * dim)
    with pytest.raises(
        InputError, match="the teacher's vectors have {} dimensions, the student's {}".format(*expected)
    ):
        train_encoder(
            rows(),
            tmp_path / "out",
            base=tiny_model,
            teacher=f"{tiny_model}{teacher}",
            config=EncoderConfig(pooling=pooling),
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_a_text_and_its_translation_learn_the_teachers_vector_of_the_text(tmp_path, tiny_model):
    """The teacher is the base itself, so that the loss is the distance of a translation from its text."""
    rows = [{"english": row["query"], "non_english": row["positive"]} for row in PAIRS]
    config = EncoderConfig(objective="embeddings", epochs=3, batch_size=16, learning_rate=2e-3, held_out=0.0)
    result = train_encoder(rows, tmp_path / "out", base=tiny_model, teacher=tiny_model, config=config)
    assert result.objective == "embeddings"
    teacher, student = load_encoder(tiny_model), load_encoder(str(result.folder))
    texts, translations = ([row[name] for row in rows] for name in ("english", "non_english"))
    expected = teacher.encode(texts)

    def distance(encoder, own):
        return 1 - float((encoder.encode(own) * expected).sum(1).mean())

    assert distance(student, translations) < 0.5 * distance(teacher, translations)
    assert distance(student, texts) < 0.05


@pytest.mark.parametrize("options", [(), ("--mine", 1)])
def test_shortened_vectors_are_refused_as_a_base_which_was_trained_whole(options, tmp_path, tiny_model, run):
    shown = run("train", "encoder", tmp_path / "none.jsonl", "--base", f"{tiny_model}@16", "--out", tmp_path, *options)
    assert shown.code == 2
    assert f"expected {tiny_model} as the base, with --matryoshka 16 for short vectors" in shown.err


def test_a_base_that_is_nowhere_is_told_before_the_data_are_read(tmp_path):
    with pytest.raises(ModelNotFoundError):
        train_encoder(tmp_path / "none.jsonl", tmp_path / "out", base="none/such", config=FAST)


def test_rounds_of_another_run_are_not_gone_on_with_and_a_mistake_leaves_nothing(tmp_path, tiny_model):
    scored = [
        {"sentence1": pair["query"], "sentence2": pair["positive"], "score": len(pair["query"])} for pair in PAIRS
    ]
    for source, message in ((tmp_path / "none.jsonl", "there is no file or folder"), (scored, "mined for pairs")):
        with pytest.raises(InputError, match=message):
            train_rounds(source, tmp_path / "out", negatives=1, base=tiny_model)
    assert not list(tmp_path.iterdir())
    (tmp_path / ".out-rounds").mkdir()
    for settings, message in EARLIER:
        (tmp_path / ".out-rounds" / "asked.json").write_text(json.dumps(settings), "utf-8")
        with pytest.raises(InputError, match=message):
            train_rounds(tmp_path / "pairs.jsonl", tmp_path / "out", negatives=1, base=tiny_model)


WRONG_ROUNDS = {
    "two negatives with a guide": (
        {"negatives": 2, "config": EncoderConfig(objective="guided-ranking")},
        "takes one negative for each pair, not 2",
    ),
    "no such guide": ({"config": EncoderConfig(guide="none/such")}, "none/such"),
    "a learning rate of nothing": ({"config": EncoderConfig(learning_rate=0)}, "learning rate is a number above 0"),
    "no objective of that name": ({"config": EncoderConfig(objective="magic")}, "there is no objective 'magic'"),
    "an objective for other data": ({"config": EncoderConfig(objective="cosine")}, "but the data are triplets"),
    "a scale without a use": (
        {"config": EncoderConfig(objective="triplet-cosine", scale=5)},
        "scale is for ranking, cached",
    ),
    "a base that is nowhere": ({"base": "none/such"}, "none/such is not on this machine"),
}


@pytest.mark.parametrize("name", WRONG_ROUNDS)
def test_settings_that_cannot_be_are_told_before_anything_is_mined(name, tmp_path, tiny_model, monkeypatch):
    options, message = WRONG_ROUNDS[name]
    monkeypatch.setattr("binocle.training.encoders.mining_rounds.mine", lambda *_, **__: pytest.fail("it was mined"))
    with pytest.raises((InputError, ModelNotFoundError), match=message):
        train_rounds("pairs.jsonl", tmp_path / "out", **{"base": tiny_model, "negatives": 1, **options})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_mistake_that_shows_in_the_first_round_leaves_nothing_behind(rounds, tmp_path, tiny_model):
    wrong = EncoderConfig(steps=2, matryoshka=(99,))
    with pytest.raises(InputError, match="Matryoshka lengths"):
        train_rounds(PAIRS, tmp_path / "out", negatives=1, rounds=rounds, base=tiny_model, config=wrong)
    assert not list(tmp_path.iterdir())


def test_what_is_held_out_is_held_out_of_every_round(tmp_path, monkeypatch, tiny_model):
    parts = []

    def mined(_data, out, **_options):
        held_out = sorted(parts[0][1]) if parts else []
        rows = [
            row | {"negative": "bread"} for row in PAIRS if row["positive"] not in held_out[2:]
        ]  # a few find too few
        out.write_text("\n".join(map(json.dumps, rows)), "utf-8")
        return MiningReport()

    def learned(data, _folder, *, config, development=None, **_options):
        options = {"held_out": config.held_out, "seed": config.seed, "development": development}
        dataset = prepare(data, tmp_path / f"rows-{len(parts)}", **options)
        texts = dataset.table()["positive"].to_pylist()
        parts.append([{texts[number] for number in rows} for rows in (dataset.training(), dataset.held_out())])

    monkeypatch.setattr("binocle.training.encoders.mining_rounds.mine", mined)
    monkeypatch.setattr("binocle.training.encoders.mining_rounds.train_encoder", learned)
    config = EncoderConfig(held_out=0.1)
    train_rounds(PAIRS, tmp_path / "out", negatives=1, rounds=2, base=tiny_model, config=config)
    (first, held_out), (second, still_held) = parts
    assert (len(held_out), len(first), len(second)) == (10, 90, 90)
    assert still_held == set(sorted(held_out)[:2])
    assert not first & still_held


def test_pairs_without_enough_negatives_are_told_and_the_card_names_the_users_data(tmp_path, tiny_model):
    file, events = tmp_path / "pairs.jsonl", []
    three = [{"query": f"the {noun}", "positive": noun} for noun in ("cat", "moon", "ship")]
    near = [{"query": "the cat", "positive": f"the cat {n}"} for n in range(2)]
    file.write_text("".join(json.dumps(row) + "\n" for row in [*three, *near]), "utf-8")
    config = EncoderConfig(steps=2, batch_size=2, held_out=0)
    options = {"negatives": 3, "rounds": 2, "base": tiny_model, "config": config, "progress": events.append}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("binocle.training.encoders.mining_rounds._RULES", {"relative_margin": 0.0})
        train_rounds(file, tmp_path / "out", **options)
    left_out = "3 of 5 pairs left out: fewer than 3 negatives for 1 query, none for 0 of them"
    assert left_out in [event.stage for event in events]
    facts = json.loads((tmp_path / "out" / "binocle.json").read_text("utf-8"))
    assert facts["base"] == Path(tiny_model).name
    assert facts["data"]["source"] == "pairs.jsonl"
    assert facts["data"]["negatives"].startswith("3 for each pair, mined in 2 rounds")


@pytest.mark.thorough
def test_the_base_of_all_rounds_is_the_one_that_was_given(tmp_path, tiny_model):
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in PAIRS), "utf-8")
    settings = {"batch_size": 8, "held_out": 0.2, "evaluations": 1}
    once = train_encoder(file, tmp_path / "once", base=tiny_model, config=EncoderConfig(steps=1, **settings))
    config = EncoderConfig(steps=4, learning_rate=0.01, **settings)
    result = train_rounds(file, tmp_path / "out", negatives=1, rounds=2, base=tiny_model, config=config)
    facts = json.loads((tmp_path / "out" / "binocle.json").read_text("utf-8"))
    assert result.before.value == pytest.approx(once.before.value, abs=0.01)
    assert facts["measures"][0]["value"] == pytest.approx(result.before.value, abs=1e-4)


def test_a_single_step_learns(tmp_path, tiny_model):
    config = EncoderConfig(steps=1, batch_size=8, learning_rate=0.01, held_out=0, bf16=False)
    train_encoder(PAIRS, tmp_path / "out", base=tiny_model, config=config)
    vectors = [load_encoder(str(folder)).encode(["the cat"]) for folder in (tiny_model, tmp_path / "out")]
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3


@pytest.mark.parametrize("changed", [{"pooling": ("max",)}, {"pooling_layers": (1,)}])
def test_a_model_that_pools_in_another_way_is_compared_with_its_base(changed, tmp_path, tiny_model):
    befores, afters = [], []
    for options in ({}, changed):
        config = EncoderConfig(steps=1, batch_size=8, learning_rate=1e-9, held_out=0.2, evaluations=1, **options)
        result = train_encoder(PAIRS, tmp_path / f"out{len(befores)}", base=tiny_model, config=config)
        befores.append(result.before.value)
        afters.append(result.after.value)
    assert befores[1] == pytest.approx(befores[0], abs=0.005) and abs(afters[1] - afters[0]) > 0.01


@pytest.mark.parametrize("rounds", [1, 2])
def test_rounds_killed_while_a_model_is_moved_to_its_place_end_with_it(rounds, tmp_path, tiny_model, monkeypatch):
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in PAIRS), "utf-8")
    options = {
        "negatives": 1,
        "rounds": rounds,
        "base": tiny_model,
        "config": EncoderConfig(steps=2 * rounds, batch_size=8),
    }
    moved = Path.replace

    def stop(path, target):
        if path.name == "modules.json" and path.parent.name == "model":
            raise KeyboardInterrupt
        return moved(path, target)

    monkeypatch.setattr(Path, "iterdir", lambda path: iter(sorted(map(path.joinpath, os.listdir(path)))))
    monkeypatch.setattr(Path, "replace", stop)  # binocle.json comes before modules.json
    with pytest.raises(KeyboardInterrupt):
        train_rounds(file, tmp_path / "out", **options)
    monkeypatch.undo()
    result = train_rounds(file, tmp_path / "out", **options)
    assert result.steps == 2
    assert load_encoder(str(tmp_path / "out")).fingerprint == result.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "pairs.jsonl"]


def test_rounds_killed_in_their_last_moment_are_tidied(tmp_path, tiny_model, monkeypatch):
    delete = shutil.rmtree

    def killed(path, **options):
        if Path(path).name == ".out-rounds" and Path(path).exists():
            raise KeyboardInterrupt
        delete(path, **options)

    given = {"negatives": 1, "base": tiny_model, "config": EncoderConfig(steps=1, batch_size=8, held_out=0)}
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            train_rounds(PAIRS, tmp_path / "out", **given)
    with pytest.raises(InputError, match="out holds the finished model already: give another folder for a new one"):
        train_rounds(PAIRS, tmp_path / "out", **given)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_killed_rounds_go_on_where_the_model_is_written_among_the_documents(tmp_path, tiny_model, write, monkeypatch):
    corpus = write(tmp_path / "corpus", {f"{n}.md": f"The {row['positive']}\n" for n, row in enumerate(PAIRS[:20])})
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in PAIRS), "utf-8")
    settings = {"corpus": corpus, "negatives": 1, "base": tiny_model, "config": EncoderConfig(steps=2, batch_size=8)}

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainingRun, "finish", stop)
    with pytest.raises(KeyboardInterrupt):
        train_rounds(file, corpus / "out", **settings)
    monkeypatch.undo()
    assert train_rounds(file, corpus / "out", **settings).steps == 2


def test_rounds_do_not_begin_in_the_folder_of_another_unfinished_run(tmp_path, tiny_model):
    (tmp_path / "out" / "run").mkdir(parents=True)
    with pytest.raises(InputError, match="out is not empty: give another folder"):
        train_rounds(PAIRS, tmp_path / "out", negatives=1, base=tiny_model, config=FAST)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_run_held_out_by_other_rows_is_another_run(tmp_path, tiny_model, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"query": "a", "positive": name}), "utf-8")
    monkeypatch.setattr(encoding.EncoderTraining, "train", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    out = tmp_path / "out"
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train_encoder(PAIRS, out, base=tiny_model, config=FAST, development=tmp_path / "one.jsonl")
    with pytest.raises(InputError, match="out holds an unfinished run with other settings"):
        train_encoder(PAIRS, out, base=tiny_model, config=FAST, development=tmp_path / "two.jsonl")


def _stopped(monkeypatch):
    monkeypatch.setattr(encoding.EncoderTraining, "train", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    return pytest.raises(KeyboardInterrupt)


@pytest.mark.parametrize("changed", ["pairs", "dev"])
def test_a_run_does_not_go_on_with_files_that_changed(changed, tmp_path, tiny_model, monkeypatch):
    files = {name: tmp_path / f"{name}.jsonl" for name in ("pairs", "dev")}
    files["pairs"].write_text("\n".join(map(json.dumps, PAIRS)), "utf-8")
    files["dev"].write_text(json.dumps({"query": "a", "positive": "one"}), "utf-8")
    options = {"base": tiny_model, "config": FAST, "development": files["dev"]}
    for _ in range(2):
        with _stopped(monkeypatch):
            train_encoder(files["pairs"], tmp_path / "out", **options)
    with files[changed].open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps({"query": "one", "positive": "more"}))
    with pytest.raises(InputError, match="out holds an unfinished run on data that changed since then: remove it"):
        train_encoder(files["pairs"], tmp_path / "out", **options)


def test_a_run_does_not_go_on_with_other_rows(tmp_path, tiny_model, monkeypatch):
    out, rows = tmp_path / "out", [*PAIRS, {"query": "one", "positive": "more"}]
    for _ in range(2):
        with _stopped(monkeypatch):
            train_encoder(iter(rows), out, base=tiny_model, config=FAST)
    with pytest.raises(InputError, match="out holds an unfinished run on other rows: remove it"):
        train_encoder(PAIRS, out, base=tiny_model, config=FAST)


def test_the_files_of_a_collection_are_those_that_its_rows_come_from(tmp_path):
    for name in ("corpus.jsonl", "qrels/train.tsv", "model/run/x", "_versions/1.manifest"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("abc", "utf-8")
    paths = files_of(str(tmp_path), [{"text": "a"}], "owner/name", None)
    assert [(Path(path).relative_to(tmp_path).as_posix(), size) for path, size, _ in paths] == [
        ("_versions/1.manifest", 3),
        ("corpus.jsonl", 3),
        ("qrels/train.tsv", 3),
    ]


def test_the_files_of_documents_are_those_that_are_read_and_an_index_has_its_state(tmp_path, tiny_model):
    for name in ("a.md", "b/c.txt", ".hidden", "out/run/asked.json", "model.bin", ".gitignore"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("*.bin", "utf-8")
    listed = [(str(tmp_path / name), 5) for name in ("a.md", "b/c.txt")]
    assert [file[:2] for file in files_of(tmp_path, leave_out=tmp_path / "out")] == listed
    index = Retriever.open(tmp_path / "out/index", model=tiny_model)
    versions = []
    for text in ("one", "two"):
        index.add([{"id": text, "text": text}])
        versions.append(files_of(tmp_path / "out/index"))
    assert versions[0] != versions[1] == files_of(tmp_path / "out/index")
    assert {Path(path).name for path, *_ in versions[1]} <= {"HEAD.json", "HEAD.previous.json"}


# Measures on held-out rows

TELL_NOTHING = {  # held-out rows with the same figure for every model
    "too few": [{"sentence1": f"a{n}", "sentence2": f"b{n}", "score": n / 2} for n in range(2)],
    "one document": [{"query": f"q{n}", "positive": "p"} for n in range(12)],
    "one score": [{"sentence1": f"a{n}", "sentence2": f"b{n}", "score": 0.5 + (n > 12)} for n in range(14)],
    "one label": [{"sentence1": f"a{n}", "sentence2": f"b{n}", "label": int(n > 12)} for n in range(14)],
    "few texts": [{"text": f"a{n}"} for n in range(11)],
    "a class a text": [{"text": f"a{n}", "label": f"c{n}"} for n in range(12)],
}


@pytest.mark.parametrize("name", TELL_NOTHING)
def test_held_out_rows_of_which_every_model_has_one_figure_are_no_measure(name, tmp_path):
    dataset = prepare(TELL_NOTHING[name], tmp_path, held_out=0)
    dataset.part[:12] = 1
    assert not heldout.can_tell(dataset)
    assert heldout.measure(lambda *_: pytest.fail("nothing is to be encoded"), dataset) is None


def test_of_a_few_held_out_pairs_a_figure_is_had_but_nothing_is_chosen(tmp_path):
    dataset = prepare(PAIRS[:20], tmp_path, held_out=0)
    dataset.part[:2] = 1
    assert heldout.can_measure(dataset)
    assert not heldout.can_tell(dataset)


ACCOUNTS = {
    (90, 10, 0): "90 rows to learn from, 10 held out",
    (81, 10, 9): "81 rows to learn from, 10 held out, 9 left out because they share a text with held-out rows",
    (
        70,
        10,
        20,
    ): "70 rows to learn from, 10 held out, 20 left out because they share a text with held-out rows: hold out a "
    "smaller share, or other rows, to learn from more",
    (
        98,
        2,
        0,
    ): "98 rows to learn from, 2 held out; those held out are too few or too much alike to choose weights by: the last are kept",
    (100, 0, 0): "100 rows to learn from, 0 held out",
}


@pytest.mark.parametrize("counts", ACCOUNTS)
def test_how_many_rows_are_learned_from_is_told(counts, tmp_path):
    dataset = prepare(PAIRS, tmp_path, held_out=0)
    dataset.part = np.repeat(np.array([0, 1, 2], np.uint8), counts)
    assert heldout.account(dataset) == ACCOUNTS[counts]


def test_of_few_rows_all_epochs_are_learned_and_the_last_weights_kept(tmp_path, tiny_model):
    config, events = EncoderConfig(epochs=10, batch_size=10, learning_rate=1e-3), []
    result = train_encoder(PAIRS[:20], tmp_path / "out", base=tiny_model, config=config, progress=events.append)
    assert result.steps == 10
    assert result.before.value != result.after.value
    assert result.rows == {"training": 19, "held_out": 1, "left_out": 0}
    assert [event.stage for event in events if event.stage != "training"] == [
        result.account,
        "loading the model",
        "measuring the model to begin with",
        "measuring the trained model",
    ]


def test_spearman_and_average_precision_are_scipys_and_the_definition():
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(0)
    labels, scores = generator.integers(0, 9, 200), generator.normal(size=200)
    assert heldout.spearman(scores, labels) == pytest.approx(stats.spearmanr(scores, labels)[0])
    assert heldout.statistic(
        "average precision", np.array([3.0, 2.0, 1.0]), np.array([1, 0, 1]), 0
    ).value == pytest.approx((1 + 2 / 3) / 2)


@pytest.mark.parametrize("count", [12, 31, 40, 100, 400])
def test_agreement_with_a_teacher_has_an_interval_from_few_texts_on(count, tmp_path):
    dataset = prepare([{"text": f"text {n}"} for n in range(count)], tmp_path, held_out=0)
    dataset.part[:] = 1
    vectors = np.random.default_rng(0).normal(size=(2, count, 8)).astype(np.float32)
    same = heldout.measure(lambda *_: vectors[0], dataset, teacher=lambda *_: vectors[0])
    near = heldout.measure(lambda *_: vectors.sum(0), dataset, teacher=lambda *_: vectors[0])
    assert (same.value, same.low, same.high, same.rows) == (1, 1, 1, count)
    assert near.low < near.value < near.high < 1
    assert near.rows == count
    assert len(near.values) == min(max(10, count // 32), count // 4)


def test_ndcg_of_held_out_pairs_by_hand(tmp_path, monkeypatch):
    from binocle.training.data import dataset as data

    monkeypatch.setattr(heldout, "_MIN_ROWS", 3)
    dataset = data.prepare([{"query": n, "positive": n.upper()} for n in ("a", "b", "c")], tmp_path, held_out=0)
    dataset.part[:] = data.HELD_OUT
    vectors = {"a": (1, 0), "A": (1, 0), "b": (1, 0), "B": (0.5, 0.5), "c": (0, 1), "C": (1, 0.1)}
    measure = heldout.measure(lambda texts, kind: np.array([vectors[text] for text in texts], np.float32), dataset)
    assert isinstance(dataset, TrainingSet)
    np.testing.assert_allclose(measure.values, [1 / np.log2(3), 1 / np.log2(4), 1 / np.log2(3)], atol=1e-6)  # C ties A


@pytest.mark.parametrize(("maximum", "values"), [(1_000, [1 / np.log2(4), 1 / np.log2(5), 1 / np.log2(3)]), (0, None)])
def test_held_out_queries_look_among_documents_that_are_learned_from_too(maximum, values, tmp_path, monkeypatch):
    from binocle.training.data import dataset as data

    monkeypatch.setattr(heldout, "_MIN_ROWS", 3)
    monkeypatch.setattr(heldout, "_DOCUMENTS", maximum)
    dataset = data.prepare([{"query": n, "positive": n.upper()} for n in ("a", "b", "c", "d")], tmp_path, held_out=0)
    dataset.part[:3] = data.HELD_OUT
    vectors = {"a": (1, 0), "A": (1, 0), "b": (1, 0), "B": (0.5, 0.5), "c": (0, 1), "C": (1, 0.1), "D": (2, 0)}
    measure = heldout.measure(lambda texts, kind: np.array([vectors[text] for text in texts], np.float32), dataset)
    ties_counted = [1 / np.log2(3), 1 / np.log2(4), 1 / np.log2(3)]
    np.testing.assert_allclose(measure.values, values or ties_counted, atol=1e-6)


def test_held_out_queries_look_among_the_texts_that_share_most_words_with_them(tmp_path, monkeypatch):
    from binocle.training.data import dataset as data

    monkeypatch.setattr(heldout, "_DOCUMENTS", 4)
    held_out = [("moon landing", "the lander touched down"), ("red panda food", "they eat bamboo")]
    like = ["the moon is far from any landing place", "a panda at the zoo", "a red car", "landing of the plane"]
    learned = [(f"query {number}", text) for number, text in enumerate([*["nothing in common"] * 3, *like])]
    rows = [{"query": query, "positive": f"{text} {number}"} for number, (query, text) in enumerate(held_out + learned)]
    dataset = data.prepare(rows, tmp_path, held_out=0)
    dataset.part[:2] = data.HELD_OUT
    assert heldout.choose_distractors(dataset) == [f"{like[0]} 5", f"{like[1]} 6"]
    monkeypatch.setattr(heldout, "_DOCUMENTS", 6)
    assert heldout.choose_distractors(dataset) == [f"{like[0]} 5", f"{like[1]} 6", f"{like[3]} 8", f"{like[2]} 7"]


@pytest.mark.parametrize(("held_out", "count"), [(10, 990), (300, 700), (800, 500)])
def test_held_out_queries_look_among_enough_other_texts(held_out, count, tmp_path):
    from binocle.training.data import dataset as data

    rows = [{"query": f"question {n}", "positive": f"answer {n}"} for n in range(2_000)]
    dataset = data.prepare(rows, tmp_path, held_out=0)
    dataset.part[:held_out] = data.HELD_OUT
    distractors = heldout.choose_distractors(dataset)
    assert len(set(distractors)) == len(distractors) == count
    assert set(distractors) <= {f"answer {n}" for n in range(held_out, 2_000)}


def test_an_encoder_that_gives_all_texts_one_vector_finds_nothing(tmp_path):
    from binocle.training.data import dataset as data

    dataset = data.prepare([{"query": f"q{n}", "positive": f"p{n}"} for n in range(60)], tmp_path, held_out=0)
    dataset.part[:10] = data.HELD_OUT
    assert heldout.measure(lambda texts, kind: np.ones((len(texts), 2), np.float32), dataset).value == 0


def test_an_answer_in_a_row_that_is_left_out_is_an_answer_where_a_held_out_query_meets_it(tmp_path, monkeypatch):
    from binocle.training.data import dataset as data

    monkeypatch.setattr(heldout, "_MIN_ROWS", 1)
    rows = [("a", "A"), ("a", "B"), ("b", "B"), ("c", "C"), ("a", "unmet")]
    dataset = data.prepare([{"query": query, "positive": text} for query, text in rows], tmp_path, held_out=0)
    dataset.part[:] = [data.HELD_OUT, data.LEFT_OUT, data.TRAIN, data.HELD_OUT, data.LEFT_OUT]
    vectors = {"a": (1, 0), "B": (1, 0), "A": (0.9, 0), "C": (0.5, 0.5), "c": (0, 1)}
    measure = heldout.measure(lambda texts, kind: np.array([vectors[text] for text in texts], np.float32), dataset)
    np.testing.assert_allclose(measure.values, [1, 1], atol=1e-6)


def test_a_near_copy_of_the_positive_does_not_compete_with_it(tmp_path, monkeypatch):
    from binocle.training.data import dataset as data

    monkeypatch.setattr(heldout, "_MIN_ROWS", 1)
    rows = [("a", "The A."), ("b", "the a"), ("c", "C")]
    dataset = data.prepare([{"query": query, "positive": text} for query, text in rows], tmp_path, held_out=0)
    dataset.part[:] = data.HELD_OUT
    vectors = {"a": (1, 0), "b": (1, 0), "The A.": (0.9, 0), "the a": (1, 0), "C": (0, 1), "c": (0, 1)}
    measure = heldout.measure(lambda texts, kind: np.array([vectors[text] for text in texts], np.float32), dataset)
    np.testing.assert_allclose(measure.values, [1, 1, 1], atol=1e-6)


def test_an_equal_text_is_no_neighbour_of_its_class(tmp_path):
    from binocle.training.data import dataset as data

    rows = [("hello", "a"), ("Hello ", "a"), ("goodbye", "b"), ("bye", "b"), ("thanks", "a")]
    dataset = data.prepare([{"text": text, "label": label} for text, label in rows], tmp_path, held_out=0)
    dataset.part[:] = data.HELD_OUT
    vectors = {"hello": (1, 0), "Hello ": (1, 0), "goodbye": (0.9, 0.1), "bye": (0, 1), "thanks": (0.1, 0.9)}
    measure = heldout.measure(lambda texts, _: np.array([vectors[text] for text in texts], np.float32), dataset)
    assert measure.values.tolist() == [0, 0, 0, 0, 0]


def test_all_epochs_are_run_where_accumulated_batches_leave_a_rest(tmp_path, tiny_model):
    rows = [{"query": f"cat {number}", "positive": f"the king {number}"} for number in range(9)]
    config = EncoderConfig(batch_size=3, accumulate=2, epochs=3, held_out=0.0)
    result = train_encoder(rows, tmp_path / "out", base=tiny_model, config=config)
    assert (result.steps, result.history[-1]["epoch"]) == (6, 3)
