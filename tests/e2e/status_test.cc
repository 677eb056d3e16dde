// The text of `pando status` about the lines between the processes of one host: auto means shared
// memory.
#include <doctest/doctest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/exit_codes.h"
#include "tests/e2e/job_by_hand.h"
#include "tests/e2e/run_files.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

constexpr uint32_t kServers = 2;

// `pando train`, and the endpoint for status requests.
class StatusRun {
 public:
  explicit StatusRun(const std::string& transport)
      : train_(temp_.path(), "train",
               Args{"train", "--run-dir", temp_.path() + "/run", "--workers", "2", "--servers",
                    std::to_string(kServers), "--transport", transport, "--set", "run.lanes=1"} +
                   LongJob(kEndlessSteps)) {
    REQUIRE_MESSAGE(Becomes([&] { return FindEndpoint() || !train_.is_running(); }), train_.err());
    REQUIRE_MESSAGE(!endpoint_.empty(), train_.err());
  }
  ~StatusRun() {
    train_.Signal(SIGINT);
    train_.Await();
    CHECK(train_.exit_code() == kExitInterrupted);
  }

  std::string Status(const Args& flags = {}) {
    Process status(temp_.path(), "status", Args{"status", temp_.path() + "/run"} + flags);
    status.Await();
    REQUIRE_MESSAGE(status.exit_code() == kExitCompleted, status.err());
    return status.out();
  }

 private:
  // From its workers' command lines.
  bool FindEndpoint() {
    const std::vector<pid_t> workers = ChildrenByRole(train_.pid())["worker"];
    for (const pid_t pid : workers) {
      std::istringstream words(ReadBytes("/proc/" + std::to_string(pid) + "/cmdline"));
      for (std::string word; std::getline(words, word, '\0');) {
        if (word == "--join") std::getline(words, endpoint_, '\0');
      }
    }
    return !endpoint_.empty();
  }

  TempFolder temp_;
  Process train_;
  std::string endpoint_;
};

using Json = nlohmann::json;

// Whether these are all the lines that each node of the role has dialed.
bool HasLines(const Json& status, const std::string& role, const Json& lines) {
  size_t count = 0;
  for (const Json& node : status["nodes"]) {
    if (!node.value("name", "").starts_with(role)) continue;
    ++count;
    if (node.value("lines", Json()) != lines) return false;
  }
  return count == 2;
}

// Checks every process's lines: to each server's lane, or to the other server's.
void CheckLines(const std::string& transport, const std::string& kind) {
  CAPTURE(transport);
  const auto lines = [&](uint32_t count) {
    Json json{{"tcp", 0}, {"ipc", 0}, {"shm", 0}};
    json[kind] = count;
    return json;
  };
  StatusRun run(transport);
  Json status;
  CHECK_MESSAGE(Becomes([&] {
                  status = Json::parse(run.Status({"--json"}));
                  return HasLines(status, "worker", lines(kServers)) &&
                         HasLines(status, "server", lines(kServers - 1));
                }),
                status.dump(1));
  const std::string table = run.Status();
  CAPTURE(table);
  const size_t column = table.find("LINES ");
  REQUIRE(column != std::string::npos);
  const size_t column_in_line = column - (table.rfind('\n', column) + 1);
  for (const auto& [name, count] :
       {std::pair("\nworker 0 ", kServers), {"\nserver 1 ", kServers - 1}}) {
    const size_t at = table.find(name);
    REQUIRE(at != std::string::npos);
    CHECK(table.substr(at + 1 + column_in_line)
              .starts_with(kind + " " + std::to_string(count) + " "));
  }
}

TEST_CASE("auto on one host means shared memory, as pando status says; tcp means tcp") {
  CheckLines("auto", "shm");
  CheckLines("shm", "shm");
  CheckLines("tcp", "tcp");
  CheckLines("ipc", "ipc");
}

TEST_CASE("pando doctor --join says what it reaches, and what is in the way") {
  JobByHand job(1, 1, LongJob(kEndlessSteps));
  job.AwaitSteps(5);
  Process well(job.temp.path(), "well", {"doctor", "--join", job.endpoint});
  well.Await();
  CAPTURE(well.out());
  CHECK(well.exit_code() == kExitCompleted);
  CHECK(Contains(well.out(), "the scheduler answers after "));
  CHECK(Contains(well.out(), " takes connections at " + job.LaneEndpoints()[0]));
  job.scheduler->Signal(SIGKILL);
  job.scheduler->Await();
  Process ill(job.temp.path(), "ill", {"doctor", "--join", job.endpoint});
  ill.Await();
  CHECK(ill.exit_code() == kExitFailed);
  CHECK(Contains(ill.out(), "refuses connections: no process listens there"));
}

TEST_CASE("a run over IPv6 trains, and the doctor reaches its servers") {
  TempFolder temp;
  const std::string run_dir = temp.File("run"), endpoint_file = temp.File("endpoint");
  Process scheduler(temp.path(), "scheduler",
                    Args{"scheduler", "--bind", "tcp://[::1]:0", "--endpoint-file", endpoint_file,
                         "--run-dir", run_dir, "--workers", "1", "--servers", "1"} +
                        LongJob(kEndlessSteps));
  REQUIRE(
      Becomes([&] { return ReadBytes(endpoint_file).ends_with('\n') || !scheduler.is_running(); }));
  REQUIRE_MESSAGE(scheduler.is_running(), scheduler.err());
  std::string endpoint = ReadBytes(endpoint_file);
  endpoint.pop_back();
  CHECK(endpoint.starts_with("tcp://[::1]:"));
  Process node(temp.path(), "node", {"node", "--join", endpoint, "--workers", "1"});
  REQUIRE(Becomes([&] { return RowCountIn(run_dir) >= 5 || !node.is_running(); }));
  REQUIRE_MESSAGE(node.is_running(), node.err());
  CHECK(Contains(node.err(), "serving on tcp://[::1]:"));
  Process doctor(temp.path(), "doctor", {"doctor", "--join", endpoint});
  doctor.Await();
  CAPTURE(doctor.out());
  CHECK(doctor.exit_code() == kExitCompleted);
  CHECK(Contains(doctor.out(), "server 0 on "));
}

}  // namespace
}  // namespace pando
