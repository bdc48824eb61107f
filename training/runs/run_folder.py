"""The folder of an unfinished run inside its output folder."""

from __future__ import annotations

import shutil
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ...core.errors import InputError
from ...core.files import check_name, expand_home, write_atomic
from ...core.strict_json import strict_json
from ...retriever.documents.scan import is_index, scan

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS = "asked.json"  # settings of the run; a second call compares its own
RECIPE: ContextVar[str] = ContextVar("recipe", default="")  # content of the model's recipe.toml; "" for none
ORDER = 5  # version of the batches: raise it if the same settings draw others, because no run may mix versions


def check_out(out: Path, kind: str = "model") -> None:
    """:raises InputError: unless the output folder is missing, empty or holds an unfinished run."""
    check_name(out.resolve())
    nearest = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise InputError(f"{nearest} is a file: expected a folder for the {kind}")
    is_started = (folder_of(out) / SETTINGS).is_file()
    if not is_started and out.exists() and any(path != folder_of(out) for path in out.iterdir()):
        if finished_of(out).is_dir():
            refuse_finished(out, kind, finished_of(out))
        raise InputError(f"{out} is not empty: give another folder for the {kind}")


def refuse_finished(out: Path, kind: str, *remains: Path) -> NoReturn:
    """Delete the folders that a run left because it was killed once its model was in `out`.

    :raises InputError: always, since the model is there.
    """
    for folder in remains:
        shutil.rmtree(folder, ignore_errors=True)
    raise InputError(f"{out} holds the finished {kind} already: give another folder for a new one")


def check_outside(out: Path, *models: str | None) -> None:
    """:raises InputError: if the output folder is inside a model's: more files there would change its fingerprint."""
    for model in filter(None, models):
        folder = expand_home(model)
        is_model = any((folder / name).is_file() for name in ("config.json", "modules.json"))
        if is_model and out.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{out} is inside the model {model} and would change its fingerprint: give another folder")


def check_order(earlier: Mapping[str, Any], out: Path) -> None:
    """:raises InputError: if these settings are of an unfinished run with another order of the batches."""
    if earlier.get("order") != ORDER:
        raise InputError(
            f"{out} holds an unfinished run that an earlier version began: remove it or give another folder"
        )


def folder_of(out: Path) -> Path:
    """Return the folder of the run that writes to `out`."""
    return out / "run"


def finished_of(out: Path) -> Path:
    """Return the folder that a run becomes once its model is in `out`; a process that is killed then leaves it."""
    return out / ".finished-run"


def files_of(*sources: Any, leave_out: Path | None = None) -> list[tuple[str, int, int]]:
    """List path, size and modification time of each data file, so that a resumed run notices changed data.

    Of an index it lists the file that names its state.

    :param leave_out: the output folder, which may lie in a folder of documents.
    """
    files = []
    for source in sources:
        path = expand_home(source) if isinstance(source, (str, Path)) else None
        if path is not None and path.is_dir():
            files += _files_in(path, leave_out)
        elif path is not None and path.is_file():
            files.append(_version(path))
    return files


def _files_in(folder: Path, leave_out: Path | None) -> list[tuple[str, int, int]]:
    if is_index(folder):
        return [_version(file) for file in sorted(folder.glob("HEAD*.json"))]
    if (folder / "corpus.jsonl").is_file() or (folder / "_versions").is_dir():  # a collection or a Lance table
        parts = ("*.jsonl", "qrels/*", "_versions/*")
        return [_version(file) for file in sorted(file for part in parts for file in folder.glob(part))]
    entries = scan(folder, leave_out=leave_out)
    return [(str(folder / entry.path), entry.size, entry.mtime_ns) for entry in entries if not entry.reason]


def _version(file: Path) -> tuple[str, int, int]:
    return str(file), file.stat().st_size, file.stat().st_mtime_ns


def write_log(file: Path, history: list[dict[str, Any]]) -> None:
    """Write the whole history, one JSON object a line, so that a resumed run has each step once."""
    write_atomic(file, "".join(strict_json(_rounded(row)) + "\n" for row in history))


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}
