#include "tests/sim/faults.h"

#include <algorithm>

namespace pando::sim {
namespace {

using std::chrono::milliseconds;

template <class... Ms>
size_t DrawKind(Chance& chance) {
  const size_t kinds[] = {Message(Ms{}).index()...};
  return kinds[chance.Below(sizeof...(Ms))];
}

// A message near which the fault is likely to hurt.
size_t DrawTrigger(Chance& chance, FaultKind kind) {
  switch (kind) {
    case FaultKind::kKillScheduler:
    case FaultKind::kSecondScheduler:
      return DrawKind<ViewUpdate, ViewDelta, ViewAck, Progress, Synced, SnapshotStored, Evaluate,
                      EvaluationResult, Welcome, Ready, Stop, ReleasePin, Scalars>(chance);
    case FaultKind::kKillWorker:
    case FaultKind::kKillAllWorkers:
    case FaultKind::kJoinWorker:
      return DrawKind<Push, Params, Question, Answer, ViewUpdate, ViewDelta, PushReply, Evaluate,
                      EvaluationResult>(chance);
    default:
      return DrawKind<Root, RootAck, Chunk, ChunkAck, Synced, Params, Push, ViewUpdate, ViewDelta,
                      ViewAck, Progress, SnapshotStored, SnapshotAck, Question, Answer, ReleasePin,
                      PinReleased>(chance);
  }
}

}  // namespace

void Faults::Plan() {
  World& world = stage_.world;
  const Swarm& swarm = stage_.swarm;
  std::vector<FaultKind> kinds;
  for (size_t i = 0; i < kFaultKindCount; ++i) {
    if (swarm.kinds[i]) kinds.push_back(static_cast<FaultKind>(i));
  }
  for (uint32_t i = 0; i < swarm.fault_count && !kinds.empty(); ++i) {
    const FaultKind kind = kinds[world.chance().Below(kinds.size())];
    world.After(world.chance().Until(swarm.fault_phase), [this, kind] { Come(kind); });
  }
}

void Faults::Come(FaultKind kind) {
  Chance& chance = stage_.world.chance();
  const bool is_of_a_message = kind == FaultKind::kLateCopy;
  if (!is_of_a_message && !chance.OneIn(stage_.swarm.trigger_share)) return Do(kind);
  waiting_.push_back({kind, DrawTrigger(chance, kind)});
}

void Faults::OnSent(const Envelope& envelope) {
  for (size_t i = 0; i < waiting_.size(); ++i) {
    if (waiting_[i].message != envelope.message.index()) continue;
    if (!stage_.world.chance().OneIn(0.4)) continue;
    const FaultKind kind = waiting_[i].kind;
    waiting_.erase(waiting_.begin() + static_cast<long>(i));
    at_ = Envelope{.sender = envelope.sender, .receiver = envelope.receiver};
    stage_.Note(std::string("at the next ") + RowFor(envelope.message).name + ":");
    Do(kind);
    at_.reset();
    return;
  }
}

Micros Faults::Duration(uint64_t max_ms) {
  Chance& chance = stage_.world.chance();
  return chance.OneIn(0.3) ? milliseconds(chance.Below(20)) : milliseconds(chance.Below(max_ms));
}

// The message's sender or receiver, if it has this role; otherwise any process of this role.
Process* Faults::Pick(Role role) {
  Chance& chance = stage_.world.chance();
  std::vector<Process*> living = population_.Living(role);
  if (living.empty()) return nullptr;
  if (at_ && chance.OneIn(0.8)) {
    const bool is_sender = chance.OneIn(0.5);
    for (const PeerId& peer :
         {is_sender ? at_->sender : at_->receiver, is_sender ? at_->receiver : at_->sender}) {
      Process* process = population_.Find(peer.incarnation);
      if (process != nullptr && process->seat().role == role) return process;
    }
  }
  return living[chance.Below(living.size())];
}

Process* Faults::PickAny() {
  constexpr Role kRoles[] = {Role::kServer, Role::kWorker, Role::kServer, Role::kScheduler};
  return Pick(kRoles[stage_.world.chance().Below(std::size(kRoles))]);
}

void Faults::Do(FaultKind kind) {
  ++stage_.coverage.faults[static_cast<size_t>(kind)];
  stage_.Note(std::string("fault: ") + FaultName(kind));
  World& world = stage_.world;
  switch (kind) {
    case FaultKind::kKillWorker:
      return KillSome(Role::kWorker, 1);
    case FaultKind::kKillServer:
      return KillSome(Role::kServer, 1);
    case FaultKind::kKillScheduler:
      if (world.chance().OneIn(stage_.swarm.torn_commit_share)) return population_.KillAtCommit();
      return KillSome(Role::kScheduler, 1);
    case FaultKind::kKillSeveral:
      return KillSeveral();
    case FaultKind::kKillAllWorkers:
      return KillSome(Role::kWorker, UINT64_MAX);
    case FaultKind::kKillAllServers:
      return KillSome(Role::kServer, UINT64_MAX);
    case FaultKind::kPause:
      return Pause();
    case FaultKind::kPartition:
      return CutOff(false);
    case FaultKind::kOneWayPartition:
      return CutOff(true);
    case FaultKind::kReset:
      if (Process* process = PickAny()) population_.Reset(*process);
      return;
    case FaultKind::kSlowWorker:
      return SlowWorker();
    case FaultKind::kDiskTrouble:
      return TroubleDisk();
    case FaultKind::kJoinWorker:
      return population_.Start(Role::kWorker);
    case FaultKind::kJoinServer:
      return population_.Start(Role::kServer);
    case FaultKind::kDrain:
      if (Process* p = Pick(world.chance().OneIn(stage_.swarm.server_share) ? Role::kServer
                                                                            : Role::kWorker)) {
        population_.Drain(*p);
      }
      return;
    case FaultKind::kLeave:
      if (Process* p = Pick(world.chance().OneIn(stage_.swarm.server_share) ? Role::kServer
                                                                            : Role::kWorker)) {
        population_.AskToLeave(*p);
      }
      return;
    case FaultKind::kSnapshotNow:
      return population_.Ask(CommandKind::kSnapshot);
    case FaultKind::kSecondScheduler:
      return population_.StartSecondScheduler(Duration(3000));
    case FaultKind::kPowerOff:
      return population_.PowerOff();
    case FaultKind::kStop:
      return population_.Ask(CommandKind::kStop);
    case FaultKind::kLateCopy:
      if (at_) stage_.network.RepeatLater(Duration(5000));
      return;
    case FaultKind::kCount:
      return;
  }
}

void Faults::KillSome(Role role, uint64_t count) {
  if (count == 1) {
    if (Process* victim = Pick(role)) population_.Kill(*victim);
    return;
  }
  for (Process* victim : population_.Living(role)) {
    if (count-- > 0) population_.Kill(*victim);
  }
}

void Faults::KillSeveral() {
  const uint64_t count = stage_.world.chance().Between(2, 3);
  for (uint64_t i = 0; i < count; ++i) {
    if (Process* victim = PickAny()) population_.Kill(*victim);
  }
}

void Faults::Pause() {
  Process* process = PickAny();
  if (process == nullptr || process->is_stopped()) return;
  const Micros time = Duration(3000);
  stage_.Note(process->seat().name + " stops for " + std::to_string(time.count()) + " us");
  process->StopUntil(stage_.world.now() + time);
}

// One place from all others, or from one.
void Faults::CutOff(bool is_one_way) {
  Process* process = PickAny();
  if (process == nullptr) return;
  World& world = stage_.world;
  Chance& chance = world.chance();
  const Micros until = world.now() + Duration(5000);
  const auto kind = chance.OneIn(0.5) ? Network::Cut::kLoses : Network::Cut::kHolds;
  const bool is_outward = chance.OneIn(0.5);
  Process* only = chance.OneIn(0.5) ? PickAny() : nullptr;
  stage_.Note(process->seat().name +
              (is_one_way ? is_outward ? " sends nothing" : " receives nothing" : " is cut off") +
              (only ? ", as for " + only->seat().name : "") + " until " +
              std::to_string(until.count()) + " us");
  for (Role role : {Role::kServer, Role::kWorker, Role::kScheduler}) {
    for (Process* other : population_.Living(role)) {
      if (other == process || (only != nullptr && other != only)) continue;
      const Place here = process->seat().place;
      const Place there = other->seat().place;
      if (!is_one_way || is_outward) stage_.network.CutLink(here, there, until, kind);
      if (!is_one_way || !is_outward) stage_.network.CutLink(there, here, until, kind);
      other->disturbance().NoteUnreachable(until);
    }
  }
  process->disturbance().NoteUnreachable(until);
}

void Faults::TroubleDisk() {
  Chance& chance = stage_.world.chance();
  const double failures = chance.OneIn(0.5) ? 1 : 0.3;
  stage_.disk.Trouble(stage_.world.now() + Duration(3000),
                      static_cast<double>(chance.Between(1, 200)), failures);
}

void Faults::SlowWorker() {
  Process* worker = Pick(Role::kWorker);
  if (worker == nullptr || worker->computer() == nullptr) return;
  const auto factor = static_cast<int64_t>(stage_.world.chance().Between(3, kSlownessMax));
  stage_.Note(worker->seat().name + " is " + std::to_string(factor) + " times slower");
  worker->computer()->SlowDown(factor, stage_.world.now() + Duration(4000));
}

}  // namespace pando::sim
