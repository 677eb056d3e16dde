#include "tests/sim/hostile/random_message.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/float_buffer.h"
#include "proto/codec_fields.h"

namespace pando::sim {
namespace {

constexpr double kNear = 0.7;

// Draws a number of any magnitude, at most `max`.
uint64_t AnyNumber(Chance& chance, uint64_t max = UINT64_MAX) {
  const uint64_t number = chance.Next() >> chance.Below(64);
  return max == UINT64_MAX ? number : number % (max + 1);
}

// The common part of one message's fields.
struct Draw {
  Chance& chance;
  const RunKnowledge& run;
  ShardId shard;  // drawn last: a payload's
};

// Visits fields (proto/codec_fields.h) and fills them.
class Filler {
 public:
  explicit Filler(Draw& draw) : draw_(draw), chance_(draw.chance) {}

  void operator()(const auto&... fields) { (FillField(fields), ...); }
  void BytesPayload(Blob& to) { Payload(to); }
  void Payload(Blob& to) {
    const bool is_near = chance_.OneIn(kNear) && draw_.shard.value() < shard_count();
    const size_t bytes =
        is_near ? draw_.run.plan.pushes.PayloadBytes(draw_.shard) : 4 * chance_.Below(3000);
    auto buffer = std::make_shared<FloatBuffer>(bytes / sizeof(float));
    for (float& value : buffer->span())
      value = std::bit_cast<float>(static_cast<uint32_t>(chance_.Next()));
    to = ToBlob(std::move(buffer));
  }

 private:
  uint64_t shard_count() const { return draw_.run.plan.shards.shard_count(); }

  void FillField(const auto& field) {
    if constexpr (std::is_same_v<decltype(field.member), uint32_t&>) {
      if (field.name == "generation") {
        field.member = RandomGeneration(chance_, draw_.run);
        return;
      }
    }
    std::apply([&](const auto&... limits) { Fill(field.member, limits...); }, field.limits);
  }

  template <class T>
  requires std::is_arithmetic_v<T>
  void Fill(T& to, const Limit& limit = {"", UINT64_MAX}) {
    to = static_cast<T>(AnyNumber(chance_, limit.max));
    if constexpr (std::is_floating_point_v<T>) to = static_cast<T>(chance_.Below(2000)) / 1000 - 1;
  }
  void Fill(std::string& to, const Limit& bytes) {
    to.assign(chance_.Below(std::min<uint64_t>(bytes.max, 20)), 'x');
  }
  template <class E>
  void Fill(E& to, const LastOf<E>& limit) {
    to = static_cast<E>(chance_.Below(static_cast<uint64_t>(limit.last) + 1));
  }
  void Fill(Incarnation& to) { to = RandomPeer().incarnation; }
  void Fill(NodeId& to) { to = RandomPeer().node; }
  void Fill(ShardId& to) {
    const bool is_near = chance_.OneIn(kNear);
    to = draw_.shard =
        ShardId(static_cast<uint32_t>(chance_.Below(is_near ? shard_count() : kShardsMax)));
  }
  void Fill(MicroBatch& to) { to = MicroBatch(static_cast<uint32_t>(AnyNumber(chance_, 65535))); }
  void Fill(TreeNode& to, uint32_t) {
    const uint32_t near_count = 2 * draw_.run.plan.job.micro_batches;
    const uint64_t count = chance_.OneIn(kNear) ? near_count : kTreeNodesMax - 1;
    to = TreeNode(1 + static_cast<uint32_t>(chance_.Below(count)));
  }
  void Fill(Step& to) { to = Step(RandomVersion()); }
  void Fill(Version& to) { to = Version(RandomVersion()); }
  void Fill(ViewId& to) { to = RandomView(chance_, draw_.run); }
  void Fill(PeerId& to) { to = RandomPeer(); }
  template <class T, class... Limits>
  void Fill(std::vector<T>& to, const Limit& count, const Limits&... limits) {
    to.resize(std::min(count.max, 1 + AnyNumber(chance_, 4)));
    for (T& item : to) Fill(item, limits...);
  }
  template <class T>
  requires std::is_class_v<T>
  void Fill(T& to) { Visit(Filler(draw_), to); }

  uint64_t RandomVersion() {
    const uint64_t committed = draw_.run.committed.value();
    if (!chance_.OneIn(kNear)) return AnyNumber(chance_, kStepMax);
    return committed - std::min<uint64_t>(committed, 1) + chance_.Below(4);
  }
  PeerId RandomPeer() {
    const std::vector<PeerId>& peers = draw_.run.peers;
    if (!peers.empty() && chance_.OneIn(kNear)) return peers[chance_.Below(peers.size())];
    return {NodeId(static_cast<uint32_t>(chance_.Below(kNodesMax))), Incarnation(chance_.Next()),
            0};
  }

  Draw& draw_;
  Chance& chance_;
};

template <class... Ms>
Message OfKind(size_t kind, Draw& draw, std::type_identity<std::variant<Ms...>>) {
  Message message;
  size_t index = 0;
  const auto fill = [&]<class M>(std::type_identity<M>) {
    if (index++ != kind) return;
    M filled;
    Visit(Filler(draw), filled);
    message = std::move(filled);
  };
  (fill(std::type_identity<Ms>()), ...);
  return message;
}

}  // namespace

Message RandomMessage(Chance& chance, const RunKnowledge& run, size_t kind) {
  Draw draw{chance, run, ShardId()};
  return OfKind(kind, draw, std::type_identity<MessageVariant>());
}

ViewId RandomView(Chance& chance, const RunKnowledge& run) {
  if (chance.OneIn(kNear)) return {run.view.term, run.view.number + chance.Below(2)};
  return {AnyNumber(chance), AnyNumber(chance)};
}

uint32_t RandomGeneration(Chance& chance, const RunKnowledge& run) {
  if (chance.OneIn(kNear)) return run.generation;
  return static_cast<uint32_t>(AnyNumber(chance, UINT32_MAX));
}

}  // namespace pando::sim
