"""The user's configuration file, as the commands see it."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """`configured("[search]\\nk = 1\\n")`: the file in force."""
    file = tmp_path / "config" / "binocle" / "config.toml"
    file.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(text: str) -> Path:
        file.write_text(text, "utf-8")
        return file

    return write


def test_option_of_the_command_line_is_stronger_than_the_file(configured, here, run):
    configured('[search]\nk = 1\nmode = "lexical"\njson = true\n')
    assert len(run("search", "the cat tax").rows) == 1
    assert len(run("search", "the cat tax", "-k", "2").rows) == 2
    assert not run("status").out.startswith("{")


def test_file_in_force_is_named(configured, here, run):
    assert "defaults" not in run("status").out
    file = configured("[search]\nk = 3\n")
    assert str(file) in run("status").out
    assert run("--help").out.endswith(f"\nDefaults: {file}\n")
    assert "default: 3" in run("search", "--help").out


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("[serch]\nk = 1\n", ":1:", "there is no command 'serch', is it 'search'?"),
        ("[search]\n\nrerrank = 'x'\n", ":3:", "[search] has no option 'rerrank', is it 'rerank'?"),
        (
            "[search]\nname = 'all'\n",
            ":2:",
            'a collection is named above all tables, by collection = "NAME", not by an option',
        ),
        ("[search]\nk = 'five'\n", ":2:", "k: expected a whole number, not 'five'"),
        ("[search]\nk = 0\n", ":2:", "k: 0 is not in the range x>=1"),
        ("[search]\nk = true\n", ":2:", "k: expected a whole number, not true"),
        ("[search]\nfull = 'yes'\n", ":2:", "full: expected true or false, not 'yes'"),
        ("[search]\nwhere = 'type=pdf'\n", ":2:", "where: expected a list, not 'type=pdf'"),
        ("[search]\nwhere = ['type=pdf', 3]\n", ":2:", "where: expected a text, not 3"),
        ("[search]\nmode = 'fast'\n", ":2:", "mode: 'fast' is not one of 'hybrid', 'semantic', 'lexical'"),
        ("[search]\nmin_relevance = {}\n", ":2:", "min_relevance: expected a number, not a table"),
        ("search = 3\n", ":1:", "'search' is a table of options, such as [search], not 3"),
        ("[train.encodr]\nepochs = 3\n", ":1:", "[train] has no option 'encodr', is it 'encoder'?"),
        ("collection = 3\n", ":1:", "the name of a collection is a text, not 3"),
        (f"k = {'9' * 5_000}\n", ":", "not TOML: Exceeds the limit"),
        ("k = 1\n[search\n", ":2:", "not TOML: "),
    ],
)
def test_fault_in_the_file_is_one_line_with_its_place(text, place, message, configured, run):
    file = configured(text)
    ran = run("train" if "train" in text else "search", "cat")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"binocle: {file}{place} ")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_file_that_cannot_be_read_is_one_line(configured, run):
    file = configured("")
    file.write_bytes(b"[search]\nmode = '\xff'\n")
    assert run("search", "cat").err == f"binocle: {file} is not UTF-8 (byte 17): expected a TOML file\n"
    file.unlink()
    file.mkdir()
    assert run("search", "cat").err == f"binocle: the configuration {file} cannot be read: Is a directory\n"


def test_variable_names_another_file_or_none(configured, here, run, tmp_path, monkeypatch):
    configured("[search]\nk = 'bad'\n")
    monkeypatch.setenv("BINOCLE_CONFIG", "")
    assert run("search", "cat").code == 0
    monkeypatch.setenv("BINOCLE_CONFIG", str(tmp_path / "other.toml"))
    (tmp_path / "other.toml").write_text("[status]\njson = true\n")
    assert run("status").rows[0]["folder"]


def test_named_file_that_is_not_there_is_one_line(here, run, tmp_path, monkeypatch):
    monkeypatch.setenv("BINOCLE_CONFIG", str(tmp_path / "nosuch.toml"))
    ran = run("search", "cat")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"binocle: BINOCLE_CONFIG names {tmp_path}/nosuch.toml, which is not there: expected a file, or nothing\n"
    )


def test_file_in_the_folder_is_never_read(here, run):
    for name in ("config.toml", "binocle.toml", ".binocle/config.toml"):
        (here / name).write_text("[search]\nk = 'bad'\n")
    assert run("search", "cat").code == 0


def test_home_in_a_path_is_expanded(configured, here, run, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    configured("[search]\nrerank = '~/nothing'\n")
    assert str(tmp_path / "nothing") in run("search", "cat").err


def test_check_of_all_tables_finds_a_fault_in_another_command(configured, run):
    from binocle.cli import cli
    from binocle.commands.configuration import check_all
    from binocle.core.errors import InputError

    assert check_all(cli).startswith("none: ")
    file = configured("[search]\nk = 1\n\n[train.encoder]\nepochs = 'three'\n\n[index]\nno-durable = true\n")
    with pytest.raises(InputError, match=f"{file}:5: epochs: expected a number, not 'three'"):
        check_all(cli)
    assert run("completion", "bash").code == 0  # the tables of other commands are not in its way


def test_documented_file_is_valid(configured):
    from binocle.cli import cli
    from binocle.commands.configuration import check_all

    page = (Path(__file__).parents[2] / "docs/how-to/configuration.md").read_text("utf-8")
    (example,) = re.findall(r"^```text\n(collection.*?)^```", page, re.MULTILINE | re.DOTALL)
    file = configured(example)
    assert check_all(cli) == str(file)


def test_folder_that_search_offers_to_index_is_indexed_with_these_defaults(
    configured, tmp_path, run, write, monkeypatch, tiny_model
):
    from binocle.commands import index

    write(tmp_path / "new", {"cat.md": "The cat.\n", "cat.log": "The cat.\n"})
    monkeypatch.chdir(tmp_path / "new")
    monkeypatch.setattr(index, "is_interactive", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    configured(f'[index]\nexclude = ["*.log"]\n\n[search]\nmodel = "{tiny_model}"\njson = true\n')
    assert [row["path"] for row in run("search", "cat").rows] == ["cat.md"]
