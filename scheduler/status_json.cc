// What `pando status` is told.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "scheduler/scheduler.h"

namespace pando {
namespace {

// The newest: whoever asks and does not read must not cost much memory. The summary has them all.
constexpr size_t kFaultsShownMax = 32;

const char* ActivityText(Activity activity) {
  switch (activity) {
    case Activity::kStarting:
      return "starting";
    case Activity::kIdle:
      return "idle";
    case Activity::kComputing:
      return "computing";
    case Activity::kWaitingForParameters:
      return "waiting for parameters";
    case Activity::kEvaluating:
      return "evaluating";
    case Activity::kServing:
      return "serving";
    case Activity::kLeaving:
      return "leaving";
  }
  return "unknown";
}

const char* PhaseText(Scheduler::Phase phase) {
  switch (phase) {
    case Scheduler::Phase::kGathering:
      return "gathering";
    case Scheduler::Phase::kTraining:
      return "training";
    case Scheduler::Phase::kCollecting:
      return "collecting weights";
    case Scheduler::Phase::kStopping:
      return "stopping";
    case Scheduler::Phase::kFinished:
      return "finished";
  }
  return "unknown";
}

// Host names come from the wire: what is not UTF-8 is replaced, not thrown at.
std::string TextOf(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

const char* HealthText(const Member& member) {
  if (member.is_leaving) return "leaving";
  if (member.suspected_at) return "suspect";
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

// What is told of every member, whatever its role.
nlohmann::ordered_json MemberJson(const Member& member, Micros now) {
  nlohmann::ordered_json entry;
  entry["name"] = member.Name();
  entry["role"] = RoleName(member.role());
  entry["rank"] = member.rank;
  entry["host"] = member.registration.host;
  entry["pid"] = member.registration.process_id;
  entry["health"] = HealthText(member);
  entry["draining"] = member.is_draining;
  entry["activity"] = ActivityText(member.heartbeat.activity);
  entry["step"] = member.heartbeat.step.value();
  entry["silent_ms"] = (now - member.heard_at).count() / 1000;
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

// Whom the ranks that are done with this step wait for: "worker 1, worker 2".
std::string NamesOfLate(const Members& members, Step step) {
  std::string names;
  for (const Member* worker : members.Workers()) {
    const Heartbeat& heartbeat = worker->heartbeat;
    const bool waits_too = heartbeat.activity == Activity::kWaitingForParameters;
    if (heartbeat.step > step || (heartbeat.step == step && waits_too)) continue;
    names += (names.empty() ? "" : ", ") + worker->Name();
  }
  return names.empty() ? "the sum" : names;
}

// A worker's share of the work, and how it gets on with it.
void AddComputing(const View& view, NodeId node, const Member& member,
                  nlohmann::ordered_json* entry) {
  const Heartbeat& heartbeat = member.heartbeat;
  (*entry)["micro_batches"] = std::ranges::count(view.owners, node, &MicroBatchOwner::worker);
  (*entry)["micro_batch_us"] = member.speed.micro_batch_us();
  (*entry)["data_stall_us"] = heartbeat.data_stall_us;
  (*entry)["exposed_sync_us"] = heartbeat.exposed_sync_us;
  if (heartbeat.gpu_memory_bytes == 0) return;
  (*entry)["gpu_memory_bytes"] = heartbeat.gpu_memory_bytes;
  (*entry)["gpu_percent"] = heartbeat.gpu_percent;
}

}  // namespace

std::string Scheduler::StatusJson(Micros now) const {
  nlohmann::ordered_json status;
  status["phase"] = PhaseText(phase_);
  const std::string waiting = WaitingText();
  if (phase_ == Phase::kGathering) {
    status["waiting_for"] = MissingText();
  } else if (!waiting.empty()) {
    status["waiting_for"] = waiting;
  }
  status["clock_us"] = now.count();  // of this machine's steady clock: cli/clock_probe
  status["step"] = committed_.value();
  status["step_count"] = final_version_.value();
  status["term"] = term_;
  status["view"] = view_.id.number;
  status["generation"] = view_.generation;
  status["model"] = plan_.job.model;
  status["dataset"] = plan_.job.dataset;
  status["nodes"] = nlohmann::ordered_json::array();
  const auto replicas = ReplicaCounts(view_);
  for (const auto& [node, member] : members_.all()) {
    nlohmann::ordered_json entry = MemberJson(member, now);
    if (const auto it = replicas.find(node); it != replicas.end()) {
      entry["primaries"] = it->second[0];
      entry["backups"] = it->second[1];
      entry["syncing"] = it->second[2];
    }
    if (member.role() == Role::kWorker) AddComputing(view_, node, member, &entry);
    const Heartbeat& heartbeat = member.heartbeat;
    if (IsGroup()) {  // the one to rank 0's lane carries no gradients
      const uint32_t peers = member.role() == Role::kWorker ? plan_.job.workers - 1 : 0;
      if (is_running() && peers > 0) entry["lines"] = {{"group", peers}};
    } else if (heartbeat.tcp_lines + heartbeat.ipc_lines + heartbeat.shm_lines > 0) {
      entry["lines"] = {
          {"tcp", heartbeat.tcp_lines}, {"ipc", heartbeat.ipc_lines}, {"shm", heartbeat.shm_lines}};
    }
    if (member.heartbeat.activity == Activity::kWaitingForParameters) {
      const Member* owing = members_.Find(member.heartbeat.waiting_for.node);
      if (owing != nullptr) entry["waiting_for"] = owing->Name();
      if (IsGroup()) entry["waiting_for"] = NamesOfLate(members_, member.heartbeat.step);
      entry["waiting_ms"] = member.heartbeat.waiting_ms;
    }
    status["nodes"].push_back(std::move(entry));
  }
  status["bad_pictures"] = bad_pictures_.count();
  if (plan_.job.verify_every != 0) {  // micro-batches (P41)
    const VerificationState verification = verified_.State();
    status["verification"] = {{"agreed", verification.agreed_count},
                              {"unverified", verification.unverified_count}};
  }
  if (!evaluations_.empty() && evaluations_.back().sample_count != 0) {  // the newest
    const EvaluationSummary& newest = evaluations_.back();
    status["evaluation"] = {{"version", newest.version.value()},
                            {"accuracy", newest.accuracy()},
                            {"top5_accuracy", newest.top5_accuracy()}};
  }
  status["snapshots"] = nlohmann::ordered_json::array();
  for (const SnapshotManifest& manifest : snapshots_.complete()) {
    status["snapshots"].push_back({{"generation", manifest.snapshot.generation},
                                   {"version", manifest.snapshot.version.value()}});
  }
  status["faults"] = nlohmann::ordered_json::array();
  const std::vector<FaultRecord> faults = faults_.records();
  const size_t shown = std::min(faults.size(), kFaultsShownMax);
  for (size_t i = faults.size() - shown; i < faults.size(); ++i)
    status["faults"].push_back(FaultJson(faults[i]));
  status["fault_count"] = faults.size();
  return TextOf(status);
}

void Scheduler::OnMessageOf(Micros now, const Envelope& envelope, const StatusRequest&) {
  Send(envelope.sender, StatusReport{StatusJson(now)});
}

}  // namespace pando
