#include "job/job_draft.h"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "common/text.h"
#include "common/timeline/timeline.h"
#include "models/toml_depth.h"
#include "plan/external_model.h"
#include "plan/optimizer_turns.h"
#include "plan/rate_table.h"
#include "plan/shard_plan.h"
#include "proto/message_limits.h"

namespace pando {
namespace {

std::optional<JobValue> ReadNode(ValueKind kind, const toml::node& node);

template <class T>
std::optional<JobValue> ReadList(ValueKind element_kind, const toml::node& node) {
  if (!node.is_array()) return std::nullopt;
  std::vector<T> list;
  for (const toml::node& element : *node.as_array()) {
    std::optional<JobValue> value = ReadNode(element_kind, element);
    if (!value) return std::nullopt;
    list.push_back(std::get<T>(*std::move(value)));
  }
  return list;
}

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
    case ValueKind::kCountList:
      return ReadList<uint64_t>(ValueKind::kCount, node);
    case ValueKind::kTextList:
      return ReadList<std::string>(ValueKind::kText, node);
    default:
      return node.value_exact<std::string>();
  }
}

std::string NodeText(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& typed) { text << typed; });
  return Printable(text.str());
}

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

constexpr uint32_t kLocalStepsMax = 65'535;  // dropout draws by 16 bits of it
constexpr uint64_t kSyntheticMax = 1'000'000'000;

// Returns torch's default.
double DefaultEps(OptimizerKind kind) {
  if (kind == OptimizerKind::kAdadelta) return 1e-6;
  return kind == OptimizerKind::kAdagrad ? 1e-10 : OptimizerOptions().eps;
}

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
  // The text of another model must not be used for this one.
  if (in_source_.contains("model.name") && !in_source_.contains("model.network"))
    job_.network.clear();
  Status status =
      ChooseOne("train.steps", &Job::steps, "train.epochs", &Job::epochs, "how long the run is");
  if (status.ok())
    status = ChooseOne("eval.every_steps", &Job::eval_every_steps, "eval.every_epochs",
                       &Job::eval_every_epochs, "how often the run is evaluated");
  in_source_.clear();
  return status;
}

// Keeps one of two keys with the same meaning: the later source wins; one source may give only one.
template <class T>
Status JobDraft::ChooseOne(const char* by_steps, uint64_t Job::*steps, const char* by_epochs,
                           T Job::*epochs, const char* meaning) {
  const bool has_steps = in_source_.contains(by_steps) && job_.*steps > 0;
  const bool has_epochs = in_source_.contains(by_epochs) && job_.*epochs > 0;
  if (has_steps && has_epochs)
    return InvalidArgument(fmt::format("{} and {} both say {}; give one of them", Named(by_steps),
                                       Named(by_epochs), meaning));
  if (has_steps) job_.*epochs = 0;
  if (has_epochs) job_.*steps = 0;
  return Status();
}

Status JobDraft::AddToml(std::string_view text, std::string file_name) {
  const auto place = [&](const toml::source_region& source) {
    return fmt::format("{}:{}", file_name, source.begin.line);
  };
  PANDO_RETURN_IF_ERROR(CheckTomlDepth(text, file_name));
  toml::table root;
  try {
    root = toml::parse(text, file_name);
  } catch (const toml::parse_error& error) {
    return InvalidArgument(
        fmt::format("{}: not valid TOML: {}", place(error.source()), error.description()));
  }
  for (const auto& [section, section_node] : root) {
    const std::string section_where = place(section_node.source());
    if (!section_node.is_table()) return UnknownKey(section_where, section.str());
    if (std::ranges::find(JobKeys(), section.str(), &JobKey::section) == JobKeys().end())
      return UnknownSection(section_where, section.str());
    for (const auto& [leaf, node] : *section_node.as_table()) {
      const std::string name = fmt::format("{}.{}", section.str(), leaf.str());
      const std::string where = place(node.source());
      const JobKey* key = FindJobKey(name);
      if (key == nullptr) return UnknownKey(where, name);
      std::optional<JobValue> value = ReadNode(key->kind, node);
      if (!value) {
        return InvalidArgument(fmt::format("{}: {} must be {}, got {}", where, name,
                                           ExpectedValue(*key), NodeText(node)));
      }
      PANDO_RETURN_IF_ERROR(Set(*key, *value, where));
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
    PANDO_RETURN_IF_ERROR(Set(*key, *value, item.where));
  }
  return EndSource();
}

void JobDraft::SetDefault(const std::string& name, const JobValue& value) {
  const JobKey* key = FindJobKey(name);
  PANDO_CHECK(key != nullptr && CheckJobValue(*key, value).ok());
  if (!IsGiven(name)) key->set(job_, value);
}

// Returns for example "train.global_batch = 128 (job.toml:3)".
std::string JobDraft::Named(const std::string& name) const {
  auto where = where_.find(name);
  return fmt::format("{} = {} ({})", name, JobValueToml(FindJobKey(name)->get(job_)),
                     where == where_.end() ? "the default" : where->second);
}

// Writes "{run.lease_ms} is short" with each key in braces as "run.lease_ms = 128 (job.toml:3)".
std::string JobDraft::WithKeysNamed(std::string_view text) const {
  std::string named;
  while (!text.empty()) {
    const size_t open = std::min(text.find('{'), text.size());
    named += text.substr(0, open);
    text.remove_prefix(open);
    if (text.empty()) break;
    const size_t close = text.find('}');
    named += Named(std::string(text.substr(1, close - 1)));
    text.remove_prefix(close + 1);
  }
  return named;
}

Result<Job> JobDraft::Finish() const {
  for (const std::vector<Rule>& rules : {ModelRules(), TrainRules(), OptimizerRules(),
                                         ScheduleRules(), RunRules(), StrategyRules()}) {
    const auto broken = std::ranges::find(rules, true, &Rule::is_broken);
    if (broken != rules.end()) return InvalidArgument(WithKeysNamed(broken->error));
  }
  if (const Result<TensorLayout> layout = ExternalLayout(job_); !layout.ok())
    return layout.status();
  PANDO_RETURN_IF_ERROR(RateTable::Parse(job_.schedule.rates).status());
  PANDO_RETURN_IF_ERROR(OptimizerTurns::Parse(job_.optimizer).status());
  PANDO_RETURN_IF_ERROR(ReadInner(job_).status());
  Job job = job_;
  if (!IsGiven("optimizer.eps")) job.optimizer.eps = DefaultEps(job.optimizer.kind);
  job.optimizer.loss_scale.is_on = job.precision == Precision::kFp16;
  if (job.strategy == Strategy::kAllreduce) {
    job.servers = job.replicas = job.lanes = 1;
    job.transport = Job().transport;
  }
  return job;
}

std::vector<JobDraft::Rule> JobDraft::ModelRules() const {
  const bool is_external = IsExternal(job_);
  const uint64_t samples = job_.synthetic_train_samples, tests = job_.synthetic_test_samples;
  const bool chooses = job_.early_stop_patience > 0 || job_.snapshot_best;
  const std::set<std::string> logs(job_.train_logs.begin(), job_.train_logs.end());
  const std::string& metric = job_.eval_metric;
  const std::set<std::string> sums(job_.eval_sums.begin(), job_.eval_sums.end());
  return {
      {samples == 0 || (!is_external && (tests == 0 || std::max(samples, tests) > kSyntheticMax)),
       "{data.synthetic_train_samples} and {data.synthetic_test_samples}: give both from 1 to 1e9; "
       "only an external data set may have more, or no test samples"},
      {sums.size() != job_.eval_sums.size() || sums.size() > kEvaluationSumsMax,
       "{eval.sums} names one twice, or more than 64"},
      {is_external && IsDeclared(job_) && chooses && metric.empty() && !sums.contains("correct") &&
           !sums.contains("loss_sum"),
       "{eval.early_stop_patience} and {snapshot.best} compare the accuracy or the loss, and "
       "{eval.sums} has neither 'correct' nor 'loss_sum'; let the program evaluate one, or give "
       "eval.metric"},
      {!metric.empty() && (is_external ? IsDeclared(job_) && !sums.contains(metric)
                                       : metric != "correct" && metric != "loss_sum"),
       "{eval.metric} is none of the sums of an evaluation, {eval.sums}; a model of Pando has "
       "correct and loss_sum"},
      {!metric.empty() && job_.eval_mode == "auto" && metric != "correct" && !IsLoss(metric),
       "{eval.metric}: give eval.mode max or min: is its best value the largest or the smallest?"},
      {is_external && job_.push_codec != PayloadCodec::kFp32,
       "{model.name} pushes floats, but {train.codec}; give fp32"},
      {is_external != (job_.dataset == kExternalName),
       "{model.name} and {data.name}: a program has both the model and the data; give external "
       "for both or for none"},
      {logs.size() != job_.train_logs.size() || logs.size() > kEvaluationSumsMax,
       "{train.logs} names one twice, or more than 64"},
      {!is_external && (IsDeclared(job_) || !job_.constants.empty() || !job_.eval_sums.empty() ||
                        !logs.empty() || job_.eval_whole || job_.eval_report != ReportUse::kNone),
       "model.tensors, model.constants, train.logs, eval.sums, eval.whole and eval.report are of "
       "an external model, but {model.name}; leave them out"},
      {!is_external && (job_.preload || !job_.command.empty() || !job_.earlier.empty()),
       "run.command, run.earlier and run.preload are of an external model, but {model.name}; leave "
       "them out"},
      {is_external && job_.strategy != Strategy::kParameterServers,
       "{model.name} trains with servers, but {run.strategy}; give ps"},
      {is_external && job_.parameter_residency != ParameterResidency::kAll,
       "{model.name} keeps all parameters, but {worker.parameter_residency}; give all"},
      {is_external && job_.precision != Precision::kFp32,
       "{model.name} computes as its program does, but {train.precision}; use autocast there"},
      {!is_external && job_.optimizer.is_weighted,
       "{train.weighted}: the weights are of an external model, but {model.name}; leave it out"},
      {is_external && job_.validation_share > 0,
       "{data.validation}: {model.name} has its own data; let the program hold samples back"}};
}

std::vector<JobDraft::Rule> JobDraft::TrainRules() const {
  return {
      {job_.steps == 0 && job_.epochs == 0,
       "{train.steps} and {train.epochs} leave nothing to train; give one of them"},
      {job_.micro_batches > job_.global_batch,
       "{train.micro_batches} does not fit {train.global_batch}: a micro-batch needs at least "
       "one sample; lower the first or raise the second"},
      {uint64_t{job_.local_steps} * job_.micro_batches > job_.global_batch ||
           job_.local_steps > kLocalStepsMax,
       "{train.local_steps} does not fit {train.global_batch} and {train.micro_batches}: each "
       "local step needs a sample of its micro-batch; raise the batch"},
      {job_.local_steps > 1 && (IsExternal(job_) || job_.precision != Precision::kFp32 ||
                                job_.parameter_residency != ParameterResidency::kAll),
       "{train.local_steps} goes with Pando's own models, {train.precision} = \"fp32\" and "
       "worker.parameter_residency = \"all\"; a program makes rounds with pando.join(outer=)"},
      {job_.staleness > 0 && job_.precision == Precision::kFp16,
       "{train.staleness} does not go with {train.precision}: gradients would be scaled by the "
       "loss "
       "scale of another version than the one that they update; give bf16 or fp32"},
      {job_.staleness > 0 && HasFeedback(job_.push_codec),
       "{train.staleness} does not go with {train.codec}: an error of one step is part of the next "
       "step's gradients; give int8, bf16, fp16 or fp32"},
      {job_.early_stop_patience > 0 && job_.eval_every_epochs == 0 && job_.eval_every_steps == 0,
       "{eval.early_stop_patience} needs evaluations during the run; give eval.every_epochs or "
       "eval.every_steps"}};
}

std::vector<JobDraft::Rule> JobDraft::OptimizerRules() const {
  const OptimizerOptions& o = job_.optimizer;
  const OptimizerOptions defaults;
  const bool is_lars = o.kind == OptimizerKind::kLars, is_lamb = o.kind == OptimizerKind::kLamb;
  const bool is_nadam = o.kind == OptimizerKind::kNadam;
  const bool has_turns = !o.turns.empty() || !o.groups.empty();
  const ScheduleKind schedule = job_.schedule.kind;
  return {{has_turns && !IsExternal(job_),
           "optimizer.turns and optimizer.groups are of an external model, but {model.name}; leave "
           "them out"},
          {has_turns && (is_lars || is_lamb || is_nadam),
           "optimizer.turns does not go with {optimizer.type}; give another one"},
          {has_turns && schedule != ScheduleKind::kConstant && schedule != ScheduleKind::kTable,
           "optimizer.turns does not go with {schedule.type}; give constant or table"},
          {o.nesterov && (o.momentum == 0 || o.dampening != 0),
           "{optimizer.nesterov} needs a momentum above 0 and no dampening, but "
           "{optimizer.momentum} and {optimizer.dampening}"},
          {o.clip_value > 0 && o.clip_norm > 0,
           "{optimizer.clip_value} and {optimizer.clip_norm} both clip the gradient; give one of "
           "them"},
          {is_lamb && o.clip_norm > 0,
           "{optimizer.clip_norm} does not go with {optimizer.type}: lamb's own norms would have "
           "to be those of the clipped gradient; leave it out or give optimizer.clip_value"},
          {o.is_weighted && (is_lars || is_lamb),
           "{train.weighted} does not go with {optimizer.type}, whose norms are of a mean over "
           "samples; give sgd, adam or adamw"},
          {is_lars && (o.nesterov || o.dampening != 0),
           "{optimizer.type} has plain momentum, but {optimizer.nesterov} and "
           "{optimizer.dampening}; leave them out"},
          {!is_lars && o.trust_coefficient != defaults.trust_coefficient,
           "{optimizer.trust_coefficient} is read by lars alone, but {optimizer.type}; leave it "
           "out"},
          {!is_lamb && o.trust_ratio_max != defaults.trust_ratio_max,
           "{optimizer.trust_ratio_max} is read by lamb alone, but {optimizer.type}; leave it "
           "out"},
          {is_nadam && o.beta1 > 0.9999,
           "{optimizer.beta1} is above 0.9999, the most for {optimizer.type}; lower it"},
          {is_nadam && job_.precision == Precision::kFp16,
           "{optimizer.type} does not go with {train.precision}: its momentum counts all steps, "
           "and fp16 skips some; give adam, or bf16"},
          {!is_nadam && o.decoupled_weight_decay,
           "{optimizer.decoupled_weight_decay} is read by nadam alone, but {optimizer.type}; give "
           "adamw, or leave it out"}};
}

std::vector<JobDraft::Rule> JobDraft::ScheduleRules() const {
  const ScheduleOptions& s = job_.schedule;
  using enum ScheduleKind;
  return {{s.kind == kStep && s.step_size == 0,
           "{schedule.type} needs schedule.step_size ≥ 1: give the steps between decays"},
          {s.kind == kMultiStep && s.milestones.empty(),
           "{schedule.type} needs schedule.milestones: give the steps of the decays"},
          {s.kind == kExponential && !IsGiven("schedule.gamma"),
           "{schedule.type} needs schedule.gamma: give the factor of each step, as 0.999"},
          {s.kind == kTable && s.rates.empty(),
           "{schedule.type} needs schedule.rates: give the rate of each step"},
          {s.kind != kTable && !s.rates.empty(),
           "schedule.rates is read by table alone, but {schedule.type}; leave it out"},
          {s.kind == kTable && s.warmup_steps > 0,
           "{schedule.warmup_steps} does not go with {schedule.type}: schedule.rates has the rates "
           "of all steps; leave it out"},
          {s.kind == kCosine && s.min_lr > job_.optimizer.lr,
           "{schedule.min_lr} is above {optimizer.lr}: a cosine schedule falls"},
          {s.kind == kOneCycle && s.base_momentum > s.max_momentum,
           "{schedule.base_momentum} is above {schedule.max_momentum}"}};
}

std::vector<JobDraft::Rule> JobDraft::RunRules() const {
  return {{job_.lease_ms <= 2 * job_.heartbeat_ms,
           "{run.lease_ms} must be above twice {run.heartbeat_ms}, or one late heartbeat looks "
           "like a death"},
          {!ParseStepRange(job_.timeline_steps),
           "{run.timeline_steps}: expected A:B, the steps from A to B - 1, as 100:110; A or B may "
           "be left out"},
          {job_.timeline.empty() && !job_.timeline_steps.empty(),
           "{run.timeline_steps} bounds a timeline, and run.timeline names none; give --timeline "
           "FILE"},
          {job_.verify_every > 0 && job_.allow_nondeterministic,
           "{verify.every} compares bits, which {train.allow_nondeterministic} lets differ; give "
           "one of them"}};
}

// Without servers, flags about them are errors. A file's keys about them are ignored and stay for
// later runs with servers, because a resolved job's text has all keys.
std::vector<JobDraft::Rule> JobDraft::StrategyRules() const {
  if (job_.strategy != Strategy::kAllreduce) return {};
  const auto has_flag = [this](const char* name) {
    const auto at = where_.find(name);
    return at != where_.end() && at->second.starts_with("--");
  };
  return {{has_flag("run.servers"),
           "{run.strategy} has no servers, but {run.servers}; leave it out, or give --strategy ps"},
          {has_flag("run.replicas"),
           "{run.strategy} has no servers, but {run.replicas}; leave it out, or give --strategy "
           "ps"},
          {has_flag("run.lanes"),
           "{run.strategy} has no servers, but {run.lanes}; leave it out, or give --strategy ps"},
          {has_flag("run.transport") && job_.transport != Job().transport,
           "{run.strategy} sums by gloo or NCCL, which have their own transports, but "
           "{run.transport}; leave it out, or give --strategy ps"},
          {job_.servers_max > ShardPlan::kFewServers,
           "{run.servers_max} cuts parameters for more than 16 servers, and {run.strategy} sums in "
           "the order of the cut for 16; leave it out, or give --strategy ps"},
          {job_.verify_every > 0,
           "{verify.every} compares what servers are sent, and {run.strategy} has none; leave one "
           "of them out"},
          {job_.staleness > 0,
           "{train.staleness} hides the exchange with servers, and {run.strategy} has none; leave "
           "one of them out"},
          {job_.parameter_residency == ParameterResidency::kLayer,
           "{worker.parameter_residency} pulls parameters from servers, and with {run.strategy} "
           "every worker holds all of them; leave one of them out"},
          {job_.pull_codec != PayloadCodec::kFp32,
           "{train.pull_codec} says how servers are sent something, and {run.strategy} sums "
           "floats; leave one of them out"},
          {job_.push_codec != PayloadCodec::kFp32,
           "{train.codec} says how servers are sent something, and {run.strategy} sums floats; "
           "leave one of them out"}};
}

}  // namespace pando
