"""An index on object storage that speaks S3: `s3://BUCKET/PREFIX`.

Credentials, region and endpoint are those of the environment, as for any other client: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL. The storage must know conditional puts (If-Match, If-None-Match),
as S3 itself does since 2024, and MinIO, R2 and GCS's interface do.

Vector indexes are mapped into memory, so each machine that needs one fetches it whole into its cache
(BINOCLE_CACHE, or `binocle` in the user's cache folder) and holds it to its checksums there. Whenever
one is fetched or put, those that are out of service go from the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..indexes.errors import InputError, LockedError, MissingExtraError, StoreError
from .place import ANY, KEEP_SECONDS, NEW, TABLES, FolderPlace, locked_by, now, reached, unfinished, writer_since
from .settings import Head
from .tables import Location

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from datetime import datetime

_LEASE_SECONDS = 60.0  # a writer that has not said for so long that it is alive is taken for dead
_LEASE = "lock.json"
_FETCHED = "fetched"  # an empty file beside those of an index that was fetched, or put, whole
_OWN_SECONDS = 86_400.0  # an index takes no longer to be fetched, or to be built, put and committed
_RETRIES: Any = {"mode": "standard", "max_attempts": 5}
_MANIFEST = "manifest.json"  # of a vector index: the last of its files to be put
_SUPERSEDED = "superseded"  # an empty object, put when an index goes out of service
_CACHE = "set BINOCLE_CACHE to a folder with room"
_ENVIRONMENT = "see AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL"


class Changed(Exception):  # noqa: N818 - not an error: the storage's answer to a condition
    """An object was not what a conditional put expected."""


class _SentAgain(Changed):
    """So the storage answered when a put was sent again, which may itself have changed the object the first time."""


class Objects(Protocol):
    """What is asked of object storage; raises FileNotFoundError and other kinds of OSError."""

    def get(self, key: str) -> tuple[bytes, str]:
        """An object and its tag."""
        ...

    def put(self, key: str, data: bytes, over: str) -> str:
        """Put an object over the one with this tag, over `ANY` or over none (`NEW`); gives its tag.

        :raises Changed: when that is not what is there.
        """
        ...

    def age(self, key: str) -> float:
        """Seconds since an object was put, by the storage's own clock."""
        ...

    def keys(self, prefix: str) -> Iterator[tuple[str, float, int]]:
        """The objects whose keys begin so, each with the time it was put and its bytes."""
        ...

    def remove(self, key: str) -> None: ...

    def upload(self, file: Path, key: str) -> None: ...

    def download(self, key: str, file: Path) -> None: ...


class BucketPlace:
    """A prefix of a bucket."""

    outlives = True

    def __init__(self, name: str, objects: Objects, cache: Path, options: dict[str, str] | None = None) -> None:
        """
        :param name: `s3://BUCKET/PREFIX`.
        :param objects: what lies below the prefix.
        :param options: Lance's, to reach the same storage.
        """
        self._name = name
        self._objects = objects
        self._options = options
        self.cache = cache

    @classmethod
    def of(cls, name: str) -> BucketPlace:
        """Of the S3 that the environment names."""
        bucket, _, prefix = name.removeprefix("s3://").strip("/").partition("/")
        if not bucket or not prefix:
            raise InputError(f"{name} does not name an index on object storage: expected s3://BUCKET/PREFIX")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        options = {"aws_endpoint": endpoint} if endpoint else {}
        if endpoint and endpoint.startswith("http://"):
            options["allow_http"] = "true"
        home = os.environ.get("BINOCLE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "binocle"
        place = hashlib.sha256(f"{endpoint or ''} {bucket}/{prefix}".encode()).hexdigest()[:16]
        cache = Path(home).expanduser().absolute() / place
        return cls(f"s3://{bucket}/{prefix}", S3Objects(bucket, prefix), cache, options)

    def __str__(self) -> str:
        return self._name

    def table(self, name: str) -> Location:
        return Location(f"{self._name}/{name}.lance", self._options)

    def read(self, file: str) -> tuple[bytes, str]:
        return self._objects.get(file)

    def write(self, file: str, data: bytes, *, over: str) -> str:
        try:
            return self._objects.put(file, data, over)
        except Changed:
            raise LockedError(
                f"{self} was written by another process meanwhile, and what this one has not committed is not kept: "
                "run it again"
            ) from None

    def remove(self, beginning: str) -> None:
        for key in [key for key, *_ in self._objects.keys(beginning)]:
            self._objects.remove(key)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold a lease, renewed while this process lives: a machine that is lost gives it up by its silence.

        The lease is a courtesy. What keeps two writers apart is that each commits over what it has read.
        """
        with reached(self.cache, _CACHE):
            self.cache.mkdir(parents=True, exist_ok=True)
        since = now()
        lease = _Lease(self._objects, self._claimed(since), since)
        try:
            yield
        finally:
            lease.end()

    def _claimed(self, since: str) -> str:
        """The tag of the lease, ours now."""
        with contextlib.suppress(Changed):
            return self._objects.put(_LEASE, writer_since(since), NEW)
        try:
            holder, tag = self._objects.get(_LEASE)
            if self._objects.age(_LEASE) > _LEASE_SECONDS:
                return self._objects.put(_LEASE, writer_since(since), tag)
        except (FileNotFoundError, Changed):  # given up or taken over this very moment
            holder = b""
        raise locked_by(self, holder)

    def is_free(self) -> bool:
        return unfinished(self, (key.partition("/")[0] for key, *_ in self._objects.keys("")))

    def prepare(self) -> None:
        for key in [key for name in TABLES for key, *_ in self._objects.keys(f"{name}/")]:
            self._objects.remove(key)

    def vectors(self, name: str) -> Path:
        folder = self.cache / "vectors" / name
        with reached(self.cache, _CACHE):
            if folder.exists():
                return folder
            self._fetch(name, folder)
        self._tidy_cache(name)
        return folder

    def _fetch(self, name: str, folder: Path) -> None:
        """Have it here whole, or not at all: it may be removed meanwhile."""
        aside = folder.with_name(f".{os.urandom(6).hex()}")
        aside.mkdir(parents=True)
        try:
            for key, *_ in self._objects.keys(f"vectors/{name}/"):
                self._objects.download(key, aside / key.rpartition("/")[2])
            (aside / _FETCHED).touch()
            with contextlib.suppress(OSError):  # another process was first
                aside.rename(folder)
        except FileNotFoundError:
            pass
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def has(self, name: str) -> bool:
        return any(self._objects.keys(f"vectors/{name}/"))

    def keep(self, name: str) -> None:
        files = sorted((self.cache / "vectors" / name).iterdir(), key=lambda file: file.name == _MANIFEST)
        for file in files:
            self._objects.upload(file, f"vectors/{name}/{file.name}")
        (self.cache / "vectors" / name / _FETCHED).touch()
        self._tidy_cache(name)

    def _tidy_cache(self, name: str) -> None:
        """Remove from this machine, which may never write, what is out of service; this one is about to be in it."""
        with contextlib.suppress(StoreError, OSError):  # it can wait, or another process was first
            keep = {name, *Head.read(self)[0].parts}
            for folder in (self.cache / "vectors").iterdir():
                if folder.name not in keep and self._is_old(folder):
                    shutil.rmtree(folder, ignore_errors=True)

    def _is_old(self, folder: Path) -> bool:
        """Whether no reader of this machine can still come for it, or it was erased from the bucket."""
        age = time.time() - folder.stat().st_mtime
        if folder.name.startswith(".") or not (folder / _FETCHED).exists():
            return age > _OWN_SECONDS
        return age > KEEP_SECONDS or not self.has(folder.name)

    def size(self) -> int:
        return sum(size for _, _, size in self._objects.keys(""))

    def supersede(self, name: str) -> None:
        FolderPlace(self.cache).supersede(name)
        self._objects.put(f"vectors/{name}/{_SUPERSEDED}", b"", ANY)

    def drop(self, name: str) -> None:
        FolderPlace(self.cache).drop(name)
        for key in [key for key, *_ in self._objects.keys(f"vectors/{name}/")]:
            self._objects.remove(key)

    def tidy(self, keep: Container[str], before: float) -> None:
        begun = before + KEEP_SECONDS - _OWN_SECONDS  # a reader of this machine may be fetching one
        FolderPlace(self.cache).tidy(keep, before, begun=begun)
        newest: dict[str, float] = {}
        for key, put, _ in self._objects.keys("vectors/"):
            name = key.split("/")[1]
            newest[name] = max(put, newest.get(name, 0.0))
        for name, put in newest.items():
            if name not in keep and put < before:
                self.drop(name)


class _Lease:
    """Says again and again that this process lives, until it is ended or taken over."""

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
                continue  # not to be reached for a while: what is committed then says so

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError, StoreError):
            if self._objects.get(_LEASE)[1] == self._tag:
                self._objects.remove(_LEASE)


class S3Objects:
    """`Objects` below a prefix of a bucket, by boto3."""

    def __init__(self, bucket: str, prefix: str) -> None:
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError:
            raise MissingExtraError("boto3", "s3", "an index on object storage") from None
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        config = Config(retries=_RETRIES, connect_timeout=5)
        try:
            self._client: Any = boto3.session.Session().client(
                "s3", endpoint_url=endpoint, region_name=region, config=config
            )
        except (BotoCoreError, ValueError) as error:  # of an endpoint or a profile that is none
            raise InputError(f"s3://{bucket}/{prefix} cannot be opened ({error}): {_ENVIRONMENT}") from None
        self._bucket = bucket
        self._prefix = prefix

    def get(self, key: str) -> tuple[bytes, str]:
        with self._told(key):
            found = self._client.get_object(**self._at(key))
            return found["Body"].read(), found["ETag"]
        raise AssertionError  # not reached: what is told is raised

    def put(self, key: str, data: bytes, over: str) -> str:
        condition = {} if over == ANY else {"IfNoneMatch": "*"} if over == NEW else {"IfMatch": over}
        try:
            with self._told(key):
                tag: str = self._client.put_object(**self._at(key), Body=data, **condition)["ETag"]
                return tag
        except _SentAgain:
            return self._landed(key, data)
        except FileNotFoundError:
            raise Changed from None
        raise AssertionError  # not reached: what is told is raised

    def _landed(self, key: str, data: bytes) -> str:
        """The tag of what was put, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            there, tag = self.get(key)
            if there == data:
                return tag
        raise Changed

    def age(self, key: str) -> float:
        with self._told(key):
            found = self._client.head_object(**self._at(key))
            now = parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
            put: datetime = found["LastModified"]
            return (now - put).total_seconds()
        raise AssertionError  # not reached: what is told is raised

    def keys(self, prefix: str) -> Iterator[tuple[str, float, int]]:
        with self._told(prefix):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=f"{self._prefix}/{prefix}"):
                for found in page.get("Contents", ()):
                    key = found["Key"].removeprefix(f"{self._prefix}/")
                    yield key, found["LastModified"].timestamp(), found["Size"]

    def remove(self, key: str) -> None:
        with self._told(key):
            self._client.delete_object(**self._at(key))

    def upload(self, file: Path, key: str) -> None:
        with self._told(key):
            self._client.upload_file(str(file), self._bucket, f"{self._prefix}/{key}")

    def download(self, key: str, file: Path) -> None:
        with self._told(key):
            self._client.download_file(self._bucket, f"{self._prefix}/{key}", str(file))

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}/{key}"}

    @contextlib.contextmanager
    def _told(self, key: str) -> Iterator[None]:
        """The storage's errors as ours."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in ("PreconditionFailed", "ConditionalRequestConflict"):
                again = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)
                raise (_SentAgain if again else Changed) from None
            if code in ("NoSuchKey", "404"):
                raise FileNotFoundError(f"s3://{self._bucket}/{self._prefix}/{key}") from None
            raise StoreError(f"s3://{self._bucket}/{self._prefix} cannot be used ({error}): {_ENVIRONMENT}") from None
        except (BotoCoreError, Boto3Error) as error:
            raise StoreError(
                f"s3://{self._bucket}/{self._prefix} cannot be reached ({error}): {_ENVIRONMENT}"
            ) from None
