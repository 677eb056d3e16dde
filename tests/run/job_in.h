// The job of a run whose folder is given, as the tests of run folders make it. Short, because two
// tests share nothing else.
#pragma once

#include <chrono>
#include <string>

#include "job/job_file.h"
#include "run/run_folder.h"

namespace pando {

inline Job JobIn(const std::string& run_dir) {
  Job job;
  job.run_dir = run_dir;
  ResolveRunNames(std::chrono::system_clock::now(), &job);
  return job;
}

}  // namespace pando
