"""A thief who knows neither the encoder nor a pair: does he name the right encoder, and how much does he read?

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.inversion.unknown_encoder --scifact FILE --debian FILE --work DIR

The files are scifact's corpus.jsonl and Debian's package descriptions (.jsonl.gz). The vectors are of all-MiniLM-L6-v2;
the thief also suspects its transformer with CLS pooling, and with four of six layers. Texts have 32 tokens, 1,250 a
side and of different documents. F1 is of the stolen texts' tokens.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.models.load import load_encoder
from binocle.retriever.models.model_files import find
from binocle.retriever.models.tokens.token_ids import EncoderTokens
from binocle.training.audit import defences
from binocle.training.audit.attacks.unknown_encoder import Suspects
from binocle.training.inversion.metrics import overlap

from ..machine import save
from .alignment import TOKENS, documents, texts

if TYPE_CHECKING:
    from binocle.core.arrays import Floats

NAME = "all-MiniLM-L6-v2"
TEXTS = 1_250  # a side
READ = 300  # stolen texts
SETTINGS = ("none", "rotation", "noise=0.06", "pq=48")
RELATIVES = {"CLS pooling": (6, "cls"), "four layers": (4, "mean")}


def relative(work: Path, name: str) -> Path:
    """A folder with the encoder's weights, of fewer layers or with another pooling."""
    layers, pooling = RELATIVES[name]
    folder = work / name.replace(", ", "-").replace(" ", "-")
    shutil.copytree(find(NAME), folder, dirs_exist_ok=True)
    changes = {
        "config.json": {"num_hidden_layers": layers},
        "1_Pooling/config.json": {
            "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_mean_tokens": pooling == "mean",
        },
    }
    for file, fields in changes.items():
        config = json.loads((folder / file).read_text("utf-8")) | fields
        (folder / file).unlink()
        (folder / file).write_text(json.dumps(config), "utf-8")
    return folder


def measure(suspects: Suspects, vectors: Floats, stolen: list[str], tokens: EncoderTokens) -> dict[str, Any]:
    key, results = bytes(32), {}
    for setting in defences.parse(SETTINGS):
        changed = defences.fit(setting, vectors, key).documents(vectors, stolen).astype(np.float32)
        likeliest = suspects.likeliest(changed, tokens(stolen[-READ:]))
        results[setting.name] = {Path(suspect.encoder).name: suspect.as_dict() for suspect in likeliest}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("scifact", "debian", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = vars(parser.parse_args())
    encoder = load_encoder(NAME)
    relatives = [load_encoder(str(relative(options["work"], name))) for name in RELATIVES]
    tokens, results = EncoderTokens.of(encoder), {}
    for name, field in (("scifact", "text"), ("debian", "long")):
        cut = texts(encoder, list(documents(options[name], field)), 2 * TEXTS)
        own, stolen = cut[:TEXTS], cut[TEXTS:]
        suspects = Suspects([encoder, *relatives], own, tokens(own), TOKENS, seed=0)
        counts = np.bincount([token for row in tokens(own) for token in row])
        frequent = np.argsort(-counts, kind="stable")[:TOKENS].tolist()
        guessing = float(np.mean([overlap(row, frequent)[2] for row in tokens(stolen[-READ:])]))
        measured = measure(suspects, encoder.encode(stolen), stolen, tokens)
        results[name] = {"guessing, F1": round(guessing, 4), "settings": measured}
    save("unknown_encoder", results, seed=0)


if __name__ == "__main__":
    main()
