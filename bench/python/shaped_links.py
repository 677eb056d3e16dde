#!/usr/bin/env python3
"""shaped_links.py exchange|plan|hosts|pairs|racks [--rate 1gbit] [--steps N] [--rounds N] [--pando PROGRAM]

Measures training over links of a known speed: each process has a separate host (a network namespace and a host name),
with a link to a switch that is shaped both ways (tc's tbf) to --rate. Needs root, `ip`, `tc` and `unshare`. Everything
made is taken away at the end.

  exchange  VGG-16's parameters (553 MB) pushed, summed and pulled until every worker holds version t + 1: 4 workers and
            4 servers (fp32; bf16 both ways) beside gloo's ring among 4 workers, in turns. The pictures have 32 x 32
            pixels, so that computing takes little; its time (--strategy single, alone, first of all) is subtracted.
  plan      measured step times beside those of `pando plan`: several models, rates, workers and servers, both
            strategies. A worker's computing is measured in the same turns, as many at once as compute at once.
  hosts     the same 553 MB among 4 workers on 2 hosts and 2 servers on others: gradients summed on each host first
            (--host-sum auto) beside each worker pushing for itself, in turns.
  pairs     5.2 MB among 2, 4, 8 and 16 workers and as many servers, beside `pando plan`, and gloo's ring among the
            workers. The workers' computing is a timed wait (bench/cpp/timed_worker.c), so that two cores carry 33
            processes; --rate 20mbit keeps the links the slowest part.
  racks     the same among 16 hosts in two racks of 8, each with a worker and a server; the link between the racks
            carries a quarter of what 8 hosts can send. Gradients are summed in the racks first (--rack-sum always), or
            not, beside gloo's ring (--ring) and `pando plan`.

A step's time is the median over steps but the first six, from metrics.csv. Everything that is compared is measured once
a round, and every other round goes backwards.
"""
import argparse
import contextlib
import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from report import PANDO, ROOT, commit, cpu, in_turns, make_parser

SUBNET = "10.83.0"
SWITCH = "pando-switch"
TRUNK = "pando-trunk"  # between two racks' switches
WARM_UP_STEPS = 6
PATIENCE_SECONDS = 900
PROCESSES_MAX = 64
PAYLOAD_SHARE = 1448 / 1514  # of a TCP frame of Ethernet, as tc counts it
BUCKET_BYTES = 128 * 1024  # a shaped link lets these through at once, and a slow one what it carries in 5 ms
BUCKET_BYTES_MIN = 16 * 1024
NO_EVALUATION = ["--set", "eval.every_epochs=0", "--set", "data.test_limit=8"]  # except at the end
EXCHANGE = ["--model", "vgg16", "--dataset", "synthetic-imagenet", "--resize", "32"]
# Models whose exchange takes longer than their computing, and one for which both take equally long.
PLANNED = [  # model, its flags, samples of a worker's step, rate, workers, servers
    ("vgg16", ["--dataset", "synthetic-imagenet", "--resize", "32"], 1, "1gbit", 2, 2),
    ("vgg16", ["--dataset", "synthetic-imagenet", "--resize", "32"], 1, "1gbit", 4, 2),
    ("resnet50-cifar", ["--dataset", "synthetic-imagenet", "--resize", "32"], 2, "500mbit", 2, 1),
    ("resnet18-cifar", ["--dataset", "synthetic-imagenet", "--resize", "32"], 4, "200mbit", 2, 2)]
PAIRS = [2, 4, 8, 16]
PAIR_PARAMETERS = 1280 * 1024
PAIR_COMPUTE_MS = [0, 1000]
RACK_SIZE = 8
OVERSUBSCRIPTION = 4
# For gloo's ring, which takes no external model: about as many parameters, and next to no computing.
PAIR_MODEL = """[[layer]]
name = "flat"
type = "Flatten"
[[layer]]
name = "fc1"
type = "Linear"
out_features = 1648
[[layer]]
name = "fc2"
type = "Linear"
out_features = "classes"
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")


def split_rate(rate):
    """Returns the number and the unit of a rate as tc has it, "20mbit"."""
    unit = rate.lstrip("0123456789")
    return int(rate.removesuffix(unit)), unit


def bytes_per_second(rate):
    number, unit = split_rate(rate)
    return number * {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[unit] / 8


class Network:
    """Namespaces around a switch. `names`: one for each namespace. `uplink`: the rate between two racks, each with a
    switch; the second has the last RACK_SIZE namespaces."""

    def __init__(self, names, rate, uplink=None):
        self.names = names
        self.close()  # removes what a killed run has left
        try:
            for switch in (SWITCH, f"{SWITCH}2") if uplink else (SWITCH,):
                run("ip", "link", "add", switch, "type", "bridge")
                run("ip", "link", "set", switch, "up")
            if uplink:
                run("ip", "link", "add", TRUNK, "type", "veth", "peer", "name", f"{TRUNK}2")
            for end in ("", "2") if uplink else ():
                run("ip", "link", "set", TRUNK + end, "master", SWITCH + end, "up")
                run("tc", "qdisc", "add", "dev", TRUNK + end, *self._shape(uplink))
            for i, name in enumerate(names):
                is_far = uplink and i + RACK_SIZE >= len(names)
                self._add(i, name, rate, f"{SWITCH}2" if is_far else SWITCH)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _shape(rate):
        burst = min(max(int(bytes_per_second(rate) / 200), BUCKET_BYTES_MIN), BUCKET_BYTES)
        return ["root", "tbf", "rate", rate, "burst", str(burst), "latency", "100ms"]

    def _add(self, i, name, rate, switch):
        space, outside = f"pando-{name}", self.link(name)
        run("ip", "netns", "add", space)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", outside, "master", switch, "up")
        inside = ["ip", "netns", "exec", space]
        run(*inside, "ip", "addr", "add", f"{SUBNET}.{i + 1}/24", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        run(*inside, "ip", "link", "set", "lo", "up")
        run("tc", "qdisc", "add", "dev", outside, *self._shape(rate))  # towards the process
        run(*inside, "tc", "qdisc", "add", "dev", "eth0", *self._shape(rate))  # away from it

    def address(self, name):
        return f"{SUBNET}.{self.names.index(name) + 1}"

    def link(self, name):
        """Returns the name of the namespace's link outside of it."""
        return f"pv{self.names.index(name)}"

    @staticmethod
    def close():
        spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout.split()
        for space in spaces:
            if space.startswith("pando-"):
                subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
        # A namespace's link goes some time after it.
        for link in (SWITCH, f"{SWITCH}2", TRUNK, *(f"pv{i}" for i in range(PROCESSES_MAX))):
            subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)


class Job:
    """One run over a network: its processes, and the time of its steps."""

    def __init__(self, args, network, folder):
        self.args, self.network, self.folder, self.processes = args, network, folder, []

    def start(self, name, *arguments, host=None, program=None, variables=None):
        """Starts `pando` with these arguments, or another program."""
        host = host or name
        log = open(f"{self.folder}/{name}.log", "w", encoding="utf-8")
        as_host = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', f"pando-{host}"]
        self.processes.append(subprocess.Popen(
            ["ip", "netns", "exec", f"pando-{host}", *as_host, program or self.args.pando, *arguments], stdout=log,
            stderr=log, env=dict(os.environ, PANDO_SCHEDULER=self.endpoint(), **(variables or {}))))
        return self.processes[-1]

    def endpoint(self):
        return f"tcp://{self.network.address('scheduler')}:7070"

    def run_dir(self):
        return f"{self.folder}/run"

    def train(self, flags, workers, servers, workers_per_host=1, program=(), rack_size=None, evaluation=NO_EVALUATION):
        """Returns the milliseconds of each step after the first ones. `program`: a worker's command line, in place of
        `pando worker`. `rack_size`: hosts per rack; a server is then on its worker's host. `evaluation`: its flags."""
        endpoint = self.endpoint()
        worker = program or [self.args.pando, "worker", "--join", endpoint, "--threads", "1", "--device", "cpu"]
        run_dir = self.run_dir()
        leads = self.start(
            "scheduler", "scheduler", *flags, "--bind", endpoint, "--insecure", "--run-dir", run_dir, "--force",
            "--workers", str(workers), *(["--servers", str(servers)] if servers else []), "--set", "run.log_every=1",
            *evaluation, "--snapshot-every", "0", "--set", "run.lease_ms=20000")
        for i in range(servers):
            host = f"worker{i}" if rack_size else f"server{i}"
            label = ["--label", f"rack={i // rack_size}"] if rack_size else []
            self.start(f"server{i}", "server", "--join", endpoint, "--bind", f"tcp://{self.network.address(host)}:0",
                       "--insecure", "--lanes", "1", *label, host=host)
        for i in range(workers):
            rack = {"PANDO_RACK": str(i // rack_size), "PANDO_INSECURE": "1"} if rack_size else {}
            self.start(f"worker{i}", *worker[1:], program=worker[0], host=f"worker{i - i % workers_per_host}",
                       variables=rack)
        try:
            if leads.wait(timeout=PATIENCE_SECONDS) != 0:
                raise SystemExit(open(f"{self.folder}/scheduler.log", encoding="utf-8").read())
            for process in self.processes:
                with contextlib.suppress(subprocess.TimeoutExpired):  # the run's figures exist anyway
                    process.wait(timeout=10)
        finally:
            self.stop()
        return step_times(run_dir)

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()


def step_times(run_dir):
    with open(f"{run_dir}/metrics.csv", encoding="utf-8") as file:
        elapsed = [float(line["elapsed_seconds"]) for line in csv.DictReader(file) if line["loss"]]
    return [1000 * (now - before) for before, now in zip(elapsed, elapsed[1:])][WARM_UP_STEPS:]


def hosts_of(workers, servers, workers_per_host):
    return (["scheduler"] + [f"worker{i}" for i in range(0, workers, workers_per_host)] +
            [f"server{i}" for i in range(servers)])


@contextlib.contextmanager
def shaped_job(args, names, rate, uplink=None):
    """Makes a job over a network with these namespaces, and removes both at the block's end."""
    network = Network(names, rate, uplink)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield Job(args, network, folder)
    finally:
        network.close()


def measure(args, flags, workers, servers, rate, strategy, workers_per_host=1, program=()):
    servers = servers if strategy == "ps" else 0
    extra = ["--strategy", strategy] + (["--replicas", "1"] if strategy == "ps" else [])
    with shaped_job(args, hosts_of(workers, servers, workers_per_host), rate) as job:
        return job.train(flags + extra, workers, servers, workers_per_host, program)


def train_alone(args, flags, at_once, folder, has_timeline=False):
    """Makes `at_once` trainings side by side without any exchange, in the folders 0, 1, ... of `folder`."""
    runs = []
    for i in range(at_once):
        timeline = ["--timeline", f"{folder}/{i}.json"] if has_timeline else []
        runs.append(subprocess.Popen(
            [args.pando, "train", *flags, "--strategy", "single", "--run-dir", f"{folder}/{i}", *timeline, "--set",
             "run.log_every=1", *NO_EVALUATION, "--snapshot-every", "0", "--threads", "1"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL))
    try:
        for process in runs:
            if process.wait(timeout=PATIENCE_SECONDS) != 0:
                raise SystemExit(f"pando train {' '.join(flags)} --strategy single failed")
    finally:
        for process in runs:
            process.kill()


def alone(args, flags, at_once):
    """Returns the median milliseconds of a step, and of only its update, for `at_once` trainings side by side, with one
    micro-batch a step and without any exchange."""
    with tempfile.TemporaryDirectory() as folder:
        train_alone(args, flags, at_once, folder, has_timeline=True)
        return (statistics.median(ms for i in range(at_once) for ms in step_times(f"{folder}/{i}")),
                statistics.median(ms for i in range(at_once) for ms in update_times(f"{folder}/{i}.json")))


def update_times(trace):
    """Returns the times that a single process's computing thread waits for the update."""
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    waits = {}
    for event in events:
        if event["name"] == "wait for work":
            step = event["args"]["step"]
            waits[step] = waits.get(step, 0) + event["dur"] / 1000
    return [waits[step] for step in sorted(waits)][WARM_UP_STEPS:]


def batch_flags(samples, micro_batches, steps):
    return ["--global-batch", str(samples), "--micro-batches", str(micro_batches), "--steps",
            str(steps + WARM_UP_STEPS + 1)]


def heading(args):
    print(f"commit {commit()}, {cpu()}, Linux {os.uname().release}, links of {args.rate} each way")


def times_of(args, kinds, measure_kind):
    """Returns the milliseconds of each kind's steps."""
    return {kind: sum(rounds, []) for kind, rounds in in_turns(kinds, args.rounds, measure_kind).items()}


def exchange(args):
    heading(args)
    flags = EXCHANGE + batch_flags(4, 4, args.steps)
    computing, _ = alone(args, EXCHANGE + batch_flags(1, 1, args.steps), 4)
    print(f"computing and update, 4 at once, alone: {computing:.0f} ms a step")
    kinds = {"servers, fp32": (flags, "ps"),
             "servers, bf16": (flags + ["--codec", "bf16", "--pull-codec", "bf16"], "ps"),
             "gloo's ring": (flags + ["--set", "run.allreduce=ring"], "allreduce")}
    times = times_of(args, kinds, lambda kind: measure(args, kinds[kind][0], 4, 4, args.rate, kinds[kind][1]))
    ring = statistics.median(times["gloo's ring"])
    print(f"{'':<16}{'steps':>6}{'min':>9}{'p50':>9}{'max':>9}{'less computing':>16}{'of the ring':>13}")
    for name, steps in times.items():
        median = statistics.median(steps)
        print(f"{name:<16}{len(steps):>6}{min(steps):>9,.0f}{median:>9,.0f}{max(steps):>9,.0f}"
              f"{median - computing:>16,.0f}{(median - computing) / (ring - computing):>13.3f}")


def predicted(args, model, rate, workers, servers, *times):
    """Returns the plan's milliseconds by strategy. `model` and `times` are flags."""
    number, unit = split_rate(rate)
    bandwidth = f"{number * PAYLOAD_SHARE:.2f}{unit.capitalize()}"
    done = subprocess.run([args.pando, "plan", *model, "--workers", str(workers), "--servers", str(servers),
                           "--replicas", "1", "--bandwidth", bandwidth, *times, "--json"], check=True,
                          capture_output=True, text=True)
    return {p["strategy"]: p["step_ms"] for p in json.loads(done.stdout)["predictions"]}


class PlannedJob:
    """One row of PLANNED, measured a part at a time."""
    PARTS = ("alone", "ps", "allreduce")

    def __init__(self, model, data, samples, rate, workers, servers):
        self.model, self.samples, self.rate, self.workers, self.servers = model, samples, rate, workers, servers
        self.flags = ["--model", model, *data]
        self.alone = []  # milliseconds of (step, update) in each round
        self.steps = {"ps": [], "allreduce": []}

    def measure(self, args, part):
        if part == "alone":
            self.alone.append(alone(args, self.flags + batch_flags(self.samples, 1, args.steps), self.workers))
            took = self.alone[-1][0]
        else:
            job = self.flags + batch_flags(self.samples * self.workers, self.workers, args.steps)
            steps = measure(args, job, self.workers, self.servers, self.rate, part)
            self.steps[part] += steps
            took = statistics.median(steps)
        print(f"  {self.model}, {self.rate}, {self.workers} workers, {part}: {took:,.0f} ms", flush=True)

    def show(self, args):
        step_ms, update_ms = (statistics.median(times) for times in zip(*self.alone))
        plans = predicted(args, ["--model", self.model, "--classes", "1000", "--input", "32x32x3"], self.rate,
                          self.workers, self.servers, "--step-ms", f"{step_ms - update_ms:.2f}", "--optimizer-ms",
                          f"{update_ms:.2f}", "--batch", str(self.samples))
        for strategy, name in (("ps", "ps-own-hosts"), ("allreduce", "allreduce")):
            steps, planned = self.steps[strategy], plans[name]
            measured = statistics.median(steps)
            servers = self.servers if strategy == "ps" else ""
            print(f"{self.model:<16}{self.rate:>9}{self.workers:>9}{servers:>9}  {strategy:<11}"
                  f"{step_ms:>8.0f}{update_ms:>8.0f}{planned:>9.0f}{len(steps):>7}{min(steps):>9.0f}{measured:>9.0f}"
                  f"{max(steps):>9.0f}{100 * (planned / measured - 1):>7.1f}%", flush=True)


def plan(args):
    heading(argparse.Namespace(rate="several rates"))
    jobs = [PlannedJob(*row) for row in PLANNED]
    in_turns([(job, part) for job in jobs for part in PlannedJob.PARTS], args.rounds,
             lambda turn: turn[0].measure(args, turn[1]))
    print(f"{'model':<16}{'rate':>9}{'workers':>9}{'servers':>9}  {'strategy':<11}{'alone':>8}{'update':>8}"
          f"{'planned':>9}{'steps':>7}{'min':>9}{'p50':>9}{'max':>9}{'error':>8}")
    for job in jobs:
        job.show(args)


def hosts(args):
    heading(args)
    flags = EXCHANGE + batch_flags(4, 4, args.steps)
    times = times_of(args, ["--host-sum auto", "--host-sum never"], lambda kind: measure(
        args, flags + kind.split(), 4, 2, args.rate, "ps", workers_per_host=2))
    each = statistics.median(times["--host-sum never"])
    print(f"{'':<16}{'steps':>6}{'min':>9}{'p50':>9}{'max':>9}{'of never':>10}")
    for kind, steps in times.items():
        median = statistics.median(steps)
        print(f"{kind:<16}{len(steps):>6}{min(steps):>9,.0f}{median:>9,.0f}{max(steps):>9,.0f}{median / each:>10.3f}")


def ring_flags(args, model, workers):
    return ["--model", model, "--dataset", "synthetic-digits", "--set", "run.allreduce=ring",
            *batch_flags(workers, workers, args.steps)]


def timed_worker(args, compute_ms, workers):
    return [args.timed_worker, str(PAIR_PARAMETERS), str(compute_ms), str(workers), str(args.steps + WARM_UP_STEPS + 1)]


def measure_pair(args, kind, model):
    """Returns the milliseconds of the steps of one (workers, computing) of PAIRS; computing None: gloo's ring."""
    workers, compute_ms = kind
    if compute_ms is None:
        return measure(args, ring_flags(args, model, workers), workers, 0, args.rate, "allreduce")
    return measure(args, ["--model", "external", "--dataset", "external"], workers, workers, args.rate, "ps",
                   program=timed_worker(args, compute_ms, workers))


def pairs(args):
    heading(args)
    sizes = [int(n) for n in args.pairs.split(",")]
    kinds = [(n, ms) for n in sizes for ms in PAIR_COMPUTE_MS] + [(n, None) for n in sizes if args.ring]
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as model:
        model.write(PAIR_MODEL)
        model.flush()
        times = times_of(args, kinds, lambda kind: measure_pair(args, kind, model.name))
    print(f"{'pairs':>5}  {'strategy':<9}{'computing':>10}{'planned':>9}{'steps':>7}{'min':>9}{'p50':>9}{'max':>9}"
          f"{'of plan':>9}")
    for (workers, compute_ms), steps in times.items():
        plans = predicted(args, ["--parameters", str(PAIR_PARAMETERS)], args.rate, workers, workers, "--step-ms",
                          str(compute_ms or 0.01))
        planned = plans["allreduce" if compute_ms is None else "ps-own-hosts"]
        name, computing = ("ring", 0) if compute_ms is None else ("servers", compute_ms)
        median = statistics.median(steps)
        print(f"{workers:>5}  {name:<9}{computing:>10}{planned:>9,.0f}{len(steps):>7}{min(steps):>9,.0f}"
              f"{median:>9,.0f}{max(steps):>9,.0f}{median / planned:>9.3f}", flush=True)


def measure_racks(args, kind, model):
    """Returns the milliseconds of the steps of one (sums, computing) of racks(); computing None: gloo's ring."""
    rack_sum, compute_ms = kind
    hosts_count = 2 * RACK_SIZE
    names = ["scheduler"] + [f"worker{i}" for i in range(hosts_count)]
    number, unit = split_rate(args.rate)
    with shaped_job(args, names, args.rate, uplink=f"{number * RACK_SIZE // OVERSUBSCRIPTION}{unit}") as job:
        if compute_ms is None:
            return job.train(["--strategy", "allreduce", *ring_flags(args, model, hosts_count)], hosts_count, 0)
        flags = ["--model", "external", "--dataset", "external", "--replicas", "1", "--rack-sum", rack_sum]
        return job.train(flags, hosts_count, hosts_count, rack_size=RACK_SIZE,
                         program=timed_worker(args, compute_ms, hosts_count))


def racks(args):
    heading(args)
    kinds = [(rack_sum, ms) for ms in PAIR_COMPUTE_MS for rack_sum in ("always", "never")]
    kinds += [("ring", None)] if args.ring else []
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as model:
        model.write(PAIR_MODEL)
        model.flush()
        times = times_of(args, kinds, lambda kind: measure_racks(args, kind, model.name))
    print(f"{'rack sums':<9}{'computing':>10}{'planned':>9}{'steps':>7}{'min':>9}{'p50':>9}{'max':>9}{'of plan':>9}")
    for (rack_sum, compute_ms), steps in times.items():
        sums = ["--rack-sum", rack_sum] if compute_ms is not None else []
        plans = predicted(args, ["--parameters", str(PAIR_PARAMETERS)], args.rate, 2 * RACK_SIZE, 2 * RACK_SIZE,
                          "--step-ms", str(compute_ms or 0.01), "--rack-size", str(RACK_SIZE), "--oversubscription",
                          str(OVERSUBSCRIPTION), *sums)
        planned = plans["allreduce" if compute_ms is None else "ps-worker-hosts"]
        median = statistics.median(steps)
        print(f"{rack_sum:<9}{compute_ms or 0:>10}{planned:>9,.0f}{len(steps):>7}{min(steps):>9,.0f}{median:>9,.0f}"
              f"{max(steps):>9,.0f}{median / planned:>9.3f}", flush=True)


def leave(*_):
    """Exits, which removes the network, and ignores further signals."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main():
    parser = make_parser(__doc__, rate="1gbit", steps=6, rounds=2, pando=PANDO, pairs=",".join(map(str, PAIRS)),
                         ring=False, timed_worker=str(ROOT / "build/bench/cpp/timed_worker"))
    parser.add_argument("part", choices=["exchange", "plan", "hosts", "pairs", "racks"])
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("shaped_links.py makes network namespaces: run it as root")
    signal.signal(signal.SIGTERM, leave)
    began = time.monotonic()
    {"exchange": exchange, "plan": plan, "hosts": hosts, "pairs": pairs, "racks": racks}[args.part](args)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
