"""The order of the hits: how good it is in each mode, what each part of a search adds, and what it costs."""
