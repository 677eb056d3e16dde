// Finds out whether members of a run still answer (processes.h).
#include <fmt/core.h>

#include <optional>
#include <string>

#include "common/clock.h"
#include "common/exit_codes.h"
#include "common/system.h"
#include "net/transport.h"
#include "node/log.h"
#include "node/processes.h"
#include "run/run_folder.h"
#include "run/run_lock.h"
#include "run/sqlite_journal.h"

namespace pando {
namespace {

// Returns the first member of the run that sends something. Members that have lost their scheduler
// keep dialing it, and send heartbeats.
std::optional<std::string> HearMember(Transport& transport, const SchedulerState& state) {
  constexpr Micros kPatience = std::chrono::seconds(2);
  for (const MemberRecord& member : state.members)
    transport.guard().Trust(member.peer.incarnation, member.registration.public_key);
  const Micros deadline = SteadyNow() + kPatience;
  Envelope envelope;
  while (SteadyNow() < deadline) {
    transport.Wait(deadline);
    while (transport.Receive(&envelope)) {
      for (const MemberRecord& member : state.members) {
        if (envelope.job == state.job && member.peer.incarnation == envelope.sender.incarnation)
          return fmt::format("{}-{}", EnumName(member.registration.role), member.rank);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Status CheckNoMemberAnswers(const SchedulerArgs& args) {
  PANDO_ASSIGN_OR_RETURN(const RunLock lock, RunLock::Acquire(args.run_dir));
  const RunFolder folder = RunFolder::Open(args.run_dir);
  const Incarnation self = NewIncarnation();
  PANDO_ASSIGN_OR_RETURN(SqliteJournal journal,
                         SqliteJournal::Open(folder.JournalPath(), self.value()));
  PANDO_ASSIGN_OR_RETURN(const std::optional<SchedulerState> state, journal.ReadState());
  if (!state) return Status();
  ZmqContext context(args.keys, LogWarning);
  Transport transport(context, {kSchedulerNode, self, 0}, {.insecure = true});
  // Members dial the endpoint of the last scheduler. --bind may name another one.
  const Result<std::string> endpoint = folder.ReadEndpoint();
  Result<std::string> bound = transport.Bind(endpoint.ok() ? *endpoint : args.bind);
  if (!bound.ok()) bound = transport.Bind(args.bind);
  if (!bound.ok()) return BadBind(bound.status());
  const std::optional<std::string> name = HearMember(transport, *state);
  if (!name) return Status();
  return InvalidArgument(fmt::format(
      "--resume is for a run whose processes are all gone, and {} of the run in {} still trains: "
      "start the scheduler without --resume, and the run goes on with its processes",
      *name, args.run_dir));
}

}  // namespace pando
