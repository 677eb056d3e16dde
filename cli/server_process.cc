// `pando server`: one process, several lanes, each a thread with its own sockets and shards.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "cli/exit_codes.h"
#include "cli/log.h"
#include "cli/node_join.h"
#include "cli/processes.h"
#include "common/float_env.h"
#include "net/address.h"
#include "net/incarnation.h"
#include "server/lane.h"

namespace pando {
namespace {

// Cores that one lane is worth: summing and updating are bound by memory, not by arithmetic.
constexpr uint32_t kCoresPerLane = 4;
constexpr uint32_t kDefaultLanesMax = 8;

uint32_t LaneCountOf(const ServerArgs& args) {
  if (args.lanes != 0) return args.lanes;
  return std::clamp(std::thread::hardware_concurrency() / kCoresPerLane, 1u, kDefaultLanesMax);
}

// Where lane `lane` listens: a port of its own, or a path of its own.
Result<std::string> LaneEndpoint(const std::string& bind, uint32_t lane) {
  Result<Endpoint> endpoint = ParseEndpoint(bind);
  if (!endpoint.ok()) return endpoint.status();
  if (endpoint->kind == Endpoint::Kind::kIpc) endpoint->path += fmt::format("-{}", lane);
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
  void RunLane(Lane& lane, Transport& transport, std::vector<LocalEvents> local);

  const ServerArgs& args_;
  const Incarnation incarnation_ = NewIncarnation();
  ShutdownSignal shutdown_;
  ZmqContext context_;
  std::vector<std::unique_ptr<Transport>> transports_;  // by lane
  std::vector<std::string> endpoints_;                  // by lane, as told to others
  StopFlag stop_;  // lanes 1.. leave when lane 0's loop has ended
  std::unique_ptr<NodeWatch> watch_;
};

Status ServerProcess::BindLanes() {
  Result<Endpoint> scheduler = ParsePeerEndpoint(args_.join);
  if (!scheduler.ok()) return scheduler.status();
  for (uint32_t i = 0; i < LaneCountOf(args_); ++i) {
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
                             .scheduler = membership.scheduler,
                             .scheduler_endpoint = args_.join,
                             .interval = std::chrono::milliseconds(membership.job.heartbeat_ms)},
                            {.job = membership.job_id, .activity = Activity::kServing});
  if (Status s = heartbeat.Start(); !s.ok()) return s;
  watch_ = std::make_unique<NodeWatch>(shutdown_, heartbeat, membership, *transports_[0]);
  std::vector<TransportOutbox> outboxes;
  for (const auto& transport : transports_) outboxes.emplace_back(*transport);
  std::vector<std::unique_ptr<Lane>> lanes;
  for (uint16_t i = 0; i < transports_.size(); ++i) {
    PeerId self = membership.self;
    self.lane = i;
    lanes.push_back(std::make_unique<Lane>(
        Lane::Options{{self, membership.scheduler, membership.job_id}, "server"}, plan,
        outboxes[i]));
  }
  spdlog::info("serving on {}", fmt::join(endpoints_, ", "));
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < lanes.size(); ++i) {
    threads.emplace_back(
        [this, &lane = *lanes[i], &transport = *transports_[i]] { RunLane(lane, transport, {}); });
  }
  const auto tell = LocalEvents{
      -1, [&](Micros) {
        heartbeat.Update(
            {.job = membership.job_id,
             .activity = Activity::kServing,
             .step = lanes[0]->shards().empty() ? Step(0) : StepReading(lanes[0]->committed())});
      }};
  RunLane(*lanes[0], *transports_[0], {watch_->Source(), tell});
  stop_.Request();
  threads.clear();
  if (!watch_->verdict().ok()) return watch_->verdict();
  spdlog::info("the run has ended: {}", lanes[0]->stop().text);
  return Status();
}

void ServerProcess::RunLane(Lane& lane, Transport& transport, std::vector<LocalEvents> local) {
  SetFloatEnvironment();
  const bool is_first = !local.empty();
  RunLoop(lane, transport,
          {.stop = is_first ? nullptr : &stop_, .local = std::move(local), .is_finished = [&] {
             return lane.finished() || (is_first && !watch_->verdict().ok());
           }});
}

}  // namespace

int RunServer(const ServerArgs& args) {
  const Status status = ServerProcess(args).Run();
  if (status.ok()) return kExitCompleted;
  spdlog::error("{}", status.message());
  return ExitCodeOf(status);
}

}  // namespace pando
