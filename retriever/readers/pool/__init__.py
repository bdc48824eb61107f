"""Worker processes that read files under limits of memory and time, so that a bad file costs only itself.

`pool` schedules the files, `process` starts and watches one worker, and `worker` is its program. `protocol` defines the
bytes between them, `reading` a file to read and its result.
"""
