"""The metadata of a model card for the Hugging Face hub: a YAML header, and an example of use.

The header's fields are those of huggingface.co/docs/hub/model-cards. JSON is YAML too, so its values are written so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import BinocleError
from ...core.printable import json_text, printable, shell_word
from ...retriever.models.model_files import DEFAULT_MODEL, find

if TYPE_CHECKING:
    from .model_card import Card

_KINDS = {  # of a card: library, task, other tags
    "encoder": ("sentence-transformers", "sentence-similarity", ("sentence-transformers", "feature-extraction")),
    "reranker": ("sentence-transformers", "text-ranking", ("sentence-transformers", "cross-encoder")),
    "masked": ("transformers", "fill-mask", ()),
    "inverter": ("binocle", "feature-extraction", ()),
    "classifier": ("binocle", "text-classification", ()),
    "reader": ("transformers", "question-answering", ()),
    "tagger": ("transformers", "token-classification", ()),
}
_USAGE = {
    "encoder": """```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({name})
queries = model.encode_query(["a question"])
documents = model.encode_document(["a passage", "another one"])
print(model.similarity(queries, documents))
```

Or search a folder with it: `binocle index FOLDER --model {word}`.""",
    "reranker": """```python
from sentence_transformers import CrossEncoder

print(CrossEncoder({name}).rank("a question", ["a passage", "another one"]))
```

Or rerank a search with it: `binocle search QUERY FOLDER --rerank {word}`.""",
    "masked": """```python
from transformers import pipeline

print(pipeline("fill-mask", {name})("a text with a [MASK]"))
```

Or train an encoder from it: `binocle train encoder DATA --base {word} --out DIR`.""",
    "reader": """```python
from transformers import pipeline

print(pipeline("question-answering", {name})(question="a question", context="a passage"))
```""",
    "classifier": "`binocle classify FILE --model {word}` names the class of each text.",
    "tagger": "`binocle tag FILE --model {word}` marks the names in each text.",
    "inverter": "`binocle invert TEXT --inverter {word}` shows how much of a text its vector gives away.",
}
_LICENSES = {DEFAULT_MODEL: "apache-2.0"}
_HUB_NAME = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)
_AFTER = ("after", "student", "reranked")  # training


def header(card: Card, name: str) -> list[str]:
    """Return the lines of the YAML header.

    :param name: of the model.
    """
    library, task, tags = _KINDS[card.kind]
    fields: dict[str, Any] = {
        "library_name": library,
        "pipeline_tag": task,
        "tags": ["binocle", *tags],
        "base_model": card.base if _is_hub_name(card.base) else None,
        "datasets": card.data.get("datasets"),
        "license": _license(card.base),
        "model-index": [{"name": printable(name), "results": _results(card, task)}] if _results(card, task) else None,
    }
    lines = [f"{key}: {json_text(value)}" for key, value in fields.items() if value]
    return ["---", *lines, "---"]


def usage(card: Card, name: str) -> str:
    """Return an example of the model's use, in Markdown."""
    forms = {"name": json_text(name), "word": shell_word(name)}
    return re.sub(r"\{(name|word)\}", lambda match: forms[match[1]], _USAGE[card.kind])


def _is_hub_name(base: str) -> bool:
    return bool(_HUB_NAME.fullmatch(base)) and not Path(base).exists()


def _license(base: str) -> str | None:
    """Return the license of the base model, which its derivative inherits; None if its folder names none."""
    if base in _LICENSES:
        return _LICENSES[base]
    try:
        text = (find(base) / "README.md").read_text("utf-8")
    except (BinocleError, OSError, ValueError):
        return None
    head = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    line = head and re.search(r'^license: *"?([a-z0-9.-]{2,40})"?$', head[1], re.MULTILINE)
    return line[1] if line else None


def _results(card: Card, task: str) -> list[dict[str, Any]]:
    """Return the measures of the finished model, each on its data."""
    source = printable(str(card.data.get("source", "its data")))
    return [
        {
            "task": {"type": task},
            "dataset": {"name": f"{source}, {row.get('on', 'held-out rows')}", "type": source},
            "metrics": [{"type": row["name"], "name": row["name"], "value": round(row["value"], 4)}],
        }
        for row in card.measures
        if row.get("when") in _AFTER
    ]
