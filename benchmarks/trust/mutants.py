"""Change the store one place at a time, and count the changes that no test notices.

    python -m benchmarks.trust.mutants [--count 300] [--seed 0] [--modules retriever/store/head.py] [--seconds N]

needs `pip install coverage`. One run of the tests notes which lines each test reaches, and how long it takes. Then a
mutant at a time is compiled in a forked child. The child runs the tests that reach its line, the fastest first, until
one fails. A mutant that passes all of them survives. Tests that start processes do not see it, so they count for
nothing. The results lie in `--work` too: a run that was stopped by `--seconds` goes on there.

A mutant swaps a comparison, an arithmetic or a logical operator, negates a condition, or changes a number or a truth
value. Or it deletes a statement, returns None, or exchanges `break` and `continue`. Texts are never changed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MODULES = (
    *("retriever/store/*.py", "retriever/store/foreign/*.py"),
    *("retriever/store/locations/folder_location.py", "retriever/store/locations/location.py"),
    *("retriever/store/locations/new_files.py", "retriever/store/locations/waiting_line.py"),
    *("retriever/store/derived/vector_index.py", "retriever/store/derived/live_index.py", "retriever/writes.py"),
    *("retriever/indexing/*.py", "retriever/indexing/sync/*.py", "indexes/published.py", "indexes/manifest.py"),
)
TESTS = (
    *("tests/retriever/store", "tests/retriever/indexing", "tests/retriever/integrity", "tests/retriever/test_*.py"),
    *("tests/retriever/enrichment", "tests/retriever/cluster", "tests/indexes/test_*.py", "tests/indexes/tuning"),
    *("tests/retriever/models/encoders/test_adapted_encoder.py", "tests/end_to_end/test_folders.py"),
)
PRELOADED = (
    *("numpy.testing", "pyarrow.compute", "pyarrow.dataset", "lance.query", "faiss", "tokenizers", "safetensors.numpy"),
    *("coverage", "hypothesis.strategies", "click.testing", "filelock", "anyio", "xdist", "unittest.mock"),
)
_SECONDS = 120  # of processor time, of all tests of a mutant: 300 or more can reach a line
_STARTING = 60  # of processor time, to import modules and collect the tests
_SLACK = 3  # tests that take this many times their seconds are taken for a loop without end
_FIRST = 30  # tests that run before the others are collected: most mutants end here
_CONTROLS = 25  # for one mutant in 25, its tests first run on the unchanged code, and must pass
_PAIRS = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.BitOr, ast.BitAnd)),
    (ast.Break, ast.Continue),
)
_SWAPS: dict[type, type] = {operator: swapped for pair in _PAIRS for operator, swapped in (pair, pair[::-1])}


class Mutant(NamedTuple):
    """A change of one node: the place of the node in a walk of the tree, and the kind of the change."""

    module: str
    number: int
    kind: str
    line: int


def find(module: str) -> Iterator[Mutant]:
    """All mutants of a module."""
    tree = ast.parse((ROOT / module).read_text("utf-8"))
    skipped = {id(child) for node in ast.walk(tree) for part in _untouched(node) for child in ast.walk(part)}
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, (ast.expr, ast.stmt)) and id(node) not in skipped:
            for kind in _kinds(node):
                yield Mutant(module, number, kind, node.lineno)


def _untouched(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that no mutant changes: annotations, decorators, texts, imports for types, `strict`."""
    match node:
        case ast.FunctionDef():
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg]
            types = [argument.annotation for argument in arguments if argument]
            return [part for part in (*types, node.returns, *node.decorator_list) if part]
        case ast.ClassDef() | ast.AnnAssign():
            return [*node.decorator_list] if isinstance(node, ast.ClassDef) else [node.annotation]
        case ast.Raise() | ast.Assert() | ast.JoinedStr():
            return list(ast.iter_child_nodes(node))
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Expr(value=ast.Constant()) | ast.keyword(arg="strict"):
            return [node]
    return []


def _kinds(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[op]) | ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op):
            if type(op) in _SWAPS:
                yield "swap"
        case ast.Break() | ast.Continue():
            yield "swap"
        case ast.If() | ast.While() | ast.IfExp():
            yield "negate"
        case ast.UnaryOp(op=ast.Not()):
            yield "unnot"
        case ast.Constant(value=bool() | int() | float()):
            yield "number"
        case ast.Return(value=ast.AST() as value) if not isinstance(value, ast.Constant):
            yield "none"
    if isinstance(node, (ast.Expr, ast.Raise, ast.AugAssign, ast.Assert)):
        yield "delete"


def code_of(mutant: Mutant) -> tuple[Any, str]:
    """The compiled module with the change, and the changed line."""
    tree = ast.parse((ROOT / mutant.module).read_text("utf-8"))
    node = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.number)
    before = ast.unparse(copy.deepcopy(node)).split("\n")[0]
    changed = _changed(node, mutant.kind)
    _Replace(node, changed).visit(tree)
    text = f"{before}  ->  {ast.unparse(changed).split(chr(10))[0]}"
    return compile(ast.fix_missing_locations(tree), ROOT / mutant.module, "exec"), text


def _changed(node: Any, kind: str) -> Any:
    new = copy.copy(node)
    match kind:
        case "swap" if isinstance(node, ast.Compare):
            new.ops = [_SWAPS[type(node.ops[0])]()]
        case "swap" if isinstance(node, (ast.Break, ast.Continue)):
            new = _SWAPS[type(node)]()
        case "swap":
            new.op = _SWAPS[type(node.op)]()
        case "negate":
            new.test = ast.UnaryOp(ast.Not(), node.test)
        case "unnot":
            new = node.operand
        case "number":
            new = ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
        case "none":
            new.value = ast.Constant(None)
        case "delete":
            new = ast.Pass()
    return ast.copy_location(new, node)


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else super().visit(node)


# The tests


class Reach:
    """A pytest plugin that notes the lines that each test reaches, and its seconds."""

    def __init__(self, modules: list[str]) -> None:
        import coverage

        self._modules = {str(ROOT / module): module for module in modules}
        self._coverage = coverage.Coverage(data_file=None, branch=True, include=list(self._modules), messages=False)
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        start = time.process_time()
        self._coverage.switch_context(item.nodeid)
        result = yield
        self._coverage.switch_context("")
        self.seconds[item.nodeid] = time.process_time() - start
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def run(self, tests: list[str], work: Path) -> dict[str, Any]:
        """Run the tests; write and return the tests by module and line, and the lines and branches never taken."""
        self._coverage.start()
        pytest.main([*_QUIET, "-W", "ignore", *tests], plugins=[self])
        self._coverage.stop()
        data, lines = self._coverage.get_data(), {}
        for file, module in self._modules.items():
            contexts = data.contexts_by_lineno(file)
            lines[module] = {line: [t for t in names if t and t not in self.failed] for line, names in contexts.items()}
        missing = _missing(self._coverage, work)
        reach = {"lines": lines, "seconds": self.seconds, "failed": sorted(self.failed), "missing": missing}
        (work / "reach.json").write_text(json.dumps(reach))
        return reach


_QUIET = ["-q", "--no-header", "-p", "no:cacheprovider"]


def _missing(coverage: Any, work: Path) -> dict[str, Any]:
    """The lines and branches of each module that no test takes, and how many it has."""
    coverage.json_report(outfile=str(work / "coverage.json"))
    files = json.loads((work / "coverage.json").read_text())["files"]
    return {
        name: {
            "lines": file["missing_lines"],
            "branches": file["missing_branches"],
            "of": [file["summary"]["num_statements"], file["summary"]["num_branches"]],
        }
        for name, file in files.items()
    }


def tests_of(mutant: Mutant, reach: dict[str, Any]) -> list[str]:
    """The tests that reach the line of a mutant, the fastest first, as many as the seconds allow.

    Of a line that runs when the module is imported, the tests that reach any line of the module.
    """
    lines = reach["lines"].get(mutant.module, {})
    inside = mutant.line in _lines_of_functions(mutant.module)
    names = lines.get(str(mutant.line), []) if inside else {name for names in lines.values() for name in names}
    tests, left = [], float(_SECONDS)
    for name in sorted(names, key=lambda name: (reach["seconds"][name], name)):
        left -= reach["seconds"][name]
        if left < 0:
            break
        tests.append(name)
    return tests


@functools.cache
def _lines_of_functions(module: str) -> set[int]:
    nodes = ast.walk(ast.parse((ROOT / module).read_text("utf-8")))
    bodies = (node.body for node in nodes if isinstance(node, ast.FunctionDef))
    return {line for body in bodies for line in range(body[0].lineno, (body[-1].end_lineno or 0) + 1)}


def outcome(mutant: Mutant | None, tests: list[str], seconds: dict[str, float]) -> str:
    """Run the tests on a mutant in a child, or on the unchanged code; `killed`, `survived` or `unreached`."""
    if not tests:
        return "unreached"
    for part in filter(None, (tests[:_FIRST], tests[_FIRST:])):
        child = os.fork()
        if not child:
            _run_child(mutant, part, _STARTING + int(_SLACK * sum(seconds[test] for test in part)))
        if os.waitpid(child, 0)[1]:
            return "killed"
    return "survived"


def _run_child(mutant: Mutant | None, tests: list[str], seconds: int) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    signal.alarm(10 * seconds)
    if mutant:
        code, path = code_of(mutant)[0], str(ROOT / mutant.module)
        original = SourceFileLoader.get_code
        SourceFileLoader.get_code = (  # type: ignore[method-assign]
            lambda loader, name: code if getattr(loader, "path", None) == path else original(loader, name)
        )
    status = 1
    try:
        status = int(pytest.main([*_QUIET, "-x", "-W", "ignore", *tests]))
    finally:
        os._exit(status)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="mutants, drawn by chance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--modules", nargs="+", default=MODULES)
    parser.add_argument("--tests", nargs="+", default=TESTS)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mutants")
    parser.add_argument("--print", action="store_true", help="print the results and do not save them")
    parser.add_argument("--name", default="mutants", help="name of the file in results/")
    arguments = parser.parse_args()
    arguments.work.mkdir(exist_ok=True)
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT.parent), str(ROOT)]
    spec = importlib.util.find_spec("binocle")
    if spec is None or spec.origin != str(ROOT / "__init__.py"):
        raise SystemExit(f"'import binocle' does not find {ROOT}: call the folder binocle, else no change counts")
    modules = sorted({str(file.relative_to(ROOT)) for name in arguments.modules for file in ROOT.glob(name)})
    if not (arguments.work / "reach.json").exists():
        _fork_reach(modules, arguments)
    reach = json.loads((arguments.work / "reach.json").read_text())
    for name in PRELOADED:
        importlib.import_module(name)  # once, before the forks
    mutants = [mutant for module in modules for mutant in find(module)]
    drawn = random.Random(arguments.seed).sample(mutants, min(arguments.count, len(mutants)))
    results = _judge(drawn, reach, time.monotonic() + arguments.seconds, arguments.work / "ends.json")
    results = {"mutants": len(mutants), "modules": modules, **results, "coverage": reach["missing"]}
    if arguments.print:
        print(json.dumps(results))
    else:
        save(arguments.name, results, seed=arguments.seed)


def _fork_reach(modules: list[str], arguments: argparse.Namespace) -> None:
    child = os.fork()
    if not child:
        tests = [str(file) for name in arguments.tests for file in sorted(ROOT.glob(name))]
        Reach(modules).run(tests, arguments.work)
        os._exit(0)
    os.waitpid(child, 0)


def _judge(drawn: list[Mutant], reach: dict[str, Any], until: float, file: Path) -> dict[str, Any]:
    ends: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    counts: Counter[str] = Counter()
    by_module: dict[str, Counter[str]] = defaultdict(Counter)
    left = []
    for number, mutant in enumerate(drawn):
        name = f"{mutant.module} {mutant.number} {mutant.kind}"
        if name not in ends:
            if time.monotonic() > until:
                break
            tests = tests_of(mutant, reach)
            if tests and number % _CONTROLS == 0 and outcome(None, tests, reach["seconds"]) == "killed":
                raise SystemExit(f"these tests fail on the unchanged code, by themselves: {tests}")
            ends[name] = outcome(mutant, tests, reach["seconds"])
            file.write_text(json.dumps(ends))
        end = ends[name]
        counts[end] += 1
        by_module[mutant.module][end] += 1
        if end != "killed":
            left.append({"place": f"{mutant.module}:{mutant.line}", "end": end, "change": code_of(mutant)[1]})
            print(json.dumps(left[-1]), file=sys.stderr, flush=True)
    share = round(counts["killed"] / max(1, sum(counts.values())), 4)
    return {"drawn": sum(counts.values()), **counts, "killed_share": share, "by_module": by_module, "left": left}


if __name__ == "__main__":
    main()
