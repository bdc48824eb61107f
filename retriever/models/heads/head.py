"""An encoder with a head, and loading it with the fastest class for its folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from ....core.errors import InputError
from ....core.files import expand_home
from .. import model_files
from ..bert.weights import BertConfig
from ..settings import fingerprint, read_config, tokenizer_overrides
from .head_settings import HeadSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokenizers import Tokenizer

    from ....core.arrays import Floats
    from ..bert.inputs import Tokens
    from .head_settings import HeadKind


class EncoderWithHead(Protocol):
    """An encoder with a head, as readers use it. `load_head` returns one."""

    name: str
    folder: Path
    fingerprint: str  # equal fingerprints give equal logits, up to the precision of the processor
    settings: HeadSettings

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer, which neither pads nor truncates."""
        ...

    def logits(self, texts: Sequence[Tokens]) -> list[Floats]:
        """Return the logits of each text or pair: (tokens, labels), or (labels,) where the head pools."""
        ...


def load_head(name: str | os.PathLike[str], kind: HeadKind) -> EncoderWithHead:
    """Load an encoder with a head by folder or name, without torch if the model is of the BERT family.

    :raises ModelNotFoundError: when the weights are neither on this machine nor on the hub.
    :raises InputError: when the model has another head, or is damaged.
    :raises MissingExtraError: when the model needs torch and it is not installed.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise InputError(f"{name!r} is no {kind.noun}: expected a folder or a name on the hub")
    folder = model_files.find(os.fspath(name), kind.role)
    settings = HeadSettings.read(folder, kind)
    label = str(folder) if expand_home(name).is_dir() else os.fspath(name)
    digest = fingerprint(folder, settings)
    config = _bert_config(folder, kind)
    if config:
        from .bert_head import BertHead

        return BertHead.load(label, folder, digest, settings, kind, config)
    from .torch_head import TorchHead

    return TorchHead.load(label, folder, digest, settings, kind)


def _bert_config(folder: Path, kind: HeadKind) -> BertConfig | None:
    """Return the configuration of a model that needs no torch, else None."""
    config = read_config(folder)
    native = (
        (folder / "model.safetensors").is_file()
        and (folder / "tokenizer.json").is_file()
        and not tokenizer_overrides(folder)
    )
    bert = BertConfig.from_json(config, folder / "config.json", task=kind.task) if native else None
    return None if bert is None or bert.rotary else bert
