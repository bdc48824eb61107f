from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from binocle import commands
from binocle.commands.output import echo, echo_json
from binocle.commands.upkeep.status import _relevance


def test_lines_for_people_show_what_a_terminal_would_obey(capsys):
    echo("a\x1b[31m\tb\u202e\nc\r")
    echo("d\x9b", err=True)
    assert capsys.readouterr() == ("a␛[31m\tb<U+202E>\nc \n", "d<U+009B>\n")


def test_a_record_is_one_line_of_json_in_which_chunks_are_passages(capsys):
    echo_json({"chunks": 2, "text": "東京\u2028\x85\x7f\udc80"})
    assert capsys.readouterr().out == '{"passages": 2, "text": "東京\\u2028\\u0085\\u007f\\udc80"}\n'


@pytest.mark.parametrize("module", sorted(Path(commands.__file__).parent.glob("*.py")), ids=lambda file: file.stem)
def test_every_command_prints_through_the_functions_that_show_symbols(module: Path):
    if module.stem != "output":
        assert not re.search(r"(?<!console\.)\b(click\.s?echo|print|std(out|err)\.write)\(", module.read_text("utf-8"))


def test_the_status_says_that_errors_of_relevance_were_measured_elsewhere():
    def shown(**relevance):
        return _relevance(SimpleNamespace(relevance=relevance))

    other = (
        "not measured here; on other collections, 3% of questions without an answer show hits, 2% of those with one are "
        "refused"
    )
    assert shown(answered=0.03, refused=0.02, passages=0) == other
    assert shown(answered=0.03, refused=0.02, passages=2_000).startswith("3% of everyday questions")
    assert shown(answered=None, refused=0.02, passages=0).endswith("no search is refused")
