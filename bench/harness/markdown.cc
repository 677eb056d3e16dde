#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/harness/units.h"
#include "bench/harness/writers.h"

namespace pando::bench {
namespace {

// A cell cannot hold a bar or an end of line.
std::string Cell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c == '\n' ? ' ' : c;
  }
  return cell;
}

std::string Row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += fmt::format(" {} |", Cell(cell));
  return row + "\n";
}

std::string TableText(const Table& table) {
  std::string text = fmt::format("## {}\n\n{}", table.title, Row(table.header));
  text += "|";
  for (size_t i = 0; i < table.header.size(); ++i) text += "---|";
  text += "\n";
  for (const std::vector<std::string>& row : table.rows) text += Row(row);
  return text + (table.note.empty() ? "\n" : fmt::format("\n{}\n\n", table.note));
}

Table PointsTable(const ResultSet& set) {
  Table table{.title = "Every point",
              .note = "",
              .header = {"point", "metric", "unit", "samples", "min", "p50", "p99", "max"},
              .rows = {}};
  bool has_mark = false;
  for (const Point& point : set.points) {
    has_mark |= point.is_oversubscribed;
    for (const Measurement& m : point.measurements) {
      const Statistics s = StatisticsOf(m.samples);
      table.rows.push_back({point.name + (point.is_oversubscribed ? " *" : ""), m.metric, m.unit,
                            fmt::format("{}", s.count), NumberText(s.min), NumberText(s.p50),
                            NumberText(s.p99), NumberText(s.max)});
    }
  }
  if (has_mark)
    table.note = fmt::format("\\* more processes at work than the {} cores", set.machine.cores);
  return table;
}

}  // namespace

std::string NumberText(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  if (size >= 1000) {
    std::string text = fmt::format("{:.0f}", value);
    for (size_t i = text.size(); i > (value < 0 ? 4u : 3u);) text.insert(i -= 3, ",");
    return text;
  }
  const int decimals = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string ToMarkdown(const ResultSet& set) {
  std::string text = fmt::format("# {}\n\n", set.title);
  text += fmt::format("Commit {}, {}; {}, {} cores, {:.0f} GiB, {}; load before {:.2f}.\n\n",
                      set.commit, set.date, set.machine.cpu, set.machine.cores,
                      static_cast<double>(set.machine.memory_bytes) / (1 << 30), set.machine.kernel,
                      set.machine.load);
  std::string options;
  for (const auto& [key, value] : set.options)
    options += fmt::format("{}{} {}", options.empty() ? "" : ", ", key, value);
  if (!options.empty()) text += fmt::format("Options: {}.\n\n", options);
  for (const Table& table : set.tables) text += TableText(table);
  for (const Plot& plot : set.plots)
    text += fmt::format("![{}]({}.svg)\n\n", plot.title, plot.name);
  return text + TableText(PointsTable(set));
}

}  // namespace pando::bench
