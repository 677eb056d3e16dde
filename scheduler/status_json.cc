// The answer to `pando status`: Scheduler::StatusJson.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "files/json_fields.h"
#include "scheduler/scheduler.h"

namespace pando {
namespace {

using Json = OrderedJson;

// The newest faults: a client that asks and does not read must not use much memory. The summary has
// them all.
constexpr size_t kFaultsShownMax = 32;

const char* HealthText(const Member& member, bool is_suspected) {
  if (member.is_leaving) return "leaving";
  if (is_suspected) return "suspect";
  if (member.is_draining) return "draining";
  return member.is_ready ? "ready" : "starting";
}

// The entries that every role has.
Json MemberJson(const Member& member, const Leases& leases, Micros now) {
  const NodeId node = member.peer.node;
  Json entry;
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

// A worker's share of the work, and its speed and waits.
void AddComputing(const RunFacts& run, const OwnerPlan& owners, const Member& member, Json& entry) {
  const Heartbeat& heartbeat = member.heartbeat;
  entry["micro_batches"] =
      std::ranges::count(run.view().owners, member.peer.node, &MicroBatchOwner::worker);
  entry["micro_batch_us"] = owners.micro_batch_us(member.peer.node);
  if (heartbeat.activity == Activity::kComputing && heartbeat.samples_wait_ms > 0)
    entry["activity"] = "waiting for samples";
  entry["data_stall_us"] = heartbeat.data_stall_us;
  entry["exposed_sync_us"] = heartbeat.exposed_sync_us;
  if (heartbeat.gpu_memory_bytes == 0) return;
  entry["gpu_memory_bytes"] = heartbeat.gpu_memory_bytes;
  entry["gpu_percent"] = heartbeat.gpu_percent;
}

// Bytes that the member's process has sent and received so far.
void AddTraffic(const Member& member, Json& entry) {
  const Heartbeat& heartbeat = member.heartbeat;
  const auto add = [&](const char* kind, const LineTraffic& traffic) {
    if (traffic.sent + traffic.received > 0)
      entry["traffic"][kind] = {traffic.sent, traffic.received};
  };
  add("tcp", heartbeat.tcp_traffic);
  add("ipc", heartbeat.ipc_traffic);
  add("shm", heartbeat.shm_traffic);
}

// A member's connections, by what carries the payloads.
void AddLines(const RunFacts& run, const Member& member, Json& entry) {
  const Heartbeat& heartbeat = member.heartbeat;
  if (run.IsGroup()) {  // the one to rank 0's lane carries no gradients
    const uint32_t peers = member.role() == Role::kWorker ? run.plan.job.workers - 1 : 0;
    if (run.phase.is_running() && peers > 0) entry["lines"] = {{"group", peers}};
  } else if (heartbeat.tcp_lines + heartbeat.ipc_lines + heartbeat.shm_lines > 0) {
    entry["lines"] = {
        {"tcp", heartbeat.tcp_lines}, {"ipc", heartbeat.ipc_lines}, {"shm", heartbeat.shm_lines}};
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
void AddWaiting(const RunFacts& run, const OwnerPlan& owners, const Member& member, Json& entry) {
  const Heartbeat& heartbeat = member.heartbeat;
  if (heartbeat.activity != Activity::kWaitingForParameters) return;
  const Members& members = run.members();
  const Member* owing = members.Find(heartbeat.waiting_for.node);
  if (owing != nullptr) entry["waiting_for"] = owing->Name();
  if (run.IsGroup()) entry["waiting_for"] = LateNames(members, heartbeat.step);
  if (const std::string names = StragglerNames(run, owners); !names.empty())
    entry["waiting_for"] = names;
  entry["waiting_ms"] = heartbeat.waiting_ms;
}

Json NodesJson(Micros now, const RunFacts& run, const OwnerPlan& owners) {
  Json nodes = Json::array();
  const auto replicas = ReplicaCounts(run.view());
  for (const auto& [node, member] : run.members().all()) {
    Json entry = MemberJson(member, run.membership.leases(), now);
    if (const auto it = replicas.find(node); it != replicas.end()) {
      entry["primaries"] = it->second[0];
      entry["backups"] = it->second[1];
      entry["syncing"] = it->second[2];
    }
    if (member.role() == Role::kServer) entry["endpoints"] = member.registration.lane_endpoints;
    if (member.role() == Role::kWorker) AddComputing(run, owners, member, entry);
    AddLines(run, member, entry);
    AddTraffic(member, entry);
    AddWaiting(run, owners, member, entry);
    nodes.push_back(std::move(entry));
  }
  return nodes;
}

// What the run has made: verified micro-batches, evaluations, snapshots.
void AddResults(const RunFacts& run, const VerificationState& verification,
                const std::vector<SnapshotManifest>& snapshots, Json& status) {
  if (run.plan.job.verify_every != 0) {  // micro-batches (P41)
    status["verification"] = {{"agreed", verification.agreed_count},
                              {"unverified", verification.unverified_count}};
  }
  const std::vector<EvaluationSummary>& evaluations = run.history.all();
  if (!evaluations.empty() && evaluations.back().sample_count != 0) {  // the newest
    const EvaluationSummary& newest = evaluations.back();
    const EvaluatedValues values(run.plan.job);
    status["evaluation"] = {{"version", newest.version.value()},
                            {"evaluated_on", run.plan.job.evaluated_on()},
                            {"accuracy", values.Accuracy(newest)},
                            {"top5_accuracy", values.Top5Accuracy(newest)},
                            {"text", EvaluationText(run.plan.job, newest)}};
  }
  status["snapshots"] = Json::array();
  for (const SnapshotManifest& manifest : snapshots) {
    status["snapshots"].push_back({{"generation", manifest.snapshot.generation},
                                   {"version", manifest.snapshot.version.value()}});
  }
}

void AddFaults(const FaultLedger& ledger, Json& status) {
  status["faults"] = Json::array();
  const std::vector<FaultRecord> faults = ledger.records();
  const size_t shown = std::min(faults.size(), kFaultsShownMax);
  for (size_t i = faults.size() - shown; i < faults.size(); ++i)
    status["faults"].push_back(ToJson(faults[i]));
  status["fault_count"] = ledger.count();
}

void AddStall(Micros now, const Stall& stall, const std::string& text, Json& status) {
  status["stall"] = {{"waiter", stall.waiter},
                     {"waited_for", stall.waited_for},
                     {"what", stall.what},
                     {"since_ms", std::max<int64_t>(0, (now - stall.since).count() / 1000)},
                     {"text", text},
                     {"log_line", stall.log_line}};
}

}  // namespace

std::string Scheduler::StatusJson(Micros now, const std::optional<Stall>& own_wait) const {
  Json status;
  status["phase"] = EnumName(run_.phase.phase());
  const std::string waiting = WaitingText();
  if (own_wait) {
    status["waiting_for"] = fmt::format("for {}: {}", own_wait->what, own_wait->why);
  } else if (run_.phase.is_gathering()) {
    status["waiting_for"] = MissingText();
  } else if (!waiting.empty()) {
    status["waiting_for"] = waiting;
  }
  if (own_wait)
    AddStall(now, *own_wait, own_wait->Text(now), status);
  else if (const std::optional<Stall>& stall = stalls_.stall())
    AddStall(now, *stall, stalls_.Text(now), status);
  status["clock_us"] = now.count();  // of this machine's steady clock: node/process_timeline
  status["step"] = committed().value();
  status["step_count"] = final_version().value();
  status["term"] = run_.views.term();
  status["view"] = view().id.number;
  status["generation"] = view().generation;
  status["model"] = run_.plan.job.model;
  status["dataset"] = run_.plan.job.dataset;
  status["nodes"] = NodesJson(now, run_, owners_);
  AddResults(run_, verification_.State(), snapshots_.ledger().complete(), status);
  AddFaults(run_.faults, status);
  return JsonText(status);
}

}  // namespace pando
