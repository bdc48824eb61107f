"""Binocle inside other frameworks: LangChain, LlamaIndex, Haystack and MTEB, each with an extra of its name.

A module has the classes of its framework, under the names that its users expect. `conversion/` turns their documents,
metadata and filters into Binocle's. `opening` opens an index for an adapter; `loading` reads files for a loader;
`splitting` cuts texts.
"""
