// Runs a server or a worker as in the product, without a real scheduler, model and data set: the
// load makes the plan. With keys (PANDO_KEYS) connections are secured as in the product;
// PANDO_BENCH_CLEAR stands for run.encrypt = "control".
#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <optional>

#include "bench/cpp/push_pull/load_generator.h"
#include "bench/cpp/push_pull/peers.h"
#include "common/system.h"
#include "files/folder_files.h"
#include "net/event_loop.h"
#include "net/heartbeat_sender.h"
#include "proto/join_core.h"
#include "run/snapshot_store.h"
#include "server/lane.h"

namespace pando::bench {

Keys KeysOfBench(KeyRole purpose) {
  Result<Keys> keys = FindKeys("", purpose);
  PANDO_CHECK(keys.ok());
  return *std::move(keys);
}

namespace {

// Peer is what a server and a worker share: a connection to the scheduler, a place in its view.
class Peer {
 public:
  Peer(const PeerArgs& args, Role role) : args_(args), role_(role) {}

  // Registers until the scheduler answers. Only the parent process limits the time.
  Status Join() {
    Register registration{.role = role_,
                          .host = "localhost",
                          .process_id = static_cast<uint32_t>(getpid()),
                          .wanted_rank = args_.rank,
                          .public_key = transport_.guard().public_key()};
    if (role_ == Role::kServer) {
      PANDO_ASSIGN_OR_RETURN(const std::string bound, transport_.Bind(args_.endpoint));
      registration.lane_endpoints = {bound};
    }
    PANDO_RETURN_IF_ERROR(transport_.Dial({kSchedulerNode, {}, 0}, args_.join));
    JoinCore join(incarnation_, std::move(registration), transport_);
    RunLoop(join, transport_, {.is_finished = [&] { return join.has_answer(); }});
    identity_ = {join.self(0), join.scheduler(), join.job()};
    if (std::getenv("PANDO_BENCH_CLEAR") != nullptr)
      PANDO_RETURN_IF_ERROR(transport_.SpeakInClear());
    const HeartbeatState state{.job = identity_.job, .scheduler = identity_.scheduler};
    heartbeat_.emplace(context_, HeartbeatSender::Options{identity_.self, args_.join}, state);
    PANDO_RETURN_IF_ERROR(heartbeat_->Start());
    return args_.load.shares_memory ? ShareMemory() : Status();
  }

  // Runs until `is_finished`, or until a peer cannot be dialed.
  template <class Core>
  Status Run(Core& core, const std::function<bool()>& is_finished) {
    Status dialed;
    RunLoop(
        core, transport_,
        {.next_view = [&](const Envelope& envelope) { return core.NextView(envelope); },
         .on_view =
             [&](const View& view) { dialed = DialView(transport_, role_, identity_.self, view); },
         .is_finished = [&] { return is_finished() || !dialed.ok(); }});
    return dialed;
  }

  Incarnation incarnation() const { return incarnation_; }
  const ViewMember::Identity& identity() const { return identity_; }
  Outbox& outbox() { return transport_; }
  const Status& sharing_failure() const { return transport_.sharing_failure(); }
  // Returns the source of payloads' memory.
  const BufferSource& buffers() const { return buffers_; }

 private:
  Status ShareMemory() {
    Result<std::shared_ptr<SharedPool>> pool = SharedPool::Create();
    if (!pool.ok()) return pool.status();
    buffers_ = (*pool)->source();
    return transport_.ShareMemory({.pool = *pool, .is_required = true, .on_note = {}});
  }

  const PeerArgs& args_;
  const Role role_;
  const Incarnation incarnation_ = NewIncarnation();
  ZmqContext context_{KeysOfBench(KeyRole::kMember)};
  Transport transport_{
      context_, {kUnknownNode, incarnation_, 0}, {.on_warning = [](const std::string& text) {
        fmt::print(stderr, "{}\n", text);
      }}};
  ViewMember::Identity identity_;
  std::optional<HeartbeatSender> heartbeat_;
  BufferSource buffers_;
};

}  // namespace

Status RunPandoServer(const PeerArgs& args) {
  SetFloatEnvironment();
  KeepFreedMemory();
  Peer peer(args, Role::kServer);
  PANDO_RETURN_IF_ERROR(peer.Join());
  const JobPlan plan = MakePlan(args.load);
  SnapshotStore store({.files = std::make_unique<FolderFiles>(""),
                       .process = peer.incarnation(),
                       .job = peer.identity().job});
  SnapshotStore::Port snapshots(store);
  Lane lane({.identity = peer.identity(), .kind = "server", .buffers = peer.buffers()}, plan,
            snapshots, peer.outbox());
  return peer.Run(lane, [&] { return lane.finished(); });
}

Status RunPandoWorker(const PeerArgs& args, CounterSlot& counters) {
  SetFloatEnvironment();
  KeepFreedMemory();
  Peer peer(args, Role::kWorker);
  PANDO_RETURN_IF_ERROR(peer.Join());
  const JobPlan plan = MakePlan(args.load);
  LoadGenerator load(args.load, peer.identity(), args.rank, plan, counters, peer.outbox(),
                     peer.buffers());
  const Status dialed = peer.Run(load, [&] { return !peer.sharing_failure().ok(); });
  return dialed.ok() ? peer.sharing_failure() : dialed;
}

}  // namespace pando::bench
