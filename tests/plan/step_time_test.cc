#include "plan/step_time.h"

#include <doctest/doctest.h>

#include <limits>

#include "plan/goodput.h"
#include "plan/link_simulation.h"

namespace pando {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kExact = 1e-9;  // sums of a few thousand doubles

// `shard_count` layers of one shard each, of 1,000 bytes, in forward order.
StepWork Even(uint32_t shard_count, double forward_ms, double backward_ms) {
  StepWork work;
  for (uint32_t i = 0; i < shard_count; ++i) {
    work.layers.push_back({.forward_ms = forward_ms / shard_count,
                           .backward_ms = backward_ms / shard_count,
                           .bytes = 1000});
    work.shards.push_back({.bytes = 1000, .layer = i});
  }
  return work;
}

// Takes 1 ms for a shard of Even.
Cluster Of(uint32_t workers, uint32_t servers) {
  return {.workers = workers, .servers = servers, .bytes_per_ms = 1000};
}

StepTime RingStep(const StepWork& work, const Cluster& cluster, const BucketLimits& limits = {}) {
  return AllreduceStep(work, cluster, Rounds::kRing, limits);
}

TEST_CASE("a link serves one at a time, and of those that wait the lowest rank") {
  LinkSimulation links(1);
  std::vector<std::pair<int, double>> starts;
  for (const uint32_t rank : {5u, 3u, 1u, 3u}) {
    links.Use({.link = 0, .service_ms = 2, .rank = rank}, [&links, &starts, rank] {
      starts.emplace_back(static_cast<int>(rank), links.now_ms());
    });
  }
  links.Run();
  CHECK(starts == std::vector<std::pair<int, double>>{{5, 0}, {1, 2}, {3, 4}, {3, 6}});
}

TEST_CASE("what is sent arrives with the slower of both links, and its latency later") {
  for (const auto& [out_ms, in_ms] : {std::pair{3.0, 1.0}, std::pair{1.0, 3.0}}) {
    LinkSimulation links(2);
    double arrived_ms = 0;
    links.Pass({{.task = {.link = 0, .service_ms = out_ms}, .first_ms = 0.5},
                {.task = {.link = 1, .service_ms = in_ms}, .last_ms = 0.5}},
               [&] { arrived_ms = links.now_ms(); });
    links.Run();
    CHECK(arrived_ms == 3.5);
  }
}

TEST_CASE("between pieces of a task a link serves more urgent ones, and then the rest of it") {
  LinkSimulation links(1);
  std::vector<std::pair<int, double>> ends;
  const auto use = [&](int name, double service_ms, uint32_t rank, uint32_t pieces) {
    links.Use({.link = 0, .service_ms = service_ms, .rank = rank, .pieces = pieces}, nullptr,
              [&links, &ends, name] { ends.emplace_back(name, links.now_ms()); });
  };
  use(1, 8, 2, 4);
  use(2, 2, 2, 1);
  links.At(3, [&] { use(3, 1, 1, 1); });
  links.Run();
  CHECK(ends == std::vector<std::pair<int, double>>{{3, 5}, {1, 9}, {2, 11}});
}

TEST_CASE("with infinite bandwidth a step is its computing, for any strategy") {
  const StepWork work = Even(7, 10, 20);
  Cluster cluster = Of(8, 3);
  cluster.bytes_per_ms = kInfinity;
  for (const ServerPlace place : {ServerPlace::kOwnHosts, ServerPlace::kWorkersHosts}) {
    const StepTime time = ParameterServerStep(work, cluster, place);
    CHECK(time.step_ms == doctest::Approx(30).epsilon(kExact));
    CHECK(time.efficiency() == doctest::Approx(1).epsilon(kExact));
    CHECK(time.link_ms == 0);
  }
  CHECK(RingStep(work, cluster).step_ms == doctest::Approx(30).epsilon(kExact));
}

TEST_CASE("servers apart, no computing: the closed form, and the first shard's way besides") {
  const StepWork work = Even(1000, 0, 0);
  struct Case {
    uint32_t workers, servers;
    double closed_ms;  // max(M / B, nM / kB), M / B being 1,000 ms
  };
  for (const Case& c : {Case{4, 4, 1000}, Case{4, 2, 2000}, Case{4, 1, 4000}, Case{4, 8, 1000},
                        Case{6, 4, 1500}, Case{1, 1, 1000}}) {
    CAPTURE(c.workers);
    CAPTURE(c.servers);
    const StepTime time =
        ParameterServerStep(work, Of(c.workers, c.servers), ServerPlace::kOwnHosts);
    CHECK(time.link_ms == doctest::Approx(c.closed_ms).epsilon(kExact));
    CHECK(time.step_ms >= c.closed_ms);
    // A reply begins when the last copy of its push is there: one shard's time at its server, for
    // each of the servers that are filled one after the other.
    CHECK(time.step_ms <= c.closed_ms + 2.0 * c.workers);
  }
}

TEST_CASE("one shard cannot be pulled while it is pushed: twice its time") {
  const StepWork work = Even(1, 0, 0);
  CHECK(ParameterServerStep(work, Of(5, 1), ServerPlace::kOwnHosts).step_ms == 10);
  // On the workers' hosts one of the five has it already.
  CHECK(ParameterServerStep(work, Of(5, 1), ServerPlace::kWorkersHosts).step_ms ==
        doctest::Approx(8).epsilon(kExact));
}

TEST_CASE("servers on the workers' hosts, no computing: as much as the ring, 2(n - 1)M / nB") {
  const StepWork work = Even(1200, 0, 0);
  for (const uint32_t n : {2u, 3u, 4u, 8u}) {
    CAPTURE(n);
    const double closed_ms = 2.0 * (n - 1) / n * 1200;
    const StepTime servers = ParameterServerStep(work, Of(n, 1), ServerPlace::kWorkersHosts);
    CHECK(servers.link_ms == doctest::Approx(closed_ms).epsilon(kExact));
    CHECK(servers.step_ms >= closed_ms * (1 - kExact));
    CHECK(servers.step_ms <= closed_ms * 1.05);  // links that wait for each other
    const StepTime ring = RingStep(work, Of(n, 1));
    CHECK(ring.link_ms == doctest::Approx(closed_ms).epsilon(kExact));
    CHECK(ring.step_ms == doctest::Approx(closed_ms).epsilon(kExact));
  }
}

TEST_CASE("one worker's ring and one host's servers send nothing; one worker's servers apart do") {
  const StepWork work = Even(10, 1, 2);
  CHECK(RingStep(work, Of(1, 1)).step_ms == doctest::Approx(3));
  CHECK(ParameterServerStep(work, Of(1, 1), ServerPlace::kWorkersHosts).step_ms ==
        doctest::Approx(3));
  CHECK(ParameterServerStep(work, Of(1, 1), ServerPlace::kOwnHosts).step_ms > 10);
  Cluster one_host = Of(4, 1);
  one_host.workers_per_host = 4;
  CHECK(RingStep(work, one_host).link_ms == 0);
  CHECK(ParameterServerStep(work, one_host, ServerPlace::kWorkersHosts).link_ms == 0);
}

TEST_CASE("replicas cost the servers' links alone") {
  const StepWork work = Even(1000, 0, 0);
  Cluster cluster = Of(4, 4);
  cluster.replicas = 2;
  const StepTime apart = ParameterServerStep(work, cluster, ServerPlace::kOwnHosts);
  CHECK(apart.link_ms == doctest::Approx(1250));  // (n + r - 1) M / kB
  CHECK(apart.step_ms >= 1250);
  CHECK(apart.step_ms <= 1250 * 1.05);
  const StepTime shared = ParameterServerStep(work, cluster, ServerPlace::kWorkersHosts);
  CHECK(shared.link_ms == doctest::Approx(1750));  // (2(n - 1) + r - 1) M / nB
  CHECK(shared.step_ms >= 1750);
  // Where the worker's link decides, they cost nothing but the way.
  Cluster many = Of(4, 8);
  const double once_ms = ParameterServerStep(work, many, ServerPlace::kOwnHosts).step_ms;
  many.replicas = 2;
  CHECK(ParameterServerStep(work, many, ServerPlace::kOwnHosts).step_ms <= once_ms * 1.02);
}

TEST_CASE("a host's workers send a copy each, or one where they sum first") {
  const StepWork work = Even(1000, 0, 0);
  Cluster cluster = Of(8, 2);
  cluster.workers_per_host = 4;
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).link_ms ==
        doctest::Approx(4000));
  CHECK(RingStep(work, cluster).link_ms == doctest::Approx(2.0 * 7 / 8 * 1000));
  cluster.sums_on_host = true;
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).link_ms ==
        doctest::Approx(1000));
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kWorkersHosts).link_ms ==
        doctest::Approx(1000));
  CHECK(RingStep(work, cluster).link_ms == doctest::Approx(1000));  // of two hosts
}

TEST_CASE("what a backward hides of the exchange does not count") {
  // Four workers, four servers: a shard takes 4 ms in and 4 ms out, and becomes ready every 10 ms.
  const StepWork work = Even(10, 50, 100);
  const StepTime time = ParameterServerStep(work, Of(4, 4), ServerPlace::kOwnHosts);
  CHECK(time.step_ms == doctest::Approx(150 + 8));  // the first layer's shard is the last ready
  const StepTime ring = RingStep(work, Of(4, 4), {.first_bytes = 1, .bytes = 1});
  CHECK(ring.step_ms == doctest::Approx(150 + 1.5));  // 2 * 3 / 4 of a shard's time
}

TEST_CASE("the next forward begins before the last shard is there") {
  // Two layers: the first is small, the second large and first to be ready.
  StepWork work;
  work.layers = {{.forward_ms = 40, .backward_ms = 0, .bytes = 1000},
                 {.forward_ms = 10, .backward_ms = 10, .bytes = 30000}};
  work.shards = {{.bytes = 1000, .layer = 0}};
  for (int i = 0; i < 30; ++i) work.shards.push_back({.bytes = 1000, .layer = 1});
  Cluster cluster = Of(1, 1);
  // As ready: the small one waits for 30 ms of the large one, then forward hides nothing.
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms ==
        doctest::Approx(10 + 32 + 50));
  // As forward wants: the small one is the second to be sent, and forward hides the rest.
  cluster.order = SendOrder::kAsForwardWants;
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms ==
        doctest::Approx(10 + 3 + 50));
  // With less of it forward waits for the large one after all: 31 pushes and a reply.
  work.layers[0].forward_ms = 10;
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms ==
        doctest::Approx(10 + 32 + 10));
}

TEST_CASE("buckets are closed as soon as they are full, and never cut a layer") {
  // Backward order: 3, 1, 8 and 2 kB; limits 3 and 4: {3}, {1, 8}, {2}.
  StepWork work;
  for (const uint64_t bytes : {2000, 8000, 1000, 3000})
    work.layers.push_back({.forward_ms = 0, .backward_ms = 10, .bytes = bytes});
  work.shards = {{.bytes = 14000, .layer = 0}};
  const Cluster cluster = Of(2, 1);  // a byte takes 1 us around the ring of two
  const BucketLimits limits{.first_bytes = 3000, .bytes = 4000};
  CHECK(RingStep(work, cluster, limits).step_ms == doctest::Approx(30 + 9 + 2 + 1));
  // {3} from 10 to 13, {1, 8} from 30 to 39, {2} from 40 to 42.
  Cluster late = cluster;
  late.latency_ms = 1;  // two rounds each
  CHECK(RingStep(work, late, limits).step_ms == doctest::Approx(41 + 2 + 2));
}

TEST_CASE("only a step's last micro-batch hides an exchange, and only the next first one waits") {
  Cluster cluster = Of(1, 1);
  cluster.share = {.micro_batches = 10, .contributions = {9}};
  const StepWork work = Even(100, 100, 200);
  // 30 ms a micro-batch: the first shard is ready at 272 of 290 ms, then 100 ms of link and one
  // shard's reply; the last 1 ms shards' forwards are 0.1 ms each.
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms ==
        doctest::Approx(270 + 0.2 + 101 + 10).epsilon(1e-3));
}

TEST_CASE("runs that are no subtrees are pushed in pieces, of which some leave early") {
  CHECK(BusiestShare(4, 8).contributions == std::vector<uint32_t>{1});
  CHECK(BusiestShare(4, 8).micro_batches == 2);
  CHECK(BusiestShare(1, 7).contributions == std::vector<uint32_t>{6});
  // Three workers of eight: 2, 3 and 3; the last has 5 | 6, 7.
  CHECK(BusiestShare(3, 8).micro_batches == 3);
  CHECK(BusiestShare(3, 8).contributions == std::vector<uint32_t>{0, 2});
  CHECK(BusiestShare(5, 5).contributions == std::vector<uint32_t>{0});
  Cluster cluster = Of(3, 1);
  cluster.share = BusiestShare(3, 8);
  CHECK(ParameterServerStep(Even(1000, 0, 0), cluster, ServerPlace::kOwnHosts).link_ms ==
        doctest::Approx(6000));
}

TEST_CASE("servers share the update, a ring's workers each make all of it") {
  StepWork work = Even(1000, 0, 0);
  work.optimizer_ms = 800;
  Cluster cluster = Of(4, 4);
  cluster.bytes_per_ms = kInfinity;
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms == doctest::Approx(200));
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kWorkersHosts).step_ms ==
        doctest::Approx(200));
  CHECK(RingStep(work, cluster).step_ms == doctest::Approx(800));
  cluster.replicas = 2;  // each server makes its backups' as well
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms == doctest::Approx(400));
  // One shard's two replicas are made at the same time, on two servers.
  StepWork one = Even(1, 0, 0);
  one.optimizer_ms = 5;
  CHECK(ParameterServerStep(one, cluster, ServerPlace::kOwnHosts).step_ms == 5);
}

TEST_CASE("a push and a reply take a latency each, a backup's answer two more") {
  const StepWork work = Even(1, 0, 0);
  Cluster cluster = Of(2, 2);
  cluster.bytes_per_ms = kInfinity;
  cluster.latency_ms = 5;
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms == 10);
  cluster.replicas = 2;
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms == 20);
  CHECK(RingStep(work, cluster).step_ms == 10);  // two rounds
}

TEST_CASE(
    "servers are worth having up to one for each worker, and beat the ring of many from half") {
  // Without computing the ring takes 2(n - 1)M / nB, k servers nM / kB.
  const StepWork work = Even(2000, 0, 0);
  const ServerChoice choice = ChooseServers(work, Of(16, 1), {}, 16, 0.02);
  CHECK(choice.tried_max == 16);
  CHECK(choice.enough == 16);  // 15 would take 1/15 more
  REQUIRE(choice.beats_allreduce.has_value());
  CHECK(*choice.beats_allreduce == 9);  // 16 / 8 = 2 > 1.875 > 16 / 9
  // Computing that hides everything needs one, and none beats what hides as well.
  const ServerChoice easy = ChooseServers(Even(100, 1e6, 1e6), Of(16, 1), {}, 16, 0.02);
  CHECK(easy.enough == 1);
  CHECK_FALSE(ChooseServers(Even(1, 0, 0), Of(2, 1), {}, 4, 0.02).beats_allreduce.has_value());
}

// 2 workers, a server and one shard of 1,000 bytes. A message takes 2 ms at each end, its shard 1
// ms, and a link 1 ms for the bytes.
TEST_CASE("a processor handles one message at a time") {
  const StepWork work = Even(1, 0, 0);
  Cluster cluster = Of(2, 1);
  cluster.costs = {.message_ms = 2, .item_ms = 1};
  // The push leaves its worker at 3 and arrives at 4; the server has handled both at 10. Its second
  // reply is handled at 16 and arrives at 17. Its worker has handled it at 20.
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms ==
        doctest::Approx(20).epsilon(kExact));
  cluster.latency_ms = 10;
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms ==
        doctest::Approx(40).epsilon(kExact));
  // The bytes take 1 ms more at each end, and the server adds those of both pushes.
  cluster.costs = {.copy_ms_per_byte = 1e-3, .sum_ms_per_byte = 2e-3};
  // 1 + 1, 10 ms of latency, 1 + 2 * 2, because it copies one push while it adds the other, and
  // 2 * 1; 1 + 10 for the last reply's way, and 1.
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms ==
        doctest::Approx(31).epsilon(kExact));
}

TEST_CASE("a message carries 64 to 128 KiB of a server's shards, without costs each is alone") {
  // 100 shards of 4,000 bytes: groups of 17, and the front one of 15.
  StepWork work = Even(100, 0, 0);
  for (StepShard& shard : work.shards) shard.bytes = 4000;
  Cluster cluster = Of(1, 1);
  cluster.bytes_per_ms = kInfinity;
  cluster.costs = {.message_ms = 1};
  // The server handles 6 pushes and 6 replies; the first push and the last reply are also the
  // worker's.
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms ==
        doctest::Approx(14).epsilon(kExact));
  for (StepShard& shard : work.shards) shard.bytes = 1000;  // 100 kB are one message
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms ==
        doctest::Approx(4).epsilon(kExact));
}

TEST_CASE("halving and doubling takes fewer rounds than the ring, for the same bytes") {
  StepWork work = Even(1, 0, 0);
  work.layers[0].bytes = 1000;
  Cluster cluster = Of(4, 1);
  cluster.latency_ms = 1;
  cluster.costs = {.message_ms = 2, .item_ms = 3};
  // A round has a latency, and both ends of a message are this processor's.
  CHECK(RingStep(work, cluster).step_ms == doctest::Approx(1.5 + 6 * 11));
  CHECK(AllreduceStep(work, cluster, Rounds::kHalvingDoubling).step_ms ==
        doctest::Approx(1.5 + 4 * 11));
  // Six: two send all to two others, these four have four rounds, and the two get the result.
  cluster.workers = 6;
  const StepTime six = AllreduceStep(work, cluster, Rounds::kHalvingDoubling);
  CHECK(six.step_ms == doctest::Approx(1.5 + 2 + 6 * 11));
  CHECK(six.link_ms == doctest::Approx(3.5));
  // Threads are slower than the link: one copies 1.5 kB out and 1.5 kB in, one sums half of it.
  cluster = Of(4, 1);
  cluster.costs = {.copy_ms_per_byte = 1e-3, .sum_ms_per_byte = 2e-3};
  CHECK(RingStep(work, cluster).step_ms == doctest::Approx(1.5 * 2));
  cluster.costs.sum_ms_per_byte = 6e-3;
  CHECK(RingStep(work, cluster).step_ms == doctest::Approx(1.5 * 3));
}

TEST_CASE("a step waits for the slowest of its workers") {
  const StepWork work = Even(10, 100, 200);
  Cluster cluster = Of(2, 1);
  cluster.bytes_per_ms = kInfinity;
  cluster.straggle = 0.1;
  const double expected_ms = 300 * (1 + 0.1 * ExpectedMaximum(2));
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms ==
        doctest::Approx(expected_ms));
  CHECK(RingStep(work, cluster).step_ms == doctest::Approx(expected_ms));
  CHECK(RingStep(work, cluster).alone_ms == doctest::Approx(300));
}

// 16 hosts in racks of 4, and 16 servers.
Cluster Racks(double oversubscription, bool sums_on_rack) {
  Cluster cluster = Of(16, 16);
  cluster.rack_size = 4;
  cluster.oversubscription = oversubscription;
  cluster.sums_on_rack = sums_on_rack;
  return cluster;
}

TEST_CASE("racks of one host, and one rack of all hosts, are as one switch for all") {
  const StepWork work = Even(100, 10, 20);
  for (const uint32_t rack_size : {1u, 16u, 99u}) {
    CAPTURE(rack_size);
    for (const ServerPlace place : {ServerPlace::kOwnHosts, ServerPlace::kWorkersHosts}) {
      Cluster racks = Racks(1, /*sums_on_rack=*/true);
      racks.rack_size = rack_size;
      racks.costs = {.message_ms = 0.1, .item_ms = 0.1};
      Cluster flat = racks;
      flat.rack_size = 0;
      const StepTime time = ParameterServerStep(work, racks, place);
      CHECK(time.step_ms ==
            doctest::Approx(ParameterServerStep(work, flat, place).step_ms).epsilon(1e-2));
      CHECK(time.link_ms ==
            doctest::Approx(ParameterServerStep(work, flat, place).link_ms).epsilon(kExact));
    }
  }
}

TEST_CASE("an uplink carries what goes to and from servers in other racks, or a sum of it") {
  const StepWork work = Even(1600, 0, 0);  // 1,600 ms on a host's link
  Cluster flat = Racks(8, /*sums_on_rack=*/false);
  Cluster summed = Racks(8, /*sums_on_rack=*/true);
  // On the workers' hosts, a rack sends and receives 3/4 of 4 pushes, and as many replies. Its
  // uplink has half of a host's rate.
  const StepTime shared = ParameterServerStep(work, flat, ServerPlace::kWorkersHosts);
  CHECK(shared.link_ms == doctest::Approx(1600 * 6 * 2));
  CHECK(shared.step_ms >= shared.link_ms * (1 - kExact));
  CHECK(shared.step_ms <= shared.link_ms * 1.05);
  summed.order = SendOrder::kAsForwardWants;  // otherwise sums wait for all that is given
  const StepTime sums = ParameterServerStep(work, summed, ServerPlace::kWorkersHosts);
  CHECK(sums.link_ms == doctest::Approx(1600 * 1.5 * 2));
  CHECK(sums.step_ms >= sums.link_ms * (1 - kExact));
  CHECK(sums.step_ms <= sums.link_ms * 1.05);
  // With the servers' hosts a rack has twice as many, and its uplink twice the rate.
  CHECK(ParameterServerStep(work, flat, ServerPlace::kOwnHosts).link_ms ==
        doctest::Approx(1600 * 6));
  flat.replicas = summed.replicas = 2;  // a rack's servers send a quarter of all roots
  CHECK(ParameterServerStep(work, flat, ServerPlace::kWorkersHosts).link_ms ==
        doctest::Approx(1600 * (6 + 0.25) * 2));
  CHECK(ParameterServerStep(work, summed, ServerPlace::kWorkersHosts).link_ms ==
        doctest::Approx(1600 * (1.5 + 0.25) * 2));
}

TEST_CASE("sums per rack change no bytes on the workers' hosts, and double them on hosts apart") {
  const StepWork work = Even(1600, 0, 0);
  const Cluster summed = Racks(1, /*sums_on_rack=*/true);
  CHECK(ParameterServerStep(work, summed, ServerPlace::kWorkersHosts).link_ms ==
        doctest::Approx(1600 * 2 * 15.0 / 16));
  // A host sends 1/4 of the model to servers of its rack, 9/16 to relays and 3/16 as a relay. As a
  // relay it also sends 9/16 of parameters.
  CHECK(ParameterServerStep(work, summed, ServerPlace::kOwnHosts).link_ms ==
        doctest::Approx(1600 * (1 + 9.0 / 16)));
  // A server gets 4 pushes of its rack's workers and 3 of other racks' relays. Two servers get half
  // of the model each, 7 times.
  Cluster few = summed;
  few.servers = 2;
  CHECK(ParameterServerStep(work, few, ServerPlace::kOwnHosts).link_ms ==
        doctest::Approx(1600 * 7 / 2.0));
  CHECK(few.copies_per_server() == 7);
}

TEST_CASE("a relay handles a message of each other worker, and a server one of each relay") {
  // One shard of 8 workers in racks of 4: half of them are away from its server. A message takes 1
  // ms at each end, and is alone.
  const StepWork work = Even(1, 0, 0);
  Cluster cluster = Of(8, 1);
  cluster.rack_size = 4;
  cluster.sums_on_rack = true;
  cluster.bytes_per_ms = kInfinity;
  cluster.costs = {.message_ms = 1};
  const double summed_ms = ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms;
  // The server handles 4 pushes and the relay's, and sends 5 replies. Three gives arrive at half of
  // all relays. Forwards do too.
  CHECK(summed_ms >= 5 + 5);
  CHECK(summed_ms <= 5 + 5 + 2 * (1 + 3 + 1));
  cluster.sums_on_rack = false;
  CHECK(ParameterServerStep(work, cluster, ServerPlace::kOwnHosts).step_ms ==
        doctest::Approx(1 + 8 + 8 + 1));
}

TEST_CASE("one member of a rack's ring uses its uplink, and all in halving and doubling") {
  StepWork work = Even(1, 0, 0);
  work.layers[0].bytes = work.shards[0].bytes = 16000;
  const Cluster even = Racks(1, /*sums_on_rack=*/false);
  Cluster narrow = Racks(8, /*sums_on_rack=*/false);  // an uplink has half of a host's rate
  const double ring_ms = 16 * 2 * 15.0 / 16;
  CHECK(RingStep(work, even).step_ms == doctest::Approx(ring_ms));
  CHECK(RingStep(work, narrow).step_ms == doctest::Approx(2 * ring_ms));
  CHECK(RingStep(work, narrow).link_ms == doctest::Approx(2 * ring_ms));
  // Partners at 4 and 8 hosts exchange 1/8 + 1/16 of the bytes, twice. 4 of them share an uplink.
  const auto halving = [&](const Cluster& cluster) {
    return AllreduceStep(work, cluster, Rounds::kHalvingDoubling);
  };
  CHECK(halving(even).step_ms == doctest::Approx(ring_ms));
  CHECK(halving(narrow).step_ms == doctest::Approx(16 * 2 * (12.0 / 16 + 8 * 3.0 / 16)));
  CHECK(halving(narrow).link_ms == doctest::Approx(16 * 2 * 8 * 3.0 / 16));
  narrow.rack_size = 16;
  CHECK(halving(narrow).step_ms == doctest::Approx(ring_ms));
  CHECK(RingStep(work, narrow).step_ms == doctest::Approx(ring_ms));
}

}  // namespace
}  // namespace pando
