"""Run Tesseract, which reads the text in a picture, and choose its languages. Only runs with `--ocr` do so.

Tesseract is a command of the system, in processes of its own that end with a limit. Smith, 2007, "An Overview of the
Tesseract OCR Engine".
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess

from ...core.errors import InputError, UnreadableError

COMMAND = "tesseract"
_LIST_SECONDS = 20
_NO_LANGUAGES = frozenset({"osd", "equ", "snum"})  # data that Tesseract lists, but reads no text with
_NAMES = {  # the two letters of a locale: Tesseract's name of the language
    "af": "afr", "ar": "ara", "be": "bel", "bg": "bul", "bn": "ben", "ca": "cat", "cs": "ces", "cy": "cym",
    "da": "dan", "de": "deu", "el": "ell", "es": "spa", "et": "est", "eu": "eus", "fa": "fas", "fi": "fin",
    "fr": "fra", "ga": "gle", "gl": "glg", "gu": "guj", "he": "heb", "hi": "hin", "hr": "hrv", "hu": "hun",
    "hy": "hye", "id": "ind", "is": "isl", "it": "ita", "ja": "jpn", "ka": "kat", "kn": "kan", "ko": "kor",
    "lt": "lit", "lv": "lav", "mk": "mkd", "ml": "mal", "mr": "mar", "ms": "msa", "nb": "nor", "ne": "nep",
    "nl": "nld", "nn": "nor", "no": "nor", "pa": "pan", "pl": "pol", "pt": "por", "ro": "ron", "ru": "rus",
    "sk": "slk", "sl": "slv", "sq": "sqi", "sr": "srp", "sv": "swe", "sw": "swa", "ta": "tam", "te": "tel",
    "th": "tha", "tr": "tur", "uk": "ukr", "ur": "urd", "vi": "vie", "zh": "chi_sim", "zh_HK": "chi_tra",
    "zh_TW": "chi_tra",
}  # fmt: skip


def choose_languages(choice: str = "", before: str = "") -> str:
    """Choose the languages to read pictures in, as Tesseract names them: "deu+eng".

    :param choice: the languages that the user names; "" to read in those of before, or else in that of the locale and
        in English.
    :param before: the languages of the last run, if any.
    :raises InputError: when Tesseract is not installed, or lacks one of them.
    """
    installed = _installed_languages()
    languages = str(choice or before or _default_languages(installed))
    for name in languages.split("+"):
        if name not in installed:
            raise InputError(
                f"OCR cannot read the language {name!r}: {COMMAND} has {', '.join(installed) or 'none'}; "
                "--ocr-language takes names such as deu+eng, and on Debian apt install tesseract-ocr-deu adds one"
            )
    return languages


def _default_languages(installed: list[str]) -> str:
    """The language of the locale, then English; all that are installed if neither is."""
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "").partition(".")[0]
    names = (_NAMES.get(locale) or _NAMES.get(locale.partition("_")[0]), "eng")
    return "+".join(dict.fromkeys(name for name in names if name in installed)) or "+".join(installed) or "eng"


def _installed_languages() -> list[str]:
    """The languages that Tesseract lists.

    :raises InputError: when it is not installed, or lists none.
    """
    if shutil.which(COMMAND) is None:
        raise InputError(
            f"OCR needs the command {COMMAND}, which is not installed: on Debian, apt install tesseract-ocr"
        )
    try:
        lines = b"\n".join(_run(["--list-langs"], b"", _LIST_SECONDS)).decode("utf-8", "replace").splitlines()
    except UnreadableError as error:
        raise InputError(f"OCR needs the command {COMMAND}, which does not list its languages: {error}") from None
    names = (line.strip() for line in lines)
    return [name for name in names if re.fullmatch(r"[\w/-]+", name) and name not in _NO_LANGUAGES]


def find_command() -> str:
    """The path of the command.

    :raises UnreadableError: when it is not installed.
    """
    command = shutil.which(COMMAND)
    if command is None:
        raise UnreadableError("Tesseract is not installed")
    return command


def recognize(picture: bytes, languages: str, seconds: float) -> str:
    """Return the text in a picture, as Tesseract sees it.

    :raises UnreadableError: when it is no picture, or takes too long.
    """
    text, _ = _run(["stdin", "stdout", "-l", languages], picture, seconds)
    return text.decode("utf-8", "replace").replace("\x0c", "\n")


def _run(arguments: list[str], data: bytes, seconds: float) -> tuple[bytes, bytes]:
    """Run Tesseract, and return its output with its messages: some versions write both to one stream.

    It has a session of its own, so that the limit also ends the processes that a wrapper of it started.

    :raises UnreadableError: when it takes too long or fails, with the first line that it says.
    """
    with subprocess.Popen(  # noqa: S603 - no argument comes from a file
        [find_command(), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_THREAD_LIMIT": "1"},  # as many run as there are readers
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(data, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise UnreadableError(f"Tesseract took longer than {seconds:.0f} s") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        lines = errors.decode("utf-8", "replace").split("\n")
        said = next((f": {line.strip()[:200]}" for line in lines if line.strip()), "")
        raise UnreadableError(f"Tesseract cannot read it as a picture{said}")
    return output, errors
