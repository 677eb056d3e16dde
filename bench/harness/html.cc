#include <fmt/format.h>

#include "bench/harness/writers.h"

namespace pando::bench {
namespace {

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>pando bench</title>
<style>
body { font: 15px/1.5 sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid #ccc; padding: .2em .6em; text-align: right; }
th:first-child, td:first-child { text-align: left; }
th { background: #f3f3f3; }
.note { color: #555; }
svg { max-width: 100%; height: auto; border: 1px solid #eee; margin: 1em 0; }
</style></head><body>
<h1>pando bench</h1>
)";

std::string Row(const std::vector<std::string>& cells, const char* tag) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) row += fmt::format("<{0}>{1}</{0}>", tag, EscapeXml(cell));
  return row + "</tr>\n";
}

std::string TableHtml(const Table& table) {
  std::string html = fmt::format("<h3>{}</h3>\n<table>\n", EscapeXml(table.title));
  html += Row(table.header, "th");
  for (const std::vector<std::string>& row : table.rows) html += Row(row, "td");
  return html + fmt::format("</table>\n<p class=\"note\">{}</p>\n", EscapeXml(table.note));
}

std::string PointsHtml(const ResultSet& set) {
  std::string html =
      fmt::format("<details><summary>All {} points</summary>\n<table>\n", set.points.size());
  html += Row({"point", "metric", "unit", "samples", "min", "p50", "p99", "max"}, "th");
  for (const Point& point : set.points) {
    for (const Measurement& m : point.measurements) {
      const Statistics s = StatisticsOf(m.samples);
      html += Row({point.name + (point.is_oversubscribed ? " *" : ""), m.metric, m.unit,
                   fmt::format("{}", s.count), NumberText(s.min), NumberText(s.p50),
                   NumberText(s.p99), NumberText(s.max)},
                  "td");
    }
  }
  return html + fmt::format(
                    "</table>\n<p class=\"note\">* more processes at work than the {} cores</p>\n"
                    "</details>\n",
                    set.machine.cores);
}

std::string OptionsText(const ResultSet& set) {
  std::string text;
  for (const auto& [key, value] : set.options)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, value);
  return text;
}

std::string SetHtml(const ResultSet& set) {
  std::string html = fmt::format("<h2>{}</h2>\n", EscapeXml(set.title));
  html +=
      fmt::format("<p>Commit {}, {}; {}, {} cores, {:.0f} GiB, {}; load before {:.2f}.<br/>{}</p>\n",
                  EscapeXml(set.commit), EscapeXml(set.date), EscapeXml(set.machine.cpu),
                  set.machine.cores, static_cast<double>(set.machine.memory_bytes) / (1 << 30),
                  EscapeXml(set.machine.kernel), set.machine.load, EscapeXml(OptionsText(set)));
  for (const Table& table : set.tables) html += TableHtml(table);
  for (const Plot& plot : set.plots) html += ToSvg(plot);
  return html + PointsHtml(set);
}

}  // namespace

std::string ToHtml(const std::vector<ResultSet>& sets) {
  std::string html = kHead;
  for (const ResultSet& set : sets) html += SetHtml(set);
  return html + "</body></html>\n";
}

}  // namespace pando::bench
