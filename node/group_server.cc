#include "node/group_server.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/system.h"
#include "net/address.h"
#include "node/log.h"

namespace pando {
namespace {

constexpr std::chrono::seconds kEndMax{1};

// Where the lane listens: on this machine's way to the scheduler. Workers on other machines dial
// it: a scheduler that they can reach was started with --insecure.
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

}  // namespace

GroupServer::GroupServer(const WorkerParts& worker, Callbacks callbacks)
    : worker_(worker),
      callbacks_(std::move(callbacks)),
      incarnation_(NewIncarnation()),
      transport_(worker.context, {kUnknownNode, incarnation_, 0},
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
  PANDO_ASSIGN_OR_RETURN(std::string wanted, OwnEndpoint(worker_.scheduler_endpoint));
  PANDO_ASSIGN_OR_RETURN(std::string bound, transport_.Bind(wanted));
  PANDO_RETURN_IF_ERROR(transport_.Dial({kSchedulerNode, {}, 0}, worker_.scheduler_endpoint));
  pando::Register registration = DescribeProcess(Role::kServer, /*wanted_rank=*/0);
  registration.lane_endpoints = {bound};
  return JoinRun(transport_, incarnation_, registration, worker_.scheduler_endpoint,
                 worker_.start_timeout_ms, worker_.shutdown);
}

Status GroupServer::Serve() {
  const Job& job = membership_.job;
  heartbeat_ = std::make_unique<HeartbeatSender>(
      worker_.context, HeartbeatOptions(membership_, worker_.scheduler_endpoint),
      HeartbeatState{.job = membership_.job_id,
                     .scheduler = membership_.scheduler,
                     .content = {.activity = Activity::kServing}});
  PANDO_RETURN_IF_ERROR(heartbeat_->Start());
  store_ = std::make_unique<SnapshotStore>(SnapshotStore::Options{
      .folder = membership_.snapshot_dir, .process = incarnation_, .job = membership_.job_id});
  snapshots_ = std::make_unique<SnapshotStore::Port>(*store_);
  lane_ = std::make_unique<Lane>(
      Lane::Options{.identity = {membership_.self, membership_.scheduler, membership_.job_id},
                    .kind = "server",
                    .lease = std::chrono::milliseconds(job.lease_ms),
                    .probe = probe_ ? &*probe_ : nullptr},
      worker_.trainer.plan, *snapshots_, timed_outbox_);
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
  promise.reset();  // a task that is dropped breaks it
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
         .content = {.activity = Activity::kServing, .step = StepReading(lane_->committed())}});
  };
  RunLoop(*lane_, transport_,
          {.stop = &stop_,
           .local = {{snapshots_->fd(), take_events}, {tasks_.fd(), take_tasks}, {-1, tell}},
           .is_finished = [this] { return lane_->finished(); }});
  tasks_.Close();
  tasks_.Drain();
  ended_.set_value();
}

// To the lane a sum over all ranks is a push of the tree's root.
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
  if (!is_to_own_worker || params == nullptr) return network_.Send(std::move(envelope));
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

}  // namespace pando
