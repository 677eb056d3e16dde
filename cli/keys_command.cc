// `pando keys`: makes the keys of a cluster.
#include <fmt/core.h>

#include <memory>

#include "cli/commands.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "net/zmq/keys.h"

namespace pando {
namespace {

Result<int> NewKeys(const std::string& folder) {
  PANDO_RETURN_IF_ERROR(MakeKeys(folder));
  Print("pando: keys in {}; give each machine what its processes need:\n", folder);
  Print("  scheduler, and pando stop, drain, snapshot: admin.key, member.pub, reader.pub\n");
  Print("  pando node, server, worker:                 member.key, admin.pub\n");
  Print("  pando status:                               reader.key, admin.pub\n");
  return kExitCompleted;
}

}  // namespace

Subcommand AddKeysCommand(CLI::App& app) {
  auto folder = std::make_shared<std::string>();
  CLI::App& command = DeclareCommand(
      app, "keys", "Makes keys. A run with keys takes only processes that hold one.",
      "pando train, run and resume make keys of a run by themselves. docs/security.md says what\n"
      "each key permits.\n\n"
      "Example:\n"
      "  pando keys new KEYS\n"
      "  pando scheduler job.toml --bind tcp://10.0.0.1:7070 --keys KEYS\n"
      "  pando node --join tcp://10.0.0.1:7070 --keys KEYS\n");
  CLI::App& made =
      AddPart(command, "new", "makes an admin key, a member key and a reader key in a new folder");
  AddOption(made, "FOLDER", folder.get(), "the folder, which must not be there yet").Required();
  return [folder] { return NewKeys(*folder); };
}

}  // namespace pando
