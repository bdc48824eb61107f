"""Put a defence into service: an encoder folder with a secret of its own, and the index embedded with it."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.progress import OnProgress, ignore
from ...retriever.models.defences import SECRET
from ...retriever.models.defended_encoder import DefendedEncoder, expect_free, write
from . import defences, search_cost

if TYPE_CHECKING:
    from ...retriever.indexing.switch import SwitchReport
    from ...retriever.retriever import Retriever


@dataclass(frozen=True, slots=True)
class Defended:
    """The index as it is now."""

    setting: str
    folder: Path  # of the encoder, with what is secret
    report: SwitchReport

    def as_dict(self) -> dict[str, Any]:
        return {"setting": self.setting, "folder": str(self.folder), **self.report.as_dict()}


def defend(
    retriever: Retriever,
    setting: str,
    *,
    folder: str | Path | None = None,
    keep: bool = True,
    progress: OnProgress = ignore,
) -> Defended:
    """Make a defended encoder with a new secret, and switch the index to it. `Retriever.rollback` undoes it.

    :param setting: such as "rotation" or "noise=0.01".
    :param folder: where the encoder goes, in the user's data folder unless given; never in the index, since it holds
        the secret.
    :param keep: whether the undefended vectors stay in the index for `rollback`; else they are erased.
    """
    chosen = defences.parse([setting])[-1]
    if chosen.kind == "none":
        raise InputError("'none' is no defence: there is nothing to put into service")
    place = _place(folder, chosen.name.replace("=", "-"))
    check(retriever, place)
    vectors = search_cost.passages(retriever.snapshot(), search_cost.Queries("", {}, {}), 0).vectors
    defence = defences.make(chosen, vectors, secrets.token_bytes(SECRET))
    made = write(place, retriever.encoder, defence)
    try:
        report = retriever.switch(made, keep=keep, progress=progress)
    except BaseException:
        if retriever.snapshot().head.encoder.model != str(made):
            shutil.rmtree(made)  # nothing was embedded with that secret which is of any use
        raise
    return Defended(chosen.name, made, report)


def check(retriever: Retriever, folder: str | Path | None) -> None:
    """:raises InputError: when no defended encoder can be put there, or the index has one already."""
    if isinstance(retriever.encoder, DefendedEncoder):
        raise InputError(f"{retriever.path} has a defended encoder already: 'binocle rollback' brings its base back")
    if folder is None:
        return
    place = Path(folder).expanduser()
    if place.resolve().is_relative_to(retriever.path.resolve()):
        raise InputError(
            f"{place} is in the index, beside the vectors that its secret is to protect: name another folder"
        )
    expect_free(place)


def _place(folder: str | Path | None, name: str) -> Path:
    if folder is not None:
        return Path(folder).expanduser()
    home = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    return home / "binocle" / "encoders" / f"{name}-{secrets.token_hex(4)}"
