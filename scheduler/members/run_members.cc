#include "scheduler/members/run_members.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/endpoint.h"
#include "plan/external_model.h"
#include "proto/message_limits.h"

namespace pando {
namespace {

// P28. A server without another replica has this many leases: its loss costs a rollback.
constexpr int kLonelyServerLeases = 4;

std::string SecondsText(Micros time) {
  const int64_t tenths = (time.count() + 50'000) / 100'000;
  return fmt::format("{}.{} s", tenths / 10, tenths % 10);
}

// The limit is enough for "tcp://", a host name and a port. An ipc path has at most 107 bytes.
constexpr size_t kEndpointBytesMax = 300;

std::string ReasonNotToDial(const Register& registration) {
  for (const std::string& endpoint : registration.lane_endpoints) {
    if (endpoint.size() > kEndpointBytesMax)
      return fmt::format("a lane's endpoint has {} bytes; at most {} were expected",
                         endpoint.size(), kEndpointBytesMax);
    // The peers that will dial the lane use the same parser.
    if (const Result<Endpoint> parsed = ParsePeerEndpoint(endpoint); !parsed.ok())
      return "a lane cannot be dialed: " + parsed.status().message();
  }
  return "";
}

// Returns why a server that listens only on its own machine cannot serve members on other machines;
// empty if all can reach all.
std::string ReasonOutOfReach(const Register& registration, const Members& members) {
  const auto reason = [](const Register& server, const std::string& other) -> std::string {
    const auto at = std::ranges::find_if(server.lane_endpoints, IsOfOneMachine);
    if (server.role == Role::kWorker || at == server.lane_endpoints.end()) return "";
    return fmt::format(
        "the server on {} listens on {}, which {} cannot reach; start it with --keys or "
        "--insecure and without --bind, or with an address that both can reach",
        server.host, *at, other);
  };
  for (const auto& [node, member] : members.all()) {
    const Register& other = member.registration;
    if (other.host == registration.host) continue;
    if (std::string text = reason(registration, other.host); !text.empty()) return text;
    if (std::string text = reason(other, registration.host); !text.empty()) return text;
  }
  return "";
}

}  // namespace

RunMembers::RunMembers(const SchedulerOptions& options, const SchedulerPart& part,
                       FaultLedger& faults, const RunProgress& progress, Members& members,
                       MembershipObserver& observer)
    : SchedulerPart(part),
      options_(options),
      faults_(faults),
      progress_(progress),
      members_(members),
      observer_(observer),
      welcome_{.job_toml = options.job_toml,
               .data = plan_.data,
               .snapshot_dir = options.snapshot_dir,
               .files_endpoint = options.files_endpoint,
               .view_key = options.seal ? options.seal->public_key() : ""},
      leases_(std::chrono::milliseconds(plan_.job.lease_ms),
              [this](NodeId node) { return LeaseFor(node); }),
      use_(options.state.has_value()),
      ids_(options.state ? options.state->next_node : 1) {
  if (!options.state || options.is_resumed) return;
  for (const MemberRecord& record : options.state->members) {
    members_.Add(Member(record));
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

// Messages to any life of the scheduler count, because members report facts.
const Member* RunMembers::OnHeard(Micros now, const Envelope& envelope) {
  const PeerId& from = envelope.sender;
  const Member* member = members_.Find(from.incarnation);
  if (member == nullptr) {
    const bool was_member = from.node != kUnknownNode || ids_.IsGivenUp(from.incarnation);
    if (was_member && !std::holds_alternative<Bye>(envelope.message)) RefuseGivenUp(from);
    // With keys, a scheduler that began later can answer only on the connection that it came by.
    if (was_member && HoldsAny<Heartbeat>(envelope.message))
      outbox_.Send(from, HeartbeatAck{.is_given_up = true});
    return nullptr;
  }
  // A message that the member may not send does not renew its lease.
  if (!MaySend(member->role(), RowFor(envelope.message).sender)) return nullptr;
  leases_.OnHeardOfRun(now);
  leases_.OnHeard(now, member->peer.node);
  unheard_.erase(from.incarnation);
  return member;
}

void RunMembers::RefuseGivenUp(const PeerId& to) {
  outbox_.Send(to, Refused{"this process was declared dead", RefusalKind::kGivenUp});
}

const Member* RunMembers::OnRegister(Micros now, const PeerId& from, const Register& registration) {
  if (registration.role != Role::kServer && registration.role != Role::kWorker) return nullptr;
  if (ids_.IsGivenUp(from.incarnation)) {
    RefuseGivenUp(from);
    return nullptr;
  }
  const bool is_new = members_.Find(from.incarnation) == nullptr;
  const std::string reason = is_new ? ReasonToRefuse(registration) : "";
  if (!reason.empty()) {
    const bool is_over = phase_.is_ending();
    outbox_.Send(from,
                 Refused{reason, is_over ? RefusalKind::kRunIsOver : RefusalKind::kNotThisOne});
    return nullptr;
  }
  leases_.OnHeardOfRun(now);
  const Member& member = FindOrAdd(now, from, registration);
  leases_.OnRegistered(now, member.peer.node);
  Welcome welcome = welcome_;
  welcome.node = member.peer.node;
  welcome.rank = member.rank;
  PeerId welcomed = member.peer;
  welcomed.lane = from.lane;
  outbox_.Send(welcomed, std::move(welcome));
  return is_new ? &member : nullptr;
}

// Finds or adds the member. A new incarnation of a process means that its old one is dead (P19).
const Member& RunMembers::FindOrAdd(Micros now, const PeerId& from, const Register& registration) {
  if (const Member* known = members_.Find(from.incarnation)) return *known;
  const Member* old = members_.FindProcess(registration.role, ProcessFor(registration));
  if (old != nullptr) OnDeath(now, old->peer.node, "restart", "socket");
  const auto node = ids_.Take([this](NodeId id) { return members_.Find(id) != nullptr; });
  PANDO_CHECK(node.has_value());  // ReasonToRefuse
  const Member& added = members_.Add(
      Member({.peer = {*node, from.incarnation, 0},
              .registration = registration,
              .rank = members_.FreeRank(registration.role, registration.wanted_rank)}));
  leases_.Add(added.peer.node);
  outbox_.MarkChanged();
  outbox_.Tell(now, "registered", added.Name(), "{}", added.Where());
  return added;
}

bool RunMembers::OnReady(Micros now, const PeerId& from, const Ready& ready) {
  Member& member = members_.Sender(from);
  if (member.is_ready || phase_.is_ending()) return false;
  if (!ReadsSameData(now, from, member, ready)) return false;
  members_.MarkReady(member, ready);
  outbox_.MarkChanged();
  if (phase_.is_running())
    outbox_.TellNotable(now, "ready", member.Name(), "{} has joined: {}", member.Description(),
                        ready.kind);
  else
    outbox_.Tell(now, "ready", member.Name(), "{}", ready.kind);
  CompareKinds(now, member);
  return true;
}

// P38. A worker with other data ends a run that has not begun. A run that has begun refuses it.
bool RunMembers::ReadsSameData(Micros now, const PeerId& from, const Member& member,
                               const Ready& ready) {
  const bool is_worker = member.role() == Role::kWorker;
  if (!is_worker || ready.data_fingerprint == plan_.data.fingerprint) return true;
  const std::string reason = fmt::format(
      "{} on {} reads other data than the scheduler ({}: fingerprints differ); give every machine "
      "the same files",
      member.Name(), member.registration.host, plan_.job.dataset);
  outbox_.Send(from, Refused{reason});
  if (phase_.is_gathering()) {
    phase_.End(now, StopReason::kFailed, reason);
  } else {
    outbox_.TellNotable(now, "refused", member.Name(), "{}", reason);
    Forget(member.peer.node);
  }
  return false;
}

// P40. Compares kinds by their probes' results, not by their names.
void RunMembers::CompareKinds(Micros now, const Member& newcomer) {
  if (newcomer.role() != Role::kWorker) return;
  for (const Member* other : members_.Workers()) {
    if (other == &newcomer || other->ready.probe_hash == newcomer.ready.probe_hash) continue;
    return outbox_.TellNotable(
        now, "mixed-kinds", newcomer.Name(),
        "{} ({}) computes other bits than {} ({}): every gradient still counts exactly "
        "once, but the weights will depend on which worker computes what ({})",
        newcomer.Name(), newcomer.ready.kind, other->Name(), other->ready.kind,
        IsExternal(plan_.job)
            ? "give all the same torch, CPU capability (ATEN_CPU_CAPABILITY) and settings"
            : "on CPUs, the same --cpu-level for all prevents it");
  }
}

void RunMembers::OnHeartbeat(const PeerId& from, const Heartbeat& heartbeat) {
  Member& member = members_.Sender(from);
  use_.OnHeartbeat(member.heartbeat, heartbeat, members_.CountReady(Role::kWorker));
  member.heartbeat = heartbeat;
  HeartbeatAck ack;
  if (options_.schedulers != nullptr) ack.schedulers = EndpointsFor(*options_.schedulers);
  const bool has_list = HashEndpoints(ack.schedulers) == heartbeat.schedulers_hash;
  const bool is_due = member.heartbeat_count++ % plan_.job.heartbeats_per_ack() == 0;
  if (is_due || !has_list) outbox_.Send(from, std::move(ack));
}

void RunMembers::OnBye(const PeerId& from) {
  Member& member = members_.Sender(from);
  if (!phase_.is_ending() && !member.is_leaving) return;
  member.left_lanes.insert(from.lane);
  if (member.has_left()) Forget(member.peer.node);
}

std::string RunMembers::MissingText() const {
  const auto text = [&](Role role, uint32_t wanted) {
    return fmt::format("{} of {} {}s", members_.CountReady(role), wanted, EnumName(role));
  };
  return text(Role::kServer, plan_.job.servers) + ", " + text(Role::kWorker, plan_.job.workers);
}

// ---- silence and death -------------------------------------------------------------------------

void RunMembers::OnDisconnect(Micros now, Incarnation incarnation, const std::string& nonsense) {
  const Member* member = members_.Find(incarnation);
  if (member == nullptr) return;
  leases_.OnDisconnect(now, member->peer.node);
  if (!nonsense.empty())
    OnDeath(now, member->peer.node, "nonsense", "message", "it sent " + nonsense);
}

Micros RunMembers::LeaseFor(NodeId node) const {
  const Micros lease = std::chrono::milliseconds(plan_.job.lease_ms);
  const bool is_lonely = members_.Find(node)->role() == Role::kServer && phase_.is_running() &&
                         (plan_.job.replicas == 1 || members_.CountReady(Role::kServer) == 1);
  return is_lonely ? lease * kLonelyServerLeases : lease;
}

void RunMembers::Tick(Micros now) {
  const auto silence = phase_.is_ending() ? std::nullopt : leases_.TakeDeafness(now);
  if (silence) {
    outbox_.TellNotable(
        now, "leases-suspended", "",
        "no message has arrived for {}: this scheduler may be cut off itself, and declares no "
        "process dead until it hears from one (leases are suspended)",
        SecondsText(*silence));
  }
  for (const auto& [node, detected_by] : leases_.Judge(now))
    OnDeath(now, node, "silence", detected_by);
}

void RunMembers::OnDeath(Micros now, NodeId node, const std::string& action,
                         const std::string& detected_by, const std::string& cause) {
  const Member& member = *members_.Find(node);
  if (!phase_.is_ending() && !member.is_leaving) {
    faults_.OnDetected(now, {member.Name(), ProcessFor(member.registration)}, action, detected_by,
                       progress_.StepReached());
    outbox_.TellNotable(
        now, "dead", member.Name(),
        "{} is gone ({}, noticed by {}): the scheduler last heard from it {} ago, at step {}",
        member.Description(), cause.empty() ? action : cause, detected_by,
        SecondsText(leases_.SilenceSince(now, node)), member.heartbeat.step.value());
    if (IsGroup(plan_) && phase_.is_running()) EndGroup(now, member, action);
  }
  Forget(node);
  views_.RequestView(now);
}

// The remaining members of a group cannot sum without the lost one. If the server is lost, worker 0
// is named: it is the same process.
void RunMembers::EndGroup(Micros now, const Member& lost, const std::string& action) {
  const Member* worker = members_.FindProcess(Role::kWorker, ProcessFor(lost.registration));
  const Member& named = worker != nullptr ? *worker : lost;
  phase_.EndForLostMember(
      now, fmt::format("{} is gone ({}), and allreduce cannot continue without it; "
                       "--group-restarts N restarts the group from its last snapshot, --strategy "
                       "ps continues without it",
                       named.Description(), action));
}

void RunMembers::Forget(NodeId node) {
  const Member& member = *members_.Find(node);
  ids_.GiveUp(member.peer.incarnation);
  unheard_.erase(member.peer.incarnation);
  leases_.Remove(node);
  observer_.OnForget(member);
  members_.Remove(node);
  outbox_.MarkChanged();
}

// ---- leaving -----------------------------------------------------------------------------------

void RunMembers::MarkDraining(NodeId node) {
  members_.MarkDraining(node);
  outbox_.MarkChanged();
}

bool RunMembers::RepeatDrained(const Member& member, const PeerId& lane) {
  if (!member.is_leaving || member.left_lanes.contains(lane.lane)) return false;
  outbox_.Send(lane, Stop{StopReason::kDrained, "drained"});
  return true;
}

void RunMembers::RepeatStop() {
  for (const auto& [node, member] : members_.all()) {
    for (const PeerId& lane : member.Peers()) {
      if (!member.left_lanes.contains(lane.lane)) outbox_.Send(lane, phase_.stop());
    }
  }
}

// ---- which processes may join ------------------------------------------------------------------

std::string RunMembers::ReasonToRefuse(const Register& registration) const {
  if (phase_.is_ending()) return "the run is over";
  const bool is_server = registration.role == Role::kServer;
  const size_t lane_count = registration.lane_endpoints.size();
  if ((is_server && lane_count == 0) || lane_count > (is_server ? kLanesMax : 1))
    return fmt::format("a server registers 1 to {} lanes, a worker at most one", kLanesMax);
  // The journal and every view keep the registration.
  if (registration.host.size() > kHostBytesMax)
    return fmt::format("a host name has {} bytes; at most {} were expected",
                       registration.host.size(), kHostBytesMax);
  if (std::max(registration.machine.size(), registration.rack.size()) > kHostBytesMax)
    return fmt::format("a label of more than {} bytes", kHostBytesMax);
  if (std::string reason = ReasonNotToDial(registration); !reason.empty()) return reason;
  if (std::string reason = ReasonOutOfReach(registration, members_); !reason.empty()) return reason;
  if (std::string reason = ReasonNotInGroup(registration); !reason.empty()) return reason;
  if (members_.all().size() + 1 < kNodesMax) return "";
  return fmt::format("the run has {} processes, the most that it can name", kNodesMax - 1);
}

// An allreduce group keeps its members from beginning to end. Worker 0's process is its one server.
std::string RunMembers::ReasonNotInGroup(const Register& registration) const {
  if (!IsGroup(plan_)) return "";
  const bool has_begun = phase_.is_running();
  const bool is_server = registration.role == Role::kServer;
  const Member* worker = members_.FindProcess(Role::kWorker, ProcessFor(registration));
  if (is_server && worker != nullptr && !has_begun) return "";
  const std::string what = "the run's strategy is allreduce: ";
  if (is_server) return what + "it has no servers; run it with --strategy ps to have servers";
  const auto is_worker = [](const auto& entry) { return entry.second.role() == Role::kWorker; };
  const uint32_t wanted = plan_.job.workers;
  if (has_begun || std::ranges::count_if(members_.all(), is_worker) >= wanted)
    return what + fmt::format(
                      "its {} workers are the group, and no other can join it; run it "
                      "with --strategy ps for that",
                      wanted);
  if (registration.wanted_rank != kAnyRank && registration.wanted_rank >= wanted)
    return what + fmt::format("its workers have ranks 0 to {}", wanted - 1);
  return "";
}

}  // namespace pando
