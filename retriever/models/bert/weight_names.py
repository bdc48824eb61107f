"""BERT's names of its weights, without the `bert.` prefix. The weights of its family are read under these names."""

from __future__ import annotations

# Each name stands for a weight; dense layers and norms have NAME.weight and NAME.bias.
WORDS = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"
TYPES = "embeddings.token_type_embeddings.weight"
EMBEDDING_NORM = "embeddings.LayerNorm"
POOLER, CLASSIFIER = "pooler.dense", "classifier"
FINAL_NORM, HEAD_NORM = "final_norm", "head_norm"  # of ModernBERT, after the last layer and in a classifier
DISTANCES = "encoder.relative_attention_bias.weight"


class LayerNames:
    """The names of the dense layers and norms of one transformer layer."""

    def __init__(self, number: int) -> None:
        prefix = f"encoder.layer.{number}."
        self.query, self.key, self.value = (f"{prefix}attention.self.{name}" for name in ("query", "key", "value"))
        self.attention_output = f"{prefix}attention.output.dense"
        self.attention_norm = f"{prefix}attention.output.LayerNorm"
        self.intermediate = f"{prefix}intermediate.dense"
        self.gate = f"{prefix}intermediate.gate"  # of ModernBERT
        self.output = f"{prefix}output.dense"
        self.output_norm = f"{prefix}output.LayerNorm"
