"""The result of one benchmark: the machine, the commit, every sample. Benchmarks fill a ResultSet, `write` saves it as
JSON and Markdown, and `pando bench report` reads the JSON. Used by all benchmarks in Python."""

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

EXIT_FAILED, EXIT_USAGE, EXIT_UNREACHED, EXIT_INTERRUPTED = 1, 2, 3, 130  # as in common/exit_codes.h


class BenchError(Exception):
    """A failure with a message for the user and an exit code."""

    def __init__(self, message: str, exit_code: int = EXIT_USAGE):
        super().__init__(message)
        self.exit_code = exit_code


# ---- numbers --------------------------------------------------------------------------------------------------------


def figures(values: Sequence[float]) -> dict:
    """Returns count, least, median, 99 % and largest; zeros without values."""
    known = list(values) or [0.0]
    percents = statistics.quantiles(known if len(known) > 1 else 2 * known, n=100, method="inclusive")
    return {"count": len(values), "min": min(known), "p50": statistics.median(known), "p99": percents[98],
            "max": max(known)}


def number_text(value: float) -> str:
    """Returns three significant digits, or all digits of a larger number: "3.21", "0.0450", "120,431"."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))


def bytes_text(size: int) -> str:
    """Returns the size in the largest unit that divides it."""
    return next((f"{size // unit} {name}" for name, unit in UNITS if size >= unit and size % unit == 0), "0 B")


def parse_bytes(text: str, bytes_max: int = (1 << 64) - 1) -> int:
    """Reads a number above 0, followed by B, KiB, MiB, GiB or nothing."""
    digits = text.rstrip("BGKMi")
    factor = dict(UNITS, **{"": 1}).get(text[len(digits):])
    if factor is None or not (digits.isascii() and digits.isdigit()) or int(digits) == 0:
        raise BenchError(f"'{text}' is no size: write a whole number above 0 with B, KiB, MiB or GiB, as in 64KiB")
    if int(digits) * factor > bytes_max:
        raise BenchError(f"'{text}' is too large: the limit is {bytes_text(bytes_max)}")
    return int(digits) * factor


# ---- the parts of a result ------------------------------------------------------------------------------------------


@dataclass
class Point:
    """One of the compared variants: its samples by (metric, unit)."""

    name: str
    parameters: Dict[str, str] = field(default_factory=dict)
    is_oversubscribed: bool = False  # more active processes than cores
    samples: Dict[Tuple[str, str], List[float]] = field(default_factory=dict)

    def add(self, metric: str, unit: str, sample: float) -> None:
        self.samples.setdefault((metric, unit), []).append(sample)

    def of(self, metric: str) -> List[float]:
        """Returns the samples of a metric; none if it was not measured."""
        return next((values for (name, _), values in self.samples.items() if name == metric), [])

    def median(self, metric: str) -> float:
        return statistics.median(self.of(metric) or [0.0])

    def marked_name(self) -> str:
        return self.name + (" *" if self.is_oversubscribed else "")

    def cell(self, metric: str, unit: str, digits: int = 1) -> str:
        """ "p50 (min-max)", or "-" where nothing was measured."""
        values = self.samples.get((metric, unit))
        if not values:
            return "-"
        p50, low, high = (f"{v:,.{digits}f}" for v in (statistics.median(values), min(values), max(values)))
        return p50 if len(values) == 1 else f"{p50} ({low}-{high})"

    def as_json(self) -> dict:
        measurements = [{"metric": metric, "unit": unit, **figures(values), "samples": values}
                        for (metric, unit), values in self.samples.items()]
        return {"name": self.name, "parameters": self.parameters, "oversubscribed": self.is_oversubscribed,
                "measurements": measurements}


@dataclass
class Table:
    title: str
    header: List[str]
    rows: List[List[str]]
    note: str = ""

    def as_markdown(self) -> str:
        def line(cells: List[str]) -> str:
            return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

        lines = [f"## {self.title}", "", line(self.header), "|" + "---|" * len(self.header), *map(line, self.rows)]
        return "\n".join(lines + (["", self.note] if self.note else []) + [""])


@dataclass
class Plot:
    """Lines over a logarithmic axis of bytes or counts. Without an axis ("none") a bar for each series: the median, and
    a line from the smallest to the largest sample."""

    name: str  # its file's
    title: str
    y_label: str
    x_axis: str = "bytes"  # "count", "none"
    series: List[Tuple[str, List[Tuple[float, float]]]] = field(default_factory=list)  # (name, points)

    def line(self, name: str) -> List[Tuple[float, float]]:
        """Returns the points of the series of this name, which is added if it is missing."""
        for known, points in self.series:
            if known == name:
                return points
        self.series.append((name, []))
        return self.series[-1][1]

    def as_json(self) -> dict:
        return {"name": self.name, "title": self.title, "y_label": self.y_label, "x_axis": self.x_axis,
                "series": [{"name": name, "points": [list(point) for point in points]} for name, points in self.series]}


def bar(values: Sequence[float]) -> List[Tuple[float, float]]:
    """Returns the samples by round, for a series of a plot without an axis."""
    return [(float(i), value) for i, value in enumerate(values)]


def bars(name: str, title: str, metric: Tuple[str, str], points: List[Tuple[str, Point]]) -> Plot:
    """Makes a bar for each point with samples of the metric; points by the name of their bar."""
    series = [(label, bar(point.samples[metric])) for label, point in points if point.samples.get(metric)]
    return Plot(name, title, f"{metric[1]}, median and extremes", "none", series)


# ---- where and when -------------------------------------------------------------------------------------------------


def cpu_name() -> str:
    names = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return names[0] if names else platform.machine()


def core_count() -> int:
    return len(os.sched_getaffinity(0))


def machine() -> dict:
    return {"cpu": cpu_name(), "cores": core_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": f"Linux {platform.release()}", "load": os.getloadavg()[0]}


def source_commit() -> str:
    git = subprocess.run(["git", "describe", "--always", "--dirty", "--tags"], cwd=Path(__file__).resolve().parent,
                         capture_output=True, text=True, check=False)
    return git.stdout.strip() or "unknown"


def now_utc() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class ResultSet:
    benchmark: str  # names its files
    title: str
    options: Dict[str, str]
    points: List[Point] = field(default_factory=list)
    tables: List[Table] = field(default_factory=list)
    plots: List[Plot] = field(default_factory=list)
    machine: dict = field(default_factory=machine)  # as it was before the benchmark: make the set first
    commit: str = field(default_factory=source_commit)
    date: str = field(default_factory=now_utc)

    def find(self, name: str) -> Optional[Point]:
        return next((point for point in self.points if point.name == name), None)

    def head(self) -> List[str]:
        """Returns two lines about the place, the time and the way of the measurement."""
        m = self.machine
        return [f"Commit {self.commit}, {self.date}; {m['cpu']}, {m['cores']} cores, {m['memory_bytes'] / 2 ** 30:.0f} "
                f"GiB, {m['kernel']}; load before {m['load']:.2f}.",
                ", ".join(f"{key} {value}" for key, value in self.options.items())]

    def as_markdown(self) -> str:
        where, options = self.head()
        parts = [f"# {self.title}\n", where + "\n", f"Options: {options}.\n" if options else ""]
        parts += [table.as_markdown() for table in self.tables]
        parts += [f"![{plot.title}]({plot.name}.svg)\n" for plot in self.plots]
        return "\n".join(part for part in [*parts, self.every_point().as_markdown()] if part)

    def every_point(self) -> Table:
        rows = []
        for point in self.points:
            for (metric, unit), values in point.samples.items():
                f = figures(values)
                rows.append([point.marked_name(), metric, unit, str(f["count"]),
                             *(number_text(f[key]) for key in ("min", "p50", "p99", "max"))])
        has_mark = any(point.is_oversubscribed for point in self.points)
        note = f"\\* more active processes than the {self.machine['cores']} cores" if has_mark else ""
        return Table("Every point", ["point", "metric", "unit", "samples", "min", "p50", "p99", "max"], rows, note)

    def as_json(self) -> str:
        content = {"benchmark": self.benchmark, "title": self.title, "date": self.date, "commit": self.commit,
                   "machine": self.machine, "options": self.options, "tables": [vars(table) for table in self.tables],
                   "plots": [plot.as_json() for plot in self.plots],
                   "points": [point.as_json() for point in self.points]}
        return json.dumps(content, indent=1) + "\n"

    def write(self, folder: Path) -> None:
        """Writes BENCHMARK.json and BENCHMARK.md. A result of the same benchmark is replaced."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BenchError(f"--out {folder}: cannot make the folder: {error.strerror}; choose another one") from error
        replace_file(folder / f"{self.benchmark}.json", self.as_json())
        replace_file(folder / f"{self.benchmark}.md", self.as_markdown())
        print(f"written: {folder / self.benchmark}.json and .md; pando bench report {folder} makes plots and a page",
              file=sys.stderr)


def replace_file(path: Path, text: str) -> None:
    """Writes the file so that a reader sees the old one or the new one."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8", errors="replace")
    part.replace(path)


def parse_result(text: str, place: str) -> ResultSet:
    """Reads a result's JSON. `place` names the text in errors."""
    try:
        content = json.loads(text)
        points = [Point(p["name"], dict(p["parameters"]), p["oversubscribed"],
                        {(m["metric"], m["unit"]): [float(v) for v in m["samples"]] for m in p["measurements"]})
                  for p in content["points"]]
        tables = [Table(t["title"], list(t["header"]), [list(row) for row in t["rows"]], t["note"])
                  for t in content["tables"]]
        plots = [Plot(p["name"], p["title"], p["y_label"], p["x_axis"],
                      [(s["name"], [(float(x), float(y)) for x, y in s["points"]]) for s in p["series"]])
                 for p in content["plots"]]
        where = {key: content["machine"][key] for key in ("cpu", "cores", "memory_bytes", "kernel", "load")}
        return ResultSet(content["benchmark"], content["title"], dict(content["options"]), points, tables, plots, where,
                         content["commit"], content["date"])
    except KeyError as error:
        wrong = f"it has no {error}"
    except (ValueError, TypeError, AttributeError) as error:
        wrong = str(error)
    raise BenchError(f"{place} is no result of pando bench: {wrong}; remove it, or run its benchmark again")
