"""Why a request gets no answer, as a status, one line and headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.errors import (
    BinocleError,
    DeadlineError,
    InputError,
    LockedError,
    NotFoundError,
    StoreError,
    UntrustedError,
)
from .faults import describe

if TYPE_CHECKING:
    from pydantic import ValidationError


class Refusal(Exception):  # noqa: N818 - a request is refused, the server is well
    """The refusal of a request.

    :param detail: one line: the expectation, the actual value, and the remedy.
    """

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = " ".join(detail.split())
        self.headers = headers or {}


def refusal_of(error: BinocleError) -> Refusal:
    """The refusal for an error of the engine: 404, 409, 403 and 400 by its kind, 503 for damage or lack of time."""
    if isinstance(error, LockedError):
        return Refusal(409, str(error), {"Retry-After": "1"})
    if isinstance(error, UntrustedError):
        return Refusal(403, str(error))
    if isinstance(error, DeadlineError):
        return Refusal(503, str(error), {"Retry-After": "1"})
    if isinstance(error, StoreError):
        return Refusal(503, str(error))
    if isinstance(error, NotFoundError):
        return Refusal(404, str(error))
    return Refusal(400 if isinstance(error, InputError) else 422, str(error))


def invalid(error: ValidationError) -> Refusal:
    """The refusal for input of another shape."""
    return Refusal(400, describe(error, names="; /openapi.json lists the names"))
