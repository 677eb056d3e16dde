#include "tests/sim/declarations.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/hash.h"

namespace pando::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Place kSchedulerPlace = 0;
constexpr const char* kUsual = "usual";
constexpr const char* kOther = "other";
constexpr const char* kImpossible = "impossible";
constexpr size_t kUsualFloats = 2 * kMessageBytes / sizeof(float) + 1;  // three parts
constexpr size_t kOtherFloats = kMessageBytes / sizeof(float) + 1;
constexpr Micros kRestartMax = milliseconds(500);
constexpr Micros kWriteMax = milliseconds(20);
// P43 with all alive and no loss: each process that is dead or has left may hold a turn once more.
constexpr Micros kBound = seconds(20);

Result<uint64_t> Judge(const std::string& job) {
  if (job == kUsual) return kUsualFloats * sizeof(float);
  if (job == kOther) return kOtherFloats * sizeof(float);
  return InvalidArgument("no such model");
}

NetworkOptions DrawNetwork(Chance& chance) {
  const bool is_noisy = chance.OneIn(0.6);
  return {.loss = is_noisy ? 0.1 : 0,
          .duplication = is_noisy ? 0.2 : 0,
          .delay_max = Micros(chance.Between(100, 5000)),
          .straggle = is_noisy ? 0.05 : 0};
}

// As the run's job.toml names version 0.
std::string JobText(const std::string& model, const FloatBuffer& init) {
  return model + " " + HexText(Hash64(std::as_bytes(init.span())));
}

}  // namespace

Declarations::Program::Program(Declarations& story, Place place_in)
    : place(place_in), loops(story.world_, story.network_, place_in) {}

Declarations::Declarations(const Cluster::Options& options)
    : world_(options.seed),
      network_(world_, DrawNetwork(world_.chance())),
      plan_(MakePlan(/*workers=*/4, /*servers=*/1, /*replicas=*/1)),
      scheduler_loops_(world_, network_, kSchedulerPlace) {
  network_.SetTrace(options.is_tracing);
  network_.SetWatch([this](Envelope& envelope) { return OnSent(envelope); });
  Chance& chance = world_.chance();
  has_equal_versions_ = chance.OneIn(0.3);
  if (chance.OneIn(0.7)) kill_share_ = 0.2;
  if (chance.OneIn(0.5)) stop_share_ = 0.1;
  const Place last = static_cast<Place>(chance.Between(2, 5));
  for (Place place = 1; place <= last; ++place) {
    Program& program = *programs_.emplace_back(std::make_unique<Program>(*this, place));
    if (place > 1) program.model = kUsual;
    if (place > 2 && chance.OneIn(0.3)) program.model = chance.OneIn(0.7) ? kOther : kImpossible;
    world_.After(chance.Until(milliseconds(50)), [this, &program] { Join(program); });
  }
  world_.After(chance.Until(milliseconds(300)), [this] { StartScheduler(); });
  for (uint64_t i = chance.Below(4); i > 0; --i)
    world_.After(chance.Until(seconds(3)), [this] { KillScheduler(); });
  world_.After(seconds(1) + chance.Until(seconds(6)), [this] { Heal(); });
}

Declarations::~Declarations() = default;

Outcome Declarations::Run() {
  while (failure_.empty() && !IsOver() && world_.Step()) {
    if (is_healed_ && world_.now() > deadline_) Fail("I7: a process has no answer");
  }
  Outcome outcome{.ok = failure_.empty(),
                  .failure = failure_,
                  .trace_hash = network_.trace_hash(),
                  .message_count = network_.message_count(),
                  .finished_at = world_.now()};
  outcome.coverage.messages = network_.counts();
  return outcome;
}

// ---- workers and the server --------------------------------------------------------------------

void Declarations::Join(Program& program) {
  Chance& chance = world_.chance();
  program.phase = Phase::kJoins;
  program.self = Incarnation(chance.Next() | 1);
  program.loops.BeginLife();
  const bool is_worker = !program.model.empty();
  Register registration{.role = is_worker ? Role::kWorker : Role::kServer,
                        .host = "h",
                        .process_id = 100 + program.place};
  if (!is_worker) registration.lane_endpoints = {"tcp://server:1"};
  if (is_worker) {
    const size_t size = program.model == kOther ? kOtherFloats : kUsualFloats;
    const auto version = std::make_shared<FloatBuffer>(size);
    const float value = has_equal_versions_ ? 1 : static_cast<float>(chance.Below(1 << 20));
    std::ranges::fill(version->span(), value);
    program.declared = {program.model, ToBlob(version)};
  }
  Loop& loop = program.loops.Add(false);
  auto core = std::make_unique<JoinCore>(program.self, registration, loop.outbox(),
                                         is_worker ? &program.declared : nullptr);
  program.join = core.get();
  loop.SetCore(std::move(core), {.after_tick = [this, &program] {
                 if (program.join->has_answer()) OnAnswer(program);
               }});
  program.loops.Listen(loop, {kUnknownNode, program.self, 0});
  loop.WakeSoon();
}

// As ProgramWorker has it.
void Declarations::OnAnswer(Program& program) {
  program.loops.Drop(program.self);
  if (const auto& refused = program.join->refused()) {
    if (refused->kind == RefusalKind::kGivenUp) return Join(program);
    program.phase = Phase::kHasLeft;
    if (program.model != kImpossible) Fail("P43: a worker is refused: " + refused->reason);
    return;
  }
  const std::string& run = program.join->welcome()->job_toml;
  const bool fits = program.model.empty() || run.starts_with(program.model + " ");
  program.phase = fits ? Phase::kIsMember : Phase::kHasLeft;
}

void Declarations::Kill(Program& program) {
  Note("kill at place " + std::to_string(program.place));
  program.loops.Drop(program.self);
  program.phase = Phase::kDead;
  if (world_.chance().OneIn(0.3)) return;  // it comes back when faults end
  world_.After(world_.chance().Until(kRestartMax), [this, &program] {
    if (program.phase == Phase::kDead) Join(program);
  });
}

void Declarations::Stop(ProcessLoops& loops) {
  Note("a stop");
  loops.Stop();
  world_.After(world_.chance().Until(seconds(4)), [&loops] { loops.Continue(); });
}

// ---- the scheduler -----------------------------------------------------------------------------

// As node/scheduler_process.cc: what a job file declares is led.
void Declarations::StartScheduler() {
  scheduler_ = Incarnation(world_.chance().Next() | 1);
  ++scheduler_life_;
  const PeerId self{kSchedulerNode, scheduler_, 0};
  Loop& loop = scheduler_loops_.Add(false);
  if (folder_.job.empty()) {
    auto core = std::make_unique<DeclarationIntake>(self, Judge, loop.outbox());
    DeclarationIntake& intake = *core;
    loop.SetCore(std::move(core), {.after_tick = [this, &intake] {
                   if (intake.is_whole()) Keep(intake);
                 }});
  } else {
    loop.SetCore(std::make_unique<Scheduler>(Scheduler::Options{.self = self,
                                                                .job = kJob,
                                                                .job_toml = folder_.job,
                                                                .snapshot_dir = "simulated",
                                                                .state = journal_.state},
                                             plan_, journal_, observer_, loop.outbox()),
                 {});
  }
  network_.SetScheduler(self);
  scheduler_loops_.Listen(loop, self);
  loop.WakeSoon();
  for (auto& [place, envelope] : std::exchange(waiting_, {}))
    if (Find(envelope.sender.incarnation) != nullptr) network_.Send(place, std::move(envelope));
}

void Declarations::KillScheduler() {
  if (scheduler_life_ == 0 || is_healed_) return;
  Note("kill of the scheduler");
  scheduler_loops_.Drop(scheduler_);
  scheduler_ = Incarnation();
  world_.After(world_.chance().Until(kRestartMax), [this, life = ++scheduler_life_] {
    if (life == scheduler_life_) StartScheduler();
  });
}

// As node/programs/declaration.cc: version 0, then the job. Meanwhile no message is read.
void Declarations::Keep(DeclarationIntake& intake) {
  scheduler_loops_.Drop(scheduler_);
  scheduler_ = Incarnation();
  const std::string model = intake.job_toml();
  const std::vector<std::byte> bytes = intake.TakeBytes();
  const auto init = std::make_shared<FloatBuffer>(bytes.size() / sizeof(float));
  std::memcpy(init->data(), bytes.data(), bytes.size());
  Chance& chance = world_.chance();
  const auto later = [this, life = ++scheduler_life_](Micros delay, auto action) {
    world_.After(delay, [this, life, action] {
      if (life == scheduler_life_) action();
    });
  };
  const Micros first = chance.Until(kWriteMax), second = first + chance.Until(kWriteMax);
  later(first, [this, init] { folder_.init = init; });
  later(second, [this, model, init] { folder_.job = JobText(model, *init); });
  later(second + chance.Until(kWriteMax), [this] { StartScheduler(); });
  const Micros dies_at = chance.Until(4 * kWriteMax);
  if (chance.OneIn(0.3)) later(dies_at, [this] { KillScheduler(); });
}

// ---- faults and rules --------------------------------------------------------------------------

void Declarations::CheckWelcome(const Welcome& welcome) {
  const std::string& job = welcome.job_toml;
  const std::string model = job.substr(0, job.find(' '));
  if (job != folder_.job || folder_.init == nullptr || JobText(model, *folder_.init) != job)
    return Fail("P43: a process is welcomed before the declaration is durable");
  const Result<uint64_t> size = Judge(model);
  const auto init = std::as_const(*folder_.init).span();
  const bool is_mixed = std::ranges::any_of(init, [&](float f) { return f != init[0]; });
  if (!size.ok() || init.size_bytes() != *size || is_mixed)
    Fail("P43: version 0 is not one program's, or not whole");
}

bool Declarations::OnSent(Envelope& envelope) {
  if (const auto* welcome = std::get_if<Welcome>(&envelope.message)) CheckWelcome(*welcome);
  const auto* part = std::get_if<Declaration>(&envelope.message);
  Program* sender = Find(envelope.sender.incarnation);
  if (envelope.receiver.node == kSchedulerNode && scheduler_ == Incarnation()) {
    waiting_.emplace_back(sender->place, envelope);  // in the sender's queue
    return false;
  }
  if (part != nullptr && !is_healed_) {
    world_.After(Micros(0), [this, self = sender->self] {
      Program* program = Find(self);
      if (program == nullptr || program->phase != Phase::kJoins || is_healed_) return;
      if (world_.chance().OneIn(kill_share_)) return Kill(*program);
      if (world_.chance().OneIn(stop_share_)) Stop(program->loops);
    });
    if (world_.chance().OneIn(0.1)) network_.RepeatLater(world_.chance().Until(seconds(6)));
  }
  return true;
}

void Declarations::Heal() {
  Note("faults end");
  is_healed_ = true;
  network_.Heal();
  for (const auto& program : programs_) {
    if (program->phase == Phase::kDead) Join(*program);
  }
  deadline_ = world_.now() + kBound;
}

bool Declarations::IsOver() const {
  return is_healed_ && std::ranges::none_of(programs_, [](const auto& program) {
           return program->phase == Phase::kJoins;
         });
}

void Declarations::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what + ", at " + std::to_string(world_.now().count()) + " us";
}

Declarations::Program* Declarations::Find(Incarnation incarnation) const {
  const auto it = std::ranges::find_if(programs_, [&](const auto& program) {
    return program->self == incarnation && program->phase != Phase::kDead;
  });
  return it == programs_.end() ? nullptr : it->get();
}

void Declarations::Note(const std::string& text) const {
  if (network_.is_tracing())
    std::printf("%10ld us  ** %s\n", long{world_.now().count()}, text.c_str());
}

}  // namespace pando::sim
