"""Worker processes that read files under limits of memory and time, so that a bad file costs only itself.

`pool` schedules the files, `process` starts and watches one worker, `worker` is its program, and `protocol` defines the
bytes between them.
"""
