"""Train a decoder that recovers texts from an encoder's hidden states, or from its vectors."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from ...retriever.models.load import load_encoder
from ...retriever.models.model_files import DEFAULT_MODEL
from ...retriever.models.tokens.token_ids import EncoderTokens
from ..data.unlabelled_texts import check as check_texts
from ..data.unlabelled_texts import documents
from ..pretraining.data.token_rows import split_held_out
from ..runs import environment
from ..runs.run_folder import check_out, files_of
from ..runs.training_run import TrainingRun
from .config import InverterConfig
from .rows import SHORTEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.progress import OnProgress
    from ...retriever.retriever import Retriever
    from .result import TrainedInverter

_READ, _MEASURED = 20_000, 500  # passages to read, and passages to measure
_LONGEST = 128  # tokens that an index's passages are learned at, at most


def train_inverter(
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    encoder: str | None = None,
    config: InverterConfig | None = None,
    column: str | None = None,
    progress: OnProgress | None = None,
) -> TrainedInverter:
    """Train an inverter on texts and write its folder, which `retriever.inversion.inverter.load` opens.

    If the run is killed, the same call resumes it from its last checkpoint, with the same steps.

    :param texts: one or more sources of `data.unlabelled_texts.documents`.
    :param encoder: by folder or name; all-MiniLM-L6-v2 by default.
    :raises InputError: before the first step, for unsuitable texts or invalid settings.
    """
    environment.require("training an inverter")
    config = config or InverterConfig()
    config.check()
    sources = check_texts(texts, column)
    check_out(Path(out), "inverter")
    name = encoder or DEFAULT_MODEL
    loaded = load_encoder(name)
    run = TrainingRun(out, name, config, progress)
    settings = {"texts": list(map(str, sources)), "fingerprint": loaded.fingerprint, "column": column}
    run.open({**settings, "files": files_of(*sources, leave_out=run.out)}, kind="inverter")
    with run.discard_on_error():
        environment.silence()
        from .inverter_training import EmbeddingInverterTraining, StateInverterTraining

        training_class = EmbeddingInverterTraining if config.kind == "embedding" else StateInverterTraining
        training = training_class(run, loaded)
        texts_read = documents(sources, column, run.progress)
        training.read(split_held_out(texts_read, config.held_out, seed=config.seed, required=True))
    with run.release_on_error():
        return training.train()


def passage_length(retriever: Retriever) -> int:
    """The number of tokens that nine of ten passages of an index stay within: the length that its inverter learns."""
    tokens = EncoderTokens.of(retriever.encoder)
    batches = retriever.snapshot().batches(["context"])
    contexts = list(islice((text for batch in batches for text in batch["context"].to_pylist()), _READ))
    sample = contexts[:: max(1, len(contexts) // _MEASURED)]
    if not sample:
        raise InputError(f"{retriever.path} holds no passages: 'binocle index' fills it")
    longest = min(retriever.encoder.max_tokens, _LONGEST)
    return max(SHORTEST, min(longest, round(float(np.quantile([len(ids) for ids in tokens(sample)], 0.9)))))
