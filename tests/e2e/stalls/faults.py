"""Faults without a failed process, for stalls_test.py: a thread that does not run, files that open slowly, a full disk,
and a link between two hosts that loses everything."""
import ctypes
import errno
import fcntl
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Iterator, Optional

PTRACE_CONT, PTRACE_SEIZE, PTRACE_INTERRUPT = 7, 0x4206, 0x4207
WALL = 0x40000000  # of waitpid: also threads
NO_MAC = "02:00:00:00:00:99"  # no host has this hardware address
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.restype = ctypes.c_long
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Unsupported(Exception):
    """This machine does not allow the fault."""


def run_time_ns(process: int, thread: int) -> int:
    return int(Path(f"/proc/{process}/task/{thread}/schedstat").read_text().split()[0])


def busiest_thread(process: int) -> int:
    """Except libzmq's: a server's lane, where it has one. Another thread speaks with the scheduler."""
    threads = [int(path.name) for path in Path(f"/proc/{process}/task").iterdir()
               if not (path / "comm").read_text().startswith("ZMQ")]
    return max(threads, key=lambda thread: run_time_ns(process, thread))


class HeldThread:
    """A thread of another process that runs only `run_s` of each `period_s`; 0: not at all. A context manager."""

    def __init__(self, thread: int, run_s: float = 0, period_s: float = 1):
        self.thread, self.run_s, self.period_s = thread, run_s, period_s
        self.over, self.held = threading.Event(), threading.Event()
        self.error: Optional[OSError] = None
        self.tracer = threading.Thread(target=self.trace)  # ptrace takes requests of the attached thread alone

    def __enter__(self) -> "HeldThread":
        self.tracer.start()
        self.held.wait()
        if self.error and self.error.errno in (errno.EPERM, errno.ENOSYS):
            raise Unsupported(f"ptrace fails: {self.error}")
        if self.error:
            raise self.error
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        self.tracer.join()

    def request(self, kind: int) -> None:
        if LIBC.ptrace(kind, self.thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def trace(self) -> None:
        try:
            self.request(PTRACE_SEIZE)
            while not self.over.is_set():
                self.request(PTRACE_INTERRUPT)
                os.waitpid(self.thread, WALL)
                self.held.set()
                self.over.wait(self.period_s - self.run_s if self.run_s else None)
                self.request(PTRACE_CONT)
                self.over.wait(self.run_s)
        except OSError as error:
            self.error = error
        finally:
            self.held.set()  # and with the end of this thread the other one is free


class SlowFiles:
    """Files that take long to open: leases on them, which their readers have to wait for. A context manager. The kernel
    breaks a lease after 45 s."""

    def __init__(self, paths: Iterator[Path]):
        self.paths = list(paths)
        self.leased: list[int] = []

    def __enter__(self) -> "SlowFiles":
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel's request to give a lease back
        for path in self.paths:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                self.leased.append(fd)
            except OSError as error:
                os.close(fd)
                if error.errno != errno.EAGAIN:  # a reader has it open
                    self.__exit__()
                    raise Unsupported(f"no lease on a file: {error}") from error
        return self

    def __exit__(self, *_) -> None:
        while self.leased:
            os.close(self.leased.pop())


class SmallDisk:
    """A file system of 16 MiB, in this process's mount namespace."""

    def __init__(self, folder: Path):
        self.path = folder / "disk"
        self.path.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", self.path], capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise Unsupported(f"a full disk needs a separate file system: {done.stderr.strip()}")

    def fill(self) -> None:
        with (self.path / "ballast").open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        (self.path / "ballast").unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", self.path], check=True)


class Hosts:
    """Network namespaces on one switch: hosts 10.77.0.1, 10.77.0.2 and so on."""

    def __init__(self, count: int):
        self.holders: list[subprocess.Popen] = []
        self.switch = self.hold()
        try:
            self.inside(self.switch, "ip", "link", "add", "switch", "type", "bridge")
            self.inside(self.switch, "ip", "link", "set", "switch", "up")
            for i in range(1, count + 1):
                self.add(i)
        except (OSError, subprocess.CalledProcessError) as error:
            self.end()
            raise Unsupported(f"no network namespaces: {error}") from error

    def hold(self) -> int:
        """A process in a separate network, which ends with its standard input."""
        try:
            holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; read line"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE)
        except OSError as error:
            raise Unsupported(f"no network namespaces: {error}") from error
        self.holders.append(holder)
        if holder.stdout.readline() != b"\n":
            raise Unsupported("no network namespaces")
        return holder.pid

    def through(self, host: int) -> tuple[str, ...]:
        return ("nsenter", f"--net=/proc/{host}/ns/net")

    def inside(self, host: int, *words: str) -> None:
        subprocess.run([*self.through(host), *words], check=True, capture_output=True)

    def add(self, number: int) -> None:
        host = self.hold()
        self.inside(self.switch, "ip", "link", "add", f"cable{number}", "type", "veth", "peer", "name", "eth0", "netns",
                    str(host))
        self.inside(self.switch, "ip", "link", "set", f"cable{number}", "master", "switch", "up")
        self.inside(host, "ip", "link", "set", "lo", "up")
        self.inside(host, "ip", "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        self.inside(host, "ip", "link", "set", "eth0", "up")

    def address(self, number: int) -> str:
        return f"10.77.0.{number}"

    def process(self, number: int) -> tuple[str, ...]:
        """The command that starts a program on a host, 1 the first."""
        return self.through(self.holders[number].pid)

    def cut(self, one: int, other: int) -> None:
        """All that these two send each other is lost. All else arrives."""
        for here, there in ((one, other), (other, one)):
            self.inside(self.holders[here].pid, "ip", "neigh", "replace", self.address(there), "lladdr", NO_MAC, "dev",
                        "eth0", "nud", "permanent")

    def mend(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.inside(self.holders[here].pid, "ip", "neigh", "del", self.address(there), "dev", "eth0")

    def end(self) -> None:
        for holder in self.holders:
            holder.kill()
            holder.wait()
