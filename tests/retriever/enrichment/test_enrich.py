"""Heads fill the metadata of documents: for filters and facets, in later syncs, and through a kill."""

from __future__ import annotations

import json
import math
import shutil
from unittest.mock import Mock

import numpy as np
import pytest

from binocle import InputError, Retriever
from binocle.retriever.enrichment import enrich as enriching
from binocle.retriever.enrichment.labellers import DocumentPassages
from binocle.retriever.models.bert.bert_encoder import BertEncoder
from binocle.retriever.models.heads.classifier import ProbeScorer, load_classifier
from binocle.retriever.store.stored_heads import read_heads
from binocle.training.heads.config import ClassifierConfig
from binocle.training.heads.train import train_classifier

PETS, FOOD = "cat dog queen king".split(), "bread cheese salt butter".split()


@pytest.fixture(scope="module")
def probe(tmp_path_factory, tiny_model):
    """A classifier that is linear on the vectors of the tiny encoder."""
    rows = [{"text": f"the {pet} ran {number}", "label": "pet"} for number in range(20) for pet in PETS]
    rows += [{"text": f"{food} in the oven {number}", "label": "food"} for number in range(20) for food in FOOD]
    folder = tmp_path_factory.mktemp("probe") / "out"
    train_classifier(rows, folder, base=tiny_model, config=ClassifierConfig(held_out=0.2))
    return folder


@pytest.fixture
def pets(tmp_path, tiny_model, write):
    """A folder with an index: a document about a pet, one about food, and one added with a key of its own."""
    folder = write(tmp_path / "docs", {"pet.md": "the dog ran 7\n", "food.md": "cheese in the oven 7\n"})
    with Retriever.open(folder, model=tiny_model) as retriever:
        retriever.sync()
        retriever.add([{"id": "added", "text": "the queen ran 3", "metadata": {"team": "a"}}])
        yield retriever


def test_a_probe_labels_without_encoding_and_filters_and_facets_take_the_labels(pets, probe, monkeypatch):
    expected = load_classifier(probe).classify(["the dog ran 7", "cheese in the oven 7"])

    def refuse(*_: object, **__: object):
        raise AssertionError("a text was encoded")

    monkeypatch.setattr(BertEncoder, "encode", refuse)
    assert pets.enrich({"topic": probe}).labelled == {"topic": 3}
    assert pets.facets("topic")["topic"].counts == (("pet", 2), ("food", 1))
    assert [record.id for record in pets.iterate("topic=food")] == ["food.md"]
    assert pets.get("pet.md").metadata["topic"] == expected[0].labels[0] == "pet"
    assert pets.get("added").metadata == {"team": "a", "topic": "pet"}
    (row,) = pets.status().labels
    assert row["counts"] == [["pet", 2], ["food", 1]] and row["waiting"] == 0 and row["model"] == str(probe)
    assert pets.enrich().labelled == {}


@pytest.mark.parametrize(
    ("source", "precision"),
    [
        *((["pet", "food"], value) for value in (1.0, 0, -1, True, math.nan, "x")),
        *((value, None) for value in (5, [], (), "", " ", None, ["a", 1], b"model")),
    ],
)
def test_a_wrong_precision_or_source_changes_nothing(pets, source, precision):
    before = pets.snapshot().head
    with pytest.raises(InputError, match="precision is the promised share|needs a model, or the names of labels"):
        pets.enrich({"topic": source}, precision=precision)
    assert pets.snapshot().head == before
    assert pets.enrich({"topic": ["pet", "food"]}).labelled == {"topic": 3}


def test_a_label_that_is_no_utf8_is_stored_with_a_replacement_and_later_files_get_it_too(pets):
    with pytest.raises(InputError, match="are no labels: expected at least two different ones"):
        pets.enrich({"kind": ["pet", " "]})
    assert read_heads(pets.location) == {}
    pets.enrich({"kind": ["a\ud800", "caf\udce9"]}, precision=0.01)
    counts = pets.facets("kind")["kind"].counts
    assert sum(count for _, count in counts) == 3 and {label for label, _ in counts} <= {"a\ufffd", "caf\ufffd"}
    file = pets.path / "heads.json"  # as an earlier version wrote it
    file.write_text(file.read_text("utf-8").replace("\\ufffd", "\\udce9"))
    (pets.folder / "new.md").write_text("the king ran 2\n")
    assert pets.sync().note == ""
    assert pets.get("new.md").metadata["kind"] in ("a\ufffd", "caf\ufffd")


def test_a_tagger_with_a_label_that_is_no_utf8_fills_a_key_that_is(pets, make_head, tmp_path):
    tagger = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-PET", "B-\ud800"])
    pets.enrich({"names": tagger})
    assert pets.get("pet.md").metadata.keys() == {"names.PET", "names.\ufffd"}
    assert pets.enrich().labelled == {}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--as", "mood=", "'mood=' has no labels: expected one such as 'kind=guide, news'"),
        ("--as", "=happy", "'=happy' has no key: expected one such as 'kind=guide, news'"),
        ("--head", "topic= ", "'topic= ' has no model: expected one such as topic=my-classifier"),
        ("--head", "topic", "'topic' has no key: expected one such as topic=my-classifier"),
    ],
)
def test_a_head_without_its_key_or_its_source_is_told_which_is_lacking(run, pets, option, value, message):
    refused = run("enrich", pets.folder, option, value)
    assert refused.code == 2 and message in refused.err


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # of torch and transformers about themselves
def test_a_classifier_with_a_tuned_encoder_encodes_the_passages_and_says_so(pets, probe, tiny_model, tmp_path, run):
    pytest.importorskip("accelerate")
    rows = [{"text": f"the {pet} ran {number}", "label": "pet"} for number in range(3) for pet in PETS]
    rows += [{"text": f"{food} in the oven {number}", "label": "food"} for number in range(3) for food in FOOD]
    config = ClassifierConfig(contrastive=True, held_out=0.0, bf16=False)
    tuned = train_classifier(rows, tmp_path / "tuned", base=tiny_model, config=config).folder
    shown = run("enrich", pets.folder, "--head", f"topic={tuned}", "--head", f"other={probe}")
    assert "each passage was encoded again for topic: the model takes no vectors" in shown.err
    assert pets.facets("topic")["topic"].counts == (("pet", 2), ("food", 1))
    report = pets.enrich({"kind": tuned, "more": probe})
    assert report.encoded == ["kind"] and pets.get("pet.md").metadata["kind"] == "pet"


def test_new_and_changed_files_get_labels_with_the_next_sync(pets, probe):
    pets.enrich({"topic": probe})
    (pets.folder / "pet.md").write_text("butter in the oven 9\n")
    (pets.folder / "new.md").write_text("the king ran 2\n")
    pets.add([{"id": "later", "text": "salt in the oven 3"}])
    assert pets.status().labels[0]["waiting"] == 1
    report = pets.sync()
    assert report.indexed == 2 and report.note == ""
    topics = {record.id: record.metadata["topic"] for record in pets.iterate()}
    assert topics == {"added": "pet", "food.md": "food", "later": "food", "new.md": "pet", "pet.md": "food"}
    assert pets.verify(deep=True).faults == []


def test_a_sync_without_the_model_says_so_and_indexes(pets, probe, tmp_path):
    copied = tmp_path / "copied"
    copied.mkdir()
    for file in probe.iterdir():
        if file.is_file():
            (copied / file.name).write_bytes(file.read_bytes())
    pets.enrich({"topic": copied})
    (copied / "probe.safetensors").unlink()
    (pets.folder / "new.md").write_text("the king ran 2\n")
    report = pets.sync()
    assert report.indexed == 1 and report.note.startswith("new documents got no 'topic': ")
    assert pets.status().labels[0]["waiting"] == 1


def test_a_head_without_its_model_keeps_no_other_from_labelling(pets, probe, tmp_path):
    copied = shutil.copytree(probe, tmp_path / "copied")
    pets.enrich({"first": copied, "topic": probe, "kind": ["animal", "meal"]})
    (copied / "probe.safetensors").unlink()
    (pets.folder / "new.md").write_text("the king ran 2\n")
    note = pets.sync().note
    assert note.startswith("new documents got no 'first': ") and "topic" not in note
    assert {label["key"]: label["waiting"] for label in pets.status().labels} == {"first": 1, "topic": 0, "kind": 0}
    assert pets.get("new.md").metadata["topic"] == "pet"


def test_a_probe_that_was_trained_again_labels_nothing_until_it_is_given_anew(pets, probe, tmp_path):
    copied = shutil.copytree(probe, tmp_path / "copied")
    pets.enrich({"topic": copied})
    settings = copied / "binocle.json"
    settings.write_text(settings.read_text("utf-8").replace('"pet"', '"animal"'), "utf-8")
    (pets.folder / "new.md").write_text("the king ran 2\n")
    report = pets.sync()
    assert report.indexed == 1 and f"'binocle enrich --head topic={copied}' labels all documents anew" in report.note
    before = read_heads(pets.location)
    for heads in ({}, {"kind": ["animal", "meal"]}):
        with pytest.raises(InputError, match="the model of 'topic' is another one now"):
            pets.enrich(heads)
    assert read_heads(pets.location) == before and pets.get("new.md").metadata == {}
    assert pets.facets("topic")["topic"].counts == (("pet", 2), ("food", 1))
    report = pets.enrich({"topic": copied})
    assert (report.removed, report.labelled) == ({"topic": 3}, {"topic": 4})
    assert pets.facets("topic")["topic"].counts == (("animal", 3), ("food", 1))


def test_a_head_given_anew_goes_on_where_a_killed_run_stopped(pets, monkeypatch):
    pets.enrich({"kind": ["animal", "meal"], "other": ["cat", "dog"]})
    for stage in ("_take_out", "_fill"):
        names = (f"pet {stage}", "food")
        with monkeypatch.context() as patch:
            patch.setattr(f"binocle.retriever.enrichment.enrich.{stage}", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                pets.enrich({"kind": names, "new": names})
        heads = read_heads(pets.location)
        assert heads["kind"].names == heads["new"].names == names
        assert pets.sync().note == ""
        heads = read_heads(pets.location)
        assert heads["kind"].names == names and heads["kind"].earlier_keys == ()
        assert {row["key"]: row["waiting"] for row in pets.status().labels} == {"kind": 0, "other": 0, "new": 0}
        assert all(record.metadata["kind"] in (*names, []) for record in pets.iterate())
        pets.enrich(remove=["new"])
    assert "earlier_keys" not in pets.location.read("heads.json")[0].decode()


def test_a_tagger_with_other_labels_writes_no_key_that_could_not_be_removed(pets, make_head, tmp_path):
    folder = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-PET", "B-ROOM"])
    pets.enrich({"names": folder})
    shutil.rmtree(folder)
    make_head(folder, "TokenClassification", ["O", "B-PET"])
    pets.add([{"id": "later", "text": "the king ran 3"}])
    assert "the model of 'names' is another one now" in pets.sync().note
    assert pets.get("later").metadata == {} and pets.status().labels[0]["waiting"] == 1
    pets.update(["later"], metadata={"names": "mine"})
    with pytest.raises(InputError, match="documents have a key 'names' already"):
        pets.enrich({"names": folder})
    pets.update(["later"], metadata={}, mode="replace")
    assert pets.enrich({"names": folder}).labelled == {"names": 4}
    assert pets.enrich(remove=["names"]).removed == {"names": 4}
    assert pets.get("pet.md").metadata == pets.get("later").metadata == {}


def test_labels_can_be_removed_and_a_head_replaced(pets, probe):
    pets.enrich({"topic": probe, "kind": ["animal", "meal"]})
    assert pets.enrich(remove=["topic"]).removed == {"topic": 3}
    assert pets.get("added").metadata.keys() == {"team", "kind"} and list(read_heads(pets.location)) == ["kind"]
    report = pets.enrich({"kind": probe})
    assert report.removed == {"kind": 0}, "it named none of the documents"
    assert report.labelled == {"kind": 3}
    assert pets.get("pet.md").metadata == {"kind": "pet"}
    with pytest.raises(InputError, match="no head fills 'topic': this index has kind"):
        pets.enrich(remove=["topic"])


def test_a_key_that_documents_or_filters_have_is_refused_and_nothing_changes(pets, probe, make_head, tmp_path):
    tagger = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-PET", "I-PET"])
    for key, message in (("team", "documents have a key 'team' already"), ("path", "'path' is no key"), ("", "no key")):
        with pytest.raises(InputError, match=message):
            pets.enrich({key: probe})
    with pytest.raises(InputError, match="are no labels"):
        pets.enrich({"kind": ["one"]})
    with pytest.raises(InputError, match="this tagger does not promise a precision of 0.9: it was not measured"):
        pets.enrich({"topic": tagger}, precision=0.9)
    assert read_heads(pets.location) == {} and pets.get("pet.md").metadata == {}


def test_a_run_that_is_killed_goes_on_where_it_stopped(pets, probe, monkeypatch):
    monkeypatch.setattr(enriching, "_PASSAGES", 1)
    rewrite, calls = enriching.rewrite_rows, []

    def killed(writer, rows):
        if calls:
            raise KeyboardInterrupt
        calls.append(rewrite(writer, rows))

    monkeypatch.setattr(enriching, "rewrite_rows", killed)
    with pytest.raises(KeyboardInterrupt):
        pets.enrich({"topic": probe})
    monkeypatch.setattr(enriching, "rewrite_rows", rewrite)
    with Retriever.open(pets.path) as again:
        assert again.status().labels[0]["waiting"] == 2
        assert again.enrich().labelled == {"topic": 2}
        assert {record.metadata["topic"] for record in again.iterate()} == {"pet", "food"}


def test_a_removal_that_is_killed_is_finished_by_the_next_sync(pets, probe, monkeypatch):
    pets.enrich({"topic": probe})

    def killed(*_: object):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(enriching, "rewrite_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            pets.enrich(remove=["topic"])
    pets.sync()
    assert pets.get("pet.md").metadata == {} and read_heads(pets.location) == {}


def test_an_update_keeps_labels_and_an_unchanged_document_keeps_its_own(pets, probe):
    document = {"id": "added", "text": "the queen ran 3", "metadata": {"team": "b"}}
    pets.enrich({"topic": probe})
    pets.update(["added"], metadata={"team": "b"}, mode="replace")
    assert pets.get("added").metadata == {"topic": "pet", "team": "b"}
    assert pets.add([document]).unchanged == 1
    assert pets.get("added").metadata["topic"] == "pet"


def test_a_tagger_fills_a_key_for_each_label(pets, make_head, tmp_path):
    tagger = make_head(tmp_path / "tagger", "TokenClassification", ["O", "B-PET", "I-PET", "B-ROOM", "I-ROOM"])
    assert pets.enrich({"names": tagger}).labelled == {"names": 3}
    metadata = pets.get("pet.md").metadata
    assert metadata.keys() == {"names.PET", "names.ROOM"}
    assert all(isinstance(names, list) and len(set(names)) == len(names) for names in metadata.values())
    pets.enrich(remove=["names"])
    assert pets.get("pet.md").metadata == {}


def test_a_long_document_has_the_class_of_its_mean_and_heads_from_a_stranger_are_read_with_care(pets, probe):
    pets.add([{"id": "long", "text": "\n\n".join(["the cat ran 1 " * 40] * 3 + ["salt in the oven 2 " * 40] * 9)}])
    pets.enrich({"topic": probe})
    record = pets.get("long", vectors=True)
    scorer = load_classifier(probe).scorer
    assert isinstance(scorer, ProbeScorer)
    snapshot = pets.snapshot()
    (number,) = [row["id"] for row in snapshot.document_rows.to_pylist() if row["path"] == "long"]
    passages = DocumentPassages.of(snapshot, np.array([number]), ["context"])
    logits = scorer.logits_of(record.vectors, passages.rows["context"].to_pylist()).mean(0)
    assert record.passages > 1 and record.metadata["topic"] == ("food", "pet")[int(np.argmax(logits))]
    file = pets.path / "heads.json"
    (row,) = json.loads(file.read_text("utf-8"))
    for wrong in (
        {"key": 3},
        {"model": ""},
        {"keys": []},
        {"keys": 1},
        {"keys": ["\ud800"]},
        {"names": ["a"]},
        {"precision": "x"},
        {"precision": 0},
        {"precision": 1.0},
        {"precision": 1.5},
        {"more": 1},
    ):
        file.write_text(json.dumps([row | wrong]))
        assert read_heads(pets.location) == {}
    file.write_text("[" * 100_000)
    assert read_heads(pets.location) == {}
    for precision in (0.01, 0.99, None):
        file.write_text(json.dumps([row | {"precision": precision}]))
        assert read_heads(pets.location)["topic"].precision == precision


def test_a_filter_on_a_key_with_empty_lists_only_passes_nothing(pets):
    pets.add([{"id": "a", "text": "salt", "metadata": {"tags": []}}])
    assert pets.count("tags=x") == 0 and pets.count("tags!=x") == 4
    assert pets.facets("tags")["tags"].counts == ()
