// The scheduler's membership: who registers, is ready, is silent, is dead.
#include <algorithm>
#include <string_view>
#include <utility>

#include "common/mutation.h"
#include "proto/message_limits.h"
#include "scheduler/scheduler.h"

namespace pando {
namespace {

// P28: with one replica a false suspicion costs a rollback.
constexpr int kLonelyServerLeases = 4;
constexpr Micros kAvoidTime = std::chrono::seconds(5);

std::string Seconds(Micros time) {
  const int64_t tenths = (time.count() + 50'000) / 100'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

constexpr size_t kHostBytesMax = 253;  // RFC 1035
// "tcp://", a host name, the port; an ipc path has 107 bytes at most.
constexpr size_t kEndpointBytesMax = 300;

// Whoever cannot be dialed ends those who try: "tcp://HOST:PORT", no wildcards, or "ipc://PATH".
bool IsDialable(std::string_view endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  constexpr std::string_view kIpc = "ipc://";
  if (endpoint.starts_with(kIpc)) return endpoint.size() > kIpc.size();
  const size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kTcp) || colon <= kTcp.size()) return false;
  const std::string_view host = endpoint.substr(kTcp.size(), colon - kTcp.size());
  const std::string_view port = endpoint.substr(colon + 1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_of_host = [&](char c) {
    const char lower = static_cast<char>(c | 0x20);
    return (lower >= 'a' && lower <= 'z') || is_digit(c) || c == '.' || c == '-' || c == '_';
  };
  uint32_t port_value = 0;
  for (char c : port.substr(0, 5)) port_value = 10 * port_value + static_cast<uint32_t>(c - '0');
  return std::ranges::all_of(host, is_of_host) && host != "0.0.0.0" && port.size() <= 5 &&
         std::ranges::all_of(port, is_digit) && port_value >= 1 && port_value <= UINT16_MAX;
}

std::pair<std::string, uint32_t> ProcessOf(const Register& registration) {
  return {registration.host, registration.process_id};
}

}  // namespace

// ---- joining -----------------------------------------------------------------------------------

uint32_t Scheduler::WantedOf(Role role) const {
  return role == Role::kServer ? plan_.job.servers : plan_.job.workers;
}

std::string Scheduler::MissingText() const {
  std::string text;
  for (Role role : {Role::kServer, Role::kWorker}) {
    if (!text.empty()) text += ", ";
    text += std::to_string(members_.CountReady(role)) + " of " + std::to_string(WantedOf(role)) +
            " " + RoleName(role) + "s";
  }
  return text;
}

std::string Scheduler::ReasonToRefuse(const Register& registration) const {
  if (phase_ >= Phase::kStopping) return "the run is over";
  const bool is_server = registration.role == Role::kServer;
  if (is_server != !registration.lane_endpoints.empty() ||
      registration.lane_endpoints.size() > kLanesMax)
    return "a server registers 1 to " + std::to_string(kLanesMax) + " lanes, a worker none";
  // The registration stays with us, in the journal and in every view.
  if (registration.host.size() > kHostBytesMax)
    return "a host name has " + std::to_string(registration.host.size()) + " bytes; at most " +
           std::to_string(kHostBytesMax) + " were expected";
  for (const std::string& endpoint : registration.lane_endpoints) {
    if (endpoint.size() > kEndpointBytesMax)
      return "a lane's endpoint has " + std::to_string(endpoint.size()) + " bytes; at most " +
             std::to_string(kEndpointBytesMax) + " were expected";
    if (!IsDialable(endpoint))
      return "a lane's endpoint is '" + endpoint + "'; expected tcp://HOST:PORT or ipc://PATH";
  }
  if (IsGroup()) {
    const std::string reason = ReasonNotInGroup(registration);
    if (!reason.empty()) return reason;
  }
  if (next_node_ >= kNodesMax) {  // of all lives, dead ones included
    return "the run has seen " + std::to_string(kNodesMax - 1) +
           " processes, which is as many as it can name; start it again";
  }
  return "";
}

// A group is whole from its beginning to its end, and its one server is the process of worker 0.
std::string Scheduler::ReasonNotInGroup(const Register& registration) const {
  const auto is_of_process = [&](const auto& entry) {
    return entry.second.role() == Role::kWorker &&
           ProcessOf(entry.second.registration) == ProcessOf(registration);
  };
  const bool has_worker = std::ranges::any_of(members_.all(), is_of_process);
  if (registration.role == Role::kServer && has_worker && !is_running()) return "";
  const std::string what = "the run's strategy is allreduce: ";
  if (registration.role == Role::kServer)
    return what + "it has no servers; run it with --strategy ps to have some";
  const auto is_worker = [](const auto& entry) { return entry.second.role() == Role::kWorker; };
  const auto count = std::ranges::count_if(members_.all(), is_worker);
  if (is_running() || count >= plan_.job.workers)
    return what + "its " + std::to_string(plan_.job.workers) +
           " workers are the group, and nobody can join it; run it with --strategy ps for that";
  if (registration.wanted_rank != kAnyRank && registration.wanted_rank >= plan_.job.workers)
    return what + "its workers have ranks 0 to " + std::to_string(plan_.job.workers - 1);
  return "";
}

void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const Register& registration) {
  const PeerId& from = envelope.sender;
  if (registration.role != Role::kServer && registration.role != Role::kWorker) return;
  if (given_up_.contains(from.incarnation)) return RefuseGivenUp(from);
  if (members_.Find(from.incarnation) == nullptr) {
    const std::string reason = ReasonToRefuse(registration);
    const bool is_over = phase_ >= Phase::kStopping;
    if (!reason.empty())
      return Send(from,
                  Refused{reason, is_over ? RefusalKind::kRunIsOver : RefusalKind::kNotThisOne});
  }
  HearAnybody(now);
  Member& member = Welcomed(now, from, registration);
  member.heard_at = now;
  PeerId welcomed = member.peer;
  welcomed.lane = from.lane;
  Send(welcomed, Welcome{.node = member.peer.node,
                         .rank = member.rank,
                         .job_toml = options_.job_toml,
                         .data = plan_.data,
                         .snapshot_dir = options_.snapshot_dir});
}

// Finds the member, or makes it one. A new incarnation of a process is its old one's death (P19).
Member& Scheduler::Welcomed(Micros now, const PeerId& from, const Register& registration) {
  if (Member* known = members_.Find(from.incarnation)) return *known;
  Member* old = members_.FindProcess(registration.role, registration.host, registration.process_id);
  if (old != nullptr && Mutated(Mutation::kNoIncarnations)) {
    View next = view_;
    const PeerId before = old->peer;
    old->peer.incarnation = from.incarnation;
    const auto rename = [&](PeerId& peer) {
      if (peer.node == before.node) peer.incarnation = from.incarnation;
    };
    for (ShardPlacement& placement : next.shards) {
      rename(placement.primary);
      std::ranges::for_each(placement.in_sync_backups, rename);
      for (SyncingBackup& syncing : placement.syncing_backups) rename(syncing.peer);
    }
    for (NodeInfo& node : next.nodes) {
      if (node.node == before.node) node.incarnation = from.incarnation;
    }
    next.id = NextViewId();
    if (is_running()) Publish(now, std::move(next));
    return *old;
  }
  if (old != nullptr) OnDeath(now, old->peer.node, "restart", "socket");
  Member member;
  member.peer = {NodeId(next_node_++), from.incarnation, 0};
  member.registration = registration;
  member.rank = members_.FreeRank(registration.role, registration.wanted_rank);
  if (IsOftenSilent(now, registration)) member.avoided_until = now + kAvoidTime;
  Member& added = members_.Add(std::move(member));
  has_changed_ = true;
  Tell(now, "registered", added.Name(), added.Where());
  return added;
}

void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const Ready& ready) {
  Member& member = *members_.Find(envelope.sender.incarnation);
  if (member.is_ready || phase_ >= Phase::kStopping) return;
  const bool is_worker = member.role() == Role::kWorker;
  if (is_worker && ready.data_fingerprint != plan_.data.fingerprint) {  // P38
    const std::string reason = member.Name() + " on " + member.registration.host +
                               " reads other data than the scheduler (" + plan_.job.dataset +
                               ": fingerprints differ); give every machine the same files";
    Send(envelope.sender, Refused{reason});
    if (phase_ == Phase::kGathering) return End(now, StopReason::kFailed, reason);
    Tell(now, "refused", member.Name(), reason, /*is_notable=*/true);
    return Forget(member.peer.node);
  }
  member.is_ready = true;
  member.ready = ready;
  has_changed_ = true;
  Tell(now, "ready", member.Name(), ready.kind);
  CompareKinds(now, member);
  StartWhenComplete(now);
  if (is_running()) RequestView(now + kViewGatherTime);
}

void Scheduler::StartWhenComplete(Micros now) {
  if (phase_ != Phase::kGathering) return;
  if (members_.CountReady(Role::kServer) < plan_.job.servers) return;
  if (members_.CountReady(Role::kWorker) < plan_.job.workers) return;
  phase_ = Phase::kTraining;
  training_since_ = now;
  StartGeneration(now);
  const std::string steps = std::to_string(plan_.steps.step_count());
  Tell(now, "training", "", "everybody is here; " + steps + " steps");
  if (view_.generation == 0) return;
  const std::string version = std::to_string(view_.restore.version.value());
  Tell(now, "resumed", "",
       view_.restore == SnapshotRef{}
           ? "the run has no snapshot and begins again at step 0"
           : "the run goes on from the snapshot of version " + version + " of " + steps,
       /*is_notable=*/true);
}

// P40: kinds are compared by what they compute, not by what they say.
void Scheduler::CompareKinds(Micros now, const Member& newcomer) {
  if (newcomer.role() != Role::kWorker) return;
  for (const Member* other : members_.Workers()) {
    if (other == &newcomer || other->ready.probe_hash == newcomer.ready.probe_hash) continue;
    return Tell(now, "mixed-kinds", newcomer.Name(),
                newcomer.Name() + " (" + newcomer.ready.kind + ") computes other bits than " +
                    other->Name() + " (" + other->ready.kind +
                    "): every gradient still counts exactly once, but the weights will depend on "
                    "who computes what",
                /*is_notable=*/true);
  }
}

void Scheduler::OnMessageOf(Micros, const Envelope& envelope, const Heartbeat& heartbeat) {
  Member& member = *members_.Find(envelope.sender.incarnation);
  CountWaits(member, heartbeat);
  member.heartbeat = heartbeat;
  member.speed.Observe(heartbeat.micro_batch_us);
  Send(envelope.sender, HeartbeatAck{});
}

// What a worker has waited before it was heard of was another scheduler's to count.
void Scheduler::CountWaits(const Member& member, const Heartbeat& heartbeat) {
  if (options_.state && member.heartbeat.data_stall_us + member.heartbeat.exposed_sync_us == 0)
    return;
  const auto since = [](uint64_t now, uint64_t before) { return now > before ? now - before : 0; };
  data_stall_us_ += since(heartbeat.data_stall_us, member.heartbeat.data_stall_us);
  const size_t worker_count = std::max<size_t>(1, members_.Workers().size());
  exposed_sync_us_ +=
      since(heartbeat.exposed_sync_us, member.heartbeat.exposed_sync_us) / worker_count;
}

Scheduler::GpuUse Scheduler::gpu_use() const {
  GpuUse use;
  uint32_t gpu_count = 0;
  for (const auto& [node, member] : members_.all()) {
    const Heartbeat& heartbeat = member.heartbeat;
    if (heartbeat.gpu_memory_bytes == 0) continue;
    use.memory_bytes = std::max(use.memory_bytes, heartbeat.gpu_memory_bytes);
    use.percent += heartbeat.gpu_percent;
    ++gpu_count;
  }
  if (gpu_count > 0) use.percent /= gpu_count;
  return use;
}

// ---- death -------------------------------------------------------------------------------------

Micros Scheduler::LeaseOf(const Member& member) const {
  const Micros lease = std::chrono::milliseconds(plan_.job.lease_ms);
  const bool is_lonely = member.role() == Role::kServer && is_running() &&
                         (plan_.job.replicas == 1 || members_.CountReady(Role::kServer) == 1);
  return is_lonely ? lease * kLonelyServerLeases : lease;
}

// P27: after a pause of our own, what the others said meanwhile may still be in the queue. And
// where nobody at all is heard, it may be our own cable that is out: nobody is judged until
// somebody is.
void Scheduler::JudgeLeases(Micros now) {
  const Micros lease = std::chrono::milliseconds(plan_.job.lease_ms);
  const bool was_away = now - ticked_at_ > lease / 2;
  const bool is_deaf = now - heard_at_ > lease / 2;
  ticked_at_ = now;
  if (was_away || is_deaf) renewed_at_ = now;
  if (is_deaf) TellDeafness(now);
  std::vector<std::pair<NodeId, const char*>> dead;
  for (auto& [node, member] : members_.all()) {
    if ((was_away || is_deaf) && !Mutated(Mutation::kLeasesBeforeHeartbeats)) {
      member.heard_at = now;
      if (member.suspected_at) member.suspected_at = now;
    }
    const bool is_suspected = member.suspected_at && now >= *member.suspected_at + kSuspectGrace;
    if (now - member.heard_at > LeaseOf(member)) {
      dead.emplace_back(node, "lease");
    } else if (is_suspected) {
      dead.emplace_back(node, "socket");
    }
  }
  for (const auto& [node, detected_by] : dead) OnDeath(now, node, "silence", detected_by);
}

void Scheduler::TellDeafness(Micros now) {
  const Micros silence = now - heard_at_;
  const bool is_long = silence > std::chrono::milliseconds(plan_.job.lease_ms);
  if (!is_long || members_.all().empty() || phase_ >= Phase::kStopping) return;
  if (std::exchange(has_told_deafness_, true)) return;
  Tell(now, "hears-nobody", "",
       "nobody has been heard for " + Seconds(silence) +
           ": nobody is given up as dead until somebody is heard again",
       /*is_notable=*/true);
}

void Scheduler::OnDisconnect(Micros now, Incarnation incarnation) {
  Member* member = members_.Find(incarnation);
  if (member != nullptr && !member->suspected_at) member->suspected_at = now;
}

void Scheduler::OnDeath(Micros now, NodeId node, const std::string& action,
                        const std::string& detected_by) {
  const Member& member = *members_.Find(node);
  if (phase_ < Phase::kStopping && !member.is_leaving) {
    const Register& registration = member.registration;
    faults_.OnDetected(now, {member.Name(), registration.host, registration.process_id}, action,
                       detected_by, StepReached());
    Tell(now, "dead", member.Name(),
         member.Name() + " (" + member.Where() + ") is gone (" + action + ", noticed by " +
             detected_by + "): not heard of for " + Seconds(now - member.heard_at) +
             ", last at step " + std::to_string(member.heartbeat.step.value()),
         /*is_notable=*/true);
    if (IsGroup() && is_running()) EndGroup(now, member, action);
  }
  Forget(node);
  RequestView(now);
}

// Who is left cannot sum without the one who is gone. What the scheduler calls the server is worker
// 0's process.
void Scheduler::EndGroup(Micros now, const Member& lost, const std::string& action) {
  const Register& of = lost.registration;
  const Member* worker = members_.FindProcess(Role::kWorker, of.host, of.process_id);
  const Member& named = worker != nullptr ? *worker : lost;
  has_lost_member_ = true;
  End(now, StopReason::kFailed,
      named.Name() + " (" + named.Where() + ") is gone (" + action +
          "), and allreduce cannot go on without it; --group-restarts N starts the group again "
          "from its last snapshot, --strategy ps goes on without it");
}

void Scheduler::Forget(NodeId node) {
  Member& member = *members_.Find(node);
  given_up_.insert(member.peer.incarnation);
  unheard_.erase(member.peer.incarnation);
  silences_.erase(node);
  for (auto& [incarnation, command] : commands_) {
    if (command.drained == member.peer.incarnation)
      Conclude(command, CommandOutcome::kDone, member.Name() + " has left");
  }
  ReleaseSlices(node);
  members_.Remove(node);
  has_changed_ = true;
}

// A supervisor tells of a fault that it made, or of a process that ended: the fastest of notices.
void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const FaultNote& note) {
  Send(envelope.sender, FaultNoteAck{note.number});
  if (phase_ >= Phase::kStopping) return;
  const Member* member = members_.FindProcess(note.role, note.host, note.process_id);
  if (member != nullptr && member->is_leaving) return;
  const bool is_scheduler = note.role == Role::kScheduler;
  const std::string target = is_scheduler ? "scheduler" : member ? member->Name() : note.target;
  faults_.OnNote(now, {target, note.host, note.process_id}, note, StepReached());
  if (note.exited_us == 0) return;
  if (member != nullptr) return OnDeath(now, member->peer.node, note.action, "exit");
  if (!is_scheduler) RequestView(now);  // it may answer for a process that never joined
}

// P23. Of a peer that we do not hear either its own lease decides, which is long where a death is
// dear (P28); after a pause of our own we cannot tell yet (P27).
void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const PeerSilent& silent) {
  const Member& reporter = *members_.Find(envelope.sender.incarnation);
  Member* peer = members_.Find(silent.peer.incarnation);
  if (peer == nullptr || !is_running() || rollback_) return;
  const std::string text = reporter.Name() + " has not heard " + peer->Name() + " for " +
                           std::to_string(silent.silent_ms) + " ms";
  const bool is_worker_silent = peer->role() == Role::kWorker;
  const bool is_workers_word = reporter.role() == Role::kWorker;
  const bool is_between_servers = !is_worker_silent && !is_workers_word;
  const bool is_needed =
      is_between_servers && HasPartials(plan_.job.optimizer) && LeadsShards(*peer);
  if (is_between_servers && !is_needed) return OnSilentBackup(now, reporter, *peer, text);
  const Micros lease = std::chrono::milliseconds(plan_.job.lease_ms);
  const bool is_unheard =
      now - peer->heard_at > lease / 2 || (renewed_at_ && now - *renewed_at_ < lease);
  if (is_unheard || (!is_needed && is_worker_silent == is_workers_word)) return;
  Tell(now, "silent", peer->Name(), text, /*is_notable=*/true);
  if (is_worker_silent) return OnSilentPair(now, *peer, reporter);
  OnSilentPair(now, reporter, *peer);
}

bool Scheduler::LeadsShards(const Member& server) const {
  return std::ranges::any_of(view_.shards, [&](const ShardPlacement& placement) {
    return placement.primary.node == server.peer.node;
  });
}

// Between replicas the backup goes, unless the primary needs its values (P14 to P16).
void Scheduler::OnSilentBackup(Micros now, const Member& primary, Member& backup,
                               const std::string& text) {
  bool is_backup = false;
  for (const ShardPlacement& placement : view_.shards) {
    if (placement.primary.node != primary.peer.node) continue;
    const auto is_it = [&](const PeerId& peer) { return peer.node == backup.peer.node; };
    is_backup |= std::ranges::any_of(placement.in_sync_backups, is_it);
    is_backup |= std::ranges::any_of(placement.syncing_backups,
                                     [&](const auto& s) { return is_it(s.peer); });
  }
  if (!is_backup || !silent_backups_.insert({primary.peer.node, backup.peer.node}).second) return;
  backup.avoided_until = now + kAvoidTime;
  Tell(now, "silent", backup.Name(), text + ": it is its backup no longer", /*is_notable=*/true);
  RequestView(now);
}

// Between a worker and a server it is the server if others do not hear it either, or there are no
// others and it is not the first time; else the worker, whose process joins again over new
// connections. Of two servers that need each other's values the reporter stands for the worker. Two
// leases without an answer are reported, so it counts as noticed by a lease.
void Scheduler::OnSilentPair(Micros now, const Member& reporter, const Member& server) {
  auto& silences = silences_[server.peer.node];
  std::erase_if(silences,
                [&](const auto& entry) { return now - entry.second.at > SilenceMemory(); });
  Silence& silence = silences[ProcessOf(reporter.registration)];
  silence = {now, silence.count + 1};
  const Role role = reporter.role();
  const uint32_t reporters = members_.CountReady(role) - (role == Role::kServer ? 1 : 0);
  const bool is_server = reporters <= 1 ? silence.count >= 2 || silences.size() >= 2
                                        : silences.size() >= 2 && 2 * silences.size() >= reporters;
  OnDeath(now, is_server ? server.peer.node : reporter.peer.node, "silence", "lease");
}

Micros Scheduler::SilenceMemory() const {
  return kAvoidTime + 4 * std::chrono::milliseconds(plan_.job.lease_ms);
}

// Whether it has joined again and again, and did not hear some server each time.
bool Scheduler::IsOftenSilent(Micros now, const Register& registration) const {
  return std::ranges::any_of(silences_, [&](const auto& of_server) {
    const auto it = of_server.second.find(ProcessOf(registration));
    return it != of_server.second.end() && it->second.count >= 2 &&
           now - it->second.at <= SilenceMemory();
  });
}

}  // namespace pando
