"""Train on hard negatives that are mined with the encoder as it is, and anew as it gets better.

One round mines with the base and trains; the next mines with what came of it, since negatives that were hard are not
any more (ANCE, Xiong et al. 2021, arXiv:2007.00808, with the index rebuilt between rounds rather than beside them).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..indexes.errors import InputError
from ..retriever.model_folder import DEFAULT_MODEL
from .encoder import Config, Trained, train_encoder
from .mining import mine
from .run import folder_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .loop import Progress

_MARGIN = 0.05  # share of the positive's score that a negative stays below: NV-Retriever, arXiv:2407.15831


def train_rounds(
    data: str | Path,
    out: str | Path,
    *,
    negatives: int,
    rounds: int = 1,
    base: str | None = None,
    config: Config | None = None,
    split: str = "train",
    corpus: str | Path | None = None,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> Trained:
    """`train_encoder` on pairs, its epochs shared out among rounds, each with negatives mined anew.

    Killed, the same call goes on in the round that it was in.

    :param negatives: mined for each query.
    :param corpus: what they come from, as `mining.mine` takes it; the collection, or the positives, unless given.
    :raises InputError: when the numbers make no sense.
    """
    if negatives < 1 or rounds < 1:
        raise InputError(f"negatives and rounds are whole numbers from 1, not {negatives} and {rounds}")
    config, out, tell = config or Config(), Path(out), tell or (lambda _: None)
    if out.exists() and any(out.iterdir()) and not folder_of(out).exists():
        raise InputError(f"{out} is not empty: give another folder for the model")
    current = base or DEFAULT_MODEL
    work = out.with_name(f".{out.name}-rounds")
    work.mkdir(parents=True, exist_ok=True)
    share = replace(config, epochs=config.epochs / rounds, steps=config.steps and max(1, config.steps // rounds))
    for number in range(1, rounds + 1):
        mined, folder = work / f"mined-{number}.jsonl", out if number == rounds else work / f"round-{number}"
        if not mined.is_file():
            tell(f"mining negatives, round {number} of {rounds}")
            mine(data, mined, split=split, corpus=corpus, model=current, negatives=negatives, relative_margin=_MARGIN)
        if not (folder / "binocle.json").is_file():
            made = train_encoder(mined, folder, base=current, config=share, progress=progress)
        current = str(folder)
    shutil.rmtree(work)
    return made
