// The job file: TOML text <-> Job. `pando train` calls it, and so do the scheduler, which sends the
// resolved text to every joiner, and the joiners, which parse it. docs/job-file.md lists the keys.
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

// JobDraft gathers a job from its sources: defaults, a file, flags; later ones win. Errors name the
// source ("job.toml:7", "--lr"). After an error the draft must not be used.
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

Result<Job> ParseJobText(std::string_view text, const std::string& file_name);
Result<Job> ReadJobFile(const std::string& path);
Result<std::string> ReadTextFile(const std::string& path);

// If job->model is a network's file and job->network is empty, reads the file. From then on the job
// does not need the file.
Status LoadNetwork(Job* job);

// Writes every key, in one deterministic text, from which ParseJobText reads the same job. The
// length is written as steps or as epochs, and the other one as 0.
std::string WriteJobText(const Job& job);
// Writes the part that decides the result: all except [worker], [snapshot], [verify] and [run]
// (P5), and train.activation_checkpointing.
std::string JobIdentityText(const Job& job);
bool IsIdentityKey(const JobKey& key);
// `run_salt` distinguishes two runs of one job: it is random, drawn when a run starts.
JobId MakeJobId(const Job& job, uint64_t run_salt);

// Returns the whole text of docs/job-file.md.
std::string JobFileDoc();

}  // namespace pando
