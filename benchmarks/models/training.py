"""Training, measured: `python -m benchmarks.models.training TASK --data FOLDER [--seeds 0 1 2]`.

sts          all-MiniLM-L6-v2 fine-tuned on the STS benchmark's train split by each pooling; test Spearman, and scifact
poolings     the models of `sts` side by side on the STS benchmark and on scifact: intervals, and which differ.
throughput   texts a second against a plain SentenceTransformerTrainer script with the same rows and batch size
scifact      fine-tuned on scifact's train claims with mined negatives; semantic nDCG@10 of its test claims
tune         `binocle tune --full` on each of --collections alone; semantic and hybrid nDCG@10 of its test queries
tune-log     `binocle tune --full --queries LOG`, likewise, but for cranfield. The log has up to 1,000 other queries
             of the same kind, without their judgements.
adapter      `binocle tune`, likewise
adapter-log  `binocle tune --queries LOG`, likewise
reranker     trained on SQuAD's sentences, on queries made of scifact's documents, then on its train claims, over hybrid
             search's best 50; nDCG@10 of scifact's test claims

FOLDER holds scifact, cranfield, stsb (SentEval's files), squad11 and debian_descriptions; for tune and adapter also
cacm, cisi or npl with the files that `benchmarks.collections` names. Results go to results/training-TASK.json,
or training-TASK-unseen.json for these three alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle import Retriever
from binocle.core import sentences
from binocle.core.progress import Progress
from binocle.training.data import beir
from binocle.training.data import source_documents as corpus
from binocle.training.encoders.config import EncoderConfig
from binocle.training.encoders.train import train_encoder
from binocle.training.evaluation import significance
from binocle.training.evaluation.comparison.compare import compare
from binocle.training.evaluation.evaluate_file import evaluate_file
from binocle.training.evaluation.retrieval import evaluate
from binocle.training.mining.mine import mine
from binocle.training.rerankers import candidates
from binocle.training.rerankers.config import RerankerConfig
from binocle.training.rerankers.train import train_reranker
from binocle.training.tuning.queries import query_generation as pairs
from binocle.training.tuning.tune import TuningResult, tune
from binocle.training.tuning.tuning_config import TuningConfig

from .. import collections
from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable

    from binocle.core.progress import Progress
BASE = "sentence-transformers/all-MiniLM-L6-v2"
POOLINGS = ("mean", "cls", "max")
COLLECTIONS = ("scifact", "cranfield", "squad", "debian")


def _say(event: str | Progress) -> None:
    print(event if isinstance(event, str) else event.message or event.stage, file=sys.stderr, flush=True)


def _spread(values: list[float]) -> dict[str, Any]:
    return {
        "mean": round(statistics.mean(values), 4),
        "deviation": round(statistics.stdev(values), 4) if len(values) > 1 else None,
        "values": [round(value, 4) for value in values],
    }


def _sts_file(data: Path, split: str, work: Path) -> Path:
    """SentEval's nameless columns with names: the sixth and seventh are the sentences, the fifth is the score."""
    rows = [row.split("\t") for row in (data / "stsb" / f"sts-{split}.csv").read_text("utf-8").splitlines()]
    file = work / f"sts-{split}.jsonl"
    named = ({"sentence1": row[5], "sentence2": row[6], "score": float(row[4])} for row in rows)
    file.write_text("".join(json.dumps(row) + "\n" for row in named), "utf-8")
    return file


def _pooled(data: Path, work: Path, pooling: str, seed: int) -> tuple[Path, float]:
    """The base fine-tuned on STS with a pooling: its folder, and the seconds that took (none if it was there)."""
    train, dev = (_sts_file(data, split, work) for split in ("train", "dev"))
    out = work / f"{pooling}-{seed}"
    if (out / "config.json").is_file():
        return out, 0.0
    config = EncoderConfig(pooling=(pooling,), epochs=2, learning_rate=5e-5, batch_size=32, evaluations=2, seed=seed)
    return out, train_encoder(train, out, development=dev, config=config, progress=_say).seconds


def sts(data: Path, work: Path, seeds: list[int]) -> dict[str, Any]:
    test = _sts_file(data, "test", work)
    results: dict[str, Any] = {"before": _plain(evaluate_file(test, model=BASE))}
    for pooling in POOLINGS:
        runs, seconds, retrieval = [], [], []
        for seed in seeds:
            out, spent = _pooled(data, work, pooling, seed)
            seconds.append(spent)
            runs.append(_plain(evaluate_file(test, model=str(out)))["Spearman"]["value"])
            if seed == seeds[0]:
                retrieval.append(evaluate(data / "scifact", mode="semantic", model=str(out)).measures["nDCG@10"])
            _say(f"{pooling} {seed}: {runs[-1]} {retrieval}")
        results[pooling] = {"Spearman": _spread(runs), "seconds": _spread(seconds), "scifact nDCG@10": retrieval}
    return results


def poolings(data: Path, work: Path, seeds: list[int]) -> dict[str, Any]:
    folders = [str(_pooled(data, work, pooling, seed)[0]) for seed in seeds for pooling in POOLINGS]
    comparison = compare([*folders, BASE], [_sts_file(data, "test", work), data / "scifact"], progress=_say)
    _say(comparison.text())
    facts = comparison.as_dict()
    del facts["evaluations"]
    return {"table": comparison.text().splitlines(), **facts}


def _plain(result: Any) -> dict[str, Any]:
    facts: dict[str, Any] = result.as_dict()
    intervals = facts.get("intervals", {})
    return {name: {"value": value, "interval": intervals.get(name)} for name, value in facts["measures"].items()}


PLAIN = """
import json, sys, time
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from binocle.retriever.models.model_files import find
rows = [json.loads(row) for row in open(sys.argv[1])]
model = SentenceTransformer(str(find(sys.argv[2])), device="cpu")
args = SentenceTransformerTrainingArguments(
    output_dir=sys.argv[3], per_device_train_batch_size=32, max_steps=int(sys.argv[4]), learning_rate=2e-5,
    use_cpu=True, warmup_steps=0.1, save_strategy="no", report_to="none", disable_tqdm=True)
trainer = SentenceTransformerTrainer(
    model=model, args=args, train_dataset=Dataset.from_list(rows), loss=MultipleNegativesRankingLoss(model))
began = time.time()
trainer.train()
print(json.dumps({"seconds": time.time() - began}))
model.save_pretrained(sys.argv[3] + "/model")
"""


def throughput(data: Path, work: Path, seeds: list[int]) -> dict[str, Any]:
    """Both train on the same pairs (scifact titles and abstracts), batch 32, in turns."""
    rows = [
        {"query": row["title"], "positive": row["text"]} for row in beir.documents(data / "scifact") if row["title"]
    ]
    random.Random(0).shuffle(rows)
    steps = 24
    file = work / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[: 32 * steps]), "utf-8")
    ours, theirs, quality = [], [], {}
    for seed in seeds:
        config = EncoderConfig(steps=steps, batch_size=32, held_out=0.0, evaluations=1, seed=seed)
        trained = train_encoder(file, work / f"ours-{seed}", config=config)
        ours.append(trained.seconds)
        plain = work / f"theirs-{seed}"
        command = [sys.executable, "-W", "ignore", "-c", PLAIN, str(file), BASE, str(plain), str(steps)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        theirs.append(json.loads(done.stdout.splitlines()[-1])["seconds"])
        _say(f"{ours[-1]:.1f} s against {theirs[-1]:.1f} s")
        if seed == seeds[0]:
            for name, folder in (("binocle", work / f"ours-{seed}"), ("plain", plain / "model")):
                quality[name] = evaluate(data / "scifact", mode="semantic", model=str(folder)).measures["nDCG@10"]
    texts = 2 * 32 * steps
    return {
        "texts": texts,
        "binocle texts/s": _spread([texts / seconds for seconds in ours]),
        "plain texts/s": _spread([texts / seconds for seconds in theirs]),
        "times": round(statistics.median(theirs) / statistics.median(ours), 2),
        "scifact nDCG@10": quality,
    }


def _gain(name: str, folder: Path, model: str | None, before: Any, **options: Any) -> dict[str, Any]:
    after = evaluate(folder, model=model, **options)
    a, b = significance.align(after.per_query["nDCG@10"], before.per_query["nDCG@10"])
    difference = significance.difference(a, b)
    gain = {"nDCG@10": after.measures["nDCG@10"], "difference": round(difference.value, 4), "p": difference.p}
    _say(f"{name}: {gain}")
    return gain


def scifact(data: Path, work: Path, seeds: list[int]) -> dict[str, Any]:
    folder = data / "scifact"
    before = evaluate(folder, mode="semantic")
    mined = work / "mined.jsonl"
    began = time.monotonic()
    mine(folder, mined, negatives=1, relative_margin=0.05)
    results: dict[str, Any] = {
        "before": before.measures["nDCG@10"],
        "mining seconds": round(time.monotonic() - began, 1),
    }
    runs = []
    for seed in seeds:
        out = work / f"scifact-{seed}"
        config = EncoderConfig(epochs=3, learning_rate=3e-5, batch_size=32, evaluations=3, seed=seed)
        trained = train_encoder(mined, out, config=config, progress=_say)
        runs.append(_gain(f"scifact {seed}", folder, str(out), before, mode="semantic") | {"seconds": trained.seconds})
    return results | {"runs": runs, "nDCG@10": _spread([run["nDCG@10"] for run in runs])}


def collection_folder(name: str, data: Path, work: Path) -> Path:
    """Return the folder of a collection, which is made if it has no files of its own."""
    if name == "squad":
        return collections.squad(data / "squad11" / "squad11_dev.jsonl.gz", work / name)
    if name == "debian":
        return collections.debian(data / "debian_descriptions" / "debian12_descriptions.jsonl.gz", work / name)
    return collections.UNSEEN[name](data / name, work / name) if name in collections.UNSEEN else data / name


def _each_collection(data: Path, work: Path, seeds: list[int], names: list[str], gains: Callable[..., Any]) -> Any:
    """Each seed tunes the same index; held-out documents say whether the result would have been published."""
    results: dict[str, Any] = {}
    for name in names:
        folder, index = collection_folder(name, data, work), work / f"{name}-index"
        before = {mode: evaluate(folder, mode=mode, index=index) for mode in ("semantic", "hybrid")}
        runs = [gains(folder, index, seed, before) for seed in seeds]
        results[name] = {"runs": runs} | {
            mode: {"before": result.measures["nDCG@10"]}
            | {of: _spread([run[mode][of] for run in runs]) for of in ("nDCG@10", "difference")}
            for mode, result in before.items()
        }
    return results


def tuned(data: Path, work: Path, seeds: list[int], names: list[str]) -> dict[str, Any]:
    return _each_collection(data, work, seeds, names, _tuned)  # type: ignore[no-any-return]


def tuned_with_log(data: Path, work: Path, seeds: list[int], names: list[str]) -> dict[str, Any]:
    return _each_collection(data, work, seeds, _logged(names), partial(_tuned, log=True))  # type: ignore[no-any-return]


def adapter(data: Path, work: Path, seeds: list[int], names: list[str]) -> dict[str, Any]:
    return _each_collection(data, work, seeds, names, _adapted)  # type: ignore[no-any-return]


def adapter_with_log(data: Path, work: Path, seeds: list[int], names: list[str]) -> dict[str, Any]:
    return _each_collection(data, work, seeds, _logged(names), partial(_adapted, log=True))  # type: ignore[no-any-return]


def _logged(names: list[str]) -> list[str]:
    """Leave out cranfield: all of its queries are test queries, so none is left for a log."""
    return [name for name in names if name != "cranfield"]


def _log(folder: Path, work: Path) -> Path:
    """Return a file of queries that the test split does not have: the collection's own log, or its train split."""
    file = folder / "log.txt"
    if not file.is_file():
        texts = beir.queries(folder)
        tested = {texts[query] for query in beir.qrels(folder, "test")}
        queries = dict.fromkeys(texts[query] for query in beir.qrels(folder, "train"))
        file = work / f"{folder.name}-log.txt"
        file.write_text("".join(f"{query}\n" for query in queries if query not in tested), "utf-8")
    return file


def _once(out: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result in the work folder `out`; measure and store it if there is none."""
    done = out / "measured.json"
    if not done.is_file():
        out.mkdir(parents=True, exist_ok=True)
        done.write_text(json.dumps(measure()), "utf-8")
    facts: dict[str, Any] = json.loads(done.read_text("utf-8"))
    return facts


def _tuned(folder: Path, index: Path, seed: int, before: dict[str, Any], *, log: bool = False) -> dict[str, Any]:
    out = index.with_name(f"tuned-{'log-' * log}{folder.name}-{seed}")

    def measure() -> dict[str, Any]:
        recipe = TuningConfig(adapter=False, seed=seed, log=str(_log(folder, index.parent)) if log else None)
        start = time.process_time()
        tuning = tune(Retriever.open(index), out=out, recipe=recipe, publish=False, progress=_say)
        seconds = round(time.process_time() - start, 1)
        gains = _no_gains(before)
        if tuning.verdict is not None:
            options = {"index": out / "index"}
            gains = {
                mode: _gain(f"{folder.name} {seed} {mode}", folder, tuning.model, result, mode=mode, **options)
                for mode, result in before.items()
            }
        return {"seed": seed, "processor seconds": seconds} | gains | {"held out": _facts(tuning)}

    return _once(out, measure)


def _adapted(folder: Path, index: Path, seed: int, before: dict[str, Any], *, log: bool = False) -> dict[str, Any]:
    out = index.with_name(f"adapter-{'log-' * log}{folder.name}-{seed}")

    def measure() -> dict[str, Any]:
        retriever, start = Retriever.open(index), time.process_time()
        recipe = TuningConfig(seed=seed, log=str(_log(folder, index.parent)) if log else None)
        tuning = tune(retriever, out=out, recipe=recipe, publish=False, progress=_say)
        seconds = round(time.process_time() - start, 1)
        facts, gains = _facts(tuning), _no_gains(before)
        if tuning.verdict is not None:
            facts["share"] = json.loads((tuning.folder / "binocle.json").read_text("utf-8"))["tuning"]["share"]
            retriever.switch(tuning.folder)
            gains = {
                mode: _gain(f"{folder.name} {seed} {mode}", folder, None, result, mode=mode, index=index)
                for mode, result in before.items()
            }
            retriever.rollback()
        return {"seed": seed, "processor seconds": seconds} | gains | {"held out": facts}

    return _once(out, measure)


def _facts(tuning: TuningResult) -> dict[str, Any]:
    facts = {name: value for name, value in tuning.as_dict().items() if name not in ("folder", "model", "published")}
    return facts | {"would be published": tuning.verdict is not None and tuning.verdict.is_gain}


def _no_gains(before: dict[str, Any]) -> dict[str, Any]:
    """Return the gains of a tuning that learned nothing."""
    return {
        mode: {"nDCG@10": result.measures["nDCG@10"], "difference": 0.0, "p": 1.0} for mode, result in before.items()
    }


def _sentences(data: Path, work: Path, *, questions: int) -> tuple[Path, Path]:
    """SQuAD's questions with the sentence of the answer, and an index of all sentences of their paragraphs."""
    file, index = work / "squad.jsonl", work / "squad-index"
    if file.is_file():
        return file, index
    with gzip.open(data / "squad11" / "squad11_train.jsonl.gz", "rt", encoding="utf-8") as stream:
        contexts = [json.loads(row) for row in stream]
    rows_asked = [(number, qa) for number, paragraph in enumerate(contexts) for qa in paragraph["qas"]]
    rows_asked = random.Random(0).sample(rows_asked, questions)
    texts = {n: contexts[n]["context"] for n, _ in rows_asked}
    cuts = {n: list(sentences.spans(text)) for n, text in texts.items()}
    rows = []
    for number, qa in rows_asked:
        answer = max(0, texts[number].find(qa["answers"][0]))
        part = max(n for n, (start, _) in enumerate(cuts[number]) if start <= answer or n == 0)
        start, end = cuts[number][part]
        text = texts[number][start:end]
        rows.append({"query": qa["question"], "positive": text, "document_id": f"{number}.{part}"})
    Retriever.open(index).add(
        {"id": f"{number}.{part}", "text": texts[number][start:end]}
        for number, spans in cuts.items()
        for part, (start, end) in enumerate(spans)
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file, index


def _generated_mining(folder: Path, retriever: Retriever, work: Path) -> Path:
    """Titles, claims and sentences of the corpus's own documents as queries, with the other finds of hybrid search."""
    file = work / "made.jsonl"
    if file.is_file():
        return file
    generated = pairs.sample(pairs.make(corpus.from_corpus(folder), kinds=("claim", "title", "cloze")), 1_200, 0)
    positives = {pair.query: pair.positive for pair in generated}  # without the sentence that is asked for
    judged = [(pair.query, [candidates.Positive(pair.positive, pair.document)]) for pair in generated]
    lists = candidates.lists(retriever, judged, negatives=7, depth=50, seed=0)
    rows = (row | {"positive": positives[row["query"]]} for row in lists)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


def _reranker(data: Path, out: Path, base: str, seed: int, index: Path | None = None, **settings: Any) -> float:
    """Train unless that was done before in the same work folder; the seconds that it took."""
    if not (out / "binocle.json").is_file():
        config = RerankerConfig(learning_rate=5e-5, evaluations=1, seed=seed, **settings)
        train_reranker(data, out, base=base, index=index, config=config, progress=_say)
    return float(json.loads((out / "binocle.json").read_text("utf-8"))["seconds"])


def reranker(data: Path, work: Path, seeds: list[int]) -> dict[str, Any]:
    """The stages on SQuAD and on the corpus are common to all seeds."""
    folder, index, mined = data / "scifact", work / "index", work / "made"
    before = evaluate(folder, mode="hybrid", index=index)
    squad, sentence_index = _sentences(data, work, questions=6_000)
    seconds = {
        "SQuAD": _reranker(squad, work / "squad", BASE, 0, sentence_index, batch_size=8, max_length=64, held_out=0.02),
        "corpus": _reranker(
            _generated_mining(folder, Retriever.open(index), work),
            mined,
            str(work / "squad"),
            0,
            batch_size=4,
            held_out=0.03,
        ),
    }
    runs = []
    for seed in seeds:
        out = work / f"scifact-{seed}"
        settings = {"batch_size": 4, "epochs": 2.0, "held_out": 0.1}
        spent = _reranker(folder, out, str(mined), seed, index, **settings)
        weight = json.loads((out / "binocle.json").read_text("utf-8")).get("first_stage_weight")
        gain = _gain(
            f"reranked {seed}", folder, BASE, before, mode="hybrid", rerank=str(out), rerank_depth=50, index=index
        )
        runs.append({"first stage's weight": weight, "seconds": spent} | gain)
    of_all = {name: _spread([run[name] for run in runs]) for name in ("nDCG@10", "difference")}
    return {"hybrid": before.measures["nDCG@10"], "seconds of the first stages": seconds, "runs": runs} | of_all


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "sts": sts,
    "poolings": poolings,
    "throughput": throughput,
    "scifact": scifact,
    "tune": tuned,
    "tune-log": tuned_with_log,
    "adapter": adapter,
    "adapter-log": adapter_with_log,
    "reranker": reranker,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--collections",
        nargs="+",
        default=COLLECTIONS,
        choices=[*COLLECTIONS, *collections.UNSEEN],
        help="Of tune and adapter.",
    )
    parser.add_argument(
        "--work", type=Path, help="Keep the models and results here; a new folder, unless a stopped run goes on."
    )
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="binocle-"))
    work.mkdir(parents=True, exist_ok=True)
    options = {"names": arguments.collections} if arguments.task.startswith(("tune", "adapter")) else {}
    name = f"training-{arguments.task}" + "-unseen" * (set(arguments.collections) <= set(collections.UNSEEN))
    save(name, TASKS[arguments.task](arguments.data, work, arguments.seeds, **options), seed=arguments.seeds[0])
    if arguments.work is None:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
