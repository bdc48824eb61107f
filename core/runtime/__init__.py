"""The process and its machine: torch's device, numpy's threads and ours, Arrow without pandas, freed memory, forks.

The first line of each module names its purpose. The modules import `core` alone.
"""
