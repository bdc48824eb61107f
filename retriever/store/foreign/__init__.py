"""An index from elsewhere is untrusted: it leads nowhere outside its folder, and claims no more memory than it has.

`confinement` keeps it within its folder, `deletion_files` checks the lists of deleted rows, as Lance does not. `trust`
remembers which indexes this user made or allowed; only those are written.
"""
