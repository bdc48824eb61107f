"""Texts from wherever they are kept."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from functools import partial

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from binocle.core.errors import InputError
from binocle.core.progress import Progress
from binocle.training.data.unlabelled_texts import documents, has_columns
from binocle.training.encoders.distill import distill
from binocle.training.encoders.teacher_scores import score
from binocle.training.encoders.train import train_encoder
from binocle.training.heads import train as heads
from binocle.training.inversion.train import train_inverter
from binocle.training.mining.mine import mine
from binocle.training.pretraining.pretrain import pretrain
from binocle.training.rerankers.train import train_reranker

TEXTS = ["The cat sat.", 'The dog ran,\nand was "late".', "Über allen"]


def lines(texts: list[str], name: str = "text") -> str:
    return "".join(json.dumps({"id": 1, name: text}) + "\n" for text in texts)


def test_a_folder_gives_its_documents_as_they_are_indexed(folder):
    found = list(documents([folder]))
    assert len(found) == 7  # hidden, ignored and binary files are passed over
    assert found[0].startswith("# A folder\n\nThe ship sails")
    assert any("Bake the bread in a hot oven." in text and "<p>" not in text for text in found)


def test_an_index_gives_what_was_read_from_its_documents(retriever):
    assert sorted(documents([retriever.path])) == sorted(documents([retriever.folder]))


def test_only_tables_have_columns(folder, retriever, tmp_path):
    (tmp_path / "a.jsonl.gz").touch()
    (tmp_path / "a.md").touch()
    lance.write_dataset(pa.table({"text": TEXTS}), tmp_path / "a.lance")
    sources = [folder, retriever.path, tmp_path / "a.md", tmp_path / "a.jsonl.gz", tmp_path / "a.lance", "owner/name"]
    assert list(map(has_columns, sources)) == [False, False, False, True, True, True]


def test_unreadable_files_are_told_and_left_out(folder, write):
    write(folder, {"broken.docx": "PK\x03\x04 not a document"})
    events: list[Progress] = []
    assert len(list(documents([folder], progress=events.append))) == 7
    assert events[-1].stage == f"left out: 1 file of {folder} that could not be read"


def test_the_documents_that_are_read_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("binocle.core.progress._INTERVAL", 0.0)
    (tmp_path / "texts.txt").write_text("one\ntwo\n", "utf-8")
    events: list[Progress] = []
    assert list(documents([tmp_path / "texts.txt"], progress=events.append)) == ["one", "two"]
    assert [event.message for event in events] == ["1 document read", "2 documents read"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz"])
def test_a_row_of_json_lines_is_a_document(tmp_path, name):
    data = lines(TEXTS).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert list(documents([tmp_path / name])) == TEXTS


def test_a_row_of_a_table_is_a_document(tmp_path):
    quoted = [text.replace('"', '""') for text in TEXTS]
    (tmp_path / "a.csv").write_text("id,text\n" + "".join(f'1,"{text}"\n' for text in quoted), "utf-8")
    pq.write_table(pa.table({"text": TEXTS, "id": [1, 2, 3]}), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        assert list(documents([tmp_path / name])) == TEXTS, name


def test_a_line_of_a_text_file_is_a_document_and_empty_ones_are_none(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n  \ntwo words\r\nthree", "utf-8")
    assert list(documents([tmp_path / "a.txt"])) == ["one", "two words", "three"]


def test_a_test_collection_gives_titles_and_texts(tmp_path):
    rows = [{"_id": "1", "title": "Wings", "text": "They lift."}, {"_id": "2", "text": "Alone."}]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert list(documents([tmp_path])) == ["Wings\nThey lift.", "Alone."]


def test_one_document_is_a_document(folder):
    (text,) = documents([folder / "web/bread.html"])
    assert "Bake the bread" in text


def test_a_document_is_known_by_the_last_ending_of_its_name(tmp_path):
    (tmp_path / "v1.txt.md").write_text("# Ships\n\nThey sail.\n", "utf-8")
    assert list(documents([tmp_path / "v1.txt.md"])) == ["# Ships\n\nThey sail.\n"]


def test_sources_come_one_after_another_and_the_same_each_time(tmp_path, folder):
    (tmp_path / "a.txt").write_text("one\ntwo\n", "utf-8")
    sources = [tmp_path / "a.txt", folder, str(tmp_path / "a.txt")]
    found = list(documents(sources))
    assert found[:2] == found[-2:] == ["one", "two"]
    assert found == list(documents(sources))


@pytest.mark.parametrize("name", ["text", "sentence", "content"])
def test_the_column_is_found_by_its_usual_names(tmp_path, name):
    (tmp_path / "a.jsonl").write_text(lines(TEXTS, name), "utf-8")
    assert list(documents([tmp_path / "a.jsonl"])) == TEXTS


def test_the_column_can_be_named(tmp_path):
    (tmp_path / "a.jsonl").write_text(lines(TEXTS, "long"), "utf-8")
    assert list(documents([tmp_path / "a.jsonl"], "long")) == TEXTS
    with pytest.raises(
        InputError, match=r"a.jsonl:1: expected a column 'text', but the columns are 'id', 'long': say which"
    ):
        list(documents([tmp_path / "a.jsonl"]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lines(["a"]) + '{"text": 5}\n', r"a.jsonl:2: expected a text in 'text', but 5 came"),
        (lines(["a"]) + '{"id": 5}\n', r"a.jsonl:2: expected a text in 'text', but the columns 'id' came"),
        (lines(["a"]) + "text\n", r"a.jsonl:2 is not JSON"),
        (lines(["a"]) + "[1]\n", r"a.jsonl:2: expected an object"),
    ],
)
def test_a_row_without_a_text_is_told_with_its_line(tmp_path, data, message):
    (tmp_path / "a.jsonl").write_text(data, "utf-8")
    with pytest.raises(InputError, match=message):
        list(documents([tmp_path / "a.jsonl"]))


def test_what_is_not_there_is_told(tmp_path):
    for source in (tmp_path / "gone", "gone", "gone.jsonl"):
        with pytest.raises(InputError, match=f"there is no file or folder {source}"):
            list(documents([source]))


def test_a_document_without_text_is_told(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\0\1\2\0" * 100)
    with pytest.raises(InputError, match="a.bin gives no text"):
        list(documents([tmp_path / "a.bin"]))


def test_a_large_file_is_read_in_bounded_memory(tmp_path):
    row = json.dumps({"text": "word " * 200}) + "\n"
    with (tmp_path / "a.jsonl").open("w") as stream:
        stream.writelines(row for _ in range(60_000))  # 60 MB
    program = (
        "import resource, sys\nfrom binocle.training.data.unlabelled_texts import documents\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "count = sum(1 for _ in documents(sys.argv[1:]))\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "a.jsonl"], capture_output=True, text=True, check=True
    )
    count, kilobytes = map(int, done.stdout.split())
    assert count == 60_000
    assert kilobytes < 20_000


def test_a_table_is_one_whatever_the_case_of_its_name(tmp_path):
    (tmp_path / "A.TXT").write_text("one\ntwo\n", "utf-8")
    (tmp_path / "B.CSV").write_text("text\nthree\nfour\n", "utf-8")
    assert list(documents([tmp_path / "A.TXT", tmp_path / "B.CSV"])) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("data", [None, 5, b"data.jsonl", [None]])
def test_what_is_no_data_is_told_by_every_trainer_and_leaves_no_folder(data, tmp_path, tiny_model):
    pytest.importorskip("datasets")
    for attempt in (
        partial(heads.train_classifier, data, base=tiny_model),
        partial(heads.train_tagger, data, base=tiny_model),
        partial(heads.train_reader, data, base=tiny_model),
        partial(train_encoder, data, base=tiny_model),
        partial(train_reranker, data, base=tiny_model),
        partial(train_inverter, data, encoder=tiny_model),
        partial(pretrain, data, base=tiny_model),
        partial(distill, tiny_model, texts=data, layers=1),
        partial(mine, data, model=tiny_model),
        partial(score, data, models=[tiny_model]),
    ):
        with pytest.raises(InputError, match=r"^(expected|row 1: expected) [^\n]*not "):
            attempt(out=tmp_path / "out.jsonl")
        assert not list(tmp_path.iterdir())
