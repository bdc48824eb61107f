"""The ids of an encoder's tokens; the encoder itself gives only their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.errors import InputError
from ..encoder import check_texts, lower_case
from ..model_files import find
from ..settings import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenizers import Tokenizer

    from ..encoder import Encoder

_ROLES = (("[CLS]", "<s>"), ("[SEP]", "</s>"), ("[MASK]", "<mask>"), ("[PAD]", "<pad>"))


class EncoderTokens:
    """Turn texts into token ids, without special tokens and without truncation, and back."""

    def __init__(self, tokenizer: Tokenizer, *, lowercase: bool) -> None:
        self._tokenizer, self._lowercase = tokenizer, lowercase
        names, size = tokenizer.get_vocab(), tokenizer.get_vocab_size()
        present = [next((names[name] for name in role if name in names), None) for role in _ROLES]
        spare = iter(range(size, size + len(_ROLES)))
        start, end, mask, pad = (next(spare) if number is None else number for number in present)
        self.special = (start, end, mask, pad)  # ids; missing tokens get ids after the vocabulary
        marked = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        unused = {number for name, number in names.items() if name.startswith(("[unused", "<unused"))}
        self.non_text = frozenset(marked | unused | set(self.special))  # ids that no text has

    @classmethod
    def of(cls, encoder: Encoder) -> EncoderTokens:
        """Load the tokenizer of an encoder.

        :raises InputError: when it has no `tokenizer.json`.
        """
        from tokenizers import Tokenizer

        base: Encoder = getattr(encoder, "base", encoder)  # behind a defended encoder
        folder = find(base.name)
        file = min(folder.rglob("tokenizer.json"), default=None)
        if file is None:
            raise InputError(f"{folder} has no tokenizer.json: save the model with a fast tokenizer")
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(tokenizer, lowercase=ModelSettings.read(folder).lowercase)

    @property
    def size(self) -> int:
        """The size of the vocabulary, with the special tokens added after it."""
        return max(self._tokenizer.get_vocab_size(), max(self.special) + 1)

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize all texts in one batch; `token_spans` returns positions too."""
        return [
            encoding.ids
            for encoding in self._tokenizer.encode_batch_fast(self._normalize(texts), add_special_tokens=False)
        ]

    def token_spans(self, text: str) -> list[tuple[int, int, int]]:
        """Return the tokens of a text: id, first character and end."""
        (encoding,) = self._tokenizer.encode_batch(self._normalize([text]), add_special_tokens=False)
        return [(token, start, end) for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)]

    def _normalize(self, texts: Sequence[str]) -> list[str]:
        return [lower_case(text) if self._lowercase else text for text in check_texts(texts)]

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        return self._tokenizer.decode([token for token in tokens if token not in self.non_text])

    def name(self, token: int) -> str:
        """Return the token as the vocabulary writes it; a piece inside a word keeps its mark."""
        return self._tokenizer.id_to_token(token) or ""
