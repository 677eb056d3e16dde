#include "view/wire_metrics.h"

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <prometheus/text_serializer.h>

#include "tests/contains.h"

namespace pando {
namespace {

std::string NodeText(int process_id, const std::string& traffic) {
  return fmt::format(R"({{"host":"h","pid":{},"traffic":{}}})", process_id, traffic);
}

struct Wire {
  // Each as JSON text.
  void Tell(const std::string& nodes) {
    const auto status = ParseStatus(fmt::format(R"({{"phase":"training","nodes":[{}]}})", nodes));
    REQUIRE(status.ok());
    metrics.OnNodes(status->nodes);
  }
  bool Has(const char* direction, const char* transport, const std::string& bytes) const {
    const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
    return Contains(text, fmt::format("pando_wire_bytes_total{{direction=\"{}\",run=\"first\","
                                      "transport=\"{}\"}} {}\n",
                                      direction, transport, bytes));
  }
  prometheus::Registry registry;
  WireMetrics metrics{registry, "first"};
};

TEST_CASE("bytes are added over processes, by direction and transport") {
  Wire wire;
  wire.Tell(NodeText(1, R"({"tcp":[100,20]})") + "," + NodeText(2, R"({"tcp":[5,6],"shm":[7,8]})"));
  CHECK(wire.Has("sent", "tcp", "105"));
  CHECK(wire.Has("received", "tcp", "26"));
  CHECK(wire.Has("sent", "shm", "7"));
  CHECK(wire.Has("received", "ipc", "0"));
  wire.Tell(NodeText(1, R"({"tcp":[150,20]})") + "," + NodeText(2, R"({"tcp":[5,6],"shm":[7,9]})"));
  CHECK(wire.Has("sent", "tcp", "155"));
  CHECK(wire.Has("received", "tcp", "26"));
  CHECK(wire.Has("received", "shm", "9"));
}

TEST_CASE(
    "a process that restarts counts on, and one whose counts come again does not count twice") {
  Wire wire;
  wire.Tell(NodeText(1, R"({"tcp":[100,0]})"));
  wire.Tell("");  // the scheduler restarts
  wire.Tell(NodeText(1, R"({"tcp":[0,0]})"));
  wire.Tell(NodeText(1, R"({"tcp":[110,0]})"));
  CHECK(wire.Has("sent", "tcp", "110"));
  wire.Tell(NodeText(2, R"({"tcp":[30,0]})"));  // another life, with another id
  CHECK(wire.Has("sent", "tcp", "140"));
  wire.Tell(NodeText(2, R"({"tcp":[10,0]})"));  // and with the same one
  wire.Tell(NodeText(2, R"({"tcp":[15,0]})"));
  CHECK(wire.Has("sent", "tcp", "155"));
}

TEST_CASE("lives that have ended are forgotten, and stay in the sums") {
  Wire wire;
  constexpr int kMore = 10;
  for (int id = 1; id <= static_cast<int>(WireMetrics::kLivesMax) + kMore; ++id)
    wire.Tell(NodeText(id, R"({"tcp":[1,0]})"));
  CHECK(wire.Has("sent", "tcp", "4106"));
  // The first is not known any more.
  wire.Tell(NodeText(1, R"({"tcp":[1,0]})"));
  CHECK(wire.Has("sent", "tcp", "4107"));
  wire.Tell(NodeText(100, R"({"tcp":[1,0]})"));
  CHECK(wire.Has("sent", "tcp", "4107"));
}

TEST_CASE("other transports and processes without an address are left out") {
  Wire wire;
  wire.Tell(NodeText(1, R"({"udp":[1,2]})"));
  wire.Tell(R"({"pid":1,"traffic":{"tcp":[1,2]}})");
  CHECK(wire.Has("sent", "tcp", "0"));
  CHECK(wire.Has("received", "tcp", "0"));
}

}  // namespace
}  // namespace pando
