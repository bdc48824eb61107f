"""Fit an index's encoder to its documents, without a label, and put it in service only if it is better.

Pairs are made from the documents' own structure (`pairs`), a teacher that is already there says how good each passage
is for each query (the index's hybrid search, a cross-encoder or a larger encoder), the encoder learns the teacher's
distribution (GPL, Wang et al. 2022, arXiv:2112.07577, with whatever teacher there is), and queries made from documents
that it has not seen decide, by a paired test, whether the index changes.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..indexes.errors import InputError
from ..retriever import encoder as encoders
from ..retriever.defended_encoder import DefendedEncoder
from ..retriever.model_folder import find
from . import corpus, loop, pairs, significance
from .encoder import Config, train_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ..retriever.retriever import Retriever
    from .loop import Progress
    from .pairs import Pair

    Floats = NDArray[np.float32]
    Score = Callable[[str, Sequence[str]], Floats]

TEACHERS = ("hybrid", "none")  # or the name of a model
_ALPHA = 0.05
_POOL = 5_000  # passages that a held-out query is answered from
_FEW = 8  # documents that are too few to learn from and to be judged by


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to tune. On scifact, leaving the query's own document out of the list and a rate of 5e-5 lost 2 points."""

    kinds: tuple[str, ...] = ("title", "section", "claim", "cloze", "definition", "keywords", "dropped")
    pairs: int = 5_000
    teacher: str = "hybrid"
    candidates: int = 7  # passages beside the positive that the teacher scores for each query
    depth: int = 50  # of the search that they are drawn from
    epochs: float = 1.0
    batch_size: int = 16  # queries
    learning_rate: float = 2e-5
    max_length: int = 128  # tokens
    temperature: float = 1.0  # of the teacher's standard scores
    keep: float = 0.3  # share of the encoder's own weights kept
    held_out: float = 0.2  # share of the documents that judge
    queries: int = 1_000  # of held-out documents, at most
    seed: int = 0


@dataclass(slots=True)
class Tuned:
    """What came of it."""

    folder: Path
    pairs: int
    queries: int
    before: float  # nDCG@10 of the held-out documents' queries
    after: float
    difference: significance.Difference
    published: bool
    seconds: float
    kinds: dict[str, float] = field(default_factory=dict)  # kind of query -> difference

    def as_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("pairs", "queries", "published")},
            "folder": str(self.folder),
            "seconds": round(self.seconds, 1),
            "before": round(self.before, 4),
            "after": round(self.after, 4),
            "difference": {name: round(value, 4) for name, value in asdict(self.difference).items()},
            "kinds": {name: round(value, 4) for name, value in self.kinds.items()},
        }


def tune(
    retriever: Retriever,
    *,
    out: str | Path | None = None,
    recipe: Recipe | None = None,
    publish: bool = True,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> Tuned:
    """Train the index's encoder on its documents and switch the index to it if held-out documents say so.

    :param out: where the tuned encoder goes; `encoders/` in the index unless given.
    :param publish: whether a significant gain (p < 0.05) changes the index. `Retriever.rollback` undoes it.
    :raises InputError: when the index holds too few documents.
    """
    loop.require("tuning")
    began = time.monotonic()
    recipe, tell = recipe or Recipe(), tell or (lambda _: None)
    _check(recipe)
    base = retriever.encoder
    if isinstance(base, DefendedEncoder):
        raise InputError(f"{retriever.path} has a defended encoder: 'binocle rollback' brings back the one to be tuned")
    folder = Path(out) if out is not None else _free(retriever.path / "encoders")
    sources = corpus.from_index(retriever.snapshot())
    learned, judging = corpus.split(sources, recipe.held_out, recipe.seed)
    tell("making pairs from the documents")
    chosen = _sample(_every(learned, recipe), recipe.pairs, recipe.seed)
    asked = _sample(_every(judging, recipe), recipe.queries, recipe.seed)
    if len({pair.document for pair in chosen}) < _FEW or len({pair.document for pair in asked}) < 2:
        raise InputError(
            f"{retriever.path} holds too little to learn from: {len(chosen)} pairs of training documents and "
            f"{len(asked)} of held-out ones came from it; expected some dozens of documents with sentences in them"
        )
    work = folder / "run-tune"
    rows = work / "rows.jsonl"
    if not rows.is_file():
        work.mkdir(parents=True, exist_ok=True)
        _write(rows, _taught(retriever, chosen, recipe, tell))
    trained = train_encoder(
        rows,
        folder / "model",
        base=str(find(base.name)),
        config=Config(
            epochs=recipe.epochs,
            batch_size=recipe.batch_size,
            learning_rate=recipe.learning_rate,
            max_length=recipe.max_length,
            temperature=recipe.temperature,
            keep=recipe.keep,
            held_out=0.0,
            seed=recipe.seed,
        ),
        progress=progress,
    )
    tell("asking held-out documents")
    judged = _judge(base, encoders.load(str(trained.folder)), asked, _pool(learned, asked, recipe.seed))
    before, after = judged
    difference = significance.difference(after, before, seed=recipe.seed)
    better = difference.value > 0 and difference.p < _ALPHA
    if publish and better:
        tell("embedding the index anew beside the old one")
        retriever.switch(trained.folder)
    rows.unlink()
    work.rmdir()
    made = Tuned(
        trained.folder,
        len(chosen),
        len(asked),
        float(before.mean()),
        float(after.mean()),
        difference,
        publish and better,
        time.monotonic() - began,
        _by_kind(asked, after - before),
    )
    _note(made)
    return made


def _check(recipe: Recipe) -> None:
    for name in ("pairs", "candidates", "depth", "queries"):
        if getattr(recipe, name) < 1:
            raise InputError(f"{name} is a whole number from 1, not {getattr(recipe, name)}")
    if recipe.depth <= recipe.candidates:
        raise InputError(f"depth is more than the number of candidates, not {recipe.depth} with {recipe.candidates}")
    if not 0 < recipe.held_out < 1:
        raise InputError(f"held out is a share of the documents between 0 and 1, not {recipe.held_out}")


def _free(parent: Path) -> Path:
    """`tuned-N` that is not there yet, or that holds an unfinished run."""
    number = 1
    while (parent / f"tuned-{number}" / "model" / "model.safetensors").is_file():
        number += 1
    return parent / f"tuned-{number}"


def _every(documents: Iterable[Any], recipe: Recipe) -> Iterator[Pair]:
    return pairs.make(documents, seed=recipe.seed, kinds=recipe.kinds)


def _sample(made: Iterable[Pair], most: int, seed: int) -> list[Pair]:
    """As many as wanted, each with the same chance, in one pass (Vitter 1985, algorithm R)."""
    generator = np.random.default_rng(seed)
    stream = iter(made)
    kept = list(islice(stream, most))
    for number, pair in enumerate(stream, most + 1):
        place = int(generator.integers(number))
        if place < most:
            kept[place] = pair
    return kept


def _write(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    aside = file.with_name(f".{file.name}")
    with aside.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    aside.replace(file)


def _taught(
    retriever: Retriever, chosen: Sequence[Pair], recipe: Recipe, tell: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Each pair with candidates from the index and, of a teacher, the score of each.

    Candidates are drawn from the best that the hybrid search finds, the positive's own passage left out.
    """
    teacher = _teacher(recipe.teacher)
    for number, pair in enumerate(chosen):
        if not number % 200:
            tell(f"asking the teacher: {number:,} of {len(chosen):,} queries")
        hits = retriever.search(pair.query, recipe.depth + 1)
        contexts = retriever.snapshot().chunks_by_id([hit.chunk for hit in hits], ["context"])
        own = [hit.score for hit in hits if hit.path == pair.document]
        others = [(contexts[hit.chunk]["context"], hit.score) for hit in hits if hit.path != pair.document]
        if len(others) < recipe.candidates:
            continue
        generator = np.random.default_rng((recipe.seed, number))
        drawn = [others[place] for place in generator.choice(len(others), recipe.candidates, replace=False)]
        row: dict[str, Any] = {"query": pair.query, "positive": pair.positive, "negatives": [text for text, _ in drawn]}
        if recipe.teacher == "hybrid":
            best = max(own, default=others[0][1])
            row["scores"] = [best, *(score for _, score in drawn)]
        elif teacher is not None:
            row["scores"] = teacher(pair.query, [pair.positive, *row["negatives"]]).tolist()
        yield row


def _teacher(name: str) -> Score | None:
    """What scores passages for a query: a cross-encoder's logits, or an encoder's cosines times 20."""
    if name in TEACHERS:
        return None
    from .scoring import load_reranker, reads_pairs

    if reads_pairs(find(name)):
        return load_reranker(name).score
    encoder = encoders.load(name)

    def cosines(query: str, passages: Sequence[str]) -> Floats:
        vectors = encoder.encode(list(passages)) @ encoder.encode([query], kind="query")[0]
        return np.asarray(20 * vectors, np.float32)

    return cosines


def _pool(learned: Iterable[Any], asked: Sequence[Pair], seed: int) -> list[str]:
    """The held-out queries' positives, and passages of other documents to tell them from."""
    contexts = (passage.context for source in learned for passage in source.passages)
    generator = np.random.default_rng(seed)
    kept: list[str] = []
    for number, text in enumerate(contexts, 1):
        if len(kept) < _POOL:
            kept.append(text)
        elif (place := int(generator.integers(number))) < _POOL:
            kept[place] = text
    return list(dict.fromkeys([*(pair.positive for pair in asked), *kept]))


def _judge(
    base: encoders.Encoder, tuned: encoders.Encoder, asked: Sequence[Pair], pool: Sequence[str]
) -> tuple[Floats, Floats]:
    """nDCG@10 of each held-out query with either encoder; every positive of its document is relevant."""
    place = {text: number for number, text in enumerate(pool)}
    owners: dict[str, set[int]] = {}
    for pair in asked:
        owners.setdefault(pair.document, set()).add(place[pair.positive])
    found = []
    for encoder in (base, tuned):
        stored = encoder.encode(list(pool))
        queries = encoder.encode([pair.query for pair in asked], kind="query")
        values = np.empty(len(asked), np.float32)
        for number, (pair, vector) in enumerate(zip(asked, queries, strict=True)):
            best = np.argsort(-(stored @ vector), kind="stable")[:10]
            relevant = owners[pair.document]
            gains = np.array([one in relevant for one in best]) / np.log2(np.arange(2, len(best) + 2))
            values[number] = gains.sum() / (1 / np.log2(np.arange(2, min(10, len(relevant)) + 2))).sum()
        found.append(values)
    return found[0], found[1]


def _by_kind(asked: Sequence[Pair], gains: Floats) -> dict[str, float]:
    kinds = np.array([pair.kind for pair in asked])
    return {kind: float(gains[kinds == kind].mean()) for kind in sorted(set(kinds.tolist()))}


def _note(made: Tuned) -> None:
    """Write what the held-out documents said beside the model."""
    file = made.folder / "binocle.json"
    facts = json.loads(file.read_text("utf-8"))
    facts["tuning"] = {name: value for name, value in made.as_dict().items() if name != "folder"}
    file.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
