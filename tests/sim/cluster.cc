#include "tests/sim/cluster.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "common/check.h"

namespace pando::sim {
namespace {

constexpr JobId kJob{77};
constexpr Micros kFaultsEnd = std::chrono::seconds(6);
// I7: the job must end within this virtual time after the last fault. Retries are up to 4 s apart.
constexpr Micros kLivenessBound = std::chrono::seconds(40);
constexpr uint64_t kMicro = 1;

NetworkOptions DrawNetwork(Chance& chance, const Faults& faults) {
  const auto share = [&](double maximum) {
    return chance.OneIn(0.3) ? 0.0 : maximum * static_cast<double>(chance.Below(1000)) / 1000.0;
  };
  return {.loss = share(faults.loss_max),
          .duplication = share(faults.duplication_max),
          .delay_min = Micros(20),
          .delay_max = Micros(chance.Between(100, 5000)),
          .straggle = share(faults.straggle_max)};
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// A disk that forgets nothing and is always in time.
class MemorySnapshots : public SnapshotPort {
 public:
  explicit MemorySnapshots(std::function<void(SnapshotEvent)> answer)
      : answer_(std::move(answer)) {}
  void Store(StoreRequest request) override {
    answer_(RecordStored{request.snapshot, request.shard, request.hash, "memory", {}});
    stored_[{request.snapshot, request.shard}] = std::move(request);
  }
  void Load(LoadRequest request) override {
    const StoreRequest& stored = stored_[{request.snapshot, request.shard}];
    answer_(RecordLoaded{request.snapshot, request.shard, {}, stored.parameters, stored.state});
  }

 private:
  std::function<void(SnapshotEvent)> answer_;
  std::map<std::pair<SnapshotRef, ShardId>, StoreRequest> stored_;
};

}  // namespace

Cluster::Cluster(uint64_t seed, const Faults& faults, bool is_tracing)
    : faults_(faults),
      world_(seed),
      network_(world_, DrawNetwork(world_.chance(), faults)),
      plan_(DrawPlan(world_.chance())),
      reference_(plan_) {
  // Four beats lost in a row look like a death; who is taken for dead does not join again here.
  plan_.job.lease_ms = 4000;
  network_.SetTrace(is_tracing);
  network_.SetWatch([this](const Envelope& envelope) { CheckSent(envelope); });
  StartScheduler();
  for (uint32_t i = 0; i < plan_.job.servers; ++i) StartProcess(Role::kServer);
  for (uint32_t i = 0; i < plan_.job.workers; ++i) StartProcess(Role::kWorker);
  PlanFaults();
}

Cluster::~Cluster() = default;

// ---- processes ---------------------------------------------------------------------------------

void Cluster::StartScheduler() {
  scheduler_id_ = {kSchedulerNode, Incarnation(world_.chance().Next() | 1), 0};
  scheduler_ = std::make_unique<Scheduler>(
      Scheduler::Options{.self = scheduler_id_, .job = kJob, .job_toml = "simulated"}, plan_,
      journal_, *this, outbox_);
  network_.SetScheduler(scheduler_id_);
  network_.Attach(scheduler_id_, [this](const Envelope& envelope) {
    scheduler_->OnMessage(world_.now(), envelope);
    WakeSoon(scheduler_party_);
  });
  WakeSoon(scheduler_party_);
}

void Cluster::StartProcess(Role role) {
  auto process = std::make_unique<Process>();
  process->role = role;
  process->incarnation = Incarnation(world_.chance().Next() | 1);
  process->lane_count =
      role == Role::kServer ? static_cast<uint16_t>(world_.chance().Between(1, 2)) : 1;
  Register registration{.role = role, .host = "sim"};
  for (uint16_t lane = 0; role == Role::kServer && lane < process->lane_count; ++lane) {
    registration.lane_endpoints.push_back("sim://" + std::to_string(lane));
  }
  auto join = std::make_unique<JoinCore>(process->incarnation, registration, outbox_);
  JoinCore* joining = join.get();
  Party& party = AddParty(std::move(join));
  party.join = joining;
  process->parties.push_back(&party);
  AttachParty(party, {kUnknownNode, process->incarnation, 0});
  processes_.push_back(std::move(process));
  world_.After(Micros(world_.chance().Below(50'000)), [this, &party] { WakeSoon(party); });
}

// Welcomed: the joiner's loop ends, the real cores' loops begin.
void Cluster::BecomeMember(Process& process, Party& joiner) {
  const JoinCore& join = *joiner.join;
  joiner.is_alive = false;
  process.parties.clear();
  for (uint16_t i = 0; i < process.lane_count; ++i) {
    const PeerId self = join.self(i);
    Party& party = AddParty(nullptr);
    if (process.role == Role::kServer) {
      party.snapshots = std::make_unique<MemorySnapshots>([this, &party](SnapshotEvent event) {
        world_.After(Micros(kMicro), [this, &party, event = std::move(event)] {
          if (!party.is_alive) return;
          party.lane->OnSnapshotEvent(world_.now(), event);
          WakeSoon(party);
        });
      });
      auto lane = std::make_unique<Lane>(Lane::Options{{self, join.scheduler(), join.job()}, "sim"},
                                         plan_, *party.snapshots, outbox_);
      party.lane = lane.get();
      party.core = std::move(lane);
    } else {
      const Micros speed(
          world_.chance().Between(200, world_.chance().OneIn(0.2) ? 400'000 : 5'000));
      party.computer =
          std::make_unique<VirtualComputer>(world_, plan_, speed, [this, &party](ComputeEvent e) {
            if (!party.is_alive) return;
            party.session->OnComputeEvent(world_.now(), std::move(e));
            WakeSoon(party);
          });
      auto session = std::make_unique<Session>(
          Session::Options{{self, join.scheduler(), join.job()}, {.kind = "sim"}}, plan_,
          *party.computer, outbox_);
      party.session = session.get();
      party.core = std::move(session);
    }
    AttachParty(party, self);
    process.parties.push_back(&party);
    WakeSoon(party);
  }
  BeatHeart(process);
}

void Cluster::BeatHeart(Process& process) {
  if (process.parties.empty() || !process.parties[0]->is_alive) return;
  Party& first = *process.parties[0];
  const bool has_left = first.lane ? first.lane->finished() : first.session->finished();
  if (has_left) return;
  PeerId self{kUnknownNode, process.incarnation, 0};
  Envelope beat{.job = kJob, .sender = self, .receiver = scheduler_id_, .message = Heartbeat{}};
  outbox_.Send(beat);
  world_.After(std::chrono::milliseconds(plan_.job.heartbeat_ms),
               [this, &process] { BeatHeart(process); });
}

Cluster::Party& Cluster::AddParty(std::unique_ptr<ProtocolCore> core) {
  parties_.push_back(std::make_unique<Party>());
  parties_.back()->core = std::move(core);
  return *parties_.back();
}

void Cluster::AttachParty(Party& party, const PeerId& peer) {
  network_.Attach(peer, [this, &party](const Envelope& envelope) {
    if (!party.is_alive) return;
    party.core->OnMessage(world_.now(), envelope);
    WakeSoon(party);
  });
}

// The loop drains what is queued before it ticks: what arrives within a moment shares the tick.
void Cluster::WakeSoon(Party& party) {
  if (party.is_tick_due || !party.is_alive) return;
  party.is_tick_due = true;
  world_.After(Micros(world_.chance().Below(100)), [this, &party] {
    party.is_tick_due = false;
    if (party.is_alive) TickParty(party);
  });
}

void Cluster::TickParty(Party& party) {
  ProtocolCore& core = party.core ? *party.core : static_cast<ProtocolCore&>(*scheduler_);
  core.Tick(world_.now());
  if (party.join != nullptr && party.join->has_answer()) {
    const auto process = std::ranges::find_if(processes_, [&](const auto& p) {
      return std::ranges::find(p->parties, &party) != p->parties.end();
    });
    if (!party.join->welcome()) return Fail("refused: " + party.join->refused()->reason);
    return BecomeMember(**process, party);
  }
  const Micros deadline = core.NextDeadline();
  if (deadline == kNever || (deadline >= party.wakes_at && party.wakes_at > world_.now())) return;
  party.wakes_at = std::max(deadline, world_.now() + Micros(kMicro));
  world_.After(party.wakes_at - world_.now(), [this, &party] { WakeSoon(party); });
}

// ---- faults ------------------------------------------------------------------------------------

void Cluster::PlanFaults() {
  Chance& chance = world_.chance();
  for (uint64_t i = 0; faults_.connection_resets && i < chance.Below(6); ++i) {
    world_.After(Micros(chance.Below(kFaultsEnd.count())), [this] {
      network_.ResetConnections(processes_[world_.chance().Below(processes_.size())]->incarnation);
    });
  }
  for (uint64_t i = 0; faults_.worker_crashes && i < chance.Below(plan_.job.workers); ++i) {
    world_.After(Micros(chance.Below(chance.OneIn(0.5) ? 300'000 : kFaultsEnd.count())),
                 [this] { CrashAWorker(); });
  }
  world_.After(kFaultsEnd, [this] { network_.Heal(); });
}

// Any working worker but the last: without one the job would wait for another to join.
void Cluster::CrashAWorker() {
  if (scheduler_->phase() != Scheduler::Phase::kTraining) return;
  std::vector<Process*> living;
  for (auto& process : processes_) {
    const bool is_working =
        process->parties[0]->is_alive && process->parties[0]->session != nullptr;
    if (process->role == Role::kWorker && is_working) living.push_back(process.get());
  }
  if (living.size() < 2) return;
  Process& victim = *living[world_.chance().Below(living.size())];
  victim.parties[0]->is_alive = false;
  network_.Detach(victim.incarnation);
}

// ---- invariants --------------------------------------------------------------------------------

void Cluster::Fail(std::string what) {
  if (!failure_) failure_ = what + " at " + std::to_string(world_.now().count()) + " us";
}

void Cluster::CheckSent(const Envelope& envelope) {
  if (const auto* push = std::get_if<Push>(&envelope.message)) CheckPush(*push);
  if (const auto* params = std::get_if<Params>(&envelope.message)) CheckParams(*params);
}

// P4: a contribution to step t proves that version t is committed everywhere.
void Cluster::CheckPush(const Push& push) {
  for (const auto& party : parties_) {
    if (party->lane == nullptr) continue;
    for (const auto& [id, replica] : party->lane->replicas()) {
      const Shard& shard = replica.shard;
      if (!replica.is_primary()) continue;
      for (const PushItem& item : push.items) {
        if (shard.committed() >= VersionReadBy(item.step)) continue;
        Fail("P4: step " + std::to_string(item.step.value()) + " is pushed while shard " +
             std::to_string(id.value()) + " is at version " +
             std::to_string(shard.committed().value()));
      }
    }
  }
}

// I4, I5: what is shown is the version it says, whole, and the serial run's.
void Cluster::CheckParams(const Params& params) {
  for (const ParamsItem& item : params.items) {
    if (SameBits(item.payload.floats(), reference_.ShardAt(item.shard, item.version))) continue;
    Fail("I5: version " + std::to_string(item.version.value()) + " of shard " +
         std::to_string(item.shard.value()) + " differs from the serial run's");
  }
}

void Cluster::CheckBounds() {
  std::set<ShardId> seen;
  const size_t nodes_max = plan_.job.micro_batches / 2 + 1;
  const size_t pushes_max = plan_.shards.shard_count() * plan_.job.micro_batches * 2;
  for (const auto& party : parties_) {
    if (party->session && party->session->unreplied_count() > pushes_max)
      Fail("I6: unreplied gradients");
    if (party->lane == nullptr) continue;
    for (const auto& [id, replica] : party->lane->replicas()) {
      const Shard& shard = replica.shard;
      if (!replica.is_primary()) continue;
      if (!seen.insert(id).second)
        Fail("I3: shard " + std::to_string(id.value()) + " has two primaries");
      if (shard.held_nodes().size() > nodes_max) Fail("I6: pending nodes");
    }
  }
}

void Cluster::OnEvent(Micros, const RunEvent&) {}

void Cluster::OnStepMetrics(Micros, const StepMetrics& metrics) {
  if (metrics.step != next_metrics_) Fail("metrics out of order");
  next_metrics_ = NextStep(metrics.step);
  const float* row = reference_.ShardAt(plan_.metric_shard(), VersionMadeBy(metrics.step)).data() +
                     plan_.metric_offset();
  if (row[kMetricLoss] != metrics.loss) Fail("metrics differ from the serial run's");
}

void Cluster::OnEvaluation(Micros, const EvaluationSummary& summary) {
  if (!evaluated_.insert(summary.version).second) Fail("a version evaluated twice");
  const uint64_t digest = reference_.DigestAt(summary.version);
  uint64_t correct = 0;
  for (uint64_t first = 0, slice = 0; first < plan_.data.test_samples;
       first += kEvaluationSliceSamples, ++slice) {
    const uint64_t last = std::min(first + kEvaluationSliceSamples, plan_.data.test_samples);
    correct += EvaluateSliceOf(digest, {summary.version, static_cast<uint32_t>(slice), first, last})
                   .correct_count;
  }
  if (correct != summary.correct_count || summary.sample_count != plan_.data.test_samples) {
    Fail("P31: the evaluation of version " + std::to_string(summary.version.value()) + " is wrong");
  }
}

void Cluster::OnFault(Micros, const FaultRecord&) {}
void Cluster::OnSnapshot(Micros, const SnapshotManifest&) {}
void Cluster::OnSnapshotDropped(Micros, const SnapshotManifest&) {}

void Cluster::OnFinalWeights(Micros, const FloatBuffer& flat) {
  has_final_weights_ = true;
  if (!SameBits(flat.span(), reference_.FlatAt(plan_.steps.final_version())))
    Fail("I5: final weights differ");
}

Outcome Cluster::Run() {
  while (!failure_ && !scheduler_->finished() && world_.Step()) {
    CheckBounds();
    if (world_.now() > kFaultsEnd + kLivenessBound) Fail("I7: not finished in time");
  }
  if (!failure_ && !has_final_weights_) Fail("ended without final weights");
  if (!failure_ && next_metrics_.value() != plan_.steps.step_count()) Fail("metrics are missing");
  if (!failure_ && !evaluated_.contains(plan_.steps.final_version())) Fail("not evaluated");
  return {.ok = !failure_,
          .failure = failure_.value_or(""),
          .trace_hash = network_.trace_hash(),
          .message_count = network_.message_count(),
          .finished_at = world_.now()};
}

}  // namespace pando::sim
