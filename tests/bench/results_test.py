"""Numbers, sizes, and the files of a result."""

import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import scripts_path  # noqa: F401
import page
from results import (
    BenchError,
    Plot,
    Point,
    ResultSet,
    Table,
    bar,
    bytes_text,
    figures,
    number_text,
    parse_bytes,
    parse_result,
)

try:
    PYPLOT = page.load_matplotlib()
except BenchError as error:
    PYPLOT, REASON = None, str(error)
needs_plots = unittest.skipUnless(PYPLOT, "matplotlib is missing")


def sample() -> ResultSet:
    """With all characters that a writer must escape."""
    point = Point('p"1"', {"bytes": "4096"}, True, {("throughput", "GB/s"): [3.0, 1.0, 2.0]})
    return ResultSet(
        "sample",
        'A < B & "C"',
        {"bytes": "4 KiB"},
        [point],
        [Table("T|1", ["a|b", "c"], [["1|2", "<script>"], ["x", "y\nz"]], "n < 1")],
        [Plot("sample-plot", "P & Q", "GB/s", "bytes", [("one <", [(4096.0, 1.0), (65536.0, 3.0)]), ("empty", [])])],
        {"cpu": "CPU <1>", "cores": 2, "memory_bytes": 8 << 30, "kernel": "Linux 6", "load": 0.5},
        "abc-dirty",
        "2026-01-02T03:04:05Z",
    )


def svg_root(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def texts(svg: str) -> list:
    return ["".join(element.itertext()).strip() for element in svg_root(svg).iter() if element.tag.endswith("}text")]


class NumbersTest(unittest.TestCase):
    def test_statistics_of_known_samples_in_any_order(self):
        f = figures([float(i) for i in range(100, -1, -1)])
        self.assertEqual(f, {"count": 101, "min": 0.0, "p50": 50.0, "p99": 99.0, "max": 100.0})

    def test_one_sample_is_every_quantile_none_is_zeros_two_have_their_middle_between_them(self):
        self.assertEqual(figures([])["count"], 0)
        self.assertEqual(figures([])["max"], 0.0)
        self.assertEqual(figures([7.0])["p50"], 7.0)
        self.assertEqual(figures([7.0])["p99"], 7.0)
        self.assertEqual(figures([3.0, 1.0])["p50"], 2.0)
        self.assertAlmostEqual(figures([1.0, 3.0])["p99"], 2.98)

    def test_a_point_gathers_samples_by_metric(self):
        point = Point("p")
        point.add("throughput", "GB/s", 1.0)
        point.add("latency", "us", 50.0)
        point.add("throughput", "GB/s", 3.0)
        self.assertEqual(list(point.samples), [("throughput", "GB/s"), ("latency", "us")])
        self.assertEqual(point.median("throughput"), 2.0)
        self.assertEqual(point.of("none"), [])
        self.assertEqual(point.median("none"), 0.0)

    def test_sizes_are_read_in_every_unit_and_written_in_the_largest_that_divides_them(self):
        for text, size in (
            ("4KiB", 4096),
            ("1MiB", 1 << 20),
            ("2GiB", 2 << 30),
            ("64B", 64),
            ("65536", 65536),
            ("1", 1),
        ):
            self.assertEqual(parse_bytes(text), size)
        self.assertEqual(
            [bytes_text(size) for size in (4096, 65536, 1536, 3 << 30)], ["4 KiB", "64 KiB", "1536 B", "3 GiB"]
        )

    def test_an_error_repeats_a_text_that_is_no_size_or_too_large_a_size(self):
        for text in ("", "KiB", "0", "0KiB", "-1", "4KB", "4 KiB", "1.5MiB", "4kib", "4KiBs", "99999999999999999999"):
            with self.assertRaises(BenchError, msg=text) as raised:
                parse_bytes(text)
            self.assertIn(f"'{text}'", str(raised.exception))
        self.assertEqual(parse_bytes("64MiB", 64 << 20), 64 << 20)
        for text, limit in (("65MiB", 64 << 20), ("18446744073709551615GiB", (1 << 64) - 1)):
            self.assertRaises(BenchError, parse_bytes, text, limit)

    def test_numbers_have_as_many_digits_as_are_worth_reading(self):
        expected = {
            0.0: "0.00",
            99.96: "100",
            0.04567: "0.0457",
            3.14159: "3.14",
            31.4159: "31.4",
            314.159: "314",
            1000.0: "1,000",
            120431.2: "120,431",
            -1234567.0: "-1,234,567",
        }
        self.assertEqual({value: number_text(value) for value in expected}, expected)


class FilesTest(unittest.TestCase):
    def test_a_result_set_comes_back_from_its_json(self):
        text = sample().as_json()
        back = parse_result(text, "text")
        self.assertEqual(back, sample())
        self.assertEqual(back.as_json(), text)
        self.assertIn('"p50": 2.0', text)

    def test_bytes_that_are_no_text_do_not_break_the_files(self):
        results = sample()
        results.machine["cpu"] = b"\xff\xfe".decode(errors="surrogateescape")
        with tempfile.TemporaryDirectory() as folder:
            results.write(Path(folder))
            page.read_results(Path(folder))

    def test_markdown_has_rows_of_equal_length_escaped_bars_and_marks_of_oversubscribed_points(self):
        text = sample().as_markdown()
        self.assertTrue(
            text.startswith(
                '# A < B & "C"\n\nCommit abc-dirty, 2026-01-02T03:04:05Z; CPU <1>, 2 cores, 8 GiB, '
                "Linux 6; load before 0.50.\n"
            )
        )
        for part in (
            "| a\\|b | c |\n|---|---|\n| 1\\|2 | <script> |\n| x | y z |\n",
            '| p"1" * | throughput | GB/s | 3 | 1.00 | 2.00 | 2.98 | 3.00 |',
            "more active processes than the 2 cores",
            "![P & Q](sample-plot.svg)",
        ):
            self.assertIn(part, text)

    def test_results_are_written_to_a_folder_that_is_made(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "new/out"
            sample().write(out)
            self.assertEqual(sorted(path.name for path in out.iterdir()), ["sample.json", "sample.md"])

    def test_a_folder_that_cannot_be_made_is_an_error_of_the_flag(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "file").write_text("x")
            with self.assertRaises(BenchError) as raised:
                sample().write(Path(folder) / "file/out")
            self.assertIn(f"--out {folder}/file/out", str(raised.exception))

    def test_a_report_names_the_file_that_is_no_result_and_what_is_wrong_with_it(self):
        for text, wrong in (('{"benchmark": ', "Expecting value"), ("{}", "benchmark"), ("[1]", "list")):
            with tempfile.TemporaryDirectory() as folder:
                sample().write(Path(folder))
                (Path(folder) / "zz.json").write_text(text)
                with self.assertRaises(BenchError) as raised:
                    page.write_report(Path(folder))
                self.assertIn(f"{folder}/zz.json", str(raised.exception))
                self.assertIn(wrong, str(raised.exception))
                self.assertFalse((Path(folder) / page.PAGE).exists())

    def test_a_report_of_a_folder_without_results_or_of_none_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertRaisesRegex(BenchError, "run a benchmark with --out", page.write_report, Path(folder))
            self.assertRaisesRegex(BenchError, f"{folder}/none", page.write_report, Path(folder) / "none")


@needs_plots
class PlotsTest(unittest.TestCase):
    def test_lines_are_escaped_and_have_their_marks_and_names(self):
        svg = page.svg_of(sample().plots[0], PYPLOT)
        shown = texts(svg)
        for text in ("P & Q", "one <", "empty", "4 KiB", "64 KiB", "GB/s"):
            self.assertIn(text, shown)
        self.assertNotIn("nan", svg)

    def test_a_plot_of_one_size_of_zeros_of_nothing_is_a_plot(self):
        for series in ([], [("a", [])], [("a", [(4096.0, 0.0)])], [("a", [(4096.0, 2.0)]), ("b", [(4096.0, -0.1)])]):
            for axis in ("bytes", "count", "none"):
                svg_root(page.svg_of(Plot("p", "t", "y", axis, series), PYPLOT))

    def test_lines_below_zero_are_drawn_below_zero(self):
        figure, axes = PYPLOT.subplots()
        page.draw_lines(axes, Plot("p", "t", "%", "count", [("a", [(1.0, 2.0), (2.0, -3.5)])]))
        self.assertEqual(list(axes.lines[0].get_ydata()), [2.0, -3.5])
        self.assertLess(axes.get_ylim()[0], -3.5)
        PYPLOT.close(figure)

    def test_many_lines_have_a_legend_of_their_own_height(self):
        series = [(f"line {i}", [(1.0, i), (2.0, i + 1)]) for i in range(40)]
        shown = texts(page.svg_of(Plot("p", "t", "y", "count", series), PYPLOT))
        self.assertTrue({name for name, _ in series} <= set(shown))
        self.assertTrue({"1", "2"} <= set(shown))

    def test_bars_are_as_long_as_the_median_with_a_line_from_the_smallest_to_the_largest(self):
        series = [
            ("one & two", bar([4.0, 2.0, 10.0])),
            ("none", []),
            ("half", bar([5.0])),
            ("below", bar([-1.0, -2.0])),
        ]
        plot = Plot("bars", "t", "ms", "none", series)
        self.assertEqual(series[0][1], [(0.0, 4.0), (1.0, 2.0), (2.0, 10.0)])
        figure, axes = PYPLOT.subplots()
        page.draw_bars(axes, plot)
        self.assertEqual([bar_.get_width() for bar_ in axes.patches], [4.0, 5.0, -1.5])
        lines = [list(line.get_xdata()) for line in axes.lines]
        self.assertEqual(lines, [[2.0, 10.0], [-2.0, -1.0], [0, 0]])  # the last is the axis
        self.assertLess(axes.get_xlim()[0], -2.0)
        PYPLOT.close(figure)
        shown = texts(page.svg_of(plot, PYPLOT))
        for text in ("one & two", "none", "half", "below", "4.00", "-"):
            self.assertIn(text, shown)

    def test_the_report_is_one_page_that_fetches_nothing(self):
        other = sample()
        other.benchmark, other.title = "another", "Another"
        with tempfile.TemporaryDirectory() as folder:
            for results in (sample(), other):
                results.write(Path(folder))
            html = page.write_report(Path(folder)).read_text()
            self.assertTrue((Path(folder) / "sample-plot.svg").exists())
            page.write_report(Path(folder))  # its own files are no results
        ElementTree.fromstring(html.removeprefix("<!DOCTYPE html>\n"))  # well-formed
        self.assertEqual(html.count("<svg"), 2)
        self.assertNotIn("<script", html)
        self.assertIn("&lt;script&gt;", html)
        self.assertNotIn("src=", html)
        self.assertNotRegex(html, r"href=\"[^#]")
        self.assertLess(html.index("<h2>Another</h2>"), html.index("<h2>A &lt; B"))  # by the names of the files
        # The only addresses are the names of SVG's languages.
        self.assertEqual(
            html.count("http"), html.count("http://www.w3.org/2000/svg") + html.count("http://www.w3.org/1999/xlink")
        )


if __name__ == "__main__":
    unittest.main()
