#include "run/summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/hash.h"
#include "common/system.h"
#include "common/text.h"
#include "files/json_fields.h"
#include "job/device_choice.h"
#include "job/job_file.h"
#include "train/micro_batch_pass.h"

namespace pando {

// ---- elements of lists; nlohmann-json finds these by their types' namespace ---------------------

namespace {

using Json = OrderedJson;
using ReadFrom = nlohmann::json;

}  // namespace

static void to_json(Json& json, const FaultRecord& fault) { json = ToJson(fault); }
static void from_json(const ReadFrom& json, FaultRecord& fault) {
  const Status status = FromJson(json, &fault, Missing::kKept);
  if (!status.ok()) throw ReadFrom::other_error::create(501, status.message(), &json);
}

static void to_json(Json& json, const SnapshotRef& snapshot) {
  json = {{"generation", snapshot.generation}, {"step", snapshot.version.value()}};
}
static void from_json(const ReadFrom& json, SnapshotRef& snapshot) {
  json.at("generation").get_to(snapshot.generation);
  snapshot.version = Version(json.at("step").get<uint64_t>());
}

static void to_json(Json& json, const EvaluationSummary& evaluation) {
  json = {{"step", evaluation.version.value()},
          {"samples", evaluation.sample_count},
          {"correct", evaluation.correct_count},
          {"top5_correct", evaluation.top5_count},
          {"loss_sum", evaluation.loss_sum}};
  if (!evaluation.sums.empty()) json["sums"] = evaluation.sums;  // null: not a finite number
  if (evaluation.stop_text) json["stop"] = *evaluation.stop_text;
}
static void from_json(const ReadFrom& json, EvaluationSummary& evaluation) {
  evaluation.version = Version(json.at("step").get<uint64_t>());
  json.at("samples").get_to(evaluation.sample_count);
  if (!json.at("correct").is_null()) json.at("correct").get_to(evaluation.correct_count);
  if (!json.at("top5_correct").is_null()) json.at("top5_correct").get_to(evaluation.top5_count);
  // JSON cannot hold a sum that is not finite, so dump() writes null.
  evaluation.loss_sum = json.at("loss_sum").is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                      : json.at("loss_sum").get<double>();
  for (const ReadFrom& sum : json.value("sums", ReadFrom::array()))
    evaluation.sums.push_back(sum.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                            : sum.get<double>());
  if (json.contains("stop")) evaluation.stop_text = json.at("stop").get<std::string>();
}

// Writes null for values that the program has not evaluated.
static void DropMissing(const EvaluatedValues& evaluated, Json* evaluation) {
  if (!evaluated.has_accuracy) (*evaluation)["correct"] = nullptr;
  if (!evaluated.has_classes) (*evaluation)["top5_correct"] = nullptr;
  if (!evaluated.has_loss) (*evaluation)["loss_sum"] = nullptr;
}

static EvaluatedValues FindValues(const ReadFrom& evaluation) {
  EvaluatedValues values;
  values.has_accuracy = !evaluation.at("correct").is_null();
  values.has_classes = !evaluation.at("top5_correct").is_null();
  values.has_loss = values.has_accuracy || !evaluation.at("loss_sum").is_null();
  return values;
}

static void to_json(Json& json, const ClassScore& score) {
  json = {{"samples", score.sample_count},
          {"correct", score.correct_count},
          {"accuracy", score.accuracy()}};
}
static void from_json(const ReadFrom& json, ClassScore& score) {
  json.at("samples").get_to(score.sample_count);
  json.at("correct").get_to(score.correct_count);
}

namespace {

// Visits all fields, for both directions: `field(name, member)` reads or writes one. The names of
// results begin with `on`.
template <class S, class Field>
void ForEachField(S& s, const std::string& on, Field field) {
  field("status", s.status);
  field("failure", s.failure);
  field("weights_hash", s.weights_hash);
  field("evaluated_on", s.evaluated_on);
  field(on + "_accuracy", s.test_accuracy);
  field(on + "_top5_accuracy", s.test_top5_accuracy);
  field("best_" + on + "_accuracy", s.best_test_accuracy);
  field("best_step", s.best_step);
  field("best_weights_step", s.best_weights_step);
  field(on + "_loss", s.test_loss);
  field(on + "_sums", s.test_sums);
  field("train_loss", s.train_loss);
  field("images_per_second", s.images_per_second);
  field("evaluation_seconds", s.evaluation_seconds);
  field("data_stall_seconds", s.data_stall_seconds);
  field("data_stall_share", s.data_stall_share);
  field("exposed_sync_seconds", s.exposed_sync_seconds);
  field("steps", s.steps);
  field("stopped_early", s.stopped_early);
  field("epochs", s.epochs);
  field("wall_seconds", s.wall_seconds);
  field("workers", s.workers);
  field("servers", s.servers);
  field("threads", s.threads);
  field("global_batch", s.global_batch);
  field("micro_batches", s.micro_batches);
  field("seed", s.seed);
  field("optimizer", s.optimizer);
  field("lr", s.lr);
  field("precision", s.precision);
  field("reproducible", s.is_reproducible);
  field("dataset", s.dataset);
  field("input_shape", s.input_shape);
  field("input_mean", s.preprocessing.mean);
  field("input_deviation", s.preprocessing.deviation);
  field("input_columns", s.preprocessing.columns);
  field("class_names", s.preprocessing.class_names);
  field("model", s.model);
  field("parameter_count", s.parameter_count);
  field("job_hash", s.job_hash);
  field("run_id", s.run_id);
  field("hostname", s.hostname);
  field("pando_version", s.pando_version);
  field("run_dir", s.run_dir);
  field("generation", s.generation);
  field("rollbacks", s.rollbacks);
  field("verified_micro_batches", s.verified_micro_batches);
  field("unverified_micro_batches", s.unverified_micro_batches);
  field("missing_rows", s.missing_rows);
  field("evaluations", s.evaluations);
  field("classes", s.classes);
  field("confusion_matrix", s.confusion_matrix);
  field("snapshots", s.snapshots);
  field("fault_count", s.fault_count);
  field("faults", s.faults);
}

struct SummaryWriter {
  nlohmann::ordered_json& json;
  template <class T>
  void operator()(const std::string& name, const T& value) const {
    json[name] = value;
  }
  template <class T>
  void operator()(const std::string& name, const std::optional<T>& value) const {
    json[name] = value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  }
};

// Keeps a field's value if a summary of another version lacks it, or has null because JSON cannot
// hold the value.
struct SummaryReader {
  const ReadFrom& json;
  template <class T>
  void operator()(const std::string& name, T& value) const {
    if (json.contains(name) && !json.at(name).is_null()) json.at(name).get_to(value);
  }
  template <class T>
  void operator()(const std::string& name, std::optional<T>& value) const {
    if (json.contains(name) && !json.at(name).is_null()) value = json.at(name).get<T>();
  }
};

}  // namespace

bool HasDiverged(const Summary& summary) {
  return summary.failure.find(kDivergedText) != std::string::npos;
}

Summary MakeSummary(const Job& job) {
  Summary summary;
  summary.workers = job.workers;
  summary.servers = job.strategy == Strategy::kAllreduce ? 0 : job.servers;
  summary.threads = job.threads;
  summary.global_batch = job.global_batch;
  summary.micro_batches = job.micro_batches;
  summary.seed = job.seed;
  summary.optimizer = EnumName(job.optimizer.kind);
  summary.lr = job.optimizer.lr;
  summary.precision = EnumName(job.precision);
  const bool has_feedback =
      job.push_codec == PayloadCodec::kOneBit || job.push_codec == PayloadCodec::kTopK;
  summary.is_reproducible = !job.allow_nondeterministic && !has_feedback;
  summary.evaluated_on = job.evaluated_on();
  summary.evaluated = EvaluatedValues(job);
  summary.dataset = job.dataset;
  summary.model = job.model;
  summary.job_hash = HexText(Hash64(JobIdentityText(job)));
  summary.hostname = HostName();
  summary.pando_version = PandoVersion();
  summary.run_dir = job.run_dir;
  return summary;
}

Summary MakeSummary(const JobPlan& plan) {
  Summary summary = MakeSummary(plan.job);
  const SampleShape& shape = plan.data.shape;
  summary.input_shape = fmt::format("{}x{}x{}", shape.height, shape.width, shape.channels);
  summary.preprocessing = plan.data.preprocessing;
  summary.parameter_count = plan.layout.parameter_count();
  return summary;
}

// ---- evaluations --------------------------------------------------------------------------------

namespace {

// Returns the confusion matrix, by label.
std::vector<std::vector<uint64_t>> ConfusionRows(const EvaluationSummary& evaluation) {
  std::vector<std::vector<uint64_t>> rows;
  const auto width = static_cast<ptrdiff_t>(evaluation.classes.size());
  for (auto at = evaluation.confusion.begin(); at != evaluation.confusion.end(); at += width)
    rows.emplace_back(at, at + width);
  return rows;
}

void SetResults(const EvaluationSummary& last, Summary* summary) {
  const EvaluatedValues& evaluated = summary->evaluated;
  if (evaluated.has_loss) summary->test_loss = evaluated.Loss(last);
  if (evaluated.has_classes) {
    summary->test_top5_accuracy = last.top5_accuracy();
    summary->classes = last.classes;
    summary->confusion_matrix = ConfusionRows(last);
  }
  if (!evaluated.has_accuracy) return;
  summary->test_accuracy = last.accuracy();
  const auto best =
      std::ranges::max_element(summary->evaluations, {}, &EvaluationSummary::accuracy);
  summary->best_test_accuracy = best->accuracy();
  summary->best_step = best->version.value();
}

}  // namespace

void AddEvaluation(const EvaluationSummary& evaluation, Summary* summary) {
  if (evaluation.sample_count == 0 && !evaluation.stop_text) return;
  std::erase_if(summary->evaluations, [&](const EvaluationSummary& known) {
    return known.version == evaluation.version;
  });
  summary->evaluations.push_back(evaluation);
  summary->evaluations.back().DropDetails();
  std::ranges::sort(summary->evaluations, {}, &EvaluationSummary::version);
  SetResults(evaluation, summary);
}

// The details of the remaining evaluations are not known.
void DropEvaluations(Version last_good, Summary* summary) {
  std::erase_if(summary->evaluations, [&](const EvaluationSummary& evaluation) {
    return evaluation.version > last_good;
  });
  if (!summary->evaluations.empty()) return SetResults(summary->evaluations.back(), summary);
  summary->test_accuracy = summary->test_top5_accuracy = summary->test_loss = std::nullopt;
  summary->best_test_accuracy = std::nullopt;
  summary->best_step = std::nullopt;
  summary->classes.clear();
  summary->confusion_matrix.clear();
}

// ---- the file -----------------------------------------------------------------------------------

double RecoveryMs(const FaultRecord& fault) {
  return fault.recovered_ms - (fault.injected_ms < 0 ? fault.detected_ms : fault.injected_ms);
}

std::string RecoveryText(const FaultRecord& fault) {
  if (fault.injected_ms >= 0) return fmt::format("recovered after {:.0f} ms", RecoveryMs(fault));
  return fmt::format("recovered {:.0f} ms after its detection", RecoveryMs(fault));
}

std::string ToJson(const Summary& summary) {
  nlohmann::ordered_json json;
  ForEachField(summary, summary.evaluated_on, SummaryWriter{json});
  for (Json& evaluation : json["evaluations"]) DropMissing(summary.evaluated, &evaluation);
  if (summary.evaluated_on != "test") {  // so that readers of several runs find the fields
    for (const char* name :
         {"test_accuracy", "test_top5_accuracy", "best_test_accuracy", "test_loss"})
      json[name] = nullptr;
  }
  // JSON cannot hold a loss that is not finite, so dump() writes null.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<Summary> SummaryFromJson(const std::string& text, const std::string& file_name) {
  Summary summary;
  try {
    const ReadFrom json = ReadFrom::parse(text);
    (void)json.at("status");
    // Earlier releases also named validation results test_accuracy and so on.
    const bool is_validation = json.contains("validation_accuracy");
    ForEachField(summary, is_validation ? "validation" : "test", SummaryReader{json});
    for (const auto& evaluation : json.value("evaluations", ReadFrom::array()))
      summary.evaluated = FindValues(evaluation);
  } catch (const nlohmann::json::exception& error) {
    return Corrupt(fmt::format("{}: not a run's summary: {}", file_name, error.what()));
  }
  return summary;
}

}  // namespace pando
