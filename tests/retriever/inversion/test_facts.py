"""The facts that a vector still tells of its text, whatever marks the tokenizer puts on words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from binocle.retriever.inversion.facts import RetainedFacts, retained_facts
from binocle.retriever.models.tokens.token_ids import EncoderTokens
from binocle.retriever.store.documents import stored_vector

TEXT = "We saw the cat and Geneva in 1998 with dogs"
WORDS = ("saw", "the", "cat", "and", "geneva", "1998", "with", "dogs")


class Oracle:
    """An inverter with a bag of given words, all equally likely."""

    def __init__(self, model: Path, *said: int) -> None:
        self.encoder = SimpleNamespace(name=str(model), encode=self._encode)
        self.tokens = EncoderTokens.of(self.encoder)
        self.said = list(said)
        self.kinds: list[str] = []

    def check(self, vectors):
        return vectors

    def _encode(self, texts, *, kind="document"):
        self.kinds.append(kind)
        return np.ones((len(texts), 2), np.float32)

    def bags(self, vectors):
        share = np.zeros((1, self.tokens.size), np.float32)
        share[0, self.said] = 1 / len(self.said)
        return SimpleNamespace(shares=share)


def trained(marks: str) -> Tokenizer:
    """A cased BPE that keeps the space before a word as a mark, by bytes (Ġ) or as SentencePiece does (▁)."""
    tokenizer = Tokenizer(models.BPE())
    if marks == "bytes":
        tokenizer.pre_tokenizer, tokenizer.decoder = (
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            decoders.ByteLevel(),
        )
    else:
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.train_from_iterator([TEXT, "Geneva geneva 12"], trainers.BpeTrainer(vocab_size=300, show_progress=False))
    return tokenizer


@pytest.fixture(scope="session")
def folders(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("tokenizers")
    for marks in ("bytes", "spaces"):
        shutil.copytree(tiny_model, root / marks)
        trained(marks).save(str(root / marks / "tokenizer.json"))
    return {"pieces": Path(tiny_model), "bytes": root / "bytes", "spaces": root / "spaces"}


@pytest.mark.parametrize("marks", ["pieces", "bytes", "spaces"])
def test_all_is_kept_of_a_text_whose_own_tokens_are_read_back(marks: str, folders: dict[str, Path]):
    inverter = Oracle(folders[marks])
    inverter.said = inverter.tokens([TEXT])[0]
    facts = retained_facts(TEXT, inverter)
    assert (facts.retained, facts.missing, facts.words) == (("1998", "geneva"), (), WORDS)


@pytest.mark.parametrize("marks", ["pieces", "bytes", "spaces"])
def test_what_is_not_read_back_is_lost(marks: str, folders: dict[str, Path]):
    inverter = Oracle(folders[marks])
    own, without = (inverter.tokens([text])[0] for text in (TEXT, TEXT.replace("Geneva ", "")))
    inverter.said = [token for token in own if token in without]
    facts = retained_facts(TEXT, inverter)
    assert (facts.retained, facts.missing) == (("1998",), ("geneva",))
    assert facts.words == tuple(word for word in WORDS if word != "geneva")


def test_a_name_is_kept_when_it_is_read_back_as_it_stands_in_one_place(folders: dict[str, Path]):
    inverter = Oracle(folders["bytes"])
    inverter.said = inverter.tokens([" Geneva"])[0]
    facts = retained_facts('saw "Geneva" in Geneva with', inverter)
    assert (facts.retained, facts.missing, facts.words) == (("geneva",), (), ("geneva",))


def test_tokens_have_the_places_of_the_text_where_lower_case_is_longer(tiny_model: str, tmp_path: Path):
    model = shutil.copytree(tiny_model, tmp_path / "model")
    (model / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64, "do_lower_case": True}))
    inverter = Oracle(model)
    inverter.said = inverter.tokens(["cat"])[0]
    assert retained_facts("the İİİİİ Cat ran to the Dog", inverter).retained == ("cat",)


def test_a_text_is_encoded_as_what_it_is(folders: dict[str, Path]):
    inverter = Oracle(folders["pieces"], 1)
    retained_facts(TEXT, inverter, kind="query")
    retained_facts(TEXT, inverter)
    assert inverter.kinds == ["query", "document"]


def test_a_search_reads_the_vectors_that_it_compares(run, tiny_model: str, tmp_path: Path, monkeypatch):
    from binocle import Retriever

    (tmp_path / "a.md").write_text("# Night\n\nThe moon and the ship.\n")
    retriever = Retriever.open(tmp_path, model=tiny_model)
    retriever.sync()
    read = []

    def reading(text, inverter, *, kind):
        read.append((text, kind))
        return RetainedFacts((), (), ())

    monkeypatch.setattr("binocle.retriever.inversion.facts.retained_facts", reading)
    monkeypatch.setattr("binocle.retriever.inversion.inverter.EmbeddingInverter.load", lambda *_, **__: None)
    for how in ([], ["--json"]):
        assert run("search", " moon\n", tmp_path, "--explain", "--inverter", tmp_path, *how).code == 0
    assert read == 2 * [("moon", "query"), (stored_vector(retriever.snapshot(), "a.md", 1)[1], "document")]
