// FileService: the scheduler's file store (P45) on a separate thread and endpoint. So files on
// their way take no time of the scheduler's loop. Made by the scheduler process.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "common/mailbox.h"
#include "files/file_store.h"
#include "files/folder_disk.h"
#include "net/event_loop.h"
#include "plan/job_plan.h"
#include "run/run_folder.h"

namespace pando {

class FileService {
 public:
  struct Options {
    ZmqContext& context;  // outlives the service
    Incarnation scheduler;
    JobId job;
    RunFolder folder;
    std::string bound;      // where the scheduler listens
    const JobPlan& plan;    // says how much a process life may store
    bool insecure = false;  // as Transport's
    bool is_fresh = false;  // no process knows where an earlier life's was
  };
  // It listens at the port after the scheduler's, at any free one if that is taken, and after a
  // restart of the scheduler where it was before. An error says which endpoint is in use.
  static Result<std::unique_ptr<FileService>> Start(const Options& options);
  ~FileService();

  const std::string& endpoint() const { return endpoint_; }
  // Returns when no member has asked for anything for a while, or `stop_fd` is readable.
  void AwaitQuiet(int stop_fd) const;
  // Any thread. From now on the member is answered, if it holds the key.
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
  TransportOutbox outbox_{transport_};
  FileStore store_;
  std::string endpoint_;
  Mailbox<Admission> admissions_;
  StopFlag stop_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace pando
