"""Where an index lies: a folder, or a prefix of a bucket on object storage, with its small files and its lock.

`open_location` opens either by its name; `location` names the operations of both.
"""
