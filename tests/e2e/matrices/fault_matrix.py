#!/usr/bin/env python3
"""fault_matrix.py [--epochs 6] [--seeds 20] [--only WORD] [--transport auto|tcp|ipc|shm] [--data FOLDER]
                  [--pando PROGRAM]
fault_matrix.py --kills 200 [--transport shm] ...

Every way to lose or gain a process that docs/testing.md lists, done to the MNIST CNN job (8 micro-batches,
3 workers, 3 servers, 2 replicas) on this machine. Each run must end with the weights_hash of --serial, and every
fault that was made must have been detected and got over before the end, as its summary's `faults` say; of the stops
and partitions of --chaos random, those that were long enough to be noticed. Prints one line for each and exits 1 if
any failed. With each codec a worker and a server die, and the weights are those of --serial with it; 1-bit and top-k
come as far as that (P34). Takes 20 minutes or so; CI runs the short form, fault_test. With shm the model is a
perceptron whose shards are large enough to be shared.

--kills N kills workers and servers in one run until N are dead, and counts the segments of shared memory (P42) that
its processes have mapped meanwhile: as many at the end as at the beginning, and none, nor a file in /dev/shm,
when it is over.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RUN_SECONDS_MAX = 300

# Name, what --chaos says, faults expected at least, and flags besides.
CASES = [
    ("worker killed", "kill worker at step 300", 1, []),
    ("two workers killed", "kill worker 0 at step 300; kill worker 1 at step 300", 2, []),
    ("all workers killed", "kill workers at step 300", 3, []),
    ("server killed", "kill server 0 at step 300", 1, []),
    ("server killed, then another", "kill server 0 at step 300; kill server 1 at step 1200", 2, []),
    ("scheduler killed", "kill scheduler at step 300", 1, []),
    ("worker and server at once", "kill worker 1 at step 300; kill server 1 at step 300", 2, []),
    ("worker stopped 5 s", "stop worker 1 5s at step 300", 1, []),
    ("worker partitioned 5 s", "partition worker 1 5s at step 300", 1, []),
    ("one replica, server killed", "kill server 0 at step 700", 1, ["--replicas", "1"]),
]

# With a codec the weights are those of the serial run with it, even if processes die. 1-bit and top-k are the
# exceptions (P34): their accuracy must reach that of the serial run.
CODECS = [
    ["--codec", "fp16"], ["--codec", "bf16", "--pull-codec", "bf16"], ["--codec", "int8", "--pull-codec", "fp16"],
    ["--pull-codec", "int8"], ["--codec", "1-bit"], ["--codec", "top-k"]]
WITHOUT_I5 = {"1-bit", "top-k"}
ACCURACY_TOLERANCE = 0.01


class Matrix:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        # With kills, the run is long enough for all of them.
        steps = str(args.kills * args.steps_per_kill)
        by_steps = ["--steps", steps, "--set", "eval.every_epochs=0"]
        self.length = by_steps if args.kills else ["--epochs", str(args.epochs)]
        model = ["mlp", "--set", "model.hidden=384"] if args.transport == "shm" else ["mnist-cnn"]
        self.job = ["--transport", args.transport, "--model", *model, "--dataset", "mnist", "--data", args.data,
                    *self.length, "--global-batch", "128", "--micro-batches", "8", "--optimizer", "adam",
                    "--lr", "0.001"]
        self.failures = 0
        self.silence_count, self.unnoticed_count = 0, 0  # stops and partitions of the random runs
        self.expected = ""

    def command(self, name, extra):
        run_dir = f"{self.folder}/{name.replace(' ', '-').replace(',', '')}"
        return [self.args.pando, "train", *self.job, "--run-dir", run_dir, "--json", *extra], run_dir

    def judge(self, name, run_dir, out, seconds, fault_count=0, is_random=False, accuracy_min=0.0):
        try:
            summary = json.loads(out)
        except ValueError:
            summary = {}
        faults = [f for f in summary.get("faults", []) if f["injected_ms"] is not None]
        problems = []
        if summary.get("status") != "completed":
            problems.append(f"status {summary.get('status')} {summary.get('failure', '')}")
        if self.expected and summary.get("weights_hash") != self.expected:
            problems.append(f"hash {summary.get('weights_hash')}")
        if (summary.get("test_accuracy") or 0.0) < accuracy_min:
            problems.append(f"test accuracy {summary.get('test_accuracy')}, and {accuracy_min:.4f} is wanted")
        if len(faults) < fault_count:
            problems.append(f"{len(faults)} faults of {fault_count}")
        # Random stops and partitions may be too short for a lease, or the scheduler's, which has no lease.
        unnoticed = [f for f in faults if is_random and f["action"] != "kill" and f["detected_ms"] is None]
        problems += [f"not detected and recovered: {f}" for f in faults
                     if f["recovered_ms"] is None and f not in unnoticed]
        if is_random:
            self.silence_count += sum(f["action"] != "kill" for f in faults)
            self.unnoticed_count += len(unnoticed)
        worst = max((f["recovered_ms"] - f["detected_ms"] for f in faults if f["recovered_ms"] is not None), default=0)
        self.failures += bool(problems)
        print(f"{'FAIL' if problems else 'ok':<5}{name:<34}{seconds:6.1f} s, {len(summary.get('faults', []))} faults, "
              f"{summary.get('rollbacks')} rollbacks, longest recovery {worst:.0f} ms "
              f"{'; '.join(problems)}", flush=True)
        return summary

    def run(self, name, extra, fault_count=0, is_random=False, accuracy_min=0.0):
        command, run_dir = self.command(name, extra)
        start = time.monotonic()
        done = subprocess.run(["timeout", str(RUN_SECONDS_MAX), *command], capture_output=True, text=True)
        return self.judge(name, run_dir, done.stdout, time.monotonic() - start, fault_count, is_random, accuracy_min)

    def codec(self, flags, processes):
        usual, self.expected = self.expected, ""
        serial = self.run(f"{' '.join(flags)}, serial", ["--serial", *flags])
        is_free = WITHOUT_I5 & set(flags)
        self.expected = "" if is_free else serial.get("weights_hash", "none")
        accuracy_min = (serial.get("test_accuracy") or 1.0) - ACCURACY_TOLERANCE if is_free else 0.0
        self.run(f"{' '.join(flags)}, two killed",
                 [*processes, *flags, "--chaos", "kill worker 1 at step 300; kill server 1 at step 600"], 2,
                 accuracy_min=accuracy_min)
        self.expected = usual

    def start(self, name, extra):
        command, run_dir = self.command(name, extra)
        with open(f"{run_dir}.out", "w") as out, open(f"{run_dir}.err", "w") as err:
            return subprocess.Popen(command, stdout=out, stderr=err), run_dir

    def said(self, run_dir):
        return Path(f"{run_dir}.out").read_text()

    def await_step(self, run_dir, step):
        deadline = time.monotonic() + RUN_SECONDS_MAX
        metrics = Path(run_dir) / "metrics.csv"
        while time.monotonic() < deadline:
            rows = metrics.read_text().splitlines() if metrics.exists() else []
            if rows and rows[-1].split(",")[0].isdigit() and int(rows[-1].split(",")[0]) >= step:
                return
            time.sleep(0.05)  # a file cannot be waited for otherwise
        raise TimeoutError(f"{run_dir} did not reach step {step}")

    def endpoint(self, run_dir):
        text = Path(run_dir, "logs", "worker-0.log").read_text() + Path(f"{run_dir}.err").read_text()
        for pid in Path("/proc").iterdir():
            if pid.name.isdigit():
                try:
                    words = (pid / "cmdline").read_bytes().decode().split("\0")
                except OSError:
                    continue
                if "--join" in words and "worker" in words and self.is_child(pid.name, run_dir):
                    return words[words.index("--join") + 1]
        raise RuntimeError(f"no endpoint: {text}")

    def is_child(self, pid, run_dir):
        try:
            parent = re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1)
            return run_dir in Path(f"/proc/{parent}/cmdline").read_bytes().decode()
        except OSError:
            return False

    # The processes that a run has started, and theirs.
    def family(self, pid):
        children = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    stat = (entry / "stat").read_text()
                except OSError:
                    continue
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
        family, new = [], [pid]
        while new:
            family += new
            new = [child for parent in new for child in children.get(parent, [])]
        return family

    # The segments that they have mapped, or hold a descriptor of.
    def segments(self, pids):
        found = set()
        for pid in pids:
            try:
                maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
                found |= {line.split()[4] for line in maps if "/memfd:pando" in line}
                for fd in Path(f"/proc/{pid}/fd").iterdir():
                    if os.readlink(fd).startswith("/memfd:pando"):
                        found.add(str(fd.stat().st_ino))
            except OSError:
                continue
        return found

    def kills(self, count):
        name = f"{count} kills of workers and servers"
        run, run_dir = self.start(name, ["--workers", "3", "--servers", "3", "--max-restarts", str(count), "--chaos",
                                         "kill worker every 1s; kill server every 1s"])
        start = time.monotonic()
        counts, seen = [], set()
        while run.poll() is None:
            segments = self.segments(self.family(run.pid))
            counts.append(len(segments))
            seen |= segments
            time.sleep(0.2)  # nothing tells of what is mapped
        self.expected = ""  # the hash of these steps is not known yet
        summary = self.judge(name, run_dir, self.said(run_dir), time.monotonic() - start, count, is_random=True)
        serial = self.run("the same, serial", ["--serial"])
        quarter = max(1, len(counts) // 4)
        first, last = max(counts[:quarter], default=0), max(counts[-quarter:], default=0)
        everybody = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        left = {pid: self.command_line(pid) for pid in everybody if self.segments([pid]) & seen}
        problems = []
        if summary.get("weights_hash") != serial.get("weights_hash"):
            problems.append("the hashes differ")
        if self.args.transport == "shm" and first == 0:
            problems.append("no segment was seen")
        if last > first + 3:  # a worker and a server may be alive twice for a moment
            problems.append(f"{last} segments towards the end")
        files = [entry for entry in os.listdir("/dev/shm") if "pando" in entry]
        if left or files:
            problems.append(f"left behind: {left} {files}")
        self.failures += bool(problems)
        print(f"{'FAIL' if problems else 'ok':<5}segments: at most {first} in the first quarter, {last} in the last "
              f"{'; '.join(problems)}", flush=True)

    def command_line(self, pid):
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
        except OSError:
            return ""

    def power_off(self):
        name = "everything killed, resumed"
        run, run_dir = self.start(name, ["--workers", "3", "--servers", "3"])
        self.await_step(run_dir, 700)
        run.send_signal(signal.SIGKILL)
        run.wait()
        start = time.monotonic()
        done = subprocess.run([self.args.pando, "resume", run_dir, "--workers", "1", "--servers", "1", "--json"],
                              capture_output=True, text=True)
        self.judge(name, run_dir, done.stdout, time.monotonic() - start)

    def join_and_drain(self):
        name = "worker and server join, both drained"
        run, run_dir = self.start(name, ["--workers", "3", "--servers", "3"])
        start = time.monotonic()
        joiners = []
        try:
            self.await_step(run_dir, 200)
            endpoint = self.endpoint(run_dir)
            joiners += [subprocess.Popen([self.args.pando, role, "--join", endpoint], stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL) for role in ("worker", "server")]
            self.await_step(run_dir, 900)
            for node in ("worker 3", "server 3"):
                subprocess.run([self.args.pando, "drain", node, "--join", endpoint], check=True, capture_output=True)
            codes = [joiner.wait(timeout=30) for joiner in joiners]
            run.wait(timeout=RUN_SECONDS_MAX)
            if codes != [0, 0]:
                print(f"     drained processes left with {codes}")
                self.failures += 1
        except (subprocess.SubprocessError, TimeoutError, RuntimeError) as error:
            print(f"     {error} {getattr(error, 'stderr', '')}")
        finally:
            for process in (run, *joiners):
                process.kill()
                process.wait()
        self.judge(name, run_dir, self.said(run_dir), time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--transport", choices=["auto", "tcp", "ipc", "shm"], default="auto")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--steps-per-kill", type=int, default=90)
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data/mnist"))
    parser.add_argument("--pando", default=str(ROOT / "build/cli/pando"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fault-matrix-") as folder:
        matrix = Matrix(args, folder)
        if args.kills:
            matrix.kills(args.kills)
            return 1 if matrix.failures else 0
        matrix.expected = matrix.run("serial", ["--serial"])["weights_hash"]
        processes = ["--workers", "3", "--servers", "3"]
        for name, chaos, fault_count, flags in CASES:
            if args.only in name:
                matrix.run(name, [*processes, *flags, "--chaos", chaos], fault_count)
        for flags in CODECS:
            if args.only in " ".join(flags):
                matrix.codec(flags, processes)
        if args.only in "everything killed, resumed":
            matrix.power_off()
        if args.only in "worker and server join, both drained":
            matrix.join_and_drain()
        for seed in range(1, args.seeds + 1):
            matrix.run(f"random:{seed}", [*processes, "--chaos", f"random:{seed}"], fault_count=1, is_random=True)
        print(f"{matrix.unnoticed_count} of {matrix.silence_count} random stops and partitions were too short "
              "to be noticed")
        if 0 < matrix.silence_count == matrix.unnoticed_count:
            matrix.failures += 1
    print(f"{matrix.failures} failed; every other run without a codec ended with {matrix.expected}")
    return 1 if matrix.failures else 0


if __name__ == "__main__":
    sys.exit(main())
