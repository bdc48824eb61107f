"""Cut a passage into windows that a reader takes, each together with the question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_QUESTION = 64  # tokens of a question that are read, as in arXiv:1810.04805


@dataclass(frozen=True, slots=True)
class Window:
    """A question and a part of a passage as tokens."""

    ids: list[int]
    type_ids: list[int]
    first: int  # position of the first token of the passage
    offsets: list[tuple[int, int]]  # of each token of the passage: its characters there


def windows(tokenizer: Tokenizer, question: str, passage: str, size: int, stride: int) -> list[Window]:
    """Return the windows of a passage, in its order; neighbours share tokens.

    :param size: tokens of a window, the question and special tokens included.
    :param stride: tokens of the passage that two neighbours share, at most half of what a window holds.
    """
    query = _question(tokenizer, question, min(_QUESTION, size // 2))
    read = tokenizer.encode(passage, add_special_tokens=False)
    room = max(1, size - len(query.ids) - tokenizer.num_special_tokens_to_add(is_pair=True))
    read.truncate(room, stride=min(stride, room // 2))
    pair = tokenizer.post_process(query, read, add_special_tokens=True)
    types = max(pair.type_ids, default=0)
    return [_window(part, types) for part in (pair, *pair.overflowing)]


def _question(tokenizer: Tokenizer, question: str, maximum: int) -> Encoding:
    encoding = tokenizer.encode(question, add_special_tokens=False)
    while len(encoding.ids) > maximum:  # the end of a text may have more tokens once it is cut
        question = question[: min(encoding.offsets[maximum - 1][1], len(question) - 1)]
        encoding = tokenizer.encode(question, add_special_tokens=False)
    return encoding


def _window(pair: Encoding, types: int) -> Window:
    """:param types: 1 if the model has a token type for passages. The library gives types of the first window only."""
    sequences = pair.sequence_ids
    own = [position for position, sequence in enumerate(sequences) if sequence == 1]
    first = own[0] if own else len(pair.ids)
    type_ids = [types * (position >= first) for position in range(len(pair.ids))]
    return Window(pair.ids, type_ids, first, [pair.offsets[position] for position in own])
