// The keys of the job file: their values, text forms and checks, and the one table of all keys. The
// table drives parsing, --set, the flags of `pando train`, the resolved job.toml and
// docs/job-file.md, so that none of them can forget a key.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"
#include "plan/job.h"

namespace pando {

enum class ValueKind : uint8_t { kCount, kReal, kBool, kText, kChoice, kCountList, kTextList };

// The types are those of kCount, kReal, kBool, kText and kChoice, kCountList, kTextList.
using JobValue = std::variant<uint64_t, double, bool, std::string, std::vector<uint64_t>,
                              std::vector<std::string>>;

struct ValueRange {  // for kCount, kReal and each element of kCountList
  double min = 0;
  double max = std::numeric_limits<double>::max();
  bool is_min_excluded = false;
  bool is_max_excluded = false;
};

// A member of Job: the kind of its values, and how they are read and written.
struct JobMember {
  ValueKind kind = ValueKind::kText;
  JobValue (*get)(const Job&);
  void (*set)(Job&, const JobValue&);     // REQUIRES: the value's kind is `kind`, in range
  std::vector<std::string> choices = {};  // kChoice; kTextList: for each element, empty: any text
  std::string file_suffix = {};  // kChoice: also accepts paths with this suffix; empty: none
};

struct JobKey : JobMember {
  std::string name;  // "train.global_batch"
  std::string flag;  // "--global-batch"; empty: only --set
  std::string unit;  // "samples"; empty if the value has none
  std::string help;
  ValueRange range = {};
  std::string flag_alias = {};  // another system's name for the flag; empty: none

  std::string_view section() const { return std::string_view(name).substr(0, name.find('.')); }
  std::string_view leaf() const { return std::string_view(name).substr(name.find('.') + 1); }
};

// Checks that the value can be stored. Errors say what was expected, but not where.
Status CheckJobValue(const JobKey& key, const JobValue& value);
// Reads "128", "0.1", "true", "adam" or "128,64" as the key's kind, and checks it.
Result<JobValue> ParseJobValue(const JobKey& key, std::string_view text);
// Returns the value as TOML text. ParseJobValue reads it back; texts lose their quotes.
std::string JobValueToml(const JobValue& value);
// Returns "from 0 to 4096", "≥ 1" or "> 0 and < 1", for errors and docs/job-file.md.
std::string RangeText(const ValueRange& range);
// Returns for example "a whole number ≥ 1", for errors.
std::string ExpectedValue(const JobKey& key);

// Returns every key, in the order of the file; the keys of a section are adjacent.
const std::vector<JobKey>& JobKeys();
// Returns the key with this name, or null.
const JobKey* FindJobKey(std::string_view name);
// Returns "did you mean 'optimizer.lr'?" for a key that does not exist, or "" if none is near.
std::string SuggestJobKey(std::string_view wrong);
// Returns the key for another program's name: "--learning-rate", "batch_size"; null if none.
const JobKey* FindForeignKey(std::string_view word);

}  // namespace pando
