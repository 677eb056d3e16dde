// FileService runs the scheduler's file store (P45) on its own thread and endpoint, so that files
// on their way take no time of the scheduler's loop. The scheduler process makes it.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "common/endpoint.h"
#include "common/mailbox.h"
#include "files/file_store.h"
#include "files/folder_disk.h"
#include "net/stop_flag.h"
#include "net/transport.h"
#include "plan/job_plan.h"
#include "run/run_folder.h"

namespace pando {

// Returns the endpoint beside the scheduler's: the next port, or 0 if there is none.
Result<Endpoint> EndpointNextTo(const std::string& scheduler);

class FileService {
 public:
  struct Options {
    ZmqContext& context;  // outlives the service
    Incarnation scheduler;
    JobId job;
    RunFolder folder;
    std::string bound;      // where the scheduler listens
    const JobPlan& plan;    // says how much a process life may store
    bool insecure = false;  // as in Transport
    bool is_fresh = false;  // no process knows an earlier life's endpoint
  };
  // Listens at the port after the scheduler's, or at a free one if that is taken; after a restart
  // of the scheduler, where it did before. An error names the endpoint that is in use.
  static Result<std::unique_ptr<FileService>> Start(const Options& options);
  ~FileService();

  const std::string& endpoint() const { return endpoint_; }
  // Returns when members have not asked for anything for a while, or `stop_fd` is readable.
  void AwaitQuiet(int stop_fd) const;
  // Any thread. From now on the store answers the member, if it holds the key.
  void Admit(Incarnation member, Role role, const std::string& public_key);

 private:
  explicit FileService(const Options& options);
  Status Bind(const Options& options);
  void Run();

  struct Admission {
    Incarnation member;
    Role role;
    std::string public_key;
  };
  FolderDisk disk_;
  Transport transport_;
  FileStore store_;
  std::string endpoint_;
  Mailbox<Admission> admissions_;
  StopFlag stop_;
  std::thread thread_;  // last: it uses all members above
};

}  // namespace pando
