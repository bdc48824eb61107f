"""Load models through transformers safely: no pickles, no empty tokenizers, no progress bars.

Every room that loads a model of transformers does so here: encoders, rerankers, heads, inspection and inversion.
"""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, first_line, tensor_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOADING_ERRORS = (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, ImportError)


def require_safetensors(folder: Path) -> None:
    """:raises InputError: when the folder has no safetensors file."""
    if not any(folder.rglob("*.safetensors")):
        raise InputError(f"{folder} has no .safetensors weights: other formats are pickles and are not loaded")


def refuse_pickles(folder: Path) -> None:
    """Refuse a folder with weights in a pickle alone: sentence-transformers would load one for a Dense layer.

    :raises InputError: when there is such a file, or no safetensors file.
    """
    require_safetensors(folder)
    for pickle in folder.rglob("pytorch_model.bin"):
        if not any(pickle.parent.glob("model*.safetensors")):
            raise InputError(f"{pickle} is a pickle and is not loaded: expected model.safetensors beside it")


def check_vocabulary(folder: Path, tokenizer: Any, model: Any) -> None:
    """Refuse a tokenizer that is not the model's: transformers creates an empty one if its files are missing.

    :param model: of transformers; None for a table of word vectors.
    :raises InputError: when it has less than half of the model's tokens.
    """
    config = getattr(model, "config", None)
    expected = getattr(config, "vocab_size", None)
    if isinstance(expected, int) and 2 * len(tokenizer) < expected:
        raise InputError(
            f"{folder} has {len(tokenizer)} tokens in its tokenizer and {expected} in its weights: "
            "are files missing? copy the model folder again"
        )


def loading_errors() -> tuple[type[Exception], ...]:
    """Return the errors of transformers and safetensors for a folder that is no whole model.

    One is for a value of another type in config.json; earlier versions of huggingface_hub lack it.
    """
    config_error = getattr(sys.modules.get("huggingface_hub.errors"), "StrictDataclassError", None)
    return (*tensor_errors(), *_LOADING_ERRORS, *([] if config_error is None else [config_error]))


@contextlib.contextmanager
def loading(source: str | Path, expected: str) -> Iterator[None]:
    """Load a model inside, in silence.

    :param expected: the kind of model: "a cross-encoder".
    :raises InputError: when transformers cannot load it.
    """
    try:
        with quiet_transformers():
            yield
    except loading_errors() as error:
        raise InputError(f"{source} does not load as {expected} ({first_line(error)})") from error


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the progress bars and reports that transformers writes while it loads."""
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
