"""Check that every installed dependency of Binocle has a licence that lets anyone use it, in any product.

It goes through the requirements of Binocle and of all its extras, as far as they are installed, and reads the
metadata of each. Permissive licences pass, and MPL-2.0, which binds only who changes the files of that package.
NVIDIA's own libraries, which some builds of torch bring along, are left out: Binocle runs without them.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

_ALLOWED = re.compile(
    r"""(the\ )?(
        apache([ -]software)?([ -]licen[cs]e)?,?([ -]version)?([ -]2(\.0)?)?([ -]license)?
      | (0|2-clause|3-clause)?[ -]?bsd([ -][23][ -]clause)?([ -]licen[cs]e)?
      | mit([ -]cmu|-0)?([ -]license)? | isc([ -]license)?(\ \(iscl\))? | zlib | bsl-1\.0 | cc0-1\.0 | cnri-python
      | psf-2\.0 | python\ software\ foundation\ license
      | mpl-2\.0 | mozilla\ public\ license\ 2\.0(\ \(mpl\ 2\.0\))?
      | llvm-exception
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_OF_CUDA = re.compile(r"nvidia-.*|cuda-.*")  # a CPU build of torch has none of them
_READ = {  # the metadata of these distributions name no licence, or not how several go together; their files do
    "dirtyjson": "MIT OR AFL-2.1",
    "pypdfium2": "BSD-3-Clause AND Apache-2.0",  # and PDFium's parts, all permissive: BUILD_LICENSES in the wheel
}


def dependencies(name: str) -> dict[str, Distribution]:
    """Return the installed distributions that a distribution and all its extras need, by name."""
    found: dict[str, Distribution] = {}
    extras = distribution(name).metadata.get_all("Provides-Extra") or []
    waiting = [(name, frozenset(extras))]
    seen = set(waiting)
    while waiting:
        current, wanted_extras = waiting.pop()
        try:
            found[current] = distribution(current)
        except PackageNotFoundError:
            continue  # of an extra that is not installed
        for requirement in map(Requirement, found[current].requires or []):
            if any(
                requirement.marker is None or requirement.marker.evaluate({"extra": e}) for e in {"", *wanted_extras}
            ):
                item = re.sub(r"[-_.]+", "-", requirement.name).lower(), frozenset(requirement.extras)
                waiting += [item] if item not in seen and not _OF_CUDA.fullmatch(item[0]) else []
                seen.add(item)
    return found


def licence(package: Distribution) -> str:
    """Return the licence of a distribution: its expression, its classifiers, or the first line of its text."""
    metadata = package.metadata
    classifiers = [value for value in metadata.get_all("Classifier") or [] if value.startswith("License ::")]
    named = [value.split(" :: ")[-1] for value in classifiers if not value.endswith("OSI Approved")]
    text = (metadata.get("License") or "").strip().split("\n")[0]
    return metadata.get("License-Expression") or " AND ".join(named) or text or "none"


def is_allowed(expression: str) -> bool:
    """Tell whether one side of each OR has allowed licences alone."""
    choices = re.split(r"\s+OR\s+", expression)
    return any(all(map(_is_one_allowed, re.split(r"\s+(?:AND|WITH)\s+", choice))) for choice in choices)


def _is_one_allowed(name: str) -> bool:
    is_part = name.count("(") != name.count(")")  # of a group of alternatives
    return _ALLOWED.fullmatch(name.strip("() ") if is_part else name.strip()) is not None


def refused(packages: dict[str, Distribution]) -> dict[str, str]:
    """Return the distributions without an allowed licence, each with the licence that it has."""
    licences = {name: _READ.get(name) or licence(package) for name, package in packages.items()}
    return {name: text for name, text in licences.items() if not is_allowed(text)}


if __name__ == "__main__":
    packages = dependencies("binocle")
    problems = refused(packages)
    for name, text in sorted(problems.items()):
        print(f"{name} has the licence {text!r}, which is not on the list of .ci/licences.py")
    print(f"{len(packages)} distributions, {len(problems)} refused")
    sys.exit(bool(problems))
