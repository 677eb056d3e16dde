"""A run's progress over time: (samples, seconds) from the logs that its processes write while it runs."""
import bisect
import sys
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pando_bench"))
from training import LineTail  # noqa: E402


class Progress:
    """The samples from which the whole run has learnt, and when it first did. A return to a checkpoint is none."""

    def __init__(self) -> None:
        self.samples: List[int] = []
        self.seconds: List[float] = []

    def add(self, samples: int, seconds: float) -> None:
        if not self.samples or samples > self.samples[-1]:
            self.samples.append(samples)
            self.seconds.append(seconds)

    def last(self) -> int:
        return self.samples[-1] if self.samples else 0

    def at(self, seconds: float) -> int:
        """Returns the samples until this time."""
        count = bisect.bisect_right(self.seconds, seconds)
        return self.samples[count - 1] if count else 0

    def reached(self, samples: int) -> Optional[float]:
        """Returns when the run reached this number; None: never."""
        at = bisect.bisect_left(self.samples, samples)
        return self.seconds[at] if at < len(self.samples) else None


class PeerLogs:
    """Reads the files steps-RANK-PID.csv of trainers/common.py."""

    def __init__(self, folder: Path):
        self.folder, self.tails = folder, {}  # type: Path, Dict[Path, LineTail]

    def poll(self, progress: Progress) -> None:
        for path in self.folder.glob("steps-*.csv"):
            self.tails.setdefault(path, LineTail(path))
        rows = [line.split(",") for tail in self.tails.values() for line in tail.take()]
        for samples, seconds in sorted((int(a), float(b)) for a, b in rows):
            progress.add(samples, seconds)

    def workers(self) -> Dict[int, int]:
        """Returns the processes by rank: the last one of a rank that was started again."""
        found: Dict[int, Tuple[float, int]] = {}
        for path in self.folder.glob("steps-*.csv"):
            _, rank, pid = path.stem.split("-")
            found[int(rank)] = max(found.get(int(rank), (0.0, 0)), (path.stat().st_ctime, int(pid)))
        return {rank: pid for rank, (_, pid) in found.items()}


class PandoLog:
    """Reads metrics.csv while it grows: one clock for servers, workers and generations."""

    def __init__(self, run_dir: Path, global_batch: int):
        self.tail, self.global_batch = LineTail(run_dir / "metrics.csv"), global_batch

    def poll(self, progress: Progress) -> None:
        now = time.monotonic()
        rows = [line.split(",")[0] for line in self.tail.take()]
        steps = [int(step) for step in rows if step.isdigit()]
        for step in steps:
            progress.add(step * self.global_batch, now)
