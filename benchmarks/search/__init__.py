"""The order of the hits: its quality in each mode, and the gain and the cost of each part of a search."""
