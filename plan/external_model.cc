#include "plan/external_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/text.h"
#include "plan/optimizer_turns.h"
#include "plan/rate_table.h"

namespace pando {
namespace {

constexpr size_t kDimensionsMax = 16;
constexpr uint32_t kGroupMax = 1000;
constexpr uint64_t kElementsMax = uint64_t{1} << 36;  // of a model: 256 GiB
constexpr const char* kForm = "expected NAME [EXTENT,...], as \"conv1.weight [64,3,7,7]\"";

// Reads a shape such as "[64,3]"; "[]" is a scalar.
bool ReadShape(std::string_view text, std::vector<uint64_t>* shape) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return false;
  uint64_t elements = 1;
  for (std::string_view part : SplitText(text.substr(1, text.size() - 2), ',')) {
    const std::optional<uint64_t> extent = ParseNumber<uint64_t>(part);
    if (!extent || *extent == 0 || *extent > kElementsMax / elements) return false;
    elements *= *extent;
    shape->push_back(*extent);
  }
  return shape->size() <= kDimensionsMax;
}

bool ReadOption(std::string_view text, TensorSpec* spec) {
  const size_t at = std::min(text.find('='), text.size());
  const std::string_view name = text.substr(0, at);
  const std::optional<double> value =
      ParseNumber<double>(text.substr(std::min(at + 1, text.size())));
  if (!value || !std::isfinite(*value) || *value < 0) return false;
  if (name == "lr") {
    spec->lr_factor = *value;
  } else if (name == "decay") {
    spec->weight_decay = *value;
  } else if (name == "group" && *value <= kGroupMax && *value == std::floor(*value)) {
    spec->group = static_cast<uint32_t>(*value);
  } else if (name == "statistic" && *value <= 1) {
    spec->kind = TensorKind::kStatistic;
    spec->momentum = static_cast<float>(*value);
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string TensorText(const TensorSpec& spec) {
  std::string text = fmt::format("{} [{}]", spec.name, fmt::join(spec.shape, ","));
  if (spec.kind == TensorKind::kStatistic) text += fmt::format(" statistic={}", spec.momentum);
  if (spec.lr_factor != 1) text += fmt::format(" lr={}", spec.lr_factor);
  if (spec.group != 0) text += fmt::format(" group={}", spec.group);
  if (spec.weight_decay >= 0) text += fmt::format(" decay={}", spec.weight_decay);
  return text;
}

Result<TensorSpec> ParseTensor(std::string_view text) {
  const std::vector<std::string_view> parts = SplitText(text, ' ');
  TensorSpec spec;
  bool is_valid = parts.size() >= 2 && !parts[0].empty() && ReadShape(parts[1], &spec.shape);
  for (size_t i = 2; is_valid && i < parts.size(); ++i) is_valid = ReadOption(parts[i], &spec);
  if (!is_valid)
    return InvalidArgument(fmt::format("tensor '{}': {}", Printable(std::string(text)), kForm));
  spec.name = std::string(parts[0]);
  return spec;
}

Result<TensorLayout> ExternalLayout(const Job& job) {
  std::vector<TensorSpec> specs;
  std::set<std::string> names{kMetricTensorName};
  uint64_t elements = 0;
  for (const std::string& text : job.tensors) {
    PANDO_ASSIGN_OR_RETURN(TensorSpec spec, ParseTensor(text));
    if (!names.insert(spec.name).second) {
      return InvalidArgument(
          fmt::format("model.tensors has '{}' twice, or it is a reserved name", spec.name));
    }
    elements += spec.size();
    specs.push_back(std::move(spec));
    if (elements > kElementsMax)
      return InvalidArgument(fmt::format("model.tensors has more than {} elements", kElementsMax));
  }
  specs.push_back(MetricTensorSpec(job.train_logs.size()));
  return TensorLayout(std::move(specs));
}

Result<JobPlan> ExternalPlan(const Job& job) {
  PANDO_ASSIGN_OR_RETURN(TensorLayout layout, ExternalLayout(job));
  const bool has_groups = std::ranges::any_of(layout.specs(), [](const TensorSpec& spec) {
    return spec.lr_factor != 1 || spec.weight_decay >= 0;
  });
  const OptimizerKind kind = job.optimizer.kind;
  if (has_groups && (kind == OptimizerKind::kLars || kind == OptimizerKind::kLamb)) {
    return InvalidArgument(
        fmt::format("parameter groups with their own rate or decay do not go with optimizer.type = "
                    "\"{}\": use sgd, adam or adamw, or one group",
                    EnumName(kind)));
  }
  PANDO_ASSIGN_OR_RETURN(const OptimizerTurns turns, OptimizerTurns::Parse(job.optimizer));
  for (const TensorSpec& spec : layout.specs()) {
    if (spec.group >= turns.groups().size())
      return InvalidArgument(fmt::format("{} is in group {}, and optimizer.groups has {} groups",
                                         spec.name, spec.group, turns.groups().size()));
  }
  const DataFacts facts{.train_samples = job.synthetic_train_samples,
                        .test_samples = job.synthetic_test_samples};
  JobPlan plan(job, facts, std::move(layout));
  PANDO_RETURN_IF_ERROR(CheckRates(job.schedule, plan.steps.step_count()));
  return plan;
}

std::string TensorDifference(const Job& here, const Job& run) {
  for (size_t i = 0; i < std::min(here.tensors.size(), run.tensors.size()); ++i) {
    if (here.tensors[i] != run.tensors[i])
      return fmt::format("tensor {} is {} here, and {} in the run", i, here.tensors[i],
                         run.tensors[i]);
  }
  if (here.tensors.size() == run.tensors.size()) return "";
  return fmt::format("the model has {} tensors here, and {} in the run", here.tensors.size(),
                     run.tensors.size());
}

std::string ConstantDifference(const Job& here, const Job& run) {
  const auto [ours, theirs] = std::ranges::mismatch(here.constants, run.constants);
  if (ours == here.constants.end() && theirs == run.constants.end()) return "";
  const std::string& text = ours != here.constants.end() ? *ours : *theirs;
  return fmt::format(
      "the frozen parameter or buffer {} has other values here than in the run; call pando.seed "
      "before the model is built, or load the same weights",
      text.substr(0, text.rfind(' ')));
}

}  // namespace pando
