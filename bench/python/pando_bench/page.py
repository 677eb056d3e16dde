"""`pando bench report`: plots of a folder's results by matplotlib, and one page of HTML that fetches nothing."""

import io
from html import escape
from pathlib import Path
from typing import List

from results import BenchError, Plot, ResultSet, Table, bytes_text, figures, number_text, parse_result, replace_file

PAGE = "report.html"
# Okabe and Ito's colours, which most people can tell apart; then the same ones dashed.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#888888"]
STYLE = """body { font: 15px/1.5 sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid #ccc; padding: .2em .6em; text-align: right; }
th:first-child, td:first-child { text-align: left; }
th { background: #f3f3f3; }
.note { color: #555; }
svg { max-width: 100%; height: auto; border: 1px solid #eee; margin: 1em 0; }"""


def load_matplotlib():
    try:
        import matplotlib
    except ImportError as error:
        raise BenchError(f"plots need matplotlib, which this Python does not have ({error}): "
                         "apt-get install python3-matplotlib, or run tools/setup.sh") from error
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "pando", "text.parse_math": False})
    from matplotlib import pyplot

    return pyplot


# ---- plots ----------------------------------------------------------------------------------------------------------


def lowest(plot: Plot) -> float:
    return min((y for _, points in plot.series for _, y in points), default=0.0)


def draw_lines(axes, plot: Plot) -> None:
    ticks = sorted({x for _, points in plot.series for x, _ in points})
    for i, (name, points) in enumerate(plot.series):
        axes.plot([x for x, _ in points], [y for _, y in points], label=name, marker="o",
                  color=COLOURS[i % len(COLOURS)], linestyle="-" if i < len(COLOURS) else "--")
    axes.set_xscale("log", base=2)
    axes.minorticks_off()
    axes.set_xticks(ticks, [bytes_text(int(x)) if plot.x_axis == "bytes" else f"{x:.0f}" for x in ticks])
    if lowest(plot) >= 0:
        axes.set_ylim(bottom=0)
    else:
        axes.axhline(0, color="black", linewidth=1)
    axes.set_ylabel(plot.y_label)
    if plot.series:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def draw_bars(axes, plot: Plot) -> None:
    for row, (_, points) in enumerate(plot.series):
        f = figures([y for _, y in points])
        if not points:
            axes.text(0, row, " -", va="center")
            continue
        axes.barh(row, f["p50"], height=0.6, color=COLOURS[5])
        if len(points) > 1:
            axes.plot([f["min"], f["max"]], [row, row], color="black", linewidth=1)
        axes.text(max(f["max"], 0.0), row, " " + number_text(f["p50"]), va="center")
    axes.set_yticks(range(len(plot.series)), [name for name, _ in plot.series])
    axes.invert_yaxis()
    if lowest(plot) >= 0:
        axes.set_xlim(left=0)
    else:
        axes.axvline(0, color="black", linewidth=1)
    axes.margins(x=0.12)
    axes.set_xlabel(plot.y_label)


def svg_of(plot: Plot, pyplot) -> str:
    """Returns only the <svg> element, which a page can hold."""
    is_bars = plot.x_axis == "none"
    height = 1.2 + 0.3 * len(plot.series) if is_bars else max(4.2, 0.25 * len(plot.series))
    figure, axes = pyplot.subplots(figsize=(8.6, height))
    axes.set_title(plot.title, loc="left")
    axes.grid(True, axis="x" if is_bars else "y", color="#dddddd")
    axes.set_axisbelow(True)
    (draw_bars if is_bars else draw_lines)(axes, plot)
    text = io.StringIO()
    metadata = {key: None for key in ("Creator", "Date", "Format", "Type")}
    figure.savefig(text, format="svg", bbox_inches="tight", metadata=metadata)
    pyplot.close(figure)
    svg = text.getvalue()
    return svg[svg.index("<svg"):]


# ---- the page -------------------------------------------------------------------------------------------------------


def row_html(cells: List[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>\n"


def table_html(table: Table, tag: str = "h3") -> str:
    rows = row_html(table.header, "th") + "".join(row_html(row, "td") for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>\n' if table.note else ""
    return f"<{tag}>{escape(table.title)}</{tag}>\n<table>\n{rows}</table>\n{note}"


def set_html(results: ResultSet, svgs: List[str]) -> str:
    where, options = results.head()
    parts = [f"<h2>{escape(results.title)}</h2>\n<p>{escape(where)}<br/>{escape(options)}</p>\n",
             *map(table_html, results.tables), *svgs]
    return "".join(parts) + f"<details>{table_html(results.every_point(), 'summary')}</details>\n"


def read_results(folder: Path) -> List[ResultSet]:
    """Reads all results of a folder, by the names of their files. For a file that is no result the error names it."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except OSError as error:
        raise BenchError(
            f"cannot read the folder {folder}: {error.strerror}; name the --out folder of a benchmark"
        ) from error
    if not paths:
        raise BenchError(f"no results (*.json) in {folder}: run a benchmark with --out {folder} first")
    return [parse_result(path.read_text(encoding="utf-8", errors="replace"), str(path)) for path in paths]


def write_report(folder: Path) -> Path:
    """Writes FOLDER/report.html, and an SVG file for each plot."""
    sets = read_results(folder)
    pyplot = load_matplotlib()
    html = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>pando bench</title>\n<style>\n{STYLE}\n'
        "</style></head><body>\n<h1>pando bench</h1>\n"
    )
    for results in sets:
        svgs = [svg_of(plot, pyplot) for plot in results.plots]
        for plot, svg in zip(results.plots, svgs):
            replace_file(folder / f"{plot.name}.svg", svg)
        html += set_html(results, svgs)
    replace_file(folder / PAGE, html + "</body></html>\n")
    return folder / PAGE
