"""The process of `pando run --preload`. It has run the script up to the run, and forks each worker.

node/programs/program_process.h describes the messages between this process and the one that started it.
"""
import atexit
import contextlib
import ctypes
import gc
import io
import os
import signal
import socket
import threading
import time
from multiprocessing.util import _exit_function
from typing import List, Optional

import torch

PR_SET_PDEATHSIG = 1  # from linux/prctl.h
LIBC = ctypes.CDLL(None)
VARIABLE = "PANDO_PRELOAD"
REQUEST_BYTES_MAX = 1 << 20


def fork_workers() -> None:
    """Forks workers in the preloaded process, and ends that process when it is asked to. Returns in each worker.

    Returns at once in a process that was not preloaded.
    """
    number = os.environ.pop(VARIABLE, None)
    if number is None:
        return
    flush_files()
    with socket.socket(fileno=int(number)) as line:
        reason = why_not_forked()
        if reason:
            line.send(f"no {reason}".encode())
            end()
        gc.freeze()  # so that a worker's garbage collector copies no page of this process
        supervisor = os.getppid()
        while True:
            request = line.recv(REQUEST_BYTES_MAX)
            if not request:
                end()
            if fork_worker(line, supervisor, os.fsdecode(request).split("\0")):
                atexit.register(gc.unfreeze)  # otherwise files that only the collector closes lose their last lines
                return


def end() -> None:
    """Ends this process. Only the workers run the script's end, for example its writes to a file."""
    _exit_function()  # of multiprocessing: ends processes that the script has started
    os._exit(0)


def flush_files() -> None:
    """Flushes the open files, because otherwise each worker would write their buffers."""
    for thing in gc.get_objects():
        if issubclass(type(thing), io.IOBase):
            with contextlib.suppress(OSError, ValueError):  # a file is closed, or only open for reading
                thing.flush()
    LIBC.fflush(None)


def why_not_forked() -> Optional[str]:
    """Names the part of this process that a fork would lack; None if there is none."""
    if torch.cuda.is_initialized():
        return "the script uses a GPU before run.loader(), and CUDA survives no fork"
    if torch.get_num_threads() > 1:
        return f"pando.join(threads={torch.get_num_threads()}), and OpenMP's threads survive no fork"
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    return f"the script has threads before run.loader(): {', '.join(others)}" if others else None


def fork_worker(line: socket.socket, supervisor: int, request: List[str]) -> bool:
    """Forks a worker, which becomes a child of `supervisor`, and then sends its number. Returns True in it."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        middle = os.getpid()
        if leave_worker(writer):
            os._exit(0)
        os.close(reader)
        os.close(writer)
        become_worker(middle, supervisor, request)
        return True
    os.close(writer)
    worker = os.read(reader, 32)
    os.close(reader)
    os.waitpid(middle, 0)
    if not worker:
        raise OSError("cannot fork a worker: too many processes, or too little memory")
    line.send(worker)
    return False


def leave_worker(writer: int) -> bool:
    """Forks, and writes the child's number. Returns False in the child, otherwise True."""
    try:
        worker = os.fork()
    except OSError:
        return True
    if worker:
        os.write(writer, str(worker).encode())
    return worker != 0


def become_worker(middle: int, supervisor: int, request: List[str]) -> None:
    """Takes the environment and the log of a worker that `supervisor` has started."""
    while os.getppid() == middle:
        time.sleep(0.001)
    LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != supervisor:
        os._exit(1)
    os.setpgid(0, 0)
    log, *variables = request
    os.environ.update(variable.split("=", 1) for variable in variables)
    if log:
        number = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(number, 1)
        os.dup2(number, 2)
        os.close(number)
