"""The prompts before queries and documents: a model folder names them, or the name of the model is known.

Models of E5 and BGE, among others, were trained with prompts that their folders do not name. Without them a search
finds less, and nothing says so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SEARCH = "Represent this sentence for searching relevant passages: "

# A pattern of the name on the hub, or of the folder -> the prompts for queries and for documents.
_PROMPTS = {
    r"(intfloat/)?(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?": ("query: ", "passage: "),
    r"(BAAI/)?bge-(small|base|large)-en(-v1\.5)?": (_SEARCH, ""),
    r"(BAAI/)?bge-(small|base|large)-zh(-v1\.5)?": ("为这个句子生成表示以用于检索相关文章：", ""),
    r"(mixedbread-ai/)?mxbai-embed-large-v1|(WhereIsAI/)?UAE-Large-V1": (_SEARCH, ""),
    r"(nomic-ai/)?(nomic-embed-text-v1(\.5)?|modernbert-embed-base)": ("search_query: ", "search_document: "),
}
_SNAPSHOT = re.compile(r"/models--([^/]+)--([^/]+)/snapshots/[^/]+$")  # in the hub's cache


def prompts_of(folder: Path, named: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """Return the prompts for queries and for documents.

    Models store the prompt for documents under one of three names.

    :param named: the prompts in the folder, by name. sentence-transformers writes empty ones for a model without any.
    """
    named = named or {}
    if not any(named.values()):
        return known_prompts(folder)
    document = next((named[name] for name in ("document", "passage", "corpus") if named.get(name)), "")
    return named.get("query") or "", document


def known_prompts(folder: Path) -> tuple[str, str]:
    """Return the prompts that the model of this name was trained with; empty ones if none are known.

    :param folder: of the model's name, or its snapshot in the hub's cache.
    """
    snapshot = _SNAPSHOT.search(folder.as_posix())
    name = f"{snapshot[1]}/{snapshot[2]}" if snapshot else folder.name
    return next((prompts for pattern, prompts in _PROMPTS.items() if re.fullmatch(pattern, name)), ("", ""))
