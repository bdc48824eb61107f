"""The search page: one file, and a policy under which a browser runs and loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

_FILE = Path(__file__).with_name("page.html")


def search_page() -> tuple[str, dict[str, str]]:
    """Return the page and its headers. Its one script and its one style sheet are named by their hashes."""
    text = _FILE.read_text("utf-8")
    script, style = (_hash_of(text, element) for element in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    )
    return text, {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}


def _hash_of(text: str, element: str) -> str:
    (content,) = re.findall(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
