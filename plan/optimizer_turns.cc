#include "plan/optimizer_turns.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "common/text.h"

namespace pando {
namespace {

using O = OptimizerOptions;
constexpr std::array<std::pair<std::string_view, double O::*>, 12> kNumbers{{
    {"lr", &O::lr},
    {"weight_decay", &O::weight_decay},
    {"momentum", &O::momentum},
    {"dampening", &O::dampening},
    {"beta1", &O::beta1},
    {"beta2", &O::beta2},
    {"eps", &O::eps},
    {"alpha", &O::alpha},
    {"rho", &O::rho},
    {"lr_decay", &O::lr_decay},
    {"initial_accumulator_value", &O::initial_accumulator_value},
    {"weight_clip", &O::weight_clip},
}};
constexpr std::array<std::pair<std::string_view, bool O::*>, 2> kFlags{{
    {"nesterov", &O::nesterov},
    {"centered", &O::centered},
}};

constexpr const char* kOptionsText =
    "options with their values of sgd, adam, adamw, rmsprop, adagrad or adadelta";

bool ReadOption(std::string_view name, std::string_view value, O* options) {
  if (name == "type") {
    const std::optional<OptimizerKind> kind = ParseEnum<OptimizerKind>(value);
    options->kind = kind.value_or(options->kind);
    return kind && kind != OptimizerKind::kLars && kind != OptimizerKind::kLamb &&
           kind != OptimizerKind::kNadam;
  }
  const std::optional<double> number = ParseNumber<double>(value);
  if (!number || !std::isfinite(*number) || *number < 0) return false;
  for (const auto& [key, member] : kNumbers) {
    if (key == name) options->*member = *number;
    if (key == name) return true;
  }
  const auto flag = std::ranges::find(kFlags, name, &std::pair<std::string_view, bool O::*>::first);
  if (flag != kFlags.end()) options->*(flag->second) = *number != 0;
  return flag != kFlags.end();
}

// Calls read(name, value) for each word NAME=VALUE, up to the first for which it returns false.
template <class Read>
bool ReadWords(std::string_view text, const Read& read) {
  while (!text.empty()) {
    const std::string_view option = text.substr(0, text.find(' '));
    const size_t at = std::min(option.find('='), option.size());
    if (!read(option.substr(0, at), option.substr(std::min(at + 1, option.size())))) return false;
    text.remove_prefix(std::min(option.size() + 1, text.size()));
  }
  return true;
}

bool ReadGroup(std::string_view text, O* options) {
  return ReadWords(text, [&](std::string_view name, std::string_view value) {
    return ReadOption(name, value, options);
  });
}

bool ReadInnerOption(std::string_view name, std::string_view value, InnerOptimizer* inner) {
  if (name == "warmup_steps") {
    const std::optional<uint64_t> steps = ParseNumber<uint64_t>(value);
    inner->schedule.warmup_steps = steps.value_or(0);
    return steps.has_value();
  }
  if (name != "end_factor") return ReadOption(name, value, &inner->options);
  const std::optional<double> factor = ParseNumber<double>(value);
  inner->schedule.end_factor = factor.value_or(0);
  return factor && *factor >= 0 && *factor <= 1;
}

}  // namespace

Result<OptimizerTurns> OptimizerTurns::Parse(const OptimizerOptions& options) {
  OptimizerTurns turns;
  O base = options;
  base.groups.clear();
  base.turns.clear();
  for (const std::string& text : options.groups) {
    if (!ReadGroup(text, &turns.groups_.emplace_back(base)))
      return InvalidArgument(
          fmt::format("optimizer.groups[{}] is '{}': expected {}, as \"type=adam beta1=0.5\"",
                      turns.groups_.size() - 1, Printable(text), kOptionsText));
  }
  if (options.groups.empty()) turns.groups_.push_back(base);
  for (const uint64_t group : options.turns) {
    if (group >= turns.groups_.size())
      return InvalidArgument(
          fmt::format("optimizer.turns has group {}, and optimizer.groups has {} groups; give the "
                      "place of one of them, from 0",
                      group, options.groups.size()));
    turns.turns_.push_back(static_cast<uint32_t>(group));
  }
  if (turns.groups_.size() > 1 && turns.turns_.empty())
    return InvalidArgument(
        "optimizer.groups needs optimizer.turns, as [0, 1]: the groups of steps");
  if (turns.turns_.empty()) turns.turns_.push_back(0);
  return turns;
}

// A linear schedule needs no cos or pow, so workers compute it as the scheduler would (P36).
Result<InnerOptimizer> ReadInner(const Job& job) {
  InnerOptimizer inner{.schedule = {.kind = ScheduleKind::kLinear, .end_factor = 1.0}};
  const auto read = [&](std::string_view name, std::string_view value) {
    return ReadInnerOption(name, value, &inner);
  };
  if (ReadWords(job.inner, read)) return inner;
  return InvalidArgument(
      fmt::format("train.inner is '{}': expected {}, and perhaps the steps of a linear warm-up and "
                  "the share of the rate, from 0 to 1, that is reached linearly at the end, as "
                  "\"type=adamw lr=0.001 warmup_steps=10 end_factor=0.1\"",
                  Printable(job.inner), kOptionsText));
}

OptimizerTurns::OptimizerTurns(const OptimizerOptions& options) {
  Result<OptimizerTurns> parsed = Parse(options);
  PANDO_CHECK(parsed.ok());
  *this = *std::move(parsed);
}

uint64_t OptimizerTurns::StepsBefore(Step step) const {
  const uint64_t rounds = step.value() / turns_.size();
  const auto place = static_cast<std::ptrdiff_t>(step.value() % turns_.size());
  const auto count = [&](auto end) {
    return static_cast<uint64_t>(std::count(turns_.begin(), end, GroupAt(step)));
  };
  return rounds * count(turns_.end()) + count(turns_.begin() + place);
}

}  // namespace pando
