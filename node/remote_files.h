// RemoteFiles is a folder of the run at the scheduler's file store (P45), for a process on a
// machine that does not share the folder. Each call waits for the store; while the scheduler is
// away, it waits as long as a node waits for the scheduler.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/file_client.h"
#include "files/run_files.h"
#include "net/stop_flag.h"
#include "node/node_join.h"

namespace pando {

// A process has several connections to the store; each has a lane as its name there.
enum class FilesLane : uint16_t { kSnapshots, kWeights, kTimeline, kGroup };

// Threads: one at a time, except Interrupt.
class RemoteFiles : public RunFiles {
 public:
  struct Options {
    ZmqContext& context;  // outlives this
    const Membership& membership;
    std::string scheduler_endpoint;  // as the process dials it
    FilesLane lane;
    std::string folder;  // within the run folder; empty: the run folder
    int stop_fd = -1;    // when it becomes readable, all calls fail
    Micros patience{0};  // time without any answer; 0: run.scheduler_timeout_ms
  };
  // An error names an endpoint that cannot be dialed.
  static Result<std::unique_ptr<RunFiles>> Dial(const Options& options);

  std::string location() const override;
  Result<std::vector<std::string>> List(const std::string& prefix) override;
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& name) override;
  Status Store(const std::string& name, const Pieces& pieces) override;
  void Interrupt() override { stop_.Request(); }

 private:
  class File;
  RemoteFiles(const Options& options, std::string endpoint);
  std::string PathTo(const std::string& name) const;
  // Waits until the client's request is done.
  Status Await();
  bool IsInterrupted() const;

  const std::string endpoint_;
  const std::string folder_;
  const int stop_fd_;
  const Micros patience_;
  Transport transport_;
  FileClient client_;
  StopFlag stop_;
};

// Whether this process reaches the run folder in its file system.
bool SharesRunFolder(const Membership& membership);

// Opens a folder of the run as this process reaches it: at the scheduler, or, with snapshot.store =
// "folder", in the file system.
Result<std::unique_ptr<RunFiles>> ReachRunFolder(const RemoteFiles::Options& options);

// How long a process that ends waits for a scheduler that may be gone.
inline constexpr Micros kLastFilesPatience = std::chrono::seconds(5);

// Reads the start values of the run into a server's plan. It is an error if it does not reach the
// run folder within `patience`, or CheckRunFolder's. kInterrupted: `stop_fd` is readable.
Status ReadRunStart(ZmqContext& context, const Membership& membership,
                    const std::string& scheduler_endpoint, int stop_fd,
                    std::chrono::milliseconds patience, JobPlan* plan);

}  // namespace pando
