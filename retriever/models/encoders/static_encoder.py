"""An encoder without a transformer: the mean of one vector for each token, computed in numpy.

This is sentence-transformers' `StaticEmbedding`, as `binocle distill --layers 0` and model2vec write it. It could read
texts of any length; passages are kept as short as a transformer's by choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError, first_line, panics_as_errors
from .. import settings as model_settings
from ..bert.weights import load_integers, load_weights
from ..encoder import check_texts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokenizers import Tokenizer

    from ....core.arrays import Floats
    from ..encoder import Kind


_TOKENS = 254  # of a passage, as with MiniLM: the mean of this many words still tells the topic


class StaticEncoder:
    """A table of vectors with a tokenizer, behind the `Encoder` protocol."""

    def __init__(
        self, name: str, fingerprint: str, settings: model_settings.ModelSettings, table: Floats, tokenizer: Tokenizer
    ) -> None:
        self.name, self.fingerprint, self.dim = name, fingerprint, table.shape[1]
        self.max_tokens = _TOKENS
        self._settings, self._table, self._tokenizer = settings, table, tokenizer

    @classmethod
    def load(cls, name: str, folder: Path, settings: model_settings.ModelSettings) -> StaticEncoder:
        """Load table and tokenizer from a folder.

        :raises InputError: when they are damaged, or do not fit each other.
        """
        from tokenizers import Tokenizer

        table = _table(folder / "model.safetensors")
        try:
            with panics_as_errors():
                tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
                tokenizer.no_padding()
                tokenizer.no_truncation()
                tokenizer.encode("a")  # some damage shows only now
        except Exception as error:  # noqa: BLE001 - tokenizers raises no narrower one
            reason = first_line(error, 120)
            raise InputError(f"{folder / 'tokenizer.json'} is not a tokenizer ({reason})") from None
        size = tokenizer.get_vocab_size()
        if table.ndim != 2 or len(table) < size:
            raise InputError(f"{folder / 'model.safetensors'} holds no vector for each of {size:,} tokens")
        return cls(name, model_settings.fingerprint(folder, settings), settings, table, tokenizer)

    @staticmethod
    def fits(folder: Path, settings: model_settings.ModelSettings) -> bool:
        """Whether the model in the folder is a table of vectors."""
        static = settings.modules in (("StaticEmbedding",), ("StaticEmbedding", "Normalize"))
        return static and (folder / "model.safetensors").is_file() and (folder / "tokenizer.json").is_file()

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        """Average the vectors of all tokens, without truncation; a text without tokens gets zeros."""
        prompt = self._settings.query_prompt if kind == "query" else self._settings.document_prompt
        inputs = [prompt + text for text in check_texts(texts)]
        vectors = np.zeros((len(inputs), self.dim), np.float32)
        for row, encoding in enumerate(self._tokenizer.encode_batch_fast(inputs, add_special_tokens=False)):
            if encoding.ids:
                vectors[row] = self._table[encoding.ids].mean(0)
        if self._settings.unit:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Tokenize all texts in one batch; the prompt is not included."""
        encodings = self._tokenizer.encode_batch(check_texts(texts), add_special_tokens=False)
        return [encoding.offsets for encoding in encodings]


def _table(file: Path) -> Floats:
    """Return a vector for each token. model2vec's layout stores equal vectors once, sentence-transformers' does not."""
    weights = load_weights(file)
    if "embedding.weight" in weights:
        return weights["embedding.weight"]
    table = weights.get("embeddings", np.empty((0, 0), np.float32))
    mapping = load_integers(file, "mapping")  # the row of each token's vector
    if mapping is not None:
        if mapping.size and not 0 <= mapping.min() <= mapping.max() < len(table):
            raise InputError(f"{file} maps tokens to vectors that it does not hold: copy the model folder again")
        table = table[mapping]
    scales = weights.get("weights")
    if scales is None:
        return table
    if scales.shape != table.shape[:1]:
        raise InputError(f"{file} has {scales.size:,} weights for {len(table):,} vectors: copy the model folder again")
    return table * scales[:, None]
