"""Fuzz every reader, guided by the coverage of its code, and read its findings in the pool of workers.

    python -m benchmarks.trust.fuzz_readers --seeds DIR [--minutes 60] [--seed 0] [--formats pdf,docx] [--size 16384]

needs `pip install atheris`. One process per format mutates the bytes of the seeds; of a ZIP package it mutates the
members. Each document is checked as the pool checks the documents of a worker. Then `ReaderPool` reads all inputs that
reached new code, and all findings, under its limits: this process must survive, and each input must have a result.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import shutil
import subprocess
import sys
import time
import traceback
import zipfile
from collections import Counter
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

from ..machine import save

_SIZE = 1 << 14  # bytes
_SLOW_SECONDS = 5.0  # of processor time
_MEMORY_MB = 1_200
_SEEDS_EACH = 40
_ENDINGS = (
    *("txt", "md", "rst", "org", "tex", "adoc", "html", "xml", "pdf", "docx", "pptx", "xlsx", "xls", "odt", "fodt"),
    *("odp", "ods", "rtf", "epub", "csv", "tsv", "json", "jsonl", "ipynb", "eml", "mbox", "srt", "py", "doc", "ppt"),
    *("msg", "zip", "tar", "gz", "sqlite", "parquet"),
)
_SMALLEST = {
    "rst": b"Title\n=====\n\n.. note:: a\n\n   b\n\n+--+\n|a |\n+--+\n",
    "org": b"#+TITLE: a\n* A\n** B :tag:\n#+BEGIN_SRC\nx\n#+END_SRC\n| a | b |\n",
    "adoc": b"= Title\n:a: b\n\n== Section\n\n----\ncode\n----\n|===\n|a |b\n|===\n",
    "rtf": rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}\uc1\u228?\par Text\'e4 {\*\x y}\trowd\cell a\row}",
    "fodt": b'<?xml version="1.0"?><office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    b'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" office:mimetype="application/vnd.oasis.opendocument.'
    b'text"><office:body><office:text><text:h text:outline-level="1">a</text:h><text:p>b<text:s text:c="3"/></text:p>'
    b"</office:text></office:body></office:document>",
    "xml": b'<?xml version="1.0"?><!DOCTYPE article><article xmlns:x="urn:x"><front><article-title>a</article-title>'
    b'</front><sec id="s"><title>b</title><p>c <x:i>d</x:i>&amp;&#228;<![CDATA[e]]></p><!-- f --></sec></article>',
    "tsv": b"a\tb\n1\t2\n",
    "jsonl": b'{"a": "\\u00e4"}\n{"b": [1]}\n',
    "mbox": b"From a@b Mon Jan  1 10:00:00 2024\nSubject: =?utf-8?q?a?=\nContent-Type: multipart/mixed; boundary=x\n"
    b"\n--x\nContent-Transfer-Encoding: base64\n\nYWJj\n--x--\n\nFrom c@d Mon Jan  1 10:00:00 2024\n\n>From e\n",
    "srt": b"1\n00:00:01,000 --> 00:00:02,000\n<i>a</i>\n",
    "py": b"def f():\n    pass\n",
    "tex": b"\\documentclass{a}\\section{b}\n\\begin{verbatim}\nx\n\\end{verbatim}\n",
    **dict.fromkeys(("doc", "ppt", "msg"), b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)),
    "zip": b"PK\x05\x06" + bytes(18),
    "tar": b"a.txt".ljust(100, b"\0") + b"0000644\0" + bytes(16) + b"00000000001\0" + bytes(20) + b" 0" + bytes(100)
    + b"ustar\00000" + bytes(247) + b"x".ljust(512, b"\0"),
    "gz": gzip.compress(b"a line\n"),
    "sqlite": b"SQLite format 3\0" + bytes(84),
    "parquet": b"PAR1" + bytes(8) + b"PAR1",
}  # fmt: skip
_ALIASES = {"xml": (".xml", ".nxml"), "md": (".md",), "sqlite": (".sqlite", ".db"), "tar": (".tar", ".tgz")}


def main() -> None:
    """Fuzz each format in a process of its own, then read everything found in the pool."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=Path, required=True, help="a folder of example documents")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", default=",".join(_ENDINGS))
    parser.add_argument("--size", type=int, default=_SIZE, help="most bytes of an input, unless all seeds are larger")
    parser.add_argument("--work", type=Path, default=Path("/tmp/fuzz-readers"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        fuzz(options.one, options.work / options.one, options)
        return
    shutil.rmtree(options.work, ignore_errors=True)
    endings = options.formats.split(",")
    results = {}
    for ending in endings:
        write_seeds(options.seeds, ending, options.work / ending, options.size)
        results[ending] = run(ending, options, options.minutes / len(endings))
        print(ending, json.dumps(results[ending]), flush=True)
    total = sum(result["inputs"] for result in results.values())
    save("fuzz_readers", {"inputs": total, "formats": results, "pool": replay(options.work)}, seed=options.seed)


def write_seeds(source: Path, ending: str, folder: Path, size: int) -> None:
    """Copy the small examples of a format into the corpus."""
    (folder / "corpus").mkdir(parents=True)
    files = [
        file
        for file in sorted(source.rglob("*"))
        if file.suffix.lower() in _ALIASES.get(ending, (f".{ending}",)) and file.stat().st_size > 0
    ]
    files = sorted(files, key=lambda file: file.stat().st_size)
    small = [file for file in files if file.stat().st_size <= size] or ([] if ending in _SMALLEST else files[:3])
    seeds = [
        *(file.read_bytes() for file in small[:_SEEDS_EACH]),
        *([_SMALLEST[ending]] if ending in _SMALLEST else []),
    ]
    for number, data in enumerate(seeds):
        (folder / "corpus" / f"seed-{number}").write_bytes(data)


def run(ending: str, options: argparse.Namespace, minutes: float) -> dict[str, Any]:
    """Fuzz a format until the time is up; a process that ends early is a finding, and another goes on."""
    folder, deadline, restarts = options.work / ending, time.monotonic() + 60 * minutes, 0
    counts: Counter[str] = Counter()
    while (left := deadline - time.monotonic()) > 1:
        command = [sys.executable, "-m", "benchmarks.trust.fuzz_readers", "--seeds", str(options.seeds)]
        command += ["--work", str(options.work), "--one", ending]
        command += ["--seed", str(options.seed + restarts), "--minutes", str(left / 60), "--size", str(options.size)]
        with (folder / "log").open("wb") as log:
            subprocess.run(command, stdout=log, stderr=log, check=False)
        counts.update(json.loads((folder / "stats.json").read_text()))
        restarts += 1
    findings = json.loads((folder / "findings.json").read_text()) if (folder / "findings.json").exists() else {}
    covered = re.findall(rb"cov: (\d+)", (folder / "log").read_bytes())
    return {
        **counts,
        "process_ends": len(list(folder.glob("end-*"))),  # by a crash of native code, memory or time
        "edges": int(covered[-1]) if covered else 0,
        "exceptions": findings,
    }


class Target:
    """Reads each input, and counts the results."""

    def __init__(self, ending: str, folder: Path) -> None:
        from binocle.core.errors import UnreadableError, UnsupportedError
        from binocle.retriever.readers import read
        from binocle.retriever.readers.pool import protocol

        self._read, self._protocol, self._refusals = read, protocol, (UnreadableError, UnsupportedError)
        self._ending, self._folder = ending, folder
        self._counts: Counter[str] = Counter(inputs=0)
        file = folder / "findings.json"
        self._findings: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        self._saved = 0.0  # when the counts were last saved: the process ends without a word

    def __call__(self, data: bytes) -> None:
        """Read one input."""
        self._counts["inputs"] += 1
        start = time.process_time()
        try:
            document = self._read(data, f"x.{self._ending}")
            message = json.loads(json.dumps(self._protocol.document_json(document)))
            assert self._protocol.load_document(message, document.text) == document
            self._read_members(document.format, data)
            self._counts["read"] += 1
        except self._refusals:
            self._counts["refused"] += 1
        except Exception as error:  # noqa: BLE001 - each is a finding
            self._find(f"{type(error).__name__} {line_of(error)}", data)
        if time.process_time() - start > _SLOW_SECONDS:
            self._find(f"took over {_SLOW_SECONDS:g} s", data)
        if time.monotonic() - self._saved > 0.5:
            self.save()

    def _read_members(self, format_name: str, data: bytes) -> None:
        """Unpack the members of a file; each may be refused."""
        from binocle.retriever.readers.containers.members import has_members, list_members, safe_path

        for member in list_members(data, format_name, "x") if has_members(format_name) else ():
            assert safe_path(member.name) == member.name.rstrip("/")
            with suppress(*self._refusals):
                member.read()

    def _find(self, name: str, data: bytes) -> None:
        if name not in self._findings:
            (self._folder / f"finding-{len(self._findings)}").write_bytes(data)
        self._findings[name] = self._findings.get(name, 0) + 1
        self.save()

    def save(self) -> None:
        """Write the counts so far."""
        (self._folder / "stats.json").write_text(json.dumps(self._counts))
        (self._folder / "findings.json").write_text(json.dumps(self._findings))
        self._saved = time.monotonic()


def line_of(error: Exception) -> str:
    """The innermost line of our readers at which an exception passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "retriever" in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""


def fuzz(ending: str, folder: Path, options: argparse.Namespace) -> None:
    """Fuzz one format in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["binocle.retriever", "zipfile", "email", "striprtf"]):
        from binocle.retriever import readers

        for _, reader in readers.FORMATS.values():
            __import__(f"binocle.retriever.readers{reader.partition(':')[0]}")
    target = Target(ending, folder)
    target.save()
    limits = [
        f"-max_total_time={max(1, int(60 * options.minutes))}",
        f"-max_len={max(map(size_of, (folder / 'corpus').iterdir()), default=0) + options.size}",
        f"-rss_limit_mb={_MEMORY_MB}",
    ]
    limits += ["-timeout=120", f"-seed={options.seed + 1}", f"-artifact_prefix={folder}/end-", "-print_final_stats=1"]
    mutator = {"custom_mutator": mutate_package} if is_package(folder) else {}
    atheris.Setup([sys.argv[0], str(folder / "corpus"), *limits], target, **mutator)
    atheris.Fuzz()


def size_of(file: Path) -> int:
    """Return the size of a file in bytes."""
    return file.stat().st_size


def is_package(folder: Path) -> bool:
    """Whether the seeds are ZIP packages."""
    return any(file.read_bytes().startswith(b"PK\3\4") for file in (folder / "corpus").iterdir())


def mutate_package(data: bytes, max_size: int, seed: int) -> bytes:
    """Mutate the bytes of one member of a package, or now and then of the package."""
    import atheris

    draw = random.Random(seed)
    members = unpack(data)
    if not members or draw.random() < 0.1:
        return bytes(atheris.Mutate(data, max_size))
    name = draw.choice(list(members))
    members[name] = bytes(atheris.Mutate(members[name][: max_size // 2], max_size // 2))
    return pack(members)


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the members of a package; none if it is damaged."""
    with suppress(Exception), zipfile.ZipFile(BytesIO(data)) as package:
        return {info.filename: package.read(info) for info in package.infolist() if info.file_size < 4 * _SIZE}
    return {}


def pack(members: dict[str, bytes]) -> bytes:
    """Write members as a package."""
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as package:
        for name, member in members.items():
            package.writestr(name, member)
    return stream.getvalue()


def replay(work: Path) -> dict[str, Any]:
    """Read all inputs that were kept in real workers; count the results, and the inputs without one."""
    from binocle.retriever.readers import ReaderPool

    names = []
    for folder in sorted(path for path in work.iterdir() if path.is_dir()):
        for number, file in enumerate([*folder.glob("corpus/*"), *folder.glob("finding-*"), *folder.glob("end-*")]):
            copy = work / f"{folder.name}-{number}.{folder.name}"
            shutil.copyfile(file, copy)
            names.append(copy)
    states: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    start = time.monotonic()
    with ReaderPool(workers=1) as pool:
        for reading in pool.read_all(names):
            states[reading.state] += 1
            if reading.again or "its reader" in reading.reason:
                reasons[re.sub(r"[\d.]+", "N", reading.reason)[:120]] += 1
    seconds = round(time.monotonic() - start, 1)
    missing = len(names) - sum(states.values())
    return {"inputs": len(names), "states": states, "stopped": reasons, "without_result": missing, "seconds": seconds}


if __name__ == "__main__":
    main()
