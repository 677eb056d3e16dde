// The job file: TOML text <-> Job. Called by `pando train`, the scheduler, which sends the resolved
// text to every joiner, and the joiners, which parse it. docs/job-file.md lists the keys.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "job/job_key.h"
#include "plan/job.h"

namespace pando {

// JobDraft gathers a job from its sources, later ones on top: defaults, a file, flags. Errors name
// the source ("job.toml:7", "--lr"). After an error the draft is of no further use.
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
  // Set by the program if no source gives the key.  REQUIRES: the value fits the key.
  void SetDefault(const std::string& key, const JobValue& value);
  // Checks what no key can know alone.
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
  std::map<std::string, std::string> where_;  // of every key that was given
  std::set<std::string> in_source_;           // keys given by the source being read
};

Result<Job> ParseJobText(std::string_view text, const std::string& file_name);
Result<Job> ReadJobFile(const std::string& path);
Result<std::string> ReadTextFile(const std::string& path);

// Where job->model is a network's file and job->network is empty, reads it: from then on the job
// needs the file no more.
Status LoadNetwork(Job* job);

// Every key, in one deterministic text; ParseJobText reads back the same job. The length is written
// as steps or as epochs, the other as 0.
std::string WriteJobText(const Job& job);
// The part of it that fixes the result: all but [worker], [snapshot], [verify] and [run] (P5), and
// train.activation_checkpointing.
std::string JobIdentityText(const Job& job);
bool IsIdentityKey(const JobKey& key);
// `run_salt` tells apart two runs of one job: random, drawn when a run starts.
JobId MakeJobId(const Job& job, uint64_t run_salt);

// docs/job-file.md, whole.
std::string JobFileDoc();

}  // namespace pando
