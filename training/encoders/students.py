"""Make the students that distillation starts from: some of the teacher's layers, or a table of word vectors.

The layers are evenly spread (Sanh et al. 2019, arXiv:1910.01108). The table has the
teacher's vector of each token, weighted by its rarity and without their common part (Arora et al. 2017; model2vec). It
has no transformer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tokenizers import Tokenizer

from ...core.errors import InputError
from ...retriever.models.load import load_encoder
from ...retriever.models.model_files import find
from .base_model import keep_spread_layers, make_model, save_model
from .config import EncoderConfig

if TYPE_CHECKING:
    from pathlib import Path

_COUNTED = 20_000  # texts to count tokens in
_SMOOTHING = 1e-3  # Arora et al.'s a


def with_layers(model: str, layers: int, folder: Path) -> None:
    """Write the model with `layers` of its layers, evenly spread from the first to the last."""
    student = make_model(model, EncoderConfig())
    if not hasattr(student[0], "auto_model"):
        raise InputError(f"{model} is a table of word vectors and has no layers: expected a teacher with a transformer")
    keep_spread_layers(model, student[0].auto_model, layers)
    save_model(student, folder)


def as_table(model: str, folder: Path, every: list[str]) -> None:
    """Write a static model: one vector per token, multiplied by a/(a + frequency), without the common part."""
    teacher = find(model)
    if not (teacher / "tokenizer.json").is_file():
        raise InputError(f"{model} has no tokenizer.json, and the table needs its tokens")
    tokenizer = Tokenizer.from_file(str(teacher / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    size = tokenizer.get_vocab_size()
    counts = np.ones(size, np.float64)
    for encoding in tokenizer.encode_batch_fast(every[:_COUNTED], add_special_tokens=False):
        np.add.at(counts, encoding.ids, 1)
    vectors = load_encoder(model).encode([tokenizer.decode([number]) or " " for number in range(size)])
    vectors = vectors - vectors.mean(0)
    weights = _SMOOTHING / (_SMOOTHING + counts / counts.sum())
    table = np.ascontiguousarray(vectors * weights[:, None], np.float32)
    static = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=table), Normalize()])
    static.save_pretrained(str(folder), create_model_card=False)
