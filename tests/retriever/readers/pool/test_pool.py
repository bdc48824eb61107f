"""The pool: order, limits, and that one bad file costs one file."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from binocle.core.errors import BinocleError
from binocle.retriever.documents.document import Document, Part
from binocle.retriever.readers import ReaderPool, Reading, read_file
from binocle.retriever.readers.pool import protocol as frames
from binocle.retriever.readers.pool.pool import _ReadAhead

if TYPE_CHECKING:
    from collections.abc import Iterator

READERS = """
import ctypes, os, signal, sys, time
from binocle.core.errors import UnreadableError
from binocle.retriever.documents.document import Document, Part

def obey(data, format):
    order, _, rest = data.decode().partition(" ")
    if order == "sleep":
        time.sleep(float(rest))
    elif order == "spin":
        while True: pass
    elif order == "crash":
        ctypes.string_at(0)
    elif order == "abort":
        os.abort()
    elif order == "exit":
        os._exit(int(rest))
    elif order == "eat":
        bytearray(int(rest) << 20)
    elif order == "leak":
        sys.leaked = getattr(sys, "leaked", []) + [bytearray(int(rest) << 20)]
    elif order == "print":
        print(rest); print(rest, file=sys.stderr); os.write(1, b"noise")
    elif order == "raise":
        raise ValueError(rest)
    elif order == "lie":
        return Document(data.decode(), (Part(5, 10**9, 1),))
    elif order == "large":
        return Document.from_text("x" * int(rest))
    return Document.from_text(data.decode())
"""


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of "*.do" files, which make their reader misbehave."""
    library = tmp_path / "library"
    library.mkdir()
    (library / "obedient.py").write_text(READERS)
    monkeypatch.syspath_prepend(str(library))
    folder = tmp_path / "orders"
    folder.mkdir()
    return folder


DO = {".do": ("orders", "obedient:obey")}


def pool(root: Path | None = None, **options: object) -> ReaderPool:
    return ReaderPool(root, **{"workers": 2, "formats": DO, **options})  # type: ignore[arg-type]


def write(folder: Path, *contents: str) -> list[Path]:
    files = [folder / f"{number:03}.do" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_text(content)
    return files


def children() -> set[int]:
    processes = set()
    for task in Path("/proc/self/task").iterdir():
        processes |= set(map(int, (task / "children").read_text().split()))
    return processes


def test_readings_come_in_the_order_of_the_paths(tmp_path: Path) -> None:
    files = []
    for number in range(300):
        file = tmp_path / f"{number}.txt"
        file.write_text(f"text {number} " * (number % 7 * 1000 + 1))
        files.append(file)
    with ReaderPool(workers=2) as workers:
        readings = list(workers.read_all(files))
    assert [reading.path for reading in readings] == [str(file) for file in files]
    for file, reading in zip(files, readings, strict=True):
        data = file.read_bytes()
        assert reading.state == "ok"
        assert reading.document is not None
        assert reading.document.text == data.decode()
        assert reading.sha256 == hashlib.sha256(data).hexdigest()
        assert (reading.size, reading.mtime_ns) == (len(data), file.stat().st_mtime_ns)


def test_a_reading_equals_the_document_of_the_reader(tmp_path: Path) -> None:
    from binocle.retriever.readers import read

    file = tmp_path / "ä.md"
    file.write_text("# Größe\n\n```\ncode\n```\n\n## 🦆\n| a |\n|---|\n")
    assert read_file(file).document == read(file.read_bytes(), file.name)


def test_paths_are_relative_to_the_root_and_returned_unchanged(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with ReaderPool(tmp_path) as workers:
        assert [(reading.path, reading.state) for reading in workers.read_all(["a.txt", Path("a.txt")])] == [
            ("a.txt", "ok")
        ] * 2


def test_a_file_name_that_is_not_utf_8_is_read(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    Path(os.fsdecode(name)).write_text("a")
    assert read_file(os.fsdecode(name)).state == "ok"


def test_a_file_that_cannot_be_opened_gives_a_reason_and_never_blocks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.txt")
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "link.txt").symlink_to("target")
    (tmp_path / "big.txt").write_bytes(b"x" * 101)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    names = ["gone.txt", "fifo.txt", "folder.txt", "link.txt", "big.txt", "empty.txt", "a.png", "a.txt/b", "a\0b"]
    (tmp_path / "a.txt").touch()
    with ReaderPool(tmp_path, max_bytes=100) as workers:
        readings = list(workers.read_all(names))
    assert [(reading.state, reading.reason) for reading in readings] == [
        ("failed", "it is no longer there"),
        ("skipped", "not a regular file"),
        ("skipped", "not a regular file"),
        ("skipped", "a symbolic link"),
        ("skipped", "larger than 9.537e-05 MB"),
        ("skipped", "no text in it"),
        ("skipped", "no reader for .png files"),
        ("failed", "it is no longer there"),
        ("failed", "its name holds a zero byte"),
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_closed_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a")
    file.chmod(0)
    assert read_file(file).reason == "permission denied"


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ("crash", "its reader crashed (signal 11)"),
        ("abort", "its reader was ended (signal 6), perhaps because it needed too much memory"),
        ("exit 3", "its reader ended with status 3"),
        ("exit 0", "its reader ended with status 0"),
        ("spin", "it took longer than 0.4 s of processor time"),
        ("eat 2000", "it needed more than 0.8 GB of memory"),
        ("raise two\nlines", "its reader failed: ValueError: two lines"),
        ("lie", "its reader answered nonsense"),
    ],
)
def test_a_bad_file_fails_alone(orders: Path, order: str, reason: str) -> None:
    files = write(orders, *["fine"] * 5, order, *["fine"] * 20)
    with pool(seconds=0.4, memory=800_000_000) as workers:
        readings = list(workers.read_all(files))
    assert [reading.path for reading in readings] == [str(file) for file in files]
    assert [reading.state for reading in readings] == ["ok"] * 5 + ["failed"] + ["ok"] * 20
    assert readings[5].reason == reason
    assert readings[5].sha256 == hashlib.sha256(order.encode()).hexdigest()


@pytest.mark.thorough
def test_a_reader_that_waits_for_ever_is_ended(orders: Path) -> None:
    with pool(wall_seconds=2) as workers:
        readings = list(workers.read_all(write(orders, "fine", "sleep 30", "fine")))
    assert [reading.reason for reading in readings] == ["", "it was not read within 2 s", ""]


@pytest.mark.thorough
def test_a_file_that_waits_for_a_busy_machine_is_read(orders: Path) -> None:
    with pool(seconds=0.3) as workers:
        assert [reading.state for reading in workers.read_all(write(orders, "sleep 0.9", "fine"))] == ["ok", "ok"]


def test_only_a_reading_that_was_stopped_is_worth_another_try(orders: Path) -> None:
    files = write(orders, "spin", "eat 2000", "exit 1", "raise x", "fine")
    with pool(workers=1, seconds=0.2, memory=800_000_000) as workers:
        assert [reading.again for reading in workers.read_all(files)] == [True, True, True, False, False]


@pytest.mark.slow
def test_a_pdf_that_unpacks_without_end_costs_itself(tmp_path: Path) -> None:
    packer = zlib.compressobj(9)
    stream = b"".join(packer.compress(bytes(1 << 24)) for _ in range(20)) + packer.flush()
    stream = zlib.compress(stream, 9)
    page = b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>endobj\n"
    content = b"4 0 obj<</Length %d/Filter[/FlateDecode/FlateDecode]>>stream\n%b\nendstream endobj\n" % (
        len(stream),
        stream,
    )
    catalog = b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4\n" + catalog + page + content + b"trailer<</Root 1 0 R>>\n%%EOF")
    (tmp_path / "b.txt").write_text("cat")
    with ReaderPool(workers=1, memory=400_000_000) as workers:
        bomb, fine = workers.read_all([tmp_path / "a.pdf", tmp_path / "b.txt"])
    assert (bomb.state, bomb.again, fine.state) == ("failed", True, "ok")


def test_every_file_may_be_bad(orders: Path) -> None:
    files = write(orders, *["crash", "exit 1", "fine"] * 3)
    with pool() as workers:
        assert [reading.state for reading in workers.read_all(files)] == ["failed", "failed", "ok"] * 3


@pytest.mark.thorough
def test_memory_left_over_from_one_file_does_not_fail_the_next(orders: Path) -> None:
    files = write(orders, *["leak 150"] * 7)
    with pool(workers=1, memory=800_000_000) as workers:
        assert {reading.state for reading in workers.read_all(files)} == {"ok"}


def test_output_of_a_library_is_discarded(orders: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = write(orders, "print noise", "fine")
    with pool(workers=1) as workers:
        assert [reading.state for reading in workers.read_all(files)] == ["ok", "ok"]
    assert capfd.readouterr() == ("", "")


def test_text_read_ahead_is_bounded(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("binocle.retriever.readers.pool.pool._MAX_AHEAD_BYTES", 6_400_000)  # a tenth
    files = write(orders, "sleep 0.5", *["large 3000000"] * 7)
    with pool() as workers:
        readings = workers.read_all(files)
        assert next(readings).state == "ok"
        assert [len(reading.document.text) for reading in readings if reading.document] == [3_000_000] * 7


def test_reading_ahead_stops_at_its_limit(tmp_path: Path) -> None:
    run = _ReadAhead("", (tmp_path / str(number) for number in range(10_000)))
    drawn = []
    while batch := run.take(idle=True):
        drawn += batch
    assert 100 < len(drawn) <= 512
    large = Reading("a", document=Document("x" * 70_000_000, (Part(0, 70_000_000, 1),)), state="ok")
    run.put(1, large)
    run.put(0, Reading("b"))
    assert run.is_full
    assert list(run.ready())[-1] is large
    assert not run.is_full


@pytest.mark.thorough
def test_the_time_limit_excludes_a_slow_caller(orders: Path) -> None:
    files = write(orders, *["large 3000000"] * 4)
    with pool(wall_seconds=0.6) as workers:
        states = []
        for reading in workers.read_all(files):
            states.append(reading.state)
            time.sleep(0.7)
    assert states == ["ok"] * 4


def test_leaving_early_leaves_nothing_running(orders: Path) -> None:
    before, files = children(), write(orders, "fine", *["sleep 30"] * 5)
    handles = len(list(Path("/proc/self/fd").iterdir()))
    with pool() as workers:
        for _ in workers.read_all(files):
            break
    assert children() == before
    assert len(list(Path("/proc/self/fd").iterdir())) == handles


def test_a_pool_can_be_used_again(orders: Path) -> None:
    files = write(orders, "fine", "crash")
    with pool() as workers:
        first = [reading.state for reading in workers.read_all(files)]
        for _ in workers.read_all(files):
            break
        assert [reading.state for reading in workers.read_all(files)] == first == ["ok", "failed"]
        assert list(workers.read_all([])) == []


def test_no_more_workers_start_than_there_are_files(orders: Path) -> None:
    before = children()
    with pool(workers=4) as workers:
        list(workers.read_all(write(orders, "fine")))
        assert len(children() - before) == 1
    with pool(workers=4) as workers:
        assert list(workers.read_all([])) == []
        assert children() == before


def test_a_reader_process_that_cannot_start_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(BinocleError, match="did not start"):
        read_file(tmp_path / "a.txt")


def test_a_pool_goes_on_with_the_processes_that_there_are(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(orders, *["fine"] * 40)

    def paths() -> Iterator[Path]:
        yield from files[:16]  # which the first process reads
        monkeypatch.setattr(sys, "executable", "/nowhere")
        yield from files[16:]

    with pool() as workers:
        assert [reading.state for reading in workers.read_all(paths())] == ["ok"] * 40
    with pool() as workers, pytest.raises(BinocleError, match="no reader process can be started"):
        list(workers.read_all(files))


@pytest.mark.parametrize(("count", "characters", "processes"), [(9, 1_000, 1), (40, 1_000, 2), (2, 100_000, 2)])
def test_a_second_process_starts_if_there_is_enough_to_read(
    count: int, characters: int, processes: int, tmp_path: Path
) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(count)]
    for file in files:
        file.write_text("x " * (characters // 2))
    before = children()
    with ReaderPool(workers=2) as workers:
        assert all(reading.state == "ok" for reading in workers.read_all(files))
        assert len(children() - before) == processes


def test_a_process_that_the_system_kills_costs_one_file(orders: Path) -> None:
    """As Linux does when memory runs out."""
    before, files = children(), write(orders, "fine", "sleep 30", "fine")
    with pool(workers=1) as workers:
        readings = workers.read_all(files)
        assert next(readings).state == "ok"
        for process in children() - before:
            os.kill(process, signal.SIGKILL)
        killed, fine = readings
    assert (killed.again, fine.state) == (True, "ok")
    assert killed.reason == "its reader was ended (signal 9), perhaps because it needed too much memory"


def test_workers_do_not_mind_an_interrupt(orders: Path) -> None:
    before = children()
    files = write(orders, "sleep 0.6", "fine")
    readings: list[Reading] = []
    with pool(workers=1) as workers:
        thread = threading.Thread(target=lambda: readings.extend(workers.read_all(files)))
        thread.start()
        time.sleep(0.35)
        for process in children() - before:
            os.kill(process, signal.SIGINT)
        thread.join()
    assert [reading.state for reading in readings] == ["ok", "ok"]


def run_python(code: str, *arguments: str, stdin: bool = False) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-", *arguments] if stdin else [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if stdin:
        assert process.stdin
        process.stdin.write(code)
        process.stdin.close()
        process.stdin = None
    return process


@pytest.mark.parametrize("stdin", [False, True])
def test_the_pool_works_without_a_main_module(tmp_path: Path, stdin: bool) -> None:
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working directory')")
    code = "import sys, os\nfrom binocle.retriever.readers import read_file\nos.chdir(sys.argv[1])\nprint(read_file('a.txt').document.text)\n"
    shown, _ = run_python(code, str(tmp_path), stdin=stdin).communicate(timeout=30)
    assert shown == "hello\n"


@pytest.mark.thorough
def test_workers_end_with_their_parent(orders: Path) -> None:
    files = write(orders, *["sleep 0.5"] * 4)
    code = (
        "import sys\nfrom binocle.retriever.readers import ReaderPool\n"
        "pool = ReaderPool(workers=2, wall_seconds=1, formats={'.do': ('orders', 'obedient:obey')})\n"
        "readings = pool.read_all(sys.argv[1:])\n"
        "print(next(readings).state, *[worker._process.pid for worker in pool._workers], flush=True)\nsys.stdin.read()"
    )
    process = run_python(code, *map(str, files))
    assert process.stdout
    state, *workers = process.stdout.readline().split()
    assert state == "ok"
    assert workers
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 6
    while any(is_running(int(worker)) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def lies() -> Iterator[dict[str, object]]:
    good = frames.document_json(Document("some text", (Part(0, 9, 1, None, ("a",)),), "title"))
    yield {**good, "parts": [[0, 10, 1, None, 0, "prose"]]}
    yield {**good, "parts": [[0, 4, 1, None, 0, "prose"]]}
    yield {**good, "parts": [[0, 5, 1, None, 0, "prose"], [4, 9, 1, None, 0, "prose"]]}
    yield {**good, "parts": [[-1, 9, 1, None, 0, "prose"]]}
    yield {**good, "parts": [[0, 9, "1", None, 0, "prose"]]}
    yield {**good, "parts": [[0, 9, 1, 1.5, 0, "prose"]]}
    yield {**good, "parts": [[0, 9, 1, None, 7, "prose"]]}
    yield {**good, "parts": [[0, 9, 1, None, 0, "weird"]]}
    yield {**good, "parts": [[True, 9, 1, None, 0, "prose"]]}
    yield {**good, "parts": []}
    yield {**good, "headings": [[1]]}
    yield {**good, "title": None}
    yield {**good, "metadata": {"a": {"b": 1}}}
    yield {**good, "metadata": []}
    yield {}


@pytest.mark.parametrize("lie", list(lies()), ids=lambda lie: json.dumps(lie)[:60])
def test_an_inconsistent_document_from_a_worker_is_refused(lie: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, IndexError)):
        frames.load_document(lie, "some text")


def test_a_document_survives_the_pipe() -> None:
    document = Document(
        "some\ntext", (Part(0, 4, 1, 2, ("a", "b"), "code"), Part(5, 9, 2)), "t", "f", {"a": [1, "b"], "c": True}
    )
    message = json.loads(json.dumps(frames.document_json(document)))
    assert frames.load_document(message, document.text) == document


def test_a_frame_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="limit"):
        frames.Lengths.read(b"\xff" * 8)
