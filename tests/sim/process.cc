#include "tests/sim/process.h"

#include <utility>

#include "common/check.h"

namespace pando::sim {

// As node/server_process.cc has it.
constexpr Micros kLaneEndMax = std::chrono::seconds(1);

Process::Process(const Seat& seat, const JobPlan& plan, const ProcessAround& around)
    : seat_(seat), plan_(plan), around_(around), loops_(around.world, around.network, seat.place) {}

Process::~Process() = default;

void Process::DropLife() {
  loops_.Drop(self_.incarnation);
  member_ = nullptr;
}

VirtualComputer* Process::computer() {
  return members_.empty() ? nullptr : members_.back()->computer();
}

// ---- lives -------------------------------------------------------------------------------------

void Process::Join() {
  ++life_;
  self_ = {kUnknownNode, Incarnation(around_.world.chance().Next() | 1), 0};
  loops_.BeginLife();
  Register registration{
      .role = seat_.role, .host = seat_.host, .process_id = seat_.process_id, .rack = seat_.rack};
  for (uint16_t lane = 0; seat_.role == Role::kServer && lane < seat_.lane_count; ++lane) {
    registration.lane_endpoints.push_back("tcp://server:" + std::to_string(1 + lane));
  }
  Loop& loop = loops_.Add(is_stopped());
  auto core = std::make_unique<JoinCore>(self_.incarnation, registration, loop.outbox());
  const JoinCore& join = *core;
  loop.SetCore(std::move(core), {.after_tick = [this, &join] {
                 if (!join.has_answer()) return;
                 if (join.welcome()) {
                   return BecomeMember({join.self(0), join.scheduler(), join.job(), around_.seal},
                                       join.welcome()->rank);
                 }
                 PANDO_CHECK(join.refused()->kind != RefusalKind::kNotThisOne);
                 if (loops_.was_given_up()) return JoinAgain();
                 Leave();
               }});
  loops_.Listen(loop, self_);
  loop.WakeSoon();
}

// The real cores' loops begin.
void Process::BecomeMember(const ViewMember::Identity& identity, uint32_t rank) {
  DropLife();
  self_ = identity.self;
  members_.push_back(std::make_unique<Member>(
      Member::Life{.process = *this,
                   .seat = seat_,
                   .plan = plan_,
                   .around = around_,
                   .loops = loops_,
                   .is_stopped = is_stopped(),
                   .is_on = [this, life = life_] { return life == life_ && member_ != nullptr; },
                   .on_finished = [this](StopReason reason, bool all) { OnFinished(reason, all); }},
      identity, rank));
  member_ = members_.back().get();
  Beat(life_);
}

void Process::OnFinished(StopReason reason, bool all) {
  if (loops_.was_given_up()) return JoinAgain();
  left_by_ = reason;
  if (all) return Leave();
  around_.world.After(kLaneEndMax, [this, life = life_] {
    if (life == life_) Leave();
  });
}

// Declared dead: the same process, another incarnation (P19).
void Process::JoinAgain() {
  if (member_ != nullptr) around_.keeper.OnJoinAgain(*this);
  DropLife();
  const uint64_t life = life_;
  around_.world.After(Micros(1000) + around_.world.chance().Until(std::chrono::milliseconds(200)),
                      [this, life] {
                        if (is_alive_ && life == life_) Join();
                      });
}

void Process::Lead(const SchedulerStart& start) {
  ++life_;
  self_ = {kSchedulerNode, Incarnation(around_.world.chance().Next() | 1), 0};
  lead_ = std::make_unique<LeadingLife>(*this, plan_, around_, loops_, start);
}

Scheduler* Process::scheduler() { return lead_ == nullptr ? nullptr : &lead_->scheduler(); }

// ---- ends --------------------------------------------------------------------------------------

void Process::OnDisconnect(Incarnation incarnation) {
  loops_.front().Post(
      [this, incarnation] { scheduler()->OnDisconnect(around_.world.now(), incarnation); });
}

void Process::Kill() {
  if (!is_alive_) return;
  is_alive_ = false;
  DropLife();
}

void Process::Leave() {
  if (!is_alive_) return;
  has_left_ = true;
  Kill();
  around_.keeper.OnLeft(*this);
}

void Process::AskToLeave() {
  if (!is_alive_ || is_leaving_ || member_ == nullptr) return;
  is_leaving_ = true;
  loops_.front().Post([this, life = life_] {
    if (life == life_ && member_ != nullptr) member_->Leave();
  });
}

// ---- stopping, and the heartbeat thread --------------------------------------------------------

void Process::StopUntil(Micros until) {
  if (!is_alive_) return;
  stopped_until_ = std::max(stopped_until_, until);
  disturbance_.NoteUnreachable(stopped_until_);
  loops_.Stop();
  around_.world.After(until - around_.world.now(), [this] {
    if (!is_stopped()) ContinueNow();
  });
}

void Process::ContinueNow() {
  stopped_until_ = Micros(0);
  loops_.Continue();
}

void Process::Beat(uint64_t life) {
  if (!is_alive_ || life != life_ || member_ == nullptr) return;
  if (is_stopped()) {  // late, like everything else of it
    return around_.world.After(stopped_until_ - around_.world.now() + Micros(1),
                               [this, life] { Beat(life); });
  }
  around_.network.Send(seat_.place, member_->MakeHeartbeat());
  around_.world.After(std::chrono::milliseconds(plan_.job.heartbeat_ms),
                      [this, life] { Beat(life); });
}

}  // namespace pando::sim
