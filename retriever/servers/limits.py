"""The limits of a request: the server checks them, and a client with more to ask sends several requests."""

from __future__ import annotations

MAX_QUERIES = 100  # at once
MAX_K, MAX_DEPTH = 1_000, 10_000  # passages of one answer; the last rank that a page reaches, or the queries at once
MAX_BODY = 2**20  # bytes, without documents
MAX_DOCUMENTS, MAX_BODY_OF_DOCUMENTS = 1_000, 64 * 2**20  # of a page, or added at once; bytes
MAX_ANSWER = 2**30  # bytes that a client reads
