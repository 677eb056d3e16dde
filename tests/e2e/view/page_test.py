"""Drives the page of `pando view` in a headless Chromium beside a real run with faults (docs/testing.md).

    tests/e2e/view/page_test.py PANDO [--screenshots FOLDER]

A server and the scheduler are killed, a worker is drained, and the page stops the run. Then it opens the ended run
again, beside one of 100,000 steps. FOLDER gets pictures of the page: light, dark and on a phone. Exit code 77: there
is no Chromium.
"""
import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Optional, Union

from chromium import Chromium, Page, find_chromium
from viewed_run import end_children_on_signals, get, ViewedRun

SKIPPED = 77
SERVER_KILLED_AT, SCHEDULER_KILLED_AT = 400, 1000  # steps
CHAOS = f"kill server 0 at step {SERVER_KILLED_AT}; kill scheduler at step {SCHEDULER_KILLED_AT}"
STEPS_BETWEEN = 50
NODES = {"worker 0", "worker 1", "server 0", "server 1"}
CHARTS = ["loss", "accuracy", "lr", "speed"]
LONG_RUN_STEPS = 100_000
LONG_RUN_EVALUATED_EVERY = 1000
POINTS_MIN, POINTS_MAX = 500, 4000  # of the long run's curves: the page thins its rows
RECEIVED_BYTES_MAX = 5_000_000
UPDATES_MEASURED, UPDATES_PER_S_MAX, BYTES_PER_S_MAX = 20, 2, 2048
# A bound against hanging. The aim is 1 s; this test does not measure on a quiet machine.
FIRST_PAINT_MS_MAX = 10_000
DESKTOP, PHONE = (1280, 900), (390, 844)  # CSS pixels

STATE = "document.getElementById('connection')?.dataset.state"
STEP = r"Number(document.getElementById('step').textContent.match(/step ([\d,]+)/)?.[1].replaceAll(',', ''))"
HEIGHT = "Math.ceil(document.documentElement.scrollHeight)"
NODES_SHOWN = "[...document.querySelectorAll('#cluster tr[data-node]')].map(row => row.dataset.node)"
STRIPS_SHOWN = "[...document.querySelectorAll('#strips [data-strip]')].map(strip => strip.dataset.strip)"
FAULTS_SHOWN = """[...document.querySelectorAll('#faults [data-fault]')].map(
    fault => [fault.dataset.fault + ' ' + fault.textContent, Number(fault.dataset.recoveredMs)])"""
FIRST_PAINT_MS = """performance.getEntriesByType('paint').filter(
    entry => entry.name == 'first-contentful-paint').map(entry => entry.startTime)[0]"""
LONGEST_TASK_MS = """new Promise(done => {
  new PerformanceObserver(list => done(Math.max(...list.getEntries().map(task => task.duration))))
      .observe({type: 'longtask', buffered: true});
  setTimeout(() => done(0), 1000);  // without long tasks the observer is never called
})"""


class Watcher:
    """A page that shows a run, and what a reader sees on it."""

    def __init__(self, run: ViewedRun, page: Page):
        self.run, self.page = run, page

    def wait(self, is_done: Union[str, Callable[[], Any]], what: str) -> None:
        """Until an expression of the page or a function's result is true."""
        try:
            self.run.wait(lambda: self.page.evaluate(is_done) if isinstance(is_done, str) else is_done(), what)
        except AssertionError as error:
            raise AssertionError(f"{error}\nthe page has {self.describe()}") from error

    def describe(self) -> str:
        text = self.page.evaluate("document.body.innerText")
        return f"the errors {self.page.errors} and the text\n{text[:4000]}"

    def step(self) -> int:
        return self.page.evaluate(STEP) or 0

    def points(self) -> list[int]:
        """Returns the points of each chart; 0: it has none, or it is missing."""
        ids = json.dumps([f"chart-{name}" for name in CHARTS])
        return self.page.evaluate(f"{ids}.map(id => Number(document.getElementById(id)?.dataset.points || 0))")

    def figures(self) -> list[float]:
        """The newest values of the charts; 0: a chart has none."""
        texts = self.page.evaluate("[...document.querySelectorAll('.chart .readout b')].map(each => each.textContent)")
        return [float(re.sub(r"[^0-9.e+-]", "", text) or 0) for text in texts]

    def has_recovered(self, node: str) -> bool:
        return any(node in text and recovered_ms and recovered_ms > 0
                   for text, recovered_ms in self.page.evaluate(FAULTS_SHOWN))

    def is_live(self) -> bool:
        return self.page.evaluate(STATE) == "live"

    def go_on(self) -> None:
        """The run makes steps, and the page shows them."""
        step = self.step() + STEPS_BETWEEN
        self.wait(lambda: self.is_live() and self.step() >= step, f"the page is live and shows step {step}")

    def click(self, selector: str) -> None:
        self.wait(f"document.querySelector({selector!r})?.checkVisibility()", f"{selector} is visible")
        self.page.evaluate(f"document.querySelector({selector!r}).click()")

    def select(self, name: str) -> None:
        """The tab of a run, of several."""
        tab = f"[...document.querySelectorAll('#run-tabs button')].find(tab => tab.textContent.trim() == {name!r})"
        self.wait(f"{tab} != undefined", f"the run {name} has a tab")
        self.page.evaluate(f"{tab}.click()")

    def check_phone(self) -> None:
        self.page.set_viewport(*PHONE, is_phone=True)
        self.page.await_frames()
        width = self.page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE[0], f"on a phone of {PHONE[0]} pixels the page has a width of {width}"
        self.page.set_viewport(*DESKTOP)

    def check_costs(self, what: str) -> None:
        assert not self.page.errors, f"the console of {what} has errors:\n" + "\n".join(self.page.errors)
        self.wait(f"{FIRST_PAINT_MS} > 0", "the page is painted")
        first_paint_ms = self.page.evaluate(FIRST_PAINT_MS)
        longest_task_ms = self.page.evaluate(LONGEST_TASK_MS)
        print(f"{what}: first paint after {first_paint_ms:.0f} ms, {self.page.received_bytes} bytes received, "
              f"longest task {longest_task_ms:.0f} ms, points {self.points()}", flush=True)
        assert first_paint_ms <= FIRST_PAINT_MS_MAX, f"first paint after {first_paint_ms} ms"
        assert 0 < self.page.received_bytes <= RECEIVED_BYTES_MAX, f"{self.page.received_bytes} bytes received"

    def take_screenshots(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, scheme, viewport in (("light", "light", DESKTOP), ("dark", "dark", DESKTOP),
                                       ("phone", "light", PHONE)):
            self.page.set_color_scheme(scheme)
            self.page.set_viewport(*viewport, is_phone=viewport == PHONE)
            self.go_on()  # the page draws with its next update
            self.page.take_screenshot(folder / f"page-{name}.png")
            # The page draws no chart outside the viewport.
            self.page.set_viewport(viewport[0], self.page.evaluate(HEIGHT), is_phone=viewport == PHONE)
            self.go_on()
            self.page.take_screenshot(folder / f"page-{name}-whole.png")
        self.page.set_color_scheme("light")
        self.page.set_viewport(*DESKTOP)


def watch_start(watcher: Watcher) -> None:
    watcher.wait(lambda: watcher.is_live() and watcher.step() > 0, "the page is live and shows a step")
    step = watcher.step()
    assert step < SCHEDULER_KILLED_AT, f"the page was opened at step {step}, after the faults: let them come later"
    address = watcher.page.evaluate("location.href")
    assert "token" not in address, f"the token stays in the address: {address}"
    watcher.page.navigate(address)  # the tab keeps it
    watcher.wait(watcher.is_live, "the page is live after it is loaded again")
    watcher.wait(lambda: set(watcher.page.evaluate(NODES_SHOWN)) >= NODES, "the cluster has all processes")
    watcher.wait(lambda: set(watcher.page.evaluate(STRIPS_SHOWN)) >= NODES, "each process has a strip")
    watcher.wait(lambda: min(watcher.points()) > 0, "each chart has points")
    watcher.wait(lambda: min(watcher.figures(), default=0) > 0, "the figures are not zero")
    first = watcher.points()
    watcher.wait(lambda: all(now > before for now, before in zip(watcher.points(), first)), "the curves grow")


def watch_faults(watcher: Watcher) -> None:
    for node in ("server 0", "scheduler"):
        watcher.wait(lambda: watcher.has_recovered(node), f"{node} is a fault with its recovery time")
        watcher.go_on()
        print(f"step {watcher.step()}: {node} was killed and has recovered", flush=True)
    watcher.wait(lambda: set(watcher.page.evaluate(NODES_SHOWN)) >= NODES, "all processes are in the cluster again")
    faults = watcher.page.evaluate(FAULTS_SHOWN)
    assert len(faults) == 2, f"expected the two faults: {faults}"


def check_traffic(address: str) -> None:
    """After the first update, which is the whole state, a reader gets only what has changed."""
    stream = get(address, "/api/stream")
    update_count, byte_count, began = 0, 0, 0.0
    while update_count <= UPDATES_MEASURED:
        line = stream.readline()
        assert line, "the stream has ended"
        is_update = line == b"event: update\n"
        if is_update and update_count == 1:
            byte_count, began = 0, time.monotonic()
        update_count += is_update
        byte_count += len(line)
    elapsed_s = time.monotonic() - began
    stream.close()
    rate = byte_count / elapsed_s
    print(f"{UPDATES_MEASURED} updates in {elapsed_s:.1f} s, {rate:.0f} bytes/s", flush=True)
    assert UPDATES_MEASURED - 1 <= elapsed_s * UPDATES_PER_S_MAX, f"{UPDATES_MEASURED} updates in {elapsed_s:.2f} s"
    assert rate <= BYTES_PER_S_MAX, f"{rate:.0f} bytes/s"


def watch_orders(watcher: Watcher) -> None:
    watcher.run.command("drain", watcher.run.run_dir, "worker-1")
    watcher.wait(lambda: "worker 1" not in watcher.page.evaluate(NODES_SHOWN), "the drained worker leaves")
    watcher.go_on()
    print(f"step {watcher.step()}: worker 1 is drained", flush=True)
    log = (watcher.run.run_dir / "logs/worker-0.log").read_text(errors="replace").splitlines()[0]
    watcher.click("[data-log=worker-0]")
    watcher.wait(lambda: log in watcher.page.evaluate("document.getElementById('log').textContent"),
                 "the log of worker 0 is shown")
    watcher.page.evaluate("document.getElementById('log-dialog').close()")
    watcher.click("#snapshot")
    watcher.wait("document.getElementById('notice').dataset.state == 'good'", "the page stores a snapshot")
    watcher.wait("document.querySelector('#evaluations td') != null", "the evaluations are shown")
    watcher.wait("document.getElementById('job').textContent.includes('global_batch')", "the job is shown")


def watch_end(watcher: Watcher) -> None:
    watcher.run.may_end.add("train")
    watcher.click("#stop")
    watcher.click("#confirm-yes")
    watcher.run.await_end()
    watcher.wait(f"{STATE} == 'ended'", "the page shows the end")
    watcher.wait("document.querySelector('#confusion td') != null", "the confusion matrix is shown")


def read_summary(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "summary.json").read_text())


def make_long_run(run_dir: Path, long_dir: Path) -> None:
    """A copy of an ended run, with the metrics of 100,000 steps."""
    shutil.copytree(run_dir, long_dir, ignore=shutil.ignore_patterns("snapshots", "*.safetensors", "*.db*"))
    summary = read_summary(run_dir)
    (long_dir / "summary.json").write_text(json.dumps(summary | {"steps": LONG_RUN_STEPS}))
    header = (run_dir / "metrics.csv").read_text().split("\n")[0]
    with (long_dir / "metrics.csv").open("w") as rows:
        rows.write(header + "\n")
        for step in range(1, LONG_RUN_STEPS + 1):
            epoch, elapsed_s, accuracy = step / 15, step / 200, step / (step + 1000)
            rows.write(f"{step},{epoch:.6g},{2.3 / (1 + step / 500):.6g},{accuracy:.6g},0.001,{25000 + step % 997}.25,"
                       f"25600.5,{elapsed_s:.3f},5.125,0.010,0.250,0.0,0.0,,\n")
            if step % LONG_RUN_EVALUATED_EVERY == 0:
                rows.write(f"{step},{epoch:.6g},,,,,,{elapsed_s:.3f},,,,,,{accuracy:.6g},0.25\n")


def view_ended_runs(run: ViewedRun, browser: Chromium) -> None:
    """Two in one page: a long one and the one that was stopped."""
    steps = read_summary(run.run_dir)["steps"]
    long_dir = run.folder / "long"
    make_long_run(run.run_dir, long_dir)
    watcher = Watcher(run, browser.open(run.start_viewer("long-viewer", long_dir, run.run_dir)))
    watcher.wait(f"{STATE} == 'ended'", "the page shows the end")
    watcher.select(long_dir.name)
    watcher.wait(lambda: watcher.step() == LONG_RUN_STEPS, f"the tab shows step {LONG_RUN_STEPS}")
    watcher.wait(lambda: min(watcher.points()) > 0, "each chart has points")
    points = watcher.points()[0]
    assert POINTS_MIN <= points <= POINTS_MAX, f"{points} points for {LONG_RUN_STEPS} steps"
    watcher.check_costs(f"{LONG_RUN_STEPS} steps")
    watcher.select(run.run_dir.name)
    watcher.wait(lambda: watcher.step() == steps, f"the second run's tab shows step {steps}")
    assert not watcher.page.errors, f"the console has errors: {watcher.page.errors}"


def play(run: ViewedRun, browser: Chromium, screenshots: Optional[Path]) -> None:
    run.start_training("--chaos", CHAOS)
    address = run.start_viewer("viewer", run.run_dir)
    watcher = Watcher(run, browser.open(address))
    watch_start(watcher)
    watch_faults(watcher)
    check_traffic(address)
    watcher.check_phone()
    if screenshots:
        watcher.take_screenshots(screenshots)
    watch_orders(watcher)
    watch_end(watcher)
    watcher.check_costs("a run with faults")
    view_ended_runs(run, browser)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pando", type=os.path.abspath)
    parser.add_argument("--screenshots", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    end_children_on_signals()
    if find_chromium() is None:
        print("SKIPPED: there is no Chromium: tools/setup.sh view installs it", file=sys.stderr)
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="pando-test-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        run = ViewedRun(options.pando, folder)
        try:
            with Chromium(folder / "browser") as browser:
                play(run, browser, options.screenshots)
        finally:
            run.kill_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
