"""The language of an index: whether its encoder, which may be for English only, can read most of its text.

A sample of passages tells it. Only prose counts: code, tables and lists of names have no language here. So the answer
is None unless two thirds of the prose, and a quarter of the sample, are in other languages than English.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ...store.derived.relevance_scale import DEFAULT_ENCODERS
from .text_language import ENGLISH, language_of_prose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....core.arrays import Ids
    from ...models.identity import EncoderId
    from ...store.snapshot import Snapshot

MULTILINGUAL_MODEL = "intfloat/multilingual-e5-small"
SEVERAL = "other languages than English"
_PASSAGES = 100  # of a sample: 5 ms
_SHARE_OF_PROSE, _SHARE_OF_ALL = 2 / 3, 1 / 4  # in other languages


def is_for_english(encoder: EncoderId) -> bool:
    """Whether an encoder is known to read English only: the default one."""
    return encoder.fingerprint in DEFAULT_ENCODERS


def unread_language(snapshot: Snapshot) -> str | None:
    """The language of most of the text in an index if its encoder does not read it; else None."""
    return _unread_language(snapshot, snapshot.chunk_ids["id"].to_numpy())


def _unread_language(snapshot: Snapshot, ids: Ids) -> str | None:
    if not is_for_english(snapshot.head.encoder):
        return None
    sample = ids[np.linspace(0, len(ids) - 1, min(len(ids), _PASSAGES)).astype(np.intp)]
    rows = snapshot.chunks_by_id(sample.tolist(), ["text"]).values()
    return majority(language_of_prose(row["text"]) for row in rows)


def majority(languages: Iterable[str | None]) -> str | None:
    """The language of most passages, or `SEVERAL`; None if most prose may be English.

    :param languages: of each passage; None if it has none.
    """
    counts = Counter(languages)
    total, english = counts.total(), counts.pop(ENGLISH, 0)
    counts.pop(None, None)
    foreign = counts.total()
    if not foreign or foreign < _SHARE_OF_PROSE * (foreign + english) or foreign < _SHARE_OF_ALL * total:
        return None
    language, count = counts.most_common(1)[0]
    return str(language) if 2 * count > foreign else SEVERAL


def news_of_language(snapshot: Snapshot, first_new: int) -> str:
    """A note after a run that the encoder does not read the language of the index; "" if that was so before.

    A run that adds most of the passages gives the note in any case: the run before may have been interrupted.

    :param first_new: the passages that the run added have this id or a higher one.
    """
    if snapshot.head.next_chunk == first_new:  # a run without a new passage takes no time for this
        return ""
    ids = snapshot.chunk_ids["id"].to_numpy()
    earlier = ids[ids < first_new]
    if len(earlier) == len(ids) or (language := _unread_language(snapshot, ids)) is None:
        return ""
    is_news = 2 * len(earlier) < len(ids) or _unread_language(snapshot, earlier) != language
    return note_on(language) if is_news else ""


def note_on(language: str) -> str:
    """Say that the encoder does not read a language, and name one that reads it."""
    return (
        f"most of the text seems to be in {language}, but the encoder is for English, so searches hardly find it by "
        f"meaning: 'binocle index FOLDER --index NEW --model {MULTILINGUAL_MODEL}' makes an index that does"
    )
