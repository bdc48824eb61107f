"""Classes of texts: the probe with and without words, contrastive training, and linear TF-IDF.

    python -m benchmarks.heads.classes --data /data --cache /tmp/classes
    python -m benchmarks.heads.classes --data /data --cache /tmp/classes --fine-tune 2

The classes are the section of a Debian package, the source of a sentence of STS-B, and the platform of a tldr page. A
tenth of the rows is held out. With 8 examples a class, only classes of 20 rows or more count, over three draws: the
mean over all other rows, over 15 rows at most of each class, and over every second other row. The rest of the other
rows has no labels: one of the probes learns from 3,000 of them. The probes are fitted on the vectors of the encoder as
it is, and as contrastive training tunes it on the examples of a draw. Vectors and tuned encoders stay in the cache, so
a run that was stopped goes on.

With --fine-tune, a whole encoder learns the packages, and the result is another file. A tenth of the rows to learn from
is held out there too: it tells whether the head or a probe on the trained encoder is better. TF-IDF learns from all.
The classes are compared on 8,000 more rows, since the macro-F1 of 1,600 is uncertain: half of the classes are rare.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tarfile
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.models.heads.classifier import TUNED_ENCODER, ClassifierSettings, HeadScorer, load_classifier
from binocle.retriever.models.heads.head import load_head
from binocle.retriever.models.heads.head_settings import CLASSIFIER
from binocle.retriever.models.load import load_encoder
from binocle.retriever.models.model_files import DEFAULT_MODEL
from binocle.training.data.heads.examples import MAX_UNLABELLED, read_examples
from binocle.training.evaluation.heads.classes import MEASURES
from binocle.training.evaluation.heads.label_metrics import macro_f1
from binocle.training.heads.classifiers import kernel_ridge
from binocle.training.heads.classifiers.judge import facts_of
from binocle.training.heads.config import ClassifierConfig
from binocle.training.runs.training_run import TrainingRun

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from binocle.core.arrays import Floats
    from binocle.training.data.heads.examples import Examples

_MAX_ROWS = {"debian": 16_000, "stsb": 3_500, "tldr": 2_400}  # rows, at random
_FEW_MEASURES = "macro-F1", "macro-F1, balanced", "macro-F1, rows that no probe has read"
_EXAMPLES, _FEWEST, _BALANCED = 8, 20, 15
_MORE = 8_000  # rows to compare a fine-tuned encoder on
_TOKENS = 128  # of a text, in fine-tuning
_PLATFORMS = ("linux", "osx", "windows", "common")

Predict = Callable[..., Any]  # vectors, texts, classes, rows to learn from, other rows -> classes of the other rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="debian_descriptions/, stsb/ and docs_tldr.tar.gz")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--fine-tune", type=float, metavar="EPOCHS", help="of the packages")
    parser.add_argument("--only", choices=_SOURCES, help="one collection, for a slow machine")
    parser.add_argument("--rows", type=int, help="of a collection at most; by default 2,400 to 16,000")
    parser.add_argument("--draws", type=int, default=3, help="of the examples")
    parser.add_argument("--name", default="classes", help="name of the file in results/")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    if options.fine_tune:
        save("classes-tuned", _tuned(options.data, options.cache, options.fine_tune), seed=0)
        return
    results = {}
    for name in [options.only] if options.only else _SOURCES:
        vectors, texts, classes = _rows(name, options.data, options.cache, options.rows)
        results[name] = {
            "rows": len(texts),
            "classes": int(classes.max()) + 1,
            "all rows": _from_all(vectors, texts, classes, _CONTENDERS),
            f"{_EXAMPLES} a class": _from_few(vectors, texts, classes, options.cache / name, options.draws),
        }
    save(options.name, results, seed=0)


def _rows(
    name: str, data: Path, cache: Path, maximum: int | None = None
) -> tuple[Floats, Sequence[str], NDArray[np.int64]]:
    """Return vectors, texts and classes of a collection. The vectors are computed once."""
    rows = list(_SOURCES[name](data))
    random.Random(0).shuffle(rows)
    unique: dict[str, tuple[str, str]] = {}
    for key, text, label in rows:
        unique.setdefault(key, (text, label))
    texts, labels = zip(*[*unique.values()][: maximum or _MAX_ROWS[name]], strict=True)
    file = cache / f"{name}-{len(texts)}.npy"
    if not file.is_file():
        np.save(file, load_encoder().encode(texts))
    return np.load(file), texts, np.unique(labels, return_inverse=True)[1]


def _tuned(data: Path, cache: Path, epochs: float) -> dict[str, Any]:
    """Measure a fine-tuned encoder beside the others, on the same held-out rows."""
    vectors, texts, classes = _rows("debian", data, cache, _MAX_ROWS["debian"] + _MORE)
    learned, held_out = _split(_MAX_ROWS["debian"])
    compared = np.concatenate([held_out, np.arange(_MAX_ROWS["debian"], len(classes))])
    compared = compared[np.isin(classes[compared], classes[learned])]
    tuned = FineTuned(cache / f"debian-{epochs:g}", epochs)
    contenders = _CONTENDERS | {"fine-tuned": tuned.served, "fine-tuned, its head alone": tuned.head_alone}
    results = _from_all(vectors, texts, classes, contenders, (learned, compared))
    facts = {"epochs": epochs, "tokens of a text": _TOKENS, "rows to compare": len(compared)}
    return facts | {"training": tuned.training(), "all rows": results}


def _debian(data: Path) -> Iterator[tuple[str, str, str]]:
    with gzip.open(data / "debian_descriptions" / "debian12_descriptions.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            yield row["long"], f"{row['short']}. {row['long']}", row["section"]


def _stsb(data: Path) -> Iterator[tuple[str, str, str]]:
    for line in (data / "stsb" / "sts-train.csv").read_text("utf-8").splitlines():
        fields = line.split("\t")
        yield fields[5], fields[5], fields[1]


def _tldr(data: Path) -> Iterator[tuple[str, str, str]]:
    with tarfile.open(data / "docs_tldr.tar.gz") as archive:
        for member in archive:
            parts = member.name.split("/")
            if member.isfile() and len(parts) == 4 and parts[2] in _PLATFORMS:
                content = archive.extractfile(member)
                assert content is not None
                yield member.name, content.read().decode()[:400], parts[2]


def _split(count: int) -> list[NDArray[np.int64]]:
    """Return nine tenths of so many rows to learn from, and the others."""
    order = np.random.default_rng(0).permutation(count)
    return np.split(order, [count * 9 // 10])


def _from_all(
    vectors: Floats,
    texts: Sequence[str],
    classes: NDArray[np.int64],
    contenders: Mapping[str, Predict],
    rows: Sequence[NDArray[np.int64]] = (),
) -> dict[str, Any]:
    """:param rows: to learn from, and to compare on; by default `_split` of all."""
    learned, held_out = rows or _split(len(classes))
    results: dict[str, dict[str, Any]] = {}
    predictions = {}
    for name, predict in contenders.items():
        start = time.process_time()
        predictions[name] = predict(vectors, texts, classes, learned, held_out)
        results[name] = {
            "macro-F1": round(macro_f1(predictions[name], classes[held_out]), 4),
            "accuracy": round(float((predictions[name] == classes[held_out]).mean()), 4),
            "seconds of CPU": round(time.process_time() - start, 1),
        }
    for first, second in combinations(predictions, 2):
        results[second][f"minus {first}"] = {
            measure: statistic.difference(predictions[second], predictions[first], classes[held_out]).as_dict()
            for measure, statistic in MEASURES.items()
        }
    return results


def _from_few(
    vectors: Floats, texts: Sequence[str], classes: NDArray[np.int64], cache: Path, draws: int
) -> dict[str, Any]:
    """Return the measures of each contender, and the gains of contrastive training in each draw.

    :param cache: the beginning of the names of files and folders.
    """
    measured: dict[str, list[tuple[float, ...]]] = {}
    gains: dict[str, list[dict[str, Any]]] = {}
    for seed in range(draws):
        order = np.random.default_rng(seed).permutation(len(classes))
        by_class = [order[classes[order] == number] for number in range(classes.max() + 1)]
        by_class = [rows for rows in by_class if len(rows) >= _FEWEST]
        learned = np.concatenate([rows[:_EXAMPLES] for rows in by_class])
        rest = np.concatenate([rows[_EXAMPLES:] for rows in by_class])
        even = np.concatenate([np.arange(len(rows) - _EXAMPLES) < _BALANCED for rows in by_class])
        tuned = _tuned_vectors(Path(f"{cache}-{len(texts)}-contrastive-{seed}"), texts, classes, learned)
        predictions = {
            name: predict(vectors, texts, classes, learned, rest)
            for name, predict in (_PROBES | {"TF-IDF, linear": _tfidf}).items()
        }
        for name, predict in _PROBES.items():
            name_of_tuned = name.replace("probe", "contrastive")
            predictions[name_of_tuned] = predict(tuned, texts, classes, learned, rest)
            both = (predictions[key][1::2] for key in (name_of_tuned, name))
            gain = MEASURES["Macro-F1"].difference(*both, classes[rest[1::2]])
            gains.setdefault(f"{name_of_tuned} minus {name}", []).append(gain.as_dict())
        for name, predicted in predictions.items():
            parts = slice(None), even, slice(1, None, 2)
            scores = tuple(macro_f1(predicted[part], classes[rest[part]]) for part in parts)
            measured.setdefault(name, []).append(scores)
    return {
        name: dict(zip(_FEW_MEASURES, np.mean(scores, 0).round(4).tolist(), strict=True))
        | {"each draw": np.round(scores, 4)[:, 0].tolist()}
        for name, scores in measured.items()
    } | gains


def _tuned_vectors(
    folder: Path, texts: Sequence[str], classes: NDArray[np.int64], learned: NDArray[np.int64]
) -> Floats:
    """Return the vectors of all texts by the encoder as contrastive training tunes it, as the command does."""
    from binocle.training.heads.classifiers.contrastive import class_pairs, tune_encoder

    file = folder.with_suffix(".npy")
    if not file.is_file():
        config = ClassifierConfig(contrastive=True, held_out=0.0)
        run = TrainingRun(folder, DEFAULT_MODEL, config, lambda event: print(event, flush=True))
        run.open({}, kind="classifier")
        pairs = class_pairs(_examples(texts, classes, learned, config), config.seed)
        np.save(file, load_encoder(tune_encoder(run, pairs)).encode(texts))
    return np.load(file)


def _with_words(
    vectors: Floats, texts: Sequence[str], classes: NDArray[np.int64], learned: NDArray[np.int64], compared: Any
) -> NDArray[np.int64]:
    targets = np.eye(classes.max() + 1, dtype=np.float32)[classes[learned]]
    head = kernel_ridge.fit(vectors[learned], targets, "classes", texts=[texts[row] for row in learned])
    return head.logits(vectors[compared], [texts[row] for row in compared]).argmax(1)


def _with_unlabelled(
    vectors: Floats, texts: Sequence[str], classes: NDArray[np.int64], learned: NDArray[np.int64], compared: Any
) -> NDArray[np.int64]:
    targets = np.eye(classes.max() + 1, dtype=np.float32)[classes[learned]]
    unlabelled = np.random.default_rng(0).permutation(compared[::2])[:MAX_UNLABELLED]
    head = kernel_ridge.fit(
        vectors[learned],
        targets,
        "classes",
        texts=[texts[row] for row in learned],
        unlabelled=(vectors[unlabelled], [texts[row] for row in unlabelled]),
    )
    return head.logits(vectors[compared], [texts[row] for row in compared]).argmax(1)


def _without_words(
    vectors: Floats, _texts: Sequence[str], classes: NDArray[np.int64], learned: NDArray[np.int64], compared: Any
) -> NDArray[np.int64]:
    targets = np.eye(classes.max() + 1, dtype=np.float32)[classes[learned]]
    return kernel_ridge.fit(vectors[learned], targets, "classes").logits(vectors[compared]).argmax(1)


def _tfidf(
    _vectors: Floats, texts: Sequence[str], classes: NDArray[np.int64], learned: NDArray[np.int64], compared: Any
) -> NDArray[np.int64]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    words = TfidfVectorizer(sublinear_tf=True, min_df=2, token_pattern=r"\w+")
    rows = words.fit_transform([texts[row] for row in learned])
    model = LinearSVC(C=0.5, class_weight="balanced").fit(rows, classes[learned])
    predicted: NDArray[np.int64] = model.predict(words.transform([texts[row] for row in compared]))
    return predicted


class FineTuned:
    """An encoder that was fine-tuned whole, as `binocle train classifier --fine-tune` does.

    :param folder: of the trained model; it is trained if there is none.
    """

    def __init__(self, folder: Path, epochs: float) -> None:
        self.folder, self.epochs = folder, epochs

    def served(
        self,
        _vectors: Floats,
        texts: Sequence[str],
        classes: NDArray[np.int64],
        learned: NDArray[np.int64],
        compared: Any,
    ) -> NDArray[np.int64]:
        """Return the likeliest class of each of the other rows, by the trained model."""
        if not (self.folder / "binocle.json").is_file():  # or go on with a run that was killed
            self._train(_examples(texts, classes, learned, ClassifierConfig()))
        classifier = load_classifier(self.folder)
        return self._likeliest(classifier.scorer.logits(_of(texts, compared)), classifier.settings)

    def head_alone(
        self,
        _vectors: Floats,
        texts: Sequence[str],
        _classes: NDArray[np.int64],
        _learned: NDArray[np.int64],
        compared: Any,
    ) -> NDArray[np.int64]:
        """Return the likeliest class by the head that the encoder was trained with. `served` comes before."""
        settings, encoder = load_classifier(self.folder).settings, self.folder / TUNED_ENCODER
        head = load_head(encoder if encoder.is_dir() else self.folder, CLASSIFIER)
        return self._likeliest(HeadScorer(head, _TOKENS).logits(_of(texts, compared)), settings)

    @staticmethod
    def _likeliest(logits: Floats, settings: ClassifierSettings) -> NDArray[np.int64]:
        classes: NDArray[np.int64] = np.array(list(map(int, settings.labels)))[logits.argmax(1)]
        return classes

    def training(self) -> dict[str, Any]:
        """Return the facts of the training from the card of the model."""
        card = json.loads((self.folder / "binocle.json").read_text("utf-8"))
        return {name: card[name] for name in ("data", "config", "measures", "steps", "seconds")}

    def _train(self, examples: Examples) -> None:
        """Train as the command does, without the probe that it compares with."""
        from binocle.training.heads.classifiers.fine_tuning import ClassifierTraining

        config = ClassifierConfig(fine_tune=True, epochs=self.epochs, max_length=_TOKENS)
        run = TrainingRun(self.folder, DEFAULT_MODEL, config, lambda event: print(event, flush=True))
        run.open({}, kind="classifier")
        training = ClassifierTraining.load(run, examples)
        training.train(facts_of(training.settings))


def _examples(
    texts: Sequence[str], classes: NDArray[np.int64], rows: NDArray[np.int64], config: ClassifierConfig
) -> Examples:
    """Hold some rows out, as the command does. The document of a row is its number."""
    stream = ({"text": texts[row], "label": int(classes[row]), "document_id": str(row)} for row in rows.tolist())
    return read_examples(stream, "train", config.held_out, len(rows), config.seed)


def _of(texts: Sequence[str], rows: NDArray[np.int64]) -> list[str]:
    return [texts[row] for row in rows.tolist()]


_SOURCES = {"debian": _debian, "stsb": _stsb, "tldr": _tldr}
_CONTENDERS: dict[str, Predict] = {
    "probe": _with_words,
    "probe, vectors alone": _without_words,
    "TF-IDF, linear": _tfidf,
}
_PROBES: dict[str, Predict] = {  # that learn from few rows
    "probe": _with_words,
    "probe, vectors alone": _without_words,
    "probe, texts without labels": _with_unlabelled,
}

if __name__ == "__main__":
    main()
