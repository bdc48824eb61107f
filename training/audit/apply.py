"""Apply a defence: write an encoder folder with a new secret, and embed the index anew with it."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.files import expand_home, user_folder
from ...core.progress import OnProgress, ignore
from ...retriever.indexing.switch import check_own
from ...retriever.indexing.vector_log import logged_vectors
from ...retriever.models.defences import SECRET_BYTES
from ...retriever.models.encoders.defended_encoder import DefendedEncoder, check_free_folder, save_defended_encoder
from ...retriever.store.commits import SWITCHING
from ...retriever.store.store import locked
from . import defences, search_cost

if TYPE_CHECKING:
    from pathlib import Path

    from ...retriever.indexing.switch import SwitchReport
    from ...retriever.retriever import Retriever


@dataclass(frozen=True, slots=True)
class AppliedDefence:
    """The setting that an index now has, and its encoder."""

    setting: str
    folder: Path  # of the encoder, with its secret
    report: SwitchReport

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, with the report's fields beside them."""
        return {"setting": self.setting, "folder": str(self.folder), **self.report.as_dict()}


def defend(
    retriever: Retriever,
    setting: str,
    *,
    folder: str | Path | None = None,
    keep: bool = True,
    progress: OnProgress = ignore,
) -> AppliedDefence:
    """Write a defended encoder with a new secret, and switch the index to it. `Retriever.rollback` undoes it.

    :param setting: such as "rotation" or "noise=0.01".
    :param folder: of the encoder; the user's data folder by default. It must be outside the index and the indexed
        folders: it holds the secret.
    :param keep: whether the undefended vectors stay in the index for `rollback`; else they are erased.
    """
    defence_setting = defences.parse([setting])[-1]
    if defence_setting.kind == "none":
        raise InputError("'none' is no defence: there is nothing to put into service")
    check(retriever, folder)
    target = _target(folder, defence_setting.name.replace("=", "-"))
    vectors = search_cost.sample_passages(retriever.snapshot(), search_cost.Queries("", {}, {}), 0).vectors
    defence = defences.fit(defence_setting, vectors, secrets.token_bytes(SECRET_BYTES))
    encoder = save_defended_encoder(target, retriever.encoder, defence)
    try:
        report = retriever.switch(encoder, keep=keep, progress=progress)
    except BaseException:
        if not _has_vectors_of(retriever, encoder):
            shutil.rmtree(encoder)
        raise
    return AppliedDefence(defence_setting.name, encoder, report)


def _has_vectors_of(retriever: Retriever, encoder: Path) -> bool:
    """Whether any vector was embedded with an encoder's secret: an interrupted switch goes on with it later."""
    snapshot = retriever.snapshot()
    log = logged_vectors(snapshot.store.path / SWITCHING)
    return snapshot.head.encoder.model == str(encoder) or (log is not None and log.model == str(encoder))


def check(retriever: Retriever, folder: str | Path | None) -> None:
    """Check that a defence can be applied, before the long audit that chooses it.

    :raises InputError: when the folder cannot take a defended encoder, or the index has a defence already.
    :raises StoreError: when the index cannot be written.
    """
    if isinstance(retriever.encoder, DefendedEncoder):
        raise InputError(f"{retriever.path} has a defended encoder already: 'binocle rollback' brings its base back")
    snapshot = retriever.snapshot()
    check_own(snapshot)
    if folder is None:
        _check_writable(_encoders())
    else:
        target = expand_home(folder)
        _check_outside(retriever, target)
        check_free_folder(target)
        _check_writable(target)
    snapshot.store.check_trusted()
    with locked(snapshot.store.location):
        pass


def _check_outside(retriever: Retriever, target: Path) -> None:
    """Refuse a folder that goes wherever the vectors or the documents go."""
    path = target.resolve()
    if path.is_relative_to(retriever.path.resolve()):
        raise InputError(
            f"{target} is in the index, beside the vectors that its secret is to protect: name another folder"
        )
    for folder in retriever.folders:
        if path.is_relative_to(folder.resolve()):
            raise InputError(
                f"{target} is in the indexed folder {folder}, but holds a secret: name a folder outside of it"
            )


def _check_writable(target: Path) -> None:
    """Write a file into the nearest folder above that exists, and remove it again."""
    folder = target
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"{target} cannot be written ({error.strerror}): name another folder for the defended encoder"
        ) from None


def _target(folder: str | Path | None, name: str) -> Path:
    if folder is not None:
        return expand_home(folder)
    return _encoders() / f"{name}-{secrets.token_hex(4)}"


def _encoders() -> Path:
    return user_folder("DATA", "~/.local/share") / "binocle" / "encoders"
