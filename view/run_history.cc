#include "view/run_history.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

namespace pando {
namespace {

using Json = nlohmann::json;

constexpr size_t kCells = kStepCells + 2;  // and those of an evaluation: accuracy and loss

// Empty cells are NaN. Returns nothing if the text is no row.
std::optional<std::array<double, kCells>> ParseCells(std::string_view text) {
  std::array<double, kCells> cells;
  for (size_t i = 0; i < kCells; ++i) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view cell = text.substr(0, end);
    cells[i] = NAN;
    if (!cell.empty()) {
      const auto parsed = std::from_chars(cell.data(), cell.data() + cell.size(), cells[i]);
      if (parsed.ec != std::errc{} || parsed.ptr != cell.data() + cell.size()) return std::nullopt;
    }
    const bool is_last = i + 1 == kCells;
    if (is_last != (end == text.size())) return std::nullopt;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return cells;
}

// JSON has no NaN and no infinity: a loss that is none becomes null.
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

// Evenly chosen ones, the last among them.
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
  const auto cells = ParseCells(text);
  if (!cells || std::isnan((*cells)[kCellStep])) return {};
  const double accuracy = (*cells)[kStepCells], loss = (*cells)[kStepCells + 1];
  if (!std::isnan((*cells)[kCellStepMs])) {
    StepRow row;
    std::copy_n(cells->begin(), row.size(), row.begin());
    return {.step = row, .evaluation = {}};
  }
  return {.step = {},
          .evaluation = EvaluatedRow{(*cells)[kCellStep], (*cells)[kCellEpoch],
                                     (*cells)[kCellElapsed], accuracy, loss}};
}

void RunHistory::Add(const CsvRow& row) {
  if (row.step) rows_.Add(*row.step);
  if (row.evaluation) evaluations_.Add(*row.evaluation);
}

void RunHistory::AddEvent(Json event) {
  if (events_.size() == kEventsMax) events_.pop_front();
  events_.push_back(std::move(event));
  ++event_count_;
}

void RunHistory::Tell(Mark* mark, Json* update) const {
  TellRows(rows_, "rows", &mark->rows, update);
  TellRows(evaluations_, "evaluations", &mark->evaluations, update);
  if (event_count_ > mark->events) {
    const uint64_t unread = std::min<uint64_t>(event_count_ - mark->events, events_.size());
    (*update)["events"] =
        std::vector<Json>(events_.end() - static_cast<ptrdiff_t>(unread), events_.end());
  }
  mark->events = event_count_;
}

}  // namespace pando
