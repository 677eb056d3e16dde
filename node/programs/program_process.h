// A worker that is a user's program (P43), as `pando run` and `pando node` start it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "node/supervisor.h"

namespace pando {

struct WorkerProgram {
  std::vector<std::string> command;    // the program's path and its arguments; empty: none
  std::vector<std::string> variables;  // "NAME=value", for its environment
  bool is_preloaded = false;           // its workers are forked from one process
};

// Makes `spec` run the program as a worker of the run. The program reads `endpoint` in
// PANDO_SCHEDULER and its rank in PANDO_RANK (empty: any). REQUIRES: there is a program.
void RunProgram(const WorkerProgram& program, const std::string& endpoint,
                std::optional<uint32_t> rank, ProcessSpec* spec);
inline constexpr const char* kPreloadedName = "preloaded";  // also names its log
// Returns the process from which workers are forked; its log goes where `spec` says.
ProcessSpec PreloadedSpec(const WorkerProgram& program, ProcessSpec spec);

// Preload is one process of a program that has run its script up to the run, and then forks a
// worker for each request (python/pando_train/_preload.py). So a worker that died is back without
// importing anything again. If it cannot fork, workers are started like other processes.
//
// They talk over a socket whose number is in PANDO_PRELOAD. A request is a packet: the path of the
// worker's log (empty: the preloaded process's output) and the variables of its environment, with a
// zero byte between them. An answer, in the order of the requests, is the number of a process that
// is now a child of this one; or, once, "no " and why the program cannot be forked.
//
// Threads: its group's.
class Preload {
 public:
  using TimePoint = ProcessGroup::TimePoint;

  Preload(ProcessGroup& group, ProcessSpec spec);

  Status Start();
  // Requests a worker, which joins the group in a later Look.
  Status StartWorker(const ProcessSpec& worker);
  // Takes answers, and restarts the process when its pause is over. Returns the first error of a
  // start.
  Status Look(TimePoint now);
  // Returns whether it was the preloaded process.
  bool OnExit(const ProcessExit& exit);
  // Ends the process, which is not started again.
  void Retire();

  int fd() const { return line_.get(); }  // readable: Look has an answer; -1: none will come
  TimePoint next_due() const { return start_at_; }

 private:
  struct Request {
    ProcessSpec worker;
    uint64_t key = 0;
  };
  Status OnAnswer(std::string_view answer);
  Status StartOpen();

  ProcessGroup& group_;
  ProcessSpec spec_;
  RestartPolicy policy_;
  UniqueFd line_;            // closed if there is no process to ask
  bool is_retired_ = false;  // no later life
  TimePoint start_at_ = TimePoint::max();
  std::deque<Request> open_;  // requests without an answer
};

}  // namespace pando
