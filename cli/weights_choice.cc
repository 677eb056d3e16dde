#include "cli/weights_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <cfloat>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/output.h"
#include "common/text.h"
#include "job/job_file.h"
#include "run/safetensors_file.h"
#include "run/safetensors_shards.h"
#include "run/summary.h"

namespace pando {
namespace {

// The metadata of a weights file; fields that it lacks are empty.
struct FileFacts {
  std::string model;
  std::string dataset;
  std::string input_shape;  // "28x28x1"
  SafetensorsMetadata all;
};

Result<FileFacts> ReadFacts(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(SafetensorsFile file,
                         SafetensorsFile::Open(path, SafetensorsFile::Types::kAll));
  const auto value = [&](const char* name) {
    const auto found = file.metadata().find(name);
    return found == file.metadata().end() ? "" : found->second;
  };
  return FileFacts{value("model"), value("dataset"), value("input_shape"), file.metadata()};
}

bool IsGiven(const JobSource& source, const std::string& key) {
  return std::ranges::find(source.overrides, key, &JobDraft::Override::key) !=
         source.overrides.end();
}

// Applies the file's metadata, which flags override.
void UseFacts(const FileFacts& facts, JobSource* source) {
  std::vector<JobDraft::Override> said;
  for (const auto& [text, key] :
       {std::pair(facts.model, "model.name"), std::pair(facts.dataset, "data.name")}) {
    if (!text.empty() && !IsGiven(*source, key))
      said.push_back({.key = key, .text = text, .where = "the file's metadata"});
  }
  source->overrides.insert(source->overrides.begin(), said.begin(), said.end());
}

// Returns whether the job may have made the file.
bool DoFit(const FileFacts& facts, const Job& job) {
  return (facts.model.empty() || facts.model == job.model) &&
         (facts.dataset.empty() || facts.dataset == job.dataset);
}

// Returns the job.toml in the file's folder, unless the file belongs to another job.
std::string JobPathBeside(const std::string& path, const FileFacts& facts) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(path).parent_path();
  const std::string beside = RunFolder::Open(folder.empty() ? "." : folder.string()).JobPath();
  std::error_code ignored;  // reading it reports the fault
  if (!fs::exists(beside, ignored)) return "";
  const Result<Job> job = ReadJobFile(beside);
  if (!job.ok() || DoFit(facts, *job)) return beside;
  Say("pando: {} is of {} on {}, as it says; {} is of {} on {}, and is not used\n", path,
      facts.model, facts.dataset, beside, job->model, job->dataset);
  return "";
}

// Returns the job that has the model and the data: the run's, the options', or the file's.
Result<Job> FindJob(const WeightsChoice& choice, bool is_folder, const FileFacts& facts) {
  JobSource source = choice.source;
  if (source.job_path.empty() && is_folder)
    source.job_path = RunFolder::Open(choice.path).JobPath();
  if (source.job_path.empty()) source.job_path = JobPathBeside(choice.path, facts);
  if (source.job_path.empty()) {
    UseFacts(facts, &source);
    if (!IsGiven(source, "data.name"))
      return InvalidArgument(
          fmt::format("{} does not say on which data set it is to be measured: give --dataset (and "
                      "--model), or --job",
                      choice.path));
  }
  PANDO_ASSIGN_OR_RETURN(Job job, ResolveJob(source));
  if (!DoFit(facts, job))
    Say("pando: {} says it is of {} on {}; it is measured as {} on {}, as you ask\n", choice.path,
        facts.model, facts.dataset, job.model, job.dataset);
  return job;
}

// Opens the job with pictures of the network's size, unless a flag sets another one.
Result<OpenedJob> OpenWithShape(const WeightsChoice& choice, Job job, const FileFacts& facts) {
  PANDO_ASSIGN_OR_RETURN(OpenedJob opened, OpenedJob::Open(job));
  const std::string found = MakeSummary(opened.plan).input_shape;
  if (facts.input_shape.empty() || facts.input_shape == found) return opened;
  const auto side = ParseNumber<uint32_t>(facts.input_shape.substr(0, facts.input_shape.find('x')));
  if (IsGiven(choice.source, "data.resize") ||
      (!choice.source.job_path.empty() && job.resize != 0)) {
    Say("pando: {} was trained with inputs of {}; it is measured with {}, as you ask\n",
        choice.path, facts.input_shape, found);
    return opened;
  }
  const bool is_square =
      side && facts.input_shape.starts_with(fmt::format("{0}x{0}x", *side)) && *side > 1;
  if (is_square) {
    job.resize = *side;
    PANDO_ASSIGN_OR_RETURN(OpenedJob resized, OpenedJob::Open(job));
    if (MakeSummary(resized.plan).input_shape == facts.input_shape) return resized;
  }
  return InvalidArgument(
      fmt::format("{} was trained with inputs of {}, and {} has inputs of {} here; give the data "
                  "and --resize of its job",
                  choice.path, facts.input_shape, job.dataset, found));
}

// Reads how a sample becomes an input, as WeightsMetadata wrote it; none if the file lacks it.
Result<std::optional<DataFacts>> ReadInputs(const WeightsChoice& choice, const FileFacts& facts) {
  const auto read = [&](const char* key, auto* list) {
    const auto text = facts.all.find(key);
    if (text != facts.all.end()) nlohmann::json::parse(text->second).get_to(*list);
  };
  Preprocessing inputs;
  try {
    read("input_mean", &inputs.mean);
    read("input_deviation", &inputs.deviation);
    read("input_columns", &inputs.columns);
    read("class_names", &inputs.class_names);
  } catch (const nlohmann::json::exception& error) {
    return Corrupt(fmt::format("{}: its metadata hold no list where docs/data.md has one: {}",
                               choice.path, error.what()));
  }
  if (facts.input_shape.empty() || inputs.mean.empty() || inputs.class_names.empty())
    return std::optional<DataFacts>();
  PANDO_ASSIGN_OR_RETURN(const SampleShape shape,
                         ParseShape(choice.path + ": its metadata input_shape", facts.input_shape));
  const size_t columns = inputs.columns.size();
  if (inputs.mean.size() != shape.channels || inputs.deviation.size() != shape.channels ||
      (columns != 0 && (columns != shape.size() || columns != shape.channels))) {
    return Corrupt(fmt::format(
        "{}: its metadata have {} means, {} deviations and {} columns for "
        "inputs of {}, expected one of each channel or column",
        choice.path, inputs.mean.size(), inputs.deviation.size(), columns, facts.input_shape));
  }
  const double least = columns == 0 ? FLT_MIN : DBL_MIN;  // floats divide a picture's channels
  if (std::ranges::min(inputs.deviation) < least)
    return Corrupt(fmt::format("{}: its metadata input_deviation {}: expected numbers above 0",
                               choice.path, facts.all.at("input_deviation")));
  const auto class_count = static_cast<uint32_t>(inputs.class_names.size());
  return std::optional(
      DataFacts{.shape = shape, .class_count = class_count, .preprocessing = std::move(inputs)});
}

// Returns whether a flag names the training data, or how they became inputs.
bool NamesData(const JobDraft::Override& flag) {
  return flag.key.starts_with("data.") && flag.key != "data.name" && flag.key != "data.missing";
}

Result<OpenedJob> OpenChosen(const WeightsChoice& choice, const Job& job, const FileFacts& facts,
                             DataUse use) {
  if (use == DataUse::kNeeded || std::ranges::any_of(choice.source.overrides, NamesData))
    return OpenWithShape(choice, job, facts);
  PANDO_ASSIGN_OR_RETURN(const std::optional<DataFacts> inputs, ReadInputs(choice, facts));
  if (!inputs) return OpenWithShape(choice, job, facts);
  PANDO_ASSIGN_OR_RETURN(Model model, Model::Create(job, inputs->shape, inputs->class_count));
  JobPlan plan(job, *inputs, model.layout());
  return OpenedJob{nullptr, std::move(model), std::move(plan), {}};
}

Result<RunWeights> ReadChosen(const WeightsChoice& choice, bool is_folder, const JobPlan& plan) {
  if (is_folder) return ReadVersion(RunFolder::Open(choice.path), plan, choice.version);
  Result<FloatBuffer> flat = ReadWeights(choice.path, plan.layout);
  if (flat.status().code() == StatusCode::kInvalidArgument) {
    return InvalidArgument(fmt::format("{} ({}); if it is of another job, give that with --job",
                                       flat.status().message(), plan.job.model));
  }
  if (!flat.ok()) return flat.status();
  return RunWeights{choice.path, Version(0), *std::move(flat)};
}

// Returns whether the path is a readable folder that has a run, or no files of Hugging Face.
bool IsFolder(const std::string& path) {
  std::error_code ignored;
  const bool has_run = std::filesystem::exists(RunFolder::Open(path).JobPath(), ignored);
  return std::filesystem::is_directory(path, ignored) && (has_run || FindWeightsFile(path) == path);
}

}  // namespace

void AddVersionChoice(CLI::App& command, VersionChoice* choice) {
  const Flag step =
      AddOption(command, "--step N", &choice->step, "the snapshot of this step of the run");
  const Flag average =
      AddFlag(command, "--ema", &choice->is_averaged,
              "the average of the weights (optimizer.ema_decay) in the run's newest snapshot");
  AddFlag(command, "--best", &choice->is_best,
          "the version of the run's best accuracy (snapshot.best = true)")
      .Excludes(step)
      .Excludes(average);
}

Result<RunWeights> ReadVersion(const RunFolder& folder, const JobPlan& plan,
                               const VersionChoice& choice) {
  if (choice.is_best) return ReadBestWeights(folder, plan);
  if (choice.is_averaged) return ReadAveragedWeights(folder, plan, choice.step);
  return ReadRunWeights(folder, plan, choice.step);
}

void AddWeightsChoice(CLI::App& command, WeightsChoice* choice) {
  AddOption(command, "WEIGHTS RUN_DIR|FILE", &choice->path,
            "a run's folder, or a safetensors file; its model and data are those of --job, of "
            "the job.toml beside it, or of the flags and the file's metadata")
      .Required();
  AddOption(command, "--job JOB.toml", &choice->source.job_path,
            "the job file that says model and data");
  AddModelOptions(command, &choice->source);
  AddVersionChoice(command, &choice->version);
}

Result<ChosenWeights> OpenWeights(const WeightsChoice& choice, DataUse use) {
  const bool is_folder = IsFolder(choice.path);
  if (const char* flag = choice.version.flag(); !is_folder && flag != nullptr) {
    return InvalidArgument(fmt::format(
        "{} chooses from the snapshots of a run folder, and {} is none", flag, choice.path));
  }
  FileFacts facts;
  if (!is_folder) {
    PANDO_ASSIGN_OR_RETURN(facts, ReadFacts(choice.path));
  }
  PANDO_ASSIGN_OR_RETURN(Job job, FindJob(choice, is_folder, facts));
  PANDO_ASSIGN_OR_RETURN(OpenedJob opened, OpenChosen(choice, job, facts, use));
  PANDO_ASSIGN_OR_RETURN(RunWeights weights, ReadChosen(choice, is_folder, opened.plan));
  return ChosenWeights{std::move(opened), std::move(weights)};
}

}  // namespace pando
