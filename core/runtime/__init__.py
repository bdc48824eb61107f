"""The process and its machine: torch's device, numpy's threads and ours, Arrow without pandas, freed memory, forks.

Each module names what it spares or refuses. It imports `core` alone.
"""
