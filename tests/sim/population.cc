#include "tests/sim/population.h"

#include <algorithm>
#include <cstdio>

namespace pando::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Place kDeskPlace = 0;
constexpr Micros kStartSpread = milliseconds(50);
constexpr Micros kNoteLate = seconds(10);
constexpr Micros kKeepInterval = milliseconds(500);
constexpr Micros kEtcdLease = seconds(2);
constexpr Micros kElection = milliseconds(300);  // at most, after the lease's end

FolderState LookIntoFolder(const Stage& stage, Checker& checker) {
  const ResultChecker& results = checker.results();
  return {results.next_row(), stage.disk.kept_count(), results.has_final_weights()};
}

// Whether a standby may lead in its place.
bool CanReplace(Process& leader) {
  VirtualCopies* copies = leader.lead()->copies();
  return copies != nullptr && copies->ListedFolder();
}

}  // namespace

void Stage::Note(const std::string& text) const {
  if (!network.is_tracing()) return;
  std::printf("%10ld us  ** %s\n", long{world.now().count()}, text.c_str());
}

Population::Population(const Stage& stage, const Parts& parts)
    : stage_(stage),
      parts_(parts),
      plan_(&parts.plan),
      micro_batch_time_(DrawMicroBatchTime(stage.world.chance(), stage.swarm, parts.plan)),
      desk_(stage.world, stage.network, kJob, kDeskPlace) {}

void Population::Begin() {
  StartScheduler(NewSeat(Role::kScheduler), false);
  for (uint32_t i = 0; i < plan_->job.servers; ++i) Start(Role::kServer);
  for (uint32_t i = 0; i < plan_->job.workers; ++i) Start(Role::kWorker);
}

Seat Population::NewSeat(Role role) {
  static constexpr const char* kNames[] = {"scheduler", "server", "worker", "client"};
  Chance& chance = stage_.world.chance();
  Seat seat{.place = next_place_++, .role = role};
  seat.host = "host" + std::to_string(chance.Below(stage_.swarm.host_count));
  if (stage_.swarm.rack_count > 0)
    seat.rack = "rack" + std::to_string(chance.Below(stage_.swarm.rack_count));
  seat.process_id = next_process_id_++;
  seat.lane_count = static_cast<uint16_t>(chance.Between(1, 2));
  const auto spread = static_cast<uint64_t>(stage_.swarm.speed_spread * 100);
  seat.micro_batch_time =
      micro_batch_time_ * static_cast<int64_t>(chance.Between(100, spread)) / 100;
  seat.push_window_bytes = stage_.swarm.push_window_bytes;
  seat.norm_peers_max = stage_.swarm.norm_peers_max;
  seat.name = std::string(kNames[static_cast<size_t>(role)]) + "@" + std::to_string(seat.place);
  return seat;
}

Process& Population::AddProcess(const Seat& seat) {
  return *parts_.processes.emplace_back(std::make_unique<Process>(
      seat, *plan_,
      ProcessAround{stage_.world, stage_.network, stage_.disk, stage_.swarm.files_travel,
                    stage_.swarm.copy_lag_max,
                    [this] { return LookIntoFolder(stage_, parts_.checker); }, stage_.journal,
                    stage_.seal, parts_.observer, parts_.keeper}));
}

void Population::StartScheduler(const Seat& seat, bool is_resumed) {
  Process& process = AddProcess(seat);
  leader_ = &process;
  parts_.checker.disturbances().NoteSchedulerBack();
  stage_.Note(seat.name + (is_resumed ? " resumes the run" : " starts"));
  process.Lead({.is_resumed = is_resumed, .next_row = parts_.checker.results().next_row()});
}

void Population::Start(Role role) {
  const uint64_t epoch = power_epoch_;
  uint32_t& under_way = starts_under_way_[static_cast<size_t>(role)];
  ++under_way;
  stage_.world.After(stage_.world.chance().Until(kStartSpread), [this, role, epoch, &under_way] {
    if (epoch != power_epoch_) return;
    --under_way;
    Process& process = AddProcess(NewSeat(role));
    stage_.Note(process.seat().name + " starts");
    process.Join();
  });
}

std::vector<Process*> Population::Living(Role role) const {
  std::vector<Process*> living;
  for (auto& process : parts_.processes) {
    if (process->is_alive() && process->seat().role == role) living.push_back(process.get());
  }
  return living;
}

// ---- what the faults do ------------------------------------------------------------------------

void Population::Kill(Process& process) {
  if (!process.is_alive()) return;
  stage_.Note("kill " + process.seat().name);
  if (stage_.world.chance().OneIn(stage_.swarm.lost_connection_share)) {
    stage_.network.ResetConnections(process.incarnation());
  }
  const bool is_leader = &process == Leader();
  // A supervisor's note, or the scheduler's own sockets, or nothing: then the lease ends it.
  if (stage_.world.chance().OneIn(stage_.swarm.exit_note_share)) {
    desk_.Tell({.action = "exit",
                .role = process.seat().role,
                .host = process.seat().host,
                .process_id = process.seat().process_id,
                .target = process.seat().name,
                .exited_us = static_cast<uint64_t>(stage_.world.now().count())});
  }
  TellOfDisconnect(process);
  process.Kill();
  if (is_leader) parts_.checker.disturbances().NoteSchedulerAway();
  const double lost_view_share = is_leader ? stage_.swarm.lost_view_share : 0;
  if (lost_view_share > 0 && stage_.world.chance().OneIn(lost_view_share) &&
      stage_.journal.LoseNewestView(stage_.world.now())) {
    stage_.Note("the journal loses its newest view");
    parts_.checker.NoteLostView();
  }
  parts_.checker.OnLost(process);
  const bool is_old_scheduler = process.seat().role == Role::kScheduler && !is_leader;
  if (!is_old_scheduler) StartAgain(process);
}

void Population::KillAtCommit() {
  commit_death_ = stage_.world.chance().OneIn(0.5) ? CommitPoint::kBefore : CommitPoint::kAfter;
}

void Population::OnCommit(const Process& process, CommitPoint point) {
  if (commit_death_ != point || &process != Leader()) return;
  commit_death_ = CommitPoint::kNone;
  stage_.coverage.Note(Event::kUncommittedDeath);
  Kill(*leader_);
}

void Population::TellOfDisconnect(const Process& process) {
  if (process.seat().role == Role::kScheduler) return;
  if (!stage_.world.chance().OneIn(stage_.swarm.disconnect_share)) return;
  const Incarnation incarnation = process.incarnation();
  stage_.world.After(Micros(stage_.world.chance().Between(100, 5000)), [this, incarnation] {
    Process* leader = Leader();
    if (leader != nullptr) leader->OnDisconnect(incarnation);
  });
}

void Population::Reset(Process& process) {
  stage_.Note("connections of " + process.seat().name + " are reset");
  stage_.network.ResetConnections(process.incarnation());
  process.disturbance().Note(stage_.world.now());
  TellOfDisconnect(process);
}

// While the scheduler gathers, the job needs all that it wants.
bool Population::MayStayAway(Role role) const {
  if (role == Role::kScheduler || is_healed_) return false;
  Process* leader = Leader();
  return leader != nullptr && leader->scheduler()->phase() != Scheduler::Phase::kGathering;
}

void Population::StartAgain(Process& dead) {
  Chance& chance = stage_.world.chance();
  const Role role = dead.seat().role;
  if (!chance.OneIn(stage_.swarm.restart_share) && MayStayAway(role)) return;
  Seat seat = dead.seat();
  const bool has_old_number = chance.OneIn(stage_.swarm.same_pid_share);
  if (!has_old_number) seat.process_id = next_process_id_++;
  const uint64_t epoch = power_epoch_;
  uint32_t& under_way = starts_under_way_[static_cast<size_t>(role)];
  ++under_way;
  stage_.world.After(Micros(500) + chance.Until(stage_.swarm.restart_after_max),
                     [this, &dead, seat, epoch, &under_way, has_old_number] {
                       if (epoch != power_epoch_) return;
                       --under_way;
                       if (seat.role == Role::kScheduler) {
                         if (CanReplace(dead) && stage_.world.chance().OneIn(0.5))
                           return Replace(dead);
                         stage_.coverage.Note(Event::kSchedulerRestart);
                         return StartScheduler(seat, false);
                       }
                       stage_.Note(seat.name + " starts again");
                       Process& process = AddProcess(seat);
                       // A note of the old life's death may come late, and be taken for this one's.
                       if (has_old_number)
                         process.disturbance().Note(stage_.world.now() + kNoteLate);
                       process.Join();
                     });
}

void Population::Drain(Process& process) {
  if (process.member() == nullptr) return;
  const char* role = process.seat().role == Role::kServer ? "server-" : "worker ";
  const std::string target = role + std::to_string(process.member()->rank());
  stage_.Note("drain " + process.seat().name + ", " + target);
  process.NoteLeaving();
  parts_.checker.journal().NoteDrain(process.seat().role, process.member()->rank());
  desk_.Ask({.kind = CommandKind::kDrain, .target = target});
}

void Population::AskToLeave(Process& process) {
  stage_.Note("ask " + process.seat().name + " to leave");
  process.AskToLeave();
}

void Population::Ask(CommandKind kind) {
  stop_count_ += kind == CommandKind::kStop ? 1 : 0;
  desk_.Ask({.kind = kind});
}

// Another scheduler takes this one's place: with a standby's copy of the folder if there are
// standbys, else with the folder.
void Population::Replace(Process& old) {
  stage_.coverage.Note(Event::kSchedulerRestart);
  if (VirtualCopies* copies = old.lead()->copies()) {
    const FolderState copy = *copies->ListedFolder();
    copies->Depose();
    stage_.coverage.Note(Event::kTakeover);
    stage_.Note("a standby leads, with rows before " + std::to_string(copy.next_row.value()));
    parts_.checker.results().GoOnWith(copy.next_row, copy.has_final_weights);
    stage_.disk.LoseAllBut(copy.file_count);
    parts_.checker.journal().CheckFiles(stage_.journal.state());
  }
  StartScheduler(NewSeat(Role::kScheduler), false);
}

// The old one comes back and does not know that it has a successor. A standby leads only when the
// old one's lease has ended.
void Population::StartSecondScheduler(Micros pause) {
  Process* old = Leader();
  if (old == nullptr) return;
  const bool has_copies = old->lead()->copies() != nullptr;
  const Micros lease = has_copies ? kEtcdLease + stage_.world.chance().Until(kElection) : Micros(0);
  stage_.Note(old->seat().name + " stops, and another takes its place");
  old->StopUntil(stage_.world.now() + lease + pause);
  if (!has_copies) return Replace(*old);
  stage_.world.After(lease, [this, old, epoch = power_epoch_] {
    const bool is_stopped = epoch == power_epoch_ && Leader() == old && old->is_stopped();
    if (is_stopped && CanReplace(*old)) Replace(*old);
  });
}

void Population::PowerOff() {
  ++power_epoch_;
  stop_count_ = 0;
  for (uint32_t& count : starts_under_way_) count = 0;
  desk_.ForgetAll();
  commit_death_ = CommitPoint::kNone;
  for (size_t i = 0; i < parts_.processes.size(); ++i) parts_.processes[i]->Kill();
  leader_ = nullptr;
  parts_.checker.disturbances().NoteSchedulerAway();
  parts_.checker.journal().NoteResumed();
  is_powered_ = false;
  stage_.world.After(milliseconds(10), [this, epoch = power_epoch_] {
    if (epoch == power_epoch_) Resume();
  });
}

// On another number of processes.
void Population::Resume() {
  is_powered_ = true;
  Chance& chance = stage_.world.chance();
  Job job = plan_->job;
  job.workers = static_cast<uint32_t>(chance.Between(1, 3));
  job.servers = static_cast<uint32_t>(chance.Between(1, 3));
  plan_ =
      later_plans_.emplace_back(std::make_unique<JobPlan>(job, plan_->data, plan_->layout)).get();
  const bool is_resumed = stage_.journal.state().has_value();
  if (is_resumed) stage_.coverage.Note(Event::kResume);
  StartScheduler(NewSeat(Role::kScheduler), is_resumed);
  for (uint32_t i = 0; i < job.servers; ++i) Start(Role::kServer);
  for (uint32_t i = 0; i < job.workers; ++i) Start(Role::kWorker);
}

// ---- the healed phase --------------------------------------------------------------------------

void Population::Heal() {
  is_healed_ = true;
  commit_death_ = CommitPoint::kNone;
  for (size_t i = 0; i < parts_.processes.size(); ++i) {
    Process& process = *parts_.processes[i];
    if (process.is_alive() && process.is_stopped()) process.ContinueNow();
  }
  KeepEnough();
}

// Starts the minimum: one of each role, or all while the scheduler gathers.
void Population::KeepEnough() {
  Process* leader = Leader();
  const auto under_way = [&](Role role) { return starts_under_way_[static_cast<size_t>(role)]; };
  if (is_powered_ && leader == nullptr && under_way(Role::kScheduler) == 0) {
    stage_.coverage.Note(Event::kSchedulerRestart);
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
  stage_.world.After(kKeepInterval, [this] { KeepEnough(); });
}

}  // namespace pando::sim
