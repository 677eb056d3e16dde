#include "worker/parameter_store.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

namespace pando {
namespace {

const TensorLayout& Layout() {  // two shards of 1,600 and 16 floats
  static const TensorLayout layout({{.name = "w", .shape = {1600}}, MetricTensorSpec()});
  return layout;
}

struct Fixture {
  explicit Fixture(uint64_t versions_kept = 2) : store(shards, versions_kept) {}
  void Put(uint32_t shard, uint64_t version, float value) {
    SharedBuffer buffer = std::make_shared<FloatBuffer>(shards.range(ShardId(shard)).size());
    for (float& x : buffer->span()) x = value;
    store.Put(ShardId(shard), Version(version), ToBlob(buffer));
  }
  Status WaitForAll(uint64_t version, bool interrupted = true) {
    return store.WaitFor({0, shards.shard_count()}, Version(version), [=] { return interrupted; });
  }
  ShardPlan shards{Layout()};
  ParameterStore store;
};

TEST_CASE("a wait for shards that are there returns at once, interrupted or not") {
  Fixture f;
  f.Put(0, 5, 1.0f);
  auto values = f.store.Open(Version(5));
  CHECK(f.store.WaitFor({0, 1}, Version(5), [] { return true; }).ok());
  CHECK(f.store.WaitFor({1, 1}, Version(5), [] { return true; }).ok());  // an empty run
  CHECK((*values)->data()[0] == 1.0f);
  CHECK(f.WaitForAll(5).code() == StatusCode::kInterrupted);
  CHECK_FALSE(f.store.IsWhole(Version(5)));
  f.Put(1, 5, 2.0f);
  CHECK(f.WaitForAll(5).ok());
  CHECK(f.store.IsWhole(Version(5)));
  CHECK((*values)->data()[1600] == 2.0f);
}

TEST_CASE("cleared, a store ends its waits and takes lower versions again (P21)") {
  Fixture f;
  f.Put(0, 9, 1.0f);
  auto values = f.store.Open(Version(9));
  std::thread waiter(
      [&] { CHECK(f.WaitForAll(9, /*interrupted=*/false).code() == StatusCode::kInterrupted); });
  f.store.Clear();
  waiter.join();
  CHECK((*values)->data()[0] == 1.0f);
  CHECK_FALSE(f.store.IsSuperseded(Version(3)));
  f.Put(0, 3, 2.0f);
  f.Put(1, 3, 2.0f);
  CHECK(f.store.IsWhole(Version(3)));
}

TEST_CASE("a waiting thread goes on when the last of its shards arrives") {
  Fixture f;
  CHECK(f.store.Open(Version(0)).ok());
  std::atomic<bool> done = false;
  std::thread waiter([&] {
    CHECK(f.WaitForAll(0, /*interrupted=*/false).ok());
    done = true;
  });
  f.Put(1, 0, 1.0f);
  CHECK_FALSE(done);
  f.Put(0, 0, 1.0f);
  waiter.join();
  CHECK(done);
}

TEST_CASE("a waiting thread returns when it is called off") {
  Fixture f;
  CHECK(f.store.Open(Version(0)).ok());
  std::atomic<bool> is_asked = false;
  std::atomic<bool> is_called_off = false;
  std::thread waiter([&] {
    Status s = f.store.WaitFor({0, 1}, Version(0), [&] {
      is_asked = true;
      is_asked.notify_all();
      return is_called_off.load();
    });
    CHECK(s.code() == StatusCode::kInterrupted);
  });
  is_asked.wait(false);
  is_called_off = true;
  f.store.Wake();
  waiter.join();
}

TEST_CASE("the two newest versions are kept, and a reader's hold stays whole") {
  Fixture f;
  f.Put(0, 0, 10.0f);
  auto hold = f.store.Open(Version(0));
  f.Put(0, 1, 11.0f);
  CHECK(f.store.Open(Version(0)).ok());
  f.Put(0, 2, 12.0f);
  CHECK(f.store.Open(Version(0)).status().code() == StatusCode::kInterrupted);
  CHECK(f.store.IsSuperseded(Version(0)));
  CHECK(f.WaitForAll(0, /*interrupted=*/false).code() == StatusCode::kInterrupted);
  CHECK((*hold)->data()[0] == 10.0f);
  CHECK((*f.store.Open(Version(1)))->data()[0] == 11.0f);
}

TEST_CASE("late and repeated shards are dropped") {
  Fixture f;
  f.Put(0, 3, 1.0f);
  f.Put(0, 3, 2.0f);
  CHECK((*f.store.Open(Version(3)))->data()[0] == 1.0f);
  f.Put(0, 1, 2.0f);
  CHECK(f.store.IsSuperseded(Version(1)));
}

TEST_CASE("opening a version ahead of time drops nothing") {
  Fixture f;
  f.Put(0, 0, 1.0f);
  CHECK(f.store.Open(Version(1)).ok());
  CHECK(f.store.Open(Version(2)).ok());
  CHECK((*f.store.Open(Version(0)))->data()[0] == 1.0f);
}

TEST_CASE("the time spent waiting is counted, a shard that is there costs none") {
  Fixture f;
  f.Put(0, 0, 1.0f);
  CHECK(f.store.WaitFor({0, 1}, Version(0), [] { return false; }).ok());
  CHECK(f.store.waited_us() == 0);
}

}  // namespace
}  // namespace pando
