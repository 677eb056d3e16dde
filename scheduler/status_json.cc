// The answer to `pando status`: Scheduler::StatusJson.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "scheduler/run_status.h"
#include "scheduler/scheduler.h"

namespace pando {
namespace {

using Node = RunStatus::Node;

// The newest faults: a client that asks and does not read must not use much memory. The summary has
// them all.
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

// The entries that every role has.
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

// Replicas on each server, by node.
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

// The workers that the others wait for after this step: "worker 1, worker 2".
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

// A worker's share of the work, and its speed and waits.
void AddComputing(const RunFacts& run, const OwnerPlan& owners, const Member& member, Node* node) {
  const Heartbeat& heartbeat = member.heartbeat;
  const auto owned =
      std::ranges::count(run.view().owners, member.peer.node, &MicroBatchOwner::worker);
  node->micro_batches = static_cast<uint64_t>(owned);
  node->micro_batch_us = owners.micro_batch_us(member.peer.node);
  if (heartbeat.activity == Activity::kComputing && heartbeat.samples_wait_ms > 0)
    node->activity = "waiting for samples";
  node->data_stall_us = heartbeat.data_stall_us;
  node->exposed_sync_us = heartbeat.exposed_sync_us;
  if (heartbeat.gpu_memory_bytes == 0) return;
  node->gpu_memory_bytes = heartbeat.gpu_memory_bytes;
  node->gpu_percent = heartbeat.gpu_percent;
}

// Bytes that the member's process has sent and received so far.
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

// A member's connections, by what carries the payloads.
void AddLines(const RunFacts& run, const Member& member, Node* node) {
  const Heartbeat& heartbeat = member.heartbeat;
  if (run.IsGroup()) {  // the one to rank 0's lane carries no gradients
    const uint32_t peers = member.role() == Role::kWorker ? run.plan.job.workers - 1 : 0;
    if (run.phase.is_running() && peers > 0) node->lines = RunStatus::Lines{.group = peers};
  } else if (heartbeat.tcp_lines + heartbeat.ipc_lines + heartbeat.shm_lines > 0) {
    node->lines =
        RunStatus::Lines{heartbeat.tcp_lines, heartbeat.ipc_lines, heartbeat.shm_lines, {}};
  }
}

// The workers that the others have waited for, and what a micro-batch takes them: "worker 1 (25.0
// ms a micro-batch)".
std::string StragglerNames(const RunFacts& run, const OwnerPlan& owners) {
  std::string names;
  for (const Member* worker : run.members().Workers()) {
    const uint64_t us = owners.stragglers().micro_batch_us(worker->peer.node);
    if (us == 0 || !HasWorkFor(run.view(), worker->peer.node, run.progress.committed())) continue;
    names += fmt::format("{}{} ({:.1f} ms a micro-batch)", names.empty() ? "" : ", ",
                         worker->Name(), static_cast<double>(us) / 1000);
  }
  return names;
}

// What a member waits for.
void AddWaiting(const RunFacts& run, const OwnerPlan& owners, const Member& member, Node* node) {
  const Heartbeat& heartbeat = member.heartbeat;
  if (heartbeat.activity != Activity::kWaitingForParameters) return;
  const Members& members = run.members();
  const Member* owing = members.Find(heartbeat.waiting_for.node);
  if (owing != nullptr) node->waiting_for = owing->Name();
  if (run.IsGroup()) node->waiting_for = LateNames(members, heartbeat.step);
  if (const std::string names = StragglerNames(run, owners); !names.empty())
    node->waiting_for = names;
  node->waiting_ms = heartbeat.waiting_ms;
}

std::vector<Node> MakeNodes(Micros now, const RunFacts& run, const OwnerPlan& owners) {
  std::vector<Node> nodes;
  const auto replicas = CountReplicas(run.view());
  for (const auto& [id, member] : run.members().all()) {
    Node& node = nodes.emplace_back(MakeNode(member, run.membership.leases(), now));
    if (const auto it = replicas.find(id); it != replicas.end()) {
      node.primaries = it->second.primaries;
      node.backups = it->second.backups;
      node.syncing = it->second.syncing;
    }
    if (member.role() == Role::kServer) node.endpoints = member.registration.lane_endpoints;
    if (member.role() == Role::kWorker) AddComputing(run, owners, member, &node);
    AddLines(run, member, &node);
    AddTraffic(member.heartbeat, &node);
    AddWaiting(run, owners, member, &node);
  }
  return nodes;
}

// What the run has made: verified micro-batches, evaluations, snapshots.
void AddResults(const RunFacts& run, const VerificationState& verification,
                const std::vector<SnapshotManifest>& snapshots, RunStatus* status) {
  if (run.plan.job.verify_every != 0)
    status->verification = {verification.agreed_count, verification.unverified_count};
  const std::vector<EvaluationSummary>& evaluations = run.history.all();
  if (!evaluations.empty() && evaluations.back().sample_count != 0) {
    const EvaluationSummary& newest = evaluations.back();
    const EvaluatedValues values(run.plan.job);
    status->evaluation = {.version = newest.version,
                          .evaluated_on = run.plan.job.evaluated_on(),
                          .accuracy = values.Accuracy(newest),
                          .top5_accuracy = values.Top5Accuracy(newest),
                          .text = EvaluationText(run.plan.job, newest)};
  }
  for (const SnapshotManifest& manifest : snapshots)
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
  RunStatus status{.phase = EnumName(run_.phase.phase()),
                   .clock_us = static_cast<uint64_t>(now.count()),
                   .step = committed().value(),
                   .step_count = final_version().value(),
                   .term = run_.views.term(),
                   .view = view().id.number,
                   .generation = view().generation,
                   .model = run_.plan.job.model,
                   .dataset = run_.plan.job.dataset,
                   .nodes = MakeNodes(now, run_, owners_)};
  if (own_wait) {
    status.waiting_for = fmt::format("for {}: {}", own_wait->what, own_wait->why);
    status.stall = MakeStall(now, *own_wait, own_wait->Text(now));
  } else {
    const bool is_gathering = run_.phase.is_gathering();
    const std::string waiting = is_gathering ? MissingText() : WaitingText();
    if (is_gathering || !waiting.empty()) status.waiting_for = waiting;
    if (const std::optional<Stall>& stall = stalls_.stall())
      status.stall = MakeStall(now, *stall, stalls_.Text(now));
  }
  AddResults(run_, verification_.State(), snapshots_.ledger().complete(), &status);
  AddFaults(run_.faults, &status);
  return StatusText(status);
}

}  // namespace pando
