// Whether members of a run still answer (processes.h).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "common/clock.h"
#include "common/exit_codes.h"
#include "common/system.h"
#include "net/transport.h"
#include "node/log.h"
#include "node/processes.h"
#include "run/run_folder.h"
#include "run/sqlite_journal.h"

namespace pando {
namespace {

// Members that have lost their scheduler dial it all the time, and send heartbeats.
std::set<std::string> HearMembers(Transport& transport, const SchedulerState& state) {
  constexpr Micros kPatience = std::chrono::seconds(2);
  std::set<std::string> names;
  for (const MemberRecord& member : state.members)
    transport.guard().Trust(member.peer.incarnation, member.registration.public_key);
  const Micros deadline = SteadyNow() + kPatience;
  Envelope envelope;
  while (SteadyNow() < deadline) {
    transport.Wait(deadline);
    while (transport.Receive(&envelope)) {
      const auto is_sender = [&](const MemberRecord& member) {
        return member.peer.incarnation == envelope.sender.incarnation;
      };
      const auto it = std::ranges::find_if(state.members, is_sender);
      if (envelope.job != state.job || it == state.members.end()) continue;
      names.insert(fmt::format("{}-{}", EnumName(it->registration.role), it->rank));
    }
  }
  return names;
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
  Transport transport(context, {kSchedulerNode, self, 0}, {.insecure = args.insecure});
  const Result<std::string> bound = transport.Bind(args.bind);
  if (!bound.ok()) return BadBind(bound.status());
  const std::set<std::string> names = HearMembers(transport, *state);
  if (names.empty()) return Status();
  return InvalidArgument(fmt::format(
      "--resume is for a run whose processes are all gone, and {} of the run in {} still train: "
      "start the scheduler without --resume, and they go on with it",
      fmt::join(names, ", "), args.run_dir));
}

}  // namespace pando
