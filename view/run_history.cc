#include "view/run_history.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <utility>

namespace pando {
namespace {

using Json = nlohmann::json;

constexpr size_t kCells = kStepCells + 2;   // and those of an evaluation: accuracy and loss
constexpr size_t kCellsMax = kCells + 128;  // and the means of a program's sums, and what it logs

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

// The heading puts the samples before each name of an evaluation: "test_loss".
ColumnNames NamesIn(const std::vector<std::string_view>& heading) {
  const std::string_view first = heading[kStepCells];
  const std::string_view samples = first.substr(0, first.find('_') + 1);
  ColumnNames names;
  for (const std::string_view name : std::span(heading).subspan(kCells)) {
    name.starts_with(samples) ? names.means.emplace_back(name.substr(samples.size()))
                              : names.logged.emplace_back(name);
  }
  return names;
}

// Returns null for a value that is not finite, because JSON has no NaN and no infinity.
Json CellJson(double cell) { return std::isfinite(cell) ? Json(cell) : Json(); }

Json RowJson(const StepRow& row) {
  Json cells = Json::array();
  for (const StepCell cell : kPageCells) cells.push_back(CellJson(row[cell]));
  for (const double cell : row.logged) cells.push_back(CellJson(cell));
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

CsvRow ParseCsvRow(std::string_view text, size_t logged_count) {
  const std::vector<std::string_view> texts = Split(text);
  if (texts.size() >= kCells && texts.size() <= kCellsMax && texts[0] == kStepColumns[0])
    return {.step = {}, .evaluation = {}, .names = NamesIn(texts)};
  const auto cells = ParseCells(texts);
  if (!cells || std::isnan((*cells)[kCellStep]) || cells->size() < kCells + logged_count) return {};
  const auto logged = cells->end() - static_cast<ptrdiff_t>(logged_count);
  if (!std::isnan((*cells)[kCellStepMs])) {
    StepRow row;
    std::copy_n(cells->begin(), row.size(), row.begin());
    row.logged.assign(logged, cells->end());
    return {.step = row, .evaluation = {}, .names = {}};
  }
  EvaluatedRow row{(*cells)[kCellStep], (*cells)[kCellEpoch], (*cells)[kCellElapsed]};
  row.insert(row.end(), cells->begin() + kStepCells, logged);
  return {.step = {}, .evaluation = row, .names = {}};
}

void RunHistory::Add(const CsvRow& row) {
  if (row.step) rows_.Add(*row.step);
  if (row.evaluation) evaluations_.Add(*row.evaluation);
  if (row.names) names_ = *row.names;
}

void RunHistory::AddEvent(Json event) {
  if (events_.size() == kEventsMax) events_.pop_front();
  events_.push_back(std::move(event));
  ++event_count_;
}

void RunHistory::Tell(Mark* mark, Json* update) const {
  TellRows(rows_, "rows", &mark->rows, update);
  TellRows(evaluations_, "evaluations", &mark->evaluations, update);
  if (update->contains("evaluations")) (*update)["means"] = names_.means;
  if (update->contains("rows")) (*update)["logged"] = names_.logged;
  if (event_count_ > mark->events) {
    const uint64_t unread = std::min<uint64_t>(event_count_ - mark->events, events_.size());
    (*update)["events"] =
        std::vector<Json>(events_.end() - static_cast<ptrdiff_t>(unread), events_.end());
  }
  mark->events = event_count_;
}

}  // namespace pando
