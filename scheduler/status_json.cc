#include "scheduler/status_json.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

namespace pando {
namespace {

// The newest faults: a client that asks and does not read must not use much memory. The summary has
// them all.
constexpr size_t kFaultsShownMax = 32;

// Host names come from the wire: bytes that are not UTF-8 are replaced.
std::string DumpText(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

const char* HealthText(const Member& member, bool is_suspected) {
  if (member.is_leaving) return "leaving";
  if (is_suspected) return "suspect";
  if (member.is_draining) return "draining";
  return member.is_ready ? "ready" : "starting";
}

nlohmann::ordered_json TimeJson(double ms) {
  return ms < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(ms);
}

// As in the summary.
nlohmann::ordered_json FaultJson(const FaultRecord& fault) {
  nlohmann::ordered_json entry;
  entry["action"] = fault.action;
  entry["target"] = fault.target;
  entry["step"] = fault.step.value();
  entry["injected_ms"] = TimeJson(fault.injected_ms);
  entry["detected_ms"] = TimeJson(fault.detected_ms);
  entry["detected_by"] = nullptr;
  if (!fault.detected_by.empty()) entry["detected_by"] = fault.detected_by;
  entry["recovered_ms"] = TimeJson(fault.recovered_ms);
  return entry;
}

// The entries that every role has.
nlohmann::ordered_json MemberJson(const Member& member, const Leases& leases, Micros now) {
  const NodeId node = member.peer.node;
  nlohmann::ordered_json entry;
  entry["name"] = member.Name();
  entry["role"] = EnumName(member.role());
  entry["rank"] = member.rank;
  entry["host"] = member.registration.host;
  entry["pid"] = member.registration.process_id;
  entry["health"] = HealthText(member, leases.IsSuspected(node));
  entry["draining"] = member.is_draining;
  entry["activity"] = EnumName(member.heartbeat.activity);
  entry["step"] = member.heartbeat.step.value();
  entry["silent_ms"] = leases.SilenceSince(now, node).count() / 1000;
  return entry;
}

// Replicas on each server, by node: primaries, backups, syncing.
std::map<NodeId, std::array<uint32_t, 3>> ReplicaCounts(const View& view) {
  std::map<NodeId, std::array<uint32_t, 3>> counts;
  for (const ShardPlacement& placement : view.shards) {
    ++counts[placement.primary.node][0];
    for (const PeerId& backup : placement.in_sync_backups) ++counts[backup.node][1];
    for (const SyncingBackup& syncing : placement.syncing_backups) ++counts[syncing.peer.node][2];
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

bool IsGroup(const StatusParts& parts) { return parts.plan.job.strategy == Strategy::kAllreduce; }

// A worker's share of the work, and its speed and waits.
void AddComputing(const StatusParts& parts, const Member& member, nlohmann::ordered_json* entry) {
  const Heartbeat& heartbeat = member.heartbeat;
  (*entry)["micro_batches"] =
      std::ranges::count(parts.views.view().owners, member.peer.node, &MicroBatchOwner::worker);
  (*entry)["micro_batch_us"] = parts.owners.micro_batch_us(member.peer.node);
  (*entry)["data_stall_us"] = heartbeat.data_stall_us;
  (*entry)["exposed_sync_us"] = heartbeat.exposed_sync_us;
  if (heartbeat.gpu_memory_bytes == 0) return;
  (*entry)["gpu_memory_bytes"] = heartbeat.gpu_memory_bytes;
  (*entry)["gpu_percent"] = heartbeat.gpu_percent;
}

// A member's connections, by what carries the payloads.
void AddLines(const StatusParts& parts, const Member& member, nlohmann::ordered_json* entry) {
  const Heartbeat& heartbeat = member.heartbeat;
  if (IsGroup(parts)) {  // the one to rank 0's lane carries no gradients
    const uint32_t peers = member.role() == Role::kWorker ? parts.plan.job.workers - 1 : 0;
    if (parts.phase.is_running() && peers > 0) (*entry)["lines"] = {{"group", peers}};
  } else if (heartbeat.tcp_lines + heartbeat.ipc_lines + heartbeat.shm_lines > 0) {
    (*entry)["lines"] = {
        {"tcp", heartbeat.tcp_lines}, {"ipc", heartbeat.ipc_lines}, {"shm", heartbeat.shm_lines}};
  }
}

// What a member waits for.
void AddWaiting(const StatusParts& parts, const Member& member, nlohmann::ordered_json* entry) {
  const Heartbeat& heartbeat = member.heartbeat;
  if (heartbeat.activity != Activity::kWaitingForParameters) return;
  const Members& members = parts.membership.members();
  const Member* owing = members.Find(heartbeat.waiting_for.node);
  if (owing != nullptr) (*entry)["waiting_for"] = owing->Name();
  if (IsGroup(parts)) (*entry)["waiting_for"] = LateNames(members, heartbeat.step);
  (*entry)["waiting_ms"] = heartbeat.waiting_ms;
}

nlohmann::ordered_json NodesJson(const StatusParts& parts, Micros now) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  const auto replicas = ReplicaCounts(parts.views.view());
  for (const auto& [node, member] : parts.membership.members().all()) {
    nlohmann::ordered_json entry = MemberJson(member, parts.membership.leases(), now);
    if (const auto it = replicas.find(node); it != replicas.end()) {
      entry["primaries"] = it->second[0];
      entry["backups"] = it->second[1];
      entry["syncing"] = it->second[2];
    }
    if (member.role() == Role::kWorker) AddComputing(parts, member, &entry);
    AddLines(parts, member, &entry);
    AddWaiting(parts, member, &entry);
    nodes.push_back(std::move(entry));
  }
  return nodes;
}

// What the run has made: verified micro-batches, evaluations, snapshots.
void AddResults(const StatusParts& parts, nlohmann::ordered_json* status) {
  if (parts.plan.job.verify_every != 0) {  // micro-batches (P41)
    const VerificationState verification = parts.verification.State();
    (*status)["verification"] = {{"agreed", verification.agreed_count},
                                 {"unverified", verification.unverified_count}};
  }
  const std::vector<EvaluationSummary>& evaluations = parts.history.all();
  if (!evaluations.empty() && evaluations.back().sample_count != 0) {  // the newest
    const EvaluationSummary& newest = evaluations.back();
    (*status)["evaluation"] = {{"version", newest.version.value()},
                               {"accuracy", newest.accuracy()},
                               {"top5_accuracy", newest.top5_accuracy()}};
  }
  (*status)["snapshots"] = nlohmann::ordered_json::array();
  for (const SnapshotManifest& manifest : parts.snapshots.ledger().complete()) {
    (*status)["snapshots"].push_back({{"generation", manifest.snapshot.generation},
                                      {"version", manifest.snapshot.version.value()}});
  }
}

void AddFaults(const StatusParts& parts, nlohmann::ordered_json* status) {
  (*status)["faults"] = nlohmann::ordered_json::array();
  const std::vector<FaultRecord> faults = parts.faults.records();
  const size_t shown = std::min(faults.size(), kFaultsShownMax);
  for (size_t i = faults.size() - shown; i < faults.size(); ++i)
    (*status)["faults"].push_back(FaultJson(faults[i]));
  (*status)["fault_count"] = faults.size();
}

}  // namespace

std::string StatusJson(Micros now, const StatusParts& parts) {
  nlohmann::ordered_json status;
  status["phase"] = EnumName(parts.phase.phase());
  const std::string waiting = parts.view_maker.WaitingText();
  if (parts.phase.is_gathering()) {
    status["waiting_for"] = parts.membership.MissingText();
  } else if (!waiting.empty()) {
    status["waiting_for"] = waiting;
  }
  const View& view = parts.views.view();
  status["clock_us"] = now.count();  // of this machine's steady clock: node/clock_probe
  status["step"] = parts.progress.committed().value();
  status["step_count"] = parts.history.final_version().value();
  status["term"] = parts.views.term();
  status["view"] = view.id.number;
  status["generation"] = view.generation;
  status["model"] = parts.plan.job.model;
  status["dataset"] = parts.plan.job.dataset;
  status["nodes"] = NodesJson(parts, now);
  AddResults(parts, &status);
  AddFaults(parts, &status);
  return DumpText(status);
}

}  // namespace pando
