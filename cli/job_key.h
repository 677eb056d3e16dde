// One key of the job file: what its value may be, as text and checked.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/job.h"
#include "common/status.h"

namespace pando {

enum class ValueKind : uint8_t { kCount, kReal, kBool, kText, kChoice, kCountList, kTextList };

// kCount, kReal, kBool, kText and kChoice, kCountList, kTextList.
using JobValue = std::variant<uint64_t, double, bool, std::string, std::vector<uint64_t>,
                              std::vector<std::string>>;

struct ValueRange {  // of kCount, kReal and each element of kCountList
  double min = 0;
  double max = std::numeric_limits<double>::max();
  bool is_min_excluded = false;
  bool is_max_excluded = false;
};

struct JobKey {
  std::string name;  // "train.global_batch"
  std::string flag;  // "--global-batch"; empty: --set only
  ValueKind kind = ValueKind::kText;
  std::string unit;  // "samples"; empty where the value has none
  std::string help;
  ValueRange range;
  std::string flag_alias;            // another system's name for the flag; empty: none
  std::vector<std::string> choices;  // kChoice; kTextList: of each element, empty: any text
  std::string file_suffix;           // kChoice: paths that end so are taken too; empty: none
  std::function<JobValue(const Job&)> get;
  std::function<void(Job&, const JobValue&)> set;  // REQUIRES: the kind's alternative, in range

  std::string_view section() const { return std::string_view(name).substr(0, name.find('.')); }
  std::string_view leaf() const { return std::string_view(name).substr(name.find('.') + 1); }
};

// Whether the value can be stored; errors say what was expected, not where.
Status CheckJobValue(const JobKey& key, const JobValue& value);
// Reads "128", "0.1", "true", "adam", "128,64" as the key's kind, and checks it.
Result<JobValue> ParseJobValue(const JobKey& key, std::string_view text);
// The value as TOML text; ParseJobValue reads it back, texts without their quotes.
std::string JobValueToml(const JobValue& value);
// "a whole number ≥ 1", for errors and docs/job-file.md.
std::string ExpectedValue(const JobKey& key);

}  // namespace pando
