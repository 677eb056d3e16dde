#!/usr/bin/env python3
"""plan_plots.py [--out FOLDER] [--model NAME] [--bandwidth RATE] [--step-ms X] [--rack-size N] [--pando PROGRAM]

Draws what `pando plan` predicts with its costs: weak-scaling.svg, the efficiency of 1 to 1,024 workers with servers on
separate hosts, on the workers' hosts, and with both kinds of allreduce; and goodput.svg, the share of time that
failures leave, over the failures of one machine in a year. Two replicas, as many servers as workers, and racks that sum
gradients where there are more than 128 hosts. Needs matplotlib.
"""
import json
import subprocess
import sys
from pathlib import Path

from report import PANDO, commit, make_parser

sys.path.insert(0, str(Path(__file__).resolve().parent / "pando_bench"))
from page import COLOURS, load_matplotlib  # noqa: E402

WORKERS = [2**i for i in range(11)]
FAILURES_A_YEAR = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
HOURS_A_YEAR = 365 * 24
FAILING_WORKERS = 256
NAMES = {"ps-own-hosts": "servers on separate hosts", "ps-worker-hosts": "servers on the workers' hosts",
         "allreduce": "ring allreduce", "allreduce-halving-doubling": "halving-doubling allreduce"}


def plan(args, workers, more=()):
    """Returns the predictions by strategy."""
    done = subprocess.run([
        args.pando, "plan", "--model", args.model, "--workers", str(workers), "--servers", str(workers), "--bandwidth",
        args.bandwidth, "--step-ms", str(args.step_ms), "--send-order", "forward", "--rack-size", str(args.rack_size),
        "--json", *more],
        check=True, capture_output=True, text=True)
    return {p["strategy"]: p for p in json.loads(done.stdout)["predictions"]}


def draw(pyplot, path, title, x_label, y_label, xs, plans, key):
    """Draws one line per strategy: `plans` has the predictions at each x."""
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for colour, (strategy, name) in zip(COLOURS, NAMES.items()):
        axes.plot(xs, [100 * predictions[strategy][key] for predictions in plans], color=colour, marker=".", label=name)
    axes.set(title=title, xlabel=x_label, ylabel=y_label, xscale="log")
    axes.set_xticks(xs, [f"{x:g}" for x in xs])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    print(path)


def main():
    args = make_parser(__doc__, out=".", model="resnet50", bandwidth="100Gbit", step_ms=85.0, rack_size=16,
                       pando=PANDO).parse_args()
    pyplot = load_matplotlib()
    about = f"{args.model}, {args.bandwidth}, {args.step_ms:g} ms, commit {commit()}"
    draw(pyplot, Path(args.out) / "weak-scaling.svg", about, "workers", "efficiency, %", WORKERS,
         [plan(args, workers) for workers in WORKERS], "efficiency")
    title = f"{FAILING_WORKERS} workers, {about}"
    draw(pyplot, Path(args.out) / "goodput.svg", title, "failures of one machine in a year",
         "goodput, %", FAILURES_A_YEAR,
         [plan(args, FAILING_WORKERS, ["--mtbf-hours", str(HOURS_A_YEAR / failures)]) for failures in FAILURES_A_YEAR],
         "goodput")


if __name__ == "__main__":
    main()
