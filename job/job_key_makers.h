// How job/job_keys.cc makes its keys: names of enumerators, ranges, and a key of a member of Job.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/text.h"
#include "data/dataset.h"
#include "job/device_choice.h"
#include "job/job_keys.h"
#include "proto/message_limits.h"

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

template <class T>
JobValue ToValue(const T& field) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(EnumName(field));
  } else if constexpr (std::is_same_v<T, uint32_t>) {
    return uint64_t{field};
  } else {
    return field;
  }
}

template <class T>
void FromValue(const JobValue& value, T* field) {
  if constexpr (std::is_enum_v<T>) {
    const std::optional<T> parsed = ParseEnum<T>(std::get<std::string>(value));
    PANDO_CHECK(parsed.has_value());
    *field = *parsed;
  } else if constexpr (std::is_same_v<T, uint32_t>) {
    *field = static_cast<uint32_t>(std::get<uint64_t>(value));
  } else {
    *field = std::get<T>(value);
  }
}

template <class T>
ValueKind KindOfMember() {
  if constexpr (std::is_enum_v<T>) return ValueKind::kChoice;
  if constexpr (std::is_same_v<T, bool>) return ValueKind::kBool;
  if constexpr (std::is_same_v<T, double>) return ValueKind::kReal;
  if constexpr (std::is_integral_v<T>) return ValueKind::kCount;
  if constexpr (std::is_same_v<T, std::vector<uint64_t>>) return ValueKind::kCountList;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return ValueKind::kTextList;
  return ValueKind::kText;
}

// A member of Job: the kind of its values, and how they are read and written.
struct JobMember {
  ValueKind kind;
  JobValue (*get)(const Job&);
  void (*set)(Job&, const JobValue&);
  std::span<const char* const> enum_names = {};
};

// `kMembers` lead to it, as in &Job::optimizer, &OptimizerOptions::lr.
template <auto... kMembers>
constexpr JobMember At() {
  using T = std::remove_cvref_t<decltype((std::declval<Job&>().*....*kMembers))>;
  JobMember member{
      .kind = KindOfMember<T>(),
      .get = [](const Job& job) { return ToValue<T>((job.*....*kMembers)); },
      .set = [](Job& job, const JobValue& v) { FromValue<T>(v, &(job.*....*kMembers)); }};
  if constexpr (std::is_enum_v<T>) member.enum_names = kEnumNames<T>;
  return member;
}

// What few keys have.
struct KeyExtras {
  std::vector<std::string> choices = {};  // of a text, or of each text of a list
  std::string_view file_suffix = {};
  const char* flag_alias = "";
  size_t choice_count = SIZE_MAX;  // of an enum: its first ones alone
};
inline KeyExtras OneOf(std::vector<std::string> choices, std::string_view file_suffix = {}) {
  return {.choices = std::move(choices), .file_suffix = file_suffix};
}
inline KeyExtras Alias(const char* flag) { return {.flag_alias = flag}; }
inline KeyExtras FirstChoices(size_t count) { return {.choice_count = count}; }

struct KeyRow {
  const char* name;
  const char* flag;
  const char* unit;
  const char* help;
  JobMember member;
  ValueRange range = kAny;
  KeyExtras extras = {};
};

inline JobKey KeyFor(const KeyRow& row) {
  const KeyExtras& extras = row.extras;
  JobKey key{.name = row.name,
             .flag = row.flag,
             .kind = row.member.kind,
             .unit = row.unit,
             .help = row.help,
             .range = row.range,
             .flag_alias = extras.flag_alias,
             .choices = extras.choices,
             .file_suffix = std::string(extras.file_suffix),
             .get = row.member.get,
             .set = row.member.set};
  if (key.kind == ValueKind::kText && !key.choices.empty()) key.kind = ValueKind::kChoice;
  if (!row.member.enum_names.empty()) {
    key.choices.assign(row.member.enum_names.begin(), row.member.enum_names.end());
    key.choices.resize(std::min(key.choices.size(), extras.choice_count));
  }
  return key;
}

}  // namespace pando
