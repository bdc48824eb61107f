"""Names in the descriptions of Debian packages: packages, versions and file paths, with silver labels.

    python -m benchmarks.heads.tagger --data /data --work /tmp/tagger --layers 2

Rules make the labels. A package is a word that is the name of one and has a digit, "-" or "+"; versions and paths
follow patterns. A tagger of the first layers of all-MiniLM-L6-v2 learns them. A tenth of the texts is held out.
Texts with the same first 80 characters, digits aside, stay together. Span F1 is that of seqeval. A baseline gives each
word its most frequent tag, and O to a new word. The rule for packages needs a list of their names, which the tagger
does not see: the packages that the learned texts name are counted apart from new ones.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle.retriever.models.heads.tagger import entities, load_tagger, word_spans
from binocle.training.data.heads.tagged import read_tagged
from binocle.training.evaluation.heads.span_f1 import counts, span_f1
from binocle.training.heads.config import HeadConfig
from binocle.training.heads.train import train_tagger

from ..machine import save

if TYPE_CHECKING:
    from binocle.training.data.heads.tagged import Span, TaggedSplit, TaggedText

_VERSION = re.compile(r"(?<![\w./-])v?\d+(?:\.\d+)+(?:[~+-]?[a-z0-9]+)*(?![\w/])", re.IGNORECASE)
_ROOTS = "usr|etc|var|dev|proc|sys|tmp|bin|sbin|lib|opt|home|boot|run|srv"
_PATH = re.compile(
    rf"(?<![\w./:<])~?/(?:[\w.+@-]+/)+[\w.+@-]*\w|(?<![\w./:<])/(?:{_ROOTS})(?![\w/-])"  # /a/b, or one known folder
)
_WORD = re.compile(r"(?<![\w./+-])[a-z0-9][a-z0-9+.-]*[a-z0-9+](?![\w/+-])")
_CHARACTERS, _NAMELESS = 400, 1_500  # characters of a text at most; number of texts without a name
_HELD_OUT, _MOST_HELD_OUT = 0.1, 1_000
_EVALUATIONS = 7  # of the learning curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="with debian_descriptions/")
    parser.add_argument("--work", type=Path, required=True, help="for the trained tagger")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    rows = _rows(options.data / "debian_descriptions" / "debian12_descriptions.jsonl.gz")
    config = HeadConfig(
        steps=options.steps,
        layers=options.layers,
        learning_rate=5e-4,
        max_length=128,
        held_out=_HELD_OUT,
        evaluations=_EVALUATIONS,
    )
    start = time.process_time()
    result = train_tagger(rows, options.work / f"tagger-{options.layers}-{options.steps}", config=config)
    seconds = time.process_time() - start
    texts = read_tagged(rows, _HELD_OUT, _MOST_HELD_OUT, config.seed)
    tagged = load_tagger(result.folder).tag([text.text for text in texts.held_out])
    predicted = [[(entity.label, entity.start, entity.end) for entity in of_text] for of_text in tagged]
    labels = Counter(entity["label"] for row in rows for entity in row["entities"])
    measures = {
        "texts": result.rows,
        "names": dict(labels),
        "layers": options.layers,
        "steps": result.loop.steps,
        "tagger": {
            measure.name: {
                "value": round(measure.value, 4),
                "low": round(measure.low, 4),
                "high": round(measure.high, 4),
            }
            for measure in result.measures
        },
        "span F1 by label": {label: _f1(predicted, texts.held_out, label) for label in sorted(labels)},
        "packages found": _packages_found(predicted, texts),
        "learning curve, first 200 texts": _curve(result.loop.history),
        "baseline, span F1": round(_most_frequent(texts), 4),
        "seconds of CPU": round(seconds, 1),
    }
    save("tagger", measures, seed=config.seed)


def _rows(file: Path) -> list[dict[str, Any]]:
    """The texts with names and some without, in an order by chance, each with its entities."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        packages = [json.loads(line) for line in lines]
    names = {package["package"] for package in packages}
    random.Random(0).shuffle(packages)
    named, nameless = [], []
    for text, package in {package["long"]: package for package in packages}.items():
        shown = f"{package['short']}. {text}"[:_CHARACTERS]
        row = {"text": shown, "entities": _entities(shown, names), "document_id": re.sub(r"\d+", "", text[:80])}
        (named if row["entities"] else nameless).append(row)
    rows = [*named, *nameless[:_NAMELESS]]
    random.Random(1).shuffle(rows)
    return rows


def _entities(text: str, names: set[str]) -> list[dict[str, Any]]:
    matches = [
        (match, label) for label, rule in (("PATH", _PATH), ("VERSION", _VERSION)) for match in rule.finditer(text)
    ]
    for match in _WORD.finditer(text):
        word = match.group()
        if word in names and re.search("[a-z]", word) and re.search("[-0-9+]", word):
            matches.append((match, "PACKAGE"))
    spans: list[dict[str, Any]] = []
    for match, label in sorted(matches, key=lambda pair: pair[0].start()):
        if not spans or match.start() >= spans[-1]["end"]:
            spans.append({"label": label, "start": match.start(), "end": match.end()})
    return spans


def _curve(history: list[dict[str, Any]]) -> dict[int, float]:
    """Return the span F1 by step; rows between two evaluations repeat the last value."""
    curve: dict[int, float] = {}
    last = None
    for row in history:
        value = row.get("eval_span F1")
        if value is not None and value != last:
            curve[row["step"]] = round(value, 4)
            last = value
    return curve


def _f1(predicted: list[list[Span]], texts: list[TaggedText], label: str) -> float:
    """Return the span F1 of one label."""
    of_label = [[span for span in spans if span[0] == label] for spans in predicted]
    return round(span_f1(*counts(of_label, [[span for span in text.spans if span[0] == label] for text in texts])), 4)


def _packages_found(predicted: list[list[Span]], texts: TaggedSplit) -> dict[str, Any]:
    """Return the recall of packages that the learned texts name, and of new ones."""
    known = {text.text[start:end] for text in texts.learned for label, start, end in text.spans if label == "PACKAGE"}
    hits: dict[str, list[bool]] = {"named in the learned texts": [], "new": []}
    for spans, text in zip(predicted, texts.held_out, strict=True):
        for span in text.spans:
            if span[0] == "PACKAGE":
                group = "named in the learned texts" if text.text[span[1] : span[2]] in known else "new"
                hits[group].append(span in spans)
    return {
        group: {"packages": len(of_group), "recall": round(sum(of_group) / max(1, len(of_group)), 4)}
        for group, of_group in hits.items()
    }


def _most_frequent(texts: TaggedSplit) -> float:
    tags_of: dict[str, Counter[str]] = defaultdict(Counter)
    for text in texts.learned:
        words = word_spans(text.text)
        for (start, end), tag in zip(words, text.tags(words), strict=True):
            tags_of[text.text[start:end]][tag] += 1
    predicted = []
    for text in texts.held_out:
        words = word_spans(text.text)
        tags = [
            max(tags_of[word], key=tags_of[word].__getitem__) if (word := text.text[a:b]) in tags_of else "O"
            for a, b in words
        ]
        predicted.append([(label, words[first][0], words[end - 1][1]) for label, first, end in entities(tags)])
    return span_f1(*counts(predicted, [list(text.spans) for text in texts.held_out]))


if __name__ == "__main__":
    main()
