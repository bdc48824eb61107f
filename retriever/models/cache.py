"""The loaded models of one index: the encoder of its committed state, and every reranker and reader in use."""

from __future__ import annotations

import os
import shlex
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.checks import is_whole
from ...core.errors import EncoderMismatchError, InputError, ModelNotFoundError, UntrustedError
from .bert.bert_encoder import expect_queries, use_gpus
from .encoders.no_encoder import NoEncoder, check_encoder
from .identity import MAX_DIM, EncoderId
from .load import load_encoder, load_reranker
from .model_files import DEFAULT_MODEL, INT8, find_default

if TYPE_CHECKING:
    from collections.abc import Callable

    from .encoder import Encoder
    from .heads.reader import Reader
    from .reranker import Reranker


class ModelCache:
    """Models that threads share. Each loads once; an encoder and a reranker may load side by side.

    :param index: the folder or address of the index, for messages.
    :param requested: the folder or name of the encoder to begin with; None: the index's own, or the default.
    :param is_trusted: tells whether the index may name its encoder.
    :param dim: of the vectors of a new index without an encoder; None: it has one.
    :param gpu: let the encoder compute documents on the GPUs of this machine.
    """

    def __init__(
        self,
        index: object,
        requested: str | None,
        is_trusted: Callable[[], bool] = lambda: True,
        dim: int | None = None,
        *,
        gpu: bool = False,
    ) -> None:
        self.encoded_by = "the CPU"  # what computes the vectors of documents, once an encoder is loaded
        self.requested = requested
        self.dim = dim
        self._index = index
        self._is_trusted = is_trusted
        self._encoder_lock, self._reranker_lock = threading.Lock(), threading.Lock()
        self._encoder: Encoder | None = None
        self._is_warm = False
        self._gpu = gpu
        self._rerankers: dict[str, Reranker] = {}
        self._readers: dict[str, Reader] = {}

    def encoder_of(self, identity: EncoderId | None) -> Encoder:
        """Return the encoder of a committed state; for None, a new index, the requested encoder."""
        with self._encoder_lock:
            encoder = self._encoder
            if encoder is None or (identity is not None and encoder.fingerprint != identity.fingerprint):
                encoder = self._encoder = self.prepare(self._load(identity))
            if identity is not None:
                self.requested = None  # from now on the index decides, even after a switch to another encoder
            return encoder

    def _load(self, identity: EncoderId | None) -> Encoder:
        if self.dim is not None or (identity and identity.is_none):
            return self._without_encoder(identity)
        if identity and not self.requested and not self._is_trusted():
            return self._load_default(identity)
        name = self.requested or (identity.model if identity else DEFAULT_MODEL)
        try:
            encoder = load_encoder(name)
        except ModelNotFoundError as error:
            if self.requested or not Path(name).is_absolute() or Path(name).exists():
                raise
            raise ModelNotFoundError(
                f"{error}: if the encoder of this index was moved, 'binocle switch MODEL "
                f"--index {shlex.quote(str(self._index))}' notes its new folder"
            ) from None
        if identity and encoder.fingerprint != identity.fingerprint:
            raise EncoderMismatchError(
                f"the index at {self._index} was made with {identity.model} (fingerprint {identity.fingerprint[:8]}) "
                f"but {name} has {encoder.fingerprint[:8]}: use that model, or embed the index with this one by "
                f"'binocle switch {name}', or index into another folder with --index"
            )
        return encoder

    def check_encoder(self, identity: EncoderId | None, purpose: str) -> None:
        """Check that an index has an encoder, or a new one would.

        :raises InputError: when it has none.
        """
        if identity is None and self.dim is not None:
            identity = EncoderId.none(self.dim)
        check_encoder(identity, purpose)

    def _without_encoder(self, identity: EncoderId | None) -> Encoder:
        """Check that an index without an encoder was requested, of these dimensions."""
        dim, label = self.dim, f"the index at {self._index}"
        if identity is not None:
            if not identity.is_none:
                raise EncoderMismatchError(f"{label} has the encoder {identity.model}: open it without encoder=None")
            if dim not in (None, identity.dim):
                raise EncoderMismatchError(
                    f"{label} has vectors of dimension {identity.dim}: open it without dim={dim}"
                )
            if self.requested:
                raise EncoderMismatchError(f"{label} has no encoder: open it without the model {self.requested}")
            dim = identity.dim
        assert dim is not None
        return NoEncoder(dim)

    def _load_default(self, identity: EncoderId) -> Encoder:
        """Load the default encoder, from this machine alone, for an index that may not name its encoder.

        :raises UntrustedError: when the index was made with another one.
        """
        folder = find_default()
        precision = INT8 if identity.model.endswith(INT8) else ""
        encoder = load_encoder(f"{folder}{precision}") if folder else None
        if encoder is None or encoder.fingerprint != identity.fingerprint:
            raise UntrustedError(
                f"the index at {self._index} names the encoder {identity.model!r}, which is not loaded: you did not "
                "make this index here, or an earlier version did. If you know where it comes from, allow it once by "
                f"'binocle trust --index {shlex.quote(str(self._index))}', or name the encoder with --model"
            )
        return encoder

    def use(self, encoder: Encoder) -> None:
        """Keep this encoder for the next search, as after a switch."""
        with self._encoder_lock:
            self.requested, self._encoder = None, self.prepare(encoder)

    @property
    def names(self) -> list[str]:
        """The folders or names of the loaded models."""
        return [*([self._encoder.name] if self._encoder else []), *self._rerankers, *self._readers]

    def warm_up(self, identity: EncoderId) -> None:
        """Prepare this encoder, and every later one, for many queries."""
        self._is_warm = True
        self.prepare(self.encoder_of(identity))

    def prepare(self, encoder: Encoder) -> Encoder:
        """Prepare an encoder for many queries, or for GPUs, as this index wants its own."""
        if self._is_warm:
            expect_queries(encoder)
        if self._gpu:
            self.encoded_by = use_gpus(encoder)
        return encoder

    def reranker_of(self, reranker: str | os.PathLike[str] | Reranker) -> Reranker:
        """Return the reranker, loading it by name if needed."""
        if not isinstance(reranker, (str, os.PathLike)):
            return load_reranker(reranker)
        with self._reranker_lock:
            name = str(reranker)
            if name not in self._rerankers:
                self._rerankers[name] = load_reranker(reranker)
            return self._rerankers[name]

    def reader_of(self, reader: str | os.PathLike[str] | Reader) -> Reader:
        """Return the reader of answers, loading it by name if needed."""
        from .heads.reader import load_reader

        if not isinstance(reader, (str, os.PathLike)):
            return load_reader(reader)
        with self._reranker_lock:
            name = str(reader)
            if name not in self._readers:
                self._readers[name] = load_reader(reader)
            return self._readers[name]


def check_no_encoder(encoder: object, dim: int | None, model: str | None) -> None:
    """Check the request for an index without an encoder.

    :param encoder: None for none, else `...`.
    :raises InputError: when it contradicts itself.
    """
    if encoder not in (None, ...):
        raise InputError(f"encoder is None for an index without one, not {encoder!r}: name one by model=")
    if (encoder is None) != (dim is not None):
        raise InputError("an index without an encoder needs both encoder=None and dim, the dimension of its vectors")
    if dim is None:
        return
    if not is_whole(dim, 1) or dim >= MAX_DIM:
        raise InputError(f"dim is the dimension of vectors, a whole number from 1 to {MAX_DIM - 1:,}, not {dim!r}")
    if model is not None:
        raise InputError(f"encoder=None makes an index without an encoder, but model={model!r} names one")


def model_name(model: str | os.PathLike[str]) -> str:
    """Return the folder or name of an encoder as text.

    :raises InputError: when it is neither.
    """
    if not isinstance(model, (str, os.PathLike)) or not os.fspath(model):
        raise InputError(f"{model!r} is not a model: expected a folder or a name on the hub")
    return os.fspath(model)
