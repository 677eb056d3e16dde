// How JobKeys makes its keys: enumerators' names, ranges, and a key of a member of Job. Included by
// cli/job_keys.cc and cli/job_keys_run.cc alone.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/device_choice.h"
#include "cli/job_keys.h"
#include "common/check.h"
#include "proto/message_limits.h"
#include "worker/dataset.h"

namespace pando {

inline constexpr ValueRange kAny{};
inline constexpr ValueRange kAtLeastOne{.min = 1};
inline constexpr ValueRange kPositive{.min = 0, .is_min_excluded = true};
inline constexpr ValueRange kUint32{.min = 1, .max = 1e9};
// Epochs times the steps of one, and steps times samples, stay far from where 64 bits end.
inline constexpr ValueRange kSteps{.min = 0, .max = 1e12};
inline constexpr ValueRange kEpochs{.min = 0, .max = 1e6};
inline constexpr ValueRange kMicroBatches{.min = 1, .max = kMicroBatchesMax};
inline constexpr ValueRange kThreads{.min = 1, .max = 1024};
inline constexpr ValueRange kLanes{.min = 0, .max = 256};
inline constexpr ValueRange kBadPictures{.min = 0, .max = BadPictures::kMaxMax};
inline constexpr ValueRange kSide{.min = 0, .max = 4096};
inline constexpr ValueRange kBelowOne{.min = 0, .max = 1, .is_max_excluded = true};
inline constexpr ValueRange kUnit{.min = 0, .max = 1};
inline constexpr ValueRange kOpenUnit{
    .min = 0, .max = 1, .is_min_excluded = true, .is_max_excluded = true};
inline constexpr ValueRange kShare{.min = 0, .max = 1, .is_min_excluded = true};
inline constexpr size_t kPullCodecs = 4;  // the first ones: parameters travel whole
inline constexpr ValueRange kLossScale{.min = 0, .max = 1e9};
inline constexpr ValueRange kScalePower{.min = 0, .max = 30};
inline constexpr ValueRange kScaleWindow{.min = 1, .max = 1e6};
inline constexpr ValueRange kPatience{.min = 0, .max = 1e9};
inline constexpr ValueRange kReplicas{.min = 1, .max = 2};
inline constexpr ValueRange kSnapshots{.min = 1, .max = 1000};
inline constexpr ValueRange kMilliseconds{.min = 1, .max = 86'400'000};

// Names of enumerators, by value.
template <class E>
std::vector<std::string> EnumNames();
template <>
inline std::vector<std::string> EnumNames<OptimizerKind>() {
  return {"sgd", "adam", "adamw", "lars", "lamb"};
}
template <>
inline std::vector<std::string> EnumNames<ScheduleKind>() {
  return {"constant",   "step",        "cosine", "one-cycle",
          "multi-step", "exponential", "linear", "polynomial"};
}
template <>
inline std::vector<std::string> EnumNames<LastBatch>() {
  return {"short", "drop"};
}
template <>
inline std::vector<std::string> EnumNames<Precision>() {
  using enum Precision;
  return {PrecisionName(kFp32), PrecisionName(kTf32), PrecisionName(kBf16), PrecisionName(kFp16)};
}
template <>
inline std::vector<std::string> EnumNames<PayloadCodec>() {
  return {"fp32", "fp16", "bf16", "int8", "1-bit", "top-k"};
}
template <>
inline std::vector<std::string> EnumNames<ParameterResidency>() {
  return {"all", "layer"};
}

template <>
inline std::vector<std::string> EnumNames<Strategy>() {
  return {"ps", "allreduce", "single"};
}
template <>
inline std::vector<std::string> EnumNames<AllreduceAlgorithm>() {
  return {"auto", "ring", "halving-doubling"};
}
template <>
inline std::vector<std::string> EnumNames<HostSum>() {
  return {"auto", "always", "never"};
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

template <class Field>
JobKey MakeChoiceList(Words words, std::vector<std::string> choices, Field field) {
  JobKey key = MakeKey(ValueKind::kTextList, words, field);
  key.choices = std::move(choices);
  return key;
}

// A field accessor, for MakeKey. A macro because the member's path is part of a lambda's body.
#define PANDO_FIELD(path) \
  [](auto& job) -> auto& { return job.path; }

// Those of [worker], [snapshot], [verify] and [run].
void AddRunKeys(std::vector<JobKey>* keys);

}  // namespace pando
