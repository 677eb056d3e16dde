#include "train/parameter_store.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace pando {
namespace {

const TensorLayout& Layout() {  // two shards of 1,600 and 16 floats
  static const TensorLayout kLayout({{.name = "w", .shape = {1600}}, MetricTensorSpec()});
  return kLayout;
}

using Run = ShardPlan::Run;

Status Await(ParameterStore::Hold& hold, Run shards, bool interrupted = true) {
  return hold.Advance(shards, {}, [=] { return interrupted; }, {});
}

struct StoreFixture {
  void Put(uint32_t shard, uint64_t version, float value) {
    SharedBuffer buffer = std::make_shared<FloatBuffer>(shards.range(ShardId(shard)).size());
    for (float& x : buffer->span()) x = value;
    store.Put(ShardId(shard), Version(version), ToBlob(buffer));
  }
  Status WaitForAll(ParameterStore::Hold& hold, bool interrupted = true) {
    return Await(hold, {0, shards.shard_count()}, interrupted);
  }
  ShardPlan shards{Layout()};
  HeldBytes held_bytes;
  ParameterStore store{shards, {.versions_kept = 2}, held_bytes};
};

TEST_CASE("a shard that is read in place is kept as it is, for as long as its version") {
  const ShardPlan shards(Layout());
  HeldBytes held_bytes;
  const float* in_place = nullptr;
  ParameterStore store(
      shards,
      {.versions_kept = 1,
       .is_read_in_place = [&](const Blob& blob) { return blob.floats().data() == in_place; }},
      held_bytes);
  std::weak_ptr<FloatBuffer> kept;
  const auto put = [&](uint32_t shard, uint64_t version, bool is_in_place) {
    auto buffer = std::make_shared<FloatBuffer>(shards.range(ShardId(shard)).size());
    std::ranges::fill(buffer->span(), static_cast<float>(version));
    if (is_in_place) {
      in_place = buffer->data();
      kept = buffer;
    }
    store.Put(ShardId(shard), Version(version), ToBlob(buffer));
  };
  put(0, 5, true);
  put(1, 5, false);
  {
    auto hold = store.HoldVersion(Version(5));
    REQUIRE(Await(*hold, {0, 2}).ok());
    CHECK(hold->kept_shard(ShardId(0)) == in_place);
    CHECK(hold->kept_shard(ShardId(1)) == hold->values() + 1600);
    CHECK(hold->kept_shard(ShardId(1))[0] == 5.0f);
    put(0, 6, false);
    put(1, 6, false);
    CHECK_FALSE(kept.expired());  // held
  }
  CHECK(kept.expired());
}

// A wait asks this whether it is called off, which shows that it has begun.
class CallOff {
 public:
  std::function<bool()> question() {
    return [this] {
      ++times_asked_;
      times_asked_.notify_all();
      return is_said_.load();
    };
  }
  void AwaitQuestion() const { times_asked_.wait(0); }
  void Say() { is_said_ = true; }
  int times_asked() const { return times_asked_; }

 private:
  std::atomic<int> times_asked_ = 0;
  std::atomic<bool> is_said_ = false;
};

TEST_CASE("a wait for shards that are there returns at once, interrupted or not") {
  StoreFixture f;
  f.Put(0, 5, 1.0f);
  auto hold = f.store.HoldVersion(Version(5));
  CHECK(Await(*hold, {0, 1}).ok());
  CHECK(Await(*hold, {1, 1}).ok());  // an empty run
  CHECK(hold->values()[0] == 1.0f);
  CHECK(f.WaitForAll(*hold).code() == StatusCode::kInterrupted);
  CHECK_FALSE(f.store.IsWhole(Version(5)));
  f.Put(1, 5, 2.0f);
  CHECK(f.WaitForAll(*hold).ok());
  CHECK(f.store.IsWhole(Version(5)));
  CHECK(hold->values()[1600] == 2.0f);
  CHECK(f.held_bytes.peak() == 1616 * sizeof(float));
}

TEST_CASE("cleared, a store ends its waits and takes lower versions again (P21)") {
  StoreFixture f;
  f.Put(0, 9, 1.0f);
  auto hold = f.store.HoldVersion(Version(9));
  std::thread waiter([&] {
    CHECK(f.WaitForAll(*hold, /*interrupted=*/false).code() == StatusCode::kInterrupted);
  });
  f.store.Clear();
  waiter.join();
  CHECK(hold->values()[0] == 1.0f);
  CHECK_FALSE(f.store.IsSuperseded(Version(3)));
  f.Put(0, 3, 2.0f);
  f.Put(1, 3, 2.0f);
  CHECK(f.store.IsWhole(Version(3)));
}

TEST_CASE("a waiting thread goes on when the last of its shards arrives") {
  StoreFixture f;
  auto hold = f.store.HoldVersion(Version(0));
  CallOff call_off;
  std::atomic<bool> done = false;
  std::thread waiter([&] {
    CHECK(hold->Advance({0, 2}, {}, call_off.question(), {}).ok());
    done = true;
  });
  call_off.AwaitQuestion();
  f.Put(1, 0, 1.0f);
  CHECK_FALSE(done);
  f.Put(0, 0, 1.0f);
  waiter.join();
  CHECK(done);
  CHECK(call_off.times_asked() == 1);  // the first shard has not woken it
}

TEST_CASE("a wait for a version ends when the versions kept have gone past it") {
  StoreFixture f;
  auto hold = f.store.HoldVersion(Version(0));
  CallOff call_off;
  std::thread waiter([&] {
    Status s = hold->Advance({0, 1}, {}, call_off.question(), {});
    CHECK(s.code() == StatusCode::kInterrupted);
  });
  call_off.AwaitQuestion();
  f.Put(0, 2, 1.0f);
  waiter.join();
}

TEST_CASE("a waiting thread returns when it is called off") {
  StoreFixture f;
  auto hold = f.store.HoldVersion(Version(0));
  CallOff call_off;
  std::thread waiter([&] {
    Status s = hold->Advance({0, 1}, {}, call_off.question(), {});
    CHECK(s.code() == StatusCode::kInterrupted);
  });
  call_off.AwaitQuestion();
  call_off.Say();
  f.store.Wake();
  waiter.join();
}

TEST_CASE("the two newest versions are kept, and a reader's hold stays whole") {
  StoreFixture f;
  f.Put(0, 0, 10.0f);
  auto hold = f.store.HoldVersion(Version(0));
  f.Put(0, 1, 11.0f);
  CHECK(f.store.HoldVersion(Version(0)).ok());
  f.Put(0, 2, 12.0f);
  CHECK(f.store.HoldVersion(Version(0)).status().code() == StatusCode::kInterrupted);
  CHECK(f.store.IsSuperseded(Version(0)));
  CHECK(f.WaitForAll(*hold, /*interrupted=*/false).code() == StatusCode::kInterrupted);
  CHECK(hold->values()[0] == 10.0f);
  CHECK((*f.store.Open(Version(1)))->data()[0] == 11.0f);
}

TEST_CASE("late and repeated shards are dropped") {
  StoreFixture f;
  f.Put(0, 3, 1.0f);
  f.Put(0, 3, 2.0f);
  CHECK((*f.store.Open(Version(3)))->data()[0] == 1.0f);
  f.Put(0, 1, 2.0f);
  CHECK(f.store.IsSuperseded(Version(1)));
}

TEST_CASE("opening a version ahead of time drops nothing") {
  StoreFixture f;
  f.Put(0, 0, 1.0f);
  CHECK(f.store.Open(Version(1)).ok());
  CHECK(f.store.Open(Version(2)).ok());
  CHECK((*f.store.Open(Version(0)))->data()[0] == 1.0f);
}

TEST_CASE("the time spent waiting is counted, a shard that is there costs none") {
  StoreFixture f;
  f.Put(0, 0, 1.0f);
  auto hold = f.store.HoldVersion(Version(0));
  CHECK(Await(*hold, {0, 1}, /*interrupted=*/false).ok());
  CHECK(f.store.waited_us() == 0);
}

TEST_CASE("of a superseded version nothing is taken or waited for any more") {
  StoreFixture f;
  auto hold = f.store.HoldVersion(Version(3));
  f.store.Supersede(Version(3));
  CHECK(f.WaitForAll(*hold, /*interrupted=*/false).code() == StatusCode::kInterrupted);
  CHECK(f.store.IsSuperseded(Version(3)));
  CHECK_FALSE(f.store.IsSuperseded(Version(4)));
  f.Put(0, 3, 1.0f);
  CHECK(f.store.HoldVersion(Version(3)).status().code() == StatusCode::kInterrupted);
  f.store.Supersede(Version(1));  // late news
  CHECK_FALSE(f.store.IsSuperseded(Version(4)));
  f.store.Clear();
  CHECK_FALSE(f.store.IsSuperseded(Version(3)));
}

// ---- layer residency ----------------------------------------------------------------------------

// Five shards whose boundaries lie within pages, and one of the metrics.
const TensorLayout& PiecesLayout() {
  static const TensorLayout kLayout({{.name = "a", .shape = {1040}},
                                     {.name = "b", .shape = {1040}},
                                     {.name = "c", .shape = {1040}},
                                     {.name = "d", .shape = {1040}},
                                     {.name = "e", .shape = {1040}},
                                     MetricTensorSpec()});
  return kLayout;
}

struct LayerFixture {
  void Put(uint32_t shard, float value, uint64_t version = 0) {
    SharedBuffer buffer = std::make_shared<FloatBuffer>(shards.range(ShardId(shard)).size());
    for (float& x : buffer->span()) x = value;
    store.Put(ShardId(shard), Version(version), ToBlob(buffer));
  }
  ParameterStore::Hold Hold(uint64_t version = 0) { return *store.HoldVersion(Version(version)); }
  Status Advance(ParameterStore::Hold& hold, Run now, Run next = {}) {
    return hold.Advance(
        now, next, [] { return true; },
        [this](const std::vector<ShardId>& shards_wanted) {
          for (ShardId shard : shards_wanted) wanted.push_back(shard.value());
        });
  }
  std::vector<uint32_t> TakeWanted() { return std::exchange(wanted, {}); }
  // Whether all floats of the shard read so.
  bool Reads(const ParameterStore::Hold& hold, uint32_t shard, float value) const {
    const ShardRange& range = shards.range(ShardId(shard));
    return std::all_of(hold.values() + range.first, hold.values() + range.last,
                       [=](float x) { return x == value; });
  }
  uint64_t CountBytes(Run run) const {
    return sizeof(float) *
           (shards.range(ShardId(run.last - 1)).last - shards.range(ShardId(run.first)).first);
  }

  ShardPlan shards{PiecesLayout()};
  HeldBytes held_bytes;
  ParameterStore store{shards, {2, ParameterResidency::kLayer}, held_bytes};
  std::vector<uint32_t> wanted;
};
using Ids = std::vector<uint32_t>;

TEST_CASE("a shard is asked for once, kept while it is at work or next, and dropped after that") {
  LayerFixture f;
  REQUIRE(f.shards.shard_count() == 6);
  auto hold = f.Hold();
  CHECK(f.Advance(hold, {0, 1}, {1, 2}).code() == StatusCode::kInterrupted);
  CHECK(f.TakeWanted() == Ids{0, 1});
  f.Put(0, 10.0f);
  f.Put(1, 11.0f);
  f.Put(2, 12.0f);  // no thread wants it
  CHECK(f.Advance(hold, {0, 1}, {1, 2}).ok());
  CHECK(f.Reads(hold, 0, 10.0f));
  CHECK(f.held_bytes.now() == f.CountBytes({0, 2}));
  CHECK(f.Advance(hold, {1, 2}, {2, 3}).code() == StatusCode::kOk);
  CHECK(f.TakeWanted() == Ids{2});
  CHECK(f.Reads(hold, 1, 11.0f));
  CHECK(f.held_bytes.now() == f.CountBytes({1, 2}));
  f.Put(2, 12.0f);
  CHECK(f.Advance(hold, {2, 3}, {2, 3}).ok());
  CHECK(f.Reads(hold, 2, 12.0f));
  CHECK(f.held_bytes.now() == f.CountBytes({2, 3}));
  CHECK(f.Advance(hold, {0, 1}, {}).code() == StatusCode::kInterrupted);  // once more, as backward
  CHECK(f.TakeWanted() == Ids{0});
  CHECK(f.held_bytes.now() == 0);
  CHECK(f.held_bytes.peak() == f.CountBytes({0, 2}));
}

TEST_CASE("what a shard shared with a dropped one stays, and its own memory is given back") {
  LayerFixture f;
  auto all = f.Hold();
  CHECK_FALSE(f.Advance(all, {0, 6}).ok());
  for (uint32_t s = 0; s < 6; ++s) f.Put(s, 1.0f + static_cast<float>(s));
  auto odd = f.Hold();
  for (uint32_t kept = 0; kept < 6; ++kept) {
    CHECK(f.Advance(odd, {kept, kept + 1}).ok());
    CHECK(f.Advance(all, {0, 0}).ok());
    CHECK(f.held_bytes.now() == f.CountBytes({kept, kept + 1}));
    CHECK(f.Reads(odd, kept, 1.0f + static_cast<float>(kept)));
    CHECK_FALSE(f.Advance(all, {0, 6}).ok());
    for (uint32_t s = 0; s < 6; ++s) f.Put(s, 1.0f + static_cast<float>(s));
    for (uint32_t s = 0; s < 6; ++s) CHECK(f.Reads(all, s, 1.0f + static_cast<float>(s)));
  }
  CHECK(f.Advance(odd, {0, 0}).ok());
  CHECK(f.Advance(all, {0, 0}).ok());
  CHECK(f.held_bytes.now() == 0);
  for (uint32_t s = 0; s < 6; ++s) CHECK(f.Reads(all, s, 0.0f));  // no page is left
}

TEST_CASE("a shard stays while a thread holds it, and is asked for again after the last") {
  LayerFixture f;
  auto first = f.Hold();
  {
    auto second = f.Hold();
    CHECK_FALSE(f.Advance(first, {0, 2}).ok());
    CHECK_FALSE(f.Advance(second, {1, 3}).ok());
    CHECK(f.TakeWanted() == Ids{0, 1, 2});
    for (uint32_t s : {0, 1, 2}) f.Put(s, 5.0f);
    CHECK(f.Advance(first, {4, 5}).code() == StatusCode::kInterrupted);
    CHECK(f.held_bytes.now() == f.CountBytes({1, 3}));
    CHECK(f.Advance(second, {1, 3}).ok());
    f.TakeWanted();
  }
  CHECK(f.held_bytes.now() == 0);
  CHECK_FALSE(f.Advance(first, {1, 2}).ok());
  CHECK(f.TakeWanted() == Ids{1});
}

TEST_CASE("a hold that was moved away gives nothing back") {
  LayerFixture f;
  auto hold = f.Hold();
  CHECK_FALSE(f.Advance(hold, {0, 1}).ok());
  f.Put(0, 3.0f);
  {
    ParameterStore::Hold moved = std::move(hold);
    CHECK(f.Advance(moved, {0, 1}).ok());
    CHECK(f.held_bytes.now() == f.CountBytes({0, 1}));
  }
  CHECK(f.held_bytes.now() == 0);
}

TEST_CASE("a superseded or cleared version asks for nothing, and its holds give all back") {
  for (bool is_cleared : {false, true}) {
    LayerFixture f;
    auto hold = f.Hold();
    CHECK_FALSE(f.Advance(hold, {0, 1}, {1, 2}).ok());
    f.Put(0, 3.0f);
    f.TakeWanted();
    is_cleared ? f.store.Clear() : f.store.Supersede(Version(0));
    CHECK(f.Advance(hold, {1, 2}).code() == StatusCode::kInterrupted);
    CHECK(f.TakeWanted().empty());
    if (is_cleared) {  // the same number, another generation's
      auto again = f.Hold();
      CHECK_FALSE(f.Advance(again, {0, 1}).ok());
      CHECK(f.TakeWanted() == Ids{0});
      f.Put(0, 4.0f);
      CHECK(f.Advance(again, {0, 1}).ok());
      CHECK(f.Reads(again, 0, 4.0f));
      CHECK(f.Reads(hold, 0, 3.0f));
    }
    { ParameterStore::Hold gone = std::move(hold); }
    CHECK(f.held_bytes.now() == 0);
  }
}

// A writer that copies while the last reader leaves, and another comes.
TEST_CASE("readers come and go while shards arrive: each reads what it waited for") {
  LayerFixture f;
  std::mutex mutex;  // guards asked
  std::condition_variable changed;
  std::deque<ShardId> asked;
  const auto fetch = [&](const std::vector<ShardId>& shards) {
    std::lock_guard lock(mutex);
    asked.insert(asked.end(), shards.begin(), shards.end());
    changed.notify_all();
  };
  std::atomic<int> running = 3;
  std::vector<std::thread> readers;
  for (uint32_t r = 0; r < 3; ++r) {
    readers.emplace_back([&, r] {
      for (uint32_t round = 0; round < 300; ++round) {
        auto hold = f.Hold();
        for (uint32_t s = 0; s < 5; ++s) {
          const bool may_leave = (round + r) % 3 == 0;
          const Status arrived = hold.Advance(
              {s, s + 1}, {s + 1, s + 2}, [=] { return may_leave; }, fetch);
          if (!arrived.ok()) break;
          if (!f.Reads(hold, s, 1.0f + static_cast<float>(s))) {
            FAIL_CHECK("shard " << s << " was dropped under its reader");
          }
        }
      }
      std::lock_guard lock(mutex);
      --running;
      changed.notify_all();
    });
  }
  while (true) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !asked.empty() || running == 0; });
    if (asked.empty()) break;
    const ShardId shard = asked.front();
    asked.pop_front();
    lock.unlock();
    f.Put(shard.value(), 1.0f + static_cast<float>(shard.value()));
  }
  for (std::thread& reader : readers) reader.join();
  CHECK(f.held_bytes.now() == 0);
  CHECK(f.held_bytes.peak() <= f.CountBytes({0, 6}));
}

}  // namespace
}  // namespace pando
