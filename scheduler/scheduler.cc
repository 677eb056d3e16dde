// The scheduler's membership: who registers, is ready, is silent, and what view follows from it.
#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "proto/message_limits.h"
#include "scheduler/placement.h"

namespace pando {
namespace {

constexpr Micros kControlRetry = std::chrono::milliseconds(200);

std::string Seconds(Micros time) {
  const int64_t tenths = (time.count() + 50'000) / 100'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

const char* RoleName(Role role) { return role == Role::kServer ? "server" : "worker"; }

}  // namespace

Scheduler::Scheduler(const Options& options, const JobPlan& plan, RunObserver& observer,
                     Outbox& outbox)
    : options_(options),
      plan_(plan),
      observer_(observer),
      outbox_(outbox),
      schedule_(plan.job.optimizer, plan.job.schedule, plan.steps.step_count()) {
  view_.id = {.term = 1, .number = 0};
}

void Scheduler::Send(const PeerId& to, Message message) {
  outbox_.Send({.job = options_.job,
                .generation = view_.generation,
                .view = view_.id,
                .sender = options_.self,
                .receiver = to,
                .message = std::move(message)});
}

std::string Scheduler::NameOf(const Member& member) {
  return std::string(RoleName(member.registration.role)) + " " + std::to_string(member.rank);
}

std::vector<PeerId> Scheduler::PeersOf(const Member& member) const {
  std::vector<PeerId> peers;
  const size_t lanes = std::max<size_t>(1, member.registration.lane_endpoints.size());
  for (size_t lane = 0; lane < lanes; ++lane) {
    peers.push_back({member.peer.node, member.peer.incarnation, static_cast<uint16_t>(lane)});
  }
  return peers;
}

Scheduler::Member* Scheduler::FindMember(Incarnation incarnation) {
  for (auto& [node, member] : members_) {
    if (member.peer.incarnation == incarnation) return &member;
  }
  return nullptr;
}

std::vector<Scheduler::Member*> Scheduler::Living(Role role) {
  std::vector<Member*> living;
  for (auto& [node, member] : members_) {
    if (!member.is_gone && member.registration.role == role) living.push_back(&member);
  }
  return living;
}

uint32_t Scheduler::CountOf(Role role, bool ready_only) const {
  uint32_t count = 0;
  for (const auto& [node, member] : members_) {
    const bool counts = !member.is_gone && (member.is_ready || !ready_only);
    count += counts && member.registration.role == role;
  }
  return count;
}

uint32_t Scheduler::WantedOf(Role role) const {
  return role == Role::kServer ? plan_.job.servers : plan_.job.workers;
}

uint32_t Scheduler::FreeRank(Role role) const {
  uint32_t rank = 0;
  const auto is_taken = [&](const auto& entry) {
    const Member& member = entry.second;
    return !member.is_gone && member.registration.role == role && member.rank == rank;
  };
  while (std::ranges::any_of(members_, is_taken)) ++rank;
  return rank;
}

std::string Scheduler::MissingText() const {
  std::string text;
  for (Role role : {Role::kServer, Role::kWorker}) {
    if (!text.empty()) text += ", ";
    text += std::to_string(CountOf(role, true)) + " of " + std::to_string(WantedOf(role)) + " " +
            RoleName(role) + "s";
  }
  return text;
}

void Scheduler::OnMessage(Micros now, const Envelope& envelope) {
  const bool is_open = std::holds_alternative<Register>(envelope.message) ||
                       std::holds_alternative<StatusRequest>(envelope.message);
  if (is_open) {
    const Incarnation wanted = envelope.receiver.incarnation;
    if (wanted != Incarnation(0) && wanted != options_.self.incarnation) return;
  } else {
    if (envelope.receiver != options_.self || envelope.job != options_.job) return;
    if (envelope.generation != view_.generation) return;
    Member* member = FindMember(envelope.sender.incarnation);
    if (member == nullptr || member->is_gone) return;
    member->heard_at = now;
  }
  std::visit([&](const auto& message) { OnMessageOf(now, envelope.sender, message); },
             envelope.message);
}

// ---- membership --------------------------------------------------------------------------------

void Scheduler::OnMessageOf(Micros now, const PeerId& from, const Register& registration) {
  Member* known = FindMember(from.incarnation);
  if (known == nullptr) {
    const Role role = registration.role;
    if (role != Role::kServer && role != Role::kWorker) return;
    if ((role == Role::kServer) != !registration.lane_endpoints.empty() ||
        registration.lane_endpoints.size() > kLanesMax) {
      return Send(from, Refused{"a server registers 1 to " + std::to_string(kLanesMax) +
                                " lanes, a worker none"});
    }
    if (next_node_ >= kNodesMax) {  // of all lives, dead ones included
      return Send(from, Refused{"the run has seen " + std::to_string(kNodesMax - 1) +
                                " processes, which is as many as it can name; start it again"});
    }
    if (phase_ != Phase::kGathering || CountOf(role, false) >= WantedOf(role)) {
      return Send(from,
                  Refused{"the job wants " + std::to_string(WantedOf(role)) + " " + RoleName(role) +
                          "s and has them; raise run." + RoleName(role) + "s and start it again"});
    }
    const NodeId node(next_node_++);
    Member member{.peer = {node, from.incarnation, 0},
                  .registration = registration,
                  .rank = FreeRank(role),
                  .heard_at = now};
    known = &members_.emplace(node, std::move(member)).first->second;
    observer_.OnEvent(
        now, {"registered", NameOf(*known),
              "process " + std::to_string(registration.process_id) + " on " + registration.host});
  }
  if (known->is_gone) return Send(from, Refused{"this process was given up as dead"});
  known->heard_at = now;
  PeerId welcomed = known->peer;
  welcomed.lane = from.lane;
  Send(welcomed, Welcome{.node = known->peer.node,
                         .rank = known->rank,
                         .job_toml = options_.job_toml,
                         .data = plan_.data});
}

void Scheduler::OnMessageOf(Micros now, const PeerId& from, const Ready& ready) {
  Member& member = *FindMember(from.incarnation);
  if (member.is_ready) return;
  const bool is_worker = member.registration.role == Role::kWorker;
  if (is_worker && ready.data_fingerprint != plan_.data.fingerprint) {
    const std::string reason = NameOf(member) + " on " + member.registration.host +
                               " reads other data than the scheduler (" + plan_.job.dataset +
                               ": fingerprints differ); give every machine the same files";
    Send(from, Refused{reason});
    return End(now, StopReason::kFailed, reason);  // P38
  }
  member.is_ready = true;
  member.ready = ready;
  observer_.OnEvent(now, {"ready", NameOf(member), ready.kind});
  StartWhenComplete(now);
}

void Scheduler::OnMessageOf(Micros, const PeerId& from, const Heartbeat& heartbeat) {
  Member& member = *FindMember(from.incarnation);
  member.heartbeat = heartbeat;
  Send(from, HeartbeatAck{});
}

void Scheduler::StartWhenComplete(Micros now) {
  if (phase_ != Phase::kGathering) return;
  if (CountOf(Role::kServer, true) < plan_.job.servers) return;
  if (CountOf(Role::kWorker, true) < plan_.job.workers) return;
  CompareKinds(now);
  phase_ = Phase::kTraining;
  training_since_ = now;
  MakeView(now);
  observer_.OnEvent(now,
                    {"training", "",
                     "everybody is here; " + std::to_string(plan_.steps.step_count()) + " steps"});
}

// P40: kinds are compared by what they compute, not by what they say.
void Scheduler::CompareKinds(Micros now) {
  const std::vector<Member*> workers = Living(Role::kWorker);
  for (const Member* worker : workers) {
    const Ready& first = workers.front()->ready;
    if (worker->ready.probe_hash == first.probe_hash) continue;
    observer_.OnEvent(
        now, {"mixed-kinds", NameOf(*worker),
              NameOf(*worker) + " (" + worker->ready.kind + ") computes other bits than " +
                  NameOf(*workers.front()) + " (" + first.kind +
                  "): every gradient still counts exactly once, but the weights will depend on who "
                  "computes what",
              /*is_notable=*/true});
  }
}

// The next view: shards stay where they are, micro-batches go to the living workers.
void Scheduler::MakeView(Micros now) {
  ++view_.id.number;
  view_.nodes.clear();
  std::vector<PeerId> lanes;
  std::vector<NodeId> workers;
  for (const auto& [node, member] : members_) {
    if (member.is_gone) continue;
    const Register& registration = member.registration;
    view_.nodes.push_back({node, member.peer.incarnation, registration.role, member.rank,
                           registration.host, registration.lane_endpoints});
    if (registration.role == Role::kWorker) workers.push_back(node);
    if (registration.role == Role::kServer)
      std::ranges::copy(PeersOf(member), std::back_inserter(lanes));
  }
  if (view_.shards.empty()) view_.shards = PlaceShards(plan_.shards, lanes);
  view_.owners = AssignMicroBatches(plan_.job.micro_batches, workers, Step(0));
  repeat_at_ = now;
  observer_.OnEvent(
      now, {"view", "",
            "view " + std::to_string(view_.id.number) + ": " + std::to_string(workers.size()) +
                " workers, " + std::to_string(lanes.size()) + " lanes, " +
                std::to_string(view_.shards.size()) + " shards"});
}

void Scheduler::OnMessageOf(Micros, const PeerId& from, const ViewAck& ack) {
  ViewId& acked = FindMember(from.incarnation)->acked_views[from.lane];
  acked = std::max(acked, ack.id);
}

// P27: after a pause of our own, what the others said meanwhile may still be in the queue.
void Scheduler::JudgeLeases(Micros now) {
  const Micros lease = std::chrono::milliseconds(plan_.job.lease_ms);
  const bool was_away = ticked_at_ >= Micros(0) && now - ticked_at_ > lease / 2;
  ticked_at_ = now;
  for (auto& [node, member] : members_) {
    if (was_away) member.heard_at = now;
    if (!member.is_gone && now - member.heard_at > lease) OnDeath(now, member);
  }
  if (phase_ == Phase::kGathering) {  // its place is free again
    std::erase_if(members_, [](const auto& entry) { return entry.second.is_gone; });
  }
}

void Scheduler::OnDeath(Micros now, Member& member) {
  member.is_gone = true;
  const std::string text =
      NameOf(member) + " (process " + std::to_string(member.registration.process_id) + " on " +
      member.registration.host + ") has not been heard of for " + Seconds(now - member.heard_at) +
      ", last at step " + std::to_string(member.heartbeat.step.value());
  observer_.OnEvent(now, {"dead", NameOf(member), text, /*is_notable=*/true});
  if (phase_ != Phase::kTraining && phase_ != Phase::kCollecting) return;
  const bool can_reassign = options_.on_worker_death == OnWorkerDeath::kReassign &&
                            member.registration.role == Role::kWorker &&
                            !Living(Role::kWorker).empty();
  if (!can_reassign) return End(now, StopReason::kFailed, text);
  MakeView(now);
  if (!evaluation_) return;
  for (Slice& slice : evaluation_->slices) {
    if (slice.worker == member.peer.node && !slice.result) slice.worker = kUnknownNode;
  }
}

// ---- the clock ---------------------------------------------------------------------------------

void Scheduler::Tick(Micros now) {
  if (finished()) return;
  JudgeLeases(now);
  if (phase_ == Phase::kTraining) {
    StartDueEvaluation(now);
    HandOutSlices(now);
  }
  if (now >= repeat_at_) {
    repeat_at_ = now + kControlRetry;
    RepeatControl(now);
  }
  if (phase_ == Phase::kStopping) LeaveWhenAllHave(now);
}

void Scheduler::RepeatControl(Micros now) {
  if (phase_ == Phase::kCollecting) Collect(now);
  if (phase_ == Phase::kStopping) SendStop();
  if (phase_ != Phase::kTraining && phase_ != Phase::kCollecting) return;
  for (auto& [node, member] : members_) {
    if (member.is_gone) continue;
    for (const PeerId& peer : PeersOf(member)) {
      if (member.acked_views[peer.lane] < view_.id) Send(peer, ViewUpdate{view_});
      const bool is_server = member.registration.role == Role::kServer;
      if (is_server && member.released_pin[peer.lane] < evaluated_)
        Send(peer, ReleasePin{evaluated_});
    }
  }
  if (!evaluation_) return;
  for (const Slice& slice : evaluation_->slices) {
    if (slice.result || slice.worker == kUnknownNode) continue;
    Send(members_.at(slice.worker).peer,
         Evaluate{evaluation_->version, slice.index, slice.first_sample, slice.last_sample});
  }
}

Micros Scheduler::NextDeadline() const {
  if (finished()) return kNever;
  const Micros lease = std::chrono::milliseconds(plan_.job.lease_ms);
  // Looking often enough that only a pause of our own is long against a lease (P27).
  Micros deadline = std::min(repeat_at_, ticked_at_ + lease / 4);
  for (const auto& [node, member] : members_) {
    if (!member.is_gone) deadline = std::min(deadline, member.heard_at + lease + Micros(1));
  }
  if (phase_ == Phase::kStopping) deadline = std::min(deadline, stop_at_ + options_.stop_grace);
  return deadline;
}

}  // namespace pando
