"""Texts of a wanted number of tokens, cut out of passages: what an attacker learns from and what is attacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from ...core.words import UNSPACED
from ...retriever.models.token_ids import EncoderTokens
from ..data import documents as corpus
from ..inversion.overlap import Known
from ..runs.progress import counted
from .config import FEWEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ...retriever.models.encoder import Encoder
    from ...retriever.retriever import Retriever
    from ..data.documents import Source
    from ..runs.progress import Tell
    from .config import AuditConfig

_AT_ONCE = 256  # passages
_TRIES = 4  # cuts of one passage and length, at most


@dataclass(frozen=True, slots=True)
class LeakTexts:
    """The texts that are learned from and those that are attacked."""

    corpus: list[str]
    by_length: dict[int, list[str]]  # of the corpus
    true: dict[int, list[str]]
    tokens: EncoderTokens
    notes: list[str]

    @classmethod
    def of(cls, retriever: Retriever, config: AuditConfig, tell: Tell) -> LeakTexts:
        """:raises InputError: when the index holds too little text."""
        snapshot, encoder = retriever.snapshot(), retriever.encoder
        lengths, texts, seed = config.lengths, config.texts_per_length, config.seed
        own, attacked = corpus.split(corpus.from_index(snapshot), config.held_out, seed)
        fitting = sorted(length for length in lengths if length <= encoder.max_tokens)
        notes = [
            f"{encoder.name} reads {encoder.max_tokens} tokens: texts of {length} were left out."
            for length in sorted(set(lengths) - set(fitting))
        ]
        tell("cutting texts out of the passages")
        each = -(-config.corpus_texts // max(1, len(fitting)))
        learned = cut(corpus.few(own, 4 * each, seed), encoder, fitting, each, seed, tell=tell)
        few = corpus.few(attacked, 20 * texts, seed)
        theirs = {passage.text for source in few for passage in source.passages}
        both = frozenset(passage.text for source in own for passage in source.passages if passage.text in theirs)
        own_texts = dict.fromkeys(text for found in learned.values() for text in found)
        tokens = EncoderTokens(encoder)
        known, near = Known(tokens(list(own_texts))), 0
        true: dict[int, list[str]] = {}
        for length, found in cut(few, encoder, fitting, 4 * texts, seed + 1, without=both, known=own_texts).items():
            apart = [text for text, ids in zip(found, tokens(found), strict=True) if not known.holds(ids)]
            near += len(found) - len(apart)
            true[length] = apart[:texts]
        if near:
            notes.append(f"{near} texts were not attacked: most of each stands in what the attacker learned from.")
        notes += [
            f"Of {length} tokens there were {len(found)} texts to attack, not {texts}."
            for length, found in true.items()
            if len(found) < texts
        ]
        true = {length: found for length, found in true.items() if len(found) > 1}
        if len(own_texts) < FEWEST or not true:
            raise InputError(
                f"{retriever.path} holds too little to audit: {len(own_texts)} texts to learn from and "
                f"{sum(map(len, true.values()))} to attack came from its documents; expected some dozens of documents "
                f"with passages of {min(lengths)} tokens and more"
            )
        return cls(list(own_texts), learned, true, tokens, notes)


def cut(
    sources: Iterable[Source],
    encoder: Encoder,
    lengths: Sequence[int],
    wanted: int,
    seed: int = 0,
    *,
    without: frozenset[str] = frozenset(),
    known: Collection[str] = frozenset(),
    tell: Tell = lambda _: None,
) -> dict[int, list[str]]:
    """Of each length in the encoder's tokens as many texts as wanted, or as there are, of as many documents as can be.

    A text begins and ends where a word does. Passages that `without` holds are passed over, and so are texts
    that are `known`.
    """
    random = np.random.default_rng(seed)
    passages = [
        (number, passage.text)
        for number, source in enumerate(sources)
        for passage in source.passages
        if passage.text not in without
    ]
    times = min(_TRIES, 1 + -(-wanted // max(1, len(passages))))  # one more, as equal ones are left out
    found: dict[int, list[tuple[int, str]]] = {length: [] for length in lengths}
    for start in counted(range(0, len(passages), _AT_ONCE), tell, "cutting texts out of the passages"):
        some = passages[start : start + _AT_ONCE]
        for (document, text), offsets in zip(some, encoder.offsets([text for _, text in some]), strict=True):
            for length in lengths:
                found[length] += [(document, part) for part in _parts(text, offsets, length, times, known, random)]
    return {length: _spread(of_length, wanted, random) for length, of_length in found.items()}


def _parts(
    text: str,
    offsets: Sequence[tuple[int, int]],
    length: int,
    times: int,
    known: Collection[str],
    random: np.random.Generator,
) -> Iterator[str]:
    """Some stretches of so many tokens, each once."""

    def part(start: int) -> str:
        return text[offsets[start][0] : offsets[start + length - 1][1]]

    borders = [_is_border(text, offset[0]) for offset in offsets] + [True]
    starts = [start for start in range(len(offsets) - length + 1) if borders[start] and borders[start + length]]
    if known:
        starts = [start for start in starts if part(start) not in known]
    for start in random.choice(starts, min(times, len(starts)), replace=False) if starts else ():
        yield part(start)


def _is_border(text: str, place: int) -> bool:
    """Whether no word goes on across this place."""
    around = text[max(0, place - 1) : place + 1]
    return place == 0 or not around.isalnum() or bool(UNSPACED.search(around))


def _spread(found: Sequence[tuple[int, str]], wanted: int, random: np.random.Generator) -> list[str]:
    """As many different texts as wanted, a document's second only where every document has given its first."""
    order = random.permutation(len(found))
    turns: dict[int, int] = {}
    ranked = []
    for place in order:
        document, text = found[place]
        turn = turns[document] = turns.get(document, -1) + 1
        ranked.append((turn, text))
    ranked.sort(key=lambda one: one[0])
    return list(dict.fromkeys(text for _, text in ranked))[:wanted]
