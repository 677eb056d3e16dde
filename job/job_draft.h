// JobDraft gathers a job from its sources: defaults, a file, flags; later ones win. Errors name the
// source ("job.toml:7", "--lr"). After an error the draft must not be used.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "job/job_key.h"
#include "plan/job.h"

namespace pando {

class JobDraft {
 public:
  // Adds a file's text; `file_name` is for errors.
  Status AddToml(std::string_view text, std::string file_name);
  struct Override {
    std::string key;    // "optimizer.lr"
    std::string text;   // as typed
    std::string where;  // "--lr", "--set"
  };
  Status AddOverrides(const std::vector<Override>& overrides);  // all of them are one source

  bool IsGiven(const std::string& key) const { return where_.contains(key); }
  const Job& job() const { return job_; }  // as gathered so far, not checked
  // The program's value if no source gives the key. REQUIRES: the value fits the key.
  void SetDefault(const std::string& key, const JobValue& value);
  // Checks the rules that concern several keys.
  Result<Job> Finish() const;

 private:
  Status Set(const JobKey& key, const JobValue& value, std::string where);
  Status EndSource();
  template <class T>
  Status ChooseOne(const char* by_steps, uint64_t Job::*steps, const char* by_epochs,
                   T Job::*epochs, const char* meaning);
  std::string Named(const std::string& key) const;
  std::string WithKeysNamed(std::string_view text) const;
  struct Rule {
    bool is_broken;
    const char* error;  // with the names of keys in braces
  };
  std::vector<Rule> ModelRules() const;
  std::vector<Rule> TrainRules() const;
  std::vector<Rule> OptimizerRules() const;
  std::vector<Rule> ScheduleRules() const;
  std::vector<Rule> RunRules() const;
  std::vector<Rule> StrategyRules() const;

  Job job_;
  std::map<std::string, std::string> where_;  // for every key that was given
  std::set<std::string> in_source_;           // keys given by the source being read
};

}  // namespace pando
