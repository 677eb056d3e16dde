#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bench/harness/report.h"
#include "bench/harness/result_json.h"
#include "bench/harness/writers.h"
#include "tests/temp_folder.h"

namespace pando::bench {
namespace {

// With all that a writer must escape.
ResultSet Sample() {
  ResultSet set{.benchmark = "sample",
                .title = "A < B & \"C\"",
                .date = "2026-01-02T03:04:05Z",
                .commit = "abc-dirty",
                .machine = {.cpu = "CPU <1>",
                            .cores = 2,
                            .memory_bytes = 8ull << 30,
                            .kernel = "Linux 6",
                            .load = 0.5},
                .options = {{"bytes", "4 KiB"}},
                .points = {},
                .tables = {{.title = "T|1",
                            .note = "n < 1",
                            .header = {"a|b", "c"},
                            .rows = {{"1|2", "<script>"}, {"x", "y\nz"}}}},
                .plots = {{.name = "sample-plot",
                           .title = "P & Q",
                           .y_label = "GB/s",
                           .series = {{"one <", {{4096, 1.0}, {65536, 3.0}}}, {"empty", {}}}}}};
  set.points.push_back({.name = "p\"1\"",
                        .parameters = {{"bytes", "4096"}},
                        .is_oversubscribed = true,
                        .measurements = {{"throughput", "GB/s", {3.0, 1.0, 2.0}}}});
  return set;
}

size_t CountOf(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Every tag that opens is closed, in order; says what is wrong, or nothing.
std::string Malformed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return "no end of a tag";
    const std::string tag = xml.substr(at + 1, end - at - 1);
    at = end;
    const std::string name = tag.substr(0, tag.find(' '));
    if (tag.find('<') != std::string::npos) return "tag in a tag: " + tag;
    if (CountOf("\"", tag) % 2 != 0) return "quotes: " + tag;
    if (tag.starts_with("!") || tag.ends_with("/") || name == "meta") continue;
    if (!tag.starts_with("/")) {
      open.push_back(name);
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return "closes what is not open: " + tag;
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "never closed: " + open.back();
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("a result set comes back from its JSON") {
  const ResultSet set = Sample();
  const std::string text = ToJson(set);
  const Result<ResultSet> back = FromJson(text, "text");
  REQUIRE(back.ok());
  CHECK(back->title == set.title);
  CHECK(back->machine.cpu == set.machine.cpu);
  CHECK(back->machine.memory_bytes == set.machine.memory_bytes);
  CHECK(back->options == set.options);
  REQUIRE(back->points.size() == 1);
  CHECK(back->points[0].name == "p\"1\"");
  CHECK(back->points[0].is_oversubscribed);
  CHECK(back->points[0].measurements[0].samples == std::vector<double>{3.0, 1.0, 2.0});
  CHECK(back->tables[0].rows == set.tables[0].rows);
  CHECK(back->plots[0].series[0].points == set.plots[0].series[0].points);
  CHECK(ToJson(*back) == text);
  CHECK(text.find("\"p50\": 2.0") != std::string::npos);
}

TEST_CASE("bytes that are no text do not break the JSON") {
  ResultSet set = Sample();
  set.machine.cpu = "\xff\xfe";
  CHECK(FromJson(ToJson(set), "text").ok());
}

TEST_CASE("numbers have as many digits as are worth reading") {
  CHECK(NumberText(0.0) == "0.000");
  CHECK(NumberText(0.04567) == "0.046");
  CHECK(NumberText(3.14159) == "3.14");
  CHECK(NumberText(31.4159) == "31.4");
  CHECK(NumberText(314.159) == "314");
  CHECK(NumberText(1000.0) == "1,000");
  CHECK(NumberText(120431.2) == "120,431");
  CHECK(NumberText(-1234567.0) == "-1,234,567");
  CHECK(NumberText(1.0 / 0.0) == "-");
}

TEST_CASE("Markdown: tables have equal rows, bars are escaped, oversubscribed points marked") {
  const std::string text = ToMarkdown(Sample());
  CHECK(
      text.starts_with("# A < B & \"C\"\n\nCommit abc-dirty, 2026-01-02T03:04:05Z; CPU <1>, 2 "
                       "cores, 8 GiB, Linux 6; load before 0.50.\n"));
  CHECK(text.find("| a\\|b | c |\n|---|---|\n| 1\\|2 | <script> |\n| x | y z |\n") !=
        std::string::npos);
  CHECK(text.find("| p\"1\" * | throughput | GB/s | 3 | 1.00 | 2.00 | 2.98 | 3.00 |") !=
        std::string::npos);
  CHECK(text.find("more processes at work than the 2 cores") != std::string::npos);
  CHECK(text.find("![P & Q](sample-plot.svg)") != std::string::npos);
}

TEST_CASE("SVG: well-formed, escaped, a line and its marks for each series") {
  const std::string svg = ToSvg(Sample().plots[0]);
  CHECK(Malformed(svg) == "");
  CHECK(CountOf("<polyline", svg) == 2);
  CHECK(CountOf("<circle", svg) == 2);
  CHECK(svg.find("P &amp; Q") != std::string::npos);
  CHECK(svg.find("one &lt;") != std::string::npos);
  CHECK(svg.find("4 KiB") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
}

TEST_CASE("SVG: a plot of one size, of zeros, of nothing, is a plot") {
  for (const std::vector<Series>& series :
       {std::vector<Series>{{"s", {{4096, 2.0}}}}, std::vector<Series>{{"s", {{4096, 0.0}}}},
        std::vector<Series>{}}) {
    const std::string svg = ToSvg({.name = "n", .title = "t", .y_label = "y", .series = series});
    CHECK(Malformed(svg) == "");
    CHECK(svg.find("nan") == std::string::npos);
    CHECK(svg.find("inf") == std::string::npos);
  }
}

// The place of a bar's end, behind its name.
double BarWidth(const std::string& svg, const std::string& name) {
  const size_t at = svg.find(" width=\"", svg.find(">" + name + "<"));
  REQUIRE(at != std::string::npos);
  return std::stod(svg.substr(at + 8));
}

TEST_CASE("SVG: bars as long as the median, with a line from the least to the largest") {
  Point point{
      .name = "one & two", .parameters = {}, .measurements = {{"m", "ms", {4.0, 2.0, 10.0}}}};
  Plot plot{.name = "bars",
            .title = "t",
            .y_label = "ms",
            .series = {BarOf(point, "m"),
                       BarOf(point, "none"),
                       {"half", {{0, 5.0}}},
                       {"below", {{0, -1.0}, {1, -2.0}}}},
            .x_axis = PlotAxis::kNone};
  CHECK(plot.series[0].points == std::vector<std::pair<double, double>>{{0, 4}, {1, 2}, {2, 10}});
  const std::string svg = ToSvg(plot);
  CHECK(Malformed(svg) == "");
  CHECK(CountOf("<rect", svg) == 1 + 3);  // the page; "none" has no figure
  CHECK(CountOf("stroke=\"#000\"", svg) == 2);
  CHECK(BarWidth(svg, "half") == doctest::Approx(450.0 / 2));  // of 10
  CHECK(BarWidth(svg, "one &amp; two") == doctest::Approx(450.0 * 4 / 10));
  CHECK(BarWidth(svg, "below") == 0.0);
  ResultSet set = Sample();
  set.plots = {plot};
  const Result<ResultSet> back = FromJson(ToJson(set), "text");
  REQUIRE(back.ok());
  CHECK(ToSvg(back->plots[0]) == svg);
  plot.series.clear();
  CHECK(Malformed(ToSvg(plot)) == "");
}

TEST_CASE("HTML: one well-formed page that fetches nothing") {
  const std::string html = ToHtml({Sample(), Sample()});
  CHECK(Malformed(html) == "");
  CHECK(CountOf("<svg", html) == 2);
  CHECK(html.find("<script") == std::string::npos);
  CHECK(html.find("&lt;script&gt;") != std::string::npos);
  CHECK(html.find("src=") == std::string::npos);
  CHECK(html.find("href=") == std::string::npos);
  // The one address is the name of SVG's language.
  CHECK(CountOf("http", html) == CountOf("http://www.w3.org/2000/svg", html));
}

TEST_CASE("results are written to a folder that is made, and a report is made of them") {
  const TempFolder folder;
  const std::string out = folder.path() + "/new/out";
  REQUIRE(WriteResults(Sample(), out).ok());
  for (const char* file : {"sample.json", "sample.md", "sample-plot.svg"})
    CHECK(std::filesystem::exists(out + "/" + file));
  ResultSet other = Sample();
  other.benchmark = "another";
  other.title = "Another";
  REQUIRE(WriteResults(other, out).ok());
  const Result<std::string> page = WriteReport(out);
  REQUIRE(page.ok());
  const std::string html = ReadAll(*page);
  CHECK(html.find("<h2>Another</h2>") < html.find("<h2>A &lt; B"));  // by the names of the files
  CHECK(WriteReport(out).ok());                                      // its own page is no result
}

TEST_CASE("a report names the file that is no result, and what is wrong with it") {
  const std::vector<std::pair<std::string, std::string>> broken{
      {"{\"benchmark\": ", "parse error"}, {"{}", "benchmark"}, {"[1]", "array"}};
  for (const auto& [text, wrong] : broken) {
    const TempFolder folder;
    REQUIRE(WriteResults(Sample(), folder.path()).ok());
    std::ofstream(folder.path() + "/zz.json") << text;
    const Result<std::string> page = WriteReport(folder.path());
    REQUIRE(!page.ok());
    CHECK(page.status().code() == StatusCode::kCorrupt);
    CHECK(page.status().message().find(folder.path() + "/zz.json") != std::string::npos);
    CHECK(page.status().message().find(wrong) != std::string::npos);
    CHECK(!std::filesystem::exists(folder.path() + "/report.html"));
  }
}

TEST_CASE("a report of a folder without results, or of none, says what to do") {
  const TempFolder folder;
  const Result<std::string> empty = WriteReport(folder.path());
  REQUIRE(!empty.ok());
  CHECK(empty.status().message().find("run a benchmark with --out") != std::string::npos);
  const Result<std::string> missing = WriteReport(folder.path() + "/none");
  REQUIRE(!missing.ok());
  CHECK(missing.status().message().find(folder.path() + "/none") != std::string::npos);
}

TEST_CASE("a folder that cannot be made is an error of the flag") {
  const TempFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  const Status s = WriteResults(Sample(), folder.path() + "/file/out");
  REQUIRE(!s.ok());
  CHECK(s.message().find("--out " + folder.path() + "/file/out") != std::string::npos);
}

}  // namespace
}  // namespace pando::bench
