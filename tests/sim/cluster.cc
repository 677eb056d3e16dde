#include "tests/sim/cluster.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/check.h"
#include "tests/sim/trace.h"

namespace pando::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Place kDeskPlace = 0;
constexpr Micros kStartSpread = milliseconds(50);
constexpr Micros kNoteLate = seconds(10);
constexpr Micros kKeepInterval = milliseconds(500);

// I7: when faults stop, the job ends within this time: leases, retries up to 4 s apart, transfers
// and restores, and all its steps once more, by one worker, the slowest; one of them was begun
// while that was slowed down.
Micros LivenessBound(const Swarm& swarm, const JobPlan& plan, Micros micro_batch_time) {
  const auto micro_batches = static_cast<int64_t>(plan.steps.step_count() * plan.job.micro_batches);
  const auto slowest = static_cast<int64_t>(swarm.speed_spread + 1);
  const auto replays = swarm.has_flip ? 4 : 1;
  const bool slows_down = swarm.kinds[static_cast<size_t>(FaultKind::kSlowWorker)];
  const int64_t slowed = slows_down ? Faults::kSlownessMax * plan.job.micro_batches : 0;
  const Micros of_a_message = swarm.network.delay_max;
  return seconds(60) + micro_batch_time * (micro_batches * replays + slowed) * slowest +
         of_a_message * 20 * static_cast<int64_t>(plan.steps.step_count());
}

std::unique_ptr<JobPlan> DrawFirstPlan(Chance& chance, const Swarm& swarm, Focus focus) {
  return std::make_unique<JobPlan>(DrawPlan(chance, swarm, focus));
}

}  // namespace

Cluster::Cluster(const Options& options)
    : seed_(options.seed),
      world_(options.seed),
      swarm_(DrawSwarm(world_.chance(), options.focus)),
      plan_(plans_.emplace_back(DrawFirstPlan(world_.chance(), swarm_, options.focus)).get()),
      reference_(*plan_),
      network_(world_, swarm_.network),
      disk_(world_, swarm_.disk_time_max),
      checker_(world_, *plan_, reference_, disk_, processes_, coverage_,
               swarm_.network.loss > 0 || swarm_.network.straggle > 0),
      desk_(world_, network_, kJob, kDeskPlace),
      faults_(*this) {
  micro_batch_time_ = DrawMicroBatchTime(world_.chance(), swarm_, *plan_);
  network_.SetTrace(options.is_tracing);
  network_.SetWatch([this](Envelope& envelope) { return OnSent(envelope); });
  Note("seed " + std::to_string(seed_) + ": " + std::to_string(plan_->steps.step_count()) +
       " steps of " + std::to_string(plan_->job.micro_batches) + " micro-batches, " +
       std::to_string(plan_->shards.shard_count()) + " shards, " +
       std::to_string(plan_->job.servers) + " servers, " + std::to_string(plan_->job.workers) +
       " workers, replicas " + std::to_string(plan_->job.replicas) + ", snapshot.every " +
       std::to_string(plan_->job.snapshot_every) + ", lease " +
       std::to_string(plan_->job.lease_ms) + " ms, " + std::to_string(micro_batch_time_.count()) +
       " us a micro-batch, faults till " + std::to_string(swarm_.fault_phase.count()) + " us" +
       (plan_->job.parameter_residency == ParameterResidency::kLayer ? ", layer residency" : "") +
       (plan_->job.optimizer.loss_scale.is_on ? ", loss scaling" : "") +
       (swarm_.shares_memory ? ", shared memory" : "") +
       (plan_->may_sum_on_host() ? ", sums on hosts" : ""));
  if (swarm_.shares_memory) network_.shared_memory().Start();
  if (plan_->job.parameter_residency == ParameterResidency::kLayer) coverage_.Note(Event::kLayers);
  if (plan_->job.optimizer.loss_scale.is_on) coverage_.Note(Event::kScaling);
  StartScheduler(NewSeat(Role::kScheduler), false);
  for (uint32_t i = 0; i < plan_->job.servers; ++i) Start(Role::kServer);
  for (uint32_t i = 0; i < plan_->job.workers; ++i) Start(Role::kWorker);
  faults_.Plan();
  world_.After(swarm_.fault_phase, [this] { Heal(); });
}

Cluster::~Cluster() = default;

void Cluster::Note(const std::string& text) {
  if (!network_.is_tracing()) return;
  std::printf("%10ld us  ** %s\n", long{world_.now().count()}, text.c_str());
}

// ---- processes ---------------------------------------------------------------------------------

Seat Cluster::NewSeat(Role role) {
  static constexpr const char* kNames[] = {"scheduler", "server", "worker", "client"};
  Chance& chance = world_.chance();
  Seat seat{.place = next_place_++, .role = role};
  seat.host = "host" + std::to_string(chance.Below(swarm_.host_count));
  seat.process_id = next_process_id_++;
  seat.lane_count = static_cast<uint16_t>(chance.Between(1, 2));
  const auto spread = static_cast<uint64_t>(swarm_.speed_spread * 100);
  seat.micro_batch_time =
      micro_batch_time_ * static_cast<int64_t>(chance.Between(100, spread)) / 100;
  seat.push_window_bytes = swarm_.push_window_bytes;
  seat.name = std::string(kNames[static_cast<size_t>(role)]) + "@" + std::to_string(seat.place);
  return seat;
}

Process& Cluster::AddProcess(const Seat& seat) {
  return *processes_.emplace_back(std::make_unique<Process>(
      seat, *plan_, Process::Around{world_, network_, disk_, journal_, *this, *this}));
}

void Cluster::StartScheduler(const Seat& seat, bool is_fresh) {
  Process& process = AddProcess(seat);
  leader_ = &process;
  checker_.NoteSchedulerBack();
  Note(seat.name + (is_fresh ? " resumes the run" : " starts"));
  process.Lead({.is_fresh = is_fresh, .next_row = checker_.next_row()});
}

void Cluster::Start(Role role) {
  const uint64_t epoch = power_epoch_;
  uint32_t& under_way = starts_under_way_[static_cast<size_t>(role)];
  ++under_way;
  world_.After(world_.chance().Until(kStartSpread), [this, role, epoch, &under_way] {
    if (epoch != power_epoch_) return;
    --under_way;
    Process& process = AddProcess(NewSeat(role));
    Note(process.seat().name + " starts");
    process.Join();
  });
}

std::vector<Process*> Cluster::Living(Role role) {
  std::vector<Process*> living;
  for (auto& process : processes_) {
    if (process->is_alive() && process->seat().role == role) living.push_back(process.get());
  }
  return living;
}

Process* Cluster::FindAt(Incarnation incarnation) {
  for (auto& process : processes_) {
    if (process->is_alive() && process->incarnation() == incarnation) return process.get();
  }
  return nullptr;
}

Process* Cluster::Leader() { return leader_ != nullptr && leader_->is_alive() ? leader_ : nullptr; }

void Cluster::Kill(Process& process) {
  if (!process.is_alive()) return;
  Note("kill " + process.seat().name);
  if (world_.chance().OneIn(swarm_.lost_connection_share)) {
    network_.ResetConnections(process.incarnation());
  }
  const bool is_leader = &process == Leader();
  TellOfDeath(process);
  process.Kill();
  if (is_leader) checker_.NoteSchedulerAway();
  checker_.OnLost(process);
  const bool is_old_scheduler = process.seat().role == Role::kScheduler && !is_leader;
  if (!is_old_scheduler) StartAgain(process);
}

void Cluster::KillAtCommit() {
  commit_death_ = world_.chance().OneIn(0.5) ? CommitDeath::kBefore : CommitDeath::kAfter;
}

// A supervisor's note, or the scheduler's own sockets, or nothing: then the lease ends it.
void Cluster::TellOfDeath(const Process& process) {
  if (world_.chance().OneIn(swarm_.exit_note_share)) {
    desk_.Tell({.action = "exit",
                .role = process.seat().role,
                .host = process.seat().host,
                .process_id = process.seat().process_id,
                .target = process.seat().name,
                .exited_us = static_cast<uint64_t>(world_.now().count())});
  }
  TellOfDisconnect(process);
}

void Cluster::TellOfDisconnect(const Process& process) {
  if (process.seat().role == Role::kScheduler) return;
  if (!world_.chance().OneIn(swarm_.disconnect_share)) return;
  const Incarnation incarnation = process.incarnation();
  world_.After(Micros(world_.chance().Between(100, 5000)), [this, incarnation] {
    Process* leader = Leader();
    if (leader != nullptr) leader->OnDisconnect(incarnation);
  });
}

void Cluster::Reset(Process& process) {
  Note("connections of " + process.seat().name + " are reset");
  network_.ResetConnections(process.incarnation());
  process.NoteDisturbed(world_.now());
  TellOfDisconnect(process);
}

// While the scheduler gathers, the job needs all that it wants.
bool Cluster::MayStayAway(Role role) {
  if (role == Role::kScheduler || is_healed_) return false;
  Process* leader = Leader();
  return leader != nullptr && leader->scheduler()->phase() != Scheduler::Phase::kGathering;
}

void Cluster::StartAgain(const Process& dead) {
  Chance& chance = world_.chance();
  const Role role = dead.seat().role;
  if (!chance.OneIn(swarm_.restart_share) && MayStayAway(role)) return;
  Seat seat = dead.seat();
  const bool has_old_number = chance.OneIn(swarm_.same_pid_share);
  if (!has_old_number) seat.process_id = next_process_id_++;
  const uint64_t epoch = power_epoch_;
  uint32_t& under_way = starts_under_way_[static_cast<size_t>(role)];
  ++under_way;
  world_.After(Micros(500) + chance.Until(swarm_.restart_after_max),
               [this, seat, epoch, &under_way, has_old_number] {
                 if (epoch != power_epoch_) return;
                 --under_way;
                 if (seat.role == Role::kScheduler) {
                   coverage_.Note(Event::kSchedulerRestart);
                   return StartScheduler(seat, false);
                 }
                 Note(seat.name + " starts again");
                 Process& process = AddProcess(seat);
                 // A note of the old life's death may come late, and be taken for this one's.
                 if (has_old_number) process.NoteDisturbed(world_.now() + kNoteLate);
                 process.Join();
               });
}

void Cluster::Drain(Process& process) {
  if (!process.is_member()) return;
  const char* role = process.seat().role == Role::kServer ? "server-" : "worker ";
  const std::string target = role + std::to_string(process.rank());
  Note("drain " + process.seat().name + ", " + target);
  process.NoteLeaving();
  checker_.NoteDrain(process.seat().role, process.rank());
  desk_.Ask({.kind = CommandKind::kDrain, .target = target});
}

void Cluster::AskToLeave(Process& process) {
  Note("ask " + process.seat().name + " to leave");
  process.AskToLeave();
}

void Cluster::AskForSnapshot() { desk_.Ask({.kind = CommandKind::kSnapshot}); }

// The old one comes back and does not know that it has a successor.
void Cluster::StartSecondScheduler(Micros pause) {
  Process* old = Leader();
  if (old == nullptr) return;
  Note(old->seat().name + " stops, and another takes its place");
  old->StopUntil(world_.now() + pause);
  coverage_.Note(Event::kSchedulerRestart);
  StartScheduler(NewSeat(Role::kScheduler), false);
}

void Cluster::PowerOff() {
  ++power_epoch_;
  for (uint32_t& count : starts_under_way_) count = 0;
  desk_.ForgetAll();
  commit_death_ = CommitDeath::kNone;
  for (size_t i = 0; i < processes_.size(); ++i) processes_[i]->Kill();
  leader_ = nullptr;
  checker_.NoteSchedulerAway();
  checker_.NoteResumed();
  is_powered_ = false;
  world_.After(milliseconds(10), [this, epoch = power_epoch_] {
    if (epoch == power_epoch_) Resume();
  });
}

// On another number of processes.
void Cluster::Resume() {
  is_powered_ = true;
  Chance& chance = world_.chance();
  Job job = plan_->job;
  job.workers = static_cast<uint32_t>(chance.Between(1, 3));
  job.servers = static_cast<uint32_t>(chance.Between(1, 3));
  plan_ = plans_.emplace_back(std::make_unique<JobPlan>(job, plan_->data, plan_->layout)).get();
  const bool is_fresh = journal_.state().has_value();
  if (is_fresh) coverage_.Note(Event::kResume);
  StartScheduler(NewSeat(Role::kScheduler), is_fresh);
  for (uint32_t i = 0; i < job.servers; ++i) Start(Role::kServer);
  for (uint32_t i = 0; i < job.workers; ++i) Start(Role::kWorker);
}

// ---- the healed phase --------------------------------------------------------------------------

void Cluster::Heal() {
  Note("faults end");
  is_healed_ = true;
  faults_.End();
  network_.Heal();
  disk_.Heal();
  commit_death_ = CommitDeath::kNone;
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i]->is_alive() && processes_[i]->is_stopped()) processes_[i]->ContinueNow();
  }
  liveness_deadline_ = world_.now() + LivenessBound(swarm_, *plan_, micro_batch_time_);
  KeepEnough();
}

// Starts the minimum: one of each role, or all while the scheduler gathers.
void Cluster::KeepEnough() {
  Process* leader = Leader();
  const auto under_way = [&](Role role) { return starts_under_way_[static_cast<size_t>(role)]; };
  if (is_powered_ && leader == nullptr && under_way(Role::kScheduler) == 0) {
    coverage_.Note(Event::kSchedulerRestart);
    StartScheduler(NewSeat(Role::kScheduler), false);
    leader = Leader();
  }
  const bool gathers =
      leader != nullptr && leader->scheduler()->phase() == Scheduler::Phase::kGathering;
  for (Role role : {Role::kServer, Role::kWorker}) {
    const uint32_t wanted = role == Role::kServer ? plan_->job.servers : plan_->job.workers;
    const auto count = [&] {
      const auto living = Living(role);
      return std::ranges::count_if(living, [](Process* p) { return !p->is_leaving(); }) +
             under_way(role);
    };
    while (is_powered_ && count() < (gathers ? wanted : 1)) Start(role);
  }
  world_.After(kKeepInterval, [this] { KeepEnough(); });
}

bool Cluster::IsOver() const {
  return journal_.state() && journal_.state()->is_finished && checker_.has_final_weights() &&
         (leader_ == nullptr || leader_->has_left());
}

Outcome Cluster::Run() {
  // After an unnoticed wrong bit the result has no reference.
  const SharedMemory& shared = network_.shared_memory();
  while (!checker_.failure() && !IsOver() && !is_flip_unnoticed_ && world_.Step()) {
    if (shared.is_torn()) checker_.Fail("P42: a reader has had other bytes than were sent");
    if (liveness_deadline_ != Micros(0) && world_.now() > liveness_deadline_) {
      checker_.Fail("I7: not finished in time (" + WhereItHangs() + ")");
    }
  }
  if (!checker_.failure() && !is_flip_unnoticed_) checker_.CheckEnd(*journal_.state());
  coverage_.messages = network_.counts();
  if (shared.read_count() > 0) coverage_.Note(Event::kShared);
  if (shared.overtaken_count() > 0) coverage_.Note(Event::kOvertaken);
  if (disk_.failed_count() + disk_.lost_count() > 0) coverage_.Note(Event::kSnapshotFailure);
  return {.ok = !checker_.failure(),
          .failure = checker_.failure().value_or(""),
          .trace_hash = network_.trace_hash(),
          .message_count = network_.message_count(),
          .finished_at = world_.now(),
          .coverage = coverage_};
}

std::string Cluster::WhereItHangs() {
  std::string text;
  if (Process* leader = Leader()) {
    text = "scheduler in phase " + std::to_string(static_cast<int>(leader->scheduler()->phase())) +
           ", committed " + std::to_string(leader->scheduler()->committed().value());
  }
  if (journal_.state()) {
    const View& view = journal_.state()->view;
    text += ", view " + std::to_string(view.id.term) + "." + std::to_string(view.id.number);
    Note(ViewText(view));
  }
  for (Process* worker : Living(Role::kWorker)) {
    if (worker->computer() == nullptr) continue;
    Note(worker->seat().name + " computes: " + worker->computer()->StateText());
  }
  for (Role role : {Role::kServer, Role::kWorker}) {
    text += ", " + std::to_string(Living(role).size()) +
            (role == Role::kServer ? " servers" : " workers");
  }
  return text;
}

}  // namespace pando::sim
