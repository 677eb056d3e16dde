// `pando server`: one process, several lanes, each a thread with its own sockets and shards.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "cli/exit_codes.h"
#include "cli/log.h"
#include "cli/node_join.h"
#include "cli/processes.h"
#include "common/float_env.h"
#include "net/address.h"
#include "net/incarnation.h"
#include "net/isolation.h"
#include "server/lane.h"
#include "server/snapshot_store.h"

namespace pando {
namespace {

// Cores that one lane is worth: summing and updating are bound by memory, not by arithmetic.
constexpr uint32_t kCoresPerLane = 4;
constexpr uint32_t kDefaultLanesMax = 8;
// How long the other lanes may take to hear of the end that lane 0 has heard of.
constexpr auto kLaneEndMax = std::chrono::seconds(1);

uint32_t LaneCountOf(const ServerArgs& args) {
  if (args.lanes != 0) return args.lanes;
  return std::clamp(std::thread::hardware_concurrency() / kCoresPerLane, 1u, kDefaultLanesMax);
}

// Where lane `lane` listens: a port of its own, or a path of its own.
Result<std::string> LaneEndpoint(const std::string& bind, uint32_t lane) {
  Result<Endpoint> endpoint = ParseEndpoint(bind);
  if (!endpoint.ok()) return endpoint.status();
  if (endpoint->kind == Endpoint::Kind::kIpc) endpoint->path += fmt::format("-{}", lane);
  if (endpoint->port + lane > UINT16_MAX) {
    return InvalidArgument(
        fmt::format("--bind {}: lane {} would listen at port {}, and the last is {}; bind a lower "
                    "port, or port 0 for any free ones",
                    bind, lane, endpoint->port + lane, UINT16_MAX));
  }
  if (endpoint->port != 0) endpoint->port = static_cast<uint16_t>(endpoint->port + lane);
  return endpoint->ToString();
}

// Owns: the lanes' transports and threads.
class ServerProcess {
 public:
  explicit ServerProcess(const ServerArgs& args) : args_(args) {}
  Status Run();

 private:
  Status BindLanes();
  Status Serve(const Membership& membership);
  struct Seat {  // one lane, and what it stores through
    std::unique_ptr<SnapshotStore::Port> snapshots;
    std::unique_ptr<Lane> lane;
    // The store's answers, on the lane's thread.
    LocalEvents SnapshotEvents() const {
      return {snapshots->fd(), [this](Micros now) {
                for (SnapshotEvent& event : snapshots->TakeEvents())
                  lane->OnSnapshotEvent(now, std::move(event));
              }};
    }
  };
  Status RunLanes(const Membership& membership, HeartbeatSender& heartbeat,
                  std::span<const Seat> seats);
  Status DialBackups(const Membership& membership, uint16_t lane, const View& view);

  const ServerArgs& args_;
  const Incarnation incarnation_ = NewIncarnation();
  ShutdownSignal shutdown_;
  ZmqContext context_;
  IsolationSignal isolation_{context_};
  std::vector<std::unique_ptr<Transport>> transports_;  // by lane
  std::vector<std::string> endpoints_;                  // by lane, as told to others
};

Status ServerProcess::BindLanes() {
  Result<Endpoint> scheduler = ParsePeerEndpoint(args_.join);
  if (!scheduler.ok()) return scheduler.status();
  const uint32_t lane_count = LaneCountOf(args_);
  // The last lane has the highest port; one that is too high shows before anything is bound.
  Result<std::string> highest = LaneEndpoint(args_.bind, lane_count - 1);
  if (!highest.ok()) return BadBind(highest.status());
  for (uint32_t i = 0; i < lane_count; ++i) {
    const PeerId self{kUnknownNode, incarnation_, static_cast<uint16_t>(i)};
    const auto warn = [](const std::string& text) { spdlog::warn("{}", text); };
    transports_.push_back(std::make_unique<Transport>(
        context_, self, Transport::Options{.insecure = args_.insecure, .on_warning = warn}));
    Result<std::string> wanted = LaneEndpoint(args_.bind, i);
    if (!wanted.ok()) return wanted.status();
    Result<std::string> bound = transports_[i]->Bind(*wanted);
    if (!bound.ok()) return BadBind(bound.status());
    Result<std::string> advertised = AdvertisedEndpoint(*bound, *scheduler);
    if (!advertised.ok()) return advertised.status();
    endpoints_.push_back(*advertised);
    if (Status s = transports_[i]->Dial({kSchedulerNode, {}, 0}, args_.join); !s.ok()) return s;
  }
  return Status();
}

Status ServerProcess::Run() {
  SetFloatEnvironment();
  if (Status s = BindLanes(); !s.ok()) return s;
  Register registration = DescribeProcess(Role::kServer);
  registration.lane_endpoints = endpoints_;
  Result<Membership> membership = JoinRun(*transports_[0], incarnation_, registration, args_.join,
                                          args_.start_timeout_ms, shutdown_);
  if (!membership.ok()) return membership.status();
  SetUpLog({.process = fmt::format("server {}", membership->rank), .is_verbose = args_.is_verbose});
  return Serve(*membership);
}

Status ServerProcess::Serve(const Membership& membership) {
  Result<Model> model = ModelOf(membership);
  if (!model.ok()) return model.status();
  const JobPlan plan(membership.job, membership.data, model->layout());
  HeartbeatSender heartbeat(context_,
                            {.self = membership.self,
                             .scheduler_endpoint = args_.join,
                             .interval = std::chrono::milliseconds(membership.job.heartbeat_ms)},
                            {.job = membership.job_id,
                             .scheduler = membership.scheduler,
                             .activity = Activity::kServing});
  if (Status s = heartbeat.Start(); !s.ok()) return s;
  std::vector<TransportOutbox> outboxes;
  for (const auto& transport : transports_) outboxes.emplace_back(*transport);
  SnapshotStore store({.folder = membership.snapshot_dir, .process = incarnation_});
  std::vector<Seat> seats;
  for (uint16_t i = 0; i < transports_.size(); ++i) {
    PeerId self = membership.self;
    self.lane = i;
    auto snapshots = std::make_unique<SnapshotStore::Port>(store);
    auto lane = std::make_unique<Lane>(
        Lane::Options{.identity = {self, membership.scheduler, membership.job_id},
                      .kind = "server",
                      .lease = std::chrono::milliseconds(membership.job.lease_ms)},
        plan, *snapshots, outboxes[i]);
    seats.push_back({std::move(snapshots), std::move(lane)});
  }
  spdlog::info("serving on {}", fmt::join(endpoints_, ", "));
  return RunLanes(membership, heartbeat, seats);
}

// Lane 0 on this thread, which also watches over the process; the others on their own until their
// own Stop, which they answer, so that the scheduler need not wait for them in vain.
Status ServerProcess::RunLanes(const Membership& membership, HeartbeatSender& heartbeat,
                               std::span<const Seat> seats) {
  StopFlag stop;                             // for the lanes that no Stop reaches
  StopFlag broken;                           // for lane 0, when another cannot go on
  std::vector<Status> dialed(seats.size());  // by lane, written by its thread
  const auto options_of = [&](uint16_t i) {
    return LoopOptions{.stop = i == 0 ? &broken : &stop,
                       .local = {seats[i].SnapshotEvents()},
                       .on_view =
                           [&, i](const View& view) {
                             if (dialed[i].ok()) dialed[i] = DialBackups(membership, i, view);
                             if (!dialed[i].ok()) broken.Request();
                           },
                       .is_finished = [&, i] { return seats[i].lane->finished(); }};
  };
  std::vector<std::future<void>> others;
  for (uint16_t i = 1; i < seats.size(); ++i) {
    others.push_back(
        std::async(std::launch::async,
                   [options = options_of(i), &lane = *seats[i].lane, &transport = *transports_[i]] {
                     SetFloatEnvironment();
                     RunLoop(lane, transport, options);
                   }));
  }
  Lane& first = *seats[0].lane;
  const auto tell = [&](Micros) {
    heartbeat.Update(
        {.job = membership.job_id,
         .scheduler = membership.scheduler,
         .activity = Activity::kServing,
         .step = first.is_primary_of_any() ? StepReading(first.committed()) : Step(0)});
  };
  NodeWatch watch(shutdown_, heartbeat, membership, *transports_[0], [](Micros) {});
  LoopOptions first_options = options_of(0);
  first_options.local.insert(first_options.local.end(), {watch.Source(), {-1, tell}});
  first_options.is_finished = [&] { return first.finished() || !watch.verdict().ok(); };
  RunLoop(first, *transports_[0], first_options);
  const auto deadline = std::chrono::steady_clock::now() + kLaneEndMax;
  for (const std::future<void>& other : others) {
    const bool may_end_itself = watch.verdict().ok() && !broken.is_requested();
    if (!may_end_itself || other.wait_until(deadline) != std::future_status::ready) stop.Request();
  }
  others.clear();  // waits for the threads
  for (const Status& status : dialed) {
    if (!status.ok()) return status;
  }
  if (!watch.verdict().ok()) return watch.verdict();
  spdlog::info("the run has ended: {}", first.stop().text);
  return Status();
}

// P19. A backup that cannot be dialed would never acknowledge, and the job would hang.
Status ServerProcess::DialBackups(const Membership& membership, uint16_t lane, const View& view) {
  PeerId self = membership.self;
  self.lane = lane;
  Status dialed = DialView(*transports_[lane], Role::kServer, self, view);
  if (!dialed.ok()) {
    transports_[lane]->Send({.job = membership.job_id,
                             .generation = view.generation,
                             .sender = self,
                             .receiver = membership.scheduler,
                             .message = Failure{dialed.message()}});
  }
  return dialed;
}

}  // namespace

int RunServer(const ServerArgs& args) {
  const Status status = ServerProcess(args).Run();
  if (status.ok()) return kExitCompleted;
  spdlog::error("{}", status.message());
  return ExitCodeOf(status);
}

}  // namespace pando
