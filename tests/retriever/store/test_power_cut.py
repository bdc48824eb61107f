"""A power cut on a real file system: the disk is copied at a moment, and the copy mounted as after a restart."""

from __future__ import annotations

import contextlib
import gc
import shutil
import subprocess

import pytest

from binocle import Retriever

MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-b", "4096"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
}


def run(*command):
    subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)


@contextlib.contextmanager
def mounted(image, folder):
    """Mount an image; skip the test where this user or machine may not."""
    folder.mkdir()
    try:
        run("mount", "-o", "loop,noatime", image, folder)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no disk can be mounted here: {getattr(error, 'stderr', error)}")
    try:
        yield folder
    finally:
        gc.collect()  # of files that are mapped
        run("umount", "--lazy", folder)


@pytest.fixture(params=["ext4", *(pytest.param(name, marks=pytest.mark.slow) for name in ("xfs", "btrfs"))])
def disk(request, tmp_path):
    """A mounted file system, and a function that mounts a copy of its disk, with only the bytes that reached it."""
    command, image = MAKE[request.param], tmp_path / "disk"
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    with image.open("wb") as stream:
        stream.truncate((64 if request.param == "ext4" else 320) * 2**20)
    run(*command, image)
    copies = []

    @contextlib.contextmanager
    def after_power_cut():
        copies.append(tmp_path / f"copy{len(copies)}")
        run("cp", "--sparse=always", image, copies[-1])
        with mounted(copies[-1], tmp_path / f"mount{len(copies)}") as folder:
            yield folder

    with mounted(image, tmp_path / "mount") as folder:
        yield folder, after_power_cut


@pytest.mark.thorough
def test_a_power_cut_right_after_a_command_loses_nothing(disk, folder, tiny_model):
    mount, after_power_cut = disk
    shutil.copytree(folder, mount / "folder")
    run("sync", "--file-system", mount)
    retriever = Retriever.open(mount / "folder", model=tiny_model)

    for step in (
        retriever.sync,
        lambda: retriever.add([{"id": "one", "text": "The queen sailed by night."}]),
        lambda: retriever.delete("notes/cats.txt"),
    ):
        step()
        rows = retriever.documents()
        with after_power_cut() as copy:
            left = Retriever.open(copy / "folder")
            assert left.documents() == rows
            assert left.verify().faults == []
            hits = left.search("cancel a task", 3)
            assert [hit.passage for hit in hits] == [hit.passage for hit in retriever.search("cancel a task", 3)]
            left.add([{"id": "next", "text": "Cheese in a hot oven."}])
            assert left.search("cheese oven", 1, mode="lexical")[0].path == "next"
            assert left.sync().unchanged
            assert left.verify().faults == []
            del left
