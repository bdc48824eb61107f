"""Who may ask: tokens with their scope, the names under which the server is reached, and web pages of other sites.

A page of another site in a user's browser can send requests to servers on the user's machine. The checks of `Host`
stop a site that gives its own name the address of the machine (DNS rebinding); the checks of `Origin` stop all others.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ....core.errors import InputError
from ...store.filters.filter import Filter
from ...store.filters.where import parse
from .faults import describe
from .refusal import Refusal

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from starlette.datastructures import Headers

_SHORTEST = 16  # characters of a token
_HEADER_TEXT = "^[!-~]+$"  # ASCII without spaces, the only characters that every client and proxy passes on unchanged


class _TokenEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    token: Annotated[str, Field(min_length=_SHORTEST, max_length=1_000, pattern=_HEADER_TEXT)]
    where: str | list[str] | dict[str, Any] | None = None
    indexes: list[str] | None = None
    write: bool = False


class _TokensFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    tokens: Annotated[list[_TokenEntry], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Token:
    """The rights of the bearer of a token."""

    digest: bytes  # SHA-256 of the token
    where: Filter | None = None  # the documents that it sees, of all indexes
    indexes: frozenset[str] | None = None  # None: every index
    write: bool = False


ANYONE = Token(b"", write=True)


def read_tokens(file: str | os.PathLike[str]) -> tuple[Token, ...]:
    """Read a file of tokens: {"tokens": [{"token": "…", "where": "tenant=t1", "indexes": ["docs"], "write": true}]}.

    :raises InputError: when it cannot be read, has another shape, names a token twice, or other users may read it.
    """
    path = Path(file)
    try:
        state, text = path.stat(), path.read_bytes()
    except OSError as error:
        raise InputError(f"the file of tokens {path}: {error.strerror or error}") from None
    if stat.S_IMODE(state.st_mode) & 0o077:
        raise InputError(f"other users may read the tokens in {path}: run chmod 600 {path}")
    try:
        entries = _TokensFile.model_validate_json(text).tokens
    except ValidationError as error:
        fault = describe(error, whole="its content", shows_value=False)  # a value may be a token
        raise InputError(f"the file of tokens {path}: {fault}") from None
    if len({entry.token for entry in entries}) < len(entries):
        raise InputError(f"the file of tokens {path}: two entries have the same token: expected one for each")
    try:
        return tuple(map(_token, entries))
    except InputError as error:
        raise InputError(f"the file of tokens {path}: {error}") from None


def check_indexes(tokens: Iterable[Token], names: Iterable[str]) -> None:
    """Check that tokens name indexes of the server.

    :raises InputError: naming an index that it does not have.
    """
    for unknown in sorted(set().union(*(token.indexes or () for token in tokens)).difference(names)):
        raise InputError(f"a token is for the index {unknown!r}: expected some of {', '.join(names)}")


def _token(entry: _TokenEntry) -> Token:
    where = filter_of(entry.where)
    if where is None and entry.where is not None:
        raise InputError("a filter has no condition: a token that sees all documents has no 'where'")
    return Token(
        hashlib.sha256(entry.token.encode()).digest(),
        where,
        None if entry.indexes is None else frozenset(entry.indexes),
        entry.write,
    )


def filter_of(value: str | list[Any] | dict[str, Any] | None) -> Filter | None:
    """Read a filter in the filter language or in the JSON of OpenAI's vector stores, or a list that must all hold."""
    if isinstance(value, dict):
        return Filter.from_json(value)
    if isinstance(value, list):
        return parse([part if isinstance(part, str) else Filter.from_json(part) for part in value])
    return parse(value)


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one server.

    :param tokens: none: everyone who reaches the server may ask.
    :param hosts: names of this server besides localhost and addresses.
    :param origins: other sites with pages that may ask, such as `https://intranet.example`.
    """

    tokens: tuple[Token, ...] = ()
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def check_site(self, headers: Headers) -> None:
        """Refuse a request for another host, and one that a page of another site sends.

        :raises Refusal: 421 or 403.
        """
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise Refusal(421, f"this server is not {host[:200]!r}: --allow-host NAME allows a further name")
        origin = headers.get("origin")
        if origin is not None and not self._may_ask(origin, host):
            raise Refusal(403, f"pages of {origin[:200]!r} may not ask this server: --allow-origin URL allows them")
        if origin is None and headers.get("sec-fetch-site") == "cross-site" and not _is_visit(headers):
            raise Refusal(403, "pages of other sites may not ask this server: --allow-origin URL allows them")

    def _is_ours(self, host: str) -> bool:
        name = (urlsplit(f"//{host}").hostname if _is_host(host) else None) or ""
        return name == "localhost" or name in self.hosts or is_address(name)

    def _may_ask(self, origin: str, host: str) -> bool:
        return origin in self.origins or origin in (f"http://{host}", f"https://{host}")

    def token_of(self, headers: Headers) -> Token:
        """The token of a request.

        :raises Refusal: 401 when it has none that is known.
        """
        if not self.tokens:
            return ANYONE
        kind, _, value = headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(value.strip().encode()).digest()
        # Each is compared, in a time that does not depend on the bytes: nobody learns a token by measuring.
        known = [token for token in self.tokens if hmac.compare_digest(token.digest, digest)]
        if kind.lower() != "bearer" or not known:
            sent = "no token came" if not value else "this one is not known"
            raise Refusal(401, f"expected the header 'Authorization: Bearer TOKEN', but {sent}", _CHALLENGE)
        return known[0]


_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="binocle"'}


def _is_visit(headers: Headers) -> bool:
    """Whether a person follows a link to this server: the other page sees nothing of the answer."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def _is_host(host: str) -> bool:
    try:
        urlsplit(f"//{host}").port  # noqa: B018 - raises if there is a port that is none
    except ValueError:
        return False
    return not set(host) & set("/?#@\\")


def is_address(name: str) -> bool:
    """Whether a name is an address: no site can make its own name one."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a server at this address."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def check_hosts(names: Iterable[str]) -> frozenset[str]:
    """Check names of this server.

    :raises InputError: naming the first wrong one.
    """
    for name in names:
        if not name or set(name) & set("/:@?# "):
            raise InputError(f"{name!r} is not the name of a host: expected one such as docs.example, without port")
    return frozenset(name.lower() for name in names)


def check_origins(names: Iterable[str]) -> frozenset[str]:
    """Check the origins of pages.

    :raises InputError: naming the first wrong one.
    """
    for name in names:
        parts = urlsplit(name)
        if parts.scheme not in ("http", "https") or not parts.netloc or name != f"{parts.scheme}://{parts.netloc}":
            raise InputError(f"{name!r} is not the origin of a page: expected one such as https://intranet.example")
    return frozenset(names)
