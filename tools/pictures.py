#!/usr/bin/env python3
"""Makes the pictures of README.md: from real runs of a built program, and from the figures in bench/RESULTS.md.

    tools/pictures.py PROGRAM [--out FOLDER] [--data FOLDER] [--only accuracy,page,peers]

accuracy  trains the MNIST CNN without faults and under kill -9, compares all values of the two runs, and draws both
page      takes screenshots of `pando view` beside such a run: light, dark, and on a phone
peers     draws what kills cost Pando and other systems, as recorded in bench/RESULTS.md

MNIST comes from --data, data/mnist or ../shared/data/mnist, else the built-in synthetic-digits take its place.
Needs python3-matplotlib, and Chromium for `page` (tools/setup.sh plots view). The times in `accuracy` are the
machine's: leave it idle, or the picture has none. The two runs must agree in every bit, or there is no picture and
the exit code is 1.
"""
import argparse
import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench/python/pando_bench"), str(ROOT / "tests/e2e/view")]
from chromium import Chromium  # noqa: E402
from page import load_matplotlib  # noqa: E402
from page_test import Watcher  # noqa: E402
from results import BenchError, replace_file  # noqa: E402
from viewed_run import ViewedRun  # noqa: E402

KINDS = ("accuracy", "page", "peers")
WORKERS, SERVERS, EPOCHS = 2, 2, 3
JOB = ["--model", "mnist-cnn", "--optimizer", "adam", "--schedule", "one-cycle", "--workers", str(WORKERS),
       "--servers", str(SERVERS), "--snapshot-every", "100"]
KILLS = {200: "worker", 400: "server", 600: "scheduler", 800: "servers", 1000: "worker", 1200: "all"}  # by step
OTHERS_MAX = 0.08  # the share of the processors that other processes may take beside the two runs
STEPS_LATE = 20  # a kill comes at most so much later
CALM_WIDTH = 7
LABELS = {"servers": "both servers", "all": "all processes"}
EVERY_STEPS = ["--eval-every-steps", "50"]

PAGE_RUN = "runs/mnist-cnn"  # the page shows it
PAGE_EPOCHS, PAGE_STEP = 12, 4000  # the page is taken from this step on
PAGE_CHAOS = "kill worker 1 at step 1300; kill server 0 at step 2600"
PAGE_EVERY_STEPS = ["--eval-every-steps", "200"]
DESKTOP_WIDTH, PHONE = 1080, (390, 844)  # CSS pixels
MARGIN = 6  # CSS pixels, around the part of the page that is shown
PIXELS_PER_CSS_PIXEL = 2
COLOURS_OF_A_PNG = 256

BARS_MAX = 9  # as in the table with the most systems
PEERS_NOTE = """MNIST CNN, 128 samples a worker, two workers,
two cores of an AMD EPYC, one round each.
Left: each system's own engine, one kill of a worker.
Right: PyTorch computes in all; five minutes without
kills, then the same steps with kills of one worker."""

# The colours of view/page/page.css, light and dark. A picture's file has both: the reader's browser chooses.
PAPER, TEXT, MUTED, GRID = "#ffffff", "#18212c", "#556170", "#e8ecf1"
CALM, CHAOS, FAULT, OTHERS = "#f6c79b", "#0b5cad", "#b3261e", "#b5bdc8"
DARK = {PAPER: "#0d1117", TEXT: "#e3e8ef", MUTED: "#9ba8b9", GRID: "#232c37",
        CALM: "#84512a", CHAOS: "#6cb2ff", FAULT: "#ff8a80", OTHERS: "#566273"}
FONTS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
WIDTH_INCHES = 8.6


@dataclass
class Data:
    name: str
    flags: List[str]


@dataclass
class Run:
    """The parts of a run's folder that are drawn and compared. The keys are steps."""

    summary: Dict[str, Any]
    losses: Dict[int, Tuple[str, ...]]  # training: loss and accuracy
    tests: Dict[int, Tuple[str, ...]]  # accuracy and loss
    seconds: Dict[int, float]
    rollbacks: List[int]  # the versions from which the run went on

    def curve(self) -> Tuple[List[int], List[float]]:
        return list(self.tests), [100 * float(accuracy) for accuracy, _ in self.tests.values()]

    def kills(self) -> List[Dict[str, Any]]:
        return [fault for fault in self.summary["faults"] if fault["action"] == "kill"]

    def end(self) -> Tuple[float, int]:
        step = max(self.seconds)
        return self.seconds[step], step


# ---- runs -----------------------------------------------------------------------------------------------------------


def find_data(given: Optional[Path]) -> Data:
    if given and not given.is_dir():
        raise BenchError(f"--data: there is no folder {given}")
    for folder in (given, ROOT / "data/mnist", ROOT.parent / "shared/data/mnist"):
        if folder and folder.is_dir():
            return Data("MNIST", ["--dataset", "mnist", "--data", str(folder.resolve())])
    return Data("synthetic-digits", ["--dataset", "synthetic-digits"])


def processor_seconds() -> Tuple[float, float]:
    """Returns the seconds of all this machine's processes, and of them those of this one's ended children."""
    user, nice, system = (int(ticks) for ticks in Path("/proc/stat").read_text().split()[1:4])
    own = os.times()
    return (user + nice + system) / os.sysconf("SC_CLK_TCK"), own.children_user + own.children_system


def train(program: Path, run_dir: Path, flags: List[str]) -> float:
    """Returns the share of the processors that other processes took."""
    print(f"pando train {shlex.join(flags)}", flush=True)
    begin, (all_before, own_before) = time.monotonic(), processor_seconds()
    done = subprocess.run([program, "train", *flags, "--run-dir", run_dir], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"pando train has exited with {done.returncode}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    seconds, (all_after, own_after) = time.monotonic() - begin, processor_seconds()
    # Both count ticks, so the difference may be a little less than 0.
    others = max(0, all_after - all_before - (own_after - own_before)) / (seconds * (os.cpu_count() or 1))
    print(f"  {seconds:.1f} s; other processes took {100 * others:.0f} % of the processors", flush=True)
    return others


def read_run(run_dir: Path) -> Run:
    run = Run(json.loads((run_dir / "summary.json").read_text()), {}, {}, {}, [])
    with (run_dir / "metrics.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            step, is_test = int(row["step"]), bool(row["test_accuracy"])
            columns = ("test_accuracy", "test_loss") if is_test else ("loss", "accuracy")
            values = tuple(row[name] for name in columns)
            # After a rollback a version may be evaluated again: with the same result.
            known = (run.tests if is_test else run.losses).setdefault(step, values)
            if known != values:
                raise BenchError(f"{run_dir.name}: step {step} has the values {known} and {values}")
            if not is_test:
                run.seconds[step] = float(row["elapsed_seconds"])
    for line in (run_dir / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "rollback":
            run.rollbacks.append(int(re.search(r"from version (\d+)", event["details"]["text"])[1]))
    return run


def check_equal(calm: Run, chaos: Run) -> None:
    """Checks the picture's claim: both runs have equal values."""
    hashes = [run.summary["weights_hash"] for run in (calm, chaos)]
    print(f"weights: {hashes[0]} without faults, {hashes[1]} under kill -9")
    for step, values in calm.tests.items():
        print(f"  step {step}: test accuracy and loss {' '.join(values)}, {' '.join(chaos.tests.get(step, ['none']))}")
    if not hashes[0] or hashes[0] != hashes[1]:
        raise BenchError("the weights differ")
    for what, one, other in (("evaluations", calm.tests, chaos.tests), ("training losses", calm.losses, chaos.losses)):
        different = [step for step in one.keys() | other.keys() if one.get(step) != other.get(step)]
        if different or not one:
            raise BenchError(f"the {what} differ at {len(different)} of {len(one)} steps: {sorted(different)[:10]}")
        print(f"{len(one)} {what} are the same")
    steps = sorted({fault["step"] for fault in chaos.kills()})
    is_planned = len(steps) == len(KILLS) and all(0 <= step - planned < STEPS_LATE
                                                  for step, planned in zip(steps, KILLS))
    if calm.summary["faults"] or not is_planned:
        raise BenchError(f"planned were kills at {list(KILLS)}, there were kills at {steps}")
    if any(fault["recovered_ms"] is None for fault in chaos.kills()):
        raise BenchError("the run has not recovered from a kill")
    print(f"{len(chaos.kills())} processes killed; rollbacks to {chaos.rollbacks}; "
          f"{calm.end()[0]:.1f} s and {chaos.end()[0]:.1f} s")


# ---- drawing --------------------------------------------------------------------------------------------------------


def prepare(pyplot) -> None:
    pyplot.rcParams.update({
        "figure.facecolor": PAPER, "axes.facecolor": PAPER, "text.color": TEXT, "axes.labelcolor": MUTED,
        "axes.edgecolor": GRID, "grid.color": GRID, "xtick.color": MUTED, "ytick.color": MUTED, "font.size": 9.5,
        "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "xtick.major.size": 0,
        "ytick.major.size": 0, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
        "legend.facecolor": PAPER, "legend.edgecolor": PAPER, "legend.fancybox": False})


def save(figure, pyplot, path: Path) -> None:
    """Saves the figure with the colours of both schemes, and the reader's fonts."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={key: None for key in ("Creator", "Date", "Format", "Type")})
    pyplot.close(figure)
    svg = text.getvalue()
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"'DejaVu Sans', 'Bitstream[^;]*sans-serif", FONTS, svg)
    rules = "".join(f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
                    for light, dark in DARK.items() for kind in ("fill", "stroke"))
    svg = svg.replace("</style>", f"@media (prefers-color-scheme: dark){{{rules}}}</style>", 1)
    replace_file(path, re.sub(r"\s*\n\s*", "\n", svg))
    print(f"{path}: {path.stat().st_size // 1000} KB")


def draw_accuracy(axes, calm: Run, chaos: Run, data: Data) -> None:
    axes.set_title(f"Test accuracy of the MNIST CNN on {data.name}, without faults and under kill -9", pad=54)
    axes.annotate(f"Equal in both: the weights ({chaos.summary['weights_hash']}), all {len(chaos.tests)} evaluations, "
                  f"all {len(chaos.losses):,} training losses", (0, 1), (0, 38), xycoords="axes fraction",
                  textcoords="offset points", fontsize=9, color=MUTED)
    axes.plot(*calm.curve(), color=CALM, linewidth=CALM_WIDTH, solid_capstyle="round", label="without faults")
    axes.plot(*chaos.curve(), color=CHAOS, linewidth=1.5, marker="o", markersize=3, label="under kill -9")
    axes.set_xlim(0, chaos.end()[1] + 10)
    axes.set_ylim(90, 100)
    axes.grid(True, axis="y")
    axes.yaxis.set_major_formatter("{x:.0f} %")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("step")
    for step, target in KILLS.items():
        axes.axvline(step, color=FAULT, linewidth=1, linestyle=(0, (3, 3)), zorder=1)
        axes.annotate(LABELS.get(target, target), (step, 1), (0, 12), xycoords=("data", "axes fraction"),
                      textcoords="offset points", ha="center", fontsize=9, color=FAULT)
        axes.plot([step], [1.03], marker="v", markersize=6, color=FAULT, transform=axes.get_xaxis_transform(),
                  clip_on=False)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.03), framealpha=1)


def draw_progress(axes, calm: Run, chaos: Run) -> None:
    """Draws the time that the kills cost."""
    axes.set_title(f"Completed steps: the kills cost {chaos.end()[0] - calm.end()[0]:.1f} s")
    for run, color, width in ((calm, CALM, CALM_WIDTH), (chaos, CHAOS, 1.5)):
        steps = [step for step in run.seconds if step % 5 == 0 or step == run.end()[1]]  # a smaller file
        axes.plot([run.seconds[step] for step in steps], steps, color=color, linewidth=width, solid_capstyle="round")
        axes.annotate(f"{run.end()[0]:.1f} s", run.end(), (0, 7), textcoords="offset points", ha="center", fontsize=9,
                      color=TEXT)
    for fault in chaos.kills():
        axes.plot([fault["injected_ms"] / 1000], [fault["step"] + 60], marker="v", markersize=6, color=FAULT)
    for step, version in zip([step for step, target in KILLS.items() if target in LABELS], chaos.rollbacks):
        second = max(fault["injected_ms"] / 1000 for fault in chaos.kills() if abs(fault["step"] - step) < STEPS_LATE)
        axes.annotate(f"back to step {version:,}", (second, step), (14, -16),
                      textcoords="offset points", fontsize=9, color=MUTED)
    axes.set_xlim(0, chaos.end()[0] * 1.04)
    axes.set_ylim(0, chaos.end()[1] * 1.15)
    axes.grid(True, axis="y")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("seconds since the run began")


def make_accuracy(program: Path, data: Data, out: Path) -> None:
    pyplot = load_matplotlib()
    job = [*JOB, *data.flags, "--epochs", str(EPOCHS), *EVERY_STEPS]
    chaos_text = "; ".join(f"kill {target} at step {step}" for step, target in KILLS.items())
    with tempfile.TemporaryDirectory(prefix="pando-pictures-") as name:
        folder = Path(name)
        others = [train(program, folder / "calm", job),
                  train(program, folder / "chaos", [*job, "--chaos", chaos_text])]
        calm, chaos = read_run(folder / "calm"), read_run(folder / "chaos")
    check_equal(calm, chaos)
    prepare(pyplot)
    has_times = max(others) <= OTHERS_MAX
    if has_times:
        figure, (axes, below) = pyplot.subplots(2, figsize=(WIDTH_INCHES, 5.8), height_ratios=(5, 3))
        draw_progress(below, calm, chaos)
    else:
        print("the picture has no times: other processes were busy")
        figure, axes = pyplot.subplots(figsize=(WIDTH_INCHES, 3.7))
    draw_accuracy(axes, calm, chaos, data)
    figure.tight_layout(h_pad=1.5)
    save(figure, pyplot, out / "accuracy-under-chaos.svg")


# ---- other systems --------------------------------------------------------------------------------------------------


def read_table(text: str, column: str) -> List[Tuple[str, str]]:
    """Returns the names and one column of the table in bench/RESULTS.md that has the column."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
            for line in text.splitlines()]
    starts = [i for i, cells in enumerate(rows) if column in cells]
    if len(starts) != 1:
        raise BenchError(f"bench/RESULTS.md has {len(starts)} tables with the column '{column}', expected 1")
    at = rows[starts[0]].index(column)
    found = []
    for cells in rows[starts[0] + 2:]:
        if not cells:
            return found
        found.append((cells[0].replace("`", "").replace("the same with", "DDP with"), cells[at]))
    return found


def draw_bars(axes, rows: List[Tuple[str, str]], unit: str) -> None:
    """Draws Pando's bar first. A value is a number or, for several runs, 'LOWEST to HIGHEST'."""
    bars = [(not name.startswith("Pando"), [float(each) for each in text.split(" to ")], name, text)
            for name, text in rows]
    bars.sort(key=lambda bar: (bar[0], bar[1][-1]))
    for i, (is_other, ends, _, text) in enumerate(bars):
        color = OTHERS if is_other else CHAOS
        axes.barh(i, ends[0], height=0.64, color=color)
        axes.barh(i, ends[-1] - ends[0], left=ends[0], height=0.22, color=color)
        axes.annotate(f"{text}{unit}", (ends[-1], i), (5, 0), textcoords="offset points", va="center", fontsize=9,
                      color=TEXT)
    axes.set_yticks(range(len(bars)), [name for _, _, name, _ in bars])
    axes.tick_params("y", colors=TEXT, labelsize=9.5)
    axes.set_ylim(BARS_MAX - 0.5, -0.5)
    axes.set_xticks([])
    axes.spines[["bottom", "left"]].set_visible(False)


def make_peers(out: Path) -> None:
    pyplot = load_matplotlib()
    text = (ROOT / "bench/RESULTS.md").read_text()
    prepare(pyplot)
    figure = pyplot.figure(figsize=(WIDTH_INCHES, 3.3))
    left, right = figure.add_axes((0.265, 0.02, 0.155, 0.84)), figure.add_axes((0.755, 0.02, 0.17, 0.84))
    many_kills = read_table(text, "total time with kills ÷ without")
    draw_bars(left, read_table(text, "s lost to a killed worker"), " s")
    draw_bars(right, many_kills, " ×")
    right.plot([1, 1], [-0.5, len(many_kills) - 0.4], color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
    right.text(1, len(many_kills) - 0.3, "1: without kills", fontsize=9, color=MUTED, ha="center", va="top")
    figure.text(0.01, 0.93, "Seconds lost to one killed worker", weight="bold", fontsize=11)
    figure.text(0.545, 0.93, "Total time under a kill every 20 s", weight="bold", fontsize=11)
    figure.text(0.545, 0.05, PEERS_NOTE, fontsize=9, color=MUTED, linespacing=1.5)
    save(figure, pyplot, out / "kills-mnist-cnn.svg")


# ---- the page -------------------------------------------------------------------------------------------------------


def take(watcher: Watcher, scheme: str, size: Tuple[int, int], top: str, path: Path) -> None:
    """Takes a picture of the viewport, in few colours. `top`: the place to which the reader has scrolled."""
    from PIL import Image  # comes with matplotlib
    page = watcher.page
    page.set_color_scheme(scheme)
    page.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], mobile=size == PHONE,
              deviceScaleFactor=PIXELS_PER_CSS_PIXEL)
    page.await_frames()
    place = f"scrollTo(0, document.querySelector('{top}').getBoundingClientRect().top + scrollY - {MARGIN})"
    page.evaluate(place)
    watcher.go_on()  # the page draws with its next update
    page.evaluate(place)
    page.take_screenshot(path)
    picture = Image.open(path).convert("RGB")
    few = picture.quantize(COLOURS_OF_A_PNG, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size // 1000} KB, at step {watcher.step()}", flush=True)


def watch(run: ViewedRun, browser: Chromium, data: Data, out: Path) -> None:
    run.run_dir = run.folder / PAGE_RUN
    run.run_dir.parent.mkdir()
    run.start("train", "train", *JOB, *data.flags, "--epochs", PAGE_EPOCHS, *PAGE_EVERY_STEPS, "--chaos", PAGE_CHAOS,
              "--run-dir", PAGE_RUN)
    run.wait(lambda: run.steps() > 0, "the run makes its first step")
    watcher = Watcher(run, browser.open(run.start_viewer("viewer", Path(PAGE_RUN))))
    watcher.page.call("Emulation.setScrollbarsHidden", hidden=True)
    for node in ("worker 1", "server 0"):
        watcher.wait(lambda: watcher.has_recovered(node), f"{node} is a fault with its recovery time")
    watcher.wait(lambda: watcher.step() >= PAGE_STEP, f"the page shows step {PAGE_STEP}")
    watcher.page.set_viewport(DESKTOP_WIDTH, DESKTOP_WIDTH)
    watcher.page.await_frames()
    height = watcher.page.evaluate("Math.ceil(document.querySelector('.charts').getBoundingClientRect().bottom)")
    for scheme, suffix in (("light", ""), ("dark", "-dark")):
        take(watcher, scheme, (DESKTOP_WIDTH, height + MARGIN), "body", out / f"page{suffix}.png")
        take(watcher, scheme, PHONE, "#strips-card", out / f"page-phone{suffix}.png")
    assert not watcher.page.errors, f"the page's console has errors: {watcher.page.errors}"


def make_page(program: Path, data: Data, out: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="pando-pictures-", ignore_cleanup_errors=True) as name:
        run = ViewedRun(str(program), Path(name))
        try:
            with Chromium(run.folder / "browser") as browser:
                watch(run, browser, data, out)
        finally:
            run.kill_all()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path, metavar="PROGRAM", help="pando, as built")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", metavar="FOLDER", help="[docs]")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of MNIST's files")
    parser.add_argument("--only", default=",".join(KINDS), metavar="KINDS", help="[%(default)s]")
    options = parser.parse_args()
    only = options.only.split(",")
    if unknown := set(only) - set(KINDS):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; expected some of {', '.join(KINDS)}")
    program = options.program.resolve()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        data = find_data(options.data)
        if "peers" in only:
            make_peers(options.out)
        if "accuracy" in only:
            make_accuracy(program, data, options.out)
        if "page" in only:
            make_page(program, data, options.out)
    except (BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
