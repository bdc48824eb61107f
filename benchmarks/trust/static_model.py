"""A fast encoder for measurements of the store: the default encoder's tokenizer and dimension, with random vectors."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save_file

from binocle.retriever.models.model_files import DEFAULT_MODEL, find

if TYPE_CHECKING:
    from pathlib import Path

_DIM = 384


def build_static_model(folder: Path) -> Path:
    """Write a table of one random vector for each token; passages are cut as for the default encoder."""
    folder.mkdir()
    tokenizer = find(DEFAULT_MODEL) / "tokenizer.json"
    shutil.copy(tokenizer, folder)
    size = len(json.loads(tokenizer.read_bytes())["model"]["vocab"])
    table = np.random.default_rng(0).standard_normal((size, _DIM)).astype(np.float32)
    save_file({"embeddings": table}, folder / "model.safetensors")
    kinds = ("StaticEmbedding", "Normalize")
    modules = [
        {
            "idx": idx,
            "name": str(idx),
            "path": "." if idx == 0 else str(idx),
            "type": f"sentence_transformers.models.{kind}",
        }
        for idx, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder
