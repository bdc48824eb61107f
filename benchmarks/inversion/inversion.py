"""Measure how much an encoder gives away: `python -m benchmarks.inversion.inversion TASK --data FOLDER [--minutes M]`.

hidden     decoders of all-MiniLM-L6-v2's hidden states, trained on SQuAD's paragraphs. It measures token accuracy on
           scifact, by decoder and by layer, also of masked states.
embedding  an inverter of its vectors, trained on SQuAD, package descriptions, a book, manual pages and Cranfield.
           It measures token F1 before and after correction, on other documents of these collections and on scifact.
           It also reads vectors of no text. SQuAD's paragraphs are split at random, not by article.
restarts   texts of scifact corrected for 10 s, with and without new starts of a search that has stopped rising: token
           F1 and cosine, paired, and the seconds used
no-text    for how many vectors the inverter gives a text: vectors of no text, of texts, and of texts with noise
pooling    the same encoder fine-tuned alike with mean and with CLS pooling: which vectors give away more

With --work, embedding, restarts and no-text use the inverter in its folder `inverter`, if there is one.
FOLDER holds squad11, debian_descriptions, docs_rust_book, docs_tldr.tar.gz, cranfield, scifact and stsb. Results go to
results/inversion-TASK.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.inversion.decoders.decoder_settings import KINDS
from binocle.retriever.inversion.inverter import EmbeddingInverter
from binocle.retriever.inversion.inverter_info import FILE
from binocle.retriever.inversion.state_inverter import StateInverter
from binocle.retriever.models.load import load_encoder
from binocle.training.encoders.config import EncoderConfig
from binocle.training.encoders.train import train_encoder
from binocle.training.evaluation import significance
from binocle.training.inversion.config import InverterConfig
from binocle.training.inversion.metrics import overlap
from binocle.training.inversion.overlap import KnownTexts
from binocle.training.inversion.train import train_inverter

from ..machine import RESULTS, save

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from binocle.core.progress import Progress
    from binocle.retriever.models.encoder import Encoder

_HELD_OUT = 100  # of a collection's documents one is held out
_STEPS = 100  # a minute, about


def _say(event: str | Progress) -> None:
    print(event if isinstance(event, str) else event.message or event.stage, file=sys.stderr, flush=True)


def _rows(file: Path) -> list[dict[str, Any]]:
    content = file.read_bytes()
    text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8")
    return [json.loads(row) for row in text.split("\n") if row]


def _squad(data: Path) -> list[str]:
    return list(dict.fromkeys(row["context"] for row in _rows(data / "squad11" / "squad11_train.jsonl.gz")))


def _debian(data: Path) -> list[str]:
    rows = _rows(data / "debian_descriptions" / "debian12_descriptions.jsonl.gz")
    longest = {row["long"].strip(): row["short"] for row in rows}
    return [f"{short}. {text}" for text, short in longest.items() if text]


def _book(data: Path) -> list[str]:
    return [file.read_text("utf-8") for file in sorted((data / "docs_rust_book").rglob("*.md"))]


def _manual(data: Path) -> list[str]:
    with tarfile.open(data / "docs_tldr.tar.gz") as pages:
        files = [pages.extractfile(page) for page in pages if page.name.endswith(".md")]
        return [file.read().decode("utf-8", "replace") for file in files if file]


def _beir(folder: Path) -> list[str]:
    return [f"{row['title']}. {row['text']}".strip(". ") for row in _rows(folder / "corpus.jsonl")]


def _file(texts: Iterable[str], file: Path) -> Path:
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return file


def cut_texts(documents: Sequence[str], encoder: Encoder, length: int, count: int, *, seed: int) -> list[str]:
    """Stretches of so many tokens, one of a document, which begins where a word does."""
    spans, order = [], random.Random(seed)
    shuffled = list(documents)
    order.shuffle(shuffled)
    for text in shuffled:
        offsets = encoder.offsets([text])[0]
        starts = [n for n in range(len(offsets) - length + 1) if n == 0 or offsets[n][0] > offsets[n - 1][1]]
        if starts:
            first = order.choice(starts)
            spans.append(text[offsets[first][0] : offsets[first + length - 1][1]])
        if len(spans) == count:
            break
    return spans


def _mean(values: Sequence[float]) -> dict[str, Any]:
    low, high = significance.interval(values)
    return {"mean": round(float(np.mean(values)), 4), "interval": [round(low, 4), round(high, 4)], "texts": len(values)}


def hidden(data: Path, work: Path, minutes: float, parts: Sequence[str] = ()) -> dict[str, Any]:
    """:param parts: what to measure anew, such as "lstm", "transformer-masked" or "layer-3"; all unless given."""
    train = _file(_squad(data), work / "squad.jsonl")
    texts = _beir(data / "scifact")
    random.Random(1).shuffle(texts)

    def run(name: str, **settings: Any) -> tuple[StateInverter, float]:
        _say(name)
        config = InverterConfig(kind="hidden", **settings)
        trained = train_inverter(train, work / name, config=config, progress=_say)
        return StateInverter.load(work / name), trained.seconds

    def accuracy(inverter: StateInverter, count: int = 200) -> dict[str, Any]:
        return _mean([inverter.read(text).accuracy for text in texts[:count]])

    results: dict[str, Any] = {"trained on": "SQuAD paragraphs", "tested on": "scifact", "decoders": {}, "layers": {}}
    if parts and (file := RESULTS / "inversion-hidden.json").is_file():
        results |= json.loads(file.read_text("utf-8"))["results"]
    for decoder in KINDS:
        of = results["decoders"].setdefault(decoder, {})
        if not parts or decoder in parts:
            inverter, seconds = run(decoder, decoder=decoder, minutes=minutes)
            of |= accuracy(inverter) | {"seconds of training": round(seconds)}
        if not parts or f"{decoder}-masked" in parts:
            inverter, seconds = run(f"{decoder}-masked", decoder=decoder, minutes=minutes, masked=0.2, batch_size=16)
            masked = [inverter.read(text, masked=0.2, seed=number) for number, text in enumerate(texts[:200])]
            of["masked states"] = _mean([read.accuracy for read in masked if read.tokens]) | {
                "seconds of training": round(seconds)
            }
    for layer in range(7):
        if not parts or f"layer-{layer}" in parts:
            inverter, seconds = run(f"layer-{layer}", decoder="linear", layer=layer, minutes=minutes / 6)
            results["layers"][str(layer)] = accuracy(inverter, 100) | {"seconds of training": round(seconds)}
    return results


def _parted(texts: list[str], seed: int) -> tuple[list[str], list[str]]:
    texts = list(texts)
    random.Random(seed).shuffle(texts)
    count = max(10, len(texts) // _HELD_OUT)
    return texts[count:], texts[:count]


def _tested(inverter: EmbeddingInverter, texts: Sequence[str], seconds: float) -> dict[str, Any]:
    """What comes back of texts, by the bag, by proposals and after correction."""
    true = inverter.tokens(texts)
    vectors = inverter.check(inverter.encoder.encode(list(texts)))
    drafts = inverter.drafts(vectors)
    bags = [draft.texts[-1] for draft in drafts]
    first = [draft.texts[0] for draft in drafts]  # the decoder's likeliest, which the encoder has not seen
    cosines = [float(own @ vector) for own, vector in zip(inverter.embed(first), vectors, strict=True)]
    begun = time.perf_counter()
    corrected = [inverter.correct(vector, seconds, draft) for vector, draft in zip(vectors, drafts, strict=True)]
    spent = (time.perf_counter() - begun) / len(texts)

    def f1(token_rows: Iterable[Sequence[int]]) -> dict[str, Any]:
        return _mean([overlap(*both)[2] for both in zip(true, token_rows, strict=True)])

    return {
        "token F1, bag": f1(bags),
        "token F1, text before correction": f1(first),
        "token F1, text after correction": f1(guess.ids for guess in corrected),
        "exact after correction": _mean([tuple(t) == guess.ids for t, guess in zip(true, corrected, strict=True)]),
        "cosine before correction": _mean(cosines),
        "cosine after correction": _mean([guess.cosine for guess in corrected]),
        "seconds a text": round(spent, 1),
        "examples": [
            {"true": text, "recovered": inverter.tokens.text(guess.ids)}
            for text, guess in list(zip(texts, corrected, strict=True))[:3]
        ],
    }


def _apart(documents: list[str], known: KnownTexts, inverter: EmbeddingInverter, count: int) -> list[str]:
    """Texts of 32 tokens that mostly do not stand in the texts that were learned from."""
    texts = cut_texts(documents, inverter.encoder, 32, 10 * count, seed=0)
    return [text for text, ids in zip(texts, inverter.tokens(texts), strict=True) if not known.holds(ids)][:count]


def _trained(data: Path, work: Path, minutes: float) -> tuple[EmbeddingInverter, list[str], dict[str, list[str]]]:
    """Train the inverter of `embedding`, or load it; also the documents it learned, and held-out ones."""
    sources = {
        "squad": _squad(data),
        "debian": _debian(data),
        "book": _book(data),
        "manual": _manual(data),
        "cranfield": _beir(data / "cranfield"),
    }
    train, held_out = [], {}
    for seed, (name, documents) in enumerate(sources.items()):
        own, rest = _parted(documents, seed)
        train += own
        held_out[name] = rest
    random.Random(0).shuffle(train)
    config = InverterConfig(minutes=minutes, texts=1_000_000)
    out = work / "inverter"
    if not (out / FILE).is_file():
        train_inverter(_file(train, work / "train.jsonl"), out, config=config, progress=_say)
    return EmbeddingInverter.load(out), train, held_out


def _known(train: Sequence[str], inverter: EmbeddingInverter) -> KnownTexts:
    starts = range(0, len(train), 1_000)
    return KnownTexts(ids for start in starts for ids in inverter.tokens(train[start : start + 1_000]))


def _training(inverter: EmbeddingInverter, work: Path) -> dict[str, Any]:
    """The inverter's training time and data, and its thresholds."""
    card = json.loads((work / "inverter" / "binocle.json").read_text("utf-8"))
    return {
        "seconds of training": round(card["seconds"]),
        "texts": card["data"],
        "threshold": inverter.info.threshold,
        "control": inverter.info.control,
    }


def embedding(data: Path, work: Path, minutes: float, *, texts: int = 40, seconds: float = 10.0) -> dict[str, Any]:
    inverter, train, held_out = _trained(data, work, minutes)
    known = _known(train, inverter)
    tests = {
        "scifact (another collection)": _beir(data / "scifact"),
        "squad (other documents)": held_out["squad"],
        "debian (other documents)": held_out["debian"],
    }
    return {
        "tokens": 32,
        **_training(inverter, work),
        "tests": {
            name: _tested(inverter, _apart(documents, known, inverter, texts), seconds)
            for name, documents in tests.items()
        },
        "vectors of no text": _controls(inverter, data, work),
    }


def restarts(data: Path, work: Path, minutes: float, *, texts: int = 30, seconds: float = 10.0) -> dict[str, Any]:
    """Both searches have the same seed, so they are equal until the first one stops."""
    inverter, train, _ = _trained(data, work, minutes)
    originals = _apart(_beir(data / "scifact"), _known(train, inverter), inverter, texts)
    true = inverter.tokens(originals)
    results: dict[str, Any] = {"tokens": 32, "seconds": seconds, **_training(inverter, work)}
    values: dict[str, dict[str, list[float]]] = {}
    for name, starts in (("without new starts", 0), ("with new starts", None)):
        corrected, spent = [], []
        for vector in inverter.check(inverter.encoder.encode(originals)):
            begun = time.perf_counter()
            corrected.append(inverter.correct(vector, seconds, starts=starts))
            spent.append(time.perf_counter() - begun)
        values[name] = {
            "token F1": [overlap(t, guess.ids)[2] for t, guess in zip(true, corrected, strict=True)],
            "cosine": [guess.cosine for guess in corrected],
            "seconds": spent,
        }
        results[name] = {measure: _mean(of) for measure, of in values[name].items()}
    for measure in ("token F1", "cosine"):
        results[f"with - without, {measure}"] = _difference(*(of[measure] for of in reversed(values.values())))
    return results


def _difference(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    difference = significance.difference(first, second)
    return {
        "value": round(difference.value, 4),
        "interval": [round(difference.low, 4), round(difference.high, 4)],
        "p": difference.p,
    }


def no_text(data: Path, work: Path, minutes: float) -> dict[str, Any]:
    inverter, _, _ = _trained(data, work, minutes)
    return {**_training(inverter, work), "vectors": _controls(inverter, data, work)}


def _controls(inverter: EmbeddingInverter, data: Path, work: Path) -> dict[str, Any]:
    """How many vectors give a text: random directions, another encoder's vectors, texts, and texts with noise."""
    random_vectors = np.random.default_rng(5).standard_normal((40, inverter.info.dim)).astype(np.float32)
    fine_tuned = _fine_tuned(data, work, "cls")
    texts = cut_texts(_beir(data / "scifact"), inverter.encoder, 32, 40, seed=1)
    own = inverter.check(inverter.encoder.encode(texts))
    noise = 0.06 * np.random.default_rng(6).standard_normal(own.shape).astype(np.float32)
    rows = {
        "random directions": random_vectors,
        "fine-tuned with CLS pooling": load_encoder(str(fine_tuned)).encode(texts),
        "texts": own,
        "texts with noise=0.06": own + noise,
    }
    results = {}
    for name, vectors in rows.items():
        guesses = inverter.invert(vectors[:30], seconds=2.0)
        results[name] = {
            "vectors": len(guesses),
            "texts recovered": sum(guess.recovered for guess in guesses),
            "highest cosine": round(max(guess.cosine for guess in guesses), 4),
        }
    return results


def _fine_tuned(data: Path, work: Path, pooling: str) -> Path:
    """all-MiniLM-L6-v2 with a pooling, fine-tuned on the STS benchmark's train split."""
    out = work / f"sts-{pooling}"
    if not (out / "config.json").is_file():
        rows = [row.split("\t") for row in (data / "stsb" / "sts-train.csv").read_text("utf-8").splitlines()]
        file = work / "sts.jsonl"
        named = ({"sentence1": row[5], "sentence2": row[6], "score": float(row[4])} for row in rows)
        file.write_text("".join(json.dumps(row) + "\n" for row in named), "utf-8")
        config = EncoderConfig(pooling=(pooling,), epochs=1, learning_rate=5e-5, batch_size=32, evaluations=1)
        train_encoder(file, out, config=config, progress=_say)
    return out


def pooling(data: Path, work: Path, minutes: float, *, texts: int = 60, seconds: float = 3.0) -> dict[str, Any]:
    """As many steps with both, whatever else the machine does."""
    train = _file(_squad(data) + _debian(data)[:20_000], work / "train.jsonl")
    results: dict[str, Any] = {}
    values: dict[str, list[float]] = {}
    for mode in ("mean", "cls"):
        out = work / f"inverter-{mode}"
        config = InverterConfig(steps=round(_STEPS * minutes), texts=100_000)
        encoder = str(_fine_tuned(data, work, mode))
        train_inverter(train, out, encoder=encoder, config=config, progress=_say)
        inverter = EmbeddingInverter.load(out)
        originals = cut_texts(_beir(data / "scifact"), inverter.encoder, 32, texts, seed=0)
        guesses = [inverter.correct(vector, seconds) for vector in inverter.check(inverter.encoder.encode(originals))]
        true = inverter.tokens(originals)
        values[mode] = [overlap(t, guess.ids)[2] for t, guess in zip(true, guesses, strict=True)]
        results[mode] = {
            "steps": config.steps,
            "token F1 after correction": _mean(values[mode]),
            "cosine after correction": _mean([guess.cosine for guess in guesses]),
        }
    results["mean - cls, token F1"] = _difference(values["mean"], values["cls"])
    return results


TASKS = {
    "hidden": (hidden, 8.0),
    "embedding": (embedding, 30.0),
    "restarts": (restarts, 30.0),
    "no-text": (no_text, 30.0),
    "pooling": (pooling, 5.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minutes", type=float, help="of training, for each inverter")
    parser.add_argument("--parts", nargs="*", default=(), help="of hidden: what to measure anew; the rest is kept")
    parser.add_argument("--work", type=Path, help="a folder for what is made on the way; a new one unless given")
    options = parser.parse_args()
    task, minutes = TASKS[options.task]
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        parts = {"parts": options.parts} if options.parts else {}
        save(f"inversion-{options.task}", task(options.data, work, options.minutes or minutes, **parts), seed=0)


if __name__ == "__main__":
    main()
