from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def test_lines_print_as_grep_prints_them(here: Path, run, write):
    write(here, {"a.md": "one\ntwo cats\nthree\nfour\nfive\nsix\ntwo dogs\n", "b/c.md": "no\nTWO\n"})
    run("index", ".")
    assert run("search", "--regex", "^two ").out == "a.md:2:two cats\na.md:7:two dogs\n"
    assert run("search", "--fixed", "two", "-i", "-c").out == "a.md:2\nb/c.md:1\n"
    assert run("search", "--fixed", "two", "-i", "-l", "--files", "b/**").out == "b/c.md\n"
    assert run("search", "--regex", "^two", "-C", 1).out == (
        "a.md-1-one\na.md:2:two cats\na.md-3-three\n--\na.md-6-six\na.md:7:two dogs\n"
    )
    assert run("search", "--regex", "^two", "-A", 1, "b").code == 1
    rows = run("search", "--regex", "t[wh]o", "--json").rows
    assert rows[0] == {
        "path": "a.md",
        "line": 2,
        "page": None,
        "text": "two cats",
        "matches": [[0, 3]],
        "is_match": True,
    }


def test_lines_have_the_exit_codes_of_grep(here: Path, run, write):
    write(here, {"a.md": "one\n"})
    run("index", ".")
    assert run("search", "--fixed", "one").code == 0
    assert run("search", "--fixed", "(one").code == 1
    assert (run("search", "--regex", "(one").code, run("search", "--regex", "(one").out) == (2, "")
    assert "-C goes with --regex or --fixed" in run("search", "one", "-C", 1).err
    for option in (["--open"], ["--full"], ["--min-relevance", "0.5"], ["--model", "m"]):
        assert f"{option[0]} does not go with --regex and --fixed" in run("search", "one", "--fixed", *option).err
    assert "--mode does not go with --regex and --fixed" in run("search", "one", "--fixed", "--mode", "lexical").err
