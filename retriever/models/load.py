"""Load an encoder or a reranker by folder or name, with the fastest class for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...core.checks import check_flags
from ...core.errors import InputError
from ...core.files import expand_home
from . import model_files
from . import settings as model_settings
from .bert.bert_encoder import BertEncoder, use_gpus
from .bert.bert_reranker import BertReranker
from .reranker import Reranker

if TYPE_CHECKING:
    from pathlib import Path

    from .encoder import Encoder


def load_encoder(name: str | os.PathLike[str] = model_files.DEFAULT_MODEL, *, gpu: bool = False) -> Encoder:
    """Load an encoder by folder or name, without torch if the model is of the BERT family.

    The encoder NAME@int8 is NAME with documents encoded in int8, and NAME@128 has the first 128 dimensions of its
    vectors. Each has a fingerprint of its own.

    :param gpu: compute documents on the GPUs of this machine, if it has any.
    :raises ModelNotFoundError: when the weights are neither on this machine nor on the hub.
    :raises InputError: when a model of another family, or ModernBERT, is asked for in int8.
    :raises MissingExtraError: when the model needs torch and it is not installed.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise InputError(f"{name!r} is not a model: expected a folder or a name on the hub")
    check_flags(gpu=gpu)
    encoder = _load(name)
    if gpu:
        use_gpus(encoder)
    return encoder


def _load(name: str | os.PathLike[str]) -> Encoder:
    whole, length = model_files.split_length(os.fspath(name))
    folder = model_files.find(whole)
    encoder = _load_whole(whole, folder)
    if length is None:
        length = model_settings.truncated_dim(folder, encoder.dim)
    if length is not None:
        from .encoders.defended_encoder import shortened

        return shortened(encoder, length)
    return encoder


def _load_whole(name: str, folder: Path) -> Encoder:
    """Load an encoder with vectors of full length."""
    name, is_int8 = model_files.split_precision(name)
    if expand_home(name).is_dir():
        name = str(folder)  # an index stores it, and may be searched from any folder
    if is_int8:
        return _load_int8(name, folder)
    if (folder / model_files.DEFENCE).is_file():
        from .encoders.defended_encoder import DefendedEncoder, base_encoder_name

        return DefendedEncoder.load(folder, load_encoder(base_encoder_name(folder)))
    if (folder / model_files.ADAPTER).is_file():
        from .encoders.adapted_encoder import AdaptedEncoder, adapted_encoder_name

        return AdaptedEncoder.load(folder, load_encoder(adapted_encoder_name(folder)))
    settings = _settings(folder)
    config = BertEncoder.config_of(folder, settings)
    if config:
        return BertEncoder.load(name, folder, settings, config)
    from .encoders.static_encoder import StaticEncoder

    if StaticEncoder.fits(folder, settings):
        return StaticEncoder.load(name, folder, settings)
    from .encoders.torch_encoder import TorchEncoder

    return TorchEncoder.load(name, folder, settings)


def _settings(folder: Path) -> model_settings.ModelSettings:
    """Read the settings of an encoder; of a plain one, no more files than these."""
    settings = model_settings.ModelSettings.read(folder)
    has_pooling = "Pooling" in settings.modules and (folder / "modules.json").is_file()
    if not has_pooling and model_settings.is_reranker(folder):
        raise InputError(
            f"{folder} is a reranker and no encoder: it scores pairs and has no vectors of texts; 'binocle search "
            "--rerank' takes it"
        )
    return settings


def prompts_here(name: str) -> dict[str, str] | None:
    """Return the prompts of an encoder, "query" and "document"; None if no whole folder of it is on this machine."""
    folder = model_files.find_here(name)
    if folder is None or not any((folder / file).is_file() for file in ("modules.json", "config.json")):
        return None  # of an adapter or a defence too: its base has them
    try:
        settings = model_settings.ModelSettings.read(folder)
    except InputError:
        return None
    return {"query": settings.query_prompt, "document": settings.document_prompt}


def note_on_prompts(name: str) -> str:
    """Say which prompts are assumed for an encoder, by its name alone; empty if none are."""
    folder = model_files.find_here(name)
    query, document = model_settings.assumed_prompts(folder) if folder else ("", "")
    if not query and not document:
        return ""
    kinds = [f"{prompt!r} before {kind}" for prompt, kind in ((query, "queries"), (document, "passages")) if prompt]
    return (
        f"the folder of {name} names no prompts, so it gets the prompts of its training: {' and '.join(kinds)}; "
        '"prompts" in config_sentence_transformers.json replace them'
    )


def _load_int8(name: str, folder: Path) -> Encoder:
    settings = _settings(folder)
    config = BertEncoder.config_of(folder, settings)
    if any((folder / part).is_file() for part in (model_files.DEFENCE, model_files.ADAPTER)) or not (
        config and config.has_int8
    ):
        raise InputError(f"{name} is no encoder of a family that is computed in int8: leave int8 out")
    return BertEncoder.load(name, folder, settings, config, int8=True)


def load_reranker(name: str | os.PathLike[str] | Reranker) -> Reranker:
    """Load a cross-encoder by folder or name, without torch if the model is of the BERT family.

    A loaded reranker is returned as it came. A name is looked up like an encoder's: a folder, the Hugging Face cache,
    the hub. A single word names a model of `cross-encoder/`. With @int8 at the end of its name, a reranker of the BERT
    family scores in int8.

    :raises ModelNotFoundError: when the weights are neither on this machine nor on the hub.
    :raises InputError: when the model is no cross-encoder, gives several scores, or is damaged.
    :raises MissingExtraError: when the model needs torch and it is not installed.
    """
    if isinstance(name, Reranker):
        return name
    if not isinstance(name, (str, os.PathLike)):
        raise InputError(f"{name!r} is not a reranker: expected a folder, a name on the hub, or a Reranker")
    folder = model_files.find(os.fspath(name), model_files.RERANKER)
    name, is_int8 = model_files.split_precision(os.fspath(name))
    name = str(folder) if expand_home(name).is_dir() else name
    settings = model_settings.CrossEncoderSettings.read(folder)
    if settings.labels != 1 and settings.modules == ("Transformer",):
        raise InputError(f"{folder} gives {settings.labels} scores a pair: expected a cross-encoder with one")
    config = BertReranker.config_of(folder, settings)
    if is_int8 and not (config and config.has_int8):
        raise InputError(f"{name} is no reranker of a family that is computed in int8: leave @int8 out")
    if config:
        return BertReranker.load(name, folder, settings, config, int8=is_int8)
    from .torch_reranker import TorchReranker

    return TorchReranker.load(name, folder, settings)
