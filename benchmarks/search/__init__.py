"""The quality of a search: its hits, contexts, snippets and code passages, and the share of each part in it."""
