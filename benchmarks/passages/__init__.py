"""The passages of a search: where documents are cut, what a hit holds and prints, and what a context packs."""
