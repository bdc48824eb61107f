"""Open a ZIP by its directory, and tell one that was cut so that only a ZIP inside it is whole."""

from __future__ import annotations

import zipfile
from io import BytesIO

_MARK, _END = b"PK\3\4", b"PK\5\6"


def open_zip(data: bytes) -> zipfile.ZipFile:
    """Open a ZIP by the directory at its end.

    :raises zipfile.BadZipFile: also when that is the directory of a ZIP inside it: after a cut it may be the last.
    """
    archive = zipfile.ZipFile(BytesIO(data))
    end = data.rfind(_END)
    said = int.from_bytes(data[end + 16 : end + 20], "little")  # where it says that its directory begins
    if data.startswith(_MARK) and said < archive.start_dir:
        raise zipfile.BadZipFile("it is cut: only a ZIP inside it is whole")
    return archive
