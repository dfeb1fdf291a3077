#!/usr/bin/env python3
"""Stands in for systemd in tests: hears what a daemon tells, passes sockets to it, holds one of its threads.

    manager.py hear SOCKET LOG DAEMON-LOG
        Binds the datagram socket and writes each message on a line of LOG, after the seconds since the start. At
        READY=1 it asks the port named in DAEMON-LOG for /healthz at once and writes what came of it.
    manager.py pass [--pid N] [--names A:B] SOCKET... -- COMMAND...
        Opens listening sockets (tcp, any, unix:PATH; file: one that is none), then becomes COMMAND with them.
    manager.py hold PID NAME
        Stops the threads of that name, and no others, until it is ended itself; prints "held N".
"""
import ctypes
import os
import pathlib
import re
import socket
import sys
import time
import urllib.request


def ask(daemon_log):
    port = re.findall(r'port (\d+)"', pathlib.Path(daemon_log).read_text())[-1]
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20).status
    except OSError as error:
        return error


def hear(path, log, daemon_log):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard, open(log, "w", encoding="utf-8") as out:
        heard.bind(path)
        start = time.monotonic()
        while True:
            message = heard.recv(65536).decode().replace("\n", " | ")
            print(f"{time.monotonic() - start:.2f} {message}", file=out, flush=True)
            if "READY=1" in message and "answered" not in pathlib.Path(log).read_text():
                print(f"answered {ask(daemon_log)}", file=out, flush=True)


def open_socket(what):
    if what == "file":
        return os.open("/dev/null", os.O_RDONLY)
    if what.startswith("unix:"):
        opened = socket.socket(socket.AF_UNIX)
        opened.bind(what.removeprefix("unix:"))
    else:
        opened = socket.socket(socket.AF_INET)
        opened.bind(("0.0.0.0" if what == "any" else "127.0.0.1", 0))
    opened.listen()
    return opened.detach()


def hand_over(arguments):
    pid, names, sockets = os.getpid(), None, []
    while (word := arguments.pop(0)) != "--":
        if word == "--pid":
            pid = int(arguments.pop(0))
        elif word == "--names":
            names = arguments.pop(0)
        else:
            sockets.append(open_socket(word))
    spare = [os.dup2(descriptor, 100 + i) for i, descriptor in enumerate(sockets)]
    for i, descriptor in enumerate(spare):
        os.dup2(descriptor, 3 + i)
        os.close(descriptor)
    os.environ.update(LISTEN_PID=str(pid), LISTEN_FDS=str(len(sockets)))
    if names is not None:
        os.environ["LISTEN_FDNAMES"] = names
    os.execv(arguments[0], arguments)


def hold(pid, name):
    """ptrace(2): PTRACE_SEIZE, then PTRACE_INTERRUPT, stops that thread alone; our end lets it go."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    held = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if not (task / "comm").read_text().startswith(name):
            continue
        thread = int(task.name)
        if libc.ptrace(0x4206, thread, None, None) or libc.ptrace(0x4207, thread, None, None):
            sys.exit(f"cannot hold a thread: {os.strerror(ctypes.get_errno())}")
        os.waitpid(thread, 0x40000000)  # __WALL
        held += 1
    print(f"held {held}", flush=True)
    while True:  # a thread that ends is for us to see
        try:
            os.waitpid(-1, 0x40000000)
        except ChildProcessError:
            return


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    {"hear": lambda: hear(*rest), "pass": lambda: hand_over(rest), "hold": lambda: hold(*rest)}[what]()
