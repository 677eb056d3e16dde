#include "worker/push_sender.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "tests/worker/compute_log.h"

namespace pando {
namespace {

constexpr PeerId kLane{NodeId(2), Incarnation(22), 0};
constexpr PeerId kOtherLane{NodeId(3), Incarnation(33), 0};
constexpr size_t kShardBytes = 100;
using Shards = std::vector<uint32_t>;

// One look from an end: which of a lane's shards `first` to `last` may be pushed, where those lack
// the version.
void LookFromLast(PushWindow& window, const PeerId& lane, uint32_t first, uint32_t last,
                  Shards* admitted) {
  window.From(PushWindow::kLast);
  for (uint32_t shard = last + 1; shard-- > first;) {
    if (window.Admits(lane)) admitted->push_back(shard);
    window.Pass(lane, ShardId(shard), kShardBytes, true);
  }
}

void LookFromFirst(PushWindow& window, uint32_t first, uint32_t last, Shards* admitted) {
  window.From(PushWindow::kFirst);
  for (uint32_t shard = first; shard <= last; ++shard) {
    if (window.Admits(kLane)) admitted->push_back(shard);
    window.Pass(kLane, ShardId(shard), kShardBytes, true);
  }
}

// While backward goes on.
Shards AdmittedBy(PushWindow& window, Micros now, uint32_t last, Version lacking = Version(1),
                  const PeerId& lane = kLane) {
  Shards admitted;
  window.Begin(now, lacking, PushWindow::kPatienceMax);
  LookFromLast(window, lane, 0, last, &admitted);
  window.End();
  return admitted;
}

// Once it is over.
Shards AdmittedAfter(PushWindow& window, Micros now, uint32_t first, uint32_t last) {
  Shards admitted;
  window.Begin(now, Version(1), PushWindow::kPatienceMax);
  LookFromFirst(window, first, last, &admitted);
  LookFromLast(window, kLane, first, last, &admitted);
  window.End();
  return admitted;
}

TEST_CASE("a window begins at the last shard that lacks its version, and moves with it") {
  PushWindow window(2 * kShardBytes);
  CHECK(AdmittedBy(window, Micros(0), 9) == Shards{9, 8});
  CHECK(AdmittedBy(window, Micros(1), 9) == Shards{9, 8});
  CHECK(AdmittedBy(window, Micros(2), 8) == Shards{8, 7});
  CHECK(AdmittedBy(window, Micros(3), 1) == Shards{1, 0});
  CHECK(window.NextDeadline() == kNever);
}

TEST_CASE("the first shard goes even if it is larger, and every lane has its own window") {
  PushWindow window(1);
  CHECK(AdmittedBy(window, Micros(0), 4) == Shards{4});
  CHECK(AdmittedBy(window, Micros(0), 6, Version(1), kOtherLane) == Shards{6});
}

TEST_CASE("a lane whose window does not move is sent all of the step, and only of that one") {
  PushWindow window(kShardBytes);
  AdmittedBy(window, Micros(0), 3);
  CHECK(window.NextDeadline() == PushWindow::kPatienceMax);
  CHECK(AdmittedBy(window, PushWindow::kPatienceMax - kMs, 3) == Shards{3});
  CHECK(AdmittedBy(window, PushWindow::kPatienceMax, 3) == Shards{3, 2, 1, 0});
  CHECK(window.NextDeadline() == kNever);
  CHECK(AdmittedBy(window, PushWindow::kPatienceMax + kMs, 2) == Shards{2, 1, 0});
  CHECK(AdmittedBy(window, PushWindow::kPatienceMax + kMs, 3, Version(2)) == Shards{3});
}

TEST_CASE("patience begins when something is held up, and again when the window moves") {
  PushWindow window(kShardBytes);
  AdmittedBy(window, Micros(0), 3);
  AdmittedBy(window, PushWindow::kPatienceMax / 2, 2);
  CHECK(window.NextDeadline() == PushWindow::kPatienceMax * 3 / 2);
  AdmittedBy(window, PushWindow::kPatienceMax, 0);  // the last one goes: nothing is held up
  CHECK(window.NextDeadline() == kNever);
}

TEST_CASE("what another step's window has waited does not count") {
  PushWindow window(kShardBytes);
  AdmittedBy(window, Micros(0), 3);
  AdmittedBy(window, PushWindow::kPatienceMax / 2, 3, Version(2));
  CHECK(window.NextDeadline() == PushWindow::kPatienceMax * 3 / 2);
}

TEST_CASE("a lane that waits for this worker is sent all that there is") {
  PushWindow window(kShardBytes);
  window.Begin(Micros(0), Version(1), PushWindow::kPatienceMax);
  window.From(PushWindow::kLast);
  window.Pass(kLane, ShardId(3), kShardBytes, false);
  CHECK(window.Admits(kLane));
  window.Pass(kLane, ShardId(2), kShardBytes, true);
  CHECK(window.Admits(kLane));
  window.End();
  CHECK(window.NextDeadline() == kNever);
}

TEST_CASE("when there is nothing left to push there is nothing to wait for") {
  PushWindow window(kShardBytes);
  AdmittedBy(window, Micros(0), 3);
  window.Rest();
  CHECK(window.NextDeadline() == kNever);
}

TEST_CASE("in another view patience begins again") {
  PushWindow window(kShardBytes);
  AdmittedBy(window, Micros(0), 3);
  window.Clear();
  CHECK(AdmittedBy(window, PushWindow::kPatienceMax, 3) == Shards{3});
}

TEST_CASE("a window without end holds nothing up") {
  PushWindow window(SIZE_MAX);
  CHECK(AdmittedBy(window, Micros(0), 3) == Shards{3, 2, 1, 0});
  CHECK(AdmittedAfter(window, Micros(0), 0, 1) == Shards{0, 1, 1, 0});
}

TEST_CASE("after backward a window begins at the first shard, and the last one goes as well") {
  PushWindow window(2 * kShardBytes);
  CHECK(AdmittedBy(window, Micros(0), 9) == Shards{9, 8});
  CHECK(AdmittedAfter(window, Micros(1), 0, 9) == Shards{0, 1, 9});
  CHECK(AdmittedAfter(window, Micros(2), 1, 9) == Shards{1, 2, 9});
  CHECK(AdmittedAfter(window, Micros(3), 1, 8) == Shards{1, 2, 8});
}

TEST_CASE("a window has room for an eighth of the lane's gradients, within bounds") {
  constexpr size_t kMiB = size_t{1} << 20;
  for (const auto& [all, room] : {std::pair{2, 4}, {64, 8}, {1024, 16}}) {
    PushWindow window(PushWindow::kBytesMax);
    window.Add(kLane, all * kMiB);
    window.Begin(Micros(0), Version(1), PushWindow::kPatienceMax);
    window.From(PushWindow::kLast);
    window.Pass(kLane, ShardId(9), room * kMiB - 1, true);
    CHECK(window.Admits(kLane));
    window.Pass(kLane, ShardId(8), 1, true);
    CHECK(!window.Admits(kLane));
  }
}

TEST_CASE("patience begins again when either window moves, and has an end while they are held up") {
  PushWindow window(kShardBytes);
  AdmittedAfter(window, Micros(0), 0, 9);
  AdmittedAfter(window, Micros(10), 1, 9);
  CHECK(window.NextDeadline() == PushWindow::kPatienceMax + Micros(10));
  AdmittedAfter(window, Micros(20), 1, 8);
  CHECK(window.NextDeadline() == PushWindow::kPatienceMax + Micros(20));
  CHECK(AdmittedAfter(window, PushWindow::kPatienceMax + Micros(10), 1, 3) == Shards{1, 3});
  CHECK(AdmittedAfter(window, 2 * PushWindow::kPatienceMax + Micros(10), 1, 3) ==
        Shards{1, 2, 3, 3, 2, 1});
}

}  // namespace
}  // namespace pando
