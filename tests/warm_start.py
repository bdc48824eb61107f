"""Start `binocle` in a fork of a process that has imported it already: 0.1 s of work instead of 0.8.

    python warm_start.py SOCKET [--without-rights] ARGUMENT...
    python warm_start.py SOCKET -c CODE ARGUMENT...

It runs with the streams, environment and working folder of this process, and its exit code becomes that of this process.
With -c, it runs Python code instead, as `python -c` does, with the modules that the other process has.
The other process is `python -W error warm_start.py SOCKET --serve [MODULE...]`. It ends when its standard input has, and
each connection to SOCKET.users, which it greets with a byte: the processes of a run can share it.
Signals reach only this process: tests that send some start the program itself, or have the code print its process id.
"""

import json
import os
import socket
import sys

SERVE, WITHOUT_RIGHTS, CODE = "--serve", "--without-rights", "-c"
USERS = ".users"  # after the path of the socket: another one
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2  # root's rights to write and to read everything
CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
REFUSED = 99  # exit code if rights cannot be given up
IMPORTED = """
lance numpy pyarrow.dataset tokenizers
binocle.cli binocle.commands.index binocle.commands.upkeep.status binocle.commands.upkeep.verify binocle.commands.passages.search
binocle.commands.passages.similar binocle.retriever.indexing.sync.sync binocle.retriever.integrity.verify
binocle.retriever.models.bert.numpy binocle.retriever.models.load binocle.retriever.retriever
binocle.retriever.search.query
""".split()


def start(path: str, arguments: list[str]) -> int:
    """Have the other process start the program, and return its exit code."""
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b"\0"], [0, 1, 2])
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        return int(connection.recv(16))


def serve(path: str, modules: list[str]) -> None:
    """Fork for each connection until the standard input ends."""
    import gc
    import select
    import signal
    import warnings
    from importlib import import_module

    warnings.filterwarnings("ignore", "lance is not fork-safe")  # it is as long as nothing has used it
    gc.disable()
    for module in modules or IMPORTED:
        import_module(module)
    gc.freeze()  # modules are no garbage: neither this process nor a fork looks through them
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as entrance:
        for door, address in ((listener, path), (entrance, path + USERS)):
            door.bind(address)
            door.listen()
        os.write(1, b"ready\n")
        users = [sys.stdin]
        while users:
            ready = select.select([listener, entrance, *users], [], [])[0]
            users = [user for user in users if user not in ready]  # what users send is their end
            if entrance in ready:
                user, _ = entrance.accept()
                user.sendall(b"\n")
                users.append(user)
            if listener in ready:
                connection, _ = listener.accept()
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    listener.close()
                    entrance.close()
                    return keep(connection)
                connection.close()
    return None


def keep(connection: socket.socket) -> None:
    """Fork the program, wait for it, and send its exit code."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    request = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
    program = os.fork()
    if program == 0:
        connection.close()
        return run(request, streams)
    _, status = os.waitpid(program, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def run(request: dict, streams: list[int]) -> None:
    """Become the program."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - they stay open
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False, buffering=1 if os.isatty(1) else -1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    arguments = request["arguments"]
    if arguments[0] == WITHOUT_RIGHTS:
        arguments = arguments[1:]
        give_up_rights()
    if arguments[0] == CODE:
        sys.argv = [CODE, *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        end_quickly()
    sys.argv = ["binocle", *arguments]
    from binocle.cli import main

    try:
        main()
    except SystemExit as end:
        if not end.code or isinstance(end.code, int):
            end_quickly(end.code or 0)
        raise


def end_quickly(code: int = 0) -> None:
    """End as Python does, but leave modules and memory to the system: to take torch apart needs 0.9 s."""
    import atexit
    import threading

    sys.stdout.flush()
    sys.stderr.flush()
    vars(threading)["_shutdown"]()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def give_up_rights() -> None:
    """Read and write only as permissions say, root too. Threads that start later do the same."""
    import ctypes

    if os.geteuid() != 0:
        return
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    system = ctypes.CDLL(None)
    if system.capget(header, sets):
        sys.exit(REFUSED)
    for number in range(3):  # effective, permitted, inheritable: the first words of each
        sets[number] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    if system.capset(header, sets):
        sys.exit(REFUSED)


if __name__ == "__main__":
    if sys.argv[2] == SERVE:
        serve(sys.argv[1], sys.argv[3:])
    else:
        sys.exit(start(sys.argv[1], sys.argv[2:]))
