"""Object storage that speaks S3, below a prefix of a bucket: what an index asks of it, and boto3's answers.

Credentials, region and endpoint are those of the environment, as for any other client: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL. The storage must know conditional puts (If-Match, If-None-Match),
as S3 itself does since 2024, and MinIO, R2 and GCS's interface do.
"""

from __future__ import annotations

import contextlib
import os
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol

from ...core.errors import InputError, MissingExtraError, StoreError
from .location import ANY, NEW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

_RETRIES: Any = {"mode": "standard", "max_attempts": 5}
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
