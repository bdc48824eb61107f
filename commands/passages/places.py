"""Lead to the place of a hit: a link for the terminal, and the user's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ...core.printable import printable_path
from ...retriever.documents.file_parts import file_of, is_member
from ..background.kept import leave_to_a_process_of_its_own

if TYPE_CHECKING:
    from ...retriever.search.results.hit import Copy, Hit

_HEAD_BYTES = 8_192  # bytes to search for a NUL: a file with one is no text
_LINE_BEFORE = (  # +12 FILE
    *("vim", "vi", "nvim", "gvim", "view", "nano", "pico", "micro", "kak", "joe", "jed", "ne", "mg", "mcedit"),
    *("emacs", "emacsclient"),
)
_LINE_BEHIND = {  # FILE:12, after these options
    **dict.fromkeys(("code", "code-insiders", "codium", "cursor", "vscodium", "windsurf"), ("-g",)),
    **dict.fromkeys(("hx", "helix", "subl", "zed", "lapce"), ()),
}


def document_url(hit: Hit | Copy, root: Path | None) -> str:
    """The file:// address of a hit's document; "" if it is no file, or its path leads out of the folder."""
    file = _file(hit, root)
    return "" if file is None else file.as_uri()


def open_in_editor(hit: Hit, root: Path | None) -> None:
    """Start the user's editor at the first line of a hit, of the best part of a joined one, and wait for it.

    No shell reads the path.

    :raises InputError: when there is no editor, or the document is no text file below `root`, or gone.
    """
    leave_to_a_process_of_its_own()
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        editor = shlex.split(command)
    except ValueError as error:
        raise InputError(f"the editor {command!r} cannot be read as a command: {error}") from None
    if not editor:
        raise InputError("--open needs an editor: set the variable EDITOR, for example to nano or 'code --wait'")
    file = _file(hit, root)
    if file is not None and not is_member(file) and not file.exists():
        where = printable_path(str(file))
        raise InputError(f"--open: {where} is not there: it was removed after indexing, or its disk is not mounted")
    if file is None or not file.is_file() or not file.resolve().is_relative_to(root.resolve() if root else "/"):
        raise InputError(f"--open opens files of the indexed folder, and {printable_path(hit.path)!r} is none")
    with file.open("rb") as stream:
        if b"\0" in stream.read(_HEAD_BYTES):
            raise InputError(f"{printable_path(hit.path)!r} is no text that an editor shows")
    try:
        subprocess.run(editor_command(editor, file, hit.best.line_start), check=False)  # noqa: S603 - the user's own editor; no shell
    except OSError as error:
        raise InputError(f"cannot start the editor {editor[0]!r}: {error.strerror}") from None


def editor_command(editor: list[str], file: Path, line: int) -> list[str]:
    """The command that opens a file at a line in this editor; in an unknown editor, at the start.

    :param file: an absolute path, so that it is never read as an option.
    """
    name = Path(editor[0]).name.removesuffix(".exe")
    if name in _LINE_BEFORE:
        return [*editor, f"+{line}", str(file)]
    if name in _LINE_BEHIND:
        return [*editor, *_LINE_BEHIND[name], f"{file}:{line}"]
    return [*editor, str(file)]


def _file(hit: Hit | Copy, root: Path | None) -> Path | None:
    path = Path(file_of(hit.path))
    if hit.source != "file" or root is None or path.is_absolute() or ".." in path.parts or "\0" in hit.path:
        return None
    return root.resolve() / path
