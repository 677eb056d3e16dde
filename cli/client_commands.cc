// The subcommands that ask a running scheduler to do something: drain, snapshot, stop.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "cli/commands.h"
#include "common/clock.h"
#include "common/exit_codes.h"
#include "net/address.h"
#include "net/client.h"

namespace pando {
namespace {

constexpr double kTimeoutDefaultSeconds = 60;

struct ClientOptions {
  RunAddress run;
  std::string target;  // of drain; with a folder, the word after it
  double timeout_seconds = kTimeoutDefaultSeconds;
};

// Shows each thing that the scheduler says until it has done it.
int Order(const ClientOptions& options, CommandKind kind) {
  const Result<std::string> endpoint = FindEndpoint(options.run);
  if (!endpoint.ok()) return Report(endpoint.status());
  ZmqContext context;
  SchedulerClient client(context, {});
  if (Status s = client.Dial(*endpoint); !s.ok()) return Report(s);
  const Micros deadline = SteadyNow() + Micros(static_cast<int64_t>(options.timeout_seconds * 1e6));
  const bool is_sent = client.Ask(Command{.kind = kind, .target = options.target});
  PANDO_CHECK(is_sent);
  std::string said;
  while (SteadyNow() < deadline) {
    while (std::optional<Message> answer = client.Poll()) {
      const auto* reply = std::get_if<CommandReply>(&*answer);
      if (reply == nullptr) continue;
      if (reply->outcome == CommandOutcome::kRefused) return Report(InvalidArgument(reply->text));
      if (reply->outcome == CommandOutcome::kDone) {
        fmt::print("{}\n", reply->text);
        return kExitCompleted;
      }
      if (std::exchange(said, reply->text) != reply->text) fmt::print(stderr, "{}\n", said);
    }
    client.Wait(deadline);
  }
  if (said.empty()) {
    return Report(
        Unavailable(fmt::format("no scheduler answered at {} within {} s: {}", *endpoint,
                                options.timeout_seconds,
                                ExplainSilence(*endpoint, "check the address, and that the run "
                                                             "has not ended"))));
  }
  return Report(Unavailable(
      fmt::format("not done within {} s (the scheduler continues): {}; raise --timeout to "
                  "wait longer",
                  options.timeout_seconds, said)));
}

// `example`: the words after "pando".
Subcommand AddOrderCommand(CLI::App& app, CommandKind kind, const char* name,
                           const char* description, const char* example) {
  auto options = std::make_shared<ClientOptions>();
  CLI::App& command =
      DeclareCommand(app, name, description,
                     fmt::format("Example:\n  pando {}\n", example));
  AddOption(command, "--timeout SECONDS", &options->timeout_seconds,
            fmt::format("seconds to wait until it is done [{:g}]", kTimeoutDefaultSeconds),
            CLI::Range(0.001, 86400.0));
  AddRunAddress(command, &options->run);
  if (kind != CommandKind::kDrain) return [options, kind] { return Order(*options, kind); };
  AddOption(command, "NODE", &options->target, "as pando status names it: worker-1, server-0");
  return [options, kind] {
    // With --join the one word is the node.
    if (!options->run.join.empty() && options->target.empty())
      options->target.swap(options->run.run_dir);
    if (options->target.empty())
      return Report(InvalidArgument("give the process to drain: pando drain RUN_DIR worker-1"));
    return Order(*options, kind);
  };
}

}  // namespace

Subcommand AddDrainCommand(CLI::App& app) {
  return AddOrderCommand(
      app, CommandKind::kDrain, "drain",
      "Takes a worker or server out of a run: others take over its work, then it leaves.",
      "drain runs/first worker-1");
}

Subcommand AddSnapshotCommand(CLI::App& app) {
  return AddOrderCommand(app, CommandKind::kSnapshot, "snapshot",
                         "Stores a snapshot of a run now, in addition to those of snapshot.every.",
                         "snapshot runs/first");
}

Subcommand AddStopCommand(CLI::App& app) {
  return AddOrderCommand(app, CommandKind::kStop, "stop",
                         "Ends a run early, as Ctrl-C does; pando resume continues it.",
                         "stop runs/first");
}

}  // namespace pando
