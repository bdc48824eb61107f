"""Calendars, contacts and translations: values are whole again, with the lines of the file; and subtitles."""

from __future__ import annotations

import pytest

from binocle.retriever.documents.document import LineCounter

from ..sample_files import outline, reading

CALENDAR = """BEGIN:VCALENDAR
X-WR-CALNAME:Team\\, Berlin
BEGIN:VEVENT
DTSTART;TZID="Europe/Berlin":20260314T090000
DESCRIPTION:Agenda\\nThursday\\, July 12\\n\\nThis will be a joi
 nt meetup of ev\\
 neryone
SUMMARY;ALTREP="cid:1":Budget re
 view
BEGIN:VALARM
ACTION:DISPLAY
END:VALARM
ATTENDEE;CN="Smith: Ann":mailto:ann@example.org
END:VEVENT
END:VCALENDAR
"""


def test_an_event_is_below_its_summary_and_its_values_are_whole() -> None:
    event = ("Team, Berlin", "Budget review")
    assert outline(reading(CALENDAR.replace("\n", "\r\n"), "a.ics")) == [
        (event[:1], 1, "prose", "BEGIN:VCALENDAR\nX-WR-CALNAME:Team, Berlin"),
        (event, 3, "prose", 'BEGIN:VEVENT\nDTSTART;TZID="Europe/Berlin":20260314T090000\nDESCRIPTION:Agenda'),
        (event, 5, "prose", "Thursday, July 12"),
        (event, 5, "prose", "This will be a joint meetup of ev"),
        (event, 7, "prose", 'eryone\nSUMMARY;ALTREP="cid:1":Budget review'),
        (event, 10, "prose", 'BEGIN:VALARM\nACTION:DISPLAY\nEND:VALARM\nATTENDEE;CN="Smith: Ann":mailto:ann@example.org\nEND:VEVENT'),
        (event[:1], 15, "prose", "END:VCALENDAR"),
    ]  # fmt: skip


def test_components_that_do_not_end_have_headings_of_a_limited_depth() -> None:
    document = reading("BEGIN:VEVENT\nSUMMARY:x\n" * 100, "a.ics")
    assert max(len(part.heading) for part in document.parts) == 16


def test_a_fold_within_the_bytes_of_a_letter_is_taken_out() -> None:
    data = "SUMMARY:Bücher für Käthe".encode()
    cut = data.index(b"\xa4")
    assert reading(data[:cut] + b"\r\n " + data[cut:], "a.ics").text == "SUMMARY:Bücher für Käthe"


def test_contacts_have_their_names_as_headings_and_no_pictures() -> None:
    picture = "".join(f"  {'9Xk2AbQ7zR' * 7}\n" for _ in range(20))
    text = (
        "BEGIN:VCARD\nFN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:J=C3=B6rg M=C3=\n=BCller\n"
        f"item1.TEL;HOME:+49 30\nPHOTO;ENCODING=BASE64:\n{picture}\nEND:VCARD\nBEGIN:VCARD\nFN:Ann\nEND:VCARD\n"
    )
    document = reading(text, "a.vcf")
    assert document.metadata == {"unread": "1,400 characters of encoded data left out"}
    assert document.text == (
        "BEGIN:VCARD\nFN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:Jörg Müller\nitem1.TEL;HOME:+49 30\n"
        "PHOTO;ENCODING=BASE64:…\nEND:VCARD\nBEGIN:VCARD\nFN:Ann\nEND:VCARD"
    )
    lines = LineCounter(document)
    found = {heading: lines.at(document.text.index(heading)) for heading in ("Jörg", "+49", "Ann")}
    assert found == {"Jörg": 2, "+49": 4, "Ann": 29}
    assert {part.heading for part in document.parts} == {("Jörg Müller",), ("Ann",)}


def test_each_line_of_a_note_in_quoted_printable_is_on_its_line_of_the_file() -> None:
    text = (
        "BEGIN:VCARD\nNOTE;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:call=0D=0A=\nJ=C3=\n=B6rg soon=0D=0A=\n=0D=0A=\n"
        "at home\nTEL:1\nEND:VCARD\n"
    )
    document = reading(text, "a.vcf")
    lines = LineCounter(document)
    starts = {word: lines.at(document.text.index(word)) for word in ("call", "Jörg", "at home", "TEL", "END")}
    assert starts == {"call": 2, "Jörg": 3, "at home": 6, "TEL": 7, "END": 8}
    assert document.line_at(document.text.index("soon") + 3) == 4


@pytest.mark.parametrize("charset", ["idna", "undefined", "zlib", "rot13", "no-such-charset"])
def test_a_note_in_no_charset_costs_no_other_line(charset: str) -> None:
    document = reading(f"NOTE;CHARSET={charset};QUOTED-PRINTABLE:J=C3=B6rg calls\nFN:Ann\n", "a.vcf")
    assert document.text == f"NOTE;CHARSET={charset};QUOTED-PRINTABLE:Jörg calls\nFN:Ann"


@pytest.mark.parametrize("sign", ["\v", "\f", "\x85", "\u2028", "\u2029"])
def test_only_a_newline_ends_a_line_of_a_file(sign: str) -> None:
    for name, text in {
        "a.ics": f"SUMMARY:one{sign}two\n{sign}three\nUID:four\n",
        "a.html": f"<p>one{sign}two\n<p>{sign}three\n<p>four\n",
    }.items():
        document = reading(text, name)
        lines = LineCounter(document)
        assert [lines.at(document.text.index(word)) for word in ("one", "two", "three", "four")] == [1, 1, 2, 3]


def test_a_message_of_a_translator_is_one_text_again() -> None:
    text = (
        '# a note\nmsgid ""\nmsgstr ""\n"Language: de\\n"\n"MIME-Version: 1.0\\n"\n\n'
        '#: a.rst:3\nmsgid ""\n"Calling a \\"corou"\n"tine\\" here"\nmsgstr[0] "Hier\\t\\\\n"\n\n#~ msgid "old"\n'
    )
    document = reading(text, "a.po")
    assert document.text == (
        '# a note\nmsgid ""\nmsgstr "Language: de\n\nMIME-Version: 1.0"\n\n'
        '#: a.rst:3\nmsgid "Calling a "coroutine" here"\n\n\nmsgstr[0] "Hier\t\\n"\n\n#~ msgid "old"\n'
    )
    assert document.text.count("\n") == text.count("\n")


def test_a_line_of_a_message_is_on_its_line_of_the_file() -> None:
    text = 'msgid ""\n"a b "\n"c\\n"\n"d "\n"e\\n"\nmsgstr "one\\ntwo"\n'
    assert reading(text, "a.po").text == 'msgid "a b c\n\n\nd e"\n\nmsgstr "one\\ntwo"\n'


def test_the_words_of_a_subtitle_have_no_tags() -> None:
    text = (
        "WEBVTT\n\n00:01.000 --> 00:04.000 align:start\n<v.loud Ann Smith>we<00:00:01.480><c.yellow> are</c> <i>here</i>"
        " &amp; a &lt; b\n"
    )
    assert reading(text, "a.vtt").text == (
        "WEBVTT\n\n00:01.000 --> 00:04.000 align:start\nAnn Smith: we are here & a < b\n"
    )
    assert reading("1\n<v\n>a <b\n>b\n", "a.srt").text == "1\n<v\n>a <b\n>b\n"
    srt = '1\n00:00:01,000 --> 00:00:02,000\n{\\an8}<font color="#fff">a <b>bold</b></font> x<y, &amp;\n'
    assert reading(srt, "a.srt").text == "1\n00:00:01,000 --> 00:00:02,000\na bold x<y, &amp;\n"
    ass = "[Script Info]\n\n[Events]\nDialogue: 0,0:00:01.00,0:00:03.00,,,0,0,0,,{\\i1}Where is{\\i0} the\\Nharbour?\n"
    assert reading(ass, "a.ass").text.endswith(",,Where is the harbour?\n")
