from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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


def test_paths_of_documents_without_a_line(here: Path, run, write):
    write(here, {"a.md": "one\ntwo\n", "b/c.md": "no\nTWO\n", "d.md": "three\n", "empty.md": ""})
    run("index", ".")
    words = "search", "--fixed", "two", "--files", "*.md"
    every = {row["path"] for row in run("search", "--regex", ".", "--files", "*.md", "-l", "--json").rows}
    others = sorted(every - {"a.md"})
    assert {"b/c.md", "d.md"} <= set(others)
    assert run(*words, "-L").out.splitlines() == others
    assert run(*words, "--files-without-match", "--json").rows == [{"path": path} for path in others]
    assert run(*words, "-i", "-L", "b").code == 1
    assert "-L goes with --regex or --fixed" in run("search", "two", "-L").err
    for option in ("-l", "-c"):
        assert "-L does not go with -l and -c" in run(*words, "-L", option).err


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


def test_a_search_prints_the_path_of_each_document_once_in_order_of_rank(here: Path, run):
    words = "search", "the bread of the year", "--mode", "lexical"
    ranked = [row["path"] for row in run(*words, "--json", "--per-document", 0, "-k", 100).rows]
    paths = list(dict.fromkeys(ranked))
    assert len(paths) > 1
    assert run(*words, "-l").out.splitlines() == paths
    assert run(*words, "--files-with-matches", "-k", 1).out.splitlines() == paths[:1]
    assert run(*words, "-l", "--json").rows == [{"path": path} for path in paths]


def test_a_search_prints_no_path_of_a_weak_hit(here: Path, run, monkeypatch):
    relevance = "binocle.retriever.search.ranking.relevance"
    monkeypatch.setattr(f"{relevance}.relevance", lambda cosines, *_: 1 - np.arange(len(cosines)) / len(cosines))
    monkeypatch.setattr(f"{relevance}.line", lambda *_: 0.7)
    words = "search", "cat mat", "-l", "-k", 100
    rows = run("search", "cat mat", "--json", "--per-document", 0, "-k", 100).rows
    paths = list(dict.fromkeys(row["path"] for row in rows if not row["weak"]))
    assert 0 < len(paths) < len({row["path"] for row in rows})
    assert run(*words).out.splitlines() == paths
    monkeypatch.setattr(f"{relevance}.line", lambda *_: 1.1)
    nothing = run(*words)
    assert (nothing.code, nothing.out) == (1, "")
    assert "nothing here answers this; the nearest is" in nothing.err
    assert run(*words, "--json").out == ""
    assert run(*words, "--min-relevance", 0).code == 0


def test_the_paths_of_copies_are_printed_on_demand(here: Path, run, write):
    text = "The quokka is a small marsupial that lives on an island.\n"
    write(here, {"one.md": text, "two.md": text})
    run("index", ".")
    words = "search", "quokka", "-l", "--mode", "lexical"
    assert len(run(*words).out.splitlines()) == 1
    assert sorted(run(*words, "--copies").out.splitlines()) == ["one.md", "two.md"]


def test_options_of_texts_do_not_go_with_paths(here: Path, run):
    for option in (["--full"], ["--explain"], ["--join"], ["--no-join"], ["--open"], ["--per-document", "1"]):
        refused = run("search", "cat", "-l", *option)
        assert (refused.code, refused.out) == (2, "")
        assert "does not go with -l" in refused.err
