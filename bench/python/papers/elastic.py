"""Lets a worker join and leave a run in progress, in each system that supports it."""
import signal
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
import processes  # noqa: E402
import systems  # noqa: E402
from launch import Watch  # noqa: E402
from systems import Command  # noqa: E402

Action = Callable[[Watch], bool]
JOINED = "worker-1"  # the first one that joins a run of one worker


def endpoint_of(watch: Watch) -> Optional[str]:
    """Returns the endpoint of this run's scheduler, from its workers' command lines."""
    for pid in watch.system.worker_pids(watch.run).values():
        words = processes.arguments(pid)
        if "--join" in words:
            return words[words.index("--join") + 1]
    return None


def pando_joins(watch: Watch) -> bool:
    endpoint = endpoint_of(watch)
    if endpoint is None:
        return False
    words = [watch.place.pando, "worker", "--join", endpoint, "--threads", "1", "--device", "cpu"]
    watch.start(Command(words, dict(systems.os.environ)))
    return True


def pando_leaves(watch: Watch) -> bool:
    endpoint = endpoint_of(watch)
    if endpoint is None:
        return False
    watch.start(Command([watch.place.pando, "drain", JOINED, "--join", endpoint], dict(systems.os.environ)))
    return True


def horovod_joins(watch: Watch) -> bool:
    systems.write_hosts(watch.run, 2)
    return True


def horovod_leaves(watch: Watch) -> bool:
    systems.write_hosts(watch.run, 1)
    return True


def torchft_joins(watch: Watch) -> bool:
    job = watch.run.folder / "job.json"
    watch.start(systems.torchft_group(watch.run, watch.place, job, watch.run.workers - 1))
    return True


def torchft_leaves(watch: Watch) -> bool:
    end(watch.children[-1])
    return True


def end(child: subprocess.Popen) -> None:
    """Ends a launcher, which ends its worker."""
    child.send_signal(signal.SIGTERM)


ACTIONS: Dict[str, Tuple[Action, Action]] = {"pando-ps": (pando_joins, pando_leaves),
                                             "pando-ps1": (pando_joins, pando_leaves),
                                             "torchft": (torchft_joins, torchft_leaves),
                                             "horovod": (horovod_joins, horovod_leaves)}
WHY_NOT = {"pando-allreduce": "its group is fixed; a worker cannot join or leave",
           "ddp": "torchrun's group is fixed on one machine: --nnodes=MIN:MAX counts machines, and each change "
           "restarts all", "ddp-compiled": "as without torch.compile", "ddp-nccl": "as over gloo",
           "ray": "a group of another size is a new attempt from the last checkpoint, when machines come or go",
           "zero1": "as DDP: the state is cut for the group's size", "zero2": "as ZeRO 1", "zero3": "as ZeRO 1"}
