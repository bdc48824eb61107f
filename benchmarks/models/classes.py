"""Classes of texts: the probe with and without words, and linear TF-IDF, from all rows and from 8 a class.

    python -m benchmarks.models.classes --data /data --cache /tmp/classes

The classes are the section of a Debian package, the source of a sentence of STS-B, and the platform of a tldr page. A
tenth of the rows is held out. With 8 examples a class, only classes of 20 rows or more count, over five draws: the mean
over all other rows, over 15 rows at most of each class, and over every second other row. The rest of the other rows has
no labels: one of the probes learns from 3,000 of them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.models.load import load_encoder
from binocle.training.data.heads.examples import MOST_UNLABELLED
from binocle.training.evaluation.heads.label_metrics import macro_f1
from binocle.training.evaluation.significance import difference
from binocle.training.heads import kernel_ridge

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from binocle.core.arrays import Floats

_MOST = {"debian": 16_000, "stsb": 3_500, "tldr": 2_400}  # rows, at random
_FEW_MEASURES = "macro-F1", "macro-F1, balanced", "macro-F1, rows that no probe has read"
_EXAMPLES, _FEWEST, _BALANCED, _DRAWS = 8, 20, 15, 5
_PLATFORMS = ("linux", "osx", "windows", "common")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="debian_descriptions/, stsb/ and docs_tldr.tar.gz")
    parser.add_argument("--cache", type=Path, required=True)
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    results = {}
    for name, read in {"debian": _debian, "stsb": _stsb, "tldr": _tldr}.items():
        rows = list(read(options.data))
        random.Random(0).shuffle(rows)
        unique: dict[str, tuple[str, str]] = {}
        for key, text, label in rows:
            unique.setdefault(key, (text, label))
        texts, labels = zip(*[*unique.values()][: _MOST[name]], strict=True)
        file = options.cache / f"{name}.npy"
        if not file.is_file():
            np.save(file, load_encoder().encode(texts))
        vectors, classes = np.load(file), np.unique(labels, return_inverse=True)[1]
        results[name] = {
            "rows": len(texts),
            "classes": int(classes.max()) + 1,
            "all rows": _from_all(vectors, texts, classes),
            f"{_EXAMPLES} a class": _from_few(vectors, texts, classes),
        }
    save("classes", results, seed=0)


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


def _from_all(vectors: Floats, texts: Sequence[str], classes: NDArray[np.int64]) -> dict[str, Any]:
    order = np.random.default_rng(0).permutation(len(classes))
    learned, held_out = np.split(order, [len(order) * 9 // 10])
    results, right = {}, {}
    for name, predict in _CONTENDERS.items():
        start = time.process_time()
        predicted = predict(vectors, texts, classes, learned, held_out)
        seconds = round(time.process_time() - start, 1)
        right[name] = (predicted == classes[held_out]).astype(np.float64)
        results[name] = {
            "macro-F1": round(macro_f1(predicted, classes[held_out]), 4),
            "accuracy": round(float(right[name].mean()), 4),
            "seconds of CPU": seconds,
        }
    for name in list(right)[1:]:
        test = difference(right["probe"], right[name])
        results[name] |= {"accuracy of the probe minus this": round(test.value, 4), "p": round(test.p, 4)}
    return results


def _from_few(vectors: Floats, texts: Sequence[str], classes: NDArray[np.int64]) -> dict[str, Any]:
    measured: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(_DRAWS):
        order = np.random.default_rng(seed).permutation(len(classes))
        by_class = [order[classes[order] == number] for number in range(classes.max() + 1)]
        by_class = [rows for rows in by_class if len(rows) >= _FEWEST]
        learned = np.concatenate([rows[:_EXAMPLES] for rows in by_class])
        rest = np.concatenate([rows[_EXAMPLES:] for rows in by_class])
        even = np.concatenate([np.arange(len(rows) - _EXAMPLES) < _BALANCED for rows in by_class])
        for name, predict in (_CONTENDERS | {"probe, texts without labels": _with_unlabelled}).items():
            predicted = predict(vectors, texts, classes, learned, rest)
            parts = slice(None), even, slice(1, None, 2)
            scores = tuple(macro_f1(predicted[part], classes[rest[part]]) for part in parts)
            measured.setdefault(name, []).append(scores)
    return {
        name: dict(zip(_FEW_MEASURES, np.mean(scores, 0).round(4).tolist(), strict=True))
        for name, scores in measured.items()
    }


def _with_words(
    vectors: Floats, texts: Sequence[str], classes: NDArray[np.int64], learned: NDArray[np.int64], others: Any
) -> NDArray[np.int64]:
    targets = np.eye(classes.max() + 1, dtype=np.float32)[classes[learned]]
    head = kernel_ridge.fit(vectors[learned], targets, "classes", texts=[texts[row] for row in learned])
    return head.logits(vectors[others], [texts[row] for row in others]).argmax(1)


def _with_unlabelled(
    vectors: Floats, texts: Sequence[str], classes: NDArray[np.int64], learned: NDArray[np.int64], others: Any
) -> NDArray[np.int64]:
    targets = np.eye(classes.max() + 1, dtype=np.float32)[classes[learned]]
    unlabelled = np.random.default_rng(0).permutation(others[::2])[:MOST_UNLABELLED]
    head = kernel_ridge.fit(
        vectors[learned],
        targets,
        "classes",
        texts=[texts[row] for row in learned],
        unlabelled=(vectors[unlabelled], [texts[row] for row in unlabelled]),
    )
    return head.logits(vectors[others], [texts[row] for row in others]).argmax(1)


def _without_words(
    vectors: Floats, _texts: Sequence[str], classes: NDArray[np.int64], learned: NDArray[np.int64], others: Any
) -> NDArray[np.int64]:
    targets = np.eye(classes.max() + 1, dtype=np.float32)[classes[learned]]
    return kernel_ridge.fit(vectors[learned], targets, "classes").logits(vectors[others]).argmax(1)


def _tfidf(
    _vectors: Floats, texts: Sequence[str], classes: NDArray[np.int64], learned: NDArray[np.int64], others: Any
) -> NDArray[np.int64]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    words = TfidfVectorizer(sublinear_tf=True, min_df=2, token_pattern=r"\w+")
    rows = words.fit_transform([texts[row] for row in learned])
    model = LinearSVC(C=0.5, class_weight="balanced").fit(rows, classes[learned])
    predicted: NDArray[np.int64] = model.predict(words.transform([texts[row] for row in others]))
    return predicted


_CONTENDERS = {"probe": _with_words, "probe, vectors alone": _without_words, "TF-IDF, linear": _tfidf}

if __name__ == "__main__":
    main()
