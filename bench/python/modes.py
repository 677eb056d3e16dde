#!/usr/bin/env python3
"""modes.py curves|plot|bytes|overlap|torchft [--out FOLDER] [--modes A,B] [--quick] [--pando PROGRAM] ...

Compares the modes of training (docs/modes.md): synchronous steps (sync), steps with staleness 1 (stale), rounds of 50
local steps (rounds; rounds-int8 sends them as int8), and such rounds with staleness 1, sent as int8 (both). The model
is the MNIST CNN. Each process has a network namespace with a shaped link, as in shaped_links.py, except in torchft
and in the second half of overlap. Each part prints a table at its end, and writes modes-PART.json to --out.

  curves   test accuracy over samples and over seconds of 2 workers and 2 servers at each of --rates; a run has
           --epochs epochs. Seconds are those of training: without the start and without evaluations. 8 minutes.
  plot     draws the results of curves as modes-accuracy.svg. Seconds. Needs matplotlib (tools/setup.sh plots).
  bytes    4 workers and 4 servers: bytes that a worker's link carries for a sample beside sync, and images/s beside 4
           workers that exchange nothing (--strategy single, 4 at once on the same cores), in turns. 5 minutes.
  overlap  steps/s of stale beside sync, in turns. First with timed waits (bench/cpp/timed_worker.c) that are as long as
           a step that only exchanges: with one layer, so that sync cannot exchange while it computes, and with 64.
           Then the MNIST CNN on this machine's cores, 2 workers and 2 servers, without namespaces. 5 minutes.
  torchft  DiLoCo of the package pando_train beside torchft's, on the same model in PyTorch, 2 workers: samples/s, and
           the cost of a worker that is killed half-way between two commits. Needs a venv with torch, torchvision and
           torchft-nightly (bench/python/peers/run.py setup, or --venv FOLDER). 5 minutes.

curves, bytes and overlap need root, `ip`, `tc` and `unshare`. --quick takes some seconds, and only shows that a part
works. All times are of an otherwise idle machine with 2 cores.
"""
import csv
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import report
import shaped_links as links
from report import MNIST, PANDO, ROOT, commit, cpu, in_turns, make_parser
from results import BenchError  # report.py adds its folder to the path

BENCH = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCH / "peers"), str(ROOT / "tools")]

LOCAL_STEPS = 50
TRAIN_SAMPLES = 60000
EVALUATED_ROUNDS = 4  # rounds between evaluations; other modes are evaluated after as many samples
CURVE_BATCH, CURVE_WORKERS, CURVE_SERVERS = 64, 2, 2  # samples of a worker's local step
BYTES_BATCH, BYTES_WORKERS, BYTES_SERVERS = 128, 4, 4
ACCURACY = 0.97  # curves: the table has the time until then
POLL_SECONDS, TAIL_BYTES = 0.01, 1024
PUSHED = re.compile(r"pushed (\d+) bytes")
LAYERS = [1, 64]  # of timed waits
TORCHFT_WORKERS, KILL_AT_ROUND, WARM_UP_ROUNDS = 2, 8, 3
TORCHFT_LIMIT_SECONDS = 240
ADAMW = ["--optimizer", "adamw", "--lr", "0.001"]
STALE = ["--set", "train.staleness=1"]
INT8 = ["--codec", "int8"]
ROUNDS = ["--optimizer", "sgd", "--set", "optimizer.nesterov=true", "--local-steps", str(LOCAL_STEPS), "--set",
          "train.inner=type=adamw lr=0.001"]
OUTER = ["--lr", "0.7", "--momentum", "0.9"]  # DiLoCo's
STALE_OUTER = ["--lr", "0.5", "--momentum", "0.3"]  # with OUTER a round that is one version late diverges


@dataclass(frozen=True)
class Mode:
    title: str
    flags: list
    local_steps: int = 1

    def is_stale(self):
        return STALE[1] in self.flags


MODES = {"sync": Mode("synchronous", ADAMW),
         "stale": Mode("staleness 1", ADAMW + STALE),
         "rounds": Mode(f"rounds of {LOCAL_STEPS}", ROUNDS + OUTER, LOCAL_STEPS),
         "rounds-int8": Mode(f"rounds of {LOCAL_STEPS}, int8", ROUNDS + OUTER + INT8, LOCAL_STEPS),
         "both": Mode(f"rounds of {LOCAL_STEPS}, staleness 1, int8", ROUNDS + STALE_OUTER + STALE + INT8, LOCAL_STEPS)}


def job_flags(args, mode, batch, workers, steps):
    """Returns the flags of `steps` steps of full batches, in which a worker's local step has `batch` samples."""
    return ["--model", "mnist-cnn", "--dataset", "mnist", "--data", args.data, *mode.flags, "--global-batch",
            str(batch * workers * mode.local_steps), "--micro-batches", str(workers), "--steps", str(steps), "--seed",
            str(args.seed), "--set", "train.last_batch=drop"]


def chosen_modes(args, usual):
    """Returns the modes of --modes, which this build of Pando must have."""
    names = args.modes.split(",") if args.modes else usual
    unknown = [name for name in names if name not in MODES]
    if unknown:
        sys.exit(f"--modes: there is no '{unknown[0]}'; there are {', '.join(MODES)}")
    done = subprocess.run([args.pando, "train", *STALE, "--dry-run"], capture_output=True, text=True, check=False)
    if done.returncode != 0 and any(MODES[name].is_stale() for name in names):
        have = [name for name in usual if not MODES[name].is_stale()]
        sys.exit(f"{args.pando} does not take {' '.join(STALE)}: {done.stderr.strip()}\n"
                 f"Name a build that does by --pando, or leave these modes out: --modes {','.join(have)}")
    return names


def require_root(args):
    if os.geteuid() != 0:
        sys.exit(f"modes.py {args.part} makes network namespaces: run it as root")
    missing = [program for program in ("ip", "tc", "unshare") if not shutil.which(program)]
    if missing:
        sys.exit(f"modes.py {args.part} needs {', '.join(missing)}: apt-get install iproute2 util-linux")
    require_mnist(args)


def require_mnist(args):
    if not Path(args.data).is_dir():
        sys.exit(f"there is no folder {args.data}: name that of MNIST's files by --data, or run pando data fetch mnist")


def write_results(args, results):
    path = Path(args.out, f"modes-{args.part}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"commit": commit(), "cpu": cpu(), **results}, indent=1), encoding="utf-8")
    print(path)


def mean_ms(steps):
    """Returns the mean of a run's milliseconds, not the median: a commit may bring two steps to an end."""
    if not steps:
        sys.exit("the run was too short: it has no steps after its warm-up")
    return statistics.mean(steps)


# ---- curves ---------------------------------------------------------------------------------------------------------


def read_curve(run_dir, batch):
    """Returns the evaluations of a run whose steps have `batch` samples. Their seconds are those of training alone."""
    seconds, points = {0: 0.0}, []
    with open(f"{run_dir}/metrics.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            step = int(row["step"])
            if row["loss"] and float(row["images_per_second_mean"]):
                seconds[step] = step * batch / float(row["images_per_second_mean"])
            if row["test_accuracy"]:
                points.append((step, float(row["test_accuracy"])))
    known = sorted(seconds)
    return [{"samples": step * batch, "accuracy": accuracy,
             "seconds": seconds[max(at for at in known if at <= step)]} for step, accuracy in points]


def measure_curve(args, rate, name):
    mode = MODES[name]
    batch = CURVE_BATCH * CURVE_WORKERS * mode.local_steps
    steps = max(1, int(args.epochs * TRAIN_SAMPLES) // batch)
    every = EVALUATED_ROUNDS * LOCAL_STEPS // mode.local_steps
    evaluation = ["--eval-every-steps", str(every)]
    with links.shaped_job(args, links.hosts_of(CURVE_WORKERS, CURVE_SERVERS, 1), rate) as job:
        job.train(job_flags(args, mode, CURVE_BATCH, CURVE_WORKERS, steps), CURVE_WORKERS, CURVE_SERVERS,
                  evaluation=evaluation)
        summary = json.loads(Path(job.run_dir(), "summary.json").read_text(encoding="utf-8"))
        run = {"rate": rate, "mode": name, "title": mode.title, "points": read_curve(job.run_dir(), batch),
               "images_per_second": summary["images_per_second"], "weights_hash": summary["weights_hash"]}
    last = run["points"][-1]
    print(f"  {rate}, {mode.title}: {last['accuracy']:.4f} after {last['seconds']:.1f} s", flush=True)
    return run


def seconds_until(points, accuracy):
    return next((f"{point['seconds']:.1f}" for point in points if point["accuracy"] >= accuracy), "-")


def curves(args):
    require_root(args)
    names = chosen_modes(args, ["sync", "stale", "rounds", "both"])
    args.epochs = args.epochs or (0.25 if args.quick else 3)
    rates = args.rates.split(",") if args.rates else ["1gbit"] if args.quick else ["1gbit", "100mbit", "20mbit"]
    runs = [measure_curve(args, rate, name) for rate in rates for name in names]
    write_results(args, {"epochs": args.epochs, "seed": args.seed, "runs": runs})
    print(f"{'rate':<9}{'mode':<34}{'images/s':>10}{'accuracy':>10}{'s':>8}{f's to {ACCURACY:.2f}':>11}  weights")
    for run in runs:
        last = run["points"][-1]
        print(f"{run['rate']:<9}{run['title']:<34}{run['images_per_second']:>10,.0f}{last['accuracy']:>10.4f}"
              f"{last['seconds']:>8.1f}{seconds_until(run['points'], ACCURACY):>11}  {run['weights_hash'][:8]}")
    for name in names:
        if len({run["weights_hash"] for run in runs if run["mode"] == name}) > 1:
            print(f"{MODES[name].title}: THE WEIGHTS DIFFER between the rates")


def draw_curves(axes, runs, x, colours):
    for colour, run in zip(colours, runs):
        axes.plot([point[x] for point in run["points"]], [100 * point["accuracy"] for point in run["points"]],
                  color=colour, marker="o", markersize=3, linewidth=1.5, label=run["title"])
    axes.grid(True, axis="y")
    axes.yaxis.set_major_formatter("{x:.0f} %")


def plot(args):
    from page import COLOURS, load_matplotlib  # here, because other parts need no matplotlib
    path = Path(args.out, "modes-curves.json")
    if not path.is_file():
        sys.exit(f"there is no {path}: run `modes.py curves --out {args.out}` first")
    results = json.loads(path.read_text(encoding="utf-8"))
    pyplot = load_matplotlib()
    import pictures  # needs matplotlib's Python
    pictures.prepare(pyplot)
    rates = list(dict.fromkeys(run["rate"] for run in results["runs"]))
    figure, all_axes = pyplot.subplots(-(-(len(rates) + 1) // 2), 2, figsize=(pictures.WIDTH_INCHES, 5.6), sharey=True,
                                       squeeze=False)
    panels = list(all_axes.flat)
    draw_curves(panels[0], [run for run in results["runs"] if run["rate"] == rates[0]], "samples", COLOURS)
    panels[0].set_title("Test accuracy over thousands of samples")
    panels[0].xaxis.set_major_formatter(lambda x, _: f"{x / 1000:.0f}")
    panels[0].legend(loc="lower right", fontsize=8.5)
    for axes, rate in zip(panels[1:], rates):
        draw_curves(axes, [run for run in results["runs"] if run["rate"] == rate], "seconds", COLOURS)
        axes.set_xscale("log")
        axes.set_title(f"Over seconds, links of {rate.replace('gbit', ' Gbit/s').replace('mbit', ' Mbit/s')}")
        axes.xaxis.set_major_formatter("{x:g}")
    for axes in panels[len(rates) + 1:]:
        axes.set_visible(False)
    seconds = [point["seconds"] for run in results["runs"] for point in run["points"]]
    for axes in panels[1:]:
        axes.set_xlim(min(seconds) / 1.3, max(seconds) * 1.3)
    lowest = min(point["accuracy"] for run in results["runs"] for point in run["points"])
    panels[0].set_ylim(100 * max(0.0, min(0.95, lowest) - 0.01), 100)
    figure.tight_layout(h_pad=1.5)
    pictures.save(figure, pyplot, Path(args.out, "modes-accuracy.svg"))


# ---- bytes ----------------------------------------------------------------------------------------------------------


class Meter:
    """Counts what the workers' links carry from one step's end to that of a later step. Owns a thread."""

    def __init__(self, job, workers, first, last):
        self.run_dir, self.steps = job.run_dir(), (first, last)
        self.folders = [Path(f"/sys/class/net/{job.network.link(f'worker{i}')}/statistics") for i in range(workers)]
        self.done, self.readings = threading.Event(), []
        self.thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def _watch(self):
        while not self.done.wait(POLL_SECONDS) and len(self.readings) < len(self.steps):
            step = self._step()
            if step >= self.steps[len(self.readings)]:
                self.readings.append((step, *self._read()))

    def _step(self):
        try:
            with open(f"{self.run_dir}/metrics.csv", "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                return int(file.read().splitlines()[-1].split(b",")[0])
        except (OSError, ValueError, IndexError):  # the run has not made a step
            return 0

    def _read(self):
        """Returns what the workers have sent and received: the other end of a link has received what they sent."""
        return tuple(sum(int((folder / name).read_text()) for folder in self.folders)
                     for name in ("rx_bytes", "tx_bytes"))

    def per_step(self):
        if len(self.readings) < len(self.steps) or self.readings[1][0] == self.readings[0][0]:
            sys.exit("the run was too short: its bytes were not read twice")
        (first, *before), (last, *after) = self.readings
        return [(now - then) / (last - first) for then, now in zip(before, after)]


def measure_bytes(args, name, rate, steps):
    """Returns images/s, and for a sample the bytes that workers pushed, by their own count, and those that their links
    sent and received. `name` None: without exchange."""
    if name is None:
        mode = MODES["rounds"]
        flags = job_flags(args, mode, BYTES_BATCH, 1, steps + links.WARM_UP_STEPS + 1)
        with tempfile.TemporaryDirectory() as folder:
            links.train_alone(args, flags, BYTES_WORKERS, folder)
            samples = 1000 * BYTES_BATCH * mode.local_steps
            times = [links.step_times(f"{folder}/{i}") for i in range(BYTES_WORKERS)]
        return sum(samples / mean_ms(steps) for steps in times), 0.0, 0.0, 0.0
    mode = MODES[name]
    steps = steps if mode.local_steps > 1 else 20 * steps  # they are shorter, but not by LOCAL_STEPS
    batch = BYTES_BATCH * BYTES_WORKERS * mode.local_steps
    flags = job_flags(args, mode, BYTES_BATCH, BYTES_WORKERS, steps + links.WARM_UP_STEPS + 1)
    with links.shaped_job(args, links.hosts_of(BYTES_WORKERS, BYTES_SERVERS, 1), rate) as job:
        with Meter(job, BYTES_WORKERS, links.WARM_UP_STEPS, links.WARM_UP_STEPS + steps) as meter:
            times = job.train(flags, BYTES_WORKERS, BYTES_SERVERS)
        pushed = pushed_bytes(job) / (steps + links.WARM_UP_STEPS + 1)
        return (1000 * batch / mean_ms(times), *(count / batch for count in (pushed, *meter.per_step())))


def pushed_bytes(job):
    """Returns the bytes that the workers pushed in the whole run, as they log it when they leave."""
    logs = [Path(job.folder, f"worker{i}.log").read_text(encoding="utf-8") for i in range(BYTES_WORKERS)]
    found = [PUSHED.search(log) for log in logs]
    if None in found:
        sys.exit(f"a worker has not logged what it pushed:\n{logs[found.index(None)]}")
    return sum(int(match.group(1)) for match in found)


def count_bytes(args):
    require_root(args)
    usual = ["sync", "rounds", "rounds-int8", "both"]
    names = chosen_modes(args, usual)
    if "sync" not in names:
        sys.exit("--modes: bytes compares with sync, which is missing")
    rates = {name: args.rates or ("20mbit" if MODES[name].is_stale() else "100mbit") for name in names}
    steps, args.rounds = args.steps or (4 if args.quick else 60), args.rounds or (1 if args.quick else 2)
    results = in_turns([None, *names], args.rounds, lambda name: measure_bytes(args, name, rates.get(name), steps))
    medians = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in results.items()}
    write_results(args, {"rates": rates, "samples": {name or "alone": rows for name, rows in results.items()}})
    alone, sync = medians[None][0], medians["sync"]
    print(f"{'mode':<34}{'links':>9}{'images/s':>10}{'of alone':>10}{'pushed':>9}{'sent':>9}{'received':>10}  bytes a "
          "sample; sync's by these")
    print(f"{'without exchange':<34}{'':>9}{alone:>10,.0f}")
    for name in names:
        images, *counts = medians[name]
        print(f"{MODES[name].title:<34}{rates[name]:>9}{images:>10,.0f}{images / alone:>10.3f}{counts[0]:>9.2f}"
              f"{counts[1]:>9.2f}{counts[2]:>10.2f}  " +
              ", ".join(f"{most / few:.1f}" for most, few in zip(sync[1:], counts)))


# ---- overlap --------------------------------------------------------------------------------------------------------


def measure_waits(args, name, layers, rate, compute_ms):
    """Returns the steps/s of timed waits."""
    train = "staleness = 1" if MODES[name].is_stale() else ""  # a worker declares it, not the scheduler's flags
    program = [*links.timed_worker(args, compute_ms, CURVE_WORKERS), str(layers), train]
    return 1000 / mean_ms(links.measure(args, ["--model", "external", "--dataset", "external"], CURVE_WORKERS,
                                        CURVE_SERVERS, rate, "ps", program=program))


def measure_here(args, name, epochs):
    """Returns the steps/s of the MNIST CNN on this machine's cores."""
    steps = max(1, int(epochs * TRAIN_SAMPLES) // (CURVE_BATCH * CURVE_WORKERS))
    flags = job_flags(args, MODES[name], CURVE_BATCH, CURVE_WORKERS, steps)
    summary = report.train(args.pando, [*flags, "--workers", CURVE_WORKERS, "--servers", CURVE_SERVERS, "--threads", 1,
                                        *links.NO_EVALUATION])
    return summary["images_per_second"] / (CURVE_BATCH * CURVE_WORKERS)


def show_turns(title, results):
    first = statistics.median(next(iter(results.values())))
    for name, values in results.items():
        middle = statistics.median(values)
        print(f"{title:<40}{MODES[name].title:<14}{len(values):>7}{min(values):>9.2f}{middle:>9.2f}{max(values):>9.2f}"
              f"{middle / first:>9.3f}")


def overlap(args):
    require_root(args)
    names = chosen_modes(args, ["sync", "stale"])
    if any(MODES[name].local_steps > 1 for name in names):
        sys.exit("--modes: overlap compares sync and stale")
    if not Path(args.timed_worker).is_file():
        sys.exit(f"there is no {args.timed_worker}: build it (ninja -C build), or name it by --timed-worker")
    rate, args.steps = args.rates or "100mbit", args.steps or (3 if args.quick else 12)
    args.rounds, epochs = args.rounds or (1 if args.quick else 2), args.epochs or (0.5 if args.quick else 5)
    exchange_ms = {layers: 1000 / measure_waits(args, "sync", layers, rate, 0) for layers in LAYERS}
    waits = in_turns([(layers, name) for layers in LAYERS for name in names], args.rounds, lambda kind: measure_waits(
        args, kind[1], kind[0], rate, exchange_ms[kind[0]]))
    by_layers = {layers: {name: waits[layers, name] for name in names} for layers in LAYERS}
    here = in_turns(names, args.rounds, lambda name: measure_here(args, name, epochs))
    write_results(args, {"rate": rate, "exchange_ms": exchange_ms, "waits": by_layers, "here": here})
    print(f"{'steps/s':<40}{'mode':<14}{'samples':>7}{'min':>9}{'p50':>9}{'max':>9}{'ratio':>9}")
    for layers in LAYERS:
        show_turns(f"waits of {exchange_ms[layers]:.0f} ms, layers: {layers}, {rate}", by_layers[layers])
    show_turns(f"MNIST CNN, {os.cpu_count()} cores, no shaping", here)


# ---- torchft --------------------------------------------------------------------------------------------------------


def kill_in_a_round(watch):
    """Kills a worker half-way between two commits. Returns False before that."""
    import launch
    commits = watch.outcome.progress.seconds[-6:]
    gaps = [end - begin for begin, end in zip(commits, commits[1:])]
    if not gaps or time.monotonic() < commits[-1] + statistics.median(gaps) / 2:
        return False
    return launch.kill_a_worker(watch)


class TorchftSession:
    """The runs of both systems in PyTorch."""

    def __init__(self, args, folder, rounds):
        import systems
        from workloads import MNIST_CNN
        Path(folder, "torch").symlink_to(Path(args.venv).resolve())
        self.folder, self.count = Path(folder), 0
        self.place = systems.Place(self.folder, Path(args.data).resolve().parent, str(Path(args.pando).resolve()))
        more = {"local_steps": LOCAL_STEPS}
        self.systems = [systems.System("pando-diloco", "Pando, PyTorch, 2 servers", "pando-torch",
                                       {**more, "servers": 2}),
                        systems.System("torchft-diloco", "torchft", "torchft", more)]
        self.workload = replace(MNIST_CNN, steps=LOCAL_STEPS * rounds, snapshot_every=0, checkpoint_every=0,
                                warm_up=LOCAL_STEPS * min(WARM_UP_ROUNDS, rounds // 4),
                                kill_at=LOCAL_STEPS * min(KILL_AT_ROUND, rounds // 3))

    def check(self):
        for system in self.systems:
            reason = system.why_not(self.place, 0)
            if reason:
                sys.exit(f"{system.title}: {reason}. Make a venv with torch, torchvision and torchft-nightly "
                         "(bench/python/peers/run.py setup), and name it by --venv")

    def run(self, system, is_killed):
        """Returns the outcome of one run, which must not fail, and the samples whose computing was lost."""
        import launch
        from systems import Run
        self.count += 1
        run = Run(self.workload, TORCHFT_WORKERS, self.folder / f"{self.count}-{system.key}", is_elastic=True)
        events = [launch.Event(run.samples(self.workload.kill_at), kill_in_a_round)] if is_killed else []
        outcome = launch.execute(system, run, self.place, TORCHFT_LIMIT_SECONDS, events)
        if outcome.reason:
            sys.exit(f"{system.title}, {'a worker killed' if is_killed else 'no kill'}: {outcome.reason}")
        replaced = sum(path.stat().st_size for path in run.folder.glob("replaced-*"))
        wasted = (outcome.batches_begun + replaced) * self.workload.batch - outcome.progress.last()
        return outcome, wasted

    def measure(self, system):
        """Returns the figures of a run without a kill, and of one with it."""
        calm, usual = self.run(system, is_killed=False)
        killed, wasted = self.run(system, is_killed=True)
        return {"samples/s": calm.images_per_second(self.workload.warm_up * self.workload.batch * TORCHFT_WORKERS),
                "accuracy": calm.accuracy(), "s lost": killed.seconds_lost(calm),
                "s to a commit": killed.seconds_to_step(killed.kills[0]), "samples lost": wasted - usual,
                "accuracy, killed": killed.accuracy()}


def torchft(args):
    require_mnist(args)
    if not Path(args.venv, "bin/python").exists():
        sys.exit(f"there is no venv {args.venv}: make one with torch, torchvision and torchft-nightly "
                 "(bench/python/peers/run.py setup), and name it by --venv")
    import processes
    processes.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="pando-modes-") as folder:
        session = TorchftSession(args, folder, rounds=args.steps or (9 if args.quick else 30))
        session.check()
        by_key = {system.key: system for system in session.systems}
        results = in_turns(by_key, args.rounds or 1, lambda key: session.measure(by_key[key]))
    write_results(args, {"samples": results, "batch": session.workload.batch, "local_steps": LOCAL_STEPS,
                         "rounds": session.workload.steps // LOCAL_STEPS})
    columns = list(next(iter(results.values()))[0])
    print(f"{'':<28}" + "".join(f"{column:>18}" for column in columns))
    for key, rows in results.items():
        values = ([row[column] for row in rows if row[column] is not None] for column in columns)
        cells = [f"{statistics.median(column):,.4g}" if column else "-" for column in values]
        print(f"{by_key[key].title:<28}" + "".join(f"{cell:>18}" for cell in cells))


PARTS = {"curves": curves, "plot": plot, "bytes": count_bytes, "overlap": overlap, "torchft": torchft}


def main():
    parser = make_parser(__doc__, out="results", modes="", rates="", epochs=0.0, steps=0, rounds=0, seed=1, quick=False,
                         data=MNIST, pando=os.environ.get("PANDO", PANDO),
                         timed_worker=str(ROOT / "build/bench/cpp/timed_worker"),
                         venv=str(BENCH / "peers/.venvs/torch"))
    parser.add_argument("part", choices=PARTS)
    args = parser.parse_args()
    if args.part != "plot" and not Path(args.pando).is_file():
        sys.exit(f"there is no program {args.pando}: build it, or name it by --pando")
    signal.signal(signal.SIGTERM, links.leave)
    if args.part != "plot":
        print(f"{args.part}: commit {commit()}, {cpu()}, Linux {os.uname().release}", flush=True)
    began = time.monotonic()
    try:
        PARTS[args.part](args)
    except BenchError as error:
        sys.exit(str(error))
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
