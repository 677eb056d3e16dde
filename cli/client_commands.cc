// The subcommands that ask a running scheduler to do something: drain, snapshot, stop.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "cli/commands.h"
#include "common/clock.h"
#include "common/exit_codes.h"
#include "net/client.h"

namespace pando {
namespace {

constexpr double kTimeoutDefaultSeconds = 60;

struct ClientOptions {
  std::string join;
  std::string target;
  double timeout_seconds = kTimeoutDefaultSeconds;
};

// Shows each thing that the scheduler says until it has done it.
Result<int> Order(const ClientOptions& options, CommandKind kind) {
  PANDO_RETURN_IF_ERROR(CheckEndpoint("--join", options.join));
  ZmqContext context;
  SchedulerClient client(context, {});
  PANDO_RETURN_IF_ERROR(client.Dial(options.join));
  const Micros deadline = SteadyNow() + Micros(static_cast<int64_t>(options.timeout_seconds * 1e6));
  const bool is_sent = client.Ask(Command{.kind = kind, .target = options.target});
  PANDO_CHECK(is_sent);
  std::string said;
  while (SteadyNow() < deadline) {
    while (std::optional<Message> answer = client.Poll()) {
      const auto* reply = std::get_if<CommandReply>(&*answer);
      if (reply == nullptr) continue;
      if (reply->outcome == CommandOutcome::kRefused) return InvalidArgument(reply->text);
      if (reply->outcome == CommandOutcome::kDone) {
        fmt::print("{}\n", reply->text);
        return kExitCompleted;
      }
      if (std::exchange(said, reply->text) != reply->text) fmt::print(stderr, "{}\n", said);
    }
    client.Wait(deadline);
  }
  if (said.empty()) {
    return Unavailable(
        fmt::format("no scheduler answered at {} within {} s: check the address, and "
                    "that the run has not ended",
                    options.join, options.timeout_seconds));
  }
  return Unavailable(
      fmt::format("not done within {} s (the scheduler continues): {}; raise --timeout to "
                  "wait longer",
                  options.timeout_seconds, said));
}

// `example`: the words after "pando".
Subcommand AddOrderCommand(CLI::App& app, CommandKind kind, const char* name,
                           const char* description, const char* example) {
  auto options = std::make_shared<ClientOptions>();
  CLI::App& command =
      DeclareCommand(app, name, description,
                     fmt::format("Example:\n  pando {} --join tcp://127.0.0.1:7070\n", example));
  AddJoinOption(command, &options->join);
  AddOption(command, "--timeout SECONDS", &options->timeout_seconds,
            fmt::format("seconds to wait until it is done [{:g}]", kTimeoutDefaultSeconds),
            CLI::Range(0.001, 86400.0));
  if (kind == CommandKind::kDrain) {
    AddOption(command, "NODE", &options->target, "as pando status names it: worker-1, server-0")
        ->required();
  }
  return [options, kind] { return Order(*options, kind); };
}

}  // namespace

Subcommand AddDrainCommand(CLI::App& app) {
  return AddOrderCommand(
      app, CommandKind::kDrain, "drain",
      "Takes a worker or server out of a run: others take over its work, then it leaves.",
      "drain worker-1");
}

Subcommand AddSnapshotCommand(CLI::App& app) {
  return AddOrderCommand(app, CommandKind::kSnapshot, "snapshot",
                         "Stores a snapshot of a run now, in addition to those of snapshot.every.",
                         "snapshot");
}

Subcommand AddStopCommand(CLI::App& app) {
  return AddOrderCommand(app, CommandKind::kStop, "stop",
                         "Ends a run early, as Ctrl-C does; pando resume continues it.", "stop");
}

}  // namespace pando
