#include "run/initial_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/text.h"
#include "files/folder_files.h"
#include "plan/tensor_init.h"
#include "run/run_weights.h"
#include "run/safetensors_file.h"

namespace pando {
namespace {

constexpr const char* kFileName = "init.safetensors";

// Returns why the file's tensor does not fit the model; empty if it fits.
std::string Misfit(const SafetensorsFile& file, const TensorSpec& spec) {
  const auto tensor = file.tensors().find(spec.name);
  if (tensor == file.tensors().end()) return spec.name + " (not in the file)";
  const std::string& dtype = tensor->second.dtype;
  if (dtype != "F32" && dtype != "F16" && dtype != "BF16")
    return fmt::format("{} ({} in the file, expected F32, F16 or BF16)", spec.name, dtype);
  if (tensor->second.shape == spec.shape) return "";
  return fmt::format("{} ([{}] in the file, [{}] in the model)", spec.name,
                     Joined(tensor->second.shape), Joined(spec.shape));
}

std::vector<std::string> UnknownTensors(const SafetensorsFile& file, const TensorLayout& layout) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool is_known = layout.Find(name) != layout.tensor_count();
    if (!is_known && !IsBatchCount(name)) names.push_back(name);
  }
  return names;
}

std::string JoinedFirst(std::vector<std::string> names) {
  constexpr size_t kNamesMax = 5;
  if (names.size() <= kNamesMax) return Joined(names);
  const size_t more = names.size() - kNamesMax;
  names.resize(kNamesMax);
  return fmt::format("{} and {} more", Joined(names), more);
}

// Returns the prefix that DataParallel or Lightning puts before all names ("module."), or "".
std::string WrapperPrefix(const std::vector<std::string>& names, const TensorLayout& layout) {
  if (names.empty()) return "";
  const std::string prefix = names[0].substr(0, names[0].find('.') + 1);
  const bool is_wrapper = !prefix.empty() && std::ranges::all_of(names, [&](const auto& name) {
    return name.starts_with(prefix) &&
           layout.Find(name.substr(prefix.size())) != layout.tensor_count();
  });
  return is_wrapper ? prefix : "";
}

}  // namespace

Result<InitialWeights> LoadInitialWeights(const Job& job, const TensorLayout& layout) {
  PANDO_ASSIGN_OR_RETURN(SafetensorsFile file,
                         SafetensorsFile::Open(job.init, SafetensorsFile::Types::kAll));
  InitialWeights weights{.flat = FloatBuffer(layout.float_count())};
  InitRange(layout, job.seed, {0, layout.float_count()}, weights.flat.span());
  size_t read_count = 0;
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const TensorSpec& spec = layout.specs()[i];
    if (spec.kind == TensorKind::kMetric) continue;
    if (std::string misfit = Misfit(file, spec); !misfit.empty()) {
      weights.drawn.push_back(std::move(misfit));
      continue;
    }
    const std::span<float> values = weights.flat.span().subspan(layout.offset(i), spec.size());
    PANDO_RETURN_IF_ERROR(file.Read(file.tensors().at(spec.name), values));
    ++read_count;
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
      return InvalidArgument(
          fmt::format("{}: tensor '{}' has a value that is not finite", job.init, spec.name));
    }
  }
  const std::vector<std::string> unknown = UnknownTensors(file, layout);
  const bool fits = weights.drawn.empty() && unknown.empty();
  if (!fits && (!job.init_partial || read_count == 0)) {
    std::string text = fmt::format("{} does not fit {}", job.init, job.model);
    if (!weights.drawn.empty()) text += ": " + JoinedFirst(weights.drawn);
    if (!unknown.empty()) text += "; the model has no " + JoinedFirst(unknown);
    if (const std::string prefix = WrapperPrefix(unknown, layout); !prefix.empty())
      text += fmt::format(
          "; without '{0}' before them they fit: save the model in the wrapper "
          "(model.{0}state_dict())",
          prefix);
    if (read_count > 0)
      text += "; --init-partial true takes what fits, and draws the rest from the seed";
    return InvalidArgument(text);
  }
  weights.hash = WeightsHash(layout, std::as_const(weights.flat).span());
  if (fits) PANDO_RETURN_IF_ERROR(CheckWeightsHash(file, weights.hash));
  weights.unused = unknown;
  return weights;
}

Status KeepInitialWeights(const InitialWeights& weights, const RunFolder& folder,
                          const JobPlan& plan) {
  return WriteWeights(folder.path() + "/" + kFileName, plan.layout, weights.flat.span(),
                      WeightsMetadata(plan, Version(0)));
}

Result<std::shared_ptr<const FloatBuffer>> ReadInitialWeights(RunFiles& run_folder, const Job& job,
                                                              const TensorLayout& layout) {
  if (job.init_hash.empty()) return std::shared_ptr<const FloatBuffer>();
  PANDO_ASSIGN_OR_RETURN(
      const SafetensorsFile file,
      SafetensorsFile::Open(run_folder, kFileName, SafetensorsFile::Types::kAll));
  PANDO_ASSIGN_OR_RETURN(FloatBuffer flat, ReadWeights(file, layout));
  const std::string hash = WeightsHash(layout, std::as_const(flat).span());
  if (hash != job.init_hash) {
    return Corrupt(fmt::format("{}: has the hash {}, and the job starts from weights with {}",
                               file.path(), hash, job.init_hash));
  }
  return std::make_shared<const FloatBuffer>(std::move(flat));
}

Result<std::shared_ptr<const FloatBuffer>> ReadInitialWeights(const std::string& run_dir,
                                                              const Job& job,
                                                              const TensorLayout& layout) {
  FolderFiles folder(run_dir);
  return ReadInitialWeights(folder, job, layout);
}

}  // namespace pando
