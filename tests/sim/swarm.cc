#include "tests/sim/swarm.h"

#include <algorithm>
#include <utility>

namespace pando::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::array<const char*, kFaultKindCount> kFaultNames{
    "kill-worker",  "kill-server",      "kill-scheduler",
    "kill-several", "kill-all-workers", "kill-all-servers",
    "pause",        "partition",        "one-way-partition",
    "reset",        "slow-worker",      "disk-trouble",
    "join-worker",  "join-server",      "drain",
    "leave",        "snapshot-now",     "second-scheduler",
    "power-off",    "late-copy",        "stop"};

constexpr std::array<std::string_view, static_cast<size_t>(Focus::kCount)> kFocusNames{
    "none",      "calm",       "workers",  "servers",  "transfers",  "rollbacks",
    "scheduler", "divergence", "flip",     "pauses",   "evaluation", "moves",
    "echoes",    "handovers",  "silences", "partials", "decisions",  "shared",
    "hosts",     "racks",      "stops",    "hostile",  "files",      "lost-views",
    "stale",     "rounds",     "triples",  "votes",    "standbys",   "declared"};

constexpr size_t kFirstDrawnKinds = static_cast<size_t>(FaultKind::kLateCopy);

bool HasThreeReplicas(Focus focus) { return focus == Focus::kTriples || focus == Focus::kVotes; }

bool IsStale(Focus focus) { return focus == Focus::kStale || focus == Focus::kRounds; }

double Share(Chance& chance, double maximum) {
  return chance.OneIn(0.3) ? 0.0 : maximum * static_cast<double>(chance.Below(1000)) / 1000.0;
}

NetworkOptions DrawNetwork(Chance& chance) {
  const bool is_noisy = chance.OneIn(0.6);
  return {.loss = is_noisy ? Share(chance, 0.15) : 0,
          .duplication = is_noisy ? Share(chance, 0.2) : 0,
          .delay_min = Micros(20),
          .delay_max = Micros(chance.Between(100, 5000)),
          .straggle = is_noisy ? Share(chance, 0.05) : 0};
}

void Allow(Swarm& swarm, std::initializer_list<FaultKind> kinds) {
  for (FaultKind kind : kinds) swarm.kinds[static_cast<size_t>(kind)] = true;
}

// One wrong bit, and half the time other faults that leave the servers alone.
void AllowWrongBits(Swarm& swarm, Chance& chance, Focus focus) {
  using enum FaultKind;
  swarm.fault_count = 0;
  swarm.has_divergence = focus == Focus::kDivergence;
  swarm.has_flip = focus == Focus::kFlip;
  if (chance.OneIn(0.5)) return;
  Allow(swarm, {kKillWorker, kJoinWorker, kReset, kJoinServer});
  const bool has_others = focus == Focus::kDivergence || focus == Focus::kVotes;
  swarm.fault_count = has_others ? 2 : 0;
}

void AllowFocus(Swarm& swarm, Chance& chance, Focus focus) {
  using enum FaultKind;
  swarm.kinds.fill(false);
  switch (focus) {
    case Focus::kWorkers:
      return Allow(swarm, {kKillWorker, kJoinWorker, kDrain, kKillAllWorkers, kLateCopy});
    case Focus::kServers:
      return Allow(swarm, {kKillServer, kPause, kJoinServer, kReset, kLateCopy});
    case Focus::kTransfers:
      return Allow(swarm, {kKillServer, kJoinServer, kPartition, kDrain, kLateCopy});
    case Focus::kRollbacks:
      return Allow(swarm, {kKillServer, kKillAllServers, kPowerOff});
    case Focus::kScheduler:
      return Allow(swarm, {kKillScheduler, kSecondScheduler, kPause});
    case Focus::kPauses:
      return Allow(swarm, {kPause});
    case Focus::kEvaluation:
      return Allow(swarm, {kKillServer, kKillWorker, kSlowWorker});
    case Focus::kDecisions:
      return Allow(swarm, {kKillServer, kKillWorker, kKillScheduler, kKillAllServers, kPowerOff});
    case Focus::kMoves:
      swarm.network = {
          .loss = 0, .duplication = 0.3, .delay_max = milliseconds(20), .straggle = 0.2};
      swarm.fault_count = static_cast<uint32_t>(chance.Between(20, 60));
      swarm.server_share = 1;
      return Allow(swarm, {kDrain, kLeave, kJoinServer, kLateCopy});
    case Focus::kEchoes:
      swarm.network.echo = 0.3;
      swarm.fault_count = static_cast<uint32_t>(chance.Between(10, 40));
      return Allow(swarm, {kKillWorker, kKillServer, kJoinWorker, kJoinServer, kDrain, kReset});
    case Focus::kHandovers:
      swarm.network = {.echo = 0.8};
      swarm.fault_count = static_cast<uint32_t>(chance.Between(2, 6));
      swarm.fault_phase = milliseconds(500);
      swarm.restart_share = swarm.trigger_share = 0;
      swarm.server_share = 1;
      swarm.speed_spread = 40;
      return Allow(swarm, {kKillWorker, kDrain, kJoinServer});
    case Focus::kShared:
      swarm.network = {.duplication = 0.3, .delay_max = milliseconds(5), .straggle = 0.1};
      return Allow(swarm, {kKillServer, kKillWorker, kPause, kJoinServer, kReset, kLateCopy});
    case Focus::kHosts:
    case Focus::kRacks:
      swarm.host_count = 4;
      (focus == Focus::kRacks ? swarm.rack_count : swarm.host_count) =
          static_cast<uint32_t>(chance.Between(1, 2));
      return Allow(swarm, {kKillServer, kKillWorker, kPause, kJoinWorker, kReset, kLateCopy});
    case Focus::kStops:
      return Allow(swarm, {kStop, kKillServer, kKillWorker, kKillScheduler, kPause});
    case Focus::kLostViews:
      return Allow(swarm, {kKillScheduler, kJoinWorker, kJoinServer, kKillWorker, kKillServer});
    case Focus::kFiles:
      swarm.fault_count = static_cast<uint32_t>(chance.Between(5, 20));
      return Allow(swarm, {kKillServer, kKillAllServers, kKillScheduler, kPause, kPartition, kReset,
                           kDiskTrouble, kJoinServer, kSnapshotNow, kLateCopy, kStop});
    case Focus::kPartials:
      return Allow(swarm, {kKillServer, kKillWorker, kPause, kJoinServer, kReset});
    case Focus::kTriples:
      swarm.fault_count = static_cast<uint32_t>(chance.Between(5, 20));
      swarm.server_share = 0.8;
      return Allow(swarm,
                   {kKillServer, kKillSeveral, kPause, kJoinServer, kReset, kPartition, kLateCopy});
    case Focus::kSilences:
      swarm.network.echo = 0.8;
      swarm.fault_count = static_cast<uint32_t>(chance.Between(5, 20));
      return Allow(swarm, {kPartition, kOneWayPartition, kKillServer, kJoinServer});
    default:
      return AllowWrongBits(swarm, chance, focus);
  }
}

// Without a shared folder.
void DrawStandbys(Swarm& swarm, Chance& chance, Focus focus) {
  if (focus != Focus::kStandbys && (focus != Focus::kNone || !chance.OneIn(0.1))) return;
  swarm.files_travel = true;
  swarm.copy_lag_max = milliseconds(chance.Between(1, 100));
}

// Foci with general faults have those that are drawn for all seeds.
void ChooseFaults(Swarm& swarm, Chance& chance, Focus focus) {
  using enum FaultKind;
  if (focus == Focus::kNone || focus == Focus::kHostile || IsStale(focus)) return;
  if (focus != Focus::kStandbys) return AllowFocus(swarm, chance, focus);
  swarm.kinds.fill(false);
  swarm.fault_count = static_cast<uint32_t>(chance.Between(3, 12));
  Allow(swarm, {kKillServer, kKillAllServers, kKillWorker, kKillScheduler, kSecondScheduler, kPause,
                kSnapshotNow});
}

// With trust ratios, one tensor lies in two shards.
std::vector<TensorSpec> DrawTensors(Chance& chance, OptimizerKind optimizer) {
  std::vector<TensorSpec> specs;
  const uint64_t count = chance.Between(1, 3);
  for (uint64_t i = 0; i < count; ++i) {
    specs.push_back({.name = "layer" + std::to_string(i),
                     .shape = {1, chance.Between(1, 1300)},
                     .init = InitKind::kUniform,
                     .init_bound = 0.5f});
  }
  const bool is_split = optimizer == OptimizerKind::kLars || optimizer == OptimizerKind::kLamb;
  specs.push_back({.name = "last",
                   .shape = {is_split ? 2200u : 1024u, 1},
                   .init = InitKind::kUniform,
                   .init_bound = 1});
  specs.push_back(MetricTensorSpec());
  return specs;
}

// Norms over shards (P14), averages.
void DrawTrainingFeatures(Chance& chance, Focus focus, OptimizerOptions* options) {
  if (chance.OneIn(0.1)) options->ema_decay = 0.9;
  if (focus == Focus::kSilences) return;  // what it is for shows in few swarms
  if (focus != Focus::kPartials && !chance.OneIn(0.3)) return;
  const uint64_t draw = chance.Below(4);
  if (draw == 2) options->kind = OptimizerKind::kLars;
  if (draw == 3) options->kind = OptimizerKind::kLamb;
  options->weight_decay = 0.01;
  // Norms of means of noise: half of the steps are clipped.
  if (draw != 3) options->clip_norm = draw == 2 && chance.OneIn(0.5) ? 0 : 5;
}

// Evaluations some steps apart, and what is decided by them.
void DrawDecisions(Chance chance, Focus focus, JobPlan* plan) {
  Job& job = plan->job;
  if (focus != Focus::kDecisions && !chance.OneIn(0.2)) return;
  job.eval_every_steps = chance.Between(1, chance.OneIn(0.3) ? 4 : 12);
  job.eval_every_epochs = 0;
  job.snapshot_best = chance.OneIn(0.5);
  if (focus != Focus::kDecisions && chance.OneIn(0.4)) return;
  job.early_stop_patience = static_cast<uint32_t>(chance.Between(1, 4));
  plan->data.test_samples = 1300 * chance.Between(1, 2);
}

// P31a. No run has another's results if errors of encodings are added to later gradients.
void DrawReport(Chance chance, Focus focus, JobPlan* plan) {
  if (focus == Focus::kHostile || !chance.OneIn(focus == Focus::kDecisions ? 0.5 : 0.2)) return;
  const bool decides = !plan->pushes.has_feedback() && chance.OneIn(0.6);
  plan->job.eval_report = decides ? ReportUse::kDecides : ReportUse::kBeside;
}

ParameterResidency DrawResidency(Chance chance, Focus focus) {
  const bool is_layered = focus != Focus::kSilences && chance.OneIn(0.25);
  return is_layered ? ParameterResidency::kLayer : ParameterResidency::kAll;
}

// One that moves within a few steps.
LossScaleOptions DrawLossScale(Chance chance, Focus focus) {
  const bool is_on =
      focus != Focus::kSilences && chance.OneIn(focus == Focus::kPartials ? 0.3 : 0.1);
  return {.is_on = is_on, .initial_scale_power = 12, .loss_scale_window = 4};
}

void DrawCodecs(Chance chance, Focus focus, Job* job) {
  if (focus == Focus::kSilences || !chance.OneIn(0.15)) return;
  job->push_codec = static_cast<PayloadCodec>(chance.Below(6));
  job->pull_codec = static_cast<PayloadCodec>(chance.Below(4));
}

// Codecs with residuals and loss scales do not go with staleness. A round is a long micro-batch,
// and often its difference travels as int8.
void DrawStaleness(Chance chance, Focus focus, Job* job) {
  job->staleness = 1;
  if (job->push_codec > PayloadCodec::kInt8) job->push_codec = PayloadCodec::kInt8;
  if (focus != Focus::kRounds) return;
  job->staleness = chance.OneIn(0.7) ? 1 : 0;
  job->micro_batches =
      static_cast<uint32_t>(chance.Between(1, std::min<uint64_t>(3, job->global_batch)));
  job->steps = chance.Between(8, 16);
  if (chance.OneIn(0.5)) job->push_codec = PayloadCodec::kInt8;
}

SumUse DrawSumUse(Chance chance, Focus focus) {
  if (focus == Focus::kHosts) return SumUse::kAlways;
  if (focus == Focus::kSilences || chance.OneIn(0.5)) return SumUse::kOff;
  return chance.OneIn(0.5) ? SumUse::kAuto : SumUse::kAlways;
}

uint64_t DrawSteps(Chance& chance) {
  if (chance.OneIn(0.02)) return chance.Between(150, 400);
  if (chance.OneIn(0.2)) return chance.Between(50, 150);
  return chance.Between(20, 50);
}

}  // namespace

const char* FaultName(FaultKind kind) { return kFaultNames[static_cast<size_t>(kind)]; }

std::optional<Focus> FocusNamed(std::string_view name) {
  const auto it = std::ranges::find(kFocusNames, name);
  if (it == kFocusNames.end()) return std::nullopt;
  return static_cast<Focus>(it - kFocusNames.begin());
}

Swarm DrawSwarm(Chance& chance, Focus focus) {
  Swarm swarm;
  // 12: it comes to no seed of a scenario or a mutation that has general faults.
  Chance hostile(Chance(chance).Next() + 12);
  if (focus == Focus::kHostile || (focus == Focus::kNone && hostile.OneIn(0.1)))
    swarm.hostile_interval = milliseconds(hostile.Between(1, 20));
  Chance files(Chance(chance).Next() + 13);  // nor does this
  swarm.files_travel = focus == Focus::kFiles || (focus == Focus::kNone && files.OneIn(0.5));
  DrawStandbys(swarm, files, focus);
  Chance keys(Chance(chance).Next() + 14);  // nor this
  swarm.has_keys = keys.OneIn(0.5);
  const bool loses_views = focus == Focus::kLostViews || (focus == Focus::kNone && keys.OneIn(0.1));
  swarm.lost_view_share = loses_views ? 0.8 : 0;
  Chance racks(Chance(chance).Next() + 15);  // nor this
  if ((focus == Focus::kNone || IsStale(focus)) && racks.OneIn(0.2))
    swarm.rack_count = static_cast<uint32_t>(racks.Between(1, 2));
  Chance triples(Chance(chance).Next() + 16);  // nor this
  swarm.has_three_replicas =
      HasThreeReplicas(focus) || (focus == Focus::kNone && triples.OneIn(0.1));
  swarm.has_memory_flip = focus == Focus::kVotes;  // no vote finds it if the others die first
  swarm.network = DrawNetwork(chance);
  Chance later(Chance(chance).Next() + 1);  // what was added later changes nothing before it
  const double kind_share = chance.OneIn(0.1) ? 0.7 : 0.25;
  for (size_t i = 0; i < kFirstDrawnKinds; ++i) swarm.kinds[i] = chance.OneIn(kind_share);
  for (size_t i = kFirstDrawnKinds; i < static_cast<size_t>(FaultKind::kStop); ++i) {
    swarm.kinds[i] = later.OneIn(kind_share);
  }
  swarm.fault_count = static_cast<uint32_t>(chance.Between(1, chance.OneIn(0.2) ? 20 : 6));
  swarm.fault_phase = milliseconds(chance.Between(500, chance.OneIn(0.3) ? 8000 : 3000));
  swarm.trigger_share = chance.OneIn(0.3) ? 0 : 0.8;
  swarm.restart_share = chance.OneIn(0.5) ? 1 : 0.5;
  swarm.restart_after_max = milliseconds(chance.OneIn(0.5) ? 50 : 3000);
  swarm.same_pid_share = Share(chance, 1);
  swarm.exit_note_share = Share(chance, 1);
  swarm.disconnect_share = Share(chance, 1);
  swarm.lost_connection_share = Share(chance, 1);
  swarm.torn_commit_share = Share(chance, 0.5);
  swarm.disk_time_max = milliseconds(chance.OneIn(0.3) ? 400 : 5);
  const double odd = chance.OneIn(0.5) ? 0.03 : 0;
  swarm.has_divergence = chance.OneIn(odd);
  swarm.has_flip = chance.OneIn(odd);
  swarm.speed_spread = chance.OneIn(0.2) ? 8 : 1.5;
  swarm.network.echo = later.OneIn(0.2) ? Share(later, 0.3) : 0;
  Chance memory(Chance(later).Next() + 1);
  swarm.shares_memory = focus == Focus::kShared || (focus == Focus::kNone && memory.OneIn(0.25));
  Chance window(Chance(memory).Next() + 1);
  const bool is_narrow =  // kSilences: what it is for shows in few swarms
      focus != Focus::kSilences && window.OneIn(0.3);
  if (is_narrow) swarm.push_window_bytes = window.Between(1, 8000);
  Chance stops(Chance(window).Next() + 1);
  swarm.kinds[static_cast<size_t>(FaultKind::kStop)] = stops.OneIn(0.1);
  Chance norms(Chance(stops).Next() + 1);
  if (norms.OneIn(0.7)) swarm.norm_peers_max = norms.Between(1, 4);
  ChooseFaults(swarm, chance, focus);
  if (swarm.has_divergence || swarm.has_flip) {
    // The death of the replica with the right bits must not make the wrong ones valid.
    using enum FaultKind;
    for (FaultKind kind : {kKillServer, kKillSeveral, kKillAllServers, kKillScheduler, kPause,
                           kPartition, kOneWayPartition, kSecondScheduler, kPowerOff, kDrain,
                           kLeave, kDiskTrouble, kKillAllWorkers, kStop}) {
      swarm.kinds[static_cast<size_t>(kind)] = false;
    }
    if (swarm.has_flip) {  // a pair whose partner is gone is never compared
      swarm.kinds.fill(false);
      swarm.network.loss = swarm.network.straggle = 0;
    }
  }
  return swarm;
}

JobPlan DrawPlan(Chance& chance, const Swarm& swarm, Focus focus) {
  const Chance decisions(Chance(chance).Next() + 1);  // changes nothing that is drawn before
  const Chance residency(Chance(chance).Next() + 2);  // nor this
  const Chance scaling(Chance(chance).Next() + 4);    // nor this
  const Chance codecs(Chance(chance).Next() + 5);     // nor this
  const Chance hosts(Chance(chance).Next() + 6);      // nor this
  const Chance reports(Chance(chance).Next() + 7);    // nor this
  Job job;
  job.seed = chance.Next();
  job.steps = DrawSteps(chance);
  job.micro_batches = static_cast<uint32_t>(chance.Between(1, 9));
  job.global_batch = job.micro_batches + chance.Below(8);
  job.optimizer.kind = static_cast<OptimizerKind>(chance.Below(3));
  job.optimizer.momentum = chance.OneIn(0.5) ? 0.9 : 0.0;
  job.optimizer.lr = 0.05;
  job.schedule.kind = chance.OneIn(0.5) ? ScheduleKind::kOneCycle : ScheduleKind::kConstant;
  job.workers = static_cast<uint32_t>(chance.Between(1, chance.OneIn(0.2) ? 5 : 3));
  job.servers = static_cast<uint32_t>(chance.Between(1, 4));
  job.replicas = chance.OneIn(0.3) ? 1 : 2;
  job.snapshot_every = chance.OneIn(0.3) ? 0 : chance.Between(1, chance.OneIn(0.3) ? 4 : 20);
  job.snapshot_keep = static_cast<uint32_t>(chance.Between(1, 3));
  job.lease_ms = static_cast<uint32_t>(chance.Between(500, 1200));
  job.heartbeat_ms = job.lease_ms / 4;
  if (focus == Focus::kServers || focus == Focus::kTransfers || focus == Focus::kMoves ||
      focus == Focus::kEchoes || focus == Focus::kSilences || focus == Focus::kPartials ||
      swarm.has_divergence) {
    job.replicas = 2;
    job.servers = std::max(job.servers, 2u);
  }
  if (focus == Focus::kRollbacks) job.replicas = 1;
  if (swarm.has_three_replicas) {
    job.replicas = 3;
    job.servers += 2;
  }
  if (focus == Focus::kFiles || focus == Focus::kStandbys)
    job.snapshot_every = std::clamp<uint64_t>(job.snapshot_every, 1, 5);
  if (focus == Focus::kHosts) job.workers = std::max(job.workers, 2u);
  if (focus == Focus::kRacks) job.workers = std::max(job.workers, 3u);
  if (focus == Focus::kHandovers) {
    job.servers = 3;
    job.replicas = 2;
    job.workers += 1;
  }
  if (swarm.has_flip) {
    job.verify_every = chance.Between(1, 4);
    job.workers = std::max(job.workers, 2u);
  } else if (chance.OneIn(0.1)) {
    job.verify_every = chance.Between(1, 4);
  }
  Chance later(Chance(chance).Next() + 1);  // what was added later changes nothing before it
  DrawTrainingFeatures(later, focus, &job.optimizer);
  DataFacts data{.class_count = 2};
  const uint64_t steps_per_epoch = chance.Between(3, 40);
  data.train_samples = job.global_batch * steps_per_epoch + chance.Below(job.global_batch);
  data.test_samples = chance.Below(3) * 1300;
  job.eval_every_epochs = chance.Below(focus == Focus::kEvaluation ? 2 : 3);
  DrawCodecs(codecs, focus, &job);
  if (IsStale(focus)) DrawStaleness(Chance(Chance(chance).Next() + 8), focus, &job);
  JobPlan plan(job, data, TensorLayout(DrawTensors(chance, job.optimizer.kind)));
  DrawDecisions(decisions, focus, &plan);
  if (plan.pushes.has_feedback()) plan.job.early_stop_patience = 0;  // no run has another's results
  DrawReport(reports, focus, &plan);
  plan.job.parameter_residency = DrawResidency(residency, focus);
  if (!IsStale(focus)) plan.job.optimizer.loss_scale = DrawLossScale(scaling, focus);
  plan.job.host_sum = DrawSumUse(hosts, focus);
  plan.job.rack_sum = swarm.rack_count > 0 ? SumUse::kAlways : SumUse::kOff;
  return plan;
}

Micros DrawMicroBatchTime(Chance& chance, const Swarm& swarm, const JobPlan& plan) {
  const auto steps = static_cast<int64_t>(plan.steps.step_count());
  const Micros job = swarm.fault_phase * static_cast<int64_t>(chance.Between(5, 20)) / 10;
  const Micros of_worker = job / steps * plan.job.workers / plan.job.micro_batches;
  return std::clamp(of_worker, Micros(200), Micros(50'000));
}

}  // namespace pando::sim
