#include "node/group_worker.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>

#include "common/check.h"
#include "common/exit_codes.h"
#include "common/hash.h"
#include "common/system.h"
#include "kernels/gpu_sum.h"
#include "net/address.h"
#include "node/log.h"
#include "node/node_watch.h"
#include "node/session_worker.h"
#include "proto/assignment.h"

namespace pando {
namespace {

constexpr std::chrono::seconds kEndMax{1};

// Returns where the lane listens: this machine's address on the way to the scheduler. Workers on
// other machines dial it only if they reach a scheduler that was started with --insecure.
Result<std::string> OwnEndpoint(const std::string& scheduler_endpoint) {
  PANDO_ASSIGN_OR_RETURN(Endpoint endpoint, ParsePeerEndpoint(scheduler_endpoint));
  if (endpoint.kind == Endpoint::Kind::kIpc) {
    endpoint.path += "-group";
    return endpoint.ToString();
  }
  PANDO_ASSIGN_OR_RETURN(std::string address, LocalAddressTowards(endpoint));
  endpoint.host = std::move(address);
  endpoint.port = 0;
  return endpoint.ToString();
}

constexpr std::chrono::seconds kLetGoMax{2};

}  // namespace

GroupServer::GroupServer(const WorkerParts& worker, Callbacks callbacks)
    : worker_(worker),
      callbacks_(std::move(callbacks)),
      transport_(worker.context, {kUnknownNode, {}, 0},
                 {.insecure = true, .on_warning = LogWarning}),
      track_(worker.trainer.timeline ? &worker.trainer.timeline->OpenTrack("lane 0") : nullptr),
      shown_(worker.trainer.plan.shards.shard_count()) {
  if (track_ == nullptr) return;
  Timeline& timeline = *worker.trainer.timeline;
  probe_.emplace(timeline, *track_, timeline.OpenTrack("lane 0 replicates"));
}

GroupServer::~GroupServer() {
  stop_.Request();
  if (thread_.joinable()) thread_.join();
}

Result<std::optional<MembershipEnd>> GroupServer::Start() {
  PANDO_ASSIGN_OR_RETURN(JoinOutcome joined, Register());
  if (const auto* end = std::get_if<MembershipEnd>(&joined)) return std::optional(*end);
  membership_ = std::get<Membership>(std::move(joined));
  PANDO_RETURN_IF_ERROR(Serve());
  return std::optional<MembershipEnd>();
}

Result<JoinOutcome> GroupServer::Register() {
  PANDO_ASSIGN_OR_RETURN(std::string wanted, OwnEndpoint(worker_.membership.scheduler_endpoint));
  PANDO_ASSIGN_OR_RETURN(std::string bound, transport_.Bind(wanted));
  JoiningProcess server{.transports = {&transport_},
                        .registration = DescribeProcess(Role::kServer, /*wanted_rank=*/0),
                        .scheduler_endpoint = worker_.membership.scheduler_endpoint,
                        .timeout_ms = worker_.start_timeout_ms,
                        .shutdown = worker_.shutdown};
  server.registration.lane_endpoints = {bound};
  return JoinRun(server);
}

Status GroupServer::Serve() {
  const Job& job = membership_.job;
  heartbeat_ = std::make_unique<HeartbeatSender>(
      worker_.context, HeartbeatOptions(membership_),
      HeartbeatState{.job = membership_.job_id,
                     .scheduler = membership_.scheduler,
                     .content = {.activity = Activity::kServing}});
  PANDO_RETURN_IF_ERROR(heartbeat_->Start());
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<RunFiles> files,
                         ReachRunFolder({.context = worker_.context,
                                         .membership = membership_,
                                         .lane = FilesLane::kSnapshots,
                                         .folder = "snapshots"}));
  store_ = std::make_unique<SnapshotStore>(
      SnapshotStore::Options{.files = std::move(files),
                             .process = membership_.self.incarnation,
                             .job = membership_.job_id});
  snapshots_ = std::make_unique<SnapshotStore::Port>(*store_);
  lane_ = std::make_unique<Lane>(
      Lane::Options{.identity = {membership_.self, membership_.scheduler, membership_.job_id,
                                 nullptr, send_probe_.get()},
                    .kind = "server",
                    .lease = std::chrono::milliseconds(job.lease_ms),
                    .probe = probe_ ? &*probe_ : nullptr},
      worker_.trainer.plan, *snapshots_, static_cast<Outbox&>(*this));
  thread_ = std::thread([this] { RunLane(); });
  return Status();
}

// ---- other threads ------------------------------------------------------------------------------

void GroupServer::HandOver(const GradientExchange::Sums& sums) {
  std::ignore = tasks_.Push([this, sums](Micros now) { Take(now, sums); });
}

std::vector<std::vector<float>> GroupServer::States() {
  auto promise = std::make_shared<std::promise<std::vector<std::vector<float>>>>();
  auto states = promise->get_future();
  const bool is_asked = tasks_.Push([this, promise](Micros) { promise->set_value(CopyStates()); });
  promise.reset();  // a dropped task breaks the promise
  if (!is_asked) return {};
  states.wait();
  try {
    return states.get();
  } catch (const std::future_error&) {  // the lane has ended
    return {};
  }
}

void GroupServer::AwaitEnd() { ended_.get_future().wait_for(kEndMax); }

// ---- the lane's thread --------------------------------------------------------------------------

void GroupServer::RunLane() {
  SetFloatEnvironment();
  const auto take_events = [this](Micros now) {
    for (SnapshotEvent& event : snapshots_->TakeEvents())
      lane_->OnSnapshotEvent(now, std::move(event));
  };
  const auto take_tasks = [this](Micros now) {
    for (const Task& task : tasks_.Drain()) task(now);
  };
  const auto tell = [this](Micros) {
    heartbeat_->Update(
        {.job = membership_.job_id,
         .scheduler = lane_->scheduler(),
         .generation = lane_->view().generation,
         .view = lane_->view().id,
         .content = {.activity = Activity::kServing, .step = StepUpdating(lane_->committed())}});
  };
  RunLoop(*lane_, transport_,
          {.stop = &stop_,
           .local = {{snapshots_->fd(), take_events}, {tasks_.fd(), take_tasks}, {-1, tell}},
           .is_finished = [this] { return lane_->finished(); }});
  tasks_.Close();
  tasks_.Drain();
  ended_.set_value();
}

// For the lane a sum over all ranks is a push of the tree's root.
void GroupServer::Take(Micros now, const GradientExchange::Sums& sums) {
  Push push;
  for (uint32_t s = sums.shards.first; s < sums.shards.last; ++s) {
    const ShardRange& range = worker_.trainer.plan.shards.range(ShardId(s));
    push.items.push_back({ShardId(s), sums.step, MicroBatchTree::kRoot,
                          ToBlob(sums.flat, range.first, range.size())});
  }
  lane_->OnMessage(now, {.job = membership_.job_id,
                         .generation = lane_->view().generation,
                         .view = lane_->view().id,
                         .sender = worker_.membership.self,
                         .receiver = membership_.self,
                         .message = std::move(push)});
}

void GroupServer::Send(Envelope envelope) {
  const bool is_to_own_worker = envelope.receiver == worker_.membership.self;
  const auto* params = std::get_if<Params>(&envelope.message);
  if (!is_to_own_worker || params == nullptr) return transport_.Send(std::move(envelope));
  for (const ParamsItem& item : params->items) {
    Version& shown = shown_[item.shard.value()];
    if (item.version <= shown) continue;
    shown = item.version;
    callbacks_.on_version(item);
  }
  callbacks_.on_params(envelope);
}

std::vector<std::vector<float>> GroupServer::CopyStates() const {
  std::vector<std::vector<float>> states;
  for (const auto& [id, replica] : lane_->replicas()) {
    const auto state = std::as_const(*replica.shard.records().newest().state).span();
    states.emplace_back(state.begin(), state.end());
  }
  return states;
}

namespace {

// Returns where sums wait for the exchange: in the GPU's memory if GPUs may sum. Otherwise they
// come to the host while backward runs.
Device SumsDevice(const TrainerParts& parts) {
  const Job& job = parts.plan.job;
  const bool may_sum = job.workers > 1 && job.allreduce == AllreduceAlgorithm::kAuto;
  const bool is_gpu = parts.device.kind == DeviceKind::kCuda;
  return is_gpu && may_sum && GpuSum::Check().ok() ? parts.device : Device{};
}

TrainerParts WithSumsThere(TrainerParts parts) {
  parts.sums_stay = SumsDevice(parts).kind == DeviceKind::kCuda;
  return parts;
}

}  // namespace

GroupWorker::GroupWorker(const WorkerParts& parts)
    : parts_(parts),
      plan_(parts.trainer.plan),
      exchange_(plan_, parts.membership.rank, *this, SumsDevice(parts.trainer),
                parts.trainer.timeline),
      trainer_(WithSumsThere(parts.trainer), parts.thread_count,
               [this](ComputeTicket ticket, ComputeEvent event) {  // NOLINT: moved
                 OnCompute(ticket, std::move(event));
               }),
      session_(
          {.identity = {parts.membership.self, parts.membership.scheduler, parts.membership.job_id},
           .ready = parts.ready},
          plan_, trainer_, *this, parts.transport) {
  if (leads()) return;
  update_.emplace(plan_, trainer_.parameters(),
                  LocalUpdate::Timed{parts.trainer.timeline, parts.trainer.protocol});
}

// Ends the exchange first, since it calls the others; then the rest, from the last to the first.
GroupWorker::~GroupWorker() {
  is_ending_ = true;
  if (group_files_ != nullptr) group_files_->Interrupt();
  tasks_.Close();
  exchange_.Stop();
}

// Reaches the files with which the ranks tell each other their addresses.
Status GroupWorker::ReachGroupFiles() {
  if (parts_.membership.files_endpoint.empty()) {
    std::error_code ignored;  // if it fails, writing reports the cause
    const std::filesystem::path folder = RunDirFor(parts_.membership);
    std::filesystem::create_directory(folder / "group", folder, ignored);  // with its parent's mode
  }
  PANDO_ASSIGN_OR_RETURN(
      group_files_,
      ReachRunFolder({.context = parts_.context,
                      .membership = parts_.membership,
                      .lane = FilesLane::kGroup,
                      .folder = "group",
                      .patience = std::chrono::milliseconds(parts_.start_timeout_ms)}));
  return Status();
}

Result<MembershipEnd> GroupWorker::Run(const Tell& tell) {
  PANDO_RETURN_IF_ERROR(ReachGroupFiles());
  PANDO_ASSIGN_OR_RETURN(std::optional<MembershipEnd> ended, StartServer());
  if (ended) return *ended;
  NodeWatch watch(parts_.shutdown, parts_.heartbeat, parts_.membership,
                  [&](Micros now) { session_.Leave(now); });
  const auto take_tasks = [&](Micros now) {
    for (const Task& task : tasks_.Drain()) task(now);
  };
  Status dialed;
  const auto dial = [&](const View& view) {
    if (dialed.ok())
      dialed = DialView(parts_.transport, Role::kWorker, parts_.membership.self, view);
  };
  RunLoop(session_, parts_.transport,
          {.local = {watch.Source(),
                     {tasks_.fd(), take_tasks},
                     {-1, [&](Micros now) { tell(session_, trainer_, now); }}},
           .next_view = [&](const Envelope& envelope) { return session_.NextView(envelope); },
           .on_view = dial,
           .is_finished = [&] { return session_.finished() || !dialed.ok() || watch.verdict(); }});
  is_ending_ = true;
  group_files_->Interrupt();
  tasks_.Close();
  if (server_ != nullptr && session_.finished()) server_->AwaitEnd();
  LetGo(watch.verdict().has_value());
  return ConcludeWork(dialed, watch, session_.lifecycle());
}

// If a peer died while the group was connecting, gloo may wait for it without end.
void GroupWorker::LetGo(bool has_verdict) {
  if (exchange_.StopWithin(kLetGoMax)) return;
  spdlog::warn("gloo still waits for a worker that is gone; the process ends without it");
  spdlog::shutdown();
  std::_Exit(session_.finished() || has_verdict ? kExitCompleted : kExitFailed);
}

Result<std::optional<MembershipEnd>> GroupWorker::StartServer() {
  if (!leads()) return std::optional<MembershipEnd>();
  GroupServer::Callbacks callbacks{
      .on_version =
          [this](const ParamsItem& item) {
            trainer_.parameters().Put(item.shard, item.version, item.payload);
            Post([this, shard = item.shard, version = item.version](Micros now) {
              session_.OnMade(now, shard, version);
            });
          },
      .on_params =
          [this](const Envelope& envelope) {
            Post([this, envelope](Micros now) { session_.OnMessage(now, envelope); });
          }};
  server_ = std::make_unique<GroupServer>(parts_, std::move(callbacks));
  return server_->Start();
}

// ---- the computing threads ----------------------------------------------------------------------

void GroupWorker::OnCompute(ComputeTicket ticket, ComputeEvent event) {  // NOLINT: moved
  if (const auto* gradient = std::get_if<GradientReady>(&event))
    return exchange_.Add(gradient->step, gradient->node, gradient->shard, gradient->payload);
  Post([this, ticket, event = std::move(event)](Micros now) {
    if (trainer_.IsCurrent(ticket, event)) session_.OnComputeEvent(now, event);
  });
}

// ---- the exchange's thread ----------------------------------------------------------------------

Result<std::unique_ptr<AllreduceGroup>> GroupWorker::Connect() {
  PANDO_ASSIGN_OR_RETURN(Endpoint scheduler,
                         ParsePeerEndpoint(parts_.membership.scheduler_endpoint));
  PANDO_ASSIGN_OR_RETURN(std::string address, LocalAddressTowards(scheduler));
  const uint32_t rank = parts_.membership.rank;
  const std::chrono::milliseconds timeout(parts_.start_timeout_ms);
  spdlog::info("rank {} of {}, over gloo at {}", rank, group_size_, address);
  Result<std::unique_ptr<AllreduceGroup>> group =
      ConnectGlooGroup({.rank = rank,
                        .size = group_size_,
                        .address = address,
                        .files = group_files_.get(),
                        .prefix = group_name_,
                        .algorithm = plan_.job.allreduce,
                        .step_bytes = plan_.layout.float_count() * sizeof(float),
                        .connect_timeout = timeout},
                       is_ending_);
  const Device device = parts_.trainer.device;
  // Only gloo has algorithms with names. A rank without a GPU is asked too.
  const bool may_use_gpus = group_size_ > 1 && plan_.job.allreduce == AllreduceAlgorithm::kAuto;
  if (!group.ok() || !may_use_gpus) return group;
  PANDO_ASSIGN_OR_RETURN(
      JoinedGpus gpus,
      JoinGpus({.device = device, .rank = rank, .size = group_size_, .timeout = timeout},
               *std::move(group), is_ending_));
  if (gpus.refusal.empty()) spdlog::info("gradients are summed by NCCL");
  if (!gpus.refusal.empty() && device.kind == DeviceKind::kCuda)
    spdlog::info("gradients are summed by gloo: {}", gpus.refusal);
  return std::move(gpus.group);
}

// A restored optimizer's state is in rank 0's lane.
Status GroupWorker::Prepare(AllreduceGroup& group) {
  if (first_ == Version(0)) return Status();
  std::vector<std::vector<float>> of_lane;
  if (leads()) of_lane = server_->States();
  std::vector<std::span<float>> states(of_lane.begin(), of_lane.end());
  if (update_) {
    for (FloatBuffer& state : update_->states()) states.push_back(state.span());
  }
  if (states.size() != plan_.shards.shard_count()) return Interrupted("the lane has ended");
  for (const std::span<float> state : states)
    PANDO_RETURN_IF_ERROR(group.Broadcast(std::as_writable_bytes(state)));
  return Status();
}

void GroupWorker::OnSums(GradientSums sums) {
  if (leads()) return server_->HandOver(sums);
  Post([this, sums = std::move(sums)](Micros now) { ApplySums(now, sums); });
}

void GroupWorker::OnAgreed(Version version) {
  Post([this, version](Micros now) { session_.OnAgreed(now, version); });
}

void GroupWorker::OnFailed(Status failure) {
  Post([this, failure = std::move(failure)](Micros now) { session_.OnBroken(now, failure); });
}

// ---- the protocol thread ------------------------------------------------------------------------

void GroupWorker::Begin(const View& view) {
  const auto worker_count = std::ranges::count(view.nodes, Role::kWorker, &NodeInfo::role);
  group_size_ = static_cast<uint32_t>(worker_count);
  first_ = view.restore.version;
  group_name_ = HexText(view.shards.front().primary.incarnation.value());
  // Any thread may ask while this one is about to end, so the share follows from the view alone.
  exchange_.Begin(StepUpdating(first_), [this, view](Step step) {
    const MicroBatchTree tree = plan_.steps.Tree(step);
    return tree.Cover(AssignedTo(view, parts_.membership.self.node, step, tree)).size();
  });
}

void GroupWorker::OnVersion(Version version) {
  exchange_.SetWhole(version);
  if (!exchange_.IsCompared(version)) return;
  const auto values = trainer_.parameters().Open(version);
  PANDO_CHECK(values.ok());  // no rank sums the next step before all have compared this one
  exchange_.SetHash(version, Hash64(std::as_bytes((*values)->span())));
}

void GroupWorker::ApplySums(Micros now, const GradientSums& sums) {
  const auto on_made = [&](Step step, ShardId shard, const SharedBuffer&) {
    trainer_.parameters().Arrived(shard, VersionMadeBy(step));
    session_.OnMade(now, shard, VersionMadeBy(step));
  };
  for (uint32_t s = sums.shards.first; s < sums.shards.last; ++s) {
    const ShardRange& range = plan_.shards.range(ShardId(s));
    update_->Apply({sums.step, ShardId(s), ToBlob(sums.flat, range.first, range.size())}, on_made);
  }
}

}  // namespace pando
