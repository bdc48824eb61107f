"""Objects below a prefix of a bucket, on storage that speaks S3, through boto3.

Credentials, region and endpoint come from the environment, as for any other client: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL. The storage must support conditional puts (If-Match,
If-None-Match). S3 itself does since 2024; MinIO, R2 and the S3 interface of GCS do.
"""

from __future__ import annotations

import contextlib
import os
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol

from ....core.errors import InputError, MissingExtraError, StoreError
from ....core.files import too_large
from .location import ANY, LARGEST, NEW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

_ATTEMPTS = 5
_SECONDS = 15  # to wait for an answer, and for the next bytes of one: a minute and a half in all attempts
_RETRIES: Any = {"mode": "standard", "total_max_attempts": _ATTEMPTS}
_ENVIRONMENT = "see AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL"


class Changed(Exception):  # noqa: N818 - not an error: the storage's answer to a condition
    """An object changed before a conditional put."""


class _SentAgain(Changed):
    """The storage refused a put that was sent again; the first attempt may have changed the object."""


class Objects(Protocol):
    """The operations of an index on object storage. A missing object raises FileNotFoundError."""

    def get(self, key: str) -> tuple[bytes, str]:
        """Return an object of at most `LARGEST` bytes and its tag; a larger one raises OSError."""
        ...

    def put(self, key: str, data: bytes, over: str) -> str:
        """Put an object over the one with this tag, over `ANY` or over none (`NEW`); return its tag.

        :raises Changed: when the object has another tag.
        """
        ...

    def age(self, key: str) -> float:
        """Return the seconds since an object was put, by the storage's own clock."""
        ...

    def keys(self, prefix: str) -> Iterator[tuple[str, float, int]]:
        """List the objects with a prefix in their keys: key, time of the put, bytes."""
        ...

    def remove(self, key: str) -> None:
        """Delete an object, whatever its tag."""
        ...

    def upload(self, file: Path, key: str) -> None:
        """Put a file of any size over whatever object has the key."""
        ...

    def download(self, key: str, file: Path) -> None:
        """Write an object of any size to a file in an existing folder."""
        ...


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
        config = Config(retries=_RETRIES, connect_timeout=5, read_timeout=_SECONDS)
        try:
            self._client: Any = boto3.session.Session().client(
                "s3", endpoint_url=endpoint, region_name=region, config=config
            )
        except (BotoCoreError, ValueError) as error:  # the endpoint or the profile is invalid
            raise InputError(f"s3://{bucket}/{prefix} cannot be opened ({error}): {_ENVIRONMENT}") from None
        self._bucket = bucket
        self._prefix = prefix

    def get(self, key: str) -> tuple[bytes, str]:
        """Read the whole object into memory; its tag is the ETag."""
        from botocore.exceptions import HTTPClientError, IncompleteReadError

        with self._translated(key):
            for attempt in range(1, _ATTEMPTS + 1):
                response = self._client.get_object(**self._at(key))
                if response["ContentLength"] > LARGEST:
                    response["Body"].close()
                    raise too_large(f"s3://{self._bucket}/{self._prefix}/{key}", LARGEST)
                try:
                    return response["Body"].read(), response["ETag"]
                except (HTTPClientError, IncompleteReadError):  # boto3 repeats requests, but not the end of an answer
                    if attempt == _ATTEMPTS:
                        raise
        raise AssertionError  # not reached: `_translated` raises

    def put(self, key: str, data: bytes, over: str) -> str:
        """Put by one conditional request; if a retry is refused, look whether the first attempt succeeded."""
        condition = {} if over == ANY else {"IfNoneMatch": "*"} if over == NEW else {"IfMatch": over}
        try:
            with self._translated(key):
                tag: str = self._client.put_object(**self._at(key), Body=data, **condition)["ETag"]
                return tag
        except _SentAgain:
            return self._tag_of_first_put(key, data)
        except FileNotFoundError:
            raise Changed from None
        raise AssertionError  # not reached: `_translated` raises

    def _tag_of_first_put(self, key: str, data: bytes) -> str:
        """Return the tag of the object if its first put succeeded."""
        with contextlib.suppress(FileNotFoundError):
            stored, tag = self.get(key)
            if stored == data:
                return tag
        raise Changed

    def age(self, key: str) -> float:
        """Subtract the object's time from the date of the same response, so that clocks need not agree."""
        with self._translated(key):
            response = self._client.head_object(**self._at(key))
            now = parsedate_to_datetime(response["ResponseMetadata"]["HTTPHeaders"]["date"])
            put: datetime = response["LastModified"]
            return (now - put).total_seconds()
        raise AssertionError  # not reached: `_translated` raises

    def keys(self, prefix: str) -> Iterator[tuple[str, float, int]]:
        """List lazily, one request a page of 1,000; keys come without the location's prefix."""
        with self._translated(prefix):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=f"{self._prefix}/{prefix}"):
                for entry in page.get("Contents", ()):
                    key = entry["Key"].removeprefix(f"{self._prefix}/")
                    yield key, entry["LastModified"].timestamp(), entry["Size"]

    def remove(self, key: str) -> None:
        """Delete by one request; S3 reports no missing object."""
        with self._translated(key):
            self._client.delete_object(**self._at(key))

    def upload(self, file: Path, key: str) -> None:
        """Upload without a condition; boto3 sends a large file in parallel parts."""
        with self._translated(key):
            self._client.upload_file(str(file), self._bucket, f"{self._prefix}/{key}")

    def download(self, key: str, file: Path) -> None:
        """Download to a temporary file beside `file`, which boto3 renames once it is whole."""
        with self._translated(key):
            self._client.download_file(self._bucket, f"{self._prefix}/{key}", str(file))

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}/{key}"}

    @contextlib.contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        """Turn the storage's errors into ours."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in ("PreconditionFailed", "ConditionalRequestConflict"):
                retries = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)
                raise (_SentAgain if retries else Changed) from None
            if code in ("NoSuchKey", "404"):
                raise FileNotFoundError(f"s3://{self._bucket}/{self._prefix}/{key}") from None
            raise StoreError(f"s3://{self._bucket}/{self._prefix} cannot be used ({error}): {_ENVIRONMENT}") from None
        except (BotoCoreError, Boto3Error, KeyError) as error:
            # If the connection breaks within the headers, boto3 takes the ones before for all of them.
            reason = f"an answer without {error}" if isinstance(error, KeyError) else error
            raise StoreError(
                f"s3://{self._bucket}/{self._prefix} cannot be reached ({reason}): {_ENVIRONMENT}"
            ) from None
