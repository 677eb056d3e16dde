#include "node/group_worker.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "common/check.h"
#include "common/exit_codes.h"
#include "common/hash.h"
#include "net/address.h"
#include "proto/assignment.h"

namespace pando {
namespace {

constexpr std::chrono::seconds kLetGoMax{2};

}  // namespace

GroupWorker::GroupWorker(const WorkerParts& parts)
    : parts_(parts),
      plan_(parts.trainer.plan),
      exchange_(plan_, parts.membership.rank, *this, parts.trainer.device, parts.trainer.timeline),
      trainer_(parts.trainer, parts.thread_count,
               [this](ComputeTicket ticket, ComputeEvent event) {  // NOLINT: moved
                 OnCompute(ticket, std::move(event));
               }),
      outbox_(parts.transport),
      session_(
          {.identity = {parts.membership.self, parts.membership.scheduler, parts.membership.job_id},
           .ready = parts.ready},
          plan_, trainer_, *this, outbox_) {
  if (leads()) return;
  update_.emplace(plan_, trainer_.parameters(),
                  LocalUpdate::Timed{parts.trainer.timeline, parts.trainer.protocol});
}

// The exchange first: it calls the others. Then the rest, from the last to the first.
GroupWorker::~GroupWorker() {
  is_ending_ = true;
  tasks_.Close();
  exchange_.Stop();
}

Result<MembershipEnd> GroupWorker::Run(const Tell& tell) {
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
           .enters = [&](const Envelope& envelope) { return session_.WillEnter(envelope); },
           .on_view = dial,
           .is_finished =
               [&] { return session_.finished() || !dialed.ok() || !watch.verdict().ok(); }});
  is_ending_ = true;
  tasks_.Close();
  if (server_ != nullptr && session_.finished()) server_->AwaitEnd();
  LetGo();
  return ConcludeWork(dialed, watch, session_.lifecycle());
}

// A peer that died while the group was connecting may be one that gloo waits for without end.
void GroupWorker::LetGo() {
  if (exchange_.StopWithin(kLetGoMax)) return;
  spdlog::warn("gloo still waits for a worker that is gone; the process ends without it");
  spdlog::shutdown();
  std::_Exit(session_.finished() ? kExitCompleted : kExitFailed);
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
  PANDO_ASSIGN_OR_RETURN(Endpoint scheduler, ParsePeerEndpoint(parts_.scheduler_endpoint));
  PANDO_ASSIGN_OR_RETURN(std::string address, LocalAddressTowards(scheduler));
  const uint32_t rank = parts_.membership.rank;
  const std::chrono::milliseconds timeout(parts_.start_timeout_ms);
  spdlog::info("rank {} of {}, over gloo at {}", rank, group_size_, address);
  Result<std::unique_ptr<AllreduceGroup>> group =
      ConnectGlooGroup({.rank = rank,
                        .size = group_size_,
                        .address = address,
                        .folder = group_folder_,
                        .algorithm = plan_.job.allreduce,
                        .step_bytes = plan_.layout.float_count() * sizeof(float),
                        .connect_timeout = timeout},
                       is_ending_);
  const Device device = parts_.trainer.device;
  // An algorithm by name is gloo's. A rank without a GPU is asked, too.
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
  for (const std::span<float> state : states) {
    PANDO_RETURN_IF_ERROR(group.Broadcast(std::as_writable_bytes(state)));
  }
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
  const std::filesystem::path run_dir =
      std::filesystem::path(parts_.membership.snapshot_dir).parent_path();
  group_folder_ =
      run_dir / "group" / fmt::format("{:016x}", view.shards.front().primary.incarnation.value());
  // Any thread asks, while this one may be about to end: the share follows from the view alone.
  exchange_.Begin(StepReading(first_), [this, view](Step step) {
    const MicroBatchTree tree = plan_.steps.Tree(step);
    return tree.Cover(AssignedTo(view, parts_.membership.self.node, step, tree)).size();
  });
}

void GroupWorker::OnVersion(Version version) {
  exchange_.SetWhole(version);
  if (!exchange_.IsCompared(version)) return;
  const auto values = trainer_.parameters().Open(version);
  PANDO_CHECK(values.ok());  // no rank sums the next step before all have compared it
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
