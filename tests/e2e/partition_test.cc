// Cables that are pulled (network.h): a scheduler, servers and workers on separate hosts, one
// of them cut off for three leases. A process that returns has been given up by then and joins
// again; the weights are the serial run's. Skipped, loudly, where this machine allows no network
// namespaces.
#include <doctest/doctest.h>

#include <algorithm>

#include "common/exit_codes.h"
#include "tests/e2e/hosts/network.h"
#include "tests/e2e/run_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

using namespace std::chrono_literals;

// Some 2 ms each at least: training goes on well after the cable is plugged in again.
constexpr uint64_t kPartitionSteps = 4000;
constexpr auto kCutOff = 3s;  // three leases
constexpr size_t kStepsBefore = 50;

const std::string& UndisturbedHash() {
  static const std::string kHash = [] {
    TempFolder temp;
    const std::string run_dir = temp.path() + "/run";
    Process serial(temp.path(), "serial",
                   Args{"train", "--serial", "--run-dir", run_dir} + LongJob(kPartitionSteps));
    serial.Await(5min);
    REQUIRE(serial.exit_code() == kExitCompleted);
    return SummaryIn(run_dir).weights_hash;
  }();
  return kHash;
}

// A scheduler, two servers and two workers, a host each, or one for both workers.
struct SpreadJob {
  explicit SpreadJob(bool is_one_worker_host = false) : run_dir(temp.path() + "/run") {
    for (HostId* host : {&scheduler_host, &server_hosts[0], &server_hosts[1], &worker_hosts[0]})
      *host = network.AddHost();
    worker_hosts[1] = is_one_worker_host ? worker_hosts[0] : network.AddHost();
    const std::string endpoint = "tcp://" + network.HostAddress(scheduler_host) + ":7070";
    scheduler = Start(scheduler_host, "scheduler",
                      Args{"scheduler", "--bind", endpoint, "--insecure", "--run-dir", run_dir,
                           "--servers", "2", "--workers", "2"} +
                          LongJob(kPartitionSteps));
    for (int i = 0; i < 2; ++i) {
      const std::string bind = "tcp://" + network.HostAddress(server_hosts[i]) + ":0";
      nodes.push_back(Start(server_hosts[i], "server-" + std::to_string(i),
                            {"server", "--join", endpoint, "--bind", bind, "--insecure"}));
    }
    for (int i = 0; i < 2; ++i) {
      nodes.push_back(
          Start(worker_hosts[i], "worker-" + std::to_string(i), {"worker", "--join", endpoint}));
    }
    AwaitSteps(kStepsBefore);
  }

  void AwaitSteps(size_t count) {
    REQUIRE_MESSAGE(
        Becomes([&] { return RowCountIn(run_dir) >= count || !scheduler->is_running(); }),
        "no progress: " << scheduler->err());
    REQUIRE_MESSAGE(scheduler->is_running(), scheduler->err());
  }

  // Training goes on, by everybody, to the serial run's end.
  void CheckEnd() {
    REQUIRE_MESSAGE(scheduler->is_running(), "the job ended before the cut did");
    const size_t row_count = RowCountIn(run_dir);
    AwaitSteps(std::min<size_t>(row_count + kStepsBefore, kPartitionSteps - 1));
    scheduler->Await(5min);
    INFO(scheduler->err());
    CHECK(scheduler->exit_code() == kExitCompleted);
    const Summary summary = SummaryIn(run_dir);
    CHECK(summary.status == kStatusCompleted);
    CHECK(summary.steps == kPartitionSteps);
    CHECK(summary.weights_hash == UndisturbedHash());
    for (const auto& node : nodes) {
      node->Await();
      INFO(node->err());
      CHECK(node->exit_code() == kExitCompleted);
    }
  }

  // Whether the run has noticed that a process of this role is gone.
  bool HasGivenUp(const std::string& role) const {
    return Contains(Events(), R"("event":"dead","details":{"node":")" + role);
  }
  bool HasSaid(const std::string& event) const {
    return Contains(Events(), R"("event":")" + event + '"');
  }
  std::string Events() const { return ReadBytes(run_dir + "/events.jsonl"); }

  std::unique_ptr<Process> Start(HostId host, const std::string& name, const Args& args) {
    return std::make_unique<Process>(temp.path(), name, args, network.Through(host));
  }

  TestNetwork& network = TheNetwork();
  TempFolder temp;
  const std::string run_dir;
  HostId scheduler_host, server_hosts[2], worker_hosts[2];
  std::unique_ptr<Process> scheduler;
  std::vector<std::unique_ptr<Process>> nodes;  // servers, then workers
};

// The length of the fault itself, which ends once it has been noticed.
void Hold(const std::function<bool()>& is_noticed) {
  const auto since = TestClock::now();
  const auto is_over = [&] { return TestClock::now() - since >= kCutOff && is_noticed(); };
  CHECK_MESSAGE(Becomes(is_over), "the fault was not noticed");
}

void CutOff(HostId host, const std::function<bool()>& is_noticed) {
  TheNetwork().PullCable(host);
  Hold(is_noticed);
  TheNetwork().PlugIn(host);
}

// Messages from `from` to `to` are lost, and `to` reports it, though the scheduler reaches both
// (P23).
void LoseFrames(const SpreadJob& job, HostId from, HostId to) {
  TheNetwork().LoseFrames(from, to);
  Hold([&] { return job.HasSaid("silent"); });
  TheNetwork().StopLosing(from, to);
}

TEST_CASE("two workers of one host send servers elsewhere one copy of their gradients (P6a)" *
          doctest::test_suite("thorough 2")) {
  SpreadJob job(/*is_one_worker_host=*/true);
  job.CheckEnd();
  uint64_t pushed = 0, given = 0;
  for (size_t i = 2; i < job.nodes.size(); ++i) {
    pushed += BytesAfter(job.nodes[i]->err(), "pushed ");
    given += BytesAfter(job.nodes[i]->err(), "gave ");
  }
  MESSAGE("pushed " << pushed << " bytes, gave " << given);
  CHECK(given > 0);
  CHECK(pushed < given * 3 / 2);  // without a relay: 2
}

TEST_CASE("a worker that is cut off for 3 s does not change the weights") {
  SpreadJob job;
  CutOff(job.worker_hosts[0], [&] { return job.HasGivenUp("worker"); });
  job.CheckEnd();
}

TEST_CASE("a server that is cut off for 3 s does not change the weights" *
          doctest::test_suite("thorough 1")) {
  SpreadJob job;
  CutOff(job.server_hosts[0], [&] { return job.HasGivenUp("server"); });
  job.CheckEnd();
}

TEST_CASE("a scheduler that is cut off for 3 s does not change the weights") {
  SpreadJob job;
  CutOff(job.scheduler_host, [&] { return job.HasSaid("leases-suspended"); });
  CHECK_FALSE(job.HasGivenUp("worker"));
  CHECK_FALSE(job.HasGivenUp("server"));
  job.CheckEnd();
}

TEST_CASE("what a server sends to one worker is lost for 3 s, and the weights do not change") {
  SpreadJob job;
  LoseFrames(job, job.server_hosts[0], job.worker_hosts[0]);
  job.CheckEnd();
}

TEST_CASE("what a server sends to the other is lost for 3 s, and the weights do not change" *
          doctest::test_suite("thorough 1")) {
  SpreadJob job;
  LoseFrames(job, job.server_hosts[0], job.server_hosts[1]);
  job.CheckEnd();
}

}  // namespace
}  // namespace pando
