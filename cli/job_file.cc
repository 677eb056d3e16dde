#include "cli/job_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "cli/text.h"
#include "common/hash.h"
#include "common/nearest_name.h"
#include "common/printable.h"
#include "common/timeline.h"
#include "models/network_file.h"

namespace pando {
namespace {

std::optional<JobValue> ReadNode(ValueKind kind, const toml::node& node) {
  switch (kind) {
    case ValueKind::kCount: {
      auto value = node.value_exact<int64_t>();
      if (!value || *value < 0) return std::nullopt;
      return static_cast<uint64_t>(*value);
    }
    case ValueKind::kReal:
      if (node.is_boolean()) return std::nullopt;
      return node.value<double>();
    case ValueKind::kBool:
      return node.value_exact<bool>();
    case ValueKind::kCountList: {
      if (!node.is_array()) return std::nullopt;
      std::vector<uint64_t> list;
      for (const toml::node& element : *node.as_array()) {
        auto value = ReadNode(ValueKind::kCount, element);
        if (!value) return std::nullopt;
        list.push_back(std::get<uint64_t>(*value));
      }
      return list;
    }
    case ValueKind::kTextList: {
      if (!node.is_array()) return std::nullopt;
      std::vector<std::string> list;
      for (const toml::node& element : *node.as_array()) {
        auto value = element.value_exact<std::string>();
        if (!value) return std::nullopt;
        list.push_back(*value);
      }
      return list;
    }
    default:
      return node.value_exact<std::string>();
  }
}

std::string NodeText(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& typed) { text << typed; });
  return Printable(text.str());
}

struct Place {
  const std::string& file_name;
  std::string At(const toml::source_region& source) const {
    return fmt::format("{}:{}", file_name, source.begin.line);
  }
};

Status UnknownKey(const std::string& where, std::string_view name) {
  std::string hint = SuggestJobKey(name);
  if (hint.empty()) hint = "docs/job-file.md lists every key";
  return InvalidArgument(fmt::format("{}: unknown key '{}'; {}", where, Printable(name), hint));
}

Status UnknownSection(const std::string& where, std::string_view name) {
  std::vector<std::string> sections;
  for (const JobKey& key : JobKeys()) sections.emplace_back(key.section());
  sections.erase(std::unique(sections.begin(), sections.end()), sections.end());
  std::string hint = DidYouMean(name, sections);
  if (hint.empty()) hint = fmt::format("the sections are {}", Joined(sections));
  return InvalidArgument(fmt::format("{}: unknown section [{}]; {}", where, Printable(name), hint));
}

bool IsSection(std::string_view name) {
  for (const JobKey& key : JobKeys()) {
    if (key.section() == name) return true;
  }
  return false;
}

// Keys of two sources where the later one silences the earlier.
constexpr const char* kSteps = "train.steps";
constexpr const char* kEpochs = "train.epochs";
constexpr const char* kEvalSteps = "eval.every_steps";
constexpr const char* kEvalEpochs = "eval.every_epochs";

}  // namespace

Status JobDraft::Set(const JobKey& key, const JobValue& value, std::string where) {
  if (Status s = CheckJobValue(key, value); !s.ok()) {
    return InvalidArgument(where + ": " + s.message());
  }
  key.set(job_, value);
  where_[key.name] = std::move(where);
  in_source_.insert(key.name);
  return Status();
}

Status JobDraft::EndSource() {
  // Another model's text is not this one's.
  if (in_source_.contains("model.name") && !in_source_.contains("model.network"))
    job_.network.clear();
  Status status = ChooseLengthAndEvaluation();
  in_source_.clear();
  return status;
}

// Steps and epochs both say how long the run is, and both how often it is evaluated: the later
// source wins, one source may say only one.
Status JobDraft::ChooseLengthAndEvaluation() {
  const bool has_eval_steps = in_source_.contains(kEvalSteps) && job_.eval_every_steps > 0;
  const bool has_eval_epochs = in_source_.contains(kEvalEpochs) && job_.eval_every_epochs > 0;
  const bool has_steps = in_source_.contains(kSteps) && job_.steps > 0;
  const bool has_epochs = in_source_.contains(kEpochs) && job_.epochs > 0;
  if (has_steps && has_epochs) {
    return InvalidArgument(fmt::format("{} and {} both say how long the run is; give one of them",
                                       Named(kSteps), Named(kEpochs)));
  }
  if (has_steps) job_.epochs = 0;
  if (has_epochs) job_.steps = 0;
  if (has_eval_steps && has_eval_epochs) {
    return InvalidArgument(
        fmt::format("{} and {} both say how often the run is evaluated; give one of them",
                    Named(kEvalSteps), Named(kEvalEpochs)));
  }
  if (has_eval_steps) job_.eval_every_epochs = 0;
  if (has_eval_epochs) job_.eval_every_steps = 0;
  return Status();
}

Status JobDraft::AddToml(std::string_view text, std::string file_name) {
  const Place place{file_name};
  toml::table root;
  try {
    root = toml::parse(text, file_name);
  } catch (const toml::parse_error& error) {
    return InvalidArgument(
        fmt::format("{}: not valid TOML: {}", place.At(error.source()), error.description()));
  }
  for (const auto& [section, section_node] : root) {
    const std::string section_where = place.At(section_node.source());
    if (!section_node.is_table()) return UnknownKey(section_where, section.str());
    if (!IsSection(section.str())) return UnknownSection(section_where, section.str());
    for (const auto& [leaf, node] : *section_node.as_table()) {
      const std::string name = fmt::format("{}.{}", section.str(), leaf.str());
      const std::string where = place.At(node.source());
      const JobKey* key = FindJobKey(name);
      if (key == nullptr) return UnknownKey(where, name);
      std::optional<JobValue> value = ReadNode(key->kind, node);
      if (!value) {
        return InvalidArgument(fmt::format("{}: {} must be {}, got {}", where, name,
                                           ExpectedValue(*key), NodeText(node)));
      }
      if (Status s = Set(*key, *value, where); !s.ok()) return s;
    }
  }
  return EndSource();
}

Status JobDraft::AddOverrides(const std::vector<Override>& overrides) {
  for (const Override& item : overrides) {
    const JobKey* key = FindJobKey(item.key);
    if (key == nullptr) return UnknownKey(item.where, item.key);
    Result<JobValue> value = ParseJobValue(*key, item.text);
    if (!value.ok()) return InvalidArgument(item.where + ": " + value.status().message());
    if (Status s = Set(*key, *value, item.where); !s.ok()) return s;
  }
  return EndSource();
}

void JobDraft::SetDefault(const std::string& name, const JobValue& value) {
  const JobKey* key = FindJobKey(name);
  PANDO_CHECK(key != nullptr && CheckJobValue(*key, value).ok());
  if (!IsGiven(name)) key->set(job_, value);
}

// "train.global_batch = 128 (job.toml:3)".
std::string JobDraft::Named(const std::string& name) const {
  auto where = where_.find(name);
  return fmt::format("{} = {} ({})", name, JobValueToml(FindJobKey(name)->get(job_)),
                     where == where_.end() ? "the default" : where->second);
}

Result<Job> JobDraft::Finish() const {
  for (Status s : {CheckTrain(), CheckOptimizer(), CheckSchedule(), CheckEval(), CheckRun(),
                   CheckStrategy()}) {
    if (!s.ok()) return s;
  }
  Job job = job_;
  job.optimizer.loss_scale.is_on = job.precision == Precision::kFp16;
  if (job.strategy == Strategy::kAllreduce) {
    job.servers = job.replicas = job.lanes = 1;
    job.transport = Job().transport;
  }
  return job;
}

Status JobDraft::CheckTrain() const {
  if (job_.steps == 0 && job_.epochs == 0) {
    return InvalidArgument(fmt::format("{} and {} leave nothing to train; give one of them",
                                       Named(kSteps), Named(kEpochs)));
  }
  if (job_.micro_batches > job_.global_batch) {
    return InvalidArgument(
        fmt::format("{} does not fit {}: a micro-batch needs at least one sample; lower the first "
                    "or raise the second",
                    Named("train.micro_batches"), Named("train.global_batch")));
  }
  return Status();
}

Status JobDraft::CheckOptimizer() const {
  const OptimizerOptions& o = job_.optimizer;
  if (o.nesterov && (o.momentum == 0 || o.dampening != 0)) {
    return InvalidArgument(fmt::format(
        "{} needs a momentum above 0 and no dampening, but {} and {}", Named("optimizer.nesterov"),
        Named("optimizer.momentum"), Named("optimizer.dampening")));
  }
  if (o.clip_value > 0 && o.clip_norm > 0) {
    return InvalidArgument(fmt::format("{} and {} both clip the gradient; give one of them",
                                       Named("optimizer.clip_value"),
                                       Named("optimizer.clip_norm")));
  }
  if (o.kind == OptimizerKind::kLamb && o.clip_norm > 0) {
    return InvalidArgument(fmt::format(
        "{} does not go with {}: lamb's own norms would have to be those of the clipped gradient; "
        "leave it out or give optimizer.clip_value",
        Named("optimizer.clip_norm"), Named("optimizer.type")));
  }
  if (o.kind == OptimizerKind::kLars && (o.nesterov || o.dampening != 0)) {
    return InvalidArgument(fmt::format("{} has plain momentum, but {} and {}; leave them out",
                                       Named("optimizer.type"), Named("optimizer.nesterov"),
                                       Named("optimizer.dampening")));
  }
  const OptimizerOptions defaults;
  if (o.kind != OptimizerKind::kLars && o.trust_coefficient != defaults.trust_coefficient) {
    return InvalidArgument(fmt::format("{} is read by lars alone, but {}; leave it out",
                                       Named("optimizer.trust_coefficient"),
                                       Named("optimizer.type")));
  }
  if (o.kind != OptimizerKind::kLamb && o.trust_ratio_max != defaults.trust_ratio_max) {
    return InvalidArgument(fmt::format("{} is read by lamb alone, but {}; leave it out",
                                       Named("optimizer.trust_ratio_max"),
                                       Named("optimizer.type")));
  }
  return Status();
}

Status JobDraft::CheckSchedule() const {
  const ScheduleOptions& s = job_.schedule;
  if (s.kind == ScheduleKind::kStep && s.step_size == 0) {
    return InvalidArgument(fmt::format(
        "{} needs schedule.step_size ≥ 1: give the steps between decays", Named("schedule.type")));
  }
  if (s.kind == ScheduleKind::kMultiStep && s.milestones.empty()) {
    return InvalidArgument(fmt::format("{} needs schedule.milestones: give the steps of the decays",
                                       Named("schedule.type")));
  }
  if (s.kind == ScheduleKind::kExponential && !IsGiven("schedule.gamma")) {
    return InvalidArgument(fmt::format(
        "{} needs schedule.gamma: give the factor of each step, as 0.999", Named("schedule.type")));
  }
  if (s.kind == ScheduleKind::kCosine && s.min_lr > job_.optimizer.lr) {
    return InvalidArgument(fmt::format("{} is above {}: a cosine schedule falls",
                                       Named("schedule.min_lr"), Named("optimizer.lr")));
  }
  if (s.kind == ScheduleKind::kOneCycle && s.base_momentum > s.max_momentum) {
    return InvalidArgument(fmt::format("{} is above {}", Named("schedule.base_momentum"),
                                       Named("schedule.max_momentum")));
  }
  return Status();
}

Status JobDraft::CheckEval() const {
  if (job_.early_stop_patience > 0 && job_.eval_every_epochs == 0 && job_.eval_every_steps == 0) {
    return InvalidArgument(
        fmt::format("{} needs evaluations during the run; give eval.every_epochs or "
                    "eval.every_steps",
                    Named("eval.early_stop_patience")));
  }
  return Status();
}

Status JobDraft::CheckRun() const {
  if (job_.lease_ms <= 2 * job_.heartbeat_ms) {
    return InvalidArgument(
        fmt::format("{} must be above twice {}, or one late heartbeat looks like a death",
                    Named("run.lease_ms"), Named("run.heartbeat_ms")));
  }
  if (!ParseStepRange(job_.timeline_steps)) {
    return InvalidArgument(fmt::format(
        "{}: expected A:B, the steps from A to B - 1, as 100:110; A or B may be left out",
        Named("run.timeline_steps")));
  }
  if (job_.timeline.empty() && !job_.timeline_steps.empty()) {
    return InvalidArgument(
        fmt::format("{} bounds a timeline, and run.timeline names none; give "
                    "--timeline FILE",
                    Named("run.timeline_steps")));
  }
  if (job_.verify_every > 0 && job_.allow_nondeterministic) {
    return InvalidArgument(fmt::format(
        "{} compares bits, which {} lets differ; give one of them", Named("verify.every"),
        Named("train.allow_nondeterministic")));
  }
  return Status();
}

// Without servers there is nothing to say of them. What a file says of them stays for the day when
// the job runs with servers again: a resolved job's text names all keys.
Status JobDraft::CheckStrategy() const {
  if (job_.strategy != Strategy::kAllreduce) return Status();
  const auto has_flag = [this](const char* name) {
    const auto at = where_.find(name);
    return at != where_.end() && at->second.starts_with("--");
  };
  const std::string strategy = Named("run.strategy");
  for (const char* of_servers : {"run.servers", "run.replicas", "run.lanes"}) {
    if (!has_flag(of_servers)) continue;
    return InvalidArgument(
        fmt::format("{} has no servers, but {}; leave it out, or give "
                    "--strategy ps",
                    strategy, Named(of_servers)));
  }
  if (has_flag("run.transport") && job_.transport != Job().transport) {
    return InvalidArgument(
        fmt::format("{} sums by gloo or NCCL, which have transports of their own, but {}; leave it "
                    "out, or give --strategy ps",
                    strategy, Named("run.transport")));
  }
  if (job_.verify_every > 0) {
    return InvalidArgument(
        fmt::format("{} compares what servers are sent, and {} has none; leave "
                    "one of them out",
                    Named("verify.every"), strategy));
  }
  if (job_.parameter_residency == ParameterResidency::kLayer) {
    return InvalidArgument(
        fmt::format("{} pulls parameters from servers, and with {} every worker "
                    "holds all of them; leave one of them out",
                    Named("worker.parameter_residency"), strategy));
  }
  const bool is_pull = job_.pull_codec != PayloadCodec::kFp32;
  if (is_pull || job_.push_codec != PayloadCodec::kFp32) {
    return InvalidArgument(fmt::format(
        "{} says how servers are sent something, and {} sums floats; leave one of them out",
        Named(is_pull ? "train.pull_codec" : "train.codec"), strategy));
  }
  return Status();
}

Result<Job> ParseJobText(std::string_view text, const std::string& file_name) {
  JobDraft draft;
  if (Status s = draft.AddToml(text, file_name); !s.ok()) return s;
  return draft.Finish();
}

Result<std::string> ReadTextFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) return NotFound(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  return text.str();
}

Result<Job> ReadJobFile(const std::string& path) {
  Result<std::string> text = ReadTextFile(path);
  if (!text.ok()) return text.status();
  return ParseJobText(*text, path);
}

Status LoadNetwork(Job* job) {
  constexpr size_t kNetworkBytesMax = 1 << 20;
  if (!IsNetworkFile(job->model) || !job->network.empty()) return Status();
  Result<std::string> text = ReadTextFile(job->model);
  if (!text.ok()) return text.status();
  if (text->empty() || text->size() > kNetworkBytesMax) {
    return InvalidArgument(fmt::format("{}: has {} bytes, and a network's file has 1 to {}",
                                       job->model, text->size(), kNetworkBytesMax));
  }
  job->network = *std::move(text);
  return Status();
}

namespace {

// What says where, how and how safely to compute, and has no say in the result.
bool IsIdentity(std::string_view section) {
  return section != "run" && section != "snapshot" && section != "verify" && section != "worker";
}

// Says how a step is trained, and yet changes no bit: memory for time.
constexpr const char* kCheckpointing = "train.activation_checkpointing";

std::string WriteSections(const Job& given, bool identity_only) {
  Job job = given;
  if (job.steps > 0) job.epochs = 0;
  if (job.eval_every_steps > 0) job.eval_every_epochs = 0;
  std::string text;
  std::string_view section;
  for (const JobKey& key : JobKeys()) {
    if (identity_only && (!IsIdentity(key.section()) || key.name == kCheckpointing)) continue;
    if (key.section() != section) {
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", key.section());
      section = key.section();
    }
    text += fmt::format("{} = {}\n", key.leaf(), JobValueToml(key.get(job)));
  }
  return text;
}

}  // namespace

std::string WriteJobText(const Job& job) { return WriteSections(job, /*identity_only=*/false); }

std::string JobIdentityText(const Job& job) { return WriteSections(job, /*identity_only=*/true); }

JobId MakeJobId(const Job& job, uint64_t run_salt) {
  const uint64_t hash = Hash64(JobIdentityText(job), run_salt);
  return JobId(hash == 0 ? 1 : hash);  // 0 on the wire: "does not know the job yet"
}

}  // namespace pando
