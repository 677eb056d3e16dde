"""After ten faults, the death of two schedulers among them, everything that tells of faults has the same ones.

    tests/e2e/view/faults_test.py PANDO
"""
import json
import re
import sys
from typing import Any, Iterable

from terminal import Terminal
from viewed_run import get, main_with, ViewedRun

CHAOS = ["kill worker 0 at step 100", "kill scheduler at step 200", "kill server 0 at step 300",
         "stop worker 1 50ms at step 400", "kill worker 1 at step 500", "kill scheduler at step 600",
         "kill server 1 at step 700", "kill worker 0 at step 800", "kill worker 1 at step 900",
         "kill worker 0 at step 1000"]
STEPS_AFTER = 1200
FIELDS = {"id", "action", "target", "host", "process_id", "step", "injected_ms", "detected_ms", "detected_by",
          "recovered_ms"}
Faults = dict[int, dict[str, Any]]


def by_id(faults: Iterable[dict[str, Any]]) -> Faults:
    """Returns the faults by id. If a fault comes again, the last one counts."""
    known = {fault["id"]: fault for fault in faults}
    for fault in known.values():
        assert set(fault) == FIELDS, f"other fields: {fault}"
    return known


def faults_of_events(run: ViewedRun) -> Faults:
    events = [json.loads(line) for line in (run.run_dir / "events.jsonl").read_text().splitlines()]
    return by_id(event["details"] for event in events if event["event"] == "fault")


def status_of(run: ViewedRun) -> dict[str, Any]:
    return json.loads(run.command("status", run.run_dir, "--json"))


def page_of(address: str) -> dict[str, Any]:
    """Returns the first event of a page that is opened now: the whole state."""
    stream = get(address, "/api/stream")
    while stream.readline() != b"event: update\n":
        pass
    update = json.loads(stream.readline().removeprefix(b"data: "))
    stream.close()
    return update


def count_of_metrics(address: str) -> float:
    text = get(address, "/metrics").read().decode()
    return float(re.search(r"^pando_faults_total{.*} (\S+)$", text, re.MULTILINE)[1])


def is_noticed(fault: dict[str, Any]) -> bool:
    return fault["detected_ms"] is not None


def are_over(faults: Faults) -> bool:
    """A stop may be too short to be noticed, and a busy machine may have more faults than those of CHAOS."""
    return (sum(fault["injected_ms"] is not None for fault in faults.values()) == len(CHAOS)
            and all(fault["recovered_ms"] is not None for fault in faults.values() if is_noticed(fault)))


def have_same(run: ViewedRun, address: str) -> bool:
    faults, status, page = faults_of_events(run), status_of(run), page_of(address)
    noticed = sum(map(is_noticed, faults.values()))
    return (are_over(faults) and by_id(status["faults"]) == by_id(page["faults"]) == faults
            and status["fault_count"] == (page["status"] or {}).get("fault_count") == len(faults)
            and count_of_metrics(address) == noticed)


def top_has_same(run: ViewedRun, terminal: Terminal) -> bool:
    shown = re.findall(r"^(\d+) +(\w+(?: \d)?) +(\w+) at step (\d+)", terminal.screen.text(), re.M)
    faults = faults_of_events(run).values()
    return terminal.shows(f"FAULTS: {len(faults)}, the newest first") and shown == [
        (str(fault["id"]), fault["target"], fault["action"], str(fault["step"])) for fault in reversed(faults)]


def play(run: ViewedRun) -> None:
    run.start_training("--chaos", "; ".join(CHAOS))
    address = run.start_viewer("viewer", run.run_dir)
    run.wait(lambda: run.steps() >= STEPS_AFTER, "the run makes the steps with faults")
    run.wait(lambda: have_same(run, address), "events, status, page and metrics have the same faults")
    terminal = Terminal([run.pando, "top", run.run_dir], run.folder, rows=40, columns=160)
    try:
        terminal.wait(lambda: top_has_same(run, terminal), "pando top has the same faults")
    finally:
        terminal.kill()
    run.command("stop", run.run_dir)
    run.await_end()
    faults = faults_of_events(run)
    assert list(faults) == list(range(1, len(faults) + 1)), f"ids {list(faults)}"
    summary = json.loads((run.run_dir / "summary.json").read_text())
    assert by_id(summary["faults"]) == faults, f"{summary['faults']} differ from {faults}"
    assert summary["fault_count"] == len(faults), f"{summary['fault_count']} of {len(faults)}"
    later = run.start_viewer("later-viewer", run.run_dir)
    assert by_id(page_of(later)["faults"]) == faults, "a viewer of the ended run has other faults"
    noticed = sum(map(is_noticed, faults.values()))
    assert count_of_metrics(later) == noticed, f"its metrics count {count_of_metrics(later)} of {noticed}"
    print(f"{len(faults)} faults, {noticed} of them noticed, at step {run.steps()}", flush=True)


if __name__ == "__main__":
    sys.exit(main_with(__doc__, play))
