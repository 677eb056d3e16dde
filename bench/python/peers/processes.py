"""The processes that a run starts: their numbers, their memory and their end."""
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Dict, Iterable, List, Set

PR_SET_CHILD_SUBREAPER = 36
KILL_SECONDS = 10


def adopt_orphans() -> None:
    """Keeps descendants of this process its descendants if their parent dies, so that none is left running. SIGTERM is
    then an exception like Ctrl-C, after which end_all() is called."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def parents() -> Dict[int, int]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:  # it has just ended
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(entry)] = int(parent)
    return found


def below(root: int) -> Set[int]:
    """Returns all living processes under `root`, without it."""
    children: Dict[int, List[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found, todo = set(), [root]
    while todo:
        for child in children.get(todo.pop(), []):
            found.add(child)
            todo.append(child)
    return found


def arguments(pid: int) -> List[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def field_bytes(path: str, name: str) -> int:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(name):
                    return 1024 * int(line.split()[1])
    except OSError:
        pass
    return 0


def proportional_bytes(pids: Iterable[int]) -> int:
    """Sums the processes' memory. A page that several share is divided among them."""
    return sum(field_bytes(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in pids)


def peak_resident_bytes(pid: int) -> int:
    return field_bytes(f"/proc/{pid}/status", "VmHWM:")


def reap() -> None:
    """Takes the exit codes of adopted orphans. Call it only while no child of subprocess is awaited."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] > 0:
            pass
    except ChildProcessError:
        pass


def end_all() -> None:
    """Kills the processes under this one, and waits until they are gone."""
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        left = below(os.getpid())
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        if not left:
            return
        time.sleep(0.05)
