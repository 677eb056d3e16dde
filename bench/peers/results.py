"""Results of the Python benchmarks in the form of bench/harness: JSON that `pando bench report` reads, and Markdown."""
import datetime
import json
import os
import platform
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from report import ROOT, commit, cpu_name, percentile  # noqa: E402, F401  (ROOT: for the others here)


@dataclass
class Point:
    """One of the things compared: samples by (metric, unit)."""
    name: str
    parameters: Dict[str, str]
    is_oversubscribed: bool = False
    samples: Dict[Tuple[str, str], List[float]] = field(default_factory=dict)

    def add(self, metric: str, unit: str, sample: float) -> None:
        self.samples.setdefault((metric, unit), []).append(sample)

    def cell(self, metric: str, unit: str, digits: int = 1) -> str:
        """"p50 (min-max)", or "-" where nothing was measured."""
        values = self.samples.get((metric, unit))
        if not values:
            return "-"
        p50, low, high = (f"{v:,.{digits}f}" for v in (statistics.median(values), min(values), max(values)))
        return p50 if len(values) == 1 else f"{p50} ({low}-{high})"

    def as_json(self) -> dict:
        measurements = [{"metric": metric, "unit": unit, "count": len(values), "min": min(values),
                         "p50": statistics.median(values), "p99": percentile(values, 0.99), "max": max(values),
                         "samples": values} for (metric, unit), values in self.samples.items()]
        return {"name": self.name, "parameters": self.parameters, "oversubscribed": self.is_oversubscribed,
                "measurements": measurements}


@dataclass
class Table:
    title: str
    header: List[str]
    rows: List[List[str]]
    note: str = ""

    def as_markdown(self) -> str:
        lines = [f"## {self.title}", "", "| " + " | ".join(self.header) + " |", "|" + "---|" * len(self.header)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in self.rows]
        return "\n".join(lines + (["", self.note] if self.note else []) + [""])


@dataclass
class Bars:
    """A plot of bench/harness without an axis of x: a bar of each point's median, a line over all its samples."""
    name: str
    title: str
    metric: Tuple[str, str]
    points: List[Tuple[str, Point]]  # by the bar's name; those without samples are left out

    def as_json(self) -> dict:
        series = [{"name": name, "points": [[i, sample] for i, sample in enumerate(point.samples[self.metric])]}
                  for name, point in self.points if point.samples.get(self.metric)]
        return {"name": self.name, "title": self.title, "y_label": f"{self.metric[1]}, median and extremes",
                "x_axis": "none", "series": series}


def machine() -> dict:
    return {"cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": platform.release(), "load": os.getloadavg()[0]}


@dataclass
class ResultSet:
    benchmark: str  # names its files
    title: str
    options: Dict[str, str]
    points: List[Point]
    tables: List[Table]
    plots: List[Bars] = field(default_factory=list)
    machine: dict = field(default_factory=machine)  # as it was before the benchmark: make the set first
    commit: str = field(default_factory=commit)
    date: str = field(default_factory=lambda: datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))

    def as_markdown(self) -> str:
        m = self.machine
        head = (f"# {self.title}\n\nCommit {self.commit}, {self.date}; {m['cpu']}, {m['cores']} cores, "
                f"{m['memory_bytes'] / 2 ** 30:.0f} GiB, Linux {m['kernel']}; load before {m['load']:.2f}. "
                + ", ".join(f"{key} {value}" for key, value in self.options.items()) + ".\n")
        return "\n".join([head, *(table.as_markdown() for table in (*self.tables, self.every_point()))])

    def every_point(self) -> Table:
        rows = [[point.name + (" *" if point.is_oversubscribed else ""), f"{metric}, {unit}", str(len(values)),
                 *(f"{figure:,.4g}" if abs(figure) < 100 else f"{figure:,.0f}" for figure in
                   (min(values), statistics.median(values), percentile(values, 0.99), max(values)))]
                for point in self.points for (metric, unit), values in point.samples.items()]
        note = "*: more processes at work than cores." if any(point.is_oversubscribed for point in self.points) else ""
        return Table("Every point", ["point", "figure", "samples", "min", "p50", "p99", "max"], rows, note)

    def write(self, folder: Path) -> None:
        """BENCHMARK.json and BENCHMARK.md; a result of the same benchmark is replaced."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {"benchmark": self.benchmark, "title": self.title, "date": self.date, "commit": self.commit,
                   "machine": self.machine, "options": self.options,
                   "tables": [vars(table) for table in self.tables],
                   "plots": [plot.as_json() for plot in self.plots],
                   "points": [point.as_json() for point in self.points]}
        (folder / f"{self.benchmark}.json").write_text(json.dumps(content, indent=1) + "\n")
        (folder / f"{self.benchmark}.md").write_text(self.as_markdown())
        print(f"written: {folder / self.benchmark}.json and .md", file=sys.stderr)
