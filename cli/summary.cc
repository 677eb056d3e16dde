#include "cli/summary.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/host_name.h"
#include "cli/job_file.h"
#include "cli/version.h"
#include "common/hash.h"

namespace pando {
namespace {

// One walk over all fields serves both directions; `field(name, member)` reads or writes one.
template <class S, class Field>
void ForEachField(S& s, Field field) {
  field("status", s.status);
  field("failure", s.failure);
  field("weights_hash", s.weights_hash);
  field("test_accuracy", s.test_accuracy);
  field("test_loss", s.test_loss);
  field("train_loss", s.train_loss);
  field("images_per_second", s.images_per_second);
  field("steps", s.steps);
  field("epochs", s.epochs);
  field("wall_seconds", s.wall_seconds);
  field("workers", s.workers);
  field("servers", s.servers);
  field("threads", s.threads);
  field("global_batch", s.global_batch);
  field("micro_batches", s.micro_batches);
  field("seed", s.seed);
  field("dataset", s.dataset);
  field("model", s.model);
  field("parameter_count", s.parameter_count);
  field("job_hash", s.job_hash);
  field("hostname", s.hostname);
  field("pando_version", s.pando_version);
  field("run_dir", s.run_dir);
  field("faults", s.faults);
}

struct FieldWriter {
  nlohmann::ordered_json& json;
  template <class T>
  void operator()(const char* name, const T& value) const {
    json[name] = value;
  }
  template <class T>
  void operator()(const char* name, const std::optional<T>& value) const {
    json[name] = value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  }
};

struct FieldReader {
  const nlohmann::ordered_json& json;
  template <class T>
  void operator()(const char* name, T& value) const {
    json.at(name).get_to(value);
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) const {
    if (!json.at(name).is_null()) value = json.at(name).get<T>();
  }
};

}  // namespace

Summary SummaryOf(const Job& job) {
  Summary summary;
  summary.workers = job.workers;
  summary.servers = job.servers;
  summary.threads = job.threads;
  summary.global_batch = job.global_batch;
  summary.micro_batches = job.micro_batches;
  summary.seed = job.seed;
  summary.dataset = job.dataset;
  summary.model = job.model;
  summary.job_hash = fmt::format("{:016x}", Hash64(JobIdentityText(job)));
  summary.hostname = HostName();
  summary.pando_version = PandoVersion();
  summary.run_dir = job.run_dir;
  return summary;
}

std::string ToJson(const Summary& summary) {
  nlohmann::ordered_json json;
  ForEachField(summary, FieldWriter{json});
  // A loss that is not finite has no place in JSON: dump() writes null.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<Summary> SummaryFromJson(const std::string& text, const std::string& file_name) {
  Summary summary;
  try {
    const auto json = nlohmann::ordered_json::parse(text);
    ForEachField(summary, FieldReader{json});
  } catch (const nlohmann::json::exception& error) {
    return Corrupt(fmt::format("{}: not a run's summary: {}", file_name, error.what()));
  }
  return summary;
}

}  // namespace pando
