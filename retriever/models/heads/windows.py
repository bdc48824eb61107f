"""Cut a text into windows that a model takes, for a reader each together with the question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_QUESTION = 64  # tokens of a question that are read, as in arXiv:1810.04805


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a text as tokens, with the question before it if there is one."""

    ids: list[int]
    type_ids: list[int]
    first: int  # position of the first token of the text
    offsets: list[tuple[int, int]]  # of each token of the text: its characters there


def windows(tokenizer: Tokenizer, question: str, passage: str, size: int, stride: int) -> list[Window]:
    """Return the windows of a passage, in its order; neighbours share tokens.

    :param size: tokens of a window, the question and special tokens included.
    :param stride: tokens of the passage that two neighbours share, at most half of a window.
    """
    query = _question(tokenizer, question, min(_QUESTION, size // 2))
    read = tokenizer.encode(passage, add_special_tokens=False)
    room = max(1, size - len(query.ids) - tokenizer.num_special_tokens_to_add(is_pair=True))
    read.truncate(room, stride=min(stride, room // 2))
    pair = tokenizer.post_process(query, read, add_special_tokens=True)
    types = max(pair.type_ids, default=0)
    return [_window(part, 1, types) for part in (pair, *pair.overflowing)]


def text_windows(tokenizer: Tokenizer, text: str, size: int, *, capitals: bool = False) -> list[Window]:
    """Return the windows of a text alone, in its order; neighbours share a quarter of their tokens.

    :param size: tokens of a window, special ones included.
    :param capitals: whether tokens with a capital letter have type 1, for a tokenizer with ids that ignore case.
    """
    read = tokenizer.encode(text, add_special_tokens=False)
    room = max(1, size - tokenizer.num_special_tokens_to_add(is_pair=False))
    read.truncate(room, stride=room // 4)
    whole = tokenizer.post_process(read, None, add_special_tokens=True)
    parts = [_window(part, 0, 0) for part in (whole, *whole.overflowing)]
    if capitals:
        for part in parts:
            types = [int(text[start:end] != text[start:end].lower()) for start, end in part.offsets]
            part.type_ids[part.first : part.first + len(types)] = types
    return parts


def ignores_case(tokenizer: Tokenizer) -> bool:
    """Whether capital and small letters have the same ids."""
    normalizer: Any = tokenizer.normalizer
    return normalizer is not None and normalizer.normalize_str("A") == normalizer.normalize_str("a")


def _question(tokenizer: Tokenizer, question: str, maximum: int) -> Encoding:
    encoding = tokenizer.encode(question, add_special_tokens=False)
    while len(encoding.ids) > maximum:  # the end of a text may have more tokens once it is cut
        question = question[: min(encoding.offsets[maximum - 1][1], len(question) - 1)]
        encoding = tokenizer.encode(question, add_special_tokens=False)
    return encoding


def _window(encoding: Encoding, sequence: int, types: int) -> Window:
    """Return the window with the tokens of one sequence: 0, or 1 of a pair.

    :param types: 1 if the model has a token type for passages. The library gives types of the first window only.
    """
    ids, offsets = encoding.ids, encoding.offsets  # each read copies the list
    own = [position for position, number in enumerate(encoding.sequence_ids) if number == sequence]
    first = own[0] if own else len(ids)
    type_ids = [0] * first + [types] * (len(ids) - first)
    return Window(ids, type_ids, first, [offsets[position] for position in own])
