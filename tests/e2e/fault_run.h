// Runs under faults, as the end-to-end tests of recovery make them: a small job, what the serial
// trainer makes of it, and what is left of a run's processes.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "common/exit_codes.h"
#include "tests/e2e/run_files.h"
#include "tests/temp_folder.h"

namespace pando {

// Long enough that faults in its first half are recovered from before its end: some 200 steps a
// second on two idle cores.
inline constexpr uint64_t kFaultSteps = 600;

// Steps of runs with faults that only a lease's silence shows: each is noticed after a second.
inline constexpr uint64_t kSilenceSteps = 2000;

// The transport of these runs' payloads: PANDO_TEST_TRANSPORT, which tools/test.sh takes from the
// commit. Payloads below 16 KiB are never shared (P42): shards of this perceptron have 19.
inline Args TransportOfFaults() {
  const char* transport = std::getenv("PANDO_TEST_TRANSPORT");
  if (transport == nullptr) return {};
  const Args large{"--model", "mlp", "--set", "model.hidden=384"};
  return Args{"--transport", transport} + (std::string(transport) == "shm" ? large : Args());
}

inline Args FaultJob(uint64_t steps, uint32_t workers, uint32_t servers, const Args& more = {}) {
  return LongJob(steps, Args{"--workers", std::to_string(workers), "--servers",
                             std::to_string(servers), "--snapshot-every", "50"} +
                            TransportOfFaults() + more);
}
inline Args FaultJob(uint32_t workers, uint32_t servers, const Args& more = {}) {
  return FaultJob(kFaultSteps, workers, servers, more);
}

// The hash of JobOf's job, for any processes; `more` has the settings that change the result.
inline std::string SerialHash(uint64_t steps = kFaultSteps, const Args& more = {}) {
  static std::map<std::pair<uint64_t, Args>, std::string> hashes;
  std::string& hash = hashes[{steps, more}];
  if (!hash.empty()) return hash;
  TempFolder temp;
  const std::string run_dir = temp.path() + "/run";
  Process train(temp.path(), "serial",
                Args{"train", "--serial", "--run-dir", run_dir} + FaultJob(steps, 1, 1, more));
  train.Await();
  REQUIRE_MESSAGE(train.exit_code() == kExitCompleted, train.err());
  hash = SummaryIn(run_dir).weights_hash;
  return hash;
}

// Marks all processes that are started while it lives, and theirs, through the environment, so that
// what is left of them can be found however it came to be there.
class Household {
 public:
  Household() { setenv(kMark, temp_.path().c_str(), 1); }
  ~Household() { unsetenv(kMark); }
  const std::string& path() const { return temp_.path(); }
  std::string run_dir() const { return temp_.path() + "/run"; }

  std::vector<pid_t> Living() const {
    std::vector<pid_t> living;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid == 0 || pid == getpid() || IsGone(pid)) continue;
      const std::string environment = ReadBytes(entry.path() / "environ");
      if (Contains(environment, std::string(kMark) + "=" + temp_.path())) living.push_back(pid);
    }
    return living;
  }

 private:
  static constexpr const char* kMark = "PANDO_TEST_HOUSEHOLD";
  TempFolder temp_;
};

}  // namespace pando
