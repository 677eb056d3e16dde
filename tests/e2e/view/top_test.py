"""Uses `pando top` on a terminal beside a real run (docs/testing.md): what it shows, its keys, other sizes, and how it
leaves the terminal.

    tests/e2e/view/top_test.py PANDO
"""
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from terminal import ALTERNATE_SCREEN, pids_of_session, Terminal
from viewed_run import DEADLINE_S, main_with, ViewedRun

NODES = ["worker 0", "worker 1", "server 0", "server 1"]
KEYS_LINE = "arrows choose   d drain   s snapshot   q quit"
UP, DOWN, INTERRUPT, QUIT, SUSPEND, HOLD_OUTPUT = b"\x1bOA", b"\x1bOB", b"\x03", b"\x1c", b"\x1a", b"\x13"
SIZES = [(12, 60), (40, 140), (8, 48), (24, 100)]  # lines, columns
TOO_SMALL = [(7, 100), (24, 47), (1, 1)]
TERMINALS = ["xterm", "xterm-256color", "linux", "screen", "vt100"]  # what Debian's ncurses-base knows
STEP = re.compile(r"^mlp on synthetic-digits: (\w+), step (\d+) of", re.M)
EXIT_COMPLETED, EXIT_BAD_INPUT, EXIT_UNREACHED = 0, 2, 3
WRITES_TO_TERMINAL = ["1", "0x1"]  # in /proc/PID/syscall of x86-64: write, to the standard output
# A shell with jobs: the program is stopped, and comes back with a line from the user.
JOB_SHELL = 'set -m; "$@"; echo "left by $?"; read line; fg; echo "ended by $?"'


class Watch:
    """`pando top` and what a user does with it."""

    def __init__(self, run: ViewedRun):
        self.run = run
        self.terminals: list[Terminal] = []

    def open(self, *words: Any, **how: Any) -> Terminal:
        """A terminal with `pando top` on the run."""
        terminal = Terminal([*words, self.run.pando, "top", self.run.run_dir], self.run.folder, **how)
        self.terminals.append(terminal)
        return terminal

    def open_whole(self, *words: Any, **how: Any) -> Terminal:
        """And it shows all processes."""
        terminal = self.open(*words, **how)
        terminal.wait(lambda: terminal.shows(*NODES) and step_on(terminal) > 0 and is_whole(terminal),
                      "all processes and a step are shown")
        return terminal


def check(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(text)


def step_on(terminal: Terminal) -> int:
    found = STEP.search(terminal.screen.text())
    return int(found[2]) if found else 0


def await_steps(terminal: Terminal) -> None:
    step = step_on(terminal)
    terminal.wait(lambda: step_on(terminal) > step, f"a step after {step} is shown")


def is_whole(terminal: Terminal) -> bool:
    """The screen has everything in its place, and the last line is the keys'."""
    lines = terminal.screen.lines()
    first = next((i for i, line in enumerate(lines) if line.startswith("NODE ")), len(lines))
    count = min(len(NODES), len(lines) - first - 3)  # below them the notice and the keys
    shown = [line[:8] for line in lines[first + 1:first + 1 + count]]
    return (lines[0].startswith("pando top ") and lines[-1] == KEYS_LINE[:terminal.screen.columns] and count > 0
            and len(set(shown) & set(NODES)) == count)


def check_end(terminal: Terminal, expected: int, what: str) -> None:
    code = terminal.await_end()
    check(code == expected, f"{what} ends pando top with {code}, expected {expected}; {terminal.describe()}")
    check(terminal.is_restored(), f"{what} leaves the terminal changed: {terminal.screen.modes}, {terminal.describe()}")


def watch_screen(watch: Watch) -> None:
    """Everything is shown, steps go on, and q ends it."""
    for kind in TERMINALS:
        terminal = watch.open_whole(variables={"TERM": kind})
        check(terminal.shows("loss ", "images/s", KEYS_LINE, str(watch.run.run_dir)), terminal.describe())
        if kind.startswith("xterm"):
            check(ALTERNATE_SCREEN in terminal.screen.modes, "the shell's lines are overwritten")
        await_steps(terminal)
        terminal.wait(lambda: "steps/s" in terminal.screen.text(), "the rate is shown")
        terminal.press(b"q")
        check_end(terminal, EXIT_COMPLETED, "q")


def watch_sizes(watch: Watch) -> None:
    terminal = watch.open_whole()
    for size in SIZES + TOO_SMALL + SIZES:
        terminal.set_size(*size)
        if size in TOO_SMALL:
            said = f"this terminal has {size[0]} lines of {size[1]} columns"[:size[1]]
            terminal.wait(lambda: terminal.screen.lines()[0].startswith(said), f"{size} is said to be too small")
            check(not any(terminal.screen.lines()[1:]), f"there is more than that; {terminal.describe()}")
        else:
            terminal.wait(lambda: is_whole(terminal), f"the screen is drawn for {size}")
            await_steps(terminal)
            terminal.wait(lambda: is_whole(terminal), f"the screen for {size} is whole after more steps")
    terminal.press(b"q")
    check_end(terminal, EXIT_COMPLETED, "q after other sizes")


def watch_signals(watch: Watch) -> None:
    for what, keys, expected in (("Ctrl-C", INTERRUPT, EXIT_COMPLETED), ("Ctrl-\\", QUIT, -signal.SIGQUIT)):
        terminal = watch.open_whole()
        terminal.press(keys)
        check_end(terminal, expected, what)
    terminal = watch.open_whole()
    terminal.process.terminate()
    check_end(terminal, EXIT_COMPLETED, "SIGTERM")
    terminal = watch.open_whole()
    terminal.close()
    code = terminal.process.wait(DEADLINE_S)
    check(code == EXIT_COMPLETED, f"pando top ends with {code} when its window is closed")
    for is_drawing in (False, True):
        watch_suspension(watch, is_drawing)


def hold_drawing(terminal: Terminal) -> None:
    """The terminal takes no more output, and `pando top` waits in the middle of a drawing."""
    session = terminal.process.pid
    top = next(pid for pid in pids_of_session(session) if pid != session)
    terminal.press(HOLD_OUTPUT)
    terminal.wait(lambda: Path(f"/proc/{top}/syscall").read_text().split()[:2] == WRITES_TO_TERMINAL,
                  "it waits for the terminal")


def watch_suspension(watch: Watch, is_drawing: bool) -> None:
    terminal = watch.open_whole("sh", "-c", JOB_SHELL, "sh")
    if is_drawing:
        hold_drawing(terminal)  # until the next key
    terminal.press(SUSPEND)
    terminal.wait(lambda: "left by" in terminal.screen.text(), "Ctrl-Z leaves the terminal to the shell")
    check(terminal.is_restored(), f"Ctrl-Z leaves the terminal changed; {terminal.describe()}")
    step = step_on(terminal)
    terminal.press(b"\n")
    terminal.wait(lambda: is_whole(terminal) and step_on(terminal) > step, "it is back in the foreground")
    terminal.press(b"q")
    terminal.wait(lambda: f"ended by {EXIT_COMPLETED}" in terminal.screen.text(), "q ends it after Ctrl-Z")
    check_end(terminal, EXIT_COMPLETED, "the shell")


def watch_orders(watch: Watch) -> None:
    """Arrows choose a process, s makes a snapshot, and d drains what is chosen, after a question."""
    terminal = watch.open_whole()
    lines = terminal.screen.lines()
    first = next(i for i, line in enumerate(lines) if line.startswith("NODE ")) + 1
    order = [line[:8] for line in lines[first:first + len(NODES)]]
    for key, names in ((DOWN, order[1:] + order[-1:]), (UP, order[-2::-1] + order[:1])):
        for name in names:
            terminal.press(key)
            terminal.wait(lambda: terminal.screen.bar().startswith(name), f"{name} is chosen")
    terminal.press(b"s")
    await_snapshot(terminal)
    while not terminal.screen.bar().startswith("worker 1"):
        before = terminal.screen.bar()[:8]
        terminal.press(DOWN)
        terminal.wait(lambda: terminal.screen.bar()[:8] not in ("", before), f"the choice moves from {before}")
    for answer in (b"n", b"y"):
        terminal.press(b"d")
        terminal.wait(lambda: terminal.shows("drain worker 1? y or n"), "a question comes before a drain")
        terminal.press(answer)
        terminal.wait(lambda: not terminal.shows("y or n"), "the question is answered")
        await_steps(terminal)
        if answer == b"n":
            check(terminal.shows(*NODES) and "drained" not in events_of(watch.run), "n has drained a worker")
    terminal.wait(lambda: terminal.shows("worker 1 has left (done)"), "the worker leaves")
    terminal.wait(lambda: not any(line.startswith("worker 1 ") and "has left" not in line
                                  for line in terminal.screen.lines()), "its line is gone")
    check("drained" in events_of(watch.run), "no event says that the worker was drained")
    await_steps(terminal)
    terminal.press(b"q")
    check_end(terminal, EXIT_COMPLETED, "q after orders")


def await_snapshot(terminal: Terminal) -> None:
    done = re.compile(r"^snapshot: version \d+ \(done\)$", re.M)
    terminal.wait(lambda: done.search(terminal.screen.text()), "a snapshot is stored")


def events_of(run: ViewedRun) -> str:
    return (run.run_dir / "events.jsonl").read_text()


def check_error(terminal: Terminal, part: str, what: str) -> None:
    check_end(terminal, EXIT_BAD_INPUT, what)
    said = terminal.screen.text().replace("\n", "").strip()  # an error is wrapped by the terminal
    check(said.startswith("pando: ") and part in said and said.count("pando: ") == 1, f"{what}: {said!r}")


def watch_errors(watch: Watch) -> None:
    """Terminals that pando top cannot use: one clear error each."""
    for variables in ({}, {"TERM": "dumb"}, {"TERM": "no-such-terminal"}):
        check_error(watch.open(variables=variables), "set TERM, to xterm for example", f"a terminal of {variables}")
    for rows, columns in TOO_SMALL[:2]:
        check_error(watch.open(rows=rows, columns=columns), f"this terminal has {rows} lines of {columns} columns",
                    "a small terminal")
    check_error(watch.open("sh", "-c", '"$@" >/dev/null', "sh"), "top draws on a terminal", "a file as output")
    check_error(watch.open("sh", "-c", '"$@" </dev/null', "sh"), "top draws on a terminal", "a file as input")
    done = subprocess.run([watch.run.pando, "top", watch.run.run_dir], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False, timeout=DEADLINE_S)
    check(done.returncode == EXIT_BAD_INPUT and done.stdout == "" and done.stderr.count("\n") == 1
          and "pando status" in done.stderr, f"without a terminal: {done}")


def watch_silence_and_end(watch: Watch) -> None:
    """A scheduler that is silent, one that comes back, and one that has ended its run. Worker 1 has left."""
    terminal = watch.open()
    terminal.wait(lambda: terminal.shows("worker 0") and step_on(terminal) > 0, "a process and a step are shown")
    scheduler = scheduler_of(watch.run)
    os.kill(scheduler, signal.SIGSTOP)
    try:
        terminal.wait(lambda: terminal.shows("no answer for "), "the silence is shown")
        for notice in ("the order is on its way", "the last order is not carried out yet"):
            terminal.press(b"s")
            terminal.wait(lambda: terminal.shows(notice), notice)
    finally:
        os.kill(scheduler, signal.SIGCONT)
    terminal.wait(lambda: not terminal.shows("no answer for "), "the scheduler answers again")
    await_snapshot(terminal)
    await_steps(terminal)
    watch.run.may_end.add("train")
    watch.run.command("stop", watch.run.run_dir)
    watch.run.await_end()
    steps = json.loads((watch.run.run_dir / "summary.json").read_text())["steps"]
    said = f"the run has ended: interrupted after {steps} steps"
    terminal.wait(lambda: terminal.shows(said, f"ended, step {steps} of"), "the end of the run is shown")
    # The rest of the screen may come after these lines.
    terminal.wait(lambda: not terminal.shows("server 0"), "processes that are gone are not shown any more")
    terminal.press(b"q")
    check_end(terminal, EXIT_COMPLETED, "q after the run")
    terminal = watch.open()
    check_end(terminal, EXIT_UNREACHED, "a run that has ended")
    check("has ended: interrupted after" in terminal.screen.text().replace("\n", ""), terminal.describe())


def scheduler_of(run: ViewedRun) -> int:
    train = run.processes["train"].pid
    for word in Path(f"/proc/{train}/task/{train}/children").read_text().split():
        if Path(f"/proc/{word}/cmdline").read_bytes().split(b"\0")[1:2] == [b"scheduler"]:
            return int(word)
    raise AssertionError("the run has no scheduler")


def play(watch: Watch) -> None:
    watch.run.start_training()
    for part in (watch_screen, watch_sizes, watch_signals, watch_errors, watch_orders, watch_silence_and_end):
        part(watch)
        print(f"{part.__name__}: passed at step {watch.run.steps()}", flush=True)


def play_in_terminals(run: ViewedRun) -> None:
    watch = Watch(run)
    try:
        play(watch)
    finally:
        for terminal in watch.terminals:
            terminal.kill()


if __name__ == "__main__":
    sys.exit(main_with(__doc__, play_in_terminals))
