// Scheduler::StatusJson makes the answer to `pando status`.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "scheduler/run_status.h"
#include "scheduler/scheduler.h"

namespace pando {
namespace {

using Node = RunStatus::Node;

// Only the newest faults are shown: answers that a client requests and does not read must not use
// much memory. The summary has all faults.
constexpr size_t kFaultsShownMax = 32;

uint64_t ToMs(Micros time) {
  return static_cast<uint64_t>(std::max<int64_t>(0, time.count() / 1000));
}

const char* HealthText(const Member& member, bool is_suspected) {
  if (member.is_leaving) return "leaving";
  if (is_suspected) return "suspect";
  if (member.is_draining) return "draining";
  return member.is_ready ? "ready" : "starting";
}

// Fills the entries that every role has.
Node MakeNode(const Member& member, const Leases& leases, Micros now) {
  const NodeId node = member.peer.node;
  return {.name = member.Name(),
          .role = EnumName(member.role()),
          .rank = member.rank,
          .host = member.registration.host,
          .pid = member.registration.process_id,
          .health = HealthText(member, leases.IsSuspected(node)),
          .draining = member.is_draining,
          .activity = EnumName(member.heartbeat.activity),
          .step = member.heartbeat.step.value(),
          .silent_ms = ToMs(leases.SilenceSince(now, node))};
}

// Counts the replicas on each server.
struct ReplicaCounts {
  uint32_t primaries = 0, backups = 0, syncing = 0;
};
std::map<NodeId, ReplicaCounts> CountReplicas(const View& view) {
  std::map<NodeId, ReplicaCounts> counts;
  for (const ShardPlacement& placement : view.shards) {
    ++counts[placement.primary.node].primaries;
    for (const PeerId& backup : placement.in_sync_backups) ++counts[backup.node].backups;
    for (const SyncingBackup& syncing : placement.syncing_backups)
      ++counts[syncing.peer.node].syncing;
  }
  return counts;
}

// Names the workers that the others wait for after this step: "worker 1, worker 2".
std::string LateNames(const Members& members, Step step) {
  std::string names;
  for (const Member* worker : members.Workers()) {
    const Heartbeat& heartbeat = worker->heartbeat;
    const bool waits_too = heartbeat.activity == Activity::kWaitingForParameters;
    if (heartbeat.step > step || (heartbeat.step == step && waits_too)) continue;
    names += (names.empty() ? "" : ", ") + worker->Name();
  }
  return names.empty() ? "the sum" : names;
}

// Adds a worker's share of the work, its speed and its waits.
void AddComputing(const SchedulerParts& parts, const Member& member, Node* node) {
  const Heartbeat& heartbeat = member.heartbeat;
  const auto owned =
      std::ranges::count(parts.views.view().owners, member.peer.node, &MicroBatchOwner::worker);
  node->micro_batches = static_cast<uint64_t>(owned);
  node->micro_batch_us = parts.owners.micro_batch_us(member.peer.node);
  if (heartbeat.activity == Activity::kComputing && heartbeat.samples_wait_ms > 0)
    node->activity = "waiting for samples";
  node->data_stall_us = heartbeat.data_stall_us;
  node->exposed_sync_us = heartbeat.exposed_sync_us;
  if (heartbeat.gpu_memory_bytes == 0) return;
  node->gpu_memory_bytes = heartbeat.gpu_memory_bytes;
  node->gpu_percent = heartbeat.gpu_percent;
}

// Adds the bytes that the member's process has sent and received so far.
void AddTraffic(const Heartbeat& heartbeat, Node* node) {
  RunStatus::Traffic traffic;
  const auto add = [&](const LineTraffic& line, auto* bytes) {
    if (line.sent + line.received == 0) return;
    *bytes = {line.sent, line.received};
    node->traffic = traffic;
  };
  add(heartbeat.tcp_traffic, &traffic.tcp);
  add(heartbeat.ipc_traffic, &traffic.ipc);
  add(heartbeat.shm_traffic, &traffic.shm);
}

// Adds a member's connections, by the transport that carries the payloads.
void AddLines(const SchedulerParts& parts, const Member& member, Node* node) {
  const Heartbeat& heartbeat = member.heartbeat;
  if (IsGroup(parts.plan)) {  // the connection to rank 0's lane carries no gradients
    const uint32_t peers = member.role() == Role::kWorker ? parts.plan.job.workers - 1 : 0;
    if (parts.phase.is_running() && peers > 0) node->lines = RunStatus::Lines{.group = peers};
  } else if (heartbeat.tcp_lines + heartbeat.ipc_lines + heartbeat.shm_lines > 0) {
    node->lines =
        RunStatus::Lines{heartbeat.tcp_lines, heartbeat.ipc_lines, heartbeat.shm_lines, {}};
  }
}

// Names the workers that the others have waited for, with their time for a micro-batch: "worker 1
// (25.0 ms a micro-batch)".
std::string StragglerNames(const SchedulerParts& parts) {
  std::string names;
  for (const Member* worker : parts.members.Workers()) {
    const uint64_t us = parts.owners.stragglers().micro_batch_us(worker->peer.node);
    if (us == 0 || !HasWorkFor(parts.views.view(), worker->peer.node, parts.progress.committed()))
      continue;
    names += fmt::format("{}{} ({:.1f} ms a micro-batch)", names.empty() ? "" : ", ",
                         worker->Name(), static_cast<double>(us) / 1000);
  }
  return names;
}

// Adds the process that a member waits for.
void AddWaiting(const SchedulerParts& parts, const Member& member, Node* node) {
  const Heartbeat& heartbeat = member.heartbeat;
  if (heartbeat.activity != Activity::kWaitingForParameters) return;
  const Members& members = parts.members;
  const Member* owing = members.Find(heartbeat.waiting_for.node);
  if (owing != nullptr) node->waiting_for = owing->Name();
  if (IsGroup(parts.plan)) node->waiting_for = LateNames(members, heartbeat.step);
  if (const std::string names = StragglerNames(parts); !names.empty()) node->waiting_for = names;
  node->waiting_ms = heartbeat.waiting_ms;
}

std::vector<Node> MakeNodes(Micros now, const SchedulerParts& parts) {
  std::vector<Node> nodes;
  const auto replicas = CountReplicas(parts.views.view());
  for (const auto& [id, member] : parts.members.all()) {
    Node& node = nodes.emplace_back(MakeNode(member, parts.membership.leases(), now));
    if (const auto it = replicas.find(id); it != replicas.end()) {
      node.primaries = it->second.primaries;
      node.backups = it->second.backups;
      node.syncing = it->second.syncing;
    }
    if (member.role() == Role::kServer) node.endpoints = member.registration.lane_endpoints;
    if (member.role() == Role::kWorker) AddComputing(parts, member, &node);
    AddLines(parts, member, &node);
    AddTraffic(member.heartbeat, &node);
    AddWaiting(parts, member, &node);
  }
  return nodes;
}

// Adds the run's results: verified micro-batches, evaluations, snapshots.
void AddResults(const SchedulerParts& parts, RunStatus* status) {
  const Job& job = parts.plan.job;
  const VerificationState verification = parts.verification.State();
  if (job.verify_every != 0)
    status->verification = {verification.agreed_count, verification.unverified_count};
  const std::vector<EvaluationSummary>& evaluations = parts.history.all();
  if (!evaluations.empty() && evaluations.back().sample_count != 0) {
    const EvaluationSummary& newest = evaluations.back();
    const EvaluatedValues values(job);
    status->evaluation = {.version = newest.version,
                          .evaluated_on = job.evaluated_on(),
                          .accuracy = values.Accuracy(newest),
                          .top5_accuracy = values.Top5Accuracy(newest),
                          .text = EvaluationText(job, newest)};
  }
  for (const SnapshotManifest& manifest : parts.snapshots.ledger().complete())
    status->snapshots.push_back({manifest.snapshot.generation, manifest.snapshot.version});
}

void AddFaults(const FaultLedger& ledger, RunStatus* status) {
  status->faults = ledger.records();
  if (status->faults.size() > kFaultsShownMax)
    status->faults.erase(status->faults.begin(), status->faults.end() - kFaultsShownMax);
  status->fault_count = ledger.count();
}

RunStatus::Stall MakeStall(Micros now, const Stall& stall, std::string text) {
  return {.waiter = stall.waiter,
          .waited_for = stall.waited_for,
          .what = stall.what,
          .since_ms = ToMs(now - stall.since),
          .text = std::move(text),
          .log_line = stall.log_line};
}

}  // namespace

std::string Scheduler::StatusJson(Micros now, const std::optional<Stall>& own_wait) const {
  RunStatus status{.phase = EnumName(parts_.phase.phase()),
                   .clock_us = static_cast<uint64_t>(now.count()),
                   .step = committed().value(),
                   .step_count = final_version().value(),
                   .term = parts_.views.term(),
                   .view = view().id.number,
                   .generation = view().generation,
                   .model = parts_.plan.job.model,
                   .dataset = parts_.plan.job.dataset,
                   .nodes = MakeNodes(now, parts_)};
  if (own_wait) {
    status.waiting_for = fmt::format("for {}: {}", own_wait->what, own_wait->why);
    status.stall = MakeStall(now, *own_wait, own_wait->Text(now));
  } else {
    const bool is_gathering = parts_.phase.is_gathering();
    const std::string waiting =
        is_gathering ? parts_.membership.MissingText() : parts_.publisher.WaitingText();
    if (is_gathering || !waiting.empty()) status.waiting_for = waiting;
    if (const std::optional<Stall>& stall = parts_.stalls.stall())
      status.stall = MakeStall(now, *stall, parts_.stalls.Text(now));
  }
  if (parts_.options.schedulers != nullptr) status.schedulers = *parts_.options.schedulers;
  AddResults(parts_, &status);
  AddFaults(parts_.faults, &status);
  return StatusText(status);
}

}  // namespace pando
