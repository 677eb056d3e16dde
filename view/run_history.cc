#include "view/run_history.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <utility>

namespace pando {
namespace {

using Json = nlohmann::json;

constexpr size_t kCells = kStepCells + 2;  // and those of an evaluation: accuracy and loss
constexpr size_t kCellsMax = kCells + 64;  // and the means of a program's sums

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> cells;
  while (cells.size() <= kCellsMax) {
    const size_t end = std::min(text.find(','), text.size());
    cells.push_back(text.substr(0, end));
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
  }
  return cells;
}

// Parses the cells of a row; empty ones become NaN. Returns none if the text is not a row.
std::optional<std::vector<double>> ParseCells(const std::vector<std::string_view>& texts) {
  if (texts.size() < kCells || texts.size() > kCellsMax) return std::nullopt;
  std::vector<double> cells;
  for (const std::string_view text : texts) {
    double& cell = cells.emplace_back(NAN);
    if (text.empty()) continue;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), cell);
    if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) return std::nullopt;
  }
  return cells;
}

// Returns the means' names. The heading puts the samples before each name: "test_loss".
std::vector<std::string> MeanNames(const std::vector<std::string_view>& heading) {
  std::vector<std::string> names;
  for (const std::string_view name : std::span(heading).subspan(kCells))
    names.emplace_back(name.substr(name.find('_') + 1));
  return names;
}

// Returns null for a value that is not finite, because JSON has no NaN and no infinity.
Json CellJson(double cell) { return std::isfinite(cell) ? Json(cell) : Json(); }

Json RowJson(const StepRow& row) {
  Json cells = Json::array();
  for (const StepCell cell : kPageCells) cells.push_back(CellJson(row[cell]));
  return cells;
}

Json RowJson(const EvaluatedRow& row) {
  Json cells = Json::array();
  for (const double cell : row) cells.push_back(CellJson(cell));
  return cells;
}

template <class Rows>
Json RowsJson(const Rows& rows) {
  Json list = Json::array();
  for (const auto& row : rows) list.push_back(RowJson(row));
  return list;
}

// Returns evenly chosen rows, with the last one among them.
template <class Row>
std::vector<Row> Chosen(const std::vector<Row>& rows, size_t count_max) {
  if (rows.size() <= count_max) return rows;
  std::vector<Row> chosen;
  for (size_t i = 1; i <= count_max; ++i) chosen.push_back(rows[i * rows.size() / count_max - 1]);
  return chosen;
}

template <class Row>
void TellRows(const Thinned<Row>& rows, const char* key, uint64_t* mark, Json* update) {
  const size_t count_max = *mark == 0 ? RunHistory::kRowsMax + 1 : RunHistory::kNewRowsMax;
  if (rows.count() > *mark) (*update)[key] = RowsJson(Chosen(rows.Since(*mark), count_max));
  *mark = rows.count();
}

}  // namespace

CsvRow ParseCsvRow(std::string_view text) {
  const std::vector<std::string_view> texts = Split(text);
  if (texts.size() >= kCells && texts.size() <= kCellsMax && texts[0] == kStepColumns[0])
    return {.step = {}, .evaluation = {}, .means = MeanNames(texts)};
  const auto cells = ParseCells(texts);
  if (!cells || std::isnan((*cells)[kCellStep])) return {};
  if (!std::isnan((*cells)[kCellStepMs])) {
    StepRow row;
    std::copy_n(cells->begin(), row.size(), row.begin());
    return {.step = row, .evaluation = {}, .means = {}};
  }
  EvaluatedRow row{(*cells)[kCellStep], (*cells)[kCellEpoch], (*cells)[kCellElapsed]};
  row.insert(row.end(), cells->begin() + kStepCells, cells->end());
  return {.step = {}, .evaluation = row, .means = {}};
}

void RunHistory::Add(const CsvRow& row) {
  if (row.step) rows_.Add(*row.step);
  if (row.evaluation) evaluations_.Add(*row.evaluation);
  if (row.means) means_ = *row.means;
}

void RunHistory::AddEvent(Json event) {
  if (events_.size() == kEventsMax) events_.pop_front();
  events_.push_back(std::move(event));
  ++event_count_;
}

void RunHistory::Tell(Mark* mark, Json* update) const {
  TellRows(rows_, "rows", &mark->rows, update);
  TellRows(evaluations_, "evaluations", &mark->evaluations, update);
  if (update->contains("evaluations")) (*update)["means"] = means_;
  if (event_count_ > mark->events) {
    const uint64_t unread = std::min<uint64_t>(event_count_ - mark->events, events_.size());
    (*update)["events"] =
        std::vector<Json>(events_.end() - static_cast<ptrdiff_t>(unread), events_.end());
  }
  mark->events = event_count_;
}

}  // namespace pando
