#!/usr/bin/env python3
"""soak.py --epochs E [--mean 5s] [--seed N] [--model NAME] [--global-batch N] [--transport NAME] [--files N]
        [--log-disk] [--clients N] [--pando PROGRAM] [--data FOLDER] [--hash HASH] [--script "SCRIPT ARGUMENTS"]

Trains on MNIST under `--chaos random` for as long as the epochs take and watches the processes of the run:
resident memory, open files, orphans, files left in its folder for temporary files and in /dev/shm. Two idle cores
take 2 s for an epoch of the CNN: half an hour is some 900. The surroundings can be made worse:

  --files N    the limit of open files of every process; --clients and restarts come near it
  --log-disk   the processes' logs and the terminal are on a disk of 1 MiB, which is full for 30 s of each minute (root)
  --clients N  N processes ask for the status and are stopped before they have read the answer

With --script the workers are processes of this PyTorch script, which defines the job. The hash is then that of a
run of one worker and one server.

Fails

  - when the run fails, or its hash is not the serial run's (--hash; without it the serial run is made afterwards);
  - when a process has more memory or files than at the age of 30 s (all lives of a minute and more);
  - when processes of a role have more of them at the age of 30 s in the last third of the run than in the first;
  - when either could not be judged for `train`, `scheduler`, `server` or `worker`: the run was too short;
  - when a process or a file is left behind.
"""
import contextlib
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from report import MNIST, PANDO, make_parser

MARK = "PANDO_SOAK"  # is in the environment of all processes of the run
SAMPLE_SECONDS = 1.0
AGE_SECONDS = 30.0  # by then a process has filled its pools
LIFE_SECONDS = 60.0  # a life of this length shows whether a process grows
LOG_DISK_BYTES = 1 << 20
FULL_SECONDS = 30.0  # the log disk is full, and then has space as long
CLIENT_SECONDS = 20.0  # a client hangs so long
MEDIAN_OF = 5  # samples, because one may see a shard on its way to a new backup
KIB, FILES = 1, 2  # columns of a sample
# Measured: 0.8 MiB of the allocator's noise, 3 files (of dead peers). A leak of one 88 KB record a step is 20 MB a
# second.
MAX = {KIB: 8 * 1024, FILES: 8}
NAMES = {KIB: "KiB", FILES: "files"}
FLEETING = ("scheduler", "server", "worker")  # roles with many lives; `train` has one


def job(args):
    if args.script:
        return ["run"]
    return ["train", "--model", args.model, "--dataset", "mnist", "--data", args.data, "--epochs", str(args.epochs),
            "--global-batch", str(args.global_batch), "--micro-batches", "8", "--optimizer", "adam", "--lr", "0.001",
            "--set", "eval.every_epochs=10"]


def serial_hash(args, folder):
    alone = ["--workers", "1", "--servers", "1"] if args.script else ["--serial", "--set", "run.threads=2"]
    done = subprocess.run([args.pando, *job(args), *alone, "--run-dir", f"{folder}/serial", "--json",
                           *args.script.split()], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["weights_hash"]


class Life:
    """A process's samples: (seconds of the run, KiB, open files) once a second."""

    def __init__(self, role):
        self.role, self.samples = role, []

    def born(self):
        return self.samples[0][0]

    def seconds(self):
        return self.samples[-1][0] - self.born()

    def at_age(self, column):
        """Returns the median of the first samples at that age; None if it did not live so long."""
        aged = [s[column] for s in self.samples if s[0] - self.born() >= AGE_SECONDS][:MEDIAN_OF]
        return statistics.median(aged) if len(aged) == MEDIAN_OF else None

    def growth(self, column):
        """Returns the growth from that age to its end; None if it did not live long enough."""
        if self.seconds() < LIFE_SECONDS:
            return None
        return statistics.median(s[column] for s in self.samples[-MEDIAN_OF:]) - self.at_age(column)


def marked(folder):
    """Returns (pid, start) of the run's living processes; the start tells processes with one id apart."""
    mark = f"{MARK}={folder}".encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()[19]
        except OSError:
            pass  # it has gone


def role_of(pid):
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    if b"python" in words[0]:
        return "worker"
    return words[1].decode() if len(words) > 1 else "?"


def sample(pid, seconds):
    status = Path(f"/proc/{pid}/status").read_text()
    kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return seconds, kib, len(os.listdir(f"/proc/{pid}/fd"))


def watch(run, folder):
    lives, start = {}, time.monotonic()
    while run.poll() is None:
        seconds = time.monotonic() - start
        for key in marked(folder):
            try:
                now = sample(key[0], seconds)
                lives.setdefault(key, Life(role_of(key[0]))).samples.append(now)
            except (OSError, StopIteration):
                pass  # it has gone
        time.sleep(SAMPLE_SECONDS)
    return [life for life in lives.values() if life.samples], time.monotonic() - start


def judge_growth(role, lives, column):
    growths = [life.growth(column) for life in lives if life.growth(column) is not None]
    if not growths:
        return [f"{role}: no life of {LIFE_SECONDS:.0f} s: growth of {NAMES[column]} was not judged"]
    print(f"  {role:<10}{NAMES[column]:>6}: {len(growths)} lives grew from {min(growths):+.0f} to {max(growths):+.0f}, "
          f"median {statistics.median(growths):+.0f}")
    return [f"{role}: a life grew by {growth:+.0f} {NAMES[column]}" for growth in growths if growth > MAX[column]]


def judge_generations(role, lives, column, seconds):
    """Compares lives that reached the age in the first third of the run with those of the last third."""
    aged = [(life.born() + AGE_SECONDS, life.at_age(column)) for life in lives if life.at_age(column) is not None]
    first = [value for at, value in aged if at < seconds / 3]
    last = [value for at, value in aged if at >= 2 * seconds / 3]
    if not first or not last:
        return [f"{role}: {len(first)} and {len(last)} lives of {AGE_SECONDS:.0f} s in the first and last third: "
                f"{NAMES[column]} were not compared"]
    before, after = statistics.median(first), statistics.median(last)
    print(f"  {role:<10}{NAMES[column]:>6}: at {AGE_SECONDS:.0f} s {before:.0f} in the first third ({len(first)} "
          "lives), "
          f"{after:.0f} in the last ({len(last)} lives)")
    return [f"{role}: {after - before:+.0f} {NAMES[column]} at the same age"] if after - before > MAX[column] else []


def judge(args, lives, seconds):
    problems = []
    for column in (KIB, FILES):
        for role in (job(args)[0], *FLEETING):
            of_role = [life for life in lives if life.role == role]
            problems += judge_growth(role, of_role, column)
            if role in FLEETING:
                problems += judge_generations(role, of_role, column, seconds)
    return problems


def report(lives, faults, seconds):
    actions = {}
    for fault in faults:
        key = f"{fault['action']} {fault['target'].split()[0]}"
        actions[key] = actions.get(key, 0) + 1
    print(f"{seconds:.0f} s, {len(faults)} faults, {len(lives)} processes seen: {actions}")
    unnoticed = [f for f in faults if f["detected_ms"] is None]
    print(f"faults never noticed, stops and partitions shorter than a lease among them: {len(unnoticed)}")
    return [f"killed and not noticed: {f}" for f in unnoticed if f["action"] == "kill"] + [
        f"noticed and not got over: {f}" for f in faults if f["detected_ms"] is not None and f["recovered_ms"] is None]


@contextlib.contextmanager
def worse_surroundings(args, folder):
    """Runs the log disk and the clients, each on a thread, until the end of the block."""
    done, threads = threading.Event(), []
    logs = Path(folder, "run/logs")
    try:
        if args.log_disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={LOG_DISK_BYTES}", "soak", f"{folder}/disk"],
                           check=True)
            threads.append(threading.Thread(target=fill_and_empty, args=(Path(folder, "disk"), logs, done)))
        threads += [threading.Thread(target=hang, args=(args, Path(folder, "run"), seed, done))
                    for seed in range(args.clients)]
        for thread in threads:
            thread.start()
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
        for mounted in (logs, Path(folder, "disk")) if args.log_disk else ():
            subprocess.run(["umount", "--lazy", str(mounted)], stderr=subprocess.DEVNULL, check=False)


def fill_and_empty(disk, logs, done):
    """Fills the disk and empties it; processes that start after the first few seconds have their logs there."""
    while not logs.is_dir():
        if done.wait(0.1):
            return
    subprocess.run(["mount", "--bind", str(disk), str(logs)], check=True)
    ballast = disk / "ballast"
    while not done.wait(FULL_SECONDS):
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        done.wait(FULL_SECONDS)
        ballast.unlink()
        for log in disk.iterdir():
            os.truncate(log, 0)


def hang(args, run, seed, done):
    """Stops a client somewhere between its connection and the answer, for some seconds; then the next."""
    draw = random.Random(seed)
    while not done.wait(0.5):
        client = subprocess.Popen([args.pando, "status", str(run)], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        done.wait(draw.uniform(0.002, 0.05))
        client.send_signal(signal.SIGSTOP)
        done.wait(CLIENT_SECONDS)
        client.kill()
        client.wait()


def limit_files(args):
    if args.files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (args.files, args.files))


def shared_memory():
    return {str(path) for path in Path("/dev/shm").glob("pando*")}


def soak(args, folder):
    temporary = Path(folder, "tmp")
    for made in (temporary, Path(folder, "disk")):
        made.mkdir()
    before = shared_memory()
    command = [args.pando, *job(args), "--workers", "3", "--servers", "3", "--replicas", "2", "--set",
               f"run.transport={args.transport}", "--chaos", f"random:{args.seed}:{args.mean}", "--run-dir",
               f"{folder}/run", "--json", *args.script.split()]
    environment = {**os.environ, MARK: folder, "TMPDIR": str(temporary)}
    with worse_surroundings(args, folder), open(f"{folder}/out", "w+") as out, open(f"{folder}/disk/err", "w+") as err:
        run = subprocess.Popen(command, stdout=out, stderr=err, env=environment, preexec_fn=lambda: limit_files(args))
        lives, seconds = watch(run, folder)
        orphans = [pid for pid, _ in marked(folder)]
        out.seek(0)
        summary = json.loads(out.read() or "{}")
        err.seek(0)
        tail = err.read()[-2000:]
    problems = [f"orphan {pid}" for pid in orphans]
    problems += report(lives, summary.get("faults", []), seconds)
    problems += judge(args, lives, seconds)
    if run.returncode != 0 or summary.get("status") != "completed":
        problems.append(f"exit {run.returncode}, status {summary.get('status')}: {tail}")
    left = {str(path) for path in temporary.iterdir()} | (shared_memory() - before)
    problems += [f"left behind: {path}" for path in sorted(left)]
    expected = args.hash or serial_hash(args, folder)
    print(f"expected hash {expected}", flush=True)
    if summary.get("weights_hash") != expected:
        problems.append(f"hash {summary.get('weights_hash')}")
    return problems


def main():
    parser = make_parser(__doc__, mean="5s", seed=1, model="mnist-cnn", global_batch=128, transport="ipc", files=0,
                         log_disk=False, clients=0, data=MNIST, pando=PANDO, hash="", script="")
    parser.add_argument("--epochs", type=float, help="required without --script")
    args = parser.parse_args()
    if (args.epochs is None) == (not args.script):
        parser.error("give --epochs or --script")
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        problems = soak(args, folder)
    for problem in problems:
        print("PROBLEM:", problem)
    print("hash", "DIFFERENT" if any(p.startswith("hash ") for p in problems) else "equal", "-", len(problems),
          "problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
