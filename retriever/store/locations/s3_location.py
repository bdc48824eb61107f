"""An index on object storage that speaks S3: `s3://BUCKET/PREFIX`.

Vector indexes are mapped into memory. So each machine downloads the whole index into its cache (BINOCLE_CACHE, or
`binocle` in the user's cache folder) and checks its checksums there. Each download and each upload removes replaced
indexes from the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import threading
import time
from typing import TYPE_CHECKING

from ....core.errors import InputError, LockedError, StoreError
from ....core.files import expand_home, user_folder
from ..head import Head
from ..tables import TableLocation
from .folder_location import FolderLocation, now, reachable, unfinished_files, writer_in, writer_since
from .location import ANY, HEAD, KEEP_SECONDS, NEW, TABLES
from .patience import Patience
from .s3_objects import Changed, S3Objects
from .waiting_line import Busy, wait_for

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from .s3_objects import Objects

_LEASE_SECONDS = 60.0  # after this time without a renewal of its lease, a writer counts as dead
_POLL_SECONDS = 1.0  # between two attempts to take the lease; the first writer to ask for a free one gets it
_LEASE = "lock.json"
_FETCHED = "fetched"  # an empty file in the folder of an index that was downloaded or uploaded whole
_OWN_SECONDS = 86_400.0  # the longest time to download an index, or to build, upload and commit it
_MANIFEST = "manifest.json"  # of a vector index: the last of its files to be uploaded
_SUPERSEDED = "superseded"  # an empty object, put when an index is replaced
# Lance waits 30 s for an answer, and repeats a request 64 times: half an hour on a server that stalls. With less time
# for repetitions than a wait takes, it repeats only quick refusals, and says within three minutes what stalls.
_LANCE = {"client_retry_timeout": "20"}  # seconds
_CACHE = "set BINOCLE_CACHE to a folder with room"


class S3Location:
    """A prefix of a bucket."""

    durable = True
    lock_expires = True

    def __init__(self, name: str, objects: Objects, cache: Path, options: dict[str, str] | None = None) -> None:
        """
        :param name: `s3://BUCKET/PREFIX`.
        :param objects: the objects below the prefix.
        :param options: Lance's options for the same storage.
        """
        self._name = name
        self._objects = objects
        self._options = options
        self.cache = cache
        self.patience = Patience()

    @classmethod
    def of(cls, name: str) -> S3Location:
        """Open a location on the storage that the environment variables name."""
        bucket, _, prefix = name.removeprefix("s3://").strip("/").partition("/")
        if not bucket or not prefix:
            raise InputError(f"{name} does not name an index on object storage: expected s3://BUCKET/PREFIX")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        options = dict(_LANCE)
        if endpoint:
            options["aws_endpoint"] = endpoint
        if endpoint and endpoint.startswith("http://"):
            options["allow_http"] = "true"
        home = os.environ.get("BINOCLE_CACHE") or user_folder("CACHE", "~/.cache") / "binocle"
        folder = hashlib.sha256(f"{endpoint or ''} {bucket}/{prefix}".encode()).hexdigest()[:16]
        cache = expand_home(home).absolute() / folder
        return cls(f"s3://{bucket}/{prefix}", S3Objects(bucket, prefix), cache, options)

    def __str__(self) -> str:
        return self._name

    def table(self, name: str) -> TableLocation:
        """Return the table's URI with the endpoint; Lance reads the credentials from the environment."""
        return TableLocation(f"{self._name}/{name}.lance", self._options)

    def read(self, file: str) -> tuple[bytes, str]:
        """Read the object by one request; its tag is the ETag."""
        return self._objects.get(file)

    def exists(self, file: str) -> bool:
        """Tell by reading the object: a small file costs no more than a request for its headers."""
        try:
            self._objects.get(file)
        except FileNotFoundError:
            return False
        return True

    def write(self, file: str, data: bytes, *, over: str) -> str:
        """Put the object on the condition of the tag: this is the commit, and a slower writer gets LockedError."""
        try:
            return self._objects.put(file, data, over)
        except Changed:
            raise LockedError(
                f"{self} was written by another process meanwhile, and what this one has not committed is not kept: "
                "run it again"
            ) from None

    def begin(self, *, synced: bool) -> None:
        """Do nothing: an object is durable once it is put."""

    def commit(self, head: bytes, previous: bytes, *, over: str) -> str:  # noqa: ARG002 - the storage loses no object
        """Put HEAD.json on the condition of the tag."""
        return self.write(HEAD, head, over=over)

    def remove(self, prefix: str) -> None:
        """List the keys, then delete one a request."""
        for key in [key for key, *_ in self._objects.keys(prefix)]:
            self._objects.remove(key)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold a lease, renewed while this process lives; the lease of a lost machine expires.

        The lease only spares work. Two writers stay apart because each commits over the HEAD that it has read.
        """
        with reachable(self.cache, _CACHE):
            self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        since = now()
        with _unwinding_at_sigterm():
            tag = wait_for(self, lambda: self._claim(since), poll_seconds=_POLL_SECONDS)
            lease = _Lease(self._objects, tag, since)
            try:
                yield
            finally:
                lease.end()

    def _claim(self, since: str) -> str:
        """Take the lease and return its tag.

        :raises Busy: when another process has it.
        """
        with contextlib.suppress(Changed):
            return self._objects.put(_LEASE, writer_since(since), NEW)
        try:
            holder, tag = self._objects.get(_LEASE)
            if self._objects.age(_LEASE) > _LEASE_SECONDS:
                return self._objects.put(_LEASE, writer_since(since), tag)
        except (FileNotFoundError, Changed):  # released or taken over at this moment
            holder = b""
        raise Busy(writer_in(holder))

    def abandon(self) -> None:
        """Do nothing: the end of the lock removes the lease."""

    def is_free(self) -> bool:
        """List keys up to the first that no unfinished index leaves."""
        return unfinished_files(self, (key.partition("/")[0] for key, *_ in self._objects.keys("")))

    def prepare(self) -> None:
        """Delete the objects of the tables, one a request."""
        for key in [key for name in TABLES for key, *_ in self._objects.keys(f"{name}/")]:
            self._objects.remove(key)

    def vectors(self, name: str) -> Path:
        """Return the folder in the cache; download the whole index first if this machine lacks it."""
        folder = self.cache / "vectors" / name
        with reachable(self.cache, _CACHE):
            if folder.exists():
                return folder
            self._fetch(name, folder)
        self._tidy_cache(name)
        return folder

    def _fetch(self, name: str, folder: Path) -> None:
        """Download a whole index; leave nothing behind if it is removed meanwhile."""
        temporary = folder.with_name(f".{os.urandom(6).hex()}")
        temporary.mkdir(parents=True)
        try:
            for key, *_ in self._objects.keys(f"vectors/{name}/"):
                self._objects.download(key, temporary / key.rpartition("/")[2])
            (temporary / _FETCHED).touch()
            with contextlib.suppress(OSError):  # another process was first
                temporary.rename(folder)
        except FileNotFoundError:
            pass
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def has(self, name: str) -> bool:
        """List its objects in the bucket; one is enough, and the cache does not count."""
        return any(self._objects.keys(f"vectors/{name}/"))

    def keep(self, name: str) -> None:
        """Upload its files from the cache, the manifest last, then tidy the cache."""
        files = sorted((self.cache / "vectors" / name).iterdir(), key=lambda file: file.name == _MANIFEST)
        for file in files:
            self._objects.upload(file, f"vectors/{name}/{file.name}")
        (self.cache / "vectors" / name / _FETCHED).touch()
        self._tidy_cache(name)

    def _tidy_cache(self, name: str) -> None:
        """Remove replaced indexes from this machine, which may never write; keep `name`, which is committed next."""
        with contextlib.suppress(StoreError, OSError):  # the next call does it, or another process was first
            keep = {name, *Head.read(self)[0].published}
            for folder in (self.cache / "vectors").iterdir():
                if folder.name not in keep and self._is_old(folder):
                    shutil.rmtree(folder, ignore_errors=True)

    def _is_old(self, folder: Path) -> bool:
        """Tell whether no reader of this machine can still open an index, or it was erased from the bucket."""
        age = time.time() - folder.stat().st_mtime
        if folder.name.startswith(".") or not (folder / _FETCHED).exists():
            return age > _OWN_SECONDS
        return age > KEEP_SECONDS or not self.has(folder.name)

    def size(self) -> int:
        """Add up the sizes in a list of all objects; the cache does not count."""
        return sum(size for _, _, size in self._objects.keys(""))

    def supersede(self, name: str) -> None:
        """Mark the cached copy as replaced, and tell other machines by an empty object beside the index."""
        FolderLocation(self.cache).supersede(name)
        self._objects.put(f"vectors/{name}/{_SUPERSEDED}", b"", ANY)

    def drop(self, name: str) -> None:
        """Delete the cached copy, then the objects, one a request."""
        FolderLocation(self.cache).drop(name)
        for key in [key for key, *_ in self._objects.keys(f"vectors/{name}/")]:
            self._objects.remove(key)

    def tidy(self, keep: Container[str], before: float) -> None:
        """Tidy the cache, then the bucket; the newest object of an index sets its time."""
        begun = before + KEEP_SECONDS - _OWN_SECONDS  # a reader of this machine may be downloading one
        FolderLocation(self.cache).tidy(keep, before, begun=begun)
        newest: dict[str, float] = {}
        for key, put, _ in self._objects.keys("vectors/"):
            name = key.split("/")[1]
            newest[name] = max(put, newest.get(name, 0.0))
        for name, put in newest.items():
            if name not in keep and put < before:
                self.drop(name)


class _Terminated(BaseException):
    """SIGTERM came. No handler of errors takes it for one."""


@contextlib.contextmanager
def _unwinding_at_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the main thread, as Ctrl-C does, before it ends the process; a program's own handler stays."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except _Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(_number: int, _frame: object) -> None:
    raise _Terminated


class _Lease:
    """Renews the lease of this process in a thread, until it is ended or taken over."""

    def __init__(self, objects: Objects, tag: str, since: str) -> None:
        self._objects = objects
        self._tag = tag
        self._since = since
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        while not self._ended.wait(_LEASE_SECONDS / 4):
            try:
                self._tag = self._objects.put(_LEASE, writer_since(self._since), self._tag)
            except Changed:
                return
            except StoreError:
                continue  # the storage cannot be reached for a while: a commit then fails with the reason

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError, StoreError):
            if self._objects.get(_LEASE)[1] == self._tag:
                self._objects.remove(_LEASE)
