#include "run/output/metrics_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <system_error>

#include "common/text.h"
#include "scheduler/evaluation/evaluation.h"

namespace pando {
namespace {

// A column that follows "step" in a step's row.
struct MetricsColumn {
  const char* name;
  double MetricsRow::*value;
  const char* format;
};
constexpr std::array<MetricsColumn, 12> kMetricsColumns{{
    {"epoch", &MetricsRow::epoch, "{:.6g}"},
    {"loss", &MetricsRow::loss, "{:.9g}"},
    {"accuracy", &MetricsRow::accuracy, "{:.9g}"},
    {"lr", &MetricsRow::lr, "{:.7g}"},
    {"images_per_second", &MetricsRow::images_per_second, "{:.6g}"},
    {"images_per_second_mean", &MetricsRow::images_per_second_mean, "{:.6g}"},
    {"elapsed_seconds", &MetricsRow::elapsed_seconds, "{:.3f}"},
    {"step_ms", &MetricsRow::step_ms, "{:.3f}"},
    {"data_stall_ms", &MetricsRow::data_stall_ms, "{:.3f}"},
    {"exposed_sync_ms", &MetricsRow::exposed_sync_ms, "{:.3f}"},
    {"gpu_memory_mb", &MetricsRow::gpu_memory_mb, "{:.1f}"},
    {"gpu_percent", &MetricsRow::gpu_percent, "{:.1f}"},
}};

std::string MetricsHeading(const EvaluationColumns& columns) {
  std::string heading = "step";
  for (const MetricsColumn& column : kMetricsColumns) heading.append(",").append(column.name);
  heading += fmt::format(",{0}_accuracy,{0}_loss", columns.evaluated_on);
  for (const EvaluationColumns::Mean& mean : columns.means)
    heading += fmt::format(",{}_{}", columns.evaluated_on, mean.name);
  for (const std::string& name : columns.logged) heading += "," + name;
  return heading;
}

// Reads numbers between commas; an empty cell becomes NaN. Returns the text after them, or none if
// a number is missing.
std::optional<std::string_view> ParseNumbers(std::string_view text,
                                             std::initializer_list<double*> numbers) {
  const char* at = text.data();
  const char* const last = at + text.size();
  for (double* number : numbers) {
    if (at != text.data() && (at == last || *at++ != ',')) return std::nullopt;
    *number = NAN;
    if (at == last || *at == ',') continue;
    const std::from_chars_result end = std::from_chars(at, last, *number);
    if (end.ec != std::errc{}) return std::nullopt;
    at = end.ptr;
  }
  return std::string_view(at, last);
}

// Parses a step's row. Returns none for the heading, an evaluation's row, and an incomplete row.
std::optional<MetricsRow> ParseStepRow(std::string_view text) {
  MetricsRow row;
  double step = 0;
  const auto rest = ParseNumbers(
      text, {&step, &row.epoch, &row.loss, &row.accuracy, &row.lr, &row.images_per_second,
             &row.images_per_second_mean, &row.elapsed_seconds, &row.step_ms, &row.data_stall_ms,
             &row.exposed_sync_ms, &row.gpu_memory_mb, &row.gpu_percent});
  const bool is_step = rest && rest->starts_with(",,") && !std::isnan(row.step_ms);
  row.step = is_step ? static_cast<uint64_t>(step) : 0;
  return is_step ? std::optional(row) : std::nullopt;
}

std::string Cell(double value, const char* format = "{:.9g}") {
  return std::isnan(value) ? "," : "," + fmt::format(fmt::runtime(format), value);
}

}  // namespace

EvaluationColumns EvaluationColumns::For(const Job& job) {
  EvaluationColumns columns{.evaluated_on = job.evaluated_on(), .logged = job.train_logs};
  const std::vector<std::string> names = MeanNames(job);
  for (size_t i = 0; i < names.size(); ++i) {
    if (job.eval_sums[i] != "loss_sum" && job.eval_sums[i] != "correct")
      columns.means.push_back({names[i], i});
  }
  return columns;
}

std::optional<MetricsRow> ReadNewestRow(const RunFolder& folder) {
  constexpr std::streamoff kTailBytes = 16 << 10;  // 100 rows and more, with evaluations among them
  std::ifstream file(folder.MetricsPath(), std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) return std::nullopt;
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  std::optional<MetricsRow> newest;
  // A torn last line is left out.
  for (std::string line; std::getline(file, line) && !file.eof();) {
    if (const std::optional<MetricsRow> row = ParseStepRow(line)) newest = row;
  }
  return newest;
}

Result<MetricsFile> MetricsFile::Create(const RunFolder& folder, const EvaluationColumns& columns) {
  PANDO_ASSIGN_OR_RETURN(RowFile file, RowFile::Create(folder.MetricsPath()));
  MetricsFile metrics(std::move(file), columns.means.size(), columns.logged.size());
  PANDO_RETURN_IF_ERROR(metrics.rows_.Append(MetricsHeading(columns) + "\n"));
  return metrics;
}

Result<MetricsFile> MetricsFile::Reopen(const RunFolder& folder, Last* last,
                                        const EvaluationColumns& columns) {
  const std::string path = folder.MetricsPath();
  const std::string heading = MetricsHeading(columns);
  std::ifstream before(path);
  std::string line;
  std::getline(before, line);
  const bool has_means = line != MetricsHeading({.evaluated_on = columns.evaluated_on});
  const auto comma_count = std::ranges::count(has_means ? heading : line, ',');
  const auto is_row = [&](std::string_view text) {
    return std::ranges::count(text, ',') == comma_count;
  };
  *last = {};
  while (std::getline(before, line) && !before.eof()) {  // a line without its end is torn
    if (const std::optional<MetricsRow> row = ParseStepRow(line)) {
      last->row = row;
    } else if (is_row(line)) {
      last->evaluated_step = ParseNumber<uint64_t>(line.substr(0, line.find(','))).value_or(0);
    }
  }
  std::string row;
  PANDO_ASSIGN_OR_RETURN(RowFile file, RowFile::Reopen(path, is_row, &row));
  MetricsFile metrics(std::move(file), has_means ? columns.means.size() : 0,
                      has_means ? columns.logged.size() : 0);
  if (row.empty()) (void)metrics.rows_.Append(heading + "\n");  // it may be held
  return metrics;
}

Status MetricsFile::Append(const MetricsRow& row) {
  std::string text = fmt::format("{}", row.step);
  for (const MetricsColumn& column : kMetricsColumns)
    text += Cell(row.*column.value, column.format);
  text += std::string(2 + mean_count_, ',');
  for (size_t i = 0; i < logged_count_; ++i)
    text += Cell(i < row.logged.size() ? row.logged[i] : NAN);
  return rows_.Append(text + "\n");
}

Status MetricsFile::Append(const EvaluationRow& row) {
  std::string text = fmt::format("{}", row.step);
  for (const MetricsColumn& column : kMetricsColumns) {
    text += ",";
    if (column.value == &MetricsRow::epoch) text += fmt::format("{:.6g}", row.epoch);
    if (column.value == &MetricsRow::elapsed_seconds)
      text += fmt::format("{:.3f}", row.elapsed_seconds);
  }
  text += Cell(row.test_accuracy) + Cell(row.test_loss);
  for (size_t i = 0; i < mean_count_; ++i) text += Cell(i < row.means.size() ? row.means[i] : NAN);
  return rows_.Append(text + std::string(logged_count_, ',') + "\n");
}

}  // namespace pando
