"""Plain text: encodings, tables, JSON, and lines of encoded data."""

from __future__ import annotations

import base64
import json
import random

import pytest

from binocle.retriever.readers import UnsupportedError, read

from ..sample_files import outline, reading


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_unicode_is_read_in_every_encoding(encoding: str) -> None:
    text = "Grüße from the second line\nand 日本語 too\n"
    assert reading(text.encode(encoding), "a.txt").text == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Le café était fermé à Noël — “enfin”."),
        ("cp1252", "naïve"),
        ("cp1252", "Smørrebrød på bordet"),
        ("latin-1", "El niño comió piña en España"),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy"),
        ("iso8859_2", "Zażółć gęślą jaźń"),
        ("cp1251", "Привет, мир. Это проверка кодировки текста."),
        ("koi8_r", "Привет, мир. Это проверка кодировки текста."),
        ("cp1253", "Αυτό είναι ένα δοκιμαστικό κείμενο"),
        ("cp1254", "Şu köşe yaz köşesi, şu köşe kış köşesi"),
        ("cp1255", "זהו קובץ בדיקה בעברית"),
        ("cp1256", "هذا ملف اختبار باللغة العربية"),
        ("cp874", "นี่คือไฟล์ทดสอบภาษาไทย"),
        ("cp932", "名前,年齢,住所\n佐藤太郎,30,東京\n"),
        ("euc_jp", "これは日本語の文章です。"),
        ("iso2022_jp", "これは日本語の文章です。"),
        ("gb18030", "这是一个中文测试文件。"),
        ("big5", "這是一個中文測試檔案。"),
        ("euc_kr", "이것은 한국어 시험 문서입니다."),
        ("mac_roman", "Le café était fermé à Noël."),
    ],
)
def test_a_legacy_code_page_is_recognised(encoding: str, text: str) -> None:
    assert reading(text.encode(encoding), "a.txt").text == text


def test_a_declared_charset_is_used_when_the_bytes_are_valid_in_it() -> None:
    source = "# -*- coding: cp1251 -*-\n# ЁЁ\n"
    assert reading(source.encode("cp1251"), "a.py").text == source
    html = '<meta charset="koi8-r"><p>ЁЁ</p>'
    assert reading(html.encode("koi8-r"), "a.html").text == "ЁЁ"


def test_a_declaration_in_another_charset_than_it_names_is_ignored() -> None:
    page = '<html><head><meta charset="utf-16"></head><p>Grüße aus Köln</p></html>'
    assert reading(page.encode("cp1252"), "a.html").text == "Grüße aus Köln"


def test_utf_8_with_a_bad_byte_stays_utf_8() -> None:
    data = "é".encode() * 200 + b"\xff" + b" ende"
    assert reading(data, "a.txt").text == "é" * 200 + "\ufffd ende"


@pytest.mark.parametrize("prefix", ["", "a" * 5_000])
@pytest.mark.parametrize(("letters", "is_utf_8"), [(19, False), (20, True)])
def test_a_bad_byte_in_utf_8_needs_twenty_good_letters_before_it(prefix: str, letters: int, is_utf_8: bool) -> None:
    # The letters before the bad byte count too, in a text that goes on in ASCII.
    data = (prefix + "é" * letters).encode() + b"\xe9" + b" ende" * 1_000
    expected = data.decode("utf-8", "replace") if is_utf_8 else data.decode("cp874")
    assert reading(data, "a.txt").text == expected


def test_a_script_with_an_archive_behind_it_is_binary() -> None:
    script = b"#!/bin/sh\n" + b"echo hello world this is a script\n" * 300
    with pytest.raises(UnsupportedError, match="binary file"):
        read(script + random.Random(1).randbytes(30_000), "install.sh")
    assert reading(script + "échec\n".encode("cp1252"), "install.sh").text.endswith("échec\n")


def test_newlines_are_normalised_and_the_text_can_always_be_encoded() -> None:
    assert reading(b"\xef\xbb\xbfa\r\nb\n\0d", "a.txt").text == "a\nb\n\ufffdd"
    assert reading(b"a\rb\r\rc", "a.txt").text == "a\nb\n\nc"
    assert reading(b"\xff\xfe\x00\xd8a\x00b\x00", "a.txt").text.encode()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", "First\n\nDampf\xadschiff".encode()),
        ("a.txt", "First\n\nDampf\xadschiff für Übungen".encode("cp1252")),
        ("a.md", "# Com\xadpressor\n\nDampf\xadschiff".encode()),
        ("a.json", b'{"First": 1,\n\n"name": "Dampf\\u00adschiff"}'),
    ],
)
def test_a_soft_hyphen_splits_no_word_and_moves_no_line(name: str, data: bytes) -> None:
    document = reading(data, name)
    assert "Dampfschiff" in document.text.splitlines()[2]
    assert document.parts[-1].end == len(document.text)
    assert document.title in {"", "Compressor"}


def test_a_line_that_is_written_over_counts_once() -> None:
    document = reading(b"downloading 1%\rdownloading 99%\ntwo\r\r\nERROR disk full\n", "build.log")
    assert document.text == "downloading 1% downloading 99%\ntwo \nERROR disk full\n"
    assert document.line_at(document.text.index("ERROR")) == 3


def test_a_part_begins_at_the_first_line_with_text() -> None:
    document = reading("\n\n  first\nsecond\n\n", "a.txt")
    assert outline(document) == [((), 3, "prose", "  first\nsecond")]


@pytest.mark.parametrize(
    "stamp",
    [
        *(
            "2015-07-29 19:30:34,221 - ",
            "2024-01-02T10:00:00Z ",
            "081109 203615 ",
            "- 1117838570 2005.06.03 ",
            "12:34:56 ",
        ),
        *(
            "[Sun Dec 04 04:47:44 2005] ",
            "Dec 10 06:55:46 ",
            "Jul  1 09:00:55 ",
            "17/06/09 20:10:40 ",
            "03-17 16:13:38.811 ",
        ),
        *("[12.03.21, 10:15] Ann: ", "1/2/21, 9:05 - Ann: ", "[10.30 16:49:06] ", "20171223-22:15:29:606|"),
    ],
)
def test_a_log_is_cut_between_its_lines(stamp: str) -> None:
    document = reading("\n".join([f"{stamp}it began: now", f"{stamp}it failed", "\tat line 7", f"{stamp}end"]), "a.log")
    assert [(kind, line) for _, line, kind, _ in outline(document)] == [("table", 1)]


@pytest.mark.parametrize(
    "text",
    [
        "On 3 May 2020 we met\nand at 10:15 we\nleft the house in\n2020 for good\n",
        "1. one\n2. two\n3. three\n4. four\n",
        "numpy==1.11.1\npandas==0.18.1\nscipy==0.17.1\n",
        "2010, 2011 Ann\n2012, 2013 Bob\n2014-2015 Eve\n",
        "2024-01-02 10:00 one line\n",
    ],
)
def test_other_texts_are_prose(text: str) -> None:
    assert [kind for _, _, kind, _ in outline(reading(text, "a.txt"))] == ["prose"]


@pytest.mark.parametrize("data", [b"", b" \n\t\n", b"\xef\xbb\xbf", b"\xe2\x80\x83\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.csv", "a.json", "a"])
def test_an_empty_text_gives_a_document_without_parts(data: bytes, name: str) -> None:
    assert reading(data, name).parts == ()


@pytest.mark.parametrize(
    ("name", "language"),
    [("Makefile", "make"), ("x/CMakeLists.txt", "cmake"), ("a.RS", "rust"), ("b.tsx", "typescript")],
)
def test_source_code_is_one_part_of_code(name: str, language: str) -> None:
    document = reading("\n    first:\n\tsecond\n", name)
    assert document.format == language
    assert outline(document) == [((), 2, "code", "    first:\n\tsecond")]


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ('"Name, first";"City, country, zip";Note\nAnn;Bern;x\n', "Name, first, City, country, zip, Note"),
        ('"Unit\nprice",Quantity\n3,4\n', "Unit price, Quantity"),
    ],
)
def test_quotes_in_the_header_of_a_csv_may_hold_other_delimiters_and_line_breaks(table: str, names: str) -> None:
    assert [(part.line, part.heading) for part in reading(table, "a.csv").parts] == [(1, (names,))]


def test_a_csv_part_carries_its_header() -> None:
    document = reading("name;age\nAda;36\nBob;41\n", "a.csv")
    assert outline(document) == [(("name, age",), 1, "table", "name;age\nAda;36\nBob;41")]
    assert reading("1,2\n3,4\n", "a.csv").parts[0].heading == ()
    assert len(reading(",".join(f"column {i}" for i in range(90)) + "\n1\n", "a.csv").parts[0].heading[0]) <= 200


def test_json_escapes_are_written_out_where_lines_stay_true() -> None:
    source = r'{"a": "caf\u00e9 \ud83e\udd86 \ud800 \u000a \u0022 \\u00e9 \u0041"}'
    assert reading(source, "a.json").text == '{"a": "café 🦆 \ufffd \\u000a \\u0022 \\\\u00e9 A"}'
    assert json.loads(reading(source, "a.json").text)["a"][:6] == "café 🦆"
    assert reading('{"a": 1}\n{"a": 2}\n', "a.jsonl").parts[0].kind == "table"


def test_json_under_a_text_name_is_json() -> None:
    assert reading('[{"a": "caf\\u00e9"}]', "a.txt").format == "json"
    assert reading("[not json]", "a.txt").format == "text"


def encoded_lines(count: int, *, seed: int = 0) -> str:
    return base64.encodebytes(random.Random(seed).randbytes(57 * count)).decode()


@pytest.mark.parametrize("around", ["{}", "-----BEGIN KEY-----\n{}-----END KEY-----\n", "key: |\n  {}"])
def test_lines_of_encoded_data_are_left_out_and_counted(around: str) -> None:
    data = encoded_lines(20) + "c2hvcnQgb25l\n"
    source = f"Before.\n{around.format(data)}Regards\nafter"
    document = reading(source, "a.txt")
    assert document.text.split("\n")[-2:] == ["Regards", "after"]
    assert document.text.count("\n") == source.count("\n")
    assert "…" in document.text
    assert len(document.text) < 150
    assert document.metadata["unread"].startswith("1,55")


def test_parts_keep_their_lines_behind_encoded_data() -> None:
    picture = "![](data:image/png;base64," + encoded_lines(20).replace("\n", "") + ")"
    document = reading(f"# A\n\n{picture}\n\n```\n{encoded_lines(9)}```\n\n# B\n\nend\n", "a.md")
    assert [(part.line, part.heading) for part in document.parts] == [(1, ("A",)), (5, ("A",)), (17, ("B",))]
    assert document.text.startswith("# A\n\n![](data:image/png;base64,…)\n\n```\n…\n")
    assert document.text[document.parts[-1].start :] == "# B\n\nend\n"


def test_a_file_of_encoded_data_alone_has_no_text() -> None:
    assert reading(encoded_lines(40), "a.txt").parts == ()


@pytest.mark.parametrize(
    "text",
    [
        "".join(random.Random(i).randbytes(32).hex() + "\n" for i in range(30)),  # a list of SHA-256 sums
        "".join("".join(random.Random(i).choices("ACGT", k=70)) + "\n" for i in range(30)),
        "x" * 5_000,
        "an ordinary sentence of a book, with words\n" * 50,
        "".join(f"Test_CreateOrder_Version2_WithCustomer100{i}_And3Items_ReturnsStatus201Created\n" for i in range(9)),
        encoded_lines(2),
    ],
)
def test_what_only_resembles_encoded_data_is_kept(text: str) -> None:
    assert reading(text, "a.txt").text == text


def test_escapes_of_properties_are_letters() -> None:
    document = reading("greeting=Gr\\u00fc\\u00DFe\\n\nkey\\:a=\\u0041\\u3042\n", "messages_de.properties")
    assert (document.text, document.format) == ("greeting=Grüße\\n\nkey\\:a=Aあ\n", "properties")
