"""The process and its machine: the device of torch, threads of numpy, Arrow without pandas, freed memory, forks.

Each module names what it spares or refuses. It imports `core` alone.
"""
