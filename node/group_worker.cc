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
#include "worker/allreduce/gloo_group.h"
#include "worker/allreduce/gpu_group.h"

namespace pando {
namespace {

constexpr std::chrono::seconds kLetGoMax{2};

uint32_t CountWorkers(const View& view) {
  return static_cast<uint32_t>(std::ranges::count(view.nodes, Role::kWorker, &NodeInfo::role));
}

}  // namespace

GroupWorker::GroupWorker(const WorkerParts& parts)
    : parts_(parts),
      plan_(parts.trainer.plan),
      exchange_(plan_, parts.membership.rank, *this, parts.trainer.device, parts.trainer.timeline),
      trainer_(parts.trainer, parts.thread_count,
               [this](ComputeTicket ticket, ComputeEvent event) {
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

// The exchange first: it calls what the others do. Then what remains, from the last to the first.
GroupWorker::~GroupWorker() {
  is_ending_ = true;
  news_.Close();
  exchange_.Stop();
}

Result<MembershipEnd> GroupWorker::Run(const Tell& tell) {
  Result<std::optional<MembershipEnd>> ended = StartServer();
  if (!ended.ok()) return ended.status();
  if (*ended) return **ended;
  NodeWatch watch(parts_.shutdown, parts_.heartbeat, parts_.membership,
                  [&](Micros now) { session_.Leave(now); });
  const auto take_news = [&](Micros now) {
    for (News& news : news_.Drain()) std::visit([&](auto& n) { OnNews(now, n); }, news);
  };
  Status dialed;
  const auto dial = [&](const View& view) {
    if (dialed.ok())
      dialed = DialView(parts_.transport, Role::kWorker, parts_.membership.self, view);
  };
  RunLoop(session_, parts_.transport,
          {.local = {watch.Source(),
                     {news_.fd(), take_news},
                     {-1, [&](Micros now) { tell(session_, trainer_, now); }}},
           .enters = [&](const Envelope& envelope) { return session_.WillEnter(envelope); },
           .on_view = dial,
           .is_finished =
               [&] { return session_.finished() || !dialed.ok() || !watch.verdict().ok(); }});
  is_ending_ = true;
  news_.Close();
  if (server_ != nullptr && session_.finished()) server_->AwaitEnd();
  LetGo();
  if (!dialed.ok()) return dialed;
  if (!watch.verdict().ok()) return watch.verdict();
  const Lifecycle& life = session_.lifecycle();
  if (life.refusal() && life.failure()) return Internal(life.failure()->text);
  return EndOf(life.stop(), life.refusal(), watch.is_leaving());
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
  Result<GroupServer::Joined> joined =
      GroupServer::Join({parts_.context, parts_.scheduler_endpoint, parts_.start_timeout_ms,
                         parts_.membership, plan_, parts_.shutdown, parts_.trainer.timeline},
                        {.on_version =
                             [this](const ParamsItem& item) {
                               trainer_.parameters().Put(item.shard, item.version, item.payload);
                               Report(Made{item.shard, item.version});
                             },
                         .on_params = [this](Envelope envelope) { Report(std::move(envelope)); }});
  if (!joined.ok()) return joined.status();
  if (const auto* end = std::get_if<MembershipEnd>(&*joined)) return std::optional(*end);
  server_ = std::move(std::get<std::unique_ptr<GroupServer>>(*joined));
  return std::optional<MembershipEnd>();
}

// ---- the computing threads ----------------------------------------------------------------------

void GroupWorker::OnCompute(ComputeTicket ticket, ComputeEvent event) {
  if (const auto* gradient = std::get_if<GradientReady>(&event))
    return exchange_.Add(gradient->step, gradient->node, gradient->shard, gradient->payload);
  Report(ComputeNews{ticket, std::move(event)});
}

// ---- the exchange's thread ----------------------------------------------------------------------

Result<std::unique_ptr<AllreduceGroup>> GroupWorker::Connect() {
  Result<Endpoint> scheduler = ParsePeerEndpoint(parts_.scheduler_endpoint);
  if (!scheduler.ok()) return scheduler.status();
  Result<std::string> address = LocalAddressTowards(*scheduler);
  if (!address.ok()) return address.status();
  const uint32_t rank = parts_.membership.rank;
  const std::chrono::milliseconds timeout(parts_.start_timeout_ms);
  spdlog::info("rank {} of {}, over gloo at {}", rank, group_size_, *address);
  Result<std::unique_ptr<AllreduceGroup>> group =
      ConnectGlooGroup({.rank = rank,
                        .size = group_size_,
                        .address = *address,
                        .folder = group_folder_,
                        .algorithm = plan_.job.allreduce,
                        .step_bytes = plan_.layout.float_count() * sizeof(float),
                        .connect_timeout = timeout},
                       is_ending_);
  const Device device = parts_.trainer.device;
  if (!group.ok() || !MayUseGpus()) return group;  // a rank without a GPU is asked, too
  Result<JoinedGpus> gpus =
      JoinGpus({device, rank, group_size_, timeout}, *std::move(group), is_ending_);
  if (!gpus.ok()) return gpus.status();
  if (gpus->refusal.empty()) spdlog::info("gradients are summed by NCCL");
  if (!gpus->refusal.empty() && device.kind == DeviceKind::kCuda)
    spdlog::info("gradients are summed by gloo: {}", gpus->refusal);
  return std::move(gpus->group);
}

// An algorithm by name is gloo's.
bool GroupWorker::MayUseGpus() const {
  return group_size_ > 1 && plan_.job.allreduce == AllreduceAlgorithm::kAuto;
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
    if (Status s = group.Broadcast(std::as_writable_bytes(state)); !s.ok()) return s;
  }
  return Status();
}

void GroupWorker::OnSums(GradientSums sums) {
  if (leads()) return server_->HandOver(sums);
  Report(std::move(sums));
}

// ---- the protocol thread ------------------------------------------------------------------------

void GroupWorker::Begin(const View& view) {
  group_size_ = CountWorkers(view);
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
  PANDO_CHECK(values.ok());  // nobody sums on before the ranks have compared it
  exchange_.SetHash(version, Hash64(std::as_bytes((*values)->span())));
}

void GroupWorker::OnNews(Micros now, ComputeNews& news) {
  if (trainer_.IsCurrent(news.ticket, news.event))
    session_.OnComputeEvent(now, std::move(news.event));
}

void GroupWorker::OnNews(Micros now, GradientSums& sums) {
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
