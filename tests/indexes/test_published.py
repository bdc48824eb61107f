"""The folder of a published index: limits of its manifest, files that two share, and what an error leaves."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from binocle.core.errors import DamagedError, InputError
from binocle.indexes import manifest as manifests
from binocle.indexes.manifest import IndexManifest, IndexMetadata
from binocle.indexes.published import amend, build, publish_files
from binocle.indexes.registry import IndexSpec

from .test_indexes import DIM, index_of, load, published, sealed


def built(folder, count=20, seed=0):
    index = index_of(count, seed)
    return build(folder, IndexSpec(), [(index.ids, index.vectors)], dim=DIM, covers=3)


@pytest.mark.parametrize(("size", "is_read"), [(2**26, True), (2**26 + 1, False)])
def test_a_manifest_of_more_than_64_mib_is_not_read(size, is_read, tmp_path, monkeypatch):
    folder = published(tmp_path / "vectors", index_of(20))
    os.truncate(folder / "manifest.json", size)  # sparse: it takes no space
    monkeypatch.setattr(json, "loads", lambda _: [])  # the content does not matter
    with pytest.raises(DamagedError) as refusal:
        IndexManifest.read(folder)
    assert ("larger than 67,108,864 bytes" in str(refusal.value)) != is_read


@pytest.mark.parametrize("name", ["count", "dim", "covers"])
def test_counts_in_a_manifest_fit_62_bits(name, tmp_path):
    folder = published(tmp_path / "vectors", index_of(20))
    whole = json.loads((folder / "manifest.json").read_text())
    for value, is_possible in ((2**62 - 1, True), (2**62, False), (0, True), (-1, False)):
        (folder / "manifest.json").write_text(json.dumps(whole | {name: value}))
        folder = sealed(folder)
        if is_possible:
            assert getattr(IndexManifest.read(folder), name) == value
        else:
            with pytest.raises(DamagedError, match="holds impossible values"):
                IndexManifest.read(folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"build": []}, "impossible values"),
        ({"search": []}, "impossible values"),
        ({"measured": []}, "impossible values"),
        ({"files": []}, "impossible values"),
        ({"metric": 1}, "impossible values"),
        ({"kind": None}, "impossible values"),
        ({"search": {"nprobe": 3}}, "a manifest that no index can have"),
        ({"kind": "pickle"}, "is of kind 'pickle', which this version does not know"),
    ],
)
def test_a_sealed_manifest_is_checked_value_by_value(change, says, tmp_path):
    folder = published(tmp_path / "vectors", index_of(20))
    whole = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(whole | change))
    with pytest.raises(DamagedError, match=says):
        load(sealed(folder))


def test_a_manifest_has_the_format_that_earlier_versions_read(tmp_path):
    folder = published(tmp_path / "vectors", index_of(20))
    values = json.loads((folder / "manifest.json").read_text())
    assert (values["format"], values["covers"], values["measured"]) == (1, 3, {})


def test_an_index_that_this_process_has_just_built_is_opened_without_checksums(tmp_path, monkeypatch):
    index = built(tmp_path)
    for name in ("sha256", "known_sha256"):
        monkeypatch.setattr(manifests, name, lambda file: pytest.fail(f"read {file}"))
    assert index.load().ids.tolist() == index_of(20).ids.tolist()


def test_equal_files_of_two_indexes_are_one_file(tmp_path):
    one, other, third = built(tmp_path), built(tmp_path), built(tmp_path, seed=1)
    before = {name: (third.folder / name).stat().st_ino for name in third.manifest.files}
    one.share_files(other)
    third.share_files(other)
    for name in one.manifest.files:
        assert (one.folder / name).stat().st_ino == (other.folder / name).stat().st_ino
    for name, inode in before.items():
        is_equal = third.manifest.files[name] == other.manifest.files[name]
        assert ((third.folder / name).stat().st_ino == inode) != is_equal
    assert not list(tmp_path.glob("*/.shared"))
    assert {len(index.load().ids) for index in (one, other, third)} == {20}


def test_files_are_not_shared_where_there_are_no_links(tmp_path, monkeypatch):
    one, other = built(tmp_path), built(tmp_path)

    def link(*_):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", link)
    one.share_files(other)
    other.discard()
    assert len(one.load().ids) == 20


def test_an_index_is_discarded_once(tmp_path):
    index = built(tmp_path / "vectors")
    index.discard()
    index.discard()
    assert list((tmp_path / "vectors").iterdir()) == []


@pytest.mark.parametrize("is_gone", [False, True])
def test_an_error_of_the_rows_reaches_the_caller_and_leaves_no_folder(is_gone, tmp_path):
    def rows():
        yield index_of(3).ids, index_of(3).vectors
        if is_gone:
            shutil.rmtree(next((tmp_path / "vectors").iterdir()))
        raise InputError("no more rows")

    with pytest.raises(InputError, match="no more rows"):
        build(tmp_path / "vectors", IndexSpec(), rows(), dim=DIM, covers=1)
    assert list((tmp_path / "vectors").iterdir()) == []


def test_files_that_are_no_vector_index_are_published_with_their_description(tmp_path):
    for number in range(2):  # the second finds the folder there
        name = publish_files(
            tmp_path / "vectors",
            "words",
            lambda folder: (folder / "words.bin").write_bytes(b"cat"),
            count=7,
            covers=number,
            description={"n": 1},
        )
        manifest = IndexManifest.read(tmp_path / "vectors" / name)
        assert (manifest.kind, manifest.count, manifest.dim, manifest.covers) == ("words", 7, 0, number)
        assert (manifest.build, [*manifest.files]) == ({"n": 1}, ["words.bin"])
        manifest.check_files(tmp_path / "vectors" / name)

    def remove(folder):
        folder.rmdir()
        raise InputError("no words")

    with pytest.raises(InputError, match="no words"):
        publish_files(tmp_path / "vectors", "words", remove, count=0, covers=0, description={})
    assert len(list((tmp_path / "vectors").iterdir())) == 2


def test_an_amended_index_shares_its_files_and_keeps_the_search_of_the_first_unless_told(tmp_path):
    folder = published(tmp_path, index_of(20))
    again = tmp_path / amend(tmp_path, folder.name, IndexMetadata(measurements={"recall": 1.0}))
    for name in IndexManifest.read(folder).files:
        assert (again / name).stat().st_ino == (folder / name).stat().st_ino
    assert (IndexManifest.read(again).search, IndexManifest.read(again).measurements) == ({}, {"recall": 1.0})
    np.testing.assert_array_equal(load(again).ids, load(folder).ids)
