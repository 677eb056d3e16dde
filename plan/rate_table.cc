#include "plan/rate_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/check.h"
#include "common/text.h"

namespace pando {
namespace {

constexpr uint64_t kStepsMax = 1'000'000'000'000;  // as train.steps

}  // namespace

Result<RateTable> RateTable::Parse(const std::vector<std::string>& texts) {
  RateTable table;
  for (const std::string& text : texts) {
    const std::string_view whole = text;
    const size_t star = std::min(whole.find('*'), whole.size());
    const std::optional<double> rate = ParseNumber<double>(whole.substr(0, star));
    std::optional<uint64_t> count = 1;
    if (star < whole.size()) count = ParseNumber<uint64_t>(whole.substr(star + 1));
    const bool is_valid = rate && std::isfinite(*rate) && *rate >= 0 && count && *count > 0 &&
                          *count <= kStepsMax - table.step_count();
    if (!is_valid) {
      return InvalidArgument(
          fmt::format("schedule.rates[{}] is '{}', and must be a rate ≥ 0 of one step, as 0.05, or "
                      "of several, as 0.1*390, with at most 1e12 steps in all",
                      table.ends_.size(), Printable(text)));
    }
    table.ends_.push_back(table.step_count() + *count);
    table.rates_.push_back(*rate);
  }
  return table;
}

double RateTable::At(uint64_t step) const {
  PANDO_CHECK(!ends_.empty());
  const auto run = std::ranges::upper_bound(ends_, step) - ends_.begin();
  return rates_[std::min<size_t>(run, rates_.size() - 1)];
}

Status CheckRates(const ScheduleOptions& schedule, uint64_t step_count) {
  if (schedule.kind != ScheduleKind::kTable) return Status();
  PANDO_ASSIGN_OR_RETURN(const RateTable table, RateTable::Parse(schedule.rates));
  if (table.step_count() == step_count) return Status();
  return InvalidArgument(
      fmt::format("schedule.rates has the rates of {} steps, and the run has {} steps; give one "
                  "rate for each step, or another schedule.type",
                  table.step_count(), step_count));
}

}  // namespace pando
