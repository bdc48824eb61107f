from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from binocle.core.files import sha256
from binocle.retriever.documents.scan import Entry, file_below, find_index, scan, written_since

git = pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle here")


def tree(root: Path, *names: str, **files: str) -> Path:
    for name in names:
        file = root / name
        if name.endswith("/"):
            file.mkdir(parents=True, exist_ok=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("x")
    return root


def found(root: Path, **options) -> dict[str, str]:
    """Path -> reason of everything that a scan gives."""
    entries = list(scan(root, **options))
    assert len({entry.path for entry in entries}) == len(entries)
    return {entry.path: entry.reason for entry in entries}


def kept(root: Path) -> set[str]:
    return {path for path, reason in found(root).items() if not reason}


def kept_by_git(root: Path) -> set[str]:
    """What git would add, but for hidden names and links, which are passed over here."""
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CEILING_DIRECTORIES": str(root.parent),
    }
    run = ["git", "-c", "core.excludesFile=", "-C", str(root)]
    if not (root / ".git").exists():
        subprocess.run([*run, "init", "-q"], check=True, env=environment)
    listing = subprocess.run(
        [*run, "ls-files", "-z", "-o", "-c", "--exclude-standard"], check=True, capture_output=True, env=environment
    ).stdout
    names = [os.fsdecode(name) for name in listing.split(b"\0") if name]
    return {
        name
        for name in names
        if not any(part.startswith(".") for part in name.split("/")) and not (root / name).is_symlink()
    }


def test_files_are_given_in_order_with_size_and_time(tmp_path):
    tree(tmp_path, "b.txt", "a/z.txt", "a.txt", "a/b/c.txt")
    (tmp_path / "b.txt").write_bytes(b"12345")
    os.utime(tmp_path / "b.txt", ns=(1, 1_600_000_000_123_456_789))
    entries = list(scan(tmp_path))
    assert [entry.path for entry in entries] == ["a/b/c.txt", "a/z.txt", "a.txt", "b.txt"]
    ctime_ns = (tmp_path / "b.txt").stat().st_ctime_ns
    assert entries[-1] == Entry("b.txt", 5, 1_600_000_000_123_456_789, ctime_ns=ctime_ns)


def test_an_empty_folder_holds_nothing(tmp_path):
    assert list(scan(tmp_path)) == []
    tree(tmp_path, "only/folders/")
    assert list(scan(tmp_path)) == []


def test_hidden_names_are_passed_over_a_folder_as_one_entry(tmp_path):
    tree(tmp_path, ".env", ".git/config", ".git/objects/aa", "a/.cache/x", "a/.x", "a/b")
    assert found(tmp_path) == {".env": "hidden", ".git/": "hidden", "a/.cache/": "hidden", "a/.x": "hidden", "a/b": ""}


def test_what_is_ignored_names_the_file_that_says_so(tmp_path):
    tree(tmp_path, "a.log", "build/x", "docs/a.tmp", "docs/b.txt", "c.secret")
    (tmp_path / ".gitignore").write_text("*.log\nbuild/\n")
    (tmp_path / ".binocleignore").write_text("*.secret\n")
    (tmp_path / "docs" / ".gitignore").write_text("*.tmp\n")
    assert {path: reason for path, reason in found(tmp_path).items() if reason not in ("", "hidden")} == {
        "a.log": "ignored by .gitignore",
        "build/": "ignored by .gitignore",
        "c.secret": "ignored by .binocleignore",
        "docs/a.tmp": "ignored by docs/.gitignore",
    }


def test_the_index_is_not_even_mentioned(tmp_path):
    tree(tmp_path, "a.txt", "store/documents.lance/data", ".binocle/HEAD.json", "deep/store/x")
    assert found(tmp_path, leave_out=tmp_path / ".binocle") == {
        "a.txt": "",
        "store/documents.lance/data": "",
        "deep/store/x": "",
    }
    assert found(tmp_path, leave_out=tmp_path / "store") == {"a.txt": "", ".binocle/": "hidden", "deep/store/x": ""}
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "store")
    assert "deep/store/x" not in found(tmp_path, leave_out=tmp_path / "link")


# As git does it

NAMES = [
    "a",
    "b",
    "ab",
    "foo",
    "bar",
    "foo.txt",
    "bar.txt",
    "a.log",
    "keep.log",
    "build",
    "x y",
    "é",
    "#h",
    "!n",
    "[z]",
    "a*b",
    "trail ",
    "back\\slash",
]


def random_tree(root: Path, draw: random.Random) -> None:
    folders = [root]
    for _ in range(draw.randint(2, 7)):
        folder = draw.choice(folders) / draw.choice(NAMES)
        if not folder.exists():
            folder.mkdir()
            folders.append(folder)
    for folder in folders:
        for name in draw.sample(NAMES, draw.randint(1, 7)):
            if not (folder / name).exists():
                (folder / name).write_text("x")
    for folder in draw.sample(folders, min(len(folders), draw.randint(1, 3))):
        lines = [random_pattern(draw) for _ in range(draw.randint(1, 6))]
        (folder / ".gitignore").write_text(
            draw.choice(["\n", "\r\n"]).join(lines) + draw.choice(["", "\n"]), newline=""
        )


def random_pattern(draw: random.Random) -> str:
    names = [
        *NAMES,
        "*",
        "*.log",
        "*.txt",
        "f*",
        "?",
        "??",
        "[ab]",
        "[!a]",
        "[^b]*",
        "**",
        "*o*",
        "\\#h",
        "\\!n",
        "trail\\ ",
        "a\\*b",
        "\\[z\\]",
        "[a-c]*",
    ]
    pattern = "/".join(draw.choice(names) for _ in range(draw.choice([1, 1, 1, 2, 2, 3])))
    pattern = draw.choice(["", "", "/"]) + pattern + draw.choice(["", "", "/", "/*", "/**"])
    pattern = draw.choice(["", "", "", "!"]) + pattern + draw.choice(["", "", "", " ", "  ", "\t"])
    return draw.choice([pattern] * 8 + ["", "# comment", " " + pattern, "/", "!", "**/" + pattern])


@git
@pytest.mark.parametrize("seed", [*range(30), 1011, 1014, 1016, 1033, 1044, 1061, 1096])
def test_random_trees_are_read_as_git_reads_them(seed, tmp_path):
    draw = random.Random(seed)
    random_tree(tmp_path, draw)
    expected = kept_by_git(tmp_path)
    rules = {str(file.relative_to(tmp_path)): file.read_bytes() for file in tmp_path.rglob(".gitignore")}
    assert kept(tmp_path) == expected, rules


@git
@pytest.mark.parametrize(
    "pattern",
    [
        *("[[:alpha:]]b", "[[:digit:][:upper:]]b", "[![:alpha:]]b", "[[:other:]]b", "[[:]b", "[:alpha:]b"),
        *("[a\\]]b", "[]-a]b", "[]]b", "[!]]b", "[a-", "[", "[\\", "a\\", "[a\\-c]b", "[c-a]b", "[!c-a]b", "[--0]b"),
    ],
)
def test_brackets_are_read_as_git_reads_them(pattern, tmp_path):
    tree(tmp_path, "ab", "Bb", "cb", "1b", "]b", "[b", ":b", "-b", "\\b", "[a-", "[", "a\\", "[\\")
    (tmp_path / ".gitignore").write_text(pattern)
    assert kept(tmp_path) == kept_by_git(tmp_path)


@git
@pytest.mark.parametrize("seed", range(2_000, 2_020))
def test_a_folder_of_a_repository_is_read_by_the_rules_above_it(seed, tmp_path):
    draw = random.Random(seed)
    random_tree(tmp_path, draw)
    kept_by_git(tmp_path)  # makes it a repository
    (tmp_path / ".git" / "info" / "exclude").write_text(f"{random_pattern(draw)}\n{random_pattern(draw)}\n")
    expected = kept_by_git(tmp_path)
    assert kept(tmp_path) == expected
    for folder in {tmp_path / Path(name).parent for name in expected} - {tmp_path}:
        below = f"{folder.relative_to(tmp_path)}/"
        assert kept(folder) == {name.removeprefix(below) for name in expected if name.startswith(below)}, folder


@git
def test_a_linked_working_tree_and_a_submodule_are_read_by_the_rules_of_their_repository(tmp_path):
    def run(*arguments):
        name = ["-c", "user.name=a", "-c", "user.email=a", "-c", "protocol.file.allow=always"]
        subprocess.run(["git", "-C", str(tmp_path / "main"), *name, *arguments], check=True, capture_output=True)

    tree(tmp_path, "main/a.txt")
    kept_by_git(tmp_path / "main")
    run("add", ".")
    run("commit", "-qm", "a")
    run("worktree", "add", "../linked")
    run("submodule", "add", str(tmp_path / "main"), "module")
    for exclude in ("main/.git/info/exclude", "main/.git/modules/module/info/exclude"):
        (tmp_path / exclude).write_text("*.log\n")
    for folder in (tmp_path / "linked", tmp_path / "main/module"):
        tree(folder, "b.txt", "c.log", "sub/d.log", "sub/e.txt")
        assert kept(folder) == kept_by_git(folder) == {"a.txt", "b.txt", "sub/e.txt"}
    assert found(tmp_path / "linked")["c.log"] == f"ignored by {tmp_path / 'main/.git/info/exclude'}"


@pytest.mark.parametrize(
    "said", [b"", b"gitdir: ", b"gitdir: /nowhere/\0", b"gitdir: \xff", b"\n\n", b"gitdir: .git", b"info"]
)
def test_a_git_file_that_says_nothing_useful_gives_no_rules(said, tmp_path):
    tree(tmp_path, "a.txt", "info/exclude", "info/info/exclude")
    (tmp_path / "info/exclude").write_text("*.txt\n")
    (tmp_path / "info/info/exclude").write_text("*.txt\n")
    (tmp_path / ".git").write_bytes(said)
    assert kept(tmp_path) == {"a.txt", "info/exclude", "info/info/exclude"}


def test_what_is_ignored_above_the_folder_names_the_file_that_says_so(tmp_path):
    tree(tmp_path, "up/repo/.git/info/exclude", "up/repo/a/docs/secrets/k.txt", "up/repo/a/docs/x.log")
    tree(
        tmp_path, "up/repo/a/docs/notes.txt", "up/repo/a/docs/mine.txt", "up/repo/a/docs/y.tmp", "up/repo/a/docs/z.org"
    )
    (tmp_path / "up/.gitignore").write_text("*.org\n")  # above the repository
    (tmp_path / "up/repo/.gitignore").write_text("secrets/\n*.log\n")
    (tmp_path / "up/repo/.git/info/exclude").write_text("/a/docs/mine.txt\n!*.log\n")
    (tmp_path / "up/repo/a/.binocleignore").write_text("*.tmp\n")
    assert found(tmp_path / "up/repo/a/docs") == {
        "mine.txt": "ignored by ../../.git/info/exclude",
        "notes.txt": "",
        "secrets/": "ignored by ../../.gitignore",
        "x.log": "ignored by ../../.gitignore",
        "y.tmp": "ignored by ../.binocleignore",
        "z.org": "",
    }


@pytest.mark.parametrize("rule", ["docs/", "/a/docs", "a/**", "*", "a"])
def test_a_folder_that_is_asked_for_is_read_though_its_repository_ignores_it(rule, tmp_path):
    tree(tmp_path, ".git/", "a/docs/x.txt")
    (tmp_path / ".gitignore").write_text(f"{rule}\n")
    assert kept(tmp_path / "a/docs") == {"x.txt"}


RULES = {
    "negation": {".gitignore": "*.txt\n!keep.txt\n"},
    "negation has no way into an ignored folder": {".gitignore": "foo/\n!foo/keep.txt\n"},
    "whitelist": {".gitignore": "*\n!*/\n!*.txt\n"},
    "whitelist of a folder": {".gitignore": "/*\n!/foo\n/foo/*\n!/foo/bar\n"},
    "anchored": {".gitignore": "/a.txt\nfoo/a.txt\n"},
    "anywhere": {".gitignore": "bar\n"},
    "folders only": {".gitignore": "bar/\n"},
    "two stars": {".gitignore": "**/bar/*.txt\nfoo/**/keep.txt\n"},
    "two stars at the end": {".gitignore": "foo/**\n!foo/keep.txt\n"},
    "two stars within a name": {".gitignore": "f**o\n"},
    "nested over root": {".gitignore": "*.txt\n", "foo/.gitignore": "!a.txt\n"},
    "nested, anchored to its folder": {"foo/.gitignore": "/a.txt\n/bar\n"},
    "nested restores a folder": {".gitignore": "bar\n", "foo/.gitignore": "!bar\n"},
    "last rule wins": {".gitignore": "!a.txt\n*.txt\n!foo\n"},
    "trailing spaces": {".gitignore": "a.txt   \nkeep.txt\\ \n"},
    "comments and blanks": {".gitignore": "# a.txt\n\n   \n\\#hash\n#\n"},
    "bad patterns are passed over": {".gitignore": "!\n/\n//\n[\n[a\n***\n\\\nkeep.txt\n"},
    "carriage returns": {".gitignore": "a.txt\r\nbar/\r\n"},
    "byte order mark": {".gitignore": "\ufeffa.txt\nkeep.txt\n"},
    "no newline at the end": {".gitignore": "a.txt"},
    "other line separators are part of a pattern": {".gitignore": "odd\u2028a.txt\nodd\x0ckeep.txt\n"},
    "classes": {".gitignore": "[a-c].txt\n[!a]eep.txt\n"},
    "case matters": {".gitignore": "A.TXT\nBAR/\n"},
    "escaped": {".gitignore": "\\a.txt\n\\!bang\n"},
    "only a negation": {".gitignore": "!a.txt\n"},
    "dot slash": {".gitignore": "./a.txt\n"},
    "double slash": {".gitignore": "foo//a.txt\n"},
    "parent": {"foo/.gitignore": "../a.txt\n"},
}


@git
@pytest.mark.parametrize("case", RULES)
def test_rules_mean_what_they_mean_to_git(case, tmp_path):
    tree(
        tmp_path,
        "a.txt",
        "keep.txt",
        "keep.txt ",
        "a.md",
        "foo/a.txt",
        "foo/keep.txt",
        "foo/bar/a.txt",
        "foo/bar/keep.txt",
        "bar/a.txt",
    )
    tree(tmp_path, "foo/baz/bar", "fo", "foo/x/y/keep.txt", "#hash", "!bang", "b.txt", "odd", "foo/fxo", "x/foo/a.txt")
    for name, text in RULES[case].items():
        (tmp_path / name).write_text(text, newline="")
    assert kept(tmp_path) == kept_by_git(tmp_path)


def test_binocleignore_counts_beside_gitignore(tmp_path):
    tree(tmp_path, "a.txt", "b.txt", "c.txt")
    (tmp_path / ".gitignore").write_text("a.txt\n")
    (tmp_path / ".binocleignore").write_text("b.txt\n")
    assert kept(tmp_path) == {"c.txt"}


def test_binocleignore_can_take_back_what_gitignore_says(tmp_path):
    """Built documentation is not committed, but it is what one searches."""
    tree(tmp_path, "site/a.html", "b.log")
    (tmp_path / ".gitignore").write_text("site/\n*.log\n")
    (tmp_path / ".binocleignore").write_text("!site/\n")
    assert kept(tmp_path) == {"site/a.html"}


def test_rules_that_are_a_link_or_not_a_file_are_not_read(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("*\n")
    root = tree(tmp_path / "root", "a.txt", "b/c.txt")
    (root / ".gitignore").symlink_to(outside)
    (root / "b" / ".gitignore").mkdir()
    assert kept(root) == {"a.txt", "b/c.txt"}


def test_rules_that_are_not_text_do_not_stop_a_scan(tmp_path):
    tree(tmp_path, "a.txt", "b.log")
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe\x00\n*.log\n\x80[[\n")
    assert kept(tmp_path) == {"a.txt"}


def test_many_rules_are_read(tmp_path):
    tree(tmp_path, "a.txt", "name-4999.txt")
    (tmp_path / ".gitignore").write_text("".join(f"name-{number}.txt\n" for number in range(5_000)))
    assert kept(tmp_path) == {"a.txt"}


@git
@pytest.mark.parametrize(
    "pattern", ["*a*a*a*a*a*b", "/**/a/**/a/**/a/**/b", "[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[0-9]", "*?*?*?*?*?b"]
)
def test_a_pattern_of_many_stars_does_not_take_for_ever(pattern, tmp_path):
    tree(tmp_path, "a" * 120, "a" * 120 + "b", "a/" * 40 + "c", "a/" * 3 + "b")
    (tmp_path / ".gitignore").write_text(f"{pattern}\n" * 3)
    assert kept(tmp_path) == kept_by_git(tmp_path)  # else it runs for hours


# Special files and links


def test_links_are_not_followed_wherever_they_lead(tmp_path):
    outside = tree(tmp_path / "outside", "secret.txt")
    root = tree(tmp_path / "root", "a/b.txt")
    (root / "loop").symlink_to(root)
    (root / "a" / "up").symlink_to("..")
    (root / "out").symlink_to(outside)
    (root / "secret.txt").symlink_to(outside / "secret.txt")
    (root / "broken").symlink_to("nowhere")
    (root / "self").symlink_to("self")
    assert found(root) == {
        "a/b.txt": "",
        **dict.fromkeys(["a/up", "broken", "loop", "out", "secret.txt", "self"], "symbolic link"),
    }


def test_the_root_itself_may_be_a_link(tmp_path):
    tree(tmp_path / "real", "a.txt")
    (tmp_path / "link").symlink_to("real")
    assert kept(tmp_path / "link") == {"a.txt"}


def test_pipes_and_sockets_are_passed_over(tmp_path):
    import socket

    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(tmp_path)
            listener.bind("socket")
        finally:
            os.fchdir(here)
            os.close(here)
        assert found(tmp_path) == {"pipe": "not a regular file", "socket": "not a regular file"}


def test_a_folder_that_cannot_be_listed_is_one_entry(tmp_path, monkeypatch):
    tree(tmp_path, "a.txt", "closed/b.txt", "open/c.txt")
    (tmp_path / "closed").chmod(0)
    if os.geteuid() == 0:  # who may list everything: refuse it as the kernel would
        list_it = os.scandir

        def refuse(path):
            if str(path).rstrip("/").endswith("closed"):
                raise PermissionError(13, "Permission denied")
            return list_it(path)

        monkeypatch.setattr(os, "scandir", refuse)
    reasons = found(tmp_path)
    (tmp_path / "closed").chmod(0o755)
    assert reasons == {"a.txt": "", "closed/": "cannot be listed: Permission denied", "open/c.txt": ""}


def test_a_folder_that_vanishes_or_is_a_file_is_one_entry(tmp_path):
    (entry,) = scan(tmp_path / "absent")
    assert (entry.path, entry.reason) == ("", "cannot be listed: No such file or directory")
    (tmp_path / "file").write_text("")
    (entry,) = scan(tmp_path / "file")
    assert entry.reason == "cannot be listed: Not a directory"


def test_a_folder_that_vanishes_while_it_is_scanned_does_not_stop_the_scan(tmp_path):
    tree(tmp_path, "a.txt", "b/c.txt", "d.txt")
    entries = scan(tmp_path)
    assert next(entries).path == "a.txt"
    shutil.rmtree(tmp_path / "b")
    rest = {entry.path: entry.reason for entry in entries}
    assert rest.pop("d.txt") == ""
    assert all(rest.values())


@pytest.mark.parametrize(
    "name",
    [
        "new\nline.txt",
        "tab\t.txt",
        " lead",
        "trail ",
        "-rf",
        "ünï.txt",
        "天気.md",
        "🚀",
        "a" * 255,
        "'quote\"",
        "back\\slash",
        "con",
        "\x1b[31m",
        "\u202e.txt",
    ],
    ids=ascii,
)
def test_odd_names_are_names(name, tmp_path):
    tree(tmp_path, f"{name}/{name}")
    assert found(tmp_path) == {f"{name}/{name}": ""}


def test_names_that_are_not_utf8_are_passed_over_each_under_a_path_of_its_own(tmp_path):
    names = [b"a\xff.txt", b"a\xfe.txt", b"caf\xe9", b"\xed\xa0\x80"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("x")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/dir\xff")).mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/dir\xff/inside.txt")).write_text("x")
    tree(tmp_path, "a?.txt", "a\ufffd.txt", "a.txt")
    reasons = found(tmp_path)
    assert {path for path, reason in reasons.items() if not reason} == {"a?.txt", "a\ufffd.txt", "a.txt"}
    assert sorted(reasons.values()) == [""] * 3 + ["its name is not valid UTF-8"] * 5
    for path in reasons:
        path.encode("utf-8")
    assert found(tmp_path) == reasons


def test_a_name_that_is_no_utf_8_is_given_as_no_other_is_called(tmp_path):
    names = [b"bad\xff.txt", b"bad\\xff.txt", b"bad\\xff.txt\\", b"\xff\\xff", b"\\xff\xff"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("x")
    reasons = found(tmp_path)
    assert len(reasons) == len(names)
    assert {path for path, reason in reasons.items() if not reason} == {"bad\\xff.txt", "bad\\xff.txt\\"}


def test_a_deep_tree_is_walked(tmp_path):
    deep = tmp_path.joinpath(*["d"] * 400)
    here = os.open(tmp_path, os.O_RDONLY)
    deep.mkdir(parents=True)
    (deep / "a.txt").write_text("x")
    os.close(here)
    assert kept(tmp_path) == {"d/" * 400 + "a.txt"}


def test_a_tree_deeper_than_python_recurses_is_walked_or_passed_over(tmp_path):
    tree(tmp_path, "a.txt", "z.txt")
    place = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(os.open("deep.txt", os.O_CREAT | os.O_WRONLY, dir_fd=place))
    os.close(place)
    try:
        assert {"a.txt", "z.txt"} <= kept(tmp_path)
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_the_same_name_composed_and_decomposed_are_two_files(tmp_path):
    tree(tmp_path, "é.txt", "e\u0301.txt")
    assert kept(tmp_path) == {"é.txt", "e\u0301.txt"}


# The index of a folder


def test_the_nearest_index_above_is_found(tmp_path):
    tree(tmp_path, ".binocle/HEAD.json", "a/b/c/", "a/b/.binocle/HEAD.json", "a/x/.binocle/")
    assert find_index(tmp_path) == tmp_path / ".binocle"
    assert find_index(tmp_path / "a") == tmp_path / ".binocle"
    assert find_index(tmp_path / "a/x") == tmp_path / ".binocle"
    assert find_index(tmp_path / "a/b/c") == tmp_path / "a/b/.binocle"
    assert find_index(tmp_path / "a/not/there") == tmp_path / ".binocle"


def test_without_an_index_above_there_is_none(tmp_path):
    assert find_index(tmp_path) is None


def test_a_file_is_written_anew_when_its_bytes_are_others_and_not_when_it_was_touched(tmp_path: Path):
    large = 4 * 2**20 + 1
    before = {"touched": b"sea", "rewritten": b"sea", "longer": b"sea", "gone": b"sea", "large": bytes(large)}
    rows = []
    for name, data in before.items():
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, ns=(1, 1))
        rows.append({"path": name, "size": len(data), "mtime_ns": 1, "sha256": hashlib.sha256(data).hexdigest()})
    assert written_since(tmp_path, rows) == []
    (tmp_path / "touched").touch()
    (tmp_path / "rewritten").write_bytes(b"sun")
    (tmp_path / "longer").write_bytes(b"seas")
    (tmp_path / "gone").unlink()
    (tmp_path / "large").write_bytes(b"x" * large)  # too large to be read again after each search
    assert written_since(tmp_path, rows) == ["rewritten", "longer", "gone"]


def test_row_of_an_index_leads_to_no_file_elsewhere(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside.txt"
    (root / "sub").mkdir(parents=True)
    for file in (root / "sub/a.txt", outside):
        file.write_text("text")
    (root / "link").symlink_to(tmp_path)
    (root / "b.txt").symlink_to(outside)
    assert file_below(root, "sub/a.txt") == root / "sub/a.txt"
    assert file_below(root, "sub/missing") == root / "sub/missing"
    (tmp_path / "way").symlink_to("root")
    assert file_below(tmp_path / "way", "sub/a.txt") == root / "sub/a.txt"
    paths = ["../outside.txt", str(outside), "link/outside.txt", "b.txt", "sub/../../outside.txt", "\0", "", "."]
    assert [file_below(root, path) for path in paths] == [None] * len(paths)
    rows = [{"path": path, "size": 4, "mtime_ns": 0, "sha256": sha256(outside)} for path in paths]
    assert written_since(root, rows) == paths
