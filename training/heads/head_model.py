"""Load the encoder that a head is trained on, as transformers' class for that head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import transformers

from ...retriever.models import model_files
from ...retriever.models.heads.torch_head import load_tokenizer
from ...retriever.models.settings import read_config, read_modules
from ...retriever.models.torch_loading import check_vocabulary, loading
from ..encoders.base_model import join_segments, keep_first_layers, set_dropout
from ..runs import attention, environment

if TYPE_CHECKING:
    from pathlib import Path

    from ...retriever.models.heads.head_settings import HeadKind
    from .config import HeadConfig


def make_model(base: str, kind: HeadKind, config: HeadConfig, **options: Any) -> tuple[Any, Any]:
    """Return the model with a new head, unless the base has such a head, and its tokenizer.

    :param base: a sentence-transformers folder or name, or any Hugging Face encoder.
    :param options: of transformers' configuration, such as `num_labels`.
    :raises InputError: when it does not load.
    """
    environment.silence()
    torch.manual_seed(config.seed)
    folder = _transformer(model_files.find(base))
    tokenizer = load_tokenizer(folder)
    auto: Any = getattr(transformers, f"AutoModelFor{kind.task}")
    fixed = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    with loading(base, f"a base for a {kind.noun}"):
        model = auto.from_pretrained(str(folder), **fixed, **options)
    check_vocabulary(folder, tokenizer, model)
    if config.layers is not None:
        keep_first_layers(base, model, config.layers)
    set_dropout(model, config.dropout)
    attention.speed_up(model)
    if not str((read_config(folder).get("architectures") or [""])[0]).endswith(f"For{kind.task}"):
        join_segments(model)
    return model.to(environment.device()), tokenizer


def _transformer(folder: Path) -> Path:
    """Return the folder of the transformer in a sentence-transformers folder; another folder itself."""
    paths = [
        str(module.get("path") or "")
        for module in read_modules(folder)
        if isinstance(module, dict) and str(module.get("type")).endswith("Transformer")
    ]
    return folder / paths[0] if paths else folder
