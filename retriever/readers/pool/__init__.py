"""Worker processes that read files under limits of memory and time, so that a bad file costs one file.

`pool` schedules, `process` holds one worker, `worker` is its program, `protocol` the bytes between them.
"""
