#include "tests/sim/member.h"

#include <algorithm>
#include <utility>

#include "tests/sim/process.h"

namespace pando::sim {

// ---- loops -------------------------------------------------------------------------------------

Loop& ProcessLoops::Add(bool is_stopped) {
  all_loops_.push_back(std::make_unique<Loop>(world_, network_, place_));
  loops_.push_back(all_loops_.back().get());
  if (is_stopped) loops_.back()->Stop();
  return *loops_.back();
}

void ProcessLoops::Listen(Loop& loop, const PeerId& self) {
  network_.Attach(place_, self, [this, &loop](const Envelope& envelope) {
    loop.Post([this, &loop, envelope] {
      const auto* refused = std::get_if<Refused>(&envelope.message);
      was_given_up_ |= refused != nullptr && refused->kind == RefusalKind::kGivenUp &&
                       envelope.sender.node == kSchedulerNode;
      loop.core().OnMessage(world_.now(), envelope);
    });
  });
}

void ProcessLoops::Drop(Incarnation incarnation) {
  for (Loop* loop : loops_) loop->Kill();
  loops_.clear();
  network_.Detach(incarnation);
}

void ProcessLoops::Stop() {
  for (Loop* loop : loops_) loop->Stop();
}

void ProcessLoops::Continue() {
  for (size_t i = 0; i < loops_.size(); ++i) loops_[i]->Continue();
}

// ---- members -----------------------------------------------------------------------------------

// Where a lane stores and restores: the shared disk, or through the scheduler, with the answers on
// the lane's own loop.
class Member::SnapshotDoor : public SnapshotPort {
 public:
  SnapshotDoor(const Life& life, Loop& loop, const std::unique_ptr<RecordQueue>& records)
      : life_(life), loop_(loop), records_(records) {}
  void Serve(Lane* lane) { lane_ = lane; }
  void Store(StoreRequest request) override {
    if (records_ != nullptr) return records_->Push(std::move(request), Answer());
    life_.around.disk.Store(std::move(request), IsAlive(), Answer());
  }
  void Load(LoadRequest request) override {
    if (records_ != nullptr) return records_->Push(request, Answer());
    life_.around.disk.Load(std::move(request), IsAlive(), Answer());
  }

 private:
  VirtualDisk::IsAlive IsAlive() {
    return [this] { return life_.process.is_alive(); };
  }
  VirtualDisk::Done Answer() {
    return [this](SnapshotEvent event) {
      loop_.Post([this, event = std::move(event)] {
        lane_->OnSnapshotEvent(life_.around.world.now(), event);
      });
    };
  }
  const Life& life_;
  Loop& loop_;
  const std::unique_ptr<RecordQueue>& records_;  // of the member
  Lane* lane_ = nullptr;
};

Member::Member(Life life, const ViewMember::Identity& identity, uint32_t rank)
    : life_(std::move(life)), self_(identity.self), rank_(rank) {
  if (life_.seat.role != Role::kServer) AddSession(identity);
  const bool is_server = life_.seat.role == Role::kServer;
  ViewMember::Identity of_lane = identity;
  for (uint16_t i = 0; is_server && i < life_.seat.lane_count; ++i) {
    of_lane.self.lane = i;
    AddLane(of_lane);
  }
  if (is_server && life_.around.files_travel) AddFiles();
}

Member::~Member() = default;

void Member::AddFiles() {
  Loop& loop = life_.loops.Add(life_.is_stopped);
  const PeerId self{self_.node, self_.incarnation, kClientLane};
  auto core = std::make_unique<FileClient>(self, kJob, loop.outbox(), kSmallParts);
  records_ = std::make_unique<RecordQueue>(loop, *core, self.incarnation);
  loop.SetCore(std::move(core), {.after_event = [this] { records_->Advance(); }, .after_tick = {}});
  life_.loops.Listen(loop, self);
}

void Member::AddLane(const ViewMember::Identity& identity) {
  Loop& loop = life_.loops.Add(life_.is_stopped);
  doors_.push_back(std::make_unique<SnapshotDoor>(life_, loop, records_));
  Lane::Options options{identity, "sim"};
  options.buffers = life_.around.network.shared_memory().Source(identity.self);
  options.norm_peers_max = life_.seat.norm_peers_max;
  auto core = std::make_unique<Lane>(options, life_.plan, *doors_.back(), loop.outbox());
  Lane* lane = core.get();
  doors_.back()->Serve(lane);
  lanes_.push_back(lane);
  loop.SetCore(
      std::move(core),
      {.after_event = [this, lane] { life_.around.keeper.OnLaneEvent(life_.process, *lane); },
       .after_tick = [this, lane] { AfterTick(*lane); }});
  life_.loops.Listen(loop, identity.self);
  loop.WakeSoon();
}

void Member::AddSession(const ViewMember::Identity& identity) {
  Loop& loop = life_.loops.Add(life_.is_stopped);
  const ProcessAround& around = life_.around;
  computer_ = std::make_unique<VirtualComputer>(
      around.world, life_.plan, life_.seat.micro_batch_time,
      VirtualComputer::Hooks{
          .post = [&loop](std::function<void()> event) { loop.Post(std::move(event)); },
          .deliver =
              [&around, &loop](const ComputeEvent& event) {
                const auto* hashed = std::get_if<GradientHashed>(&event);
                if (hashed != nullptr && hashed->hash == 0)
                  around.keeper.OnUnverified(hashed->step, hashed->micro_batch);
                static_cast<Session&>(loop.core()).OnComputeEvent(around.world.now(), event);
              },
          .flips_bit =  // what an earlier life computed to its end leaves no more
          [this](Step step, MicroBatch m) {
            return life_.is_on() && life_.around.keeper.FlipsBit(life_.process, step, m);
          },
          .buffers = around.network.shared_memory().Source(identity.self)});
  Session::Options options{.identity = identity, .ready = {}};
  options.ready.kind = "sim";
  options.push_window_bytes = life_.seat.push_window_bytes;
  options.sum_buffers = around.network.shared_memory().Source(identity.self);
  auto core = std::make_unique<Session>(options, life_.plan, *computer_, loop.outbox());
  session_ = core.get();
  loop.SetCore(
      std::move(core),
      {.after_event = [this] { life_.around.keeper.OnSessionEvent(life_.process, *session_); },
       .after_tick =
           [this] {
             if (session_->finished())
               life_.on_finished(session_->lifecycle().stop().reason, /*all=*/true);
           }});
  life_.loops.Listen(loop, identity.self);
  loop.WakeSoon();
}

// One lane refused is the whole process refused.
void Member::AfterTick(const Lane& lane) {
  if (!lane.finished()) return;
  const bool all = std::ranges::all_of(lanes_, [](const Lane* other) { return other->finished(); });
  life_.on_finished(lane.stop().reason, all);
}

void Member::Leave() {
  const Micros now = life_.around.world.now();
  if (session_ != nullptr) session_->Leave(now);
  if (!lanes_.empty()) lanes_.front()->StartLeaving(now);
}

Envelope Member::MakeHeartbeat() const {
  return {.job = kJob,
          .generation = view().generation,
          .view = view().id,
          .sender = self_,
          .receiver = session_ ? session_->scheduler() : lanes_.front()->scheduler(),
          .message = session_ ? session_->CurrentActivity(life_.around.world.now())
                              : Heartbeat{Activity::kServing}};
}

}  // namespace pando::sim
