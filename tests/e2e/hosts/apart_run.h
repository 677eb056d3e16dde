// ApartRun: a run on hosts that share no folder (network.h), started as over several machines:
// `pando scheduler` on one host, and one `pando` process each on others, which have a disk each,
// with the keys of a member and nothing else.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/fault_run.h"
#include "tests/e2e/hosts/network.h"
#include "tests/e2e/key_folders.h"

namespace pando {

// A host and the process that was started on it.
struct Machine {
  Args command;  // "node", "--servers", "1", ...; without what every machine needs
  HostId host;
  std::unique_ptr<Process> process;
};

// The commands of some machines.
inline const Args kServerNode{"node", "--servers", "1", "--workers", "0"};
inline const Args kWorkerNode{"node", "--servers", "0", "--workers", "1"};

class ApartRun {
 public:
  enum class Keys { kOwn, kNone };

  explicit ApartRun(Keys keys = Keys::kOwn);
  // Starts the scheduler; `job`: its flags. The machines come with Add().
  void Begin(const Args& job);

  // A machine keeps its index and its command on its next host.
  void Add(const Args& command);
  void Lose(size_t machine);  // its host, for good
  void Replace(size_t machine);
  // On the same host, whose earlier process has ended.
  void StartProcess(size_t machine);
  std::vector<Machine>& machines() { return machines_; }

  void KillScheduler();
  void StartSchedulerAgain();
  Process& scheduler() { return *scheduler_; }
  HostId scheduler_host() const { return scheduler_host_; }

  // Each fails the test where the run ends first.
  void Await(const std::function<bool()>& condition, const std::string& name);
  void AwaitSteps(size_t count);
  void AwaitEvents(const std::string& event, size_t count);

  std::string Events() const { return ReadBytes(run_dir() + "/events.jsonl"); }
  size_t EventCount(const std::string& event) const;
  std::string run_dir() const { return household_.run_dir(); }
  const std::string& folder() const { return household_.path(); }

  // No process of a machine sees the run folder, and each sees its keys.
  void CheckApart() const;
  // The run completes with this hash, all processes end in order, and only keys are on the
  // machines.
  Summary CheckEnd(const std::string& hash);

 private:
  Args KeyFlags(const std::string& folder) const;
  std::unique_ptr<Process> Start(HostId host, const std::string& name, const Args& args);
  std::set<std::string> FilesOn(const Machine& machine) const;  // relative to its disk

  TestNetwork& network_ = TheNetwork();
  Household household_;
  std::unique_ptr<KeyFolders> keys_;
  const HostId scheduler_host_;
  const std::string endpoint_;
  std::unique_ptr<Process> scheduler_;
  std::vector<Machine> machines_;
  int process_count_ = 0;
};

// The weights of the same job in one process.
std::string SerialHashFor(const Args& job);

}  // namespace pando
