"""Steps stop for a known cause, and the run must name it (docs/testing.md): which process waits for which, and why.

    tests/e2e/stalls/stalls_test.py PANDO [CASE...]

Then the cause ends, and the run must end with the weights of a run without it. A case that this machine does not allow
is skipped, loudly; exit code 77: all are. PANDO_LIBRARY names libpando_worker.so for the case of a script.
"""
import argparse
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Callable

from faults import HeldThread, Hosts, SlowFiles, SmallDisk, Unsupported, busiest_thread
from stalled_run import JOB, STALL_MIN_S, STEPS, SerialRuns, Stall, StalledRun, check

PASSED, FAILED, SKIPPED = 0, 1, 77
IN_NAMESPACE = "PANDO_TEST_IN_NAMESPACE"  # set: main() has its own mounts
ROOT = Path(__file__).resolve().parents[3]
# How a text says that a process is not heard: it may be given up by then.
SILENT = ("silent", "stopped", "heard", "given up")
SLOW_RUN_S, SLOW_PERIOD_S = 0.04, 2.0  # a thread that runs 2 % of the time
PICTURES, SIDE = 64, 32  # of a class
PICTURE_JOB = ["--model", "mlp", "--dataset", "imagefolder", "--resize", str(SIDE), "--global-batch", "16",
               "--micro-batches", "4", "--set", "eval.every_epochs=0", "--steps", str(STEPS)]
EARLY_STOP_JOB = JOB + ["--eval-every-steps", "10", "--early-stop-patience", str(STEPS)]
SCRIPT = """
import sys
import pando_train as pando, torch, torch.nn.functional as F

steps, stuck_at, fifo = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
pando.seed(1)
data = torch.utils.data.TensorDataset(torch.randn(512, 64), torch.randint(10, (512,)))
model = torch.nn.Linear(64, 10)
run = pando.join(model, data, pando.SGD(lr=0.05), steps=steps, global_batch=64, micro_batches=4)
for x, y in run.loader():
    with run.micro_batch() as mb:
        if mb.step == stuck_at:
            stuck_at = None
            print("stuck here", flush=True)
            open(fifo).read()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        mb.log(loss=loss)
"""
SCRIPT_STEPS, SCRIPT_STUCK_AT = 60, 30
STUCK_LINE = "stuck here"


class Case:
    """A folder, a run in it, and what ends with the case."""

    def __init__(self, pando: str, folder: Path, serial: SerialRuns):
        self.folder, self.serial = folder, serial
        self.run = StalledRun(pando, folder)
        self.exits = ExitStack()

    def stop(self, node: str) -> int:
        """Returns the process's id."""
        process = self.run.process_of(node)
        self.run.mark_fault()
        os.kill(process, signal.SIGSTOP)
        return process

    def end_as_undisturbed(self, stall: Stall, job: list[str], main: str = "train") -> None:
        """After the cause: the stall ends, and the run goes on to the serial run's weights."""
        self.run.await_stall_end(main)
        self.end(job)
        self.run.check_places(stall)

    def end(self, job: list[str]) -> None:
        summary = self.run.await_end()
        expected = self.serial.hash_of(job)
        check(summary["weights_hash"] == expected, f"the weights are {summary['weights_hash']}, expected {expected}")


def expect(stall: Stall, waited_for: str, what: str = "", waiter: str = "", said: tuple[str, ...] = ()) -> None:
    """`said`: the text has at least one of them."""
    check(stall.waited_for == waited_for, f"expected that {waited_for} is waited for: {stall}")
    check(what in stall.what, f"expected that it is waited for {what}: {stall}")
    check(stall.waiter.startswith(waiter), f"expected that {waiter} waits: {stall}")
    check(not said or any(word in stall.text for word in said), f"expected one of {said} in the text: {stall}")
    check(waited_for in stall.text, f"the text does not name {waited_for}: {stall}")


def stopped_worker(case: Case) -> None:
    """The only one. Later it is given up, and still named."""
    case.run.start_training("--workers", "1", "--servers", "2")
    process = case.stop("worker 0")
    stall = case.run.await_stall()
    expect(stall, "worker 0", waiter="the run", said=SILENT)
    case.run.wait(lambda: case.run.events("dead"), "the worker is given up")
    case.run.await_text("worker 0", str(process), socket.gethostname())
    os.kill(process, signal.SIGCONT)
    case.end_as_undisturbed(stall, JOB)


def taken_over(case: Case, node: str) -> None:
    """Others take a stopped process's work over, so steps go on. If one takes as long as a stall, its name is right."""
    case.run.start_training("--workers", "2", "--servers", "2")
    process = case.stop(node)
    case.run.wait(lambda: case.run.events("dead"), f"{node} is given up")
    case.run.await_steps()
    named = case.run.events("stalled")
    check({event["details"]["node"] for event in named} <= {node}, f"stalls are named after other processes: {named}")
    print(f"  steps go on; named {len(named)} times", flush=True)
    os.kill(process, signal.SIGCONT)
    case.end(JOB)


def worker_of_two(case: Case) -> None:
    taken_over(case, "worker 1")


def server_of_two(case: Case) -> None:
    taken_over(case, "server 1")


def without_replica(case: Case, *settings: str) -> None:
    """One of two servers is stopped, which alone has its shards."""
    case.run.start_training("--workers", "1", "--servers", "2", "--replicas", "1", *settings)
    process = case.stop("server 1")
    stall = case.run.await_stall()
    expect(stall, "server 1", "sign of life", waiter="worker 0", said=SILENT)
    os.kill(process, signal.SIGCONT)
    case.end_as_undisturbed(stall, JOB)


def stopped_server(case: Case) -> None:
    without_replica(case, "--set", "run.lease_ms=20000")


def lost_server(case: Case) -> None:
    """Its shards are lost when it is given up."""
    without_replica(case)


def replicated_server(case: Case) -> None:
    """The other server takes over, after a lease that is longer than a stall."""
    case.run.start_training("--workers", "2", "--servers", "2", "--set", "run.lease_ms=4000")
    process = case.stop("server 0")
    stall = case.run.await_stall()
    expect(stall, "server 0", "sign of life", waiter="worker", said=SILENT)
    case.run.await_steps(1)  # before it is back
    os.kill(process, signal.SIGCONT)
    case.end_as_undisturbed(stall, JOB)


def write_pictures(root: Path) -> None:
    """Writes pictures of two classes, each in one grey."""
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    for split in ("train", "val"):
        for label, name in enumerate(("dark", "light")):
            (root / split / name).mkdir(parents=True)
            for n in range(PICTURES if split == "train" else 2):
                pixels = (b"\0" + bytes([50 + 100 * label + n % 50] * 3 * SIDE)) * SIDE
                head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
                picture = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
                (root / split / name / f"{n}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + picture)


def slow_disk(case: Case) -> None:
    """The training pictures take long to open."""
    data = case.folder / "pictures"
    write_pictures(data)
    job = PICTURE_JOB + ["--data", str(data)]
    case.run.start_training("--workers", "1", "--servers", "1", job=job)
    case.run.mark_fault()
    with SlowFiles((data / "train").glob("*/*")):
        stall = case.run.await_stall()
        expect(stall, "worker 0", "samples of step", waiter="the run")
    case.end_as_undisturbed(stall, job)


def full_disk(case: Case) -> None:
    """The scheduler cannot write its journal, and with early stopping no step is made beyond the next evaluation."""
    disk = SmallDisk(case.folder)
    case.exits.callback(disk.unmount)
    case.run.run_dir = disk.path / "run"
    case.run.start_training("--workers", "1", "--servers", "1", job=EARLY_STOP_JOB)
    case.run.mark_fault()
    disk.fill()
    stall = case.run.await_stall()
    expect(stall, "scheduler", "journal", waiter="the run", said=("No space left", "is full"))
    case.run.await_length(2 * STALL_MIN_S)  # it may be named before, while steps go on without the journal
    disk.free()
    case.end_as_undisturbed(stall, EARLY_STOP_JOB)


def cut_link(case: Case) -> None:
    """The worker and a server lose what they send each other. The scheduler reaches both."""
    hosts = Hosts(3)
    case.exits.callback(hosts.end)
    run, endpoint = case.run, f"tcp://{hosts.address(1)}:7070"
    run.start("scheduler", "scheduler", "--bind", endpoint, "--insecure", "--run-dir", run.run_dir, "--servers", "1",
              "--workers", "1", "--set", "run.lease_ms=20000", *JOB, through=hosts.process(1))
    run.start("server", "server", "--join", endpoint, "--bind", f"tcp://{hosts.address(2)}:0", "--insecure",
              through=hosts.process(2))
    run.start("worker", "worker", "--join", endpoint, through=hosts.process(3))
    run.inside = hosts.process(1)
    run.await_steps()
    run.mark_fault()
    hosts.cut(2, 3)
    stall = run.await_stall()
    expect(stall, "server 0", "parameters of step", waiter="worker 0", said=("both",))
    hosts.mend(2, 3)
    case.end_as_undisturbed(stall, JOB, "scheduler")


def held_lane(case: Case, run_s: float) -> None:
    case.run.start_training("--workers", "1", "--servers", "2", "--replicas", "1", "--set", "run.lanes=1")
    thread = busiest_thread(case.run.process_of("server 1"))
    case.run.mark_fault()
    with HeldThread(thread, run_s, SLOW_PERIOD_S):
        stall = case.run.await_stall()
        expect(stall, "server 1", "parameters of step", waiter="worker 0", said=("both",))
        check(not case.run.events("dead"), f"the server is given up, though its messages arrive: {case.run.describe()}")
    case.end_as_undisturbed(stall, JOB)


def stuck_lane(case: Case) -> None:
    """A server's lane does not run. Its other threads do: the scheduler gets its messages."""
    held_lane(case, 0)


def slow_reader(case: Case) -> None:
    """A server's lane runs so rarely that a step takes more than a second."""
    held_lane(case, SLOW_RUN_S)


def missing_machine(case: Case) -> None:
    """A run does not begin without its second server."""
    run, file = case.run, case.folder / "endpoint"
    run.mark_fault()
    run.start("scheduler", "scheduler", "--bind", "tcp://127.0.0.1:0", "--endpoint-file", file, "--run-dir",
              run.run_dir, "--servers", "2", "--workers", "1", *JOB)
    run.wait(lambda: file.exists() and file.read_text().endswith("\n"), "the scheduler listens")
    endpoint = file.read_text().strip()
    run.start("server-0", "server", "--join", endpoint)
    run.start("worker-0", "worker", "--join", endpoint)
    stall = run.await_stall()
    check("server" in stall.waited_for and "1 of 2 servers" in stall.text, f"expected 1 of 2 servers: {stall}")
    run.start("server-1", "server", "--join", endpoint)
    case.end_as_undisturbed(stall, JOB, "scheduler")


def stuck_script(case: Case) -> None:
    """A worker is a script of a user, which waits for something else."""
    run = case.run
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        raise Unsupported("this Python has no torch")
    (case.folder / "script.py").write_text(SCRIPT)
    fifo = case.folder / "fifo"
    os.mkfifo(fifo)
    run.environment |= {"PYTHONPATH": str(ROOT / "python"), "PANDO_PROGRAM": run.pando}
    run.start("run", "run", "--workers", "1", "--servers", "1", "--run-dir", run.run_dir, "--", sys.executable,
              case.folder / "script.py", SCRIPT_STEPS, SCRIPT_STUCK_AT, fifo)
    log = run.run_dir / "logs/worker-0.log"
    run.wait(lambda: log.exists() and STUCK_LINE in log.read_text(errors="replace"), "the script is stuck")
    run.mark_fault()
    stall = run.await_stall()
    expect(stall, "worker 0", "gradients of step", waiter="the run", said=("comput", "script"))
    check(stall.log_line.endswith(STUCK_LINE), f"the last line of the worker's log is another: {stall}")
    fifo.write_text("go on")
    run.await_stall_end("run")
    summary = run.await_end()
    run.check_places(stall)
    check(summary["steps"] == SCRIPT_STEPS, f"the run has ended after {summary['steps']} steps")


CASES: dict[str, Callable[[Case], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (stopped_worker, worker_of_two, server_of_two, stopped_server, lost_server, replicated_server,
                     slow_disk, full_disk, cut_link, stuck_lane, slow_reader, missing_machine, stuck_script)}


def play(pando: str, name: str, folder: Path, serial: SerialRuns) -> int:
    """Returns the exit code of the case alone."""
    print(f"{name}:", flush=True)
    (folder / name).mkdir()
    case = Case(pando, folder / name, serial)
    try:
        with case.exits:
            CASES[name](case)
    except Unsupported as error:
        print(f"SKIPPED: {name}: {error}", file=sys.stderr, flush=True)
        return SKIPPED
    except AssertionError as error:
        print(f"FAILED: {name}: {error}", file=sys.stderr, flush=True)
        return FAILED
    finally:
        case.run.kill_all()
    print("  passed", flush=True)
    return PASSED


def enter_namespace() -> None:
    """Goes on in a separate mount namespace, if this machine allows it: mounts end with this process."""
    flags = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    if IN_NAMESPACE in os.environ:
        return
    os.environ[IN_NAMESPACE] = "1"
    try:
        if subprocess.run(["unshare", *flags, "true"], capture_output=True, check=False).returncode == 0:
            os.execvp("unshare", ["unshare", *flags, sys.executable, "-B", *sys.argv])
    except FileNotFoundError:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pando", type=os.path.abspath)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    options = parser.parse_args()
    for name in options.cases:
        check(name in CASES, f"there is no case {name}")
    enter_namespace()
    # Meson ends a test that takes too long by SIGTERM: the processes end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="pando-test-", ignore_cleanup_errors=True) as folder:
        serial = SerialRuns(options.pando, Path(folder))
        codes = [play(options.pando, name, Path(folder), serial) for name in options.cases or CASES]
    return FAILED if FAILED in codes else min(codes)


if __name__ == "__main__":
    sys.exit(main())
