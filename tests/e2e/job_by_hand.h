// JobByHand: a job over several processes, started as over several terminals: scheduler, servers
// and workers, without a launcher that would watch them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/run_files.h"
#include "tests/temp_folder.h"

namespace pando {

// Where a process started by hand listens: by the job's --transport, as those that pando train
// starts. Shared memory is used besides any connection.
inline std::string ChooseBind(const Args& job, const std::string& folder, const std::string& name) {
  const auto flag = std::ranges::find(job, "--transport");
  const bool is_ipc = flag != job.end() && *std::next(flag) == "ipc";
  return is_ipc ? "ipc://" + folder + "/" + name + ".ipc" : "tcp://127.0.0.1:0";
}

class JobByHand {
 public:
  // `job`: flags for the scheduler. No servers: those of the job's own strategy.
  JobByHand(uint32_t server_count, uint32_t worker_count, const Args& job,
            const Args& server_args = {}, const Args& worker_args = {})
      : run_dir(temp.path() + "/run"), job_(job) {
    const std::string endpoint_file = temp.path() + "/endpoint";
    Args flags{"scheduler", "--bind", Bind("scheduler"), "--endpoint-file",           endpoint_file,
               "--run-dir", run_dir,  "--workers",       std::to_string(worker_count)};
    if (server_count > 0) flags = flags + Args{"--servers", std::to_string(server_count)};
    scheduler = Start("scheduler", flags + job);
    const auto is_listening = [&] { return ReadBytes(endpoint_file).ends_with('\n'); };
    REQUIRE(Becomes([&] { return is_listening() || !scheduler->is_running(); }));
    REQUIRE_MESSAGE(is_listening(), scheduler->err());
    endpoint = ReadBytes(endpoint_file);
    endpoint.pop_back();
    for (uint32_t i = 0; i < server_count; ++i) {
      const std::string name = "server-" + std::to_string(i);
      servers.push_back(
          Start(name, Args{"server", "--join", endpoint, "--bind", Bind(name)} + server_args));
    }
    for (uint32_t i = 0; i < worker_count; ++i) {
      workers.push_back(
          Start("worker-" + std::to_string(i), Args{"worker", "--join", endpoint} + worker_args));
    }
  }

  std::string Bind(const std::string& name) const { return ChooseBind(job_, temp.path(), name); }

  void AwaitSteps(size_t count) {
    REQUIRE_MESSAGE(
        Becomes([&] { return RowCountIn(run_dir) >= count || !scheduler->is_running(); }),
        "no progress: " << scheduler->err());
    REQUIRE_MESSAGE(RowCountIn(run_dir) >= count, scheduler->err());
  }

  // Where every lane listens, as the servers say.
  std::vector<std::string> LaneEndpoints() {
    std::vector<std::string> endpoints;
    for (const auto& server : servers) {
      REQUIRE(Becomes([&] { return Contains(server->err(), "serving on "); }));
      const std::string text = server->err();
      for (size_t at = text.find("serving on ");
           (at = text.find("tcp://", at)) != std::string::npos;) {
        const size_t end = text.find_first_of(",\n", at);
        endpoints.push_back(text.substr(at, end - at));
        at = end;
      }
    }
    return endpoints;
  }

  std::vector<Process*> Nodes() {
    std::vector<Process*> nodes;
    for (const auto& server : servers) nodes.push_back(server.get());
    for (const auto& worker : workers) nodes.push_back(worker.get());
    return nodes;
  }

  TempFolder temp;
  std::string run_dir;
  std::string endpoint;  // the scheduler's
  std::unique_ptr<Process> scheduler;
  std::vector<std::unique_ptr<Process>> servers;
  std::vector<std::unique_ptr<Process>> workers;

 private:
  const Args job_;
  std::unique_ptr<Process> Start(const std::string& name, const Args& args) {
    return std::make_unique<Process>(temp.path(), name, args);
  }
};

}  // namespace pando
