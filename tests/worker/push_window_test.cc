#include "worker/push_window.h"

#include <doctest/doctest.h>

namespace pando {
namespace {

constexpr Micros kMs = std::chrono::milliseconds(1);
constexpr size_t kShardBytes = 100;
constexpr size_t kMiB = size_t{1} << 20;

// Ten shards that lack version 1, and of which this worker has all its parts.
struct Window {
  explicit Window(size_t room) : window(std::vector<size_t>(10, kShardBytes), room) {}
  // While backward goes on.
  void Look(Micros now, uint32_t back, Version lacking = Version(1)) {
    Begin({.now = now, .lacking = lacking, .front = ShardId(0), .back = ShardId(back)});
  }
  // Once it is over.
  void LookAfter(Micros now, uint32_t front, uint32_t back) {
    Begin({.now = now,
           .lacking = Version(1),
           .is_computed = true,
           .front = ShardId(front),
           .back = ShardId(back)});
  }
  void Begin(PushWindow::Look look) {
    look.usual = kUsual;
    window.Begin(look);
  }
  // The first shard that is admitted from the back, and the last one from the front.
  uint32_t ToBack() const {
    uint32_t s = 10;
    while (s > 0 && window.AdmitsFromBack(ShardId(s - 1))) --s;
    return s;
  }
  uint32_t FromFront() const {
    uint32_t s = 0;
    while (s < 10 && window.AdmitsFromFront(ShardId(s))) ++s;
    return s;
  }
  static constexpr Micros kUsual = std::chrono::milliseconds(400);
  static constexpr Micros kPatience = std::chrono::milliseconds(100);  // a quarter of it
  PushWindow window;
};

TEST_CASE("a window begins at the last shard that lacks its version, and moves with it") {
  Window f(2 * kShardBytes);
  f.Look(kMs, 9);
  CHECK(f.ToBack() == 8);
  CHECK(f.FromFront() == 0);
  f.Look(kMs, 8);
  CHECK(f.ToBack() == 7);
  f.Look(kMs, 1);
  CHECK(f.ToBack() == 0);
}

TEST_CASE("the shard where a window begins may go, however large it is") {
  Window f(1);
  f.Look(kMs, 4);
  CHECK(f.ToBack() == 4);
  f.LookAfter(kMs, 2, 7);
  CHECK(f.FromFront() == 3);
}

TEST_CASE("after backward the window begins at the first shard, with a quarter of it at the last") {
  Window f(8 * kShardBytes);
  f.Look(kMs, 9);
  CHECK(f.ToBack() == 2);
  CHECK(f.FromFront() == 0);
  f.LookAfter(kMs, 0, 9);
  CHECK(f.FromFront() == 8);
  CHECK(f.ToBack() == 8);
  f.LookAfter(kMs, 1, 8);
  CHECK(f.FromFront() == 9);
  CHECK(f.ToBack() == 7);
}

TEST_CASE("a window that does not move lets all of the step through, and only of that one") {
  Window f(kShardBytes);
  f.Look(kMs, 3);
  f.window.End(true);
  CHECK(f.window.NextDeadline() == kMs + f.kPatience);
  f.Look(f.kPatience, 3);
  CHECK(f.ToBack() == 3);
  f.Look(kMs + f.kPatience, 3);
  CHECK(f.ToBack() == 0);
  f.window.End(false);
  CHECK(f.window.NextDeadline() == kNever);
  f.Look(2 * f.kPatience, 2);
  CHECK(f.ToBack() == 0);
  f.Look(2 * f.kPatience, 3, Version(2));
  CHECK(f.ToBack() == 3);
}

TEST_CASE("patience begins when something is held up, and again when the window moves") {
  Window f(kShardBytes);
  f.LookAfter(Micros(0), 0, 9);
  f.window.End(true);
  CHECK(f.window.NextDeadline() == f.kPatience);
  f.LookAfter(10 * kMs, 1, 9);
  f.window.End(true);
  CHECK(f.window.NextDeadline() == f.kPatience + 10 * kMs);
  f.LookAfter(20 * kMs, 1, 8);
  f.window.End(true);
  CHECK(f.window.NextDeadline() == f.kPatience + 20 * kMs);
  f.LookAfter(30 * kMs, 1, 8);
  f.window.End(true);
  CHECK(f.window.NextDeadline() == f.kPatience + 20 * kMs);
  f.window.Rest();
  CHECK(f.window.NextDeadline() == kNever);
}

TEST_CASE("patience has an upper bound, also before a step has been measured") {
  Window f(kShardBytes);
  f.window.Begin({.now = kMs, .lacking = Version(1), .front = ShardId(0), .back = ShardId(9)});
  f.window.End(true);
  CHECK(f.window.NextDeadline() == kMs + PushWindow::kPatienceMax);
}

TEST_CASE("a window that waits for this worker lets everything through") {
  Window f(kShardBytes);
  f.Begin({.now = kMs,
           .lacking = Version(1),
           .front = ShardId(0),
           .back = ShardId(9),
           .is_awaiting_us = true});
  CHECK(f.ToBack() == 0);
}

TEST_CASE("a window without end holds nothing up") {
  Window f(SIZE_MAX);
  f.Look(kMs, 9);
  CHECK(f.ToBack() == 0);
  f.LookAfter(kMs, 0, 9);
  CHECK(f.FromFront() == 10);
}

// How many of 1,024 equal shards a window lets through.
uint32_t ShardsAdmitted(size_t bytes, size_t round_bytes, std::optional<Micros> usual) {
  PushWindow window(std::vector<size_t>(1024, bytes / 1024), std::nullopt);
  window.SetRoundBytes(round_bytes);
  window.Begin({.usual = usual, .lacking = Version(1), .front = ShardId(0), .back = ShardId(1023)});
  uint32_t count = 0;
  while (count < 1024 && window.AdmitsFromBack(ShardId(1023 - count))) ++count;
  return count;
}

TEST_CASE("a window has room for an eighth of the step's gradients, within bounds") {
  const Micros second = std::chrono::seconds(1);
  CHECK(ShardsAdmitted(64 * kMiB, 0, second) == 128);
  CHECK(ShardsAdmitted(1024 * kMiB, 0, second) == 16);        // 16 MiB
  CHECK(ShardsAdmitted(8 * kMiB, 0, std::nullopt) == 512);    // 4 MiB: no step has been measured
  CHECK(ShardsAdmitted(8 * kMiB, 0, 40 * kMs) == 256);        // sent in 10 of 40 ms
  CHECK(ShardsAdmitted(8 * kMiB, 0, 3 * kMs) == 1024);        // a round trip may take longer
  CHECK(ShardsAdmitted(64 * kMiB, 8 * kMiB, second) == 384);  // three rounds
}

}  // namespace
}  // namespace pando
