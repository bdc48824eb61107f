"""The engine that an application embeds: `Retriever` indexes, searches, verifies and inverts.

It imports `indexes` and `core`; `training` and `commands` stand above it.
"""
