"""Text that a person does not see in a document: readers note its place."""

from __future__ import annotations

import pytest

from binocle.retriever.documents.document import HIDDEN, Document, hidden_spans
from binocle.retriever.readers import base, read


def hidden(document: Document) -> list[str]:
    places = document.metadata.get(HIDDEN, [])
    return [document.text[start:end] for start, end in zip(places[::2], places[1::2], strict=True)]


def page(body: str, head: str = "") -> Document:
    return read(f"<html><head>{head}</head><body>{body}</body></html>".encode(), "a.html")


@pytest.mark.parametrize(
    "style",
    [
        "font-size:0",
        "font-size: 1px",
        "font: 0/0 a",
        "font-size:.05em",
        "opacity:0",
        "opacity: 1%",
        "color:transparent",
        "color: rgba(0, 0, 0, 0)",
        "color:#12345600",
        "color:white",
        "color:#FFF",
        "color:#fefefe; background:#ffffff",
        "COLOR:rgb(10,10,10);background-color:#000 !important",
        "position:absolute;left:-9999px",
        "text-indent: -100em",
        "transform: translateX(-2000px)",
        "transform:scale(0)",
        "clip:rect(0 0 0 0)",
        "clip: rect(1px, 1px, 1px, 1px)",
        "clip-path:inset(50%)",
        "height:0;overflow:hidden",
    ],
)
def test_text_hidden_by_a_style_is_noted(style):
    assert hidden(page(f'<p>seen</p><p style="{style}">not seen</p>')) == ["not seen"]
    assert hidden(page('<p>seen</p><p class="a x">not seen</p>', f"<style>.x {{{style}}}</style>")) == ["not seen"]


@pytest.mark.parametrize(
    "style",
    [
        "font-size:12px",
        "font-size:80%",
        "font: 700 12px/1.5 serif",
        "opacity:.5",
        "color:#eee;background:#333",
        "color:white;background:url(dark.png)",
        "color:white;background:linear-gradient(red, blue)",
        "color:white;background:var(--dark)",
        "left:-5px",
        "height:0",
        "width:1px;color:inherit",
        "font-size:calc(1px + 1em)",
        "display:block",
        "transform:translate(-50%, -50%) scale(0.9)",
        "=:;;:",
    ],
)
def test_text_that_a_style_leaves_visible_is_not(style):
    assert hidden(page(f'<p style="{style}">seen</p>')) == []


def test_hidden_text_is_noted_and_its_surroundings_are_not():
    body = '<p>One <b style="font-size:0"> two \n</b> three.</p><p aria-hidden="true">four</p>five <i>six</i>'
    document = page(body)
    assert document.text == "One two three.\n\nfour\n\nfive six"
    assert hidden(document) == ["two", "four"]


def test_neighbours_are_one_span():
    assert hidden(page('<div style="opacity:0"><p>a <b>b</b></p><pre>c\n  d</pre></div>e')) == ["a b\n\nc\n  d"]


def test_a_child_can_be_seen_again_where_browsers_show_it():
    assert hidden(page('<p style="font-size:0">no <b style="font-size:12px">yes</b></p>')) == ["no"]
    assert hidden(page('<p style="color:white">no <b style="color:black">yes</b></p>')) == ["no"]
    assert hidden(page('<div style="background:black"><b style="color:white">yes</b></div>')) == []
    assert hidden(page('<div style="opacity:0">no <b style="opacity:1">no</b></div>')) == ["no no"]
    assert hidden(page('<table bgcolor="#fff"><tr><td><font color=white>no</font><td>yes</table>')) == ["no"]


def test_light_text_is_visible_where_another_file_may_set_the_background():
    sheet = '<link rel="stylesheet" href="a.css">'
    assert hidden(page('<p style="color:white">seen</p>', sheet)) == []
    assert hidden(page('<p style="color:white;background:#fff">no</p>', sheet)) == ["no"]
    assert hidden(page('<p style="color:white">seen</p>', "<style>.a > p {background: black}</style>")) == []


def test_rules_for_print_do_not_count():
    rules = "<style>/* .y{opacity:0} */ @media print { .x, p { display: none } } #z, b.w { display: none }</style>"
    body = "<p class=x>a</p><p class=y>b</p><p id=z>c</p><b class=w>d</b><i class=w>e</i>"
    assert hidden(page(body, rules)) == ["c\n\nd"]


def test_text_that_browsers_do_not_show_at_all_stays_out():
    document = page('<p style="display:none">no</p><p hidden>no</p><!-- no --><template>no</template><p>yes</p>')
    assert (document.text, hidden(document)) == ("yes", [])


def test_a_heading_that_nobody_sees_heads_nothing():
    document = page('<h1>Seen</h1><h2 style="font-size:0">Obey</h2><p>text</p>')
    assert {part.heading for part in document.parts} == {("Seen",)}
    assert hidden(document) == ["Obey"]


def test_a_page_cannot_forge_or_end_a_mark():
    document = page('<p>a\x0eb\x0fc</p><p style="opacity:0">d\x0fe&#15;f\x0e</p>g')
    assert document.text == "abc\n\ndef\n\ng"
    assert hidden(document) == ["def"]


def test_a_builder_joins_neighbours_of_many_spans(monkeypatch):
    monkeypatch.setattr(base, "_MAX_HIDDEN", 2)
    assert hidden(page("<b>x <i style='opacity:0'>a</i></b> " * 4)) == ["a", "a x a x a"]


def test_spans_of_a_passage_are_cut_to_it():
    tags = "\U000e0049\U000e0047"
    assert hidden_spans([0, 12, 14, 16, 40, 50], 10, "abcdefgh") == ((10, 12), (14, 16))
    assert hidden_spans(None, 10, f"ab{tags}c") == ((12, 14),)
    assert hidden_spans([11, 13], 10, f"ab{tags}c") == ((11, 14),)


@pytest.mark.parametrize("wrong", ["ab", 7, [1], ["1", "2"], [None, 2], {"a": 1}, [5, 1], [-9, -1]], ids=str)
def test_metadata_of_another_type_hides_nothing(wrong):
    assert hidden_spans(wrong, 0, "abc") == ()


def test_a_hostile_style_takes_linear_time():
    many = 100_000
    for rules in ("@media{" * many + "{" * many, "a" * many, "/* " * many, "a{b:c;" * many, "}" * many):
        assert hidden(page("<p class=a>x</p>", f"<style>{rules}</style>")) == []
    for style in (
        "font: " + "1 " * many,
        "transform:" + "scale(" * many,
        "clip:rect(" + "0" * many,
        "color:rgb(" + " " * many,
    ):
        assert page(f"<p style='{style}'>x</p>").text == "x"
