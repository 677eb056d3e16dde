#!/usr/bin/env python3
"""timeline_cost.py [--rounds N] [--steps N] [--data FOLDER] [--dataset NAME] [--pando PROGRAM]

Measures the cost of --timeline in images/s and CPU-seconds: a run with it beside one without, and a second one without,
which shows how far two equal runs differ. The MNIST CNN with 2 workers and 2 servers, and serially: its layers are so
short that it pays most. Every round runs each variant once, and every other round goes backwards. Prints min, p50, p99,
max, and the ratios of the rounds. Images/s need an idle machine; on a busy one look at the CPU-seconds. --data "" is for a
data set that has no folder.
"""
import json
import resource
import statistics
import subprocess
import tempfile

from report import MNIST, PANDO, commit, cpu, heading, in_turns, make_parser, row

OFF, AGAIN, ON = "without", "without, again", "with --timeline"
VARIANTS = [OFF, ON, AGAIN]
MODES = {"2 workers, 2 servers": ["--workers", "2", "--servers", "2"], "serial": ["--serial"]}


def run(command):
    """Returns its standard output, and the CPU-seconds of it and all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(args, mode, name):
    """Returns images/s, and CPU-seconds without those of making the trace at the end."""
    with tempfile.TemporaryDirectory() as folder:
        data = ["--data", args.data] if args.data else []
        timeline = ["--timeline", folder + "/trace.json"] if name == ON else []
        out, seconds = run([
            args.pando, "train", "--model", "mnist-cnn", "--dataset", args.dataset, *data, "--global-batch", "128",
            "--micro-batches", "8", "--steps", str(args.steps), "--optimizer", "adam", "--lr", "0.001", "--set",
            "eval.every_epochs=0", "--run-dir", folder + "/run", "--json", *MODES[mode], *timeline])
        if name == ON:
            seconds -= run([args.pando, "timeline", folder + "/run", "--out", folder + "/again.json"])[1]
        return json.loads(out)["images_per_second"], seconds


def show(unit, figures):
    heading(unit)
    for name, values in figures.items():
        row(name, values)
    for over in (ON, AGAIN):
        row(f"{over} / {OFF}", [a / b for a, b in zip(figures[over], figures[OFF])], digits=4)
        ratio = statistics.median(figures[over]) / statistics.median(figures[OFF])
        print(f"{over} / {OFF}, of the medians: {ratio:.4f}")


def main():
    args = make_parser(__doc__, rounds=9, steps=500, dataset="mnist", data=MNIST, pando=PANDO).parse_args()
    print(f"commit {commit()}, {cpu()}, {args.rounds} rounds interleaved, {args.steps} steps")
    for mode in MODES:
        figures = in_turns(VARIANTS, args.rounds, lambda name, mode=mode: measure(args, mode, name))
        for index, unit in enumerate(("images/s", "CPU-seconds")):
            show(f"{mode}: {unit}", {name: [pair[index] for pair in pairs] for name, pairs in figures.items()})


if __name__ == "__main__":
    main()
