from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path
from typing import get_type_hints

import pytest

import binocle

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.rglob("*.py")
    if path.relative_to(ROOT).parts[0] not in ("tests", "benchmarks", "build")
    and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def imports(name, *, types=True):
    """Modules that a source file imports, wherever in it: as absolute names, the relative ones below `binocle`.

    :param types: whether imports for types alone count.
    """
    package = ["binocle", *Path(name).parent.parts]
    for node in statements(name) if types else chain.from_iterable(map(ast.walk, without_types(name))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, node.level
            yield from ((f"{module}.{alias.name}", node.level) for alias in node.names)


@cache
def tree_of(name):
    return ast.parse((ROOT / name).read_text("utf-8"))


@cache
def statements(name):
    """All nodes of a source file that import, call or name an argument."""
    kinds = (ast.Import, ast.ImportFrom, ast.Call, ast.keyword)
    return [node for node in ast.walk(tree_of(name)) if isinstance(node, kinds)]


def without_types(name):
    return [node for node in tree_of(name).body if not is_for_types(node)]


def is_for_types(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def test_type_hints_of_the_public_names_resolve():
    from binocle.indexes.tuning.optimize import OptimizationResult
    from binocle.retriever.enrichment.enrich import EnrichReport
    from binocle.retriever.indexing.switch import SwitchReport
    from binocle.retriever.integrity.repair import Repair
    from binocle.retriever.integrity.verify import Verification
    from binocle.retriever.models.heads.reader import Reader
    from binocle.retriever.scope import Scope
    from binocle.retriever.search.answers import Answer
    from binocle.retriever.search.context import Context, Order, Passage
    from binocle.retriever.searches import Searches
    from binocle.retriever.upkeep import Upkeep

    # their modules are imported when they are first used
    late = {"Scope": Scope, "Reader": Reader, "Answer": Answer, "EnrichReport": EnrichReport}
    late |= {of.__name__: of for of in (SwitchReport, OptimizationResult, Repair, Verification, Context)}
    late["Order"] = Order

    members = {**vars(Searches), **vars(Upkeep), **vars(binocle.Retriever)}.values()
    functions = [getattr(function, "__func__", function) for function in members]
    public = [function for function in functions if callable(function) and not function.__name__.startswith("_")]
    assert len(public) > 10
    for annotated in [*public, binocle.Retriever.__init__, binocle.Hit, Passage, binocle.Context]:
        assert get_type_hints(annotated, localns=late)
    assert get_type_hints(binocle.Retriever.search)["return"] is binocle.Hits


@pytest.mark.parametrize(
    "name", ["search", "answer", "context", "get", "iterate", "facets", "status", "add", "scope", "evaluate"]
)
def test_types_that_an_application_gets_are_public_names(name):
    annotation = inspect.signature(getattr(binocle.Retriever, name, binocle.evaluate)).return_annotation
    assert set(re.findall(r"\b[A-Z]\w+", annotation)) - {"Iterator"} <= set(binocle.__all__)


def test_typed_options_are_the_arguments_of_a_search_and_of_a_context():
    from binocle.retriever.search.search_options import ContextOptions, HitOptions, SearchOptions

    def arguments(function):
        return set(inspect.signature(function).parameters) - {"self", "query", "where"}

    assert SearchOptions.__optional_keys__ == arguments(binocle.Retriever.search) - {"k"}
    assert ContextOptions.__optional_keys__ == arguments(binocle.Retriever.context)
    assert HitOptions.__optional_keys__ == SearchOptions.__optional_keys__ - {"vector", "ids", "deadline"}


def test_server_takes_every_option_of_a_search_and_of_a_context_with_its_default():
    pytest.importorskip("pydantic")
    from binocle.retriever.servers.http.api.request_shapes import ContextInput, SearchInput, SearchManyInput

    def options(function, *left_out):
        parameters = inspect.signature(function).parameters.items()
        return {name: parameter.default for name, parameter in parameters if name not in ("self", "rerank", *left_out)}

    def fields(model, names):
        return {name: model.model_fields[name].get_default() for name in names if name in model.model_fields}

    searches = options(binocle.Retriever.search)
    assert fields(SearchInput, searches) == searches
    many = options(binocle.Retriever.search, "query", "vector")
    assert fields(SearchManyInput, many) == many
    contexts = options(binocle.Retriever.context, "query", "tokenizer")
    assert fields(ContextInput, contexts) == contexts


def test_every_folder_with_code_is_a_package_that_ships():
    folders = {Path(name).parent.as_posix() for name in SOURCES}
    expected = {"binocle" if folder == "." else f"binocle.{folder.replace('/', '.')}" for folder in folders}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == expected
    for folder in folders:
        assert (ROOT / folder / "__init__.py").is_file(), folder


def test_the_root_holds_only_three_modules():
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py", "cli.py"}
    assert not (ROOT / "conftest.py").exists()


def test_tests_and_benchmarks_do_not_ship():
    packages = PROJECT["tool"]["setuptools"]["packages"]
    assert not [name for name in packages if "tests" in name or "benchmarks" in name]
    assert PROJECT["tool"]["setuptools"]["include-package-data"] is False
    assert (ROOT / "py.typed").is_file()


def test_a_source_distribution_holds_what_its_tests_read():
    manifest = (ROOT / "MANIFEST.in").read_text("utf-8")
    for folder in ("tests", "docs", "benchmarks", ".ci"):
        assert f"graft {folder}\n" in manifest
    assert "include CHANGELOG.md constraints.txt requirements.lock\n" in manifest


EXTRAS = PROJECT["project"]["optional-dependencies"]
DECLARED = [line for lines in (PROJECT["project"]["dependencies"], *EXTRAS.values()) for line in lines]


def test_every_library_that_is_imported_is_declared():
    declared = {re.match(r"[\w-]+", line)[0] for line in DECLARED}
    declared |= {"botocore", "pydantic-core", "triton"}  # parts of boto3's API, of pydantic's, and of torch for GPUs
    imported = {module.split(".")[0] for name in SOURCES for module, level in imports(name) if not level}
    providers = packages_distributions()
    for module in imported - set(sys.stdlib_module_names) - {"binocle", "typing_extensions"}:  # this for types alone
        assert declared & {name.lower().replace("_", "-") for name in providers.get(module, [module])}, module


def test_every_extra_that_is_named_exists():
    texts = [(ROOT / name).read_text("utf-8") for name in ("README.md", *SOURCES)]
    written = {
        extra
        for text in [*DECLARED, *texts]
        for names in re.findall(r"binocle\[(.+?)\]", text)
        for extra in names.split(",")
    }
    raised = {extra for text in texts for extra in re.findall(r'MissingExtraError\(\s*"[\w-]+",\s*"(\w+)"', text)}
    assert {"train", "s3", "ray"} <= raised
    assert written - {"{extra}"} | raised <= EXTRAS.keys()


def test_the_version_is_that_of_the_project_file():
    assert binocle.__version__ == PROJECT["project"]["version"]


def test_what_is_exported_is_exactly_all():
    assert sorted(binocle.__all__) == list(binocle.__all__)
    for name in binocle.__all__:
        assert getattr(binocle, name) is not None
    public = {name for name in dir(binocle) if not name.startswith("_")}
    modules = {
        "cli",
        "commands",
        "core",
        "indexes",
        "retriever",
        "training",
        "annotations",
        "import_module",
        "TYPE_CHECKING",
        "Any",
    }
    assert public - modules == set(binocle.__all__)


def test_every_exported_name_comes_from_its_module():
    for name, module in binocle._MODULES.items():
        assert getattr(binocle, name) is getattr(import_module(f"binocle.{module}"), name)
    assert set(binocle._MODULES) == set(binocle.__all__)


def test_a_type_checker_sees_the_same_names():
    tree = ast.parse((ROOT / "__init__.py").read_text("utf-8"))
    block, hidden = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(hidden.test) == "not TYPE_CHECKING"
    assert "__getattr__" in {node.name for node in hidden.body}  # type: ignore[attr-defined]
    lines = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: line.module for line in lines for alias in line.names} == binocle._MODULES


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        binocle.nonsense  # type: ignore[attr-defined] # noqa: B018


# Which way dependencies run


def test_imports_inside_the_package_are_relative():
    for name in SOURCES:
        absolute = {module for module, level in imports(name) if not level and module.split(".")[0] == "binocle"}
        assert not absolute or name == "cli.py", (name, absolute)


FORBIDDEN = {
    "core": ("indexes", "retriever", "training", "commands", "cli"),
    "indexes": ("retriever", "training", "commands", "cli"),
    "retriever": ("training", "commands", "cli"),
    "training": ("commands", "cli"),
    "commands": ("cli",),
    "__init__.py": ("commands", "cli"),
}


def test_dependencies_run_one_way():
    for name in SOURCES:
        above = (
            ()
            if name in ("cli.py", "__main__.py")
            else tuple(f"binocle.{room}." for room in FORBIDDEN[name.split("/")[0]])
        )
        for module, _ in imports(name):
            assert not f"{module}.".startswith(above), (name, module)


PICKLES = {"pickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"}


def test_nothing_loads_pickles_or_foreign_code():
    for name in SOURCES:
        assert not PICKLES & {module.split(".")[0] for module, _ in imports(name)}, name
        for node in statements(name):
            if isinstance(node, ast.keyword) and node.arg in ("trust_remote_code", "allow_pickle"):
                assert isinstance(node.value, ast.Constant), name
                assert node.value.value is False, name
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
                module = getattr(node.func.value, "id", "")
                assert module != "torch", name
                assert module != "np" or "allow_pickle" in {keyword.arg for keyword in node.keywords}, name


def test_no_module_is_named_utils():
    assert not [name for name in SOURCES if Path(name).stem in ("utils", "helpers", "common", "misc")]


# The cost of an import and of a search

HEAVY = [
    "torch",
    "transformers",
    "sentence_transformers",
    "lancedb",
    "openvino",
    "pandas",
    "sklearn",
    "huggingface_hub",
    "matplotlib",
    "datasets",
    "faiss",
    "numpy.ma",
]


COMMAND = "import sys\nfrom binocle.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code"

FRAMEWORKS = ("haystack", "langchain_core", "llama_index", "mteb")  # each adapter imports its own


def loaded_after(code, *arguments):
    """The heavy modules that a process has after running some code."""
    script = f"{code}\nimport sys\nprint(*sorted(name for name in {HEAVY} if name in sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_an_application_with_folders_of_the_same_names_keeps_them(here, tmp_path):
    own = tmp_path / "application"
    rooms = sorted(path.name for path in Path(binocle.__file__).parent.iterdir() if (path / "__init__.py").exists())
    assert {"training", "indexes", "commands", "core"} <= set(rooms)
    for name in rooms:
        (own / name).mkdir(parents=True)
        (own / name / "__init__.py").write_text("OWN = True\n")
    for name in ("cli", "__main__"):
        (own / f"{name}.py").write_text("OWN = True\n")
    (own / "application.py").write_text(
        f"import {', '.join(rooms)}, cli, sys\n"
        "from binocle import Retriever\n"
        "print(Retriever.open(sys.argv[1]).search('cancel a task', k=1)[0].path)\n"
        "import binocle.cli, binocle.training, binocle.commands.index\n"
        f"assert all(room.OWN for room in ({', '.join(rooms)}, cli))\n"
        "assert not hasattr(binocle.cli, 'OWN') and not hasattr(binocle.training, 'OWN')\n"
    )
    search = [sys.executable, "-m", "binocle.cli", "search", "cancel a task", str(here), "-k", "1", "--json"]
    for words in ([sys.executable, "application.py", str(here)], search):
        done = subprocess.run(words, cwd=own, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "notes/guide/tasks.md" in done.stdout


def test_importing_the_package_imports_nothing_else_and_prints_nothing():
    out, loaded = loaded_after(
        "import binocle, sys; assert not {'numpy', 'lance', 'click'} & set(sys.modules), set(sys.modules)"
    )
    assert (out, loaded) == ("", "\n")


def test_help_of_every_command_needs_no_numpy_and_no_lance():
    code = (
        "import sys\nfrom binocle.cli import cli\nassert not [name for name in sys.modules if '.commands.' in name]\n"
        "for name in cli.commands:\n    cli.main([name, '--help'], standalone_mode=False)\n"
        "assert not {'numpy', 'lance'} & set(sys.modules)"
    )
    out, loaded = loaded_after(code)
    assert out.count("Usage: ") == 37
    assert loaded == "\n"


def imported_at_the_top(name):
    """The modules that a source file imports at its top, outside functions."""
    package = ["binocle", *Path(name).parent.parts]
    blocks = list(tree_of(name).body)
    while blocks:
        node = blocks.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))
        elif isinstance(node, (ast.Try, ast.If)) and not is_for_types(node):
            blocks += [
                *node.body,
                *node.orelse,
                *(line for part in getattr(node, "handlers", []) for line in part.body),
            ]


@cache
def light_modules():
    """The modules that import without a heavy library, by their name, and those that import one at their top."""
    names = {
        "binocle." + name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in SOURCES
    }
    tops = {module: set(imported_at_the_top(name)) for module, name in names.items() if name != "__init__.py"}
    libraries = {*HEAVY, *FRAMEWORKS, "safetensors.torch"}
    heavy = {
        module
        for module, top in tops.items()
        if {part for name in top for part in (name, name.split(".")[0])} & libraries
    }
    while more := {module for module, top in tops.items() if top & heavy} - heavy:
        heavy |= more
    return sorted(tops.keys() - heavy), heavy


def test_every_light_module_imports_by_itself_without_printing():
    light, _ = light_modules()
    out, loaded = loaded_after("".join(f"import {module}\n" for module in light))
    assert (out, loaded.strip()) in {("", ""), ("", "numpy.ma pandas")}


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_every_heavy_module_runs_by_itself_without_printing(capfd, monkeypatch):
    """In this process, which imports the heavy libraries once for all tests: a new one needs 12 seconds for them."""
    _, heavy = light_modules()
    if not all(map(find_spec, FRAMEWORKS)):
        heavy = {module for module in heavy if ".adapters." not in module}
    if find_spec("triton") is None:  # torch for CPUs comes without
        heavy = {module for module in heavy if not module.endswith(".gpu_kernels")}
    for module in sorted(heavy):
        package, _, name = module.rpartition(".")
        spec = spec_from_file_location(f"{package}.again_{name}", find_spec(module).origin)
        copy = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, copy)
        spec.loader.exec_module(copy)
        assert (module, *capfd.readouterr()) == (module, "", "")


def test_torch_is_imported_at_the_top_of_few_rooms_and_behind_a_door():
    _, heavy = light_modules()
    rooms = (
        "binocle.retriever.adapters.",
        "binocle.retriever.inversion.",
        "binocle.retriever.models.",
        "binocle.indexes.",
        "binocle.training.",
    )
    assert all(module.startswith(rooms) for module in heavy), heavy
    commands = [name for name in SOURCES if name.startswith("commands/")]
    doors = {module for name in commands for module, _ in imports(name, types=False)}
    assert not doors & heavy  # so that a command says which extra is missing, and checks its options first


def test_a_search_of_few_passages_needs_no_torch_lancedb_openvino_or_faiss(retriever):
    for place in ([str(retriever.path.parent)], ["--index", str(retriever.path)]):
        out, loaded = loaded_after(COMMAND, "search", "cancel a task", *place)
        assert "tasks.md" in out
        assert loaded.strip() == ""


@pytest.mark.parametrize(
    "words",
    [
        ["cancel +task"],
        ["cancel() tasks.md"],
        ["cancel a task", "--where", "type=markdown"],
        ["cancel a task", "--where", "path=notes/guide/tasks.md"],
        ["cancel a task", "--mode", "semantic", "--where", "path=notes/guide/tasks.md"],
    ],
)
def test_a_search_with_an_exact_part_or_a_filter_needs_none_either(retriever, words):
    out, loaded = loaded_after(COMMAND, "search", *words, "--index", str(retriever.path))
    assert "tasks.md" in out
    assert loaded.strip() == ""


def test_a_search_by_the_library_needs_none_either(retriever):
    code = f"from binocle import Retriever\nprint(Retriever.open({str(retriever.path)!r}).search('bread')[0].path)"
    out, loaded = loaded_after(code)
    assert out.strip() in {"web/bread.html", "data/prices.csv"}
    assert loaded.strip() in ("", "numpy.ma pandas")  # pyarrow imports it where it is installed


def test_the_reader_of_a_worker_needs_none_either(folder):
    out, loaded = loaded_after(
        "import sys, pathlib\nfrom binocle.retriever.readers import read\nfile = pathlib.Path(sys.argv[1])\nprint(read(file.read_bytes(), file.name).format)",
        str(folder / "README.md"),
    )
    assert (out, loaded) == ("markdown\n", "\n")


def test_search_works_with_an_unwritable_home(retriever, tmp_path):
    code = f"from binocle import Retriever\nprint(len(Retriever.open({str(retriever.path)!r}).search('bread', 3)))"
    environment = {**os.environ, "HOME": "/proc", "XDG_CACHE_HOME": "/proc/none"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
