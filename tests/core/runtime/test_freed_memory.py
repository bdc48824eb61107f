"""Freed blocks between small objects go back to the system, and threads share two heaps."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import os
from binocle.core.runtime.freed_memory import return_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

{call}
block = bytearray(24 << 20)
del block  # from now on, glibc would put blocks of up to 24 MiB on its heap
before = resident()
blocks = [(bytearray(b"x" * (8 << 20)), bytearray(600)) for _ in range(10)]
rest = [small for _, small in blocks]
del blocks
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_blocks_between_small_objects_go_back_to_the_system():
    left = [
        int(subprocess.run([sys.executable, "-c", PROGRAM.format(call=call)], capture_output=True, check=True).stdout)
        for call in ("", "return_freed_memory()")
    ]
    assert left[0] > 20 > left[1]  # MiB


HEAPS = """
import ctypes, threading
from binocle.core.runtime.freed_memory import return_freed_memory, use_two_heaps

{call}
library = ctypes.CDLL(None)
library.malloc.restype, library.fopen.restype = ctypes.c_void_p, ctypes.c_void_p
barrier = threading.Barrier(6)

def allocate():
    library.malloc(1_000)
    barrier.wait()

threads = [threading.Thread(target=allocate) for _ in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
library.fflush.argtypes = library.fclose.argtypes = [ctypes.c_void_p]
library.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
output = library.fopen(b"/dev/stdout", b"w")
library.malloc_info(0, output)
library.fclose(output)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_threads_share_two_heaps():
    heaps = [
        subprocess.run([sys.executable, "-c", HEAPS.format(call=call)], capture_output=True, check=True).stdout.count(
            b"<heap "
        )
        for call in ("", "return_freed_memory()", "use_two_heaps()")
    ]
    assert heaps[0] > 2 >= max(heaps[1:])
