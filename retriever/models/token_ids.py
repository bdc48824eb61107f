"""The encoder's own tokens as numbers, which the encoder itself only gives the places of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import InputError
from .encoder import check_texts, lower_case
from .files import find
from .settings import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .encoder import Encoder

_ROLES = (("[CLS]", "<s>"), ("[SEP]", "</s>"), ("[MASK]", "<mask>"), ("[PAD]", "<pad>"))


class EncoderTokens:
    """Texts to the numbers of their tokens, special ones left out and none cut off, and back."""

    def __init__(self, encoder: Encoder) -> None:
        from tokenizers import Tokenizer

        base: Encoder = getattr(encoder, "base", encoder)  # of a defended encoder
        folder = find(base.name)
        file = min(folder.rglob("tokenizer.json"), default=None)
        if file is None:
            raise InputError(f"{folder} has no tokenizer.json: save the model with a fast tokenizer")
        self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._lowercase = ModelSettings.read(folder).lowercase
        names = self._tokenizer.get_vocab()
        held = [next((names[name] for name in role if name in names), None) for role in _ROLES]
        more = iter(range(self._tokenizer.get_vocab_size(), self._tokenizer.get_vocab_size() + len(_ROLES)))
        start, end, mask, pad = (next(more) if number is None else number for number in held)
        self.special = (start, end, mask, pad)  # ids; those that the tokenizer lacks come after its own
        marked = {number for number, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        unused = {number for name, number in names.items() if name.startswith(("[unused", "<unused"))}
        self.never = frozenset(marked | unused | set(self.special))  # ids that stand in no text

    @property
    def size(self) -> int:
        """Of the vocabulary, with the special tokens that were put after it."""
        return max(self._tokenizer.get_vocab_size(), max(self.special) + 1)

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        return [one.ids for one in self._tokenizer.encode_batch_fast(self._given(texts), add_special_tokens=False)]

    def placed(self, text: str) -> list[tuple[int, int, int]]:
        """The tokens of a text, each with where the characters that it is of start and end."""
        (made,) = self._tokenizer.encode_batch(self._given([text]), add_special_tokens=False)
        return [(token, start, end) for token, (start, end) in zip(made.ids, made.offsets, strict=True)]

    def _given(self, texts: Sequence[str]) -> list[str]:
        return [lower_case(text) if self._lowercase else text for text in check_texts(texts)]

    def text(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode([token for token in tokens if token not in self.never])

    def name(self, token: int) -> str:
        """As the vocabulary has it: a piece inside a word keeps its mark."""
        return self._tokenizer.id_to_token(token) or ""
