#include <doctest/doctest.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/cpp/push_pull/load_generator.h"
#include "bench/cpp/push_pull/shared_counters.h"
#include "bench/cpp/push_pull/stand_in_scheduler.h"
#include "bench/cpp/push_pull/trial.h"
#include "server/lane.h"

namespace pando::bench {
namespace {

class NoSnapshots : public SnapshotPort {
 public:
  void Store(StoreRequest) override { FAIL("nothing is to be stored"); }
  void Load(LoadRequest) override { FAIL("nothing is to be restored"); }
};

class Mail : public Outbox {
 public:
  void Send(Envelope envelope) override { sent.push_back(std::move(envelope)); }
  std::vector<Envelope> sent;
};

constexpr PeerId kScheduler{kSchedulerNode, Incarnation(100), 0};
constexpr JobId kJob{1};

// The stand-in, one lane a server and the load generators in one thread, without a network: a turn
// gives everybody what was said in the turn before.
class Cluster {
 public:
  explicit Cluster(const Load& load)
      : load_(load),
        plan_(MakePlan(load)),
        counters_(std::move(*SharedCounters::Create(load.workers))),
        scheduler_(load, plan_, kScheduler, mail_) {
    for (uint32_t i = 0; i < load.servers + load.workers; ++i) Join(i);
  }

  void Turn() {
    now_ += std::chrono::milliseconds(3);  // longer than a reply is held back
    for (const Envelope& envelope : std::exchange(mail_.sent, {})) {
      pushes_ += std::holds_alternative<Push>(envelope.message);
      const auto to = cores_.find(envelope.receiver.incarnation);
      if (envelope.receiver.node == kSchedulerNode) {
        scheduler_.OnMessage(now_, envelope);
      } else if (to != cores_.end()) {
        to->second->OnMessage(now_, envelope);
      }
    }
    scheduler_.Tick(now_);
    for (auto& [incarnation, core] : cores_) core->Tick(now_);
  }

  const CounterSlot& counters(uint32_t worker) const { return counters_.slot(worker); }
  size_t pushes() const { return pushes_; }

 private:
  void Join(uint32_t i) {
    const bool is_server = i < load_.servers;
    const uint32_t rank = is_server ? i : i - load_.servers;
    const PeerId self{NodeId(i + 1), Incarnation(i + 1), 0};
    Register registration{.role = is_server ? Role::kServer : Role::kWorker, .wanted_rank = rank};
    scheduler_.OnMessage(now_, {.sender = {kUnknownNode, self.incarnation, 0},
                                .receiver = kScheduler,
                                .message = registration});
    const ViewMember::Identity identity{self, kScheduler, kJob};
    if (is_server) {
      cores_[self.incarnation] = std::make_unique<Lane>(
          Lane::Options{.identity = identity, .kind = "server"}, plan_, snapshots_, mail_);
    } else {
      cores_[self.incarnation] = std::make_unique<LoadGenerator>(load_, identity, rank, plan_,
                                                                 counters_.slot(rank), mail_);
    }
  }

  const Load load_;
  const JobPlan plan_;
  SharedCounters counters_;
  Mail mail_;
  NoSnapshots snapshots_;
  StandInScheduler scheduler_;
  std::map<Incarnation, std::unique_ptr<ProtocolCore>> cores_;
  Micros now_{1};
  size_t pushes_ = 0;
};

TEST_CASE("shards have just the size that was asked for, the metric tensor within the last") {
  for (const uint64_t bytes : {uint64_t{128}, uint64_t{4096}, uint64_t{1} << 20}) {
    const JobPlan plan = MakePlan({.shard_bytes = bytes, .shards_per_server = 3, .servers = 2});
    REQUIRE(plan.shards.shard_count() == 6);
    for (const ShardRange& range : plan.shards.ranges()) CHECK(range.size() * 4 == bytes);
    CHECK(plan.metric_shard() == ShardId(5));
  }
}

TEST_CASE("every push of every worker is summed and answered, and counted once") {
  for (const uint32_t workers : {1u, 2u, 3u}) {
    for (const uint32_t servers : {1u, 2u}) {
      CAPTURE(workers);
      CAPTURE(servers);
      constexpr uint64_t kBytes = 4096;
      const Load load{
          .shard_bytes = kBytes, .shards_per_server = 4, .servers = servers, .workers = workers};
      Cluster cluster(load);
      for (int i = 0; i < 200; ++i) cluster.Turn();
      for (uint32_t w = 0; w < workers; ++w) {
        const CounterSlot& counters = cluster.counters(w);
        // The generator itself checks that each version is the sum of all workers' ones.
        CHECK(counters.latency_count > 50 * servers);
        CHECK(counters.payload_bytes == 2 * kBytes * counters.latency_count);
        // Four shards of 4 KiB share a message each way.
        CHECK(counters.message_count < counters.latency_count);
      }
    }
  }
}

TEST_CASE("large shards are pushed one by one") {
  Cluster cluster({.shard_bytes = 128 << 10, .shards_per_server = 4});
  for (int i = 0; i < 50; ++i) cluster.Turn();
  CHECK(cluster.pushes() >= cluster.counters(0).latency_count);
  CHECK(cluster.counters(0).latency_count > 40);
}

TEST_CASE("with the barrier no shard is ever two steps ahead of another") {
  Cluster cluster(
      {.shard_bytes = 128 << 10, .shards_per_server = 3, .servers = 2, .has_barrier = true});
  for (int i = 0; i < 100; ++i) {
    cluster.Turn();
    // All replies of a step come before the next one's pushes, so pushes are whole steps.
    CHECK(cluster.pushes() % 6 == 0);
  }
  CHECK(cluster.counters(0).latency_count > 60);
}

TEST_CASE("counters are shared, and the newest latencies are kept") {
  const Result<SharedCounters> counters = SharedCounters::Create(2);
  REQUIRE(counters.ok());
  const Result<SharedCounters> again = SharedCounters::Open(dup(counters->fd()));
  REQUIRE(again.ok());
  CHECK(again->slot_count() == 2);
  counters->slot(1).payload_bytes = 7;
  CHECK(again->slot(1).payload_bytes == 7);
  CHECK(again->slot(0).payload_bytes == 0);
  for (uint64_t i = 0; i < kLatenciesMax + 10; ++i)
    counters->slot(0).NoteReply(0, std::chrono::microseconds(i));
  const std::vector<double> latencies_us = LatenciesSince(again->slot(0), 0);
  REQUIRE(latencies_us.size() == kLatenciesMax);
  CHECK(latencies_us.front() == doctest::Approx(10.0));
  CHECK(latencies_us.back() == doctest::Approx(kLatenciesMax + 9.0));
  CHECK(LatenciesSince(again->slot(0), kLatenciesMax + 10).empty());
}

TEST_CASE("memory's ceilings are measured, and are of this world") {
  const Load load{.shard_bytes = 4096, .shards_per_server = 2};
  for (const MemoryOperation operation : {MemoryOperation::kCopy, MemoryOperation::kAdd}) {
    const double figure = MemoryGbPerS(operation, load, 0.01);
    CHECK(figure > 0.1);
    CHECK(figure < 10'000);
  }
}

TEST_CASE("a quantile lies linearly between two values") {
  CHECK(Quantile({7.0}, 0.99) == 7.0);
  CHECK(Quantile({1.0, 3.0}, 0.0) == 1.0);
  CHECK(Quantile({1.0, 3.0}, 0.5) == 2.0);
  CHECK(Quantile({1.0, 3.0}, 0.99) == doctest::Approx(2.98));
  CHECK(Quantile({1.0, 3.0}, 1.0) == 3.0);
}

}  // namespace
}  // namespace pando::bench
