// RunWatch follows one run for `pando view`: its folder's rows, and its scheduler's status. It
// costs the scheduler no more than `pando status` does. The scheduler may restart meanwhile.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "net/stop_flag.h"
#include "net/zmq/keys.h"
#include "proto/messages.h"
#include "run/run_folder.h"
#include "view/activity_strips.h"
#include "view/fault_list.h"
#include "view/file_watch.h"
#include "view/row_tail.h"
#include "view/run_history.h"
#include "view/run_metrics.h"
#include "view/status_line.h"

namespace pando {

// The run to follow, by its folder or by its scheduler's endpoint. Without a folder there are no
// rows, events and logs.
struct RunSource {
  std::string name;  // differs from the names of the viewer's other runs
  std::string run_dir;
  std::string endpoint;
  // Returns the run's current keys; an error if the secret of this role is missing.
  std::function<Result<Keys>(KeyRole)> find_keys;
};

// Threads: Start makes one. Any thread may call the public functions.
class RunWatch {
 public:
  static constexpr std::chrono::milliseconds kLookInterval{500};
  static constexpr size_t kLogBytesMax = 64 << 10;

  // `metrics` belong to this run alone.
  RunWatch(RunSource source, RunMetrics metrics);
  ~RunWatch();
  void Start();

  // Returns the facts that do not change: an entry of "runs" in the stream's first event.
  nlohmann::json Hello() const;

  // The place up to which a reader of the stream has read.
  struct Mark {
    bool is_first = true;
    uint64_t restarts = 0;
    uint64_t changes = 0;
    uint64_t file_changes = 0;
    RunHistory::Mark history;
    uint64_t fault_changes = 0;
    double strips = -1;                            // the last look
    std::shared_ptr<const nlohmann::json> status;  // null: none was read
    std::string status_error;
  };
  // Returns the changes after the mark, and moves it; none if nothing changed. The first update is
  // the whole state. Later ones have "status" as a merge patch; null: no scheduler answers.
  std::optional<nlohmann::json> Update(Mark* mark) const;

  // Carries out drain, snapshot or stop. kInvalidArgument: the viewer does not have the key.
  Result<std::string> Order(const Command& command);
  // Returns the end of a process's log; none if the run has no such log.
  std::optional<std::string> ReadLog(std::string_view process) const;

 private:
  // All values that a page shows.
  struct Shown {
    uint64_t changes = 1;       // changes of any member here
    uint64_t file_changes = 1;  // changes of summary and logs
    uint64_t restarts = 0;      // restarts of the run's files
    RunHistory history;
    FaultList faults;
    ActivityStrips strips;
    std::shared_ptr<const nlohmann::json> status;  // PageStatus; null: nothing answers
    std::string status_error;                      // set if status is null
    nlohmann::json summary;                        // null: the run has not ended
    std::vector<std::string> logs;
    nlohmann::json job = nlohmann::json::object();  // the facts for Hello
  };
  void TellFiles(Mark* mark, nlohmann::json* update) const;   // REQUIRES: mutex_ is locked
  void TellStatus(Mark* mark, nlohmann::json* update) const;  // REQUIRES: mutex_ is locked
  void AddEvent(nlohmann::json event);                        // the same
  void ReadFault(const nlohmann::json& fault);                // the same
  void AddFault(const FaultRecord& fault);                    // the same
  void Run();
  void ReadFiles();
  void ReadJob();
  void ReadSummary();
  void ReadLogNames();
  void AskStatus(Micros deadline);
  void TakeStatus(std::string_view text);
  std::string FindEndpoint() const;

  const RunSource source_;
  const RunFolder folder_;
  const Micros start_ = SteadyNow();
  StopFlag stop_;
  // Only the thread uses these:
  RowTail rows_, events_;
  FileWatch job_, identity_, summary_, logs_;
  RunMetrics metrics_;
  std::string endpoint_;
  std::optional<StatusLine> line_;  // none: no endpoint is known yet, or no key
  StepPlan steps_{{}};

  mutable std::mutex mutex_;
  Shown shown_;  // guarded by mutex_

  std::thread thread_;
};

}  // namespace pando
