#include "tests/sim/process.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace pando::sim {

// Where a lane stores and restores: the shared disk, with the answers on the lane's own loop.
class Process::SnapshotDoor : public SnapshotPort {
 public:
  SnapshotDoor(Process& process, Loop& loop) : process_(process), loop_(loop) {}
  void Serve(Lane* lane) { lane_ = lane; }
  void Store(StoreRequest request) override {
    process_.around_.disk.Store(std::move(request), IsAlive(), Answer());
  }
  void Load(LoadRequest request) override {
    process_.around_.disk.Load(std::move(request), IsAlive(), Answer());
  }

 private:
  VirtualDisk::IsAlive IsAlive() {
    return [this] { return process_.is_alive(); };
  }
  VirtualDisk::Done Answer() {
    return [this](SnapshotEvent event) {
      loop_.Post([this, event = std::move(event)] {
        lane_->OnSnapshotEvent(process_.around_.world.now(), event);
      });
    };
  }
  Process& process_;
  Loop& loop_;
  Lane* lane_ = nullptr;
};

class Process::JournalPort : public Journal {
 public:
  explicit JournalPort(Process& process) : process_(process) {}
  Status Commit(const SchedulerState& state) override {
    const Around& around = process_.around_;
    if (process_.is_alive()) around.keeper.BeforeCommit(process_);
    if (!process_.is_alive()) return {};  // dead: what it believes goes nowhere
    const std::optional<SchedulerState> before = around.journal.state();
    const bool is_taken = around.journal.Commit(process_.incarnation_, state);
    around.keeper.OnCommitted(process_, before, is_taken);
    return is_taken ? Status() : Unavailable("another scheduler leads this run");
  }

 private:
  Process& process_;
};

// Events of a dead scheduler are ignored.
class Process::ObserverDoor : public RunObserver {
 public:
  explicit ObserverDoor(Process& process) : process_(process) {}
  void OnEvent(Micros now, const RunEvent& event) override {
    if (process_.is_alive()) process_.around_.observer.OnEvent(now, event);
  }
  void OnStepMetrics(Micros now, const StepMetrics& metrics) override {
    if (process_.is_alive()) process_.around_.observer.OnStepMetrics(now, metrics);
  }
  void OnEvaluation(Micros now, const EvaluationSummary& summary) override {
    if (process_.is_alive()) process_.around_.observer.OnEvaluation(now, summary);
  }
  void OnEvaluationsDropped(Micros now, Version last_good) override {
    if (process_.is_alive()) process_.around_.observer.OnEvaluationsDropped(now, last_good);
  }
  Status OnSnapshotRipe(Micros now, const SnapshotManifest& manifest) override {
    return process_.is_alive() ? process_.around_.observer.OnSnapshotRipe(now, manifest) : Status();
  }
  void OnSnapshot(Micros now, const SnapshotManifest& manifest) override {
    if (process_.is_alive()) process_.around_.observer.OnSnapshot(now, manifest);
  }
  void OnSnapshotDropped(Micros now, const SnapshotManifest& manifest) override {
    if (process_.is_alive()) process_.around_.observer.OnSnapshotDropped(now, manifest);
  }
  void OnFault(Micros now, const FaultRecord& record) override {
    if (process_.is_alive()) process_.around_.observer.OnFault(now, record);
  }
  void OnSnapshotForgotten(Micros now, const SnapshotRef& snapshot) override {
    if (process_.is_alive()) process_.around_.observer.OnSnapshotForgotten(now, snapshot);
  }
  Status OnFinalWeights(Micros now, Version version, const FloatBuffer& flat) override {
    return process_.is_alive() ? process_.around_.observer.OnFinalWeights(now, version, flat)
                               : Status();
  }

 private:
  Process& process_;
};

Process::Process(const Seat& seat, const JobPlan& plan, Around around)
    : seat_(seat), plan_(plan), around_(around) {}

Process::~Process() = default;

Loop& Process::AddLoop() {
  all_loops_.push_back(std::make_unique<Loop>(around_.world, around_.network, seat_.place));
  loops_.push_back(all_loops_.back().get());
  if (is_stopped()) loops_.back()->Stop();
  return *loops_.back();
}

void Process::DropLoops() {
  for (Loop* loop : loops_) loop->Kill();
  loops_.clear();
  lanes_.clear();
  session_ = nullptr;
  around_.network.Detach(incarnation_);
}

void Process::Listen(Loop& loop, const PeerId& self) {
  around_.network.Attach(seat_.place, self, [this, &loop](const Envelope& envelope) {
    loop.Post([this, &loop, envelope] {
      const auto* refused = std::get_if<Refused>(&envelope.message);
      was_given_up_ |= refused != nullptr && refused->kind == RefusalKind::kGivenUp;
      loop.core().OnMessage(around_.world.now(), envelope);
    });
  });
}

// ---- lives -------------------------------------------------------------------------------------

void Process::Join() {
  ++life_;
  incarnation_ = Incarnation(around_.world.chance().Next() | 1);
  self_ = {kUnknownNode, incarnation_, 0};
  was_given_up_ = false;
  Register registration{.role = seat_.role, .host = seat_.host, .process_id = seat_.process_id};
  for (uint16_t lane = 0; seat_.role == Role::kServer && lane < seat_.lane_count; ++lane) {
    registration.lane_endpoints.push_back("ipc://lane-" + std::to_string(lane));
  }
  Loop& loop = AddLoop();
  auto core = std::make_unique<JoinCore>(incarnation_, registration, loop.outbox());
  const JoinCore& join = *core;
  loop.SetCore(std::move(core), {.after_tick = [this, &join] {
                 if (!join.has_answer()) return;
                 if (join.welcome()) return BecomeMember(join);
                 PANDO_CHECK(join.refused()->kind != RefusalKind::kNotThisOne);
                 if (was_given_up_) return JoinAgain();
                 Leave();
               }});
  Listen(loop, self_);
  loop.WakeSoon();
}

// Welcomed: the joiner's loop ends, the real cores' loops begin.
void Process::BecomeMember(const JoinCore& join) {
  const PeerId self = join.self(0);
  const PeerId scheduler = join.scheduler();
  const JobId job = join.job();
  rank_ = join.welcome()->rank;
  DropLoops();
  self_ = self;
  if (seat_.role == Role::kServer) {
    for (uint16_t i = 0; i < seat_.lane_count; ++i) {
      AddLane({{self.node, self.incarnation, i}, scheduler, job});
    }
  } else {
    AddSession({self, scheduler, job});
  }
  Beat(life_);
}

void Process::AddLane(const ViewMember::Identity& identity) {
  Loop& loop = AddLoop();
  doors_.push_back(std::make_unique<SnapshotDoor>(*this, loop));
  Lane::Options options{identity, "sim"};
  options.buffers = around_.network.shared_memory().Source(identity.self);
  auto core = std::make_unique<Lane>(options, plan_, *doors_.back(), loop.outbox());
  Lane* lane = core.get();
  doors_.back()->Serve(lane);
  lanes_.push_back(lane);
  loop.SetCore(std::move(core),
               {.after_event = [this, lane] { around_.keeper.OnLaneEvent(*this, *lane); },
                .after_tick = [this, lane] { AfterTick(*lane); }});
  Listen(loop, identity.self);
  loop.WakeSoon();
}

void Process::AddSession(const ViewMember::Identity& identity) {
  Loop& loop = AddLoop();
  if (computer_) old_computers_.push_back(std::move(computer_));  // events still name it
  computer_ = std::make_unique<VirtualComputer>(
      around_.world, plan_, seat_.micro_batch_time,
      VirtualComputer::Hooks{
          .post = [&loop](std::function<void()> event) { loop.Post(std::move(event)); },
          .deliver =
              [this, &loop](const ComputeEvent& event) {
                const auto* hashed = std::get_if<GradientHashed>(&event);
                if (hashed != nullptr && hashed->hash == 0)
                  around_.keeper.OnUnverified(hashed->step, hashed->micro_batch);
                static_cast<Session&>(loop.core()).OnComputeEvent(around_.world.now(), event);
              },
          .flips_bit =  // what an earlier life computed to its end leaves no more
          [this, life = life_](Step step, MicroBatch m) {
            return life == life_ && session_ != nullptr && around_.keeper.FlipsBit(*this, step, m);
          },
          .buffers = around_.network.shared_memory().Source(identity.self)});
  Session::Options options{.identity = identity, .ready = {}};
  options.ready.kind = "sim";
  options.push_window_bytes = seat_.push_window_bytes;
  options.sum_buffers = around_.network.shared_memory().Source(identity.self);
  auto core = std::make_unique<Session>(options, plan_, *computer_, loop.outbox());
  Session* session = core.get();
  session_ = session;
  loop.SetCore(std::move(core),
               {.after_event = [this, session] { around_.keeper.OnSessionEvent(*this, *session); },
                .after_tick = [this, session] { AfterTick(*session); }});
  Listen(loop, identity.self);
  loop.WakeSoon();
}

// Declared dead: the same process, another incarnation (P19).
void Process::JoinAgain() {
  if (is_member()) around_.keeper.OnJoinAgain(*this);
  DropLoops();
  const uint64_t life = life_;
  around_.world.After(Micros(1000) + around_.world.chance().Until(std::chrono::milliseconds(200)),
                      [this, life] {
                        if (is_alive_ && life == life_) Join();
                      });
}

void Process::Lead(const SchedulerStart& start) {
  ++life_;
  incarnation_ = Incarnation(around_.world.chance().Next() | 1);
  self_ = {kSchedulerNode, incarnation_, 0};
  Loop& loop = AddLoop();
  journal_port_ = std::make_unique<JournalPort>(*this);
  observer_door_ = std::make_unique<ObserverDoor>(*this);
  auto core =
      std::make_unique<Scheduler>(Scheduler::Options{.self = self_,
                                                     .job = kJob,
                                                     .job_toml = "simulated",
                                                     .snapshot_dir = "simulated",
                                                     .next_row = start.next_row,
                                                     .state = around_.journal.Open(incarnation_),
                                                     .is_fresh = start.is_fresh},
                                  plan_, *journal_port_, *observer_door_, loop.outbox());
  scheduler_ = core.get();
  loop.SetCore(std::move(core), {.after_tick = [this] {
                 if (scheduler_->finished() || scheduler_->fenced()) Leave();
               }});
  around_.network.SetScheduler(self_);
  around_.network.Attach(seat_.place, self_, [this, &loop](const Envelope& envelope) {
    loop.Post([this, envelope] { scheduler_->OnMessage(around_.world.now(), envelope); });
  });
  loop.WakeSoon();
}

// ---- ends --------------------------------------------------------------------------------------

void Process::OnDisconnect(Incarnation incarnation) {
  loops_.front()->Post(
      [this, incarnation] { scheduler_->OnDisconnect(around_.world.now(), incarnation); });
}

void Process::Kill() {
  if (!is_alive_) return;
  is_alive_ = false;
  DropLoops();
}

void Process::Leave() {
  if (!is_alive_) return;
  has_left_ = true;
  Kill();
  around_.keeper.OnLeft(*this);
}

// One lane refused is the whole process refused.
void Process::AfterTick(const Lane& lane) {
  if (!lane.finished()) return;
  if (was_given_up_) return JoinAgain();
  const bool all = std::ranges::all_of(lanes_, [](const Lane* other) { return other->finished(); });
  if (!all) return;
  left_by_ = lane.stop().reason;
  Leave();
}

void Process::AfterTick(const Session& session) {
  if (!session.finished()) return;
  if (was_given_up_) return JoinAgain();
  left_by_ = session.lifecycle().stop().reason;
  Leave();
}

void Process::AskToLeave() {
  if (!is_alive_ || is_leaving_ || !is_member()) return;
  is_leaving_ = true;
  loops_.front()->Post([this, life = life_] {
    if (life != life_) return;
    if (session_ != nullptr) session_->Leave(around_.world.now());
    if (!lanes_.empty()) lanes_.front()->StartLeaving(around_.world.now());
  });
}

// ---- stopping, and the heartbeat thread --------------------------------------------------------

void Process::StopUntil(Micros until) {
  if (!is_alive_) return;
  stopped_until_ = std::max(stopped_until_, until);
  NoteUnreachable(stopped_until_);
  for (Loop* loop : loops_) loop->Stop();
  around_.world.After(until - around_.world.now(), [this] {
    if (!is_stopped()) ContinueNow();
  });
}

void Process::ContinueNow() {
  stopped_until_ = Micros(0);
  for (size_t i = 0; i < loops_.size(); ++i) loops_[i]->Continue();
}

void Process::Beat(uint64_t life) {
  if (!is_alive_ || life != life_ || !is_member()) return;
  const Micros interval = std::chrono::milliseconds(plan_.job.heartbeat_ms);
  const Micros now = around_.world.now();
  if (is_stopped()) {  // late, like everything else of it
    return around_.world.After(stopped_until_ - now + Micros(1), [this, life] { Beat(life); });
  }
  around_.network.Send(
      seat_.place,
      {.job = kJob,
       .generation = view().generation,
       .view = view().id,
       .sender = self_,
       .receiver = session_ ? session_->scheduler() : lanes_.front()->scheduler(),
       .message = session_ ? session_->CurrentActivity(now) : Heartbeat{Activity::kServing}});
  around_.world.After(interval, [this, life] { Beat(life); });
}

}  // namespace pando::sim
