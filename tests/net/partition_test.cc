// Connections that end and processes that are cut off, with real sockets.
#include <csignal>

#include "net/zmq/isolation_signal.h"
#include "tests/net/net_fixture.h"

namespace pando {
namespace {

TEST_CASE("an isolated process neither sends nor receives until the isolation ends") {
  Pair pair(kAnyTcpPort);
  pair.CheckTraffic("before");
  ZmqContext abroad;
  const PeerId other_peer = NewPeer(3);
  Transport other(abroad, other_peer, {});
  REQUIRE(other.Dial(pair.lane_peer, pair.bound).ok());
  other.Send(TextFrom(other_peer, pair.lane_peer, "hello"));
  CHECK(Text(MustReceive(pair.lane)) == "hello");

  abroad.IsolateUntil(kNever);
  CHECK(abroad.is_isolated());
  other.Send(TextFrom(other_peer, pair.lane_peer, "not sent"));
  CHECK(other.counters().isolated == 1);
  pair.lane.Send(TextFrom(pair.lane_peer, other_peer, "not received"));
  MustBecome(other, [&] { return other.counters().isolated == 2; });
  pair.CheckTraffic("others go on");

  abroad.IsolateUntil(SteadyNow());
  CHECK(!abroad.is_isolated());
  other.Send(TextFrom(other_peer, pair.lane_peer, "after"));
  CHECK(Text(MustReceive(pair.lane)) == "after");
  pair.lane.Send(TextFrom(pair.lane_peer, other_peer, "after"));
  CHECK(Text(MustReceive(other)) == "after");
  CHECK(pair.lane.counters().isolated == 0);
}

TEST_CASE("a signal with a number of milliseconds isolates the process for that long") {
  ZmqContext context;
  const IsolationSignal isolation(context);
  CHECK(!context.is_isolated());
  // Delivered to this thread before sigqueue returns, for ZeroMQ's threads take no signals.
  REQUIRE(sigqueue(getpid(), SIGUSR2, {.sival_int = 1000 * 1000}) == 0);
  CHECK(context.is_isolated());
  REQUIRE(sigqueue(getpid(), SIGUSR2, {.sival_int = 0}) == 0);
  CHECK(!context.is_isolated());
  REQUIRE(kill(getpid(), SIGUSR2) == 0);  // without a number
  CHECK(!context.is_isolated());
}

TEST_CASE("a lost connection is reported with the incarnation that had dialed") {
  const ScratchFolder folder;
  for (const std::string& endpoint : {std::string(kAnyTcpPort), folder.Ipc("lane")}) {
    std::vector<Incarnation> lost;
    Pair pair(endpoint, {.on_disconnect = [&](Incarnation peer) { lost.push_back(peer); }});
    pair.CheckTraffic("the one that stays");
    const PeerId leaver_peer = NewPeer(3);
    auto leaver = std::make_unique<Transport>(pair.context, leaver_peer, Transport::Options{});
    REQUIRE(leaver->Dial(pair.lane_peer, pair.bound).ok());
    leaver->Send(TextFrom(leaver_peer, pair.lane_peer, "hello"));
    CHECK(Text(MustReceive(pair.lane)) == "hello");
    CHECK(lost.empty());
    leaver.reset();
    MustBecome(pair.lane, [&] { return !lost.empty(); });
    CHECK(lost == std::vector<Incarnation>{leaver_peer.incarnation});
    pair.CheckTraffic("it stays");
    CHECK(lost.size() == 1);
  }
}

TEST_CASE("the end of a connection is reported after its last message") {
  bool is_lost = false;
  Pair pair(kAnyTcpPort, {.on_disconnect = [&](Incarnation) { is_lost = true; }});
  for (int i = 0; i < 20; ++i) {
    const PeerId peer = NewPeer(3);
    auto leaver = std::make_unique<Transport>(pair.context, peer, Transport::Options{});
    REQUIRE(leaver->Dial(pair.lane_peer, pair.bound).ok());
    leaver->Send(TextFrom(peer, pair.lane_peer, "hello"));
    CHECK(Text(MustReceive(pair.lane)) == "hello");
    is_lost = false;
    leaver->Send(TextFrom(peer, pair.lane_peer, "last"));
    leaver.reset();
    pair.lane.Wait(SteadyNow() + kEventDeadline);
    CHECK_FALSE(is_lost);
    CHECK(Text(MustReceive(pair.lane)) == "last");
    MustBecome(pair.lane, [&] { return is_lost; });
  }
}

TEST_CASE("consecutive incarnations on one descriptor are distinguished") {
  std::vector<Incarnation> lost;
  Pair pair(kAnyTcpPort, {.on_disconnect = [&](Incarnation peer) { lost.push_back(peer); }});
  std::vector<Incarnation> lives;
  for (int life = 0; life < 20; ++life) {
    const PeerId peer = NewPeer(3);
    Transport transport(pair.context, peer, {});
    REQUIRE(transport.Dial(pair.lane_peer, pair.bound).ok());
    transport.Send(TextFrom(peer, pair.lane_peer, "hello"));
    while (MustReceive(pair.lane).sender != peer) {
    }
    lives.push_back(peer.incarnation);
    CHECK(std::ranges::count(lost, peer.incarnation) == 0);
  }
  MustBecome(pair.lane, [&] { return lost.size() == lives.size(); });
  CHECK(std::ranges::is_permutation(lost, lives));
}

TEST_CASE("strangers that come and go are not told of") {
  std::vector<Incarnation> lost;
  Pair pair(kAnyTcpPort, {.on_disconnect = [&](Incarnation peer) { lost.push_back(peer); }});
  for (int i = 0; i < 20; ++i) {
    Transport silent(pair.context, NewPeer(9), {.linger_ms = 0});
    REQUIRE(silent.Dial(pair.lane_peer, pair.bound).ok());
    Transport impostor(pair.context, NewPeer(9), {});
    REQUIRE(impostor.Dial(pair.lane_peer, pair.bound).ok());
    impostor.Send(TextFrom(pair.worker_peer, pair.lane_peer, "I am the worker"));
    pair.CheckTraffic("undisturbed");
  }
  MustBecome(pair.lane, [&] { return pair.lane.counters().misattributed == 20; });
  CHECK(lost.empty());
}

TEST_CASE("peers reconnect to a process that restarts at its endpoint") {
  const ScratchFolder folder;
  const std::string endpoint = folder.Ipc("scheduler");
  ZmqContext context;
  const PeerId worker_peer = NewPeer(2);
  Transport worker(context, worker_peer, {});
  REQUIRE(worker.Dial({kSchedulerNode, Incarnation(), 0}, endpoint).ok());
  for (int life = 0; life < 3; ++life) {
    const PeerId scheduler_peer{kSchedulerNode, NewIncarnation(), 0};
    Transport scheduler(context, scheduler_peer, {.linger_ms = 0});
    MustBind(scheduler, endpoint);
    // Repeated, as everything is (P10): what leaves while a connection ends is lost.
    MustBecome(scheduler, [&] {
      worker.Send(TextFrom(worker_peer, scheduler_peer, "hello"));
      return scheduler.counters().received > 0;
    });
    scheduler.Send(TextFrom(scheduler_peer, worker_peer, "welcome"));
    CHECK(MustReceive(worker).sender == scheduler_peer);
  }
}

TEST_CASE("what is left of a line to an earlier life does not take the place of the one to this") {
  Pair pair(kAnyTcpPort);
  pair.CheckTraffic("before");
  const PeerId earlier_life = NewPeer(1, 3);
  Transport left(pair.context, pair.worker_peer, {});
  REQUIRE(left.Dial(earlier_life, pair.bound).ok());
  left.Send(TextFrom(pair.worker_peer, earlier_life, "too late"));
  CHECK(MustReceive(pair.lane).receiver == earlier_life);  // which refuses it (P19)
  pair.CheckTraffic("afterwards");
}

}  // namespace
}  // namespace pando
