"""A terminal with one program in it, for the tests of this folder: a pty, and a screen that understands what ncurses
sends to an xterm."""
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any, Callable

DEADLINE_S = 120
READ_BYTES = 1 << 16
SEQUENCE = re.compile(rb"\x1b\[(?P<private>[?>!]?)(?P<numbers>[\d;]*)(?P<kind>[@-~])|"
                      rb"\x1b(?P<short>[()][0-9A-B]|[=>78M])")
BEGIN_OF_SEQUENCE = re.compile(rb"\x1b(\[[?>!]?[\d;]*|[()])?\Z")
WRAPS, CURSOR_SHOWN, ALTERNATE_SCREEN = 7, 25, 1049  # private modes of an xterm
MODES = {WRAPS, CURSOR_SHOWN}  # those of a shell
REVERSE, NOT_REVERSE = 7, 27
LOCAL_FLAGS = 3  # the index in a mode of termios
IGNORED = b"\a\x0e\x0f"  # the bell; choices of the character set: all text is ASCII
BLANK = (" ", False)  # a cell: its character, and whether it is reverse


class Screen:
    """The terminal as the user sees it. A sequence that this class does not know fails the test."""

    def __init__(self, rows: int, columns: int):
        self.modes = set(MODES)
        self.cells: list[list[tuple[str, bool]]] = []
        self.rows = self.columns = 0
        self.row = self.column = 0  # the cursor's; column == columns: the next character wraps
        self.is_reverse = False
        self.unread = b""
        self.last = " "
        self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        kept = [line[:columns] + [BLANK] * (columns - len(line)) for line in self.cells[:rows]]
        self.cells = kept + [[BLANK] * columns for _ in range(rows - len(kept))]
        self.rows, self.columns, self.scrolled = rows, columns, (0, rows - 1)
        self.row, self.column = min(self.row, rows - 1), min(self.column, columns - 1)

    def lines(self) -> list[str]:
        return ["".join(character for character, _ in line).rstrip() for line in self.cells]

    def text(self) -> str:
        return "\n".join(self.lines())

    def bar(self) -> str:
        """The line that is wholly reverse; empty: there is none, or, between two reads, more than one."""
        bars = [line for line, cells in zip(self.lines(), self.cells) if all(cell[1] for cell in cells)]
        return bars[0] if len(bars) == 1 else ""

    def take(self, data: bytes) -> None:
        data = self.unread + data
        begin = BEGIN_OF_SEQUENCE.search(data)
        self.unread = begin[0] if begin else b""
        data = data[:len(data) - len(self.unread)]
        at = 0
        while at < len(data):
            found = SEQUENCE.match(data, at)
            if found:
                self.apply(found)
            else:
                self.put(data[at])
            at = found.end() if found else at + 1

    def put(self, byte: int) -> None:
        if byte == ord("\r"):
            self.column = 0
        elif byte == ord("\n"):
            self.line_feed()
        elif byte == ord("\b"):
            self.column = max(min(self.column, self.columns - 1) - 1, 0)
        elif byte == ord("\t"):
            self.column = min((self.column // 8 + 1) * 8, self.columns - 1)
        elif byte not in IGNORED:
            assert 0x20 <= byte < 0x7f, f"the program has sent the byte {byte:#x}"
            self.write(chr(byte))

    def write(self, character: str) -> None:
        if self.column == self.columns:
            self.column = 0
            self.line_feed()
        self.cells[self.row][self.column] = (character, self.is_reverse)
        self.column += 1
        self.last = character

    def line_feed(self) -> None:
        if self.row == self.scrolled[1]:
            self.scroll(self.scrolled[0], 1)
        else:
            self.row = min(self.row + 1, self.rows - 1)

    def scroll(self, top: int, count: int) -> None:
        """Moves the lines from `top` to the scrolled region's end up, or down where `count` is negative."""
        lines = self.cells[top:self.scrolled[1] + 1]
        blank = [[BLANK] * self.columns for _ in range(min(abs(count), len(lines)))]
        moved = lines[len(blank):] + blank if count > 0 else blank + lines[:len(lines) - len(blank)]
        self.cells[top:self.scrolled[1] + 1] = moved

    def apply(self, found: re.Match) -> None:
        if found["short"]:
            if found["short"] == b"M" and self.row == self.scrolled[0]:
                self.scroll(self.row, -1)
            elif found["short"] == b"M":
                self.row = max(self.row - 1, 0)
            return
        kind = found["kind"].decode()
        numbers = [int(word or 0) for word in found["numbers"].split(b";")]
        if found["private"]:
            self.set_modes(kind, numbers)
        elif kind == "m":
            self.set_style(numbers)
        elif kind in "ABCDEFGHdf":
            self.move(kind, numbers)
        elif kind in "JKX@PLMSTb":
            self.edit(kind, numbers)
        elif kind == "r":
            top, end = (numbers + [0])[:2]
            self.scrolled = (max(top, 1) - 1, min(end or self.rows, self.rows) - 1)
            self.row = self.column = 0
        else:
            assert kind in "hlt", f"the program has sent {found[0]!r}"

    def set_modes(self, kind: str, numbers: list[int]) -> None:
        assert kind in "hlpc", f"unknown sequence of private modes: {numbers} {kind}"
        self.modes = self.modes | set(numbers) if kind == "h" else self.modes - set(numbers)

    def set_style(self, numbers: list[int]) -> None:
        for number in numbers:
            if number in (0, NOT_REVERSE):
                self.is_reverse = False
            elif number == REVERSE:
                self.is_reverse = True

    def move(self, kind: str, numbers: list[int]) -> None:
        count = max(numbers[0], 1)
        column = min(self.column, self.columns - 1)
        if kind in "Hf":
            self.row, column = count - 1, max((numbers + [1])[1], 1) - 1
        elif kind in "ABCD":
            down, right = {"A": (-1, 0), "B": (1, 0), "C": (0, 1), "D": (0, -1)}[kind]
            self.row, column = self.row + down * count, column + right * count
        elif kind == "d":
            self.row = count - 1
        elif kind == "G":
            column = count - 1
        else:
            raise AssertionError(f"the program has moved the cursor by {kind}")
        self.row = max(min(self.row, self.rows - 1), 0)
        self.column = max(min(column, self.columns - 1), 0)

    def edit(self, kind: str, numbers: list[int]) -> None:
        count = max(numbers[0], 1)
        column = min(self.column, self.columns - 1)
        line = self.cells[self.row]
        if kind == "K":
            begin, end = {0: (column, self.columns), 1: (0, column + 1), 2: (0, self.columns)}[numbers[0]]
            line[begin:end] = [BLANK] * (end - begin)
        elif kind == "J":
            assert numbers[0] in (0, 2), f"the program has erased {numbers[0]}"
            begin = column if numbers[0] == 0 else 0
            line[begin:] = [BLANK] * (self.columns - begin)
            first = self.row + 1 if numbers[0] == 0 else 0
            self.cells[first:] = [[BLANK] * self.columns for _ in range(self.rows - first)]
        elif kind == "X":
            end = min(column + count, self.columns)
            line[column:end] = [BLANK] * (end - column)
        elif kind == "@":
            self.cells[self.row] = (line[:column] + [BLANK] * count + line[column:])[:self.columns]
        elif kind == "P":
            self.cells[self.row] = line[:column] + line[column + count:] + [BLANK] * min(count, self.columns - column)
        elif kind == "b":
            for _ in range(count):
                self.write(self.last)
        else:
            top = self.row if kind in "LM" else self.scrolled[0]
            self.scroll(top, count if kind in "MS" else -count)


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third one: state, parent, group, session, terminal, its group."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def pids_of_session(leader: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(stat_fields(int(folder.name))[3]) == leader:
                found.append(int(folder.name))
        except OSError:  # it has just ended
            continue
    return found


def describe_session(leader: int) -> list[str]:
    """The processes of a session: their state, groups, and what they do with signals."""
    found = []
    for pid in pids_of_session(leader):
        status = Path(f"/proc/{pid}/status")
        try:
            fields = stat_fields(pid)
            signals = re.findall(r"(\w*(?:Pnd|Blk|Ign|Cgt)):\s*0*(\w+)", status.read_text())
            words = status.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()[:60]
        except OSError:  # it has just ended
            continue
        found.append(f"{words}: {fields[0]}, group {fields[2]} of {fields[5]}, {dict(signals)}")
    return found


class Terminal:
    """A pty whose foreground is one program. Threads: one."""

    def __init__(self, words: list[Any], folder: Path, rows: int = 24, columns: int = 100,
                 variables: dict[str, str] | None = None):
        self.screen = Screen(rows, columns)
        self.raw = b""
        self.master, slave = os.openpty()
        self.slave = slave  # stays open: its mode can be read once the program has ended
        self.set_size(rows, columns)
        self.mode = termios.tcgetattr(slave)
        self.mode[LOCAL_FLAGS] |= termios.NOFLSH  # a signal's key would discard output in the middle of a sequence
        termios.tcsetattr(slave, termios.TCSANOW, self.mode)
        environment = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS", "TERM")}
        self.process = subprocess.Popen(  # pylint: disable=subprocess-popen-preexec-fn
            [str(word) for word in words], stdin=slave, stdout=slave, stderr=slave, cwd=folder,
            env=environment | ({"TERM": "xterm"} if variables is None else variables), start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def set_size(self, rows: int, columns: int) -> None:
        """As a window that the user drags: the program gets SIGWINCH."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def read(self, within_s: float) -> bool:
        """Whether the program has sent something within that time."""
        if not select.select([self.master], [], [], within_s)[0]:
            return False
        data = os.read(self.master, READ_BYTES)
        self.raw += data
        self.screen.take(data)
        return True

    def wait(self, is_done: Callable[[], Any], what: str) -> None:
        """Until the screen, or something else that the program changes, is as expected."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_done():
            has_ended = self.process.poll() is not None
            if self.read(0.1) or is_done():
                continue
            assert not has_ended, f"it has exited with {self.process.returncode}, before: {what}; {self.describe()}"
            assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}; {self.describe()}"

    def shows(self, *texts: str) -> bool:
        return all(text in self.screen.text() for text in texts)

    def describe(self) -> str:
        return (f"the screen has\n{self.screen.text()}\nthe last bytes are {self.raw[-500:]!r}, and the processes are "
                f"{'; '.join(describe_session(self.process.pid))}")

    def is_restored(self) -> bool:
        """Whether the terminal is as before the program."""
        mode = termios.tcgetattr(self.slave)
        return mode == self.mode and self.screen.modes == MODES and not self.screen.is_reverse

    def await_end(self) -> int:
        """Returns the exit code, once everything that the program has sent is on the screen."""
        self.wait(lambda: self.process.poll() is not None, "the program ends")
        while self.read(0):
            pass
        return self.process.returncode

    def close(self) -> None:
        """As a user closes the window: the program gets SIGHUP."""
        if self.master >= 0:
            os.close(self.slave)
            os.close(self.master)
            self.master = -1

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.close()
