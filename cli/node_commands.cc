// The subcommands that join a run or look at one: server, worker, node, status.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "common/exit_codes.h"
#include "job/device_choice.h"
#include "node/log.h"
#include "node/node_run.h"
#include "node/processes.h"

namespace pando {
namespace {

int Serve(const ServerArgs& args, bool is_verbose) {
  if (Status s = CheckEndpoint("--join", args.join); !s.ok()) return Report(s);
  if (Status s = CheckBind(args.bind, args.insecure); !s.ok()) return Report(s);
  SetUpLog({.process = "server", .is_verbose = is_verbose, .file = ""});
  ServerArgs verbose = args;
  verbose.is_verbose = is_verbose;
  return RunServer(verbose);
}

int Work(const WorkerArgs& args, bool is_verbose) {
  if (Status s = CheckEndpoint("--join", args.join); !s.ok()) return Report(s);
  if (auto device = ParseDevice("--device", args.device); !device.ok())
    return Report(device.status());
  SetUpLog({.process = "worker", .is_verbose = is_verbose, .file = ""});
  WorkerArgs verbose = args;
  verbose.is_verbose = is_verbose;
  return RunWorker(verbose);
}

int KeepNode(const NodeArgs& args, const std::string& workers) {
  if (Status s = CheckEndpoint("--join", args.join); !s.ok()) return Report(s);
  if (Status s = CheckBind(args.bind, args.insecure); !s.ok()) return Report(s);
  SetUpLog({.process = "node", .is_verbose = args.is_verbose, .file = ""});
  if (auto device = ParseDevice("--device", args.device); !device.ok())
    return Report(device.status());
  NodeArgs counted = args;
  if (workers != "auto") counted.worker_count = static_cast<uint32_t>(std::stoul(workers));
  if (counted.server_count == 0 && counted.worker_count == 0u)
    return Report(InvalidArgument("--servers 0 --workers 0 starts no process; give at least one"));
  return RunNode(counted);
}

int AskStatus(const StatusArgs& args) {
  if (Status s = CheckEndpoint("--join", args.join); !s.ok()) return Report(s);
  SetUpLog({.process = "status", .is_verbose = false, .file = ""});
  return RunStatus(args);
}

std::string Footer(const char* example) {
  return fmt::format("\nExample:\n  {}\n\n{}", example, kExitCodesHelp);
}

}  // namespace

Subcommand AddServerCommand(CLI::App& app) {
  auto args = std::make_shared<ServerArgs>();
  auto is_verbose = std::make_shared<bool>(false);
  args->bind = "tcp://127.0.0.1:0";
  CLI::App& command = *app.add_subcommand("server",
                                          "Joins a run as a parameter server: sums gradients, runs "
                                          "the optimizer, sends parameters.");
  AddJoinOption(command, &args->join);
  command
      .add_option("--bind", args->bind,
                  fmt::format("where its lanes listen; port 0: any free one each [{}]", args->bind))
      ->type_name("ENDPOINT");
  command.add_option("--lanes", args->lanes, "serving threads; 0: by cores [0]")
      ->type_name("N")
      ->check(CLI::Range(0, 256));
  command.add_flag("--insecure", args->insecure,
                   "allow --bind beyond this machine, without encryption");
  AddStartTimeoutOption(command, &args->start_timeout_ms);
  command.add_option("--rank", args->wanted_rank)->group("");
  AddVerboseOption(command, is_verbose.get());
  command.footer(
      Footer("pando server --join tcp://10.0.0.1:7070 --bind tcp://10.0.0.2:0 --insecure"));
  return [args, is_verbose] { return Serve(*args, *is_verbose); };
}

Subcommand AddWorkerCommand(CLI::App& app) {
  auto args = std::make_shared<WorkerArgs>();
  auto is_verbose = std::make_shared<bool>(false);
  CLI::App& command = *app.add_subcommand("worker",
                                          "Joins a run as a worker: computes gradients of "
                                          "micro-batches. The job comes from the scheduler.");
  AddJoinOption(command, &args->join);
  command.add_option("--threads", args->threads, "computing threads; 0: as the job says [0]")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  command
      .add_option(
          "--device", args->device,
          "where it computes: cpu, cuda (the first GPU), cuda:N; auto: a GPU if there is one "
          "[auto]")
      ->type_name("NAME");
  command
      .add_option("--data", args->data_path,
                  "folder of the data set on this machine, if it is not the job's")
      ->type_name("PATH");
  command
      .add_option("--data-cache", args->data_cache,
                  "folder of decoded photographs on this machine, if it is not the job's")
      ->type_name("FOLDER");
  AddStartTimeoutOption(command, &args->start_timeout_ms);
  command.add_option("--rank", args->wanted_rank)->group("");
  AddVerboseOption(command, is_verbose.get());
  command.footer(Footer("pando worker --join tcp://10.0.0.1:7070 --threads 8 --data /data/mnist"));
  return [args, is_verbose] { return Work(*args, *is_verbose); };
}

Subcommand AddNodeCommand(CLI::App& app) {
  auto args = std::make_shared<NodeArgs>();
  auto workers = std::make_shared<std::string>("auto");
  CLI::App& command =
      *app.add_subcommand("node",
                          "Runs the processes of one machine of a cluster: starts servers and "
                          "workers that join a run,\n"
                          "restarts those that die, and drains them on SIGTERM or Ctrl-C.");
  AddJoinOption(command, &args->join);
  command
      .add_option("--servers", args->server_count,
                  fmt::format("server processes [{}]", args->server_count))
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  command
      .add_option(
          "--workers", *workers,
          "worker processes; auto: one per GPU; without GPUs, one per 8 cores, or per --threads "
          "cores [auto]")
      ->type_name("N")
      ->check(CLI::IsMember({"auto"}) | CLI::Range(0, 1024));
  command
      .add_option("--device", args->device,
                  "where the workers compute: cpu, cuda (the GPUs in turn), cuda:N; auto: GPUs if "
                  "there are any [auto]")
      ->type_name("NAME");
  command
      .add_option("--threads", args->threads,
                  "computing threads of each worker; 0: as the job says, with auto by cores [0]")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  command
      .add_option(
          "--bind", args->bind,
          fmt::format("where the servers listen; port 0: any free one each [{}]", args->bind))
      ->type_name("ENDPOINT");
  command.add_option("--lanes", args->lanes, "serving threads of each server; 0: by cores [0]")
      ->type_name("N")
      ->check(CLI::Range(0, 256));
  command.add_flag("--insecure", args->insecure,
                   "allow --bind beyond this machine, without encryption");
  command
      .add_option("--data", args->data_path,
                  "folder of the data set on this machine, if it is not the job's")
      ->type_name("PATH");
  command
      .add_option("--data-cache", args->data_cache,
                  "folder of decoded photographs on this machine, if it is not the job's")
      ->type_name("FOLDER");
  command
      .add_option("--log-dir", args->log_dir,
                  "a log file for each process; without it they write to standard error")
      ->type_name("PATH");
  AddMaxRestartsOption(command, &args->restarts_max);
  AddStartTimeoutOption(command, &args->start_timeout_ms);
  AddVerboseOption(command, &args->is_verbose);
  command.footer(
      Footer("pando node --join tcp://10.0.0.1:7070 --bind tcp://10.0.0.2:0 --insecure"));
  return [args, workers] { return KeepNode(*args, *workers); };
}

Subcommand AddStatusCommand(CLI::App& app) {
  auto args = std::make_shared<StatusArgs>();
  CLI::App& command =
      *app.add_subcommand("status", "Lists the processes of a run and what each one is doing.");
  AddJoinOption(command, &args->join);
  command.add_flag("--json", args->json, "as JSON");
  AddStartTimeoutOption(command, &args->start_timeout_ms);
  command.footer(Footer("pando status --join tcp://127.0.0.1:7070"));
  return [args] { return AskStatus(*args); };
}

}  // namespace pando
