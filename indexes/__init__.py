"""Vector indexes: caches of the store, each published beside its tables with the state of them that it covers.

Nothing is imported here: the errors of the library live in this folder, and raising one must not cost numpy.
"""
