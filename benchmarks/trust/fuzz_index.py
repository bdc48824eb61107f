"""Mutate the files of small indexes, open and search each in a child, and count the ends that are no clear error.

    python -m benchmarks.trust.fuzz_index [--part vectors | store] [--cases 20000] [--seconds N] [--seed 0] [--show]

Part `vectors` mutates the published files of every kind of vector index and loads them as if their checksums were true.
Part `store` mutates any file of an index of documents, and makes checksums and names of folders true again. Then it
searches in all modes, reads, verifies and writes.

A case is one seed: `--seed S --cases 1 --show` runs it again with its traceback. Each child has limits on memory and
time, and ends with an answer, with a `BinocleError`, or as a finding.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import json
import os
import random
import re
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from binocle.core.errors import BinocleError, DamagedError
from binocle.indexes import faiss_index
from binocle.indexes.manifest import IndexManifest, IndexMetadata
from binocle.indexes.published import build
from binocle.indexes.registry import KINDS, IndexSpec

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_DIM, _COUNT = 16, 600
_MEMORY, _SECONDS = 8 << 30, 20  # of one case; of processor time
_BATCH = 200  # cases of one child; it imports and compiles its modules once
_ENDS = {0: "right answers", 1: "a clear error", 2: "wrong answers", 3: "another exception"}
_FACTORIES = (
    *("PCA8,IVF12,SQ8", "IVF12_HNSW8,Flat", "RQ4x4", "IVF4,PQ8x4fsr", "OPQ8,IVF4,PQ8", "PCAR8,SQfp16"),
    "IVF12,Flat",
)
_NUMBERS = (0, 1, -1, 2, 3, 7, 8, 12, 15, 16, 17, 64, 599, 600, 601, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62)
_FLOATS = (np.nan, np.inf, -np.inf, 3e38, 1e-40)


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Change bits, numbers, lengths or blocks of a file, often near its beginning or its end."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        if changed:
            changed = _mutated_once(changed, chance)
    return bytes(changed)


def _mutated_once(data: bytearray, chance: random.Random) -> bytearray:
    position = chance.randrange(min(len(data), chance.choice([40, 200, 600, len(data), len(data)])))
    if chance.random() < 0.25:
        position = max(0, len(data) - 1 - chance.randrange(min(len(data), 400)))
    match chance.choices(range(8), [30, 10, 35, 7, 6, 4, 4, 4])[0]:
        case 0:
            data[position] = chance.randrange(256)
        case 1:
            data[position] ^= 1 << chance.randrange(8)
        case 2:
            size = chance.choice([4, 8])
            position -= chance.choice([0, position % 4])
            data[position : position + size] = (chance.choice(_NUMBERS) % 2 ** (8 * size)).to_bytes(size, "little")
        case 3:
            del data[position : position + chance.choice([1, 4, 8, 1000])]
        case 4:
            data[position:position] = chance.randbytes(chance.choice([1, 4, 8, 64]))
        case 5:
            del data[position:]
        case 6:
            size, second_position = chance.choice([4, 8, 32]), chance.randrange(len(data))
            first, second = data[position : position + size], data[second_position : second_position + size]
            if len(first) == len(second):
                data[position : position + size], data[second_position : second_position + size] = second, first
        case _:
            data[position : position + 4] = np.float32(chance.choice(_FLOATS)).tobytes()
    return data


def in_children(part: Vectors | Store, seeds: Iterable[int], until: float, *, show: bool) -> Iterator[tuple[int, str]]:
    """Run cases in children with limits, some after one another in each child; yield each seed with its end."""
    waiting = list(seeds)
    while waiting and time.perf_counter() < until:
        batch, waiting = waiting[:_BATCH], waiting[_BATCH:]
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            _limit(show=show)
            for seed in batch:
                if time.perf_counter() > until:
                    break
                signal.setitimer(signal.ITIMER_PROF, _SECONDS)
                signal.alarm(60 * _SECONDS)  # a hang takes no processor time
                os.write(writer, bytes([_end(part.case(random.Random(seed))[1], show=show)]))
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            codes = stream.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        yield from ((seed, _ENDS[code]) for seed, code in zip(batch, codes, strict=False))
        if status:
            slow = -status in (signal.SIGALRM, signal.SIGPROF)
            yield batch[len(codes)], "too slow" if slow else f"ended by {signal.Signals(-status).name}"
            waiting = batch[len(codes) + 1 :] + waiting


def _limit(*, show: bool) -> None:
    if show:
        faulthandler.enable()
    else:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end(action: Callable[[], None], *, show: bool) -> int:
    try:
        action()
    except BinocleError as error:
        if show:
            print(f"{type(error).__name__}: {error}")
        return 1 if "\n" not in str(error) else 3
    except BaseException as error:  # noqa: BLE001 - a panic of a library is not an Exception
        if show:
            traceback.print_exc()
        return 2 if isinstance(error, AssertionError) else 3
    return 0


class Vectors:
    """Published vector indexes of all kinds."""

    def __init__(self, folder: Path) -> None:
        self.root, self.copy = folder / "kinds", folder / "copy"
        self.root.mkdir()
        self.copy.mkdir()
        _fork(self._build)
        folders = sorted(path for path in self.root.iterdir() if not path.name.startswith("."))
        self.indexes = [(IndexManifest.read(path), _contents(path)) for path in folders]

    def _build(self) -> None:
        random_numbers = np.random.default_rng(0)
        vectors = random_numbers.standard_normal((_COUNT, _DIM)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        ids = np.arange(_COUNT) * 3 + 5
        for spec in _specs():
            build(self.root, spec.check(_DIM), [(ids, vectors)], dim=_DIM, covers=1).publish(IndexMetadata())

    def case(self, chance: random.Random) -> tuple[str, Callable[[], None]]:
        """Write one mutated index; return its name and the function that checks it."""
        manifest, files = chance.choice(self.indexes)
        names = [name for name in files if name != "manifest.json"]
        name = "index.faiss" if "index.faiss" in names and chance.random() < 0.9 else chance.choice(names)
        for file, data in files.items():
            (self.copy / file).unlink(missing_ok=True)  # not over a file that is mapped
            (self.copy / file).write_bytes(mutate(data, chance) if file == name else data)
        label = manifest.build.get("factory") or manifest.kind
        return f"{label} {name}", lambda: _search(manifest, self.copy)


def _specs() -> list[IndexSpec]:
    specs = [IndexSpec("factory", {"factory": factory}) for factory in _FACTORIES]
    small = {"nlist": 12, "part_bits": 4, "m": 8, "ef_construction": 40}
    for name, kind in KINDS.items():
        values = {
            parameter.name: small[parameter.name] for parameter in kind.build_parameters if parameter.name in small
        }
        if name != "factory":
            specs.append(IndexSpec(name, values))
        if "rabitq" in name:
            specs.append(IndexSpec(name, {**values, "bits": 3}))
    return specs


def _search(manifest: IndexManifest, folder: Path) -> None:
    """Search a loaded index by each way that it has."""
    index: Any = manifest.load(folder, check=False)
    queries = np.random.default_rng(1).standard_normal((3, _DIM)).astype(np.float32)
    mask = np.arange(len(index.ids)) % 3 == 0
    _check(index, index.search(queries, 10), index.ids)
    with mock.patch.object(faiss_index.FaissIndex, "_is_better_exact", _never_exact):  # so few are compared whole
        for allowed in (None, mask, np.flatnonzero(mask)):
            _check(index, index.search(queries, 10, allowed=allowed), index.ids if allowed is None else index.ids[mask])
        _check(index, index.search(queries[:1], 100), index.ids)
    index.reconstruct(index.ids[:5])


def _never_exact(self: Any, k: int, _: int, passing: int, *, filtered: bool) -> bool:  # noqa: ARG001
    return self.index is None or k > passing


def _check(index: Any, answer: tuple[Any, Any], allowed: Any) -> None:
    scores, ids = answer
    assert scores.shape == ids.shape
    assert np.isin(ids, [*allowed, -1]).all(), index


class Store:
    """An index of added documents: two commits, a deletion that is not erased, a graph of vectors."""

    def __init__(self, folder: Path) -> None:
        self.base, self.copy, self.model = folder / "index", folder / "copy", folder / "model"
        _fork(self._build)
        files = sorted(path for path in self.base.rglob("*") if path.is_file() and path.name != "lock")
        self.files = [path.relative_to(self.base) for path in files if path.stat().st_size]

    def _build(self) -> None:
        from binocle import Retriever
        from tests.conftest import build_model

        build_model(self.model)
        retriever = Retriever.open(self.base, model=self.model)
        texts = [f"The {animal} number {number} saw the sea." for number in range(20) for animal in ("cat", "dog")]
        documents = [{"id": f"d{number}", "text": text, "metadata": {"n": number}} for number, text in enumerate(texts)]
        retriever.add(documents[:30])
        retriever.add(documents[30:])
        retriever.build_index("hnsw", m=4, ef_construction=8)
        retriever.delete("d3", "d31", erase=False)

    def case(self, chance: random.Random) -> tuple[str, Callable[[], None]]:
        """Write one mutated index; return the name of the file and what to do with the index."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.base, self.copy)
        name = chance.choice(self.files)
        data = (self.base / name).read_bytes()
        (self.copy / name).write_bytes(mutate_text(data, chance) if name.suffix == ".json" else mutate(data, chance))
        if name.parts[0] == "vectors":
            _sign_again(self.copy, name.parts[1])
        return str(name), lambda: _use(self.copy, str(self.model))


def mutate_text(data: bytes, chance: random.Random) -> bytes:
    """Replace a value of a JSON file by an extreme one, or mutate its bytes."""
    values = re.findall(rb'(?<=: )(?:"[^"]*"|[\w.-]+|\{\}|\[\])', data)
    if not values or chance.random() < 0.3:
        return mutate(data, chance)
    return data.replace(chance.choice(values), chance.choice(_VALUES), chance.choice([1, -1]))


_VALUES = (
    *(b"-1", b"0", b"1e400", b"NaN", b"-Infinity", b"true", b"null", b"18446744073709551616", b"1e18", b"2.5", b"[]"),
    *(b"{}", b'""', b'"../../x"', b'"\\u0000"', b'"\\ud800"', b"9" * 5_000, b"[" * 100_000, b'"' + b"x" * 10**6 + b'"'),
)


def _sign_again(index: Path, name: str) -> None:
    """Make the checksums of a published vector index true, with its folder's name and HEAD."""
    folder = index / "vectors" / name
    try:
        values = json.loads((folder / "manifest.json").read_bytes())
        values["files"] = {file: sha256((folder / file).read_bytes()).hexdigest() for file in values["files"]}
        data = json.dumps(values).encode()
    except (ValueError, KeyError, TypeError, OSError, AttributeError, RecursionError):
        data = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(data)
    signed = f"{name.rsplit('-', 1)[0]}-{sha256(data).hexdigest()[:16]}"
    folder.rename(folder.with_name(signed))
    head = (index / "HEAD.json").read_text().replace(name, signed)
    (index / "HEAD.json").write_text(head)


def _use(index: Path, model: str) -> None:
    """Do everything with an index, first as a stranger's, then, unless it is damaged, as one that the user trusts.

    :param model: the encoder, which is loaded once in each child.
    :raises BinocleError: the last clear error, or the last damage.
    """
    from binocle import Retriever
    from binocle.retriever.models import cache

    cache.load_encoder = _loaded
    for trust in (False, True):
        retriever = None
        refusals: list[BinocleError] = []
        for action in (
            lambda retriever: retriever.search("the cat saw", k=5, mode="semantic"),
            lambda retriever: retriever.search("the cat", k=5, mode="lexical", where="n>3"),
            lambda retriever: retriever.search("dog", k=5, where={"n": [1, 2, 5, 7]}),
            lambda retriever: (retriever.documents(), retriever.text("d5")),
            lambda retriever: retriever.verify(),
            lambda retriever: retriever.add([{"id": "d7", "text": "A new dog."}]),
            lambda retriever: retriever.search("dog", k=5),
        ):
            try:
                retriever = retriever or Retriever.open(index, model=model, trust=trust)
                action(retriever)
            except BinocleError as error:
                refusals.append(error)
                retriever = None
        if damage := [error for error in refusals if isinstance(error, DamagedError)]:
            raise damage[-1]
    if refusals:
        raise refusals[-1]


@functools.cache
def _loaded(name: str) -> Any:
    from binocle.retriever.models.load import load_encoder

    return load_encoder(name)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _fork(action: Callable[[], None]) -> None:
    """Run in a child: threads of FAISS and Lance do not survive a later fork."""
    child = os.fork()
    if not child:
        action()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the indexes cannot be built"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["vectors", "store"], default="vectors")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many, whatever the cases")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"}
    warnings.simplefilter("ignore")
    import faiss  # noqa: F401 - once, before the forks

    if arguments.part == "store":
        import lance  # noqa: F401
        import tokenizers  # noqa: F401

    ends: Counter[str] = Counter()
    findings = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        part = (Vectors if arguments.part == "vectors" else Store)(Path(folder))
        part.copy.mkdir(exist_ok=True)
        seeds = range(arguments.seed, arguments.seed + arguments.cases)
        for seed, end in in_children(part, seeds, began + arguments.seconds, show=arguments.show):
            ends[end] += 1
            if end not in (_ENDS[0], _ENDS[1]):
                findings.append({"seed": seed, "file": part.case(random.Random(seed))[0], "end": end})
                print(findings[-1], flush=True)
    results = {"cases": sum(ends.values()), "ends": ends, "findings": findings}
    if arguments.show:
        print(results)
    else:
        save(f"fuzz_{arguments.part}", {**results, "seconds": round(time.perf_counter() - began)}, seed=arguments.seed)


if __name__ == "__main__":
    main()
