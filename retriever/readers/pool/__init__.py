"""Worker processes that read files under limits of memory and time, so that a bad file costs only itself.

`pool` has the limits and the schedule; `worker` is the program that keeps them, `process` starts and watches one.
`protocol` defines the bytes between them, `reading` a file to read and its result.
"""
