#include "net/address.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "net/socket_address.h"

namespace pando {
namespace {

TEST_CASE("endpoints are read and written back") {
  for (const char* text :
       {"tcp://127.0.0.1:7070", "tcp://node-3.cluster:1", "tcp://*:0", "tcp://0.0.0.0:65535",
        "tcp://[::1]:7070", "tcp://[fd00::2]:0", "tcp://[::]:1", "ipc:///tmp/pando/lane-0"}) {
    const Result<Endpoint> endpoint = ParseEndpoint(text);
    REQUIRE_MESSAGE(endpoint.ok(), text);
    CHECK(endpoint->ToString() == text);
  }
  CHECK(ParseEndpoint("tcp://127.0.0.1:*")->port == 0);
}

TEST_CASE("what is not an endpoint is refused with what was expected") {
  for (const std::string text : {"",
                                 "7070",
                                 "localhost:7070",
                                 "http://localhost:7070",
                                 "tcp://",
                                 "tcp://host",
                                 "tcp://:1",
                                 "tcp://host:",
                                 "tcp://host:65536",
                                 "tcp://host:-1",
                                 "tcp://host:1x",
                                 "tcp://ho st:1",
                                 "tcp://[::1]",
                                 "tcp://[::1]:",
                                 "tcp://::1:7070",
                                 "tcp://[127.0.0.1]:1",
                                 "tcp://[::1:1",
                                 "tcp://[fe80::1%eth0]:1",
                                 "tcp://[]:1",
                                 "ipc://"}) {
    const Result<Endpoint> endpoint = ParseEndpoint(text);
    REQUIRE_MESSAGE(!endpoint.ok(), text);
    CHECK(endpoint.status().message().find("'" + text + "'") == 0);
    CHECK(endpoint.status().message().find("tcp://HOST:PORT") != std::string::npos);
  }
  CHECK(ParseEndpoint("tcp://fd00::2:70").status().message().find("tcp://[fd00::2]:70") !=
        std::string::npos);
  const std::string long_path = "ipc:///" + std::string(200, 'x');
  CHECK(ParseEndpoint(long_path).status().message().find("201 bytes") != std::string::npos);
}

TEST_CASE("a peer needs a host and a port") {
  CHECK(ParsePeerEndpoint("tcp://10.0.0.1:7070").ok());
  CHECK(ParsePeerEndpoint("ipc:///tmp/x").ok());
  CHECK(!ParsePeerEndpoint("tcp://*:7070").ok());
  CHECK(!ParsePeerEndpoint("tcp://0.0.0.0:7070").ok());
  CHECK(!ParsePeerEndpoint("tcp://[::]:7070").ok());
  CHECK(ParsePeerEndpoint("tcp://[fd00::2]:7070")->host == "fd00::2");
  CHECK(!ParsePeerEndpoint("tcp://10.0.0.1:0").ok());
}

TEST_CASE("only this machine reaches ipc and loopback; the rest needs --insecure") {
  for (const char* text :
       {"ipc:///tmp/x", "tcp://127.0.0.1:1", "tcp://127.1.2.3:1", "tcp://[::1]:1",
        "tcp://[0:0:0:0:0:0:0:1]:1", "tcp://[::ffff:127.0.0.1]:1"}) {
    CHECK(CheckExposure(*ParseEndpoint(text), false).ok());
  }
  for (const char* text :
       {"tcp://*:1", "tcp://0.0.0.0:1", "tcp://10.1.2.3:1", "tcp://[::]:1", "tcp://[fd00::2]:1"}) {
    const Status status = CheckExposure(*ParseEndpoint(text), false);
    REQUIRE(!status.ok());
    CHECK(status.message().find("--insecure") != std::string::npos);
    CHECK(CheckExposure(*ParseEndpoint(text), true).ok());
  }
}

TEST_CASE("a host without an address is named") {
  const Result<std::string> address = ResolveHost("no-such-host.invalid");
  REQUIRE(!address.ok());
  CHECK(address.status().message().find("no-such-host.invalid") != std::string::npos);
  CHECK(*ResolveHost("127.0.0.1") == "127.0.0.1");
}

TEST_CASE("why no connection can be made is said with the address") {
  const std::string refused = ReasonOfSilence("tcp://127.0.0.1:1");
  CHECK(refused == "a connection to 127.0.0.1:1 fails (Connection refused)");
  CHECK(ExplainSilence("tcp://127.0.0.1:1", "start it") == refused + ": start it");
  CHECK(ReasonOfSilence("ipc:///tmp/x").empty());
  CHECK(ReasonOfSilence("tcp://no-such-host.invalid:1").find("no-such-host.invalid") !=
        std::string::npos);
}

TEST_CASE(
    "of a host's addresses the first one that answers is used, and the first one if none does") {
  const std::vector<std::string> addresses = *ResolveAll("localhost");
  if (std::ranges::find(addresses, "::1") == addresses.end() || addresses.size() < 2) return;
  CHECK(addresses.front() == "127.0.0.1");
  uint16_t port = 0;
  Endpoint peer{.host = "localhost"};
  {
    const Result<UniqueFd> listener = ListenTcp("::1", 0, &port);
    REQUIRE(listener.ok());
    peer.port = port;
    CHECK(*FindAddress(peer) == "::1");
    CHECK(*LocalAddressTowards(peer) == "::1");
  }
  CHECK(*FindAddress(peer) == "127.0.0.1");
}

TEST_CASE("a port that is held is not free until the holder closes it") {
  for (const std::string host : {"127.0.0.1", "0.0.0.0", "::1"}) {
    uint16_t port = 0;
    Result<UniqueFd> listener = ListenTcp(host, 0, &port);
    if (!listener.ok() && host == "::1") continue;  // this machine has no IPv6
    REQUIRE(listener.ok());
    const Result<UniqueFd> refused = HoldTcp(host, port);
    CHECK(refused.status().message().find(":" + std::to_string(port)) != std::string::npos);
    *listener = UniqueFd();
    {
      const Result<UniqueFd> holder = HoldTcp(host, port);
      REQUIRE_MESSAGE(holder.ok(), holder.status().message());
      CHECK_FALSE(ListenTcp(host, port, &port).ok());
      UniqueFd connection;
      CHECK(DialTcp(host, port, std::chrono::seconds(5), &connection) == ECONNREFUSED);
    }
    CHECK(ListenTcp(host, port, &port).ok());
  }
}

TEST_CASE("an IPv6 wildcard is advertised at the address towards the peer") {
  const Endpoint local = *ParseEndpoint("tcp://[::1]:7070");
  CHECK(*LocalAddressTowards(local) == "::1");
  CHECK(*AdvertisedEndpoint("tcp://[fd00::2]:4000", local) == "tcp://[fd00::2]:4000");
  CHECK(*AdvertisedEndpoint("tcp://[::]:4000", local) ==
        "tcp://" + Bracketed(OwnAddress()) + ":4000");
}

TEST_CASE("a local scheduler is reached from loopback, and a wildcard is advertised so") {
  const Endpoint local = *ParseEndpoint("tcp://127.0.0.1:7070");
  CHECK(*LocalAddressTowards(local) == "127.0.0.1");
  CHECK(*LocalAddressTowards(*ParseEndpoint("ipc:///tmp/x")) == "127.0.0.1");
  CHECK(*AdvertisedEndpoint("tcp://0.0.0.0:4000", local) == "tcp://" + OwnAddress() + ":4000");
  CHECK(*AdvertisedEndpoint("tcp://10.0.0.2:4000", local) == "tcp://10.0.0.2:4000");
  CHECK(*AdvertisedEndpoint("ipc:///tmp/x", local) == "ipc:///tmp/x");
}

}  // namespace
}  // namespace pando
