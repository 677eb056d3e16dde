#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "tests/worker/compute_log.h"
#include "worker/push_sender.h"

namespace pando {
namespace {

constexpr size_t kShardBytes = 100;
using Shards = std::vector<uint32_t>;

// The windows of a worker. Shards `first` to `last` of the look's lane lack the version, and this
// worker has all its parts of them.
struct Windows {
  explicit Windows(size_t bytes_max, size_t lane_count = 1) {
    look.windows.resize(lane_count);
    look.window_bytes_max = bytes_max;
    look.patience = PushWindow::kPatienceMax;
  }
  // While backward goes on.
  Shards Choose(Micros now, uint32_t first, uint32_t last, Version lacking = Version(1),
                size_t window = 0) {
    look.now = now;
    look.lacking = lacking;
    look.shards.assign(first, {.window = window, .bytes = kShardBytes});
    look.shards.resize(
        last + 1, {.window = window, .bytes = kShardBytes, .has_ready = true, .is_lacking = true});
    return Choose();
  }
  // Once it is over.
  Shards ChooseAfter(Micros now, uint32_t first, uint32_t last) {
    look.is_computed = true;
    return Choose(now, first, last);
  }
  Shards Choose() {
    PushLook after = ChooseShards(look);
    look.windows = std::move(after.windows);
    Shards numbers;
    for (ShardId shard : after.chosen) numbers.push_back(shard.value());
    return numbers;
  }
  Micros open_at() const { return look.windows[0].open_at; }

  PushLook look;
};

TEST_CASE("a window begins at the last shard that lacks its version, and moves with it") {
  Windows f(2 * kShardBytes);
  CHECK(f.Choose(Micros(0), 0, 9) == Shards{9, 8});
  CHECK(f.Choose(Micros(1), 0, 9) == Shards{9, 8});
  CHECK(f.Choose(Micros(2), 0, 8) == Shards{8, 7});
  CHECK(f.Choose(Micros(3), 0, 1) == Shards{1, 0});
  CHECK(f.open_at() == kNever);
}

TEST_CASE("the first shard goes even if it is larger, and every lane has its own window") {
  Windows f(1, 2);
  CHECK(f.Choose(Micros(0), 0, 4) == Shards{4});
  CHECK(f.Choose(Micros(0), 0, 6, Version(1), 1) == Shards{6});
}

TEST_CASE("a lane whose window does not move is sent all of the step, and only of that one") {
  Windows f(kShardBytes);
  f.Choose(Micros(0), 0, 3);
  CHECK(f.open_at() == PushWindow::kPatienceMax);
  CHECK(f.Choose(PushWindow::kPatienceMax - kMs, 0, 3) == Shards{3});
  CHECK(f.Choose(PushWindow::kPatienceMax, 0, 3) == Shards{3, 2, 1, 0});
  CHECK(f.open_at() == kNever);
  CHECK(f.Choose(PushWindow::kPatienceMax + kMs, 0, 2) == Shards{2, 1, 0});
  CHECK(f.Choose(PushWindow::kPatienceMax + kMs, 0, 3, Version(2)) == Shards{3});
}

TEST_CASE("patience begins when something is held up, and again when the window moves") {
  Windows f(kShardBytes);
  f.Choose(Micros(0), 0, 3);
  f.Choose(PushWindow::kPatienceMax / 2, 0, 2);
  CHECK(f.open_at() == PushWindow::kPatienceMax * 3 / 2);
  f.Choose(PushWindow::kPatienceMax, 0, 0);  // the last one goes: nothing is held up
  CHECK(f.open_at() == kNever);
}

TEST_CASE("what another step's window has waited does not count") {
  Windows f(kShardBytes);
  f.Choose(Micros(0), 0, 3);
  f.Choose(PushWindow::kPatienceMax / 2, 0, 3, Version(2));
  CHECK(f.open_at() == PushWindow::kPatienceMax * 3 / 2);
}

TEST_CASE("a lane that waits for this worker is sent all that there is") {
  Windows f(kShardBytes);
  f.Choose(Micros(0), 0, 3);
  f.look.shards[3].has_ready = false;
  f.look.shards[3].is_awaiting_us = true;
  CHECK(f.Choose() == Shards{2, 1, 0});
  CHECK(f.open_at() == kNever);
}

TEST_CASE("gradients for the host's relay need no window, and their shards count for their lane") {
  Windows f(kShardBytes);
  f.Choose(Micros(0), 0, 3);
  for (uint32_t s : {3, 1}) f.look.shards[s].is_given = true;
  CHECK(f.Choose() == Shards{3, 1});
}

TEST_CASE("a window without end holds nothing up") {
  Windows f(SIZE_MAX);
  CHECK(f.Choose(Micros(0), 0, 3) == Shards{3, 2, 1, 0});
  CHECK(f.ChooseAfter(Micros(0), 0, 1) == Shards{0, 1});
}

TEST_CASE("after backward a window begins at the first shard, and the last one goes as well") {
  Windows f(2 * kShardBytes);
  CHECK(f.Choose(Micros(0), 0, 9) == Shards{9, 8});
  CHECK(f.ChooseAfter(Micros(1), 0, 9) == Shards{0, 1, 9});
  CHECK(f.ChooseAfter(Micros(2), 1, 9) == Shards{1, 2, 9});
  CHECK(f.ChooseAfter(Micros(3), 1, 8) == Shards{1, 2, 8});
}

TEST_CASE("a window has room for an eighth of the lane's gradients, within bounds") {
  constexpr size_t kMiB = size_t{1} << 20;
  for (const auto& [all, room] : {std::pair{2, 4}, {64, 8}, {1024, 16}}) {
    Windows f(PushWindow::kBytesMax);
    f.look.windows[0].lane_bytes = all * kMiB;
    f.look.lacking = Version(1);
    const auto shard = [](size_t bytes) {
      return PushLook::Shard{.bytes = bytes, .has_ready = true, .is_lacking = true};
    };
    f.look.shards = {shard(1), shard(1), shard(room * kMiB - 1)};
    CHECK(f.Choose() == Shards{2, 1});
  }
}

TEST_CASE("patience begins again when either window moves, and has an end while they are held up") {
  Windows f(kShardBytes);
  f.ChooseAfter(Micros(0), 0, 9);
  f.ChooseAfter(Micros(10), 1, 9);
  CHECK(f.open_at() == PushWindow::kPatienceMax + Micros(10));
  f.ChooseAfter(Micros(20), 1, 8);
  CHECK(f.open_at() == PushWindow::kPatienceMax + Micros(20));
  CHECK(f.ChooseAfter(PushWindow::kPatienceMax + Micros(10), 1, 3) == Shards{1, 3});
  CHECK(f.ChooseAfter(2 * PushWindow::kPatienceMax + Micros(10), 1, 3) == Shards{1, 2, 3});
}

}  // namespace
}  // namespace pando
