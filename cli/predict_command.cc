// `pando predict`: computes labels and probabilities for samples without labels.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/weights_choice.h"
#include "common/atomic_file.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "common/system.h"
#include "data/unlabelled.h"
#include "job/device_choice.h"
#include "node/log.h"
#include "train/evaluation_pass.h"

namespace pando {
namespace {

struct PredictOptions {
  WeightsChoice weights;
  std::vector<std::string> inputs;
  std::string output;  // empty: standard output
  bool is_inverted = false;
};

// Puts a field in quotes if a reader would otherwise split or cut it.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(", \t\r\n\"") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? std::string("\"\"") : std::string(1, c);
  return field + '"';
}

std::string HeaderRow(const std::vector<std::string>& class_names) {
  std::string row = "sample,label";
  for (const std::string& name : class_names) row += "," + CsvField(name);
  return row + "\n";
}

// Computes the softmax of a network's outputs, in double.
std::vector<double> Probabilities(std::span<const float> outputs) {
  const double largest = *std::ranges::max_element(outputs);
  std::vector<double> shares;
  double sum = 0;
  for (const float output : outputs) sum += shares.emplace_back(std::exp(output - largest));
  for (double& share : shares) share /= sum;
  return shares;
}

// Makes a sample's row. kInternal: an output is NaN.
Result<std::string> SampleRow(const std::string& name, const std::string& label,
                              std::span<const float> outputs) {
  std::string row = CsvField(name) + "," + CsvField(label);
  for (const double share : Probabilities(outputs)) {
    if (!std::isfinite(share)) {
      return Internal(
          fmt::format("{}: the network's output is not finite: training has diverged", name));
    }
    row += fmt::format(",{:.6g}", share);
  }
  return row + "\n";
}

// Computes the predictions chunk by chunk, and writes the rows of each chunk.
Status PredictAll(const ChosenWeights& chosen, const UnlabelledSamples& samples, Device device,
                  const std::function<Status(const std::string&)>& write) {
  const std::vector<std::string>& classes = chosen.opened.plan.data.preprocessing.class_names;
  Network network(chosen.opened.model, {.training = 1, .evaluation = kEvaluationChunkSamples},
                  device);
  FloatBuffer values = DeviceFloats(device, chosen.weights.flat.size());
  Upload(device, std::as_bytes(chosen.weights.flat.span()), values.data());
  PANDO_RETURN_IF_ERROR(write(HeaderRow(classes)));
  Batch batch;
  for (size_t first = 0; first < samples.names.size(); first += kEvaluationChunkSamples) {
    const size_t last = std::min(first + kEvaluationChunkSamples, samples.names.size());
    PANDO_RETURN_IF_ERROR(samples.read(first, last, &batch));
    PANDO_RETURN_IF_ERROR(EvaluateChunk(network, batch, values.data()).status());
    const std::vector<float> outputs = network.Outputs();
    const std::vector<uint32_t> labels = network.Predictions();
    std::string rows;
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto own = std::span(outputs).subspan(i * classes.size(), classes.size());
      PANDO_ASSIGN_OR_RETURN(const std::string row,
                             SampleRow(samples.names[first + i], classes[labels[i]], own));
      rows += row;
    }
    PANDO_RETURN_IF_ERROR(write(rows));
  }
  return Status();
}

Result<UnlabelledSamples> OpenSamples(const PredictOptions& options, const JobPlan& plan) {
  if (plan.data.preprocessing.columns.empty()) {
    return OpenPictures(options.inputs, plan, options.is_inverted ? Ink::kInverted : Ink::kAsItIs);
  }
  if (options.is_inverted)
    return InvalidArgument("--invert is for pictures, and " + options.weights.path +
                           " learned from a table; leave it out");
  if (options.inputs.size() == 1) return OpenRows(options.inputs[0], plan);
  return InvalidArgument(
      fmt::format("{} learned from a table ({}), and is given {} paths; give one csv file",
                  options.weights.path, plan.job.dataset, options.inputs.size()));
}

// Checks that the output does not replace an input.
Status CheckOutput(const PredictOptions& options, const std::string& weights) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // creating it reports the fault
  if (!fs::exists(options.output, ignored)) return Status();
  if (!fs::is_regular_file(options.output, ignored))
    return InvalidArgument(fmt::format(
        "--out {} is no regular file; leave it out to print the predictions", options.output));
  std::vector<std::string> read = options.inputs;
  read.push_back(weights);
  for (const std::string& path : read) {
    if (!fs::equivalent(options.output, path, ignored)) continue;
    return InvalidArgument(fmt::format("--out {} would replace {}", options.output, path));
  }
  return Status();
}

Result<int> Predict(PredictOptions options) {
  SetUpLog({.process = "predict"});
  SetFloatEnvironment();
  // The final weights' metadata say how a sample becomes an input, without the data set.
  const std::string final_weights = RunFolder::Open(options.weights.path).WeightsPath();
  std::error_code ignored;
  if (options.weights.version.flag() == nullptr && std::filesystem::exists(final_weights, ignored))
    options.weights.path = final_weights;
  PANDO_RETURN_IF_ERROR(CheckOutput(options, options.weights.path));
  PANDO_ASSIGN_OR_RETURN(ChosenWeights chosen,
                         OpenWeights(options.weights, DataUse::kIfInputsUnknown));
  const JobPlan& plan = chosen.opened.plan;
  PANDO_ASSIGN_OR_RETURN(const UnlabelledSamples samples, OpenSamples(options, plan));
  for (const std::string& notice : samples.notices) Say("pando: {}\n", notice);
  PANDO_ASSIGN_OR_RETURN(const OpenedDevice device, OpenDevice(plan.job.device, plan.job));
  std::optional<AtomicFile> file;
  if (!options.output.empty()) {
    PANDO_ASSIGN_OR_RETURN(AtomicFile created, AtomicFile::Create(options.output));
    file.emplace(std::move(created));
  }
  const auto write = [&](const std::string& rows) {
    if (file) return file->Write(std::as_bytes(std::span(rows)));
    PrintText(rows);
    return Status();
  };
  PANDO_RETURN_IF_ERROR(PredictAll(chosen, samples, device.device(), write));
  if (!file) return kExitCompleted;
  PANDO_RETURN_IF_ERROR(file->Commit());
  Print("{}: {} predictions\n", options.output, samples.names.size());
  return kExitCompleted;
}

}  // namespace

Subcommand AddPredictCommand(CLI::App& app) {
  auto options = std::make_shared<PredictOptions>();
  CLI::App& command = DeclareCommand(
      app, "predict",
      "Computes labels and probabilities for pictures, or for the rows of a table, that need no\n"
      "labels. Prints csv: the sample, its label, and a column for each class's probability.",
      "Examples:\n  pando predict runs/first photographs/new a.jpg --out labels.csv\n"
      "  pando predict penguins.safetensors unknown.csv\n");
  AddWeightsChoice(command, &options->weights);
  AddOption(command, "INPUT PATH", &options->inputs,
            "pictures (JPEG, PNG) and folders of them; or one csv file with the columns that were "
            "trained on")
      .Required();
  AddFlag(command, "--invert", &options->is_inverted,
          "invert the pictures: dark digits on white, for a network that learned MNIST's "
          "light digits on black");
  AddOption(command, "--out FILE", &options->output,
            "the csv file to write, instead of printing it");
  return [options] { return Predict(*options); };
}

}  // namespace pando
