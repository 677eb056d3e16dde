#include "cli/job_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <type_traits>
#include <utility>

#include "cli/text.h"
#include "common/nearest_name.h"
#include "models/network.h"
#include "proto/message_limits.h"
#include "worker/dataset.h"

namespace pando {
namespace {

constexpr ValueRange kAny{};
constexpr ValueRange kAtLeastOne{.min = 1};
constexpr ValueRange kPositive{.min = 0, .is_min_excluded = true};
constexpr ValueRange kUint32{.min = 1, .max = 1e9};
// Epochs times the steps of one, and steps times samples, stay far from where 64 bits end.
constexpr ValueRange kSteps{.min = 0, .max = 1e12};
constexpr ValueRange kEpochs{.min = 0, .max = 1e6};
constexpr ValueRange kMicroBatches{.min = 1, .max = kMicroBatchesMax};
constexpr ValueRange kThreads{.min = 1, .max = 1024};
constexpr ValueRange kLanes{.min = 0, .max = 256};
constexpr ValueRange kBelowOne{.min = 0, .max = 1, .is_max_excluded = true};
constexpr ValueRange kUnit{.min = 0, .max = 1};
constexpr ValueRange kOpenUnit{
    .min = 0, .max = 1, .is_min_excluded = true, .is_max_excluded = true};
constexpr ValueRange kReplicas{.min = 1, .max = 2};
constexpr ValueRange kSnapshots{.min = 1, .max = 1000};
constexpr ValueRange kMilliseconds{.min = 1, .max = 86'400'000};

// Names of enumerators, by value.
template <class E>
std::vector<std::string> EnumNames();
template <>
std::vector<std::string> EnumNames<OptimizerKind>() {
  return {"sgd", "adam", "adamw"};
}
template <>
std::vector<std::string> EnumNames<ScheduleKind>() {
  return {"constant", "step", "cosine", "one-cycle"};
}
template <>
std::vector<std::string> EnumNames<LastBatch>() {
  return {"short", "drop"};
}

template <class T>
JobValue ToValue(const T& field) {
  if constexpr (std::is_enum_v<T>) {
    return EnumNames<T>()[static_cast<size_t>(field)];
  } else if constexpr (std::is_same_v<T, uint32_t>) {
    return uint64_t{field};
  } else {
    return field;
  }
}

template <class T>
void FromValue(const JobValue& value, T* field) {
  if constexpr (std::is_enum_v<T>) {
    const std::vector<std::string> names = EnumNames<T>();
    auto at = std::find(names.begin(), names.end(), std::get<std::string>(value));
    PANDO_CHECK(at != names.end());
    *field = static_cast<T>(at - names.begin());
  } else if constexpr (std::is_same_v<T, uint32_t>) {
    *field = static_cast<uint32_t>(std::get<uint64_t>(value));
  } else {
    *field = std::get<T>(value);
  }
}

struct Words {
  const char* name;
  const char* flag;
  const char* unit;
  const char* help;
};

// `field` takes a Job, const or not, and returns a reference to the key's member.
template <class Field>
JobKey MakeKey(ValueKind kind, Words words, Field field, ValueRange range = kAny) {
  using T = std::remove_cvref_t<decltype(field(std::declval<Job&>()))>;
  JobKey key{.name = words.name,
             .flag = words.flag,
             .kind = kind,
             .unit = words.unit,
             .help = words.help,
             .range = range,
             .choices = {},
             .get = [field](const Job& job) { return ToValue<T>(field(job)); },
             .set = [field](Job& job, const JobValue& value) { FromValue<T>(value, &field(job)); }};
  if constexpr (std::is_enum_v<T>) key.choices = EnumNames<T>();
  return key;
}

template <class Field>
JobKey MakeChoice(Words words, std::vector<std::string> choices, Field field) {
  JobKey key = MakeKey(ValueKind::kChoice, words, field);
  key.choices = std::move(choices);
  return key;
}

// A field accessor, for MakeKey. A macro because the member's path is part of a lambda's body.
#define PANDO_FIELD(path) \
  [](auto& job) -> auto& { return job.path; }

void AddModelAndDataKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeChoice({"model.name", "--model", "", "the network to train"}, Model::Names(),
                             PANDO_FIELD(model)));
  keys->push_back(MakeKey(kCountList,
                          {"model.hidden", "", "units", "widths of the mlp's hidden layers"},
                          PANDO_FIELD(mlp_hidden), kUint32));
  keys->push_back(MakeChoice({"data.name", "--dataset", "", "the data set"}, DataSetNames(),
                             PANDO_FIELD(dataset)));
  keys->push_back(
      MakeKey(kText,
              {"data.path", "--data", "folder",
               "where the data set's files lie; empty: data/NAME or ../shared/data/NAME"},
              PANDO_FIELD(data_path)));
  keys->push_back(MakeKey(kCount,
                          {"data.synthetic_train_samples", "", "samples",
                           "training samples that synthetic-digits draws"},
                          PANDO_FIELD(synthetic_train_samples), kUint32));
  keys->push_back(MakeKey(
      kCount,
      {"data.synthetic_test_samples", "", "samples", "test samples that synthetic-digits draws"},
      PANDO_FIELD(synthetic_test_samples), kUint32));
}

void AddTrainKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(
      kCount,
      {"train.steps", "--steps", "steps", "length of the run in steps; 0: train.epochs says it"},
      PANDO_FIELD(steps), kSteps));
  keys->push_back(
      MakeKey(kReal,
              {"train.epochs", "--epochs", "epochs",
               "length of the run in epochs, rounded up to a step; 0: train.steps says it"},
              PANDO_FIELD(epochs), kEpochs));
  keys->push_back(MakeKey(
      kCount,
      {"train.global_batch", "--global-batch", "samples", "samples of one step, over all workers"},
      PANDO_FIELD(global_batch), kUint32));
  keys->push_back(
      MakeKey(kCount,
              {"train.micro_batches", "--micro-batches", "per step",
               "parts of a step that workers compute; fixes the result, whoever computes them"},
              PANDO_FIELD(micro_batches), kMicroBatches));
  keys->push_back(MakeKey(
      kChoice,
      {"train.last_batch", "", "", "the last batch of an epoch, where the data do not fill it"},
      PANDO_FIELD(last_batch)));
  keys->push_back(MakeKey(
      kCount, {"train.seed", "--seed", "", "seed of weights, shuffling, dropout, synthetic data"},
      PANDO_FIELD(seed)));
}

void AddOptimizerKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(
      kChoice, {"optimizer.type", "--optimizer", "", "the optimizer, formulas as PyTorch's"},
      PANDO_FIELD(optimizer.kind)));
  keys->push_back(MakeKey(kReal,
                          {"optimizer.lr", "--lr", "", "learning rate; the highest of a schedule"},
                          PANDO_FIELD(optimizer.lr), kPositive));
  keys->push_back(MakeKey(kReal, {"optimizer.momentum", "--momentum", "", "momentum of sgd"},
                          PANDO_FIELD(optimizer.momentum), kBelowOne));
  keys->push_back(MakeKey(kReal, {"optimizer.dampening", "", "", "sgd: dampening of the momentum"},
                          PANDO_FIELD(optimizer.dampening), kUnit));
  keys->push_back(MakeKey(kBool, {"optimizer.nesterov", "", "", "sgd: Nesterov's momentum"},
                          PANDO_FIELD(optimizer.nesterov)));
  keys->push_back(MakeKey(kReal, {"optimizer.beta1", "", "", "adam, adamw: decay of the mean"},
                          PANDO_FIELD(optimizer.beta1), kBelowOne));
  keys->push_back(MakeKey(kReal, {"optimizer.beta2", "", "", "adam, adamw: decay of the square"},
                          PANDO_FIELD(optimizer.beta2), kBelowOne));
  keys->push_back(MakeKey(kReal, {"optimizer.eps", "", "", "adam, adamw: added to the root"},
                          PANDO_FIELD(optimizer.eps), kPositive));
  keys->push_back(
      MakeKey(kReal,
              {"optimizer.weight_decay", "--weight-decay", "",
               "share of the weights added to the gradient; in adamw, taken off the weights"},
              PANDO_FIELD(optimizer.weight_decay)));
}

void AddScheduleKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(
      kChoice, {"schedule.type", "--schedule", "", "how the learning rate moves over the run"},
      PANDO_FIELD(schedule.kind)));
  keys->push_back(MakeKey(kCount,
                          {"schedule.warmup_steps", "", "steps", "linear rise before any type"},
                          PANDO_FIELD(schedule.warmup_steps)));
  keys->push_back(MakeKey(kCount, {"schedule.step_size", "", "steps", "step: steps between decays"},
                          PANDO_FIELD(schedule.step_size)));
  keys->push_back(MakeKey(kReal, {"schedule.gamma", "", "", "step: factor of each decay"},
                          PANDO_FIELD(schedule.gamma), kPositive));
  keys->push_back(MakeKey(kReal, {"schedule.min_lr", "", "", "cosine: rate at the end"},
                          PANDO_FIELD(schedule.min_lr)));
  keys->push_back(MakeKey(kReal,
                          {"schedule.pct_start", "", "", "one-cycle: share of the run that rises"},
                          PANDO_FIELD(schedule.pct_start), kOpenUnit));
  keys->push_back(
      MakeKey(kReal, {"schedule.div_factor", "", "", "one-cycle: rate at the start = lr / this"},
              PANDO_FIELD(schedule.div_factor), kAtLeastOne));
  keys->push_back(MakeKey(kReal,
                          {"schedule.final_div_factor", "", "",
                           "one-cycle: rate at the end = rate at the start / this"},
                          PANDO_FIELD(schedule.final_div_factor), kAtLeastOne));
  keys->push_back(MakeKey(
      kBool,
      {"schedule.cycle_momentum", "", "", "one-cycle: momentum (adam: beta1) runs the other way"},
      PANDO_FIELD(schedule.cycle_momentum)));
  keys->push_back(MakeKey(kReal, {"schedule.base_momentum", "", "", "one-cycle: lowest momentum"},
                          PANDO_FIELD(schedule.base_momentum), kBelowOne));
  keys->push_back(MakeKey(kReal, {"schedule.max_momentum", "", "", "one-cycle: highest momentum"},
                          PANDO_FIELD(schedule.max_momentum), kBelowOne));
  keys->push_back(MakeKey(kCount,
                          {"eval.every_epochs", "", "epochs",
                           "epochs between evaluations on the test set; 0: only at the end"},
                          PANDO_FIELD(eval_every_epochs), kEpochs));
}

void AddSafetyKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(kCount,
                          {"snapshot.every", "--snapshot-every", "steps",
                           "steps between snapshots of the job; 0: only at its end"},
                          PANDO_FIELD(snapshot_every), kSteps));
  keys->push_back(MakeKey(
      kCount, {"snapshot.keep", "", "snapshots", "complete snapshots that are kept, the newest"},
      PANDO_FIELD(snapshot_keep), kSnapshots));
  keys->push_back(MakeKey(kCount,
                          {"verify.every", "--verify-every", "micro-batches",
                           "one micro-batch in so many is computed by two workers and compared, to "
                           "find machines that compute wrongly; 0: none"},
                          PANDO_FIELD(verify_every), kSteps));
}

void AddRunKeys(std::vector<JobKey>* keys) {
  using enum ValueKind;
  keys->push_back(MakeKey(
      kCount, {"run.workers", "--workers", "processes", "worker processes: they compute gradients"},
      PANDO_FIELD(workers), kThreads));
  keys->push_back(MakeKey(
      kCount,
      {"run.servers", "--servers", "processes", "server processes: they hold the parameters"},
      PANDO_FIELD(servers), kThreads));
  keys->push_back(MakeKey(kCount,
                          {"run.replicas", "--replicas", "servers",
                           "servers that hold each shard; with 2, a server's death costs nothing"},
                          PANDO_FIELD(replicas), kReplicas));
  keys->push_back(MakeKey(
      kCount, {"run.threads", "--threads", "per worker", "computing threads of each worker"},
      PANDO_FIELD(threads), kThreads));
  keys->push_back(MakeKey(
      kCount, {"run.lanes", "", "per server", "serving threads of each server; 0: by cores"},
      PANDO_FIELD(lanes), kLanes));
  keys->push_back(
      MakeChoice({"run.transport", "--transport", "", "how the processes of pando train talk"},
                 {"tcp", "ipc"}, PANDO_FIELD(transport)));
  keys->push_back(MakeKey(kText, {"run.name", "", "", "the run's name; empty: MODEL-DATA-TIME"},
                          PANDO_FIELD(name)));
  keys->push_back(MakeKey(kText,
                          {"run.dir", "--run-dir", "folder", "the run's folder; empty: runs/NAME"},
                          PANDO_FIELD(run_dir)));
  keys->push_back(MakeKey(kCount,
                          {"run.log_every", "", "steps", "steps between rows of metrics.csv"},
                          PANDO_FIELD(log_every_steps), kAtLeastOne));
  keys->push_back(MakeKey(kCount,
                          {"run.heartbeat_ms", "", "ms", "time between a process's signs of life"},
                          PANDO_FIELD(heartbeat_ms), kMilliseconds));
  keys->push_back(
      MakeKey(kCount, {"run.lease_ms", "", "ms", "silence after which a process counts as dead"},
              PANDO_FIELD(lease_ms), kMilliseconds));
  keys->push_back(MakeKey(
      kCount, {"run.start_timeout_ms", "", "ms", "how long to wait until every process is there"},
      PANDO_FIELD(start_timeout_ms), kMilliseconds));
  keys->push_back(MakeKey(kCount,
                          {"run.scheduler_timeout_ms", "", "ms",
                           "silence of the scheduler after which servers and workers leave"},
                          PANDO_FIELD(scheduler_timeout_ms), kMilliseconds));
}

#undef PANDO_FIELD

std::vector<JobKey> MakeKeys() {
  std::vector<JobKey> keys;
  AddModelAndDataKeys(&keys);
  AddTrainKeys(&keys);
  AddOptimizerKeys(&keys);
  AddScheduleKeys(&keys);
  AddSafetyKeys(&keys);
  AddRunKeys(&keys);
  return keys;
}

bool IsInRange(const ValueRange& range, double value) {
  if (!std::isfinite(value) || value < range.min || value > range.max) return false;
  if (range.is_min_excluded && value == range.min) return false;
  return !range.is_max_excluded || value != range.max;
}

std::string RangeText(const ValueRange& range) {
  std::string text = fmt::format("{} {:.15g}", range.is_min_excluded ? ">" : "≥", range.min);
  if (range.max == kAny.max) return text;
  return fmt::format("{} and {} {:.15g}", text, range.is_max_excluded ? "<" : "≤", range.max);
}

template <class T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "128,64", "[128, 64]", or nothing at all.
std::optional<std::vector<uint64_t>> ParseList(std::string_view text) {
  std::string digits;
  for (char c : text) {
    if (c != ' ' && c != '[' && c != ']') digits += c;
  }
  std::vector<uint64_t> list;
  for (std::string_view rest = digits; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    auto element = ParseNumber<uint64_t>(rest.substr(0, comma));
    if (!element) return std::nullopt;
    list.push_back(*element);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return list;
}

std::optional<JobValue> ReadAs(ValueKind kind, std::string_view text) {
  switch (kind) {
    case ValueKind::kCount:
      return ParseNumber<uint64_t>(text);
    case ValueKind::kReal:
      return ParseNumber<double>(text);
    case ValueKind::kBool:
      if (text == "true") return true;
      if (text == "false") return false;
      return std::nullopt;
    case ValueKind::kCountList:
      return ParseList(text);
    default:
      return std::string(text);
  }
}

std::string QuotedToml(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace

const std::vector<JobKey>& JobKeys() {
  static const std::vector<JobKey> keys = MakeKeys();
  return keys;
}

const JobKey* FindJobKey(std::string_view name) {
  for (const JobKey& key : JobKeys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string SuggestJobKey(std::string_view wrong) {
  std::vector<std::string> names;
  for (const JobKey& key : JobKeys()) {
    // A right key in no section or another one is the likeliest slip.
    if (wrong.substr(wrong.rfind('.') + 1) == key.leaf())
      return fmt::format("did you mean '{}'?", key.name);
    names.push_back(key.name);
  }
  return DidYouMean(wrong, names);
}

std::string ExpectedValue(const JobKey& key) {
  switch (key.kind) {
    case ValueKind::kCount:
      return "a whole number " + RangeText(key.range);
    case ValueKind::kReal:
      return "a number " + RangeText(key.range);
    case ValueKind::kBool:
      return "true or false";
    case ValueKind::kText:
      return "a text";
    case ValueKind::kCountList:
      return "a list of whole numbers, each " + RangeText(key.range);
    case ValueKind::kChoice:
      return "one of " + Joined(key.choices);
  }
  return "";
}

Status CheckJobValue(const JobKey& key, const JobValue& value) {
  bool fits = true;
  std::string hint;
  if (auto* count = std::get_if<uint64_t>(&value)) {
    // TOML's integers end at 2^63 - 1.
    fits = IsInRange(key.range, static_cast<double>(*count)) && *count <= uint64_t{INT64_MAX};
  } else if (auto* real = std::get_if<double>(&value)) {
    fits = IsInRange(key.range, *real);
  } else if (auto* list = std::get_if<std::vector<uint64_t>>(&value)) {
    for (uint64_t element : *list)
      fits = fits && IsInRange(key.range, static_cast<double>(element));
  } else if (auto* text = std::get_if<std::string>(&value); key.kind == ValueKind::kChoice) {
    fits = std::find(key.choices.begin(), key.choices.end(), *text) != key.choices.end();
    if (!fits) hint = DidYouMean(*text, key.choices);
    if (!hint.empty()) hint = "; " + hint;
  }
  if (fits) return Status();
  return InvalidArgument(fmt::format("{} must be {}, got {}{}", key.name, ExpectedValue(key),
                                     JobValueToml(value), hint));
}

Result<JobValue> ParseJobValue(const JobKey& key, std::string_view text) {
  std::optional<JobValue> value = ReadAs(key.kind, text);
  if (!value) {
    return InvalidArgument(
        fmt::format("{} must be {}, got '{}'", key.name, ExpectedValue(key), text));
  }
  if (Status s = CheckJobValue(key, *value); !s.ok()) return s;
  return *std::move(value);
}

std::string JobValueToml(const JobValue& value) {
  if (auto* count = std::get_if<uint64_t>(&value)) return fmt::format("{}", *count);
  if (auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (auto* text = std::get_if<std::string>(&value)) return QuotedToml(*text);
  if (auto* list = std::get_if<std::vector<uint64_t>>(&value)) {
    return fmt::format("[{}]", Joined(*list));
  }
  // The shortest text that reads back as the same number; TOML wants to see that it is no integer.
  std::string real = fmt::format("{}", std::get<double>(value));
  const bool is_integral = real.find_first_not_of("-0123456789") == std::string::npos;
  return is_integral ? real + ".0" : real;
}

}  // namespace pando
