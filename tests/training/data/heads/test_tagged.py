"""Tagged texts are read from three layouts, and mistakes in them are named."""

from __future__ import annotations

import re

import pytest

from binocle.core.errors import InputError
from binocle.training.data.heads.tagged import TaggedText, read_tagged, read_texts


def test_marked_characters_end_where_their_words_do():
    token = {"tokens": ["a", "\u2068Jose\u0301\u2069", "\u00ad"], "tags": ["O", "B-P", "B-Q"]}
    entity = {"text": "a \u2068Jose\u0301\u2069", "entities": [{"label": "P", "start": 3, "end": 7}]}
    assert read_texts([token])[0].spans == (("P", 3, 8), ("Q", 10, 11))  # that one no tagger can mark
    assert read_texts([entity])[0].spans == (("P", 3, 8),)


def test_three_layouts_give_the_same_texts(tmp_path):
    (tmp_path / "a.conll").write_text("-DOCSTART- O\n\ninstall X O\nfoo X B-N\nbar X I-N\n\nbread X O\n", "utf-8")
    rows = [{"tokens": ["install", "foo", "bar"], "tags": ["O", "B-N", "I-N"]}, {"tokens": ["bread"], "tags": ["O"]}]
    texts = [
        {"text": "install foo bar", "entities": [{"label": "N", "start": 8, "end": 15}]},
        {"text": "bread", "entities": []},
    ]
    expected = [TaggedText("install foo bar", (("N", 8, 15),), "install foo bar"), TaggedText("bread", (), "bread")]
    for source in (tmp_path / "a.conll", rows, texts):
        assert read_tagged(source, 0.0, 10, 0).learned == expected


def test_tokens_of_conll_keep_their_characters(tmp_path):
    lines = ["New York\tNNP\tB-PLACE", "10\u00a0km O", "a\u2028b\x85c O\r", "is O"]
    (tmp_path / "a.conll").write_bytes("\n".join(lines).encode())
    text = "New York 10\u00a0km a\u2028b\x85c is"
    assert read_texts(tmp_path / "a.conll") == [TaggedText(text, (("PLACE", 0, 8),), text)]


def test_a_wrong_tag_of_conll_is_refused_with_its_own_line(tmp_path):
    (tmp_path / "a.conll").write_text("the O\n\ncat B-PET\nran X\nfar O\n")
    with pytest.raises(InputError, match=r"a\.conll:4: the tag 'X' is not BIO: expected O, B-NAME or I-NAME"):
        read_texts(tmp_path / "a.conll")


@pytest.mark.parametrize("text", ["The cat sat on the mat.\nIt slept.\n", "cat\nmat\n"])
def test_a_text_file_without_tags_says_what_was_expected(text, tmp_path, run):
    (tmp_path / "texts.txt").write_text(text)
    message = (
        f"{tmp_path}/texts.txt has no tagged words: expected a token and its tag (O, B-NAME or I-NAME) on each line, "
        "as in 'Paris B-PLACE'; other rows are in a .jsonl, .csv, .tsv or .parquet file"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        read_tagged(tmp_path / "texts.txt", 0.0, 10, 0)
    assert run("evaluate", tmp_path / "texts.txt").err == f"binocle: {message}\n"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["a"], "tags": []}, "row 1: expected a list of tokens and a list of as many tags"),
        ({"tokens": ["a"], "tags": ["X"]}, "the tag 'X' is not BIO"),
        ({"tokens": ["a"], "tags": ["B-"]}, "the tag 'B-' is not BIO"),
        ({"text": "a b"}, "expected tokens and tags, or a text"),
        ({"text": "a b", "entities": [{"label": "N", "start": 0}]}, "is no entity: expected label, start and end"),
        (
            {"text": "a b", "entities": [{"label": "N", "start": 1, "end": 2}]},
            "characters 1 to 2 of the text are no word",
        ),
        (
            {"text": "a b", "entities": [{"label": "N", "start": 0, "end": 9}]},
            "characters 0 to 9 of the text are no word",
        ),
        ({"text": "a b", "entities": [{"label": x, "start": 0, "end": 3} for x in "NM"]}, "overlaps another"),
        ({"text": "a b", "entities": []}, "the data have no marked name"),
    ],
)
def test_wrong_texts_are_named(row, message):
    with pytest.raises(InputError, match=message):
        read_tagged([row], 0.0, 10, 0)


@pytest.mark.parametrize("name", ["document_id", "doc_id", "group", "source_id"])
def test_texts_of_a_document_with_a_number_are_in_one_part(name):
    made = [{"tokens": ["Ann", str(number)], "tags": ["B-P", "O"], name: number // 10} for number in range(100)]
    texts = read_tagged(made, 0.2, 1_000, 0)
    learned, held_out = ({text.document for text in part} for part in (texts.learned, texts.held_out))
    assert learned | held_out == set(map(str, range(10))) and held_out and learned.isdisjoint(held_out)
    with pytest.raises(InputError, match=f"row 1: expected the name of a document in '{name}', but"):
        read_texts([made[0] | {name: [1]}])


def test_a_text_of_several_documents_is_not_in_both_parts():
    made = [{"tokens": ["Ann", str(number % 30)], "tags": ["B-P", "O"], "document_id": number} for number in range(60)]
    texts = read_tagged(made, 0.2, 1_000, 0)
    learned, held_out = ({text.text for text in part} for part in (texts.learned, texts.held_out))
    assert held_out and learned.isdisjoint(held_out)
    assert texts.left_out == 60 - len(texts.learned) - len(texts.held_out) > 0


def test_marked_characters_become_whole_words():
    def spans(*ends):
        entities = [{"label": "PET", "start": start, "end": end} for start, end in ends]
        return read_texts([{"text": "the cat sat, the dog-house", "entities": entities}])[0].spans

    assert spans((4, 8)) == spans((3, 7)) == spans((5, 6)) == spans((4, 7)) == (("PET", 4, 7),)
    assert spans((16, 19), (21, 24)) == (("PET", 17, 20), ("PET", 21, 26))
    with pytest.raises(InputError, match="at character 4 overlaps another, or cuts its word: expected at most one"):
        spans((4, 5), (6, 7))
