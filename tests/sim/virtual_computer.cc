#include "tests/sim/virtual_computer.h"

#include <algorithm>
#include <memory>
#include <span>

#include "common/check.h"
#include "common/float_buffer.h"
#include "common/hash.h"
#include "tests/sim/reference.h"

namespace pando::sim {
namespace {

std::vector<float> Floats(const Blob& payload) {
  return {payload.floats().begin(), payload.floats().end()};
}

}  // namespace

std::optional<uint64_t> VirtualComputer::DigestIfWhole(const Copy& copy, bool needs_all) const {
  std::vector<std::span<const float>> shards;
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    auto it = copy.find(ShardId(s));
    const bool is_read = needs_all || ShardId(s) != plan_.metric_shard();
    if (it == copy.end() && is_read) return std::nullopt;
    shards.push_back(it == copy.end() ? std::span<const float>()
                                      : std::span<const float>(it->second));
  }
  return DigestOfRead(plan_, shards);
}

// ---- requests ----------------------------------------------------------------------------------

uint64_t VirtualComputer::Issue(Step step, Kind kind) {
  issued_[++ticket_] = {step, kind};
  return ticket_;
}

void VirtualComputer::Compute(Step step, std::vector<MicroBatch> micro_batches) {
  PANDO_CHECK(!micro_batches.empty());
  calls_.push_back({step, std::move(micro_batches), Issue(step, Kind::kStep)});
  StartNext();
}

void VirtualComputer::Abandon(Step from) {
  const auto is_dropped = [&](Step step, Kind kind) { return kind == Kind::kStep && step >= from; };
  std::erase_if(
      issued_, [&](const auto& entry) { return is_dropped(entry.second.step, entry.second.kind); });
  std::erase_if(calls_, [&](const Call& call) { return is_dropped(call.step, call.kind); });
  // What has left may count: if it is hashed, it is hashed to its end (P41).
  if (backward_ && !issued_.contains(backward_->call.ticket) && backward_->hashes.empty())
    DropBackward();
  StartNext();
}

void VirtualComputer::Verify(Step step, MicroBatch micro_batch) {
  const auto later = std::ranges::find_if(calls_, [&](const Call& c) { return c.step > step; });
  const uint64_t ticket = Issue(step, Kind::kVerification);
  calls_.insert(later, {step, {micro_batch}, ticket, Kind::kVerification});
  StartNext();
}

void VirtualComputer::Forget() {
  issued_.clear();
  hashes_from_ = ticket_ + 1;
  calls_.clear();
  feedback_.Forget();
  parameters_.clear();
  evaluation_copy_.clear();
  evaluation_version_ = Version(0);
  evaluation_.reset();
  gone_.reset();
  forward_.reset();
  evaluation_pass_.reset();
  if (backward_) DropBackward();
}

void VirtualComputer::ParametersArrived(ShardId shard, Version version, const Blob& payload) {
  if (is_layered()) {
    if (forward_) forward_->Arrived(shard, version, Received(plan_.pulls, shard, payload));
    if (backward_) backward_->pass.Arrived(shard, version, Received(plan_.pulls, shard, payload));
    if (backward_) GoBackward();
    return StartNext();
  }
  parameters_[version][shard] = Received(plan_.pulls, shard, payload);
  while (parameters_.size() > 2) parameters_.erase(parameters_.begin());
  StartNext();
}

void VirtualComputer::SlowDown(int64_t factor, Micros until) {
  slowness_ = factor;
  slow_until_ = until;
}

Micros VirtualComputer::ComputingTime(size_t micro_batches) const {
  const Micros time = micro_batch_time_ * static_cast<int64_t>(micro_batches);
  return world_.now() < slow_until_ ? time * slowness_ : time;
}

std::string VirtualComputer::StateText() const {
  std::string text = is_running_ ? "running;" : "idle;";
  for (const Call& call : calls_) {
    text += call.kind == Kind::kVerification ? " verify " : " step ";
    text += std::to_string(call.step.value()) + "x" + std::to_string(call.micro_batches.size());
  }
  text += "; holds";
  for (const auto& [version, copy] : parameters_) {
    text += " " + std::to_string(version.value()) + ":" + std::to_string(copy.size());
  }
  return text;
}

// ---- work --------------------------------------------------------------------------------------

void VirtualComputer::Emit(uint64_t ticket, Which which, ComputeEvent event) {
  const bool lasts = std::holds_alternative<GradientHashed>(event) ||
                     std::holds_alternative<ParametersWanted>(event);
  const auto is_wanted = [this, ticket, lasts] {
    return issued_.contains(ticket) || (lasts && ticket >= hashes_from_);
  };
  if (!is_wanted()) return;
  hooks_.post([this, ticket, which, is_wanted, event = std::move(event)] {
    if (!is_wanted()) return;
    if (which == Which::kLast) issued_.erase(ticket);
    hooks_.deliver(event);
  });
}

// Only a verification can come too late: a worker of a step is needed for the next one.
bool VirtualComputer::DropIfSuperseded(const Call& call) {
  const bool is_superseded =
      parameters_.size() == 2 && VersionReadBy(call.step) < parameters_.begin()->first;
  if (!is_superseded || call.kind != Kind::kVerification) return false;
  TellOfNone(call);
  calls_.pop_front();
  return true;
}

void VirtualComputer::TellOfNone(const Call& call) {
  const GradientHashed none{call.step, call.micro_batches.front(), 0};
  world_.After(Micros(1), [this, ticket = call.ticket, none] { Emit(ticket, Which::kLast, none); });
}

void VirtualComputer::StartNext() {
  if (is_layered()) return StartNextLayered();
  if (is_running_ || calls_.empty()) return;
  const Call call = calls_.front();
  if (DropIfSuperseded(call)) return StartNext();
  const auto copy = parameters_.find(VersionReadBy(call.step));
  if (copy == parameters_.end()) return;
  const std::optional<uint64_t> digest = DigestIfWhole(copy->second, false);
  if (!digest) return;  // the forward waits
  calls_.pop_front();
  is_running_ = true;
  world_.After(ComputingTime(call.micro_batches.size()), [this, call, digest] {
    call.kind == Kind::kVerification ? FinishVerification(call, *digest) : Finish(call, *digest);
  });
}

std::vector<float> VirtualComputer::MakeGradient(uint64_t digest, Step step, MicroBatch m) const {
  std::vector<float> gradient = LeafGradient(plan_, digest, step, m);
  if (flipped_ == std::pair(step, m)) gradient[0] = 1.0f - gradient[0];
  return gradient;
}

// As it travels.
Blob VirtualComputer::Encoded(Step step, TreeNode node, ShardId shard, const FloatBuffer& sum) {
  const ShardRange& range = plan_.shards.range(shard);
  const auto floats = sum.span().subspan(range.first, range.size());
  if (!plan_.pushes.has_feedback()) return Travelling(Sent(plan_.pushes, shard, floats));
  const MicroBatch m(plan_.steps.Tree(step).Range(node).first);
  const auto encoded =
      std::make_shared<FloatBuffer>(plan_.pushes.PayloadBytes(shard) / sizeof(float));
  feedback_.Encode(step, m, shard, floats, std::as_writable_bytes(encoded->span()));
  return Travelling(ToBlob(encoded));
}

// In memory that peers of this host can read.
Blob VirtualComputer::Travelling(const Blob& payload) const {
  const auto floats = payload.floats();
  auto buffer = std::make_shared<FloatBuffer>(hooks_.buffers.make(floats.size()));
  std::ranges::copy(floats, buffer->data());
  return ToBlob(std::move(buffer));
}

uint64_t VirtualComputer::HashGradient(uint64_t digest, Step step, MicroBatch m) const {
  const std::vector<float> gradient = MakeGradient(digest, step, m);
  return std::max<uint64_t>(1, Hash64(std::as_bytes(std::span(gradient))));
}

void VirtualComputer::FinishVerification(const Call& call, uint64_t digest) {
  is_running_ = false;
  const MicroBatch m = call.micro_batches.front();
  Emit(call.ticket, Which::kLast, GradientHashed{call.step, m, HashGradient(digest, call.step, m)});
  StartNext();
}

// Backward: shards in reverse, one event each, so that others see them one by one.
void VirtualComputer::Finish(const Call& call, uint64_t digest) {
  for (MicroBatch m : call.micro_batches) {
    if (hooks_.flips_bit(call.step, m)) flipped_ = std::pair(call.step, m);
  }
  const auto leaf = [&](MicroBatch m) { return MakeGradient(digest, call.step, m); };
  const uint32_t shard_count = plan_.shards.shard_count();
  const MicroBatchTree tree = plan_.steps.Tree(call.step);
  Micros at{0};
  for (TreeNode node : plan_.NodesToPush(call.step, call.micro_batches)) {
    auto sum = std::make_shared<FloatBuffer>(plan_.layout.float_count());
    std::ranges::copy(NodeGradient(tree, node, leaf), sum->data());
    for (uint32_t s = shard_count; s-- > 0;) {
      at += micro_batch_time_ / (4 * shard_count);
      world_.After(at, [this, call, node, s, sum] {
        const ShardId shard(s);
        Emit(call.ticket, Which::kMore,
             GradientReady{call.step, node, shard, Encoded(call.step, node, shard, *sum)});
      });
    }
  }
  std::vector<GradientHashed> hashes = HashGradients(call, digest);
  flipped_.reset();  // it was that once
  world_.After(at, [this, call, hashes = std::move(hashes)] {
    is_running_ = false;
    for (const GradientHashed& hashed : hashes) Emit(call.ticket, Which::kMore, hashed);
    Emit(call.ticket, Which::kLast, StepComputed{call.step});
    StartNext();
  });
}

// What leaves is hashed, abandoned or not.
std::vector<GradientHashed> VirtualComputer::HashGradients(const Call& call,
                                                           uint64_t digest) const {
  std::vector<GradientHashed> hashes;
  if (!issued_.contains(call.ticket)) return hashes;
  for (MicroBatch m : call.micro_batches) {
    if (plan_.IsVerified(call.step, m))
      hashes.push_back({call.step, m, HashGradient(digest, call.step, m)});
  }
  return hashes;
}

// ---- evaluation --------------------------------------------------------------------------------

void VirtualComputer::EvaluateSlice(const Evaluate& request) {
  evaluation_ = request;
  if (evaluation_version_ != request.version) evaluation_copy_.clear();
  evaluation_version_ = request.version;
  if (is_layered()) {
    std::vector<ShardId> order;
    for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) order.emplace_back(s);
    evaluation_ticket_ = Issue(Step(0), Kind::kEvaluation);
    evaluation_pass_.emplace(
        MakePass(evaluation_ticket_, ParameterUse::kEvaluation, request.version, std::move(order)));
    evaluation_digest_ = 0;
    return evaluation_pass_->Start();
  }
  TryEvaluate();
}

void VirtualComputer::EvaluationParametersArrived(ShardId shard, Version version,
                                                  const Blob& payload) {
  if (is_layered()) {
    if (evaluation_pass_) evaluation_pass_->Arrived(shard, version, Floats(payload));
    return TryEvaluateLayered();
  }
  if (evaluation_version_ != version) evaluation_copy_.clear();
  evaluation_version_ = version;
  evaluation_copy_[shard] = Floats(payload);
  TryEvaluate();
}

void VirtualComputer::TryEvaluate() {
  if (!evaluation_ || evaluation_->version != evaluation_version_) return;
  const std::optional<uint64_t> digest = DigestIfWhole(evaluation_copy_, true);
  if (!digest) return;
  TellResult(Issue(Step(0), Kind::kEvaluation), *digest);
}

void VirtualComputer::TellResult(uint64_t ticket, uint64_t digest) {
  const EvaluationResult result = MakeEvaluation(digest, *evaluation_);
  world_.After(ComputingTime(1), [this, ticket, result] { Emit(ticket, Which::kLast, result); });
  evaluation_.reset();
}

}  // namespace pando::sim
