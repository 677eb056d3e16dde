#include "files/json_fields.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "tests/repeated.h"

namespace pando {

enum class Color { kRed, kBlue };
template <>
inline constexpr auto kEnumNames<Color> = std::to_array({"red", "blue"});

namespace {

struct SampleItem {
  NodeId node;
  Incarnation incarnation;
  std::vector<uint64_t> counts;
};
void Visit(auto io, SampleItem& m) {
  io(PANDO_FIELD(m.node));
  io(PANDO_FIELD(m.incarnation), PANDO_FIELD(m.counts));
}

struct SampleRecord {
  std::string name;
  Color color = Color::kRed;
  bool is_done = false;
  int16_t offset = 0;
  double mean = 0;
  double sum = 0;
  double ms = -1;
  std::optional<SampleItem> best;
  std::vector<SampleItem> parts;
};
void Visit(auto io, SampleRecord& m) {
  io(PANDO_FIELD(m.name), PANDO_FIELD(m.color), PANDO_FIELD(m.is_done), PANDO_FIELD(m.offset),
     PANDO_FIELD(m.mean), NamedField{"sum", AnyNumber{m.sum}},
     NamedField{"ms", NullBelowZero{m.ms}}, PANDO_FIELD(m.best), PANDO_FIELD(m.parts));
}

struct SampleParts {
  std::optional<uint32_t> count;
  std::array<uint64_t, 2> pair{};
  std::string by;
  int left = 7;
};
void Visit(auto io, SampleParts& m) {
  io(PANDO_OPTIONAL(m.count), PANDO_FIELD(m.pair), NamedField{"by", NullIfEmpty{m.by}},
     PANDO_FIELD(m.left));
}

struct Empty {};
void Visit(auto, Empty&) {}

const char* const kFull =
    R"({"name":"a \"b\"","color":"blue","is_done":true,"offset":-7,"mean":0.1,"sum":2.5,"ms":0.0,)"
    R"("best":{"node":4294967295,"incarnation":"ffffffffffffffff","counts":[18446744073709551615]},)"
    R"("parts":[{"node":1,"incarnation":"00000000000000ab","counts":[]}]})";

std::string Replaced(const std::string& from, const std::string& to) {
  std::string text = kFull;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("a record is an object with its fields in order, and reads back") {
  const SampleRecord whole{
      .name = "a \"b\"",
      .color = Color::kBlue,
      .is_done = true,
      .offset = -7,
      .mean = 0.1,
      .sum = 2.5,
      .ms = 0,
      .best = SampleItem{NodeId(UINT32_MAX), Incarnation(UINT64_MAX), {UINT64_MAX}},
      .parts = {{NodeId(1), Incarnation(0xab), {}}}};
  CHECK(JsonText(whole) == kFull);
  SampleRecord read;
  REQUIRE(ReadJson(kFull, &read).ok());
  CHECK(read.offset == -7);
  CHECK(read.best->counts == std::vector<uint64_t>{UINT64_MAX});
  CHECK(JsonText(read) == kFull);
  CHECK(JsonText(Empty()) == "{}");
}

TEST_CASE("numbers that are not finite and times that are unknown read back") {
  SampleRecord whole{.mean = NAN, .sum = -INFINITY};
  const std::string text = JsonText(whole);
  CHECK(text.find(R"("mean":null,"sum":"-inf","ms":null,"best":null,"parts":[])") !=
        std::string::npos);
  SampleRecord read{.mean = 1, .sum = 1, .ms = 1, .best = SampleItem(), .parts = {{}}};
  REQUIRE(ReadJson(text, &read).ok());
  CHECK(std::isnan(read.mean));
  CHECK(read.sum == -INFINITY);
  CHECK(read.ms == -1);
  CHECK_FALSE(read.best.has_value());
  CHECK(read.parts.empty());
  whole.sum = NAN;
  REQUIRE(ReadJson(JsonText(whole), &read).ok());
  CHECK(std::isnan(read.sum));
}

TEST_CASE("optional entries are left out, and what another release lacks keeps its value") {
  SampleParts parts{.pair = {1, 2}};
  CHECK(JsonText(ToJson(parts)) == R"({"pair":[1,2],"by":null,"left":7})");
  parts.count = 0;
  parts.by = "exit";
  const std::string text = JsonText(ToJson(parts));
  CHECK(text == R"({"count":0,"pair":[1,2],"by":"exit","left":7})");
  SampleParts read;
  REQUIRE(ReadJson(text, &read).ok());
  CHECK(JsonText(ToJson(read)) == text);
  REQUIRE(ReadJson(R"({"by":null,"new":{}})", &read, Missing::kKept).ok());
  CHECK(JsonText(ToJson(read)) == R"({"pair":[1,2],"by":null,"left":7})");
  CHECK(ReadJson(R"({"pair":[1]})", &read, Missing::kKept).message() ==
        "pair: expected a list of 2, found [1]");
  CHECK_FALSE(ReadJson(R"({"count":null})", &read, Missing::kKept).ok());
  CHECK_FALSE(ReadJson(R"({"pair":[1,2]})", &read).ok());
}

TEST_CASE("sets and lists of numbers are lists, and bytes that are no UTF-8 are replaced") {
  CHECK(JsonText(std::set<NodeId>{NodeId(2), NodeId(1)}) == "[1,2]");
  CHECK(JsonText(std::vector<std::string>{"[", ""}) == R"(["[",""])");
  CHECK(JsonText(std::string("caf\xe9")) == "\"caf\xef\xbf\xbd\"");
  CHECK(ToJson(std::vector<SampleItem>(1))[0]["node"] == 0);
}

TEST_CASE("an error names the field's path, the value and what was expected") {
  const auto error = [](const std::string& text) {
    SampleRecord whole;
    const Status status = ReadJson(text, &whole);
    CHECK(status.code() == StatusCode::kCorrupt);
    return status.message();
  };
  CHECK(error("[]") == "expected an object, found []");
  CHECK(error("{\"name\"") == "expected JSON, found {\"name\"");
  CHECK(error(Repeated("[", kJsonDepthMax + 1)) == "its JSON is nested too deeply");
  CHECK(error(Replaced("\"blue\"", "\"pink\"")) ==
        "color: expected one of red, blue, found \"pink\"");
  CHECK(error(Replaced("\"blue\"", "1")) == "color: expected one of red, blue, found 1");
  CHECK(error(Replaced("true", "1")) == "is_done: expected true or false, found 1");
  CHECK(error(Replaced("-7", "32768")) == "offset: 32768 is out of range");
  CHECK(error(Replaced("-7", "-32769")) == "offset: -32769 is out of range");
  CHECK(error(Replaced("-7", "1.5")) == "offset: expected a whole number, found 1.5");
  CHECK(error(Replaced("-7", "\"x\"")) == "offset: expected a whole number, found \"x\"");
  CHECK(error(Replaced("0.1", "true")) == "mean: expected a number, found true");
  CHECK(error(Replaced("2.5", "\"nan\"")) == "sum: expected a number, found \"nan\"");
  CHECK(error(Replaced("0.0", "\"x\"")) == "ms: expected a number, found \"x\"");
  CHECK(error(Replaced("4294967295", "4294967296")) == "best.node: 4294967296 is out of range");
  CHECK(error(Replaced("4294967295", "-1")) == "best.node: -1 is out of range");
  CHECK(error(Replaced("18446744073709551615", "null")) ==
        "best.counts[0]: expected a whole number, found null");
  CHECK(error(Replaced("00000000000000ab", "xyz")) ==
        "parts[0].incarnation: expected hex digits, found \"xyz\"");
  CHECK(error(Replaced(",\"counts\":[]", "")) == "parts[0].counts: is missing");
  CHECK(error(Replaced("\"counts\":[]", "\"counts\":{}")) ==
        "parts[0].counts: expected a list, found {}");
}

}  // namespace
}  // namespace pando
