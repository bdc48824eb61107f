"""The models of one index in service: the encoder of its committed state, and the rerankers that were asked for."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from ...core.errors import EncoderMismatchError, InputError
from .bert_encoder import expect_many
from .files import DEFAULT_MODEL
from .load import load_encoder, load_reranker

if TYPE_CHECKING:
    from pathlib import Path

    from .encoder import Encoder
    from .identity import EncoderId
    from .reranker import Reranker


class ModelCache:
    """Each is loaded once, by one of the threads that share them; an encoder and a reranker may load side by side.

    :param index: for the message that another encoder was asked for than it has.
    :param asked: the folder or name of the encoder to begin with, the default's or the index's own unless given.
    """

    def __init__(self, index: Path, asked: str | None) -> None:
        self.asked = asked
        self._index = index
        self._encoding, self._reranking = threading.Lock(), threading.Lock()
        self._encoder: Encoder | None = None
        self._is_warm = False
        self._rerankers: dict[str, Reranker] = {}

    def encoder_of(self, wanted: EncoderId | None) -> Encoder:
        """The encoder of a committed state; of an index yet to be made, the one asked for."""
        with self._encoding:
            held = self._encoder
            if held is None or (wanted is not None and held.fingerprint != wanted.fingerprint):
                held = self._encoder = self._ready(self._loaded(wanted))
            if wanted is not None:
                self.asked = None  # it was in service: from now on the index is followed to whatever encoder it has
            return held

    def _loaded(self, wanted: EncoderId | None) -> Encoder:
        name = self.asked or (wanted.model if wanted else DEFAULT_MODEL)
        loaded = load_encoder(name)
        if wanted and loaded.fingerprint != wanted.fingerprint:
            raise EncoderMismatchError(
                f"the index at {self._index} was made with {wanted.model} (fingerprint {wanted.fingerprint[:8]}) but "
                f"{name} has {loaded.fingerprint[:8]}: use that model, or embed the index with this one by 'binocle "
                f"switch {name}', or index into another folder with --index"
            )
        return loaded

    def use(self, encoder: Encoder) -> None:
        """Spare the next search to load what was loaded for a switch."""
        with self._encoding:
            self.asked, self._encoder = None, self._ready(encoder)

    def warm_up(self, wanted: EncoderId) -> None:
        """Have this encoder, and whichever comes after it, ready for many queries."""
        self._is_warm = True
        self._ready(self.encoder_of(wanted))

    def _ready(self, encoder: Encoder) -> Encoder:
        if self._is_warm:
            expect_many(encoder, "query")
        return encoder

    def reranker_of(self, given: str | os.PathLike[str] | Reranker) -> Reranker:
        """The one given, or the one of that name."""
        if not isinstance(given, (str, os.PathLike)):
            return load_reranker(given)
        with self._reranking:
            if str(given) not in self._rerankers:
                self._rerankers[str(given)] = load_reranker(given)
            return self._rerankers[str(given)]


def name_of(model: str | os.PathLike[str]) -> str:
    """The folder or name of an encoder, as it was given; InputError where that is neither."""
    if not isinstance(model, (str, os.PathLike)) or not os.fspath(model):
        raise InputError(f"{model!r} is not a model: expected a folder or a name on the hub")
    return os.fspath(model)
