"""Labels without training: fit the weight of the evidence, and measure promised precision on labels never seen.

    python -m benchmarks.heads.labels --data /data --cache /tmp/labels

The truth is the section of a Debian package and the article of a SQuAD paragraph. Names are split in halves: the
coefficients are fitted on one half, and the promise is tested on the other. A test draws 3 to 12 names, their
documents, and up to as many documents of other names, which should get no label. More draws have names of the other
collection, so that none fits: a fifth of the draws for the fit, and a test of its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from binocle.retriever.labels.document_labels import encode_names
from binocle.retriever.labels.precision import chance, choose, corrected
from binocle.retriever.labels.zero_shot import fit_labels
from binocle.retriever.models.load import load_encoder

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from binocle.core.arrays import Floats, Mask

_NOT_TOPICS = {"oldlibs", "metapackages", "debug", "tasks", "localization", "misc", "doc", "introspection"}
_DOCUMENTS, _CHARACTERS = (20, 60), 150  # of a name at least and at most; of a document
_PROMISE, _EXAMPLES, _FEWEST_KEPT = 0.9, (50, 100, 200), 20
_RIDGE = 1.0
_FOREIGN = 0.25  # draws with names of the other collection, for each other draw of the fit


class Collection(NamedTuple):
    """Unit vectors of documents, the true name of each, the vector of each name, and the vectors of other subjects."""

    vectors: Floats
    truth: Any
    names: dict[str, Floats]
    subjects: Floats


class Draw(NamedTuple):
    """One test: the evidence for each document's label, and whether the label is right."""

    evidence: Floats
    right: Mask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="with debian_descriptions/ and squad11/")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=80)
    parser.add_argument("--splits", type=int, default=4)
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    debian = _collection(options.cache / "debian.npz", _debian(options.data / "debian_descriptions"))
    squad = _collection(options.cache / "squad.npz", _squad(options.data / "squad11"))
    collections = {"debian": debian, "squad": squad}
    foreign = {"debian": "squad", "squad": "debian"}
    measured: dict[str, list[list[tuple[float, float]]]] = {}
    unfit: dict[str, list[float]] = {name: [] for name in collections}
    for seed in range(options.splits):
        random = np.random.default_rng(seed)
        halves = {name: _halves(collection, random) for name, collection in collections.items()}
        train = {
            name: _learned(
                collections[name],
                halves[name][0],
                _names(collections[foreign[name]], halves[foreign[name]][0]),
                random,
                options.draws,
            )
            for name in collections
        }
        both = _fit([draw for draws in train.values() for draw in draws])
        for name, (_, second) in halves.items():
            tests = _draws(collections[name], second, random, options.draws)
            rows = {
                "no examples": _precisions(tests, both),
                "no examples, other collection": _precisions(tests, _fit(train[foreign[name]])),
            }
            rows |= {f"{count} examples": _precisions(tests, both, count, random) for count in _EXAMPLES}
            for key, precisions in rows.items():
                measured.setdefault(f"{name}, {key}", []).append(precisions)
            foreign_names = _names(collections[foreign[name]], halves[foreign[name]][1])
            for draw in _foreign_draws(collections[name], second, foreign_names, random, options.draws):
                unfit[name].append(float(choose(_odds(draw, both), _PROMISE).mean()))
    every = [
        draw
        for name, collection in collections.items()
        for draw in _learned(
            collection,
            sorted(collection.names),
            collections[foreign[name]].names,
            np.random.default_rng(0),
            options.draws,
        )
    ]
    results = {key: _summary(splits) for key, splits in measured.items()}
    labelled = {name: round(float(np.mean(shares)), 4) for name, shares in unfit.items()}
    report = {"promised": _PROMISE, "measured": results, "kept where no name fits": labelled}
    save("labels", report | {"coefficients": _fit(every).round(4).tolist()}, seed=0)


def _debian(folder: Path) -> Iterable[tuple[str, str]]:
    known = set()
    for row in _lines(folder / "debian12_descriptions.jsonl.gz"):
        if row["long"] not in known and row["section"] not in _NOT_TOPICS:
            known.add(row["long"])
            yield row["section"], f"{row['short']}\n{row['long']}"


def _squad(folder: Path) -> Iterable[tuple[str, str]]:
    for row in _lines(folder / "squad11_dev.jsonl.gz"):
        yield row["title"].replace("_", " "), row["context"]


def _lines(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def _collection(file: Path, rows: Iterable[tuple[str, str]]) -> Collection:
    """Encode up to `_DOCUMENTS` documents of each name, chosen at random."""
    texts: dict[str, list[str]] = {}
    for name, text in rows:
        texts.setdefault(name, []).append(text[:_CHARACTERS])
    encoder, random = load_encoder(), np.random.default_rng(0)
    fewest, maximum = _DOCUMENTS
    documents = [
        (name, group[number])
        for name, group in sorted(texts.items())
        if len(group) >= fewest
        for number in random.permutation(len(group))[:maximum]
    ]
    truth = np.array([name for name, _ in documents])
    names = sorted(set(truth.tolist()))
    if not file.is_file():
        np.savez(file, vectors=encoder.encode([text for _, text in documents]))
    vectors, subjects = encode_names(encoder, names)
    return Collection(np.load(file)["vectors"], truth, dict(zip(names, vectors, strict=True)), subjects)


def _names(collection: Collection, names: Sequence[str]) -> dict[str, Floats]:
    return {name: collection.names[name] for name in names}


def _halves(collection: Collection, random: np.random.Generator) -> tuple[list[str], list[str]]:
    names = random.permutation(sorted(collection.names)).tolist()
    return names[: len(names) // 2], names[len(names) // 2 :]


def _learned(
    collection: Collection, names: Sequence[str], foreign: dict[str, Floats], random: np.random.Generator, count: int
) -> list[Draw]:
    """Draw tests for the fit, a fifth of them with names that fit no document."""
    unfit = _foreign_draws(collection, names, foreign, random, int(count * _FOREIGN))
    return _draws(collection, names, random, count) + unfit


def _foreign_draws(
    collection: Collection, names: Sequence[str], foreign: dict[str, Floats], random: np.random.Generator, count: int
) -> list[Draw]:
    """Draw documents of these names, and label them by names of another collection."""
    draws = []
    for _ in range(count):
        rows = random.permutation(np.flatnonzero(np.isin(collection.truth, list(names))))[: random.integers(60, 400)]
        labels = random.choice(sorted(foreign), int(random.integers(3, 13)), replace=False).tolist()
        fit = fit_labels(collection.vectors[rows], np.stack([foreign[label] for label in labels]), collection.subjects)
        draws.append(Draw(fit.evidence, np.zeros(len(rows), bool)))
    return draws


def _draws(collection: Collection, names: Sequence[str], random: np.random.Generator, count: int) -> list[Draw]:
    return [_draw(collection, names, random) for _ in range(count)]


def _draw(collection: Collection, names: Sequence[str], random: np.random.Generator) -> Draw:
    labels = random.choice(list(names), int(random.integers(3, 13)), replace=False).tolist()
    inside = np.flatnonzero(np.isin(collection.truth, labels))
    inside = inside[random.random(len(inside)) < random.uniform(0.3, 1)]
    outside = np.flatnonzero(np.isin(collection.truth, list(set(names) - set(labels))))
    share = random.choice([0, 0.2, 0.5])
    outside = random.permutation(outside)[: int(len(inside) * share / (1 - share))]
    rows = np.concatenate([inside, outside])
    fit = fit_labels(
        collection.vectors[rows], np.stack([collection.names[label] for label in labels]), collection.subjects
    )
    return Draw(fit.evidence, np.array(labels)[fit.labels] == collection.truth[rows])


def _fit(draws: Sequence[Draw]) -> Floats:
    """Fit a logistic regression by Newton's method; the last coefficient is the constant."""
    evidence = np.concatenate([draw.evidence for draw in draws])
    right = np.concatenate([draw.right for draw in draws]).astype(float)
    mean, deviation = evidence.mean(0), evidence.std(0) + 1e-9
    columns = np.c_[(evidence - mean) / deviation, np.ones(len(evidence))]
    weights = np.zeros(columns.shape[1])
    for _ in range(30):
        share = chance(columns @ weights)
        curvature = (columns * (share * (1 - share))[:, None]).T @ columns + _RIDGE * np.eye(len(weights))
        weights -= np.linalg.solve(curvature, columns.T @ (share - right) + _RIDGE * weights)
    slopes = weights[:-1] / deviation
    return np.append(slopes, weights[-1] - slopes @ mean)


def _odds(draw: Draw, coefficients: Floats) -> Floats:
    return np.clip(draw.evidence @ coefficients[:-1] + coefficients[-1], -6, 6)


def _precisions(
    draws: Sequence[Draw], coefficients: Floats, examples: int = 0, random: np.random.Generator | None = None
) -> list[tuple[float, float]]:
    """Return the true precision of each draw's labels that are kept for the promise, and their share."""
    precisions = []
    for draw in draws:
        odds, right = _odds(draw, coefficients), draw.right
        rest = np.arange(len(right))
        if random is not None:
            if len(right) < 2 * examples:
                continue
            order = random.permutation(len(right))
            rest = order[examples:]
            odds = corrected(odds, odds[order[:examples]], right[order[:examples]])
        mask = choose(odds[rest], _PROMISE)
        if mask.sum() >= _FEWEST_KEPT:
            precisions.append((float(right[rest][mask].mean()), float(mask.mean())))
    return precisions


def _summary(splits: list[list[Any]]) -> dict[str, Any]:
    values = np.array([pair for split in splits for pair in split])
    low, high = np.quantile(values[:, 0], [0.1, 0.9])
    return {
        "mean precision": round(float(values[:, 0].mean()), 3),
        "of each split": [round(float(np.mean([pair[0] for pair in split])), 3) for split in splits],
        "8 of 10 label sets": [round(float(low), 3), round(float(high), 3)],
        "share kept": round(float(values[:, 1].mean()), 3),
        "label sets": len(values),
    }


if __name__ == "__main__":
    main()
