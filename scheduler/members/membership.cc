#include "scheduler/members/membership.h"

#include <utility>

#include "common/mutation.h"
#include "scheduler/members/admission.h"

namespace pando {
namespace {

// P28: with one replica a false suspicion costs a rollback.
constexpr int kLonelyServerLeases = 4;

std::string SecondsText(Micros time) {
  const int64_t tenths = (time.count() + 50'000) / 100'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

RunMembers::RunMembers(Options options, const JobPlan& plan,
                       const std::optional<SchedulerState>& state, const Parts& parts)
    : options_(std::move(options)),
      plan_(plan),
      parts_(parts),
      leases_(std::chrono::milliseconds(plan.job.lease_ms),
              [this](NodeId node) { return LeaseFor(node); }),
      use_(state.has_value()) {
  if (!state) return;
  next_node_ = state->next_node;
  if (options_.is_fresh) return;
  for (const MemberRecord& record : state->members) {
    members_.Add(Member::From(record));
    leases_.Add(record.peer.node);
    unheard_.insert(record.peer.incarnation);
  }
}

bool RunMembers::Begin(Micros now) {
  if (std::exchange(has_begun_, true)) return false;
  leases_.Begin(now);
  return true;
}

// ---- messages of members -----------------------------------------------------------------------

// Messages to any life of the scheduler count: what members report are facts.
const Member* RunMembers::OnHeard(Micros now, const Envelope& envelope) {
  const PeerId& from = envelope.sender;
  const Member* member = members_.Find(from.incarnation);
  if (member == nullptr) {
    const bool was_member = from.node != kUnknownNode || given_up_.contains(from.incarnation);
    if (was_member && !std::holds_alternative<Bye>(envelope.message)) RefuseGivenUp(from);
    return nullptr;
  }
  leases_.OnHeardOfRun(now);
  leases_.OnHeard(now, member->peer.node);
  unheard_.erase(from.incarnation);
  return member;
}

void RunMembers::RefuseGivenUp(const PeerId& to) {
  parts_.outbox.Send(to, Refused{"this process was declared dead", RefusalKind::kGivenUp});
}

void RunMembers::OnRegister(Micros now, const PeerId& from, const Register& registration) {
  if (registration.role != Role::kServer && registration.role != Role::kWorker) return;
  if (given_up_.contains(from.incarnation)) return RefuseGivenUp(from);
  if (members_.Find(from.incarnation) == nullptr) {
    const std::string reason =
        ReasonToRefuse(registration, {plan_.job, members_, parts_.phase, next_node_});
    const bool is_over = parts_.phase.is_ending();
    if (!reason.empty())
      return parts_.outbox.Send(
          from, Refused{reason, is_over ? RefusalKind::kRunIsOver : RefusalKind::kNotThisOne});
  }
  leases_.OnHeardOfRun(now);
  const Member& member = FindOrAdd(now, from, registration);
  leases_.OnRegistered(now, member.peer.node);
  PeerId welcomed = member.peer;
  welcomed.lane = from.lane;
  parts_.outbox.Send(welcomed, Welcome{.node = member.peer.node,
                                       .rank = member.rank,
                                       .job_toml = options_.job_toml,
                                       .data = plan_.data,
                                       .snapshot_dir = options_.snapshot_dir});
}

// Finds the member, or adds it. A new incarnation of a process is the death of its old one (P19).
const Member& RunMembers::FindOrAdd(Micros now, const PeerId& from, const Register& registration) {
  if (const Member* known = members_.Find(from.incarnation)) return *known;
  const Member* old =
      members_.FindProcess(registration.role, registration.host, registration.process_id);
  if (old != nullptr && Mutated(Mutation::kNoIncarnations)) {
    parts_.views.ReplaceIncarnation(old->peer, from.incarnation);
    parts_.views.RequestView(now);
    members_.Find(old->peer.node)->peer.incarnation = from.incarnation;
    return *old;
  }
  if (old != nullptr) OnDeath(now, old->peer.node, "restart", "socket");
  Member member;
  member.peer = {NodeId(next_node_++), from.incarnation, 0};
  member.registration = registration;
  member.rank = members_.FreeRank(registration.role, registration.wanted_rank);
  const Member& added = members_.Add(std::move(member));
  leases_.Add(added.peer.node);
  parts_.observer.OnWelcome(now, added);
  parts_.outbox.MarkChanged();
  parts_.outbox.Tell(now, "registered", added.Name(), added.Where());
  return added;
}

bool RunMembers::OnReady(Micros now, const PeerId& from, const Ready& ready) {
  Member& member = *members_.Find(members_.Find(from.incarnation)->peer.node);
  if (member.is_ready || parts_.phase.is_ending()) return false;
  if (!ReadsSameData(now, from, member, ready)) return false;
  member.is_ready = true;
  member.ready = ready;
  parts_.outbox.MarkChanged();
  parts_.outbox.Tell(now, "ready", member.Name(), ready.kind);
  CompareKinds(now, member);
  return true;
}

// P38. A worker with other data ends a run that has not begun; later it is refused.
bool RunMembers::ReadsSameData(Micros now, const PeerId& from, const Member& member,
                               const Ready& ready) {
  const bool is_worker = member.role() == Role::kWorker;
  if (!is_worker || ready.data_fingerprint == plan_.data.fingerprint) return true;
  const std::string reason = member.Name() + " on " + member.registration.host +
                             " reads other data than the scheduler (" + plan_.job.dataset +
                             ": fingerprints differ); give every machine the same files";
  parts_.outbox.Send(from, Refused{reason});
  if (parts_.phase.is_gathering()) {
    parts_.phase.End(now, StopReason::kFailed, reason);
  } else {
    parts_.outbox.Tell(now, "refused", member.Name(), reason, /*is_notable=*/true);
    Forget(member.peer.node);
  }
  return false;
}

// P40: kinds are compared by what they compute, not by their names.
void RunMembers::CompareKinds(Micros now, const Member& newcomer) {
  if (newcomer.role() != Role::kWorker) return;
  for (const Member* other : members_.Workers()) {
    if (other == &newcomer || other->ready.probe_hash == newcomer.ready.probe_hash) continue;
    return parts_.outbox.Tell(
        now, "mixed-kinds", newcomer.Name(),
        newcomer.Name() + " (" + newcomer.ready.kind + ") computes other bits than " +
            other->Name() + " (" + other->ready.kind +
            "): every gradient still counts exactly once, but the weights will depend on "
            "which worker computes what",
        /*is_notable=*/true);
  }
}

void RunMembers::OnHeartbeat(const PeerId& from, const Heartbeat& heartbeat) {
  Member& member = *members_.Find(members_.Find(from.incarnation)->peer.node);
  use_.OnHeartbeat(member.heartbeat, heartbeat, members_.Workers().size());
  member.heartbeat = heartbeat;
  parts_.outbox.Send(from, HeartbeatAck{});
}

void RunMembers::OnBye(const PeerId& from) {
  Member& member = *members_.Find(members_.Find(from.incarnation)->peer.node);
  if (!parts_.phase.is_ending() && !member.is_leaving) return;
  member.left_lanes.insert(from.lane);
  if (member.has_left()) Forget(member.peer.node);
}

std::string RunMembers::MissingText() const {
  const auto text = [&](Role role, uint32_t wanted) {
    return std::to_string(members_.CountReady(role)) + " of " + std::to_string(wanted) + " " +
           EnumName(role) + "s";
  };
  return text(Role::kServer, plan_.job.servers) + ", " + text(Role::kWorker, plan_.job.workers);
}

// ---- silence and death -------------------------------------------------------------------------

void RunMembers::OnDisconnect(Micros now, Incarnation incarnation) {
  const Member* member = members_.Find(incarnation);
  if (member != nullptr) leases_.OnDisconnect(now, member->peer.node);
}

Micros RunMembers::LeaseFor(NodeId node) const {
  const Micros lease = std::chrono::milliseconds(plan_.job.lease_ms);
  const bool is_lonely = members_.Find(node)->role() == Role::kServer &&
                         parts_.phase.is_running() &&
                         (plan_.job.replicas == 1 || members_.CountReady(Role::kServer) == 1);
  return is_lonely ? lease * kLonelyServerLeases : lease;
}

void RunMembers::Tick(Micros now) {
  if (!parts_.phase.is_ending()) {
    if (const std::optional<Micros> silence = leases_.TakeDeafness(now)) {
      parts_.outbox.Tell(now, "leases-suspended", "",
                         "no message has arrived for " + SecondsText(*silence) +
                             ": leases are suspended until a heartbeat arrives",
                         /*is_notable=*/true);
    }
  }
  for (const auto& [node, detected_by] : leases_.Judge(now))
    OnDeath(now, node, "silence", detected_by);
}

void RunMembers::OnDeath(Micros now, NodeId node, const std::string& action,
                         const std::string& detected_by) {
  const Member& member = *members_.Find(node);
  if (!parts_.phase.is_ending() && !member.is_leaving) {
    const Register& registration = member.registration;
    parts_.faults.OnDetected(now, {member.Name(), registration.host, registration.process_id},
                             action, detected_by, parts_.progress.StepReached());
    parts_.outbox.Tell(now, "dead", member.Name(),
                       member.Name() + " (" + member.Where() + ") is gone (" + action +
                           ", noticed by " + detected_by + "): last message " +
                           SecondsText(leases_.SilenceSince(now, node)) + " ago, at step " +
                           std::to_string(member.heartbeat.step.value()),
                       /*is_notable=*/true);
    if (IsGroup() && parts_.phase.is_running()) EndGroup(now, member, action);
  }
  Forget(node);
  parts_.views.RequestView(now);
}

// The remaining members of a group cannot sum without the lost one. What the scheduler calls the
// server is the process of worker 0.
void RunMembers::EndGroup(Micros now, const Member& lost, const std::string& action) {
  const Register& of = lost.registration;
  const Member* worker = members_.FindProcess(Role::kWorker, of.host, of.process_id);
  const Member& named = worker != nullptr ? *worker : lost;
  parts_.phase.EndForLostMember(
      now, named.Name() + " (" + named.Where() + ") is gone (" + action +
               "), and allreduce cannot continue without it; --group-restarts N restarts the group "
               "from its last snapshot, --strategy ps continues without it");
}

void RunMembers::Forget(NodeId node) {
  const Member& member = *members_.Find(node);
  given_up_.insert(member.peer.incarnation);
  unheard_.erase(member.peer.incarnation);
  leases_.Remove(node);
  parts_.observer.OnForget(member);
  members_.Remove(node);
  parts_.outbox.MarkChanged();
}

// ---- leaving -----------------------------------------------------------------------------------

void RunMembers::MarkDraining(NodeId node) {
  members_.Find(node)->is_draining = true;
  parts_.outbox.MarkChanged();
}

bool RunMembers::RepeatDrained(const Member& member, const PeerId& lane) {
  if (!member.is_leaving || member.left_lanes.contains(lane.lane)) return false;
  parts_.outbox.Send(lane, Stop{StopReason::kDrained, "drained"});
  return true;
}

void RunMembers::RepeatStop() {
  for (const auto& [node, member] : members_.all()) {
    for (const PeerId& lane : member.Peers()) {
      if (!member.left_lanes.contains(lane.lane)) parts_.outbox.Send(lane, parts_.phase.stop());
    }
  }
}

}  // namespace pando
