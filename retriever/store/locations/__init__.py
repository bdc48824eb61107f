"""The places of an index: a folder, or a prefix of a bucket on object storage, with its small files and its lock.

`open_location` opens either by its name. `folder_location` and `s3_location` write and lock; `s3_objects` has the
conditional put that decides a commit on S3.
"""
