"""Checks of an untrusted index: it may not lead outside its folder, or claim more memory than it has bytes.

`confinement` keeps it within its folder. `deletion_files` checks the lists of deleted rows, which Lance does not check.
`trust` remembers which indexes this user made or allowed; Binocle writes only to these.
"""
