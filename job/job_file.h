// The job file: TOML text <-> Job. `pando train` calls it, and so do the scheduler, which sends the
// resolved text to every joiner, and the joiners, which parse it. docs/job-file.md lists the keys.
#pragma once

#include <string>
#include <string_view>

#include "common/ids.h"
#include "common/result.h"
#include "job/job_key.h"
#include "plan/job.h"

namespace pando {

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
