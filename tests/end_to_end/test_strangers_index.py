"""An index that somebody else made: whatever it holds, nothing outside of it is read or written, and nobody is asked.

Each attack is a function that changes a copy of one tiny index, which lies in the folder of its documents as in a
download. A child process runs the commands on all of them, under strace.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from binocle import Retriever

SECRET = "moonlit diary"
UUID = "11111111-2222-3333-4444-555555555555"
COMMANDS = {
    "search": ["search", "cat", "."],
    "status": ["status", "."],
    "files": ["files", "."],
    "show": ["show", "a.txt", "."],
    "verify": ["verify", "."],
    "index": ["index", "."],
    "forget": ["forget", "a.txt", "."],
    "rollback": ["rollback", "."],
    "repair": ["verify", "--repair", "."],
}
ATTACKS: dict[str, Callable[[Path, Path], None]] = {}  # name -> function of the index and the folder of the victim


def attack(function: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    ATTACKS[function.__name__] = function
    return function


def clear(place: Path) -> Path:
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def edit(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def head(index: Path) -> dict:
    return json.loads((index / "HEAD.json").read_text())


def link(place: str, target: str) -> None:
    """An attack by a symbolic link."""

    def links(index: Path, victim: Path) -> None:
        clear(index / place).symlink_to(victim / target)

    ATTACKS[f"link at {place} to {target or 'a folder'}"] = links


for place in ("chunks.lance/_indices/" + UUID, "chunks.lance/data/x", "documents.lance/_versions", "vectors/x"):
    link(place, "")
for place in ("switching", "switching/" + "f" * 32 + "-32", "vectors/.0123456789ab", "documents.lance/_deletions"):
    link(place, "")
link("chunks.lance", "private/.binocle/chunks.lance")
link("documents.lance/data/x.lance", "data.lance")
link("HEAD.json", "private/.binocle/HEAD.json")
for place in ("settings.json", "lock", "lock.json", ".gitignore", "queries-made-0123456789abcdef.npy"):
    link(place, "precious.txt")


@attack
def fifo_in_a_table(index: Path, victim: Path) -> None:
    os.mkfifo(index / "chunks.lance/data/x.lance")


@attack
def fifo_for_the_head(index: Path, victim: Path) -> None:
    os.mkfifo(clear(index / "HEAD.json"))


@attack
def fifo_for_the_settings(index: Path, victim: Path) -> None:
    os.mkfifo(clear(index / "settings.json"))


@attack
def socket_among_the_vectors(index: Path, victim: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(index / "vectors/x"))


def clone_tables(index: Path, victim: Path, elsewhere: bytes = b"") -> None:
    """Tables with files in the victim's index, or under the name `elsewhere`."""
    private, changes = head(victim / "private/.binocle"), {}
    for name in ("documents", "chunks"):
        source, target = (str(where / f"{name}.lance") for where in (victim / "private/.binocle", index))
        shutil.rmtree(target)
        clone = lance.dataset(source, version=private[name]).shallow_clone(target, private[name])
        changes[name] = clone.version
        if elsewhere:
            replace_bytes(Path(target), source.encode(), elsewhere.ljust(len(source), b"x"))
    names = ("next_document", "next_chunk")
    edit(index / "HEAD.json", vectors=None, rows=99, **changes, **{name: private[name] for name in names})


def replace_bytes(folder: Path, old: bytes, new: bytes) -> None:
    assert len(old) == len(new)
    for file in folder.rglob("*"):
        if file.is_file() and old in (data := file.read_bytes()):
            file.write_bytes(data.replace(old, new))


@attack
def tables_in_another_folder(index: Path, victim: Path) -> None:
    clone_tables(index, victim)


@attack
def tables_in_a_bucket(index: Path, victim: Path) -> None:
    clone_tables(index, victim, b"s3://attackerbucket/")


@attack
def tables_on_a_server(index: Path, victim: Path) -> None:
    clone_tables(index, victim, b"az://attackercontainer/")


def foreign_version(index: Path, victim: Path, version: int) -> None:
    """A version of a table with files in the victim's index; HEAD.json names another."""
    scratch = index.parent / "scratch"
    clone_tables(shutil.copytree(index, scratch), victim)
    file = next((scratch / "chunks.lance/_versions").glob("*.manifest"))
    before = 2**64 - 1 - int(file.stem)
    data = re.sub(
        b"\x18" + bytes([before]) + b"\x30\x00\x3a", b"\x18" + bytes([version]) + b"\x30\x00\x3a", file.read_bytes()
    )
    (index / f"chunks.lance/_versions/{2**64 - 1 - version:020}.manifest").write_bytes(data)
    for file in (scratch / "chunks.lance/_transactions").iterdir():
        shutil.copy(file, index / "chunks.lance/_transactions")
    (index / "chunks.lance/_versions/latest_version_hint.json").unlink(missing_ok=True)
    shutil.rmtree(scratch)


@attack
def an_older_version_of_a_table_in_another_folder(index: Path, victim: Path) -> None:
    foreign_version(index, victim, 1)


@attack
def a_newer_version_of_a_table_in_another_folder(index: Path, victim: Path) -> None:
    foreign_version(index, victim, head(index)["chunks"] + 5)


def rename_data(index: Path, prefix: str) -> None:
    file = next((index / "chunks.lance/data").glob("*.lance"))
    name = file.name
    target = (prefix + "v" * len(name))[: len(name) - 6] + ".lance"
    replace_bytes(index, name.encode(), target.encode())
    shutil.move(file, os.path.normpath(file.parent / target))


@attack
def data_file_above_the_table(index: Path, victim: Path) -> None:
    rename_data(index, "../../../../victim/")


@attack
def data_file_with_an_absolute_name(index: Path, victim: Path) -> None:
    rename_data(index, "/tmp/")


@attack
def column_of_blobs_elsewhere(index: Path, victim: Path) -> None:
    from lance.blob import blob_array

    table = lance.dataset(str(index / "documents.lance"), version=head(index)["documents"]).to_table()
    blobs = blob_array([f"file://{victim}/precious.txt"] * len(table))
    shutil.rmtree(index / "documents.lance")
    changed = table.drop_columns(["text"]).append_column(pa.field("text", blobs.type), blobs)
    written = lance.write_dataset(
        changed, str(index / "documents.lance"), data_storage_version="2.2", allow_external_blob_outside_bases=True
    )
    edit(index / "HEAD.json", documents=written.version)


@attack
def branch_with_a_path_for_a_name(index: Path, victim: Path) -> None:
    refs = index / "chunks.lance/_refs/branches"
    refs.mkdir(parents=True)
    branch = {"parentBranch": None, "parentVersion": 1, "createAt": 0, "manifestSize": 1}
    for name in ("..%2F..%2F..%2F..%2Fvictim", "x"):
        (refs / f"{name}.json").write_text(json.dumps(branch))


def rename_document(index: Path, path: str) -> None:
    table = lance.dataset(str(index / "documents.lance"), version=head(index)["documents"])
    table.update({"path": "'" + path + "'", "mtime_ns": "1"}, "path = 'a.txt'")
    edit(index / "HEAD.json", documents=table.version)


@attack
def document_above_the_folder(index: Path, victim: Path) -> None:
    rename_document(index, "../victim/precious.txt")


@attack
def document_with_an_absolute_path(index: Path, victim: Path) -> None:
    rename_document(index, f"{victim}/precious.txt")


@attack
def document_behind_a_link(index: Path, victim: Path) -> None:
    (index.parent / "notes").symlink_to(victim)
    rename_document(index, "notes/precious.txt")


@attack
def document_that_is_a_link(index: Path, victim: Path) -> None:
    (index.parent / "a.txt").unlink()
    (index.parent / "a.txt").symlink_to(victim / "precious.txt")


@attack
def vector_index_above_the_folder(index: Path, victim: Path) -> None:
    edit(index / "HEAD.json", vectors="../../victim")


@attack
def queries_that_are_a_pickle(index: Path, victim: Path) -> None:
    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {victim}/pwned",)

    for file in [*index.glob("queries-*.npy"), index / "queries-made-0123456789abcdef.npy"]:
        stream = io.BytesIO()
        np.save(stream, np.array([Bomb()], object), allow_pickle=True)
        file.write_bytes(stream.getvalue())


# Encoders and folders in an index: followed only after the user trusts it.


def name_encoder(index: Path, name: str) -> None:
    values = head(index)["encoder"] | {"model": name}
    edit(index / "HEAD.json", encoder=values, previous=values)


@attack
def encoder_on_the_hub(index: Path, victim: Path) -> None:
    name_encoder(index, "attacker-org/some-model")


@attack
def encoder_in_a_folder_of_the_victim(index: Path, victim: Path) -> None:
    name_encoder(index, f"{victim}/model")


@attack
def default_encoder_which_is_not_here(index: Path, victim: Path) -> None:
    name_encoder(index, "sentence-transformers/all-MiniLM-L6-v2")


@attack
def folder_of_the_victim(index: Path, victim: Path) -> None:
    edit(index / "settings.json", folder=str(victim))
    rename_document(index, "precious.txt")


@attack
def folder_above(index: Path, victim: Path) -> None:
    edit(index / "settings.json", folder="../..")
    rename_document(index, "victim/precious.txt")


NAMES = list(ATTACKS)[-5:]
CHILD = """
import contextlib, io, json, os, sys
from binocle.cli import main
for name, folder, command, words in json.load(open(sys.argv[1])):
    os.chdir(folder)
    sys.argv = ["binocle", *words]
    out, err = io.StringIO(), io.StringIO()
    os.path.exists(f"/attack/{name}/{command}")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    print(json.dumps([name, command, code or 0, out.getvalue(), err.getvalue()]), file=sys.__stdout__, flush=True)
os._exit(0)
"""
STRACE = ["strace", "-f", "-y", "--seccomp-bpf", "-qq", "-s", "300", "-e", "trace=%file,%network,ftruncate,write"]


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory, tiny_model: str) -> Path:
    """A folder with a victim's files and index, and the folder of a stranger, `download`."""
    root = tmp_path_factory.mktemp("stranger")
    texts = {"victim/private/diary.txt": f"My {SECRET} about the cat.", "download/a.txt": "The cat sat on the mat."}
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
        Retriever.open((root / name).parent, model=tiny_model).sync()
    shutil.copytree(tiny_model, root / "victim/model")
    (root / "victim/sub").mkdir()
    for name in ("precious.txt", "data.lance", "18446744073709551000.manifest", "sub/deep.md", "manifest.json"):
        (root / "victim" / name).write_text(f"{SECRET} {name}")
    return root


def state_of(folder: Path) -> dict[str, tuple]:
    """Everything below a folder, with its bytes and times."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def assert_confined(root: Path, attacks: list[str], commands: list[str], *, trust: str) -> None:
    """Run the commands on the index of each attack, and compare the touched files with the allowed ones."""
    jobs = []
    for name in attacks:
        for command in commands:
            folder = Path(tempfile.mkdtemp(dir=root))  # beside the victim
            shutil.copytree(root / "download", folder, dirs_exist_ok=True)
            here = Path.cwd()
            os.chdir(folder)  # for the short path of a socket
            try:
                ATTACKS[name](folder / ".binocle", root / "victim")
            finally:
                os.chdir(here)
            jobs.append((name, str(folder), command, COMMANDS[command]))
    (root / "jobs.json").write_text(json.dumps(jobs))
    before = state_of(root / "victim")
    log = root / "strace.log"
    words = [*STRACE, "-o", str(log), sys.executable, "-c", CHILD, str(root / "jobs.json")]
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}  # Python itself writes nothing
    environment = {**os.environ, **quiet, "HF_HUB_OFFLINE": "0", "BINOCLE_TRUST": trust}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-2_000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer[:2] for answer in answers] == [[name, command] for name, _, command, _ in jobs]
    for name, command, code, out, err in answers:
        assert code in (0, 1, 2), (name, command, err)
        assert SECRET not in out + err, (name, command, out)
        assert "Traceback" not in err
        if code == 2:
            *notes, message = err.splitlines()  # a note: the state before the last commit answers
            assert message.startswith("binocle: "), (name, command, err)
            assert len(notes) <= 1, (name, command, err)
    assert state_of(root / "victim") == before
    assert list(leaks(log.read_text("utf-8", "replace"), root)) == []


def leaks(log: str, root: Path) -> Iterator[tuple[str, str]]:
    """The calls of a trace that opened a file of the victim, wrote elsewhere or spoke to a host."""
    victim, job = str(root / "victim"), ""
    writable = (str(root), os.environ["XDG_CACHE_HOME"], "/dev/", "/proc/", "/tmp/binocle")
    for line in whole_calls(log):
        if match := re.search(r'"/attack/([^"]*)"', line):
            job = match[1]
        connects = "sin_addr" in line or "sin6_addr" in line
        call = re.match(r"\d+ +(\w+)\((.*)", line)
        if call is None or " = -1 E" in line:
            if connects:
                yield job, line
            continue
        name, rest = call[1], call[2]
        opens, opened = name.startswith("open"), rest.rpartition("<")[2]
        reads = opens and opened.startswith(victim)
        writes = opens and re.search(r"O_WRONLY|O_RDWR|O_CREAT", rest) and not opened.startswith(writable)
        changes = name.startswith(("unlink", "rename", "mkdir", "rmdir", "truncate", "link")) and victim in rest
        if connects or reads or writes or changes:
            yield job, line


def whole_calls(log: str) -> Iterator[str]:
    """The calls of a trace, each in one line although another thread's came between its start and its end."""
    begun: dict[str, str] = {}
    for line in log.splitlines():
        process, _, rest = line.partition(" ")
        if rest.endswith("<unfinished ...>"):
            begun[process] = line.removesuffix("<unfinished ...>")
        elif match := re.match(r" *<\.\.\. \w+ resumed>", rest):
            yield begun.pop(process, process + " ") + rest[match.end() :]
        else:
            yield line
    yield from begun.values()


needs_strace = pytest.mark.skipif(not shutil.which("strace"), reason="strace shows what a process opens; not installed")


@needs_strace
def test_trace_shows_a_read_a_write_and_a_connection(tmp_path):
    """The check can fail."""
    (tmp_path / "victim").mkdir()
    code = (
        f"import socket\nopen('{tmp_path}/victim/x', 'w')\nopen('{tmp_path}/victim/x')\nopen('/dev/shm/binocle-x', 'w')\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"
    )
    subprocess.run([*STRACE, "-o", str(tmp_path / "log"), sys.executable, "-c", code], check=True)
    Path("/dev/shm/binocle-x").unlink()
    found = [line for _, line in leaks((tmp_path / "log").read_text(), tmp_path)]
    assert len(found) >= 3
    assert any("sin_addr" in line for line in found)


@needs_strace
def test_strangers_index_is_confined_even_if_the_user_trusts_it(stranger):
    attacks = [name for name in ATTACKS if name not in NAMES]
    assert_confined(stranger, attacks, ["search", "index"], trust="all")


@needs_strace
def test_strangers_index_that_the_user_does_not_trust_is_confined(stranger):
    assert_confined(stranger, [*NAMES, "data_file_above_the_table"], ["search", "index"], trust="")


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("trust", ["", "all"])
def test_strangers_index_is_confined_by_every_command(trust, stranger):
    attacks = [name for name in ATTACKS if not trust or name not in NAMES]
    commands = [name for name in COMMANDS if not trust or name not in ("search", "index")]
    assert_confined(stranger, attacks, commands, trust=trust)
