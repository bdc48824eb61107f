"""The attacker's own texts and the attacked ones: cut out of passages at given lengths, and whole stored passages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from ...core.progress import Progress, counted, ignore
from ...core.words import UNSPACED
from ...retriever.models.tokens.token_ids import EncoderTokens
from ..data import source_documents as corpus
from ..inversion.overlap import KnownTexts
from .config import MINIMUM_TEXTS
from .known_text import KnownText

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats, Positions
    from ...core.progress import OnProgress
    from ...retriever.models.encoder import Encoder
    from ...retriever.retriever import Retriever
    from ..data.source_documents import Source
    from .config import AuditConfig
    from .search_cost import SearchedPassages

_BATCH_SIZE = 256  # passages
_COMMON = 0.4  # share of all tokens that the common ones are
_CUTS_PER_PASSAGE = 4  # of one length, at most


@dataclass(frozen=True, slots=True)
class LeakTexts:
    """The texts that the attacker learns from, and the attacked texts of other documents."""

    corpus: list[str]
    by_length: dict[int, list[str]]  # of the corpus
    true: dict[int, list[str]]
    tokens: EncoderTokens
    notes: list[str]
    known: KnownText  # passages that repeat the attacker's documents; no attack counts them
    in_index: NDArray[np.bool_]  # of the corpus: texts of half of its documents, stolen in an attack without pairs
    stored: Mapping[str, Floats] = field(default_factory=dict)  # the stored vectors of whole passages, with headings
    stored_length: int | None = None  # the length that stands for whole passages: their median

    def rows(self, length: int) -> Positions:
        """The corpus's texts of a length by number; all of them if there are too few."""
        number_of = {text: number for number, text in enumerate(self.corpus)}
        own = self.by_length[length]
        return np.array([number_of[text] for text in (own if len(own) >= MINIMUM_TEXTS else self.corpus)])

    def common_tokens(self) -> frozenset[int]:
        """Tokens without letters and digits, and the most frequent ones, which are two fifths of all tokens."""
        counts = Counter(token for row in self.tokens(self.corpus) for token in row)
        names = {token: self.tokens.name(token) for token in counts}
        signs = {token for token, name in names.items() if not any(map(str.isalnum, name))}
        words = [(token, count) for token, count in counts.most_common() if token not in signs]
        shares = np.cumsum([count for _, count in words]) / max(1, sum(count for _, count in words))
        return frozenset(signs | {token for (token, _), share in zip(words, shares, strict=True) if share <= _COMMON})

    @classmethod
    def of(
        cls, retriever: Retriever, config: AuditConfig, passages: SearchedPassages | None, on_progress: OnProgress
    ) -> LeakTexts:
        """:param passages: attacked as they are stored, beside the texts that are cut.

        :raises InputError: when the index holds too little text.
        """
        encoder = retriever.encoder
        tokens = EncoderTokens.of(encoder)
        lengths = sorted(length for length in config.lengths if length <= encoder.max_tokens)
        whole = StoredPassages.of(passages, lengths, tokens) if passages else None
        own, attacked = corpus.split(corpus.from_index(retriever.snapshot()), config.held_out, config.seed)
        on_progress(Progress(_CUTTING))
        halves = _learned(own, encoder, lengths, whole, config, on_progress)
        by_length = {length: list(dict.fromkeys(first + halves[1][length])) for length, first in halves[0].items()}
        learned = list(dict.fromkeys(text for texts in by_length.values() for text in texts))
        stolen = {text for texts in halves[0].values() for text in texts}
        candidates = _candidates(own, attacked, learned, encoder, lengths, whole, config)
        true, copies = _without_copies(candidates, learned, tokens, config.texts_per_length)
        notes = [*_skipped_lengths(encoder, config, lengths), *_shortages(true, copies, config.texts_per_length)]
        true = {length: texts for length, texts in true.items() if len(texts) > 1}
        if len(learned) < MINIMUM_TEXTS or not true:
            raise InputError(
                f"{retriever.path} holds too little to audit: {len(learned)} texts to learn from and "
                f"{sum(map(len, true.values()))} to attack came from its documents; expected some dozens of documents "
                f"with passages of {min(config.lengths, default=8)} tokens and more. {copies} others "
                "repeat the texts to learn from"
            )
        known = KnownText.measure(own, attacked, tokens, config.seed, on_progress)
        in_index = np.array([text in stolen for text in learned])
        if whole is None or whole.length not in true:
            return cls(learned, by_length, true, tokens, notes, known, in_index)
        stored = {text: whole.vectors[text].copy() for text in (*by_length[whole.length], *true[whole.length])}
        return cls(learned, by_length, true, tokens, notes, known, in_index, stored, whole.length)


@dataclass(frozen=True, slots=True)
class StoredPassages:
    """The passages of an index as it stores them: their texts with headings, and their vectors."""

    vectors: dict[str, Floats]  # of each passage's text as the encoder read it
    length: int  # the median number of tokens, and no length of the cut texts

    @classmethod
    def of(cls, passages: SearchedPassages, lengths: Sequence[int], tokens: EncoderTokens) -> StoredPassages:
        """Measure the length on evenly chosen passages."""
        step = max(1, len(passages.contexts) // _MEASURED)
        length = max(1, round(float(np.median([len(ids) for ids in tokens(passages.contexts[::step])]))))
        while length in lengths:
            length += 1
        return cls(dict(zip(passages.contexts, passages.vectors, strict=True)), length)

    def choose(self, sources: Iterable[Source], count: int, seed: int) -> list[str]:
        """Choose at most `count` different passages, out of as many documents as possible."""
        contexts = ((number, passage.context) for number, source in enumerate(sources) for passage in source.passages)
        stored = [(number, context) for number, context in contexts if context in self.vectors]
        return _spread(stored, count, np.random.default_rng(seed))


_MEASURED = 500  # passages that the length is taken from
_CUTTING = "cutting texts out of the passages"


def _learned(
    own: Iterable[Source],
    encoder: Encoder,
    lengths: Sequence[int],
    whole: StoredPassages | None,
    config: AuditConfig,
    on_progress: OnProgress,
) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """Choose the attacker's texts from either half of his documents, as many of each length."""
    each = -(-config.corpus_texts // max(1, 2 * (len(lengths) + (whole is not None))))
    sources = list(corpus.sample(own, 8 * each, config.seed))
    first, second = (
        cut(sources[half::2], encoder, lengths, each, config.seed, on_progress=on_progress)
        | ({whole.length: whole.choose(sources[half::2], each, config.seed)} if whole else {})
        for half in (0, 1)
    )
    return first, second


def _candidates(
    own: Iterable[Source],
    attacked: Iterable[Source],
    learned: Sequence[str],
    encoder: Encoder,
    lengths: Sequence[int],
    whole: StoredPassages | None,
    config: AuditConfig,
) -> dict[int, list[str]]:
    """Choose texts to attack from passages that the attacker's documents do not hold, four times the needed number."""
    sample = corpus.sample(attacked, 20 * config.texts_per_length, config.seed)
    passages = {passage.text for source in sample for passage in source.passages}
    shared = frozenset(passage.text for source in own for passage in source.passages if passage.text in passages)
    count = 4 * config.texts_per_length
    texts = cut(sample, encoder, lengths, count, config.seed + 1, without=shared, known=frozenset(learned))
    return texts | ({whole.length: whole.choose(sample, count, config.seed + 1)} if whole else {})


def _without_copies(
    candidates: Mapping[int, Sequence[str]], learned: Sequence[str], tokens: EncoderTokens, count: int
) -> tuple[dict[int, list[str]], int]:
    """Drop candidates that mostly stand in the attacker's texts, and count them; keep `count` of each length."""
    known = KnownTexts(tokens(learned))
    true: dict[int, list[str]] = {}
    copies = 0
    for length, texts in candidates.items():
        unseen = [text for text, ids in zip(texts, tokens(texts), strict=True) if not known.holds(ids)]
        copies += len(texts) - len(unseen)
        true[length] = unseen[:count]
    return true, copies


def _skipped_lengths(encoder: Encoder, config: AuditConfig, lengths: Sequence[int]) -> Iterator[str]:
    for length in sorted(set(config.lengths) - set(lengths)):
        yield f"{encoder.name} reads {encoder.max_tokens} tokens: texts of {length} were left out."


def _shortages(true: Mapping[int, Sequence[str]], copies: int, count: int) -> Iterator[str]:
    if copies:
        yield (
            f"{copies} texts were not attacked: the attacker had learned most of each text. The verdict counts the "
            "passages with such text."
        )
    for length, texts in true.items():
        if len(texts) < count:
            yield f"Of {length} tokens there were {len(texts)} texts to attack, not {count}."


def cut(
    sources: Iterable[Source],
    encoder: Encoder,
    lengths: Sequence[int],
    count: int,
    seed: int = 0,
    *,
    without: frozenset[str] = frozenset(),
    known: Collection[str] = frozenset(),
    on_progress: OnProgress = ignore,
) -> dict[int, list[str]]:
    """Cut at most `count` texts of each length in the encoder's tokens, out of as many documents as possible.

    A text begins and ends at word borders.

    :param without: passages that are skipped.
    :param known: texts that are skipped.
    """
    random = np.random.default_rng(seed)
    passages = [
        (number, passage.text)
        for number, source in enumerate(sources)
        for passage in source.passages
        if passage.text not in without
    ]
    cuts = min(_CUTS_PER_PASSAGE, 1 + -(-count // max(1, len(passages))))  # one more: equal texts are dropped
    parts: dict[int, list[tuple[int, str]]] = {length: [] for length in lengths}
    for start in counted(range(0, len(passages), _BATCH_SIZE), on_progress, _CUTTING):
        batch = passages[start : start + _BATCH_SIZE]
        for (document, text), offsets in zip(batch, encoder.offsets([text for _, text in batch]), strict=True):
            borders = np.array([_is_border(text, start) for start, _ in offsets] + [True])
            for length in lengths:
                pieces = _parts(text, offsets, borders, length, cuts, known, random)
                parts[length] += [(document, part) for part in pieces]
    return {length: _spread(of_length, count, random) for length, of_length in parts.items()}


def _parts(
    text: str,
    offsets: Sequence[tuple[int, int]],
    borders: NDArray[np.bool_],
    length: int,
    cuts: int,
    known: Collection[str],
    random: np.random.Generator,
) -> Iterator[str]:
    """Yield at most `cuts` different parts of `length` tokens.

    :param borders: whether a word may begin at each token, and after the last.
    """

    def part(start: int) -> str:
        return text[offsets[start][0] : offsets[start + length - 1][1]]

    starts = np.flatnonzero(borders[:-length] & borders[length:]).tolist()
    if known:
        starts = [start for start in starts if part(start) not in known]
    for start in random.choice(starts, min(cuts, len(starts)), replace=False).tolist() if starts else ():
        yield part(start)


def _is_border(text: str, position: int) -> bool:
    """Whether no word continues across this position."""
    around = text[max(0, position - 1) : position + 1]
    return position == 0 or not around.isalnum() or bool(UNSPACED.search(around))


def _spread(parts: Sequence[tuple[int, str]], count: int, random: np.random.Generator) -> list[str]:
    """Choose `count` different texts; a document's second text comes after every document's first."""
    turns: dict[int, int] = {}
    ranked = []
    for position in random.permutation(len(parts)):
        document, text = parts[position]
        turn = turns[document] = turns.get(document, -1) + 1
        ranked.append((turn, text))
    ranked.sort(key=lambda turn_and_text: turn_and_text[0])
    return list(dict.fromkeys(text for _, text in ranked))[:count]
