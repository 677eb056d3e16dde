#include "run/serial_servers.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "plan/tensor_init.h"

namespace pando {
namespace {

std::optional<ParameterStore> MakeStore(const JobPlan& plan, HeldBytes& held_bytes) {
  if (plan.pulls.is_exact()) return std::nullopt;
  return std::optional<ParameterStore>(std::in_place, plan.shards,
                                       ParameterStore::Options{kTrainingVersionsKept}, held_bytes);
}

}  // namespace

SerialServers::SerialServers(const JobPlan& plan, ParameterStore& parameters, OnMade on_made)
    : plan_(plan),
      parameters_(parameters),
      on_made_(std::move(on_made)),
      encoded_from_(MakeStore(plan, held_bytes_)),
      update_(plan, versions(), LocalUpdate::Timed{}) {
  for (uint32_t s = 0; s < plan.shards.shard_count() && !plan.pushes.is_exact(); ++s)
    summed_.emplace_back(plan.shards.range(ShardId(s)).size(), plan.pushes.CodecOf(ShardId(s)));
}

void SerialServers::StartFromSeed() {
  const SharedBuffer values = versions().Writable(Version(0));
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    const ShardRange& range = plan_.shards.range(ShardId(s));
    InitRange(plan_.layout, plan_.job.seed, range,
              values->span().subspan(range.first, range.size()));
    Show(ShardId(s), Version(0), values);
  }
}

void SerialServers::StartFrom(Version version, const FloatBuffer& parameters,
                              std::span<const SharedBuffer> states) {
  const SharedBuffer values = versions().Writable(version);
  std::ranges::copy(parameters.span(), values->data());
  for (uint32_t s = 0; s < plan_.shards.shard_count(); ++s) {
    FloatBuffer& state = update_.states()[s];
    PANDO_CHECK(states[s]->size() == state.size());
    std::ranges::copy(states[s]->span(), state.data());
    Show(ShardId(s), version, values);
  }
}

void SerialServers::Take(const GradientReady& gradient) {
  const std::optional<Blob> root = summed_.empty() ? gradient.payload : Sum(gradient);
  if (!root) return;
  update_.Apply({gradient.step, gradient.shard, *root},
                [this](Step step, ShardId shard, const SharedBuffer& next) {
                  on_made_(step, *next);
                  Show(shard, VersionMadeBy(step), next);
                });
}

// The root, if this was the last leaf of the step. A step reads what the step before it made of all
// its leaves, so leaves of two steps never mix.
std::optional<Blob> SerialServers::Sum(const GradientReady& leaf) {
  Summed& summed = summed_[leaf.shard.value()];
  std::lock_guard lock(summed.mutex);
  if (summed.step != leaf.step) {
    PANDO_CHECK(!summed.step || (*summed.step < leaf.step && summed.leaves.is_complete()));
    summed.leaves.Begin(plan_.steps.Tree(leaf.step));
  }
  summed.step = leaf.step;
  summed.leaves.Add(leaf.node, leaf.payload);
  if (!summed.leaves.is_complete()) return std::nullopt;
  return summed.leaves.root();
}

void SerialServers::Show(ShardId shard, Version version, const SharedBuffer& values) {
  versions().Arrived(shard, version);
  if (!encoded_from_) return;
  const ShardRange& range = plan_.shards.range(shard);
  const auto encoded = std::make_shared<FloatBuffer>(plan_.pulls.PayloadBytes(shard) / 4);
  plan_.pulls.CodecOf(shard)->Encode(values->span().subspan(range.first, range.size()),
                                     std::as_writable_bytes(encoded->span()));
  parameters_.Put(shard, version, ToBlob(encoded));
}

}  // namespace pando
