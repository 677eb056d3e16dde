#include "view/run_status.h"

#include <doctest/doctest.h>

namespace pando {
namespace {

using Json = nlohmann::json;

TEST_CASE("a text that is no status gives none") {
  for (const char* text : {"", "[]", "7", "{", R"({"step":1})", R"({"nodes":[]} x)"}) {
    CAPTURE(text);
    CHECK(ReadStatus(text).is_null());
  }
}

TEST_CASE("members of unexpected types are left out of a status") {
  const Json status = ReadStatus(
      R"({"step":"7","phase":7,"model":"mlp","clock_us":123,"faults":{"a":1},"snapshots":[null,{}],
          "nodes":[7,null,["x"],{"name":{"a":1},"step":[],"health":true,"lines":[1]},
                   {"name":"worker 0","step":3,"endpoints":["x"],"lines":{"tcp":1,"shm":"x"}}]})");
  CHECK(status == Json::parse(R"({"model":"mlp","faults":[],"nodes":[{"lines":{}},
                        {"name":"worker 0","step":3,"lines":{"tcp":1}}]})"));
  CHECK(PageStatus(status)["nodes"]["worker 0"]["step"] == 3);
  CHECK(ReadStatus(R"({"nodes":{"a":1}})")["nodes"].empty());
}

TEST_CASE("a stall has its texts and its time") {
  const Json status = ReadStatus(
      R"({"nodes":[],"stall":{"waiter":"worker 0","waited_for":"server 1","what":"x","since_ms":1400,
          "text":"no step for 1.4 s","log_line":["x"]}})");
  CHECK(status["stall"] ==
        Json::parse(R"({"waited_for":"server 1","since_ms":1400,"text":"no step for 1.4 s"})"));
  CHECK(PageStatus(status)["stall"] == status["stall"]);
  CHECK_FALSE(ReadStatus(R"({"nodes":[],"stall":"x"})").contains("stall"));
}

TEST_CASE("the page gets processes by name, and times only as exactly as it shows them") {
  const Json status = ReadStatus(
      R"({"nodes":[{"name":"worker 1","silent_ms":99,"waiting_ms":250.5,"micro_batch_us":12345}],
          "snapshots":[{"version":5},{"version":9}]})");
  const Json page = PageStatus(status);
  CHECK(page["newest_snapshot"] == 9);
  CHECK_FALSE(page.contains("faults"));
  const Json& node = page["nodes"]["worker 1"];
  CHECK(node["silent_ms"] == 0);
  CHECK(node["waiting_ms"] == 200);
  CHECK(node["micro_batch_us"] == 12000);
  CHECK(PageStatus(ReadStatus(
            R"({"nodes":[{"silent_ms":1e300,"waiting_ms":-5}]})"))["nodes"][""]["waiting_ms"] == 0);
}

TEST_CASE("a patch has what differs alone, and makes the one status from the other") {
  const Json before = ReadStatus(
      R"({"step":1,"waiting_for":"worker 1","model":"mlp","nodes":[{"name":"a","step":1,"rank":0},
          {"name":"b","rank":1,"lines":{"tcp":2}}]})");
  const Json after = ReadStatus(
      R"({"step":2,"model":"mlp","nodes":[{"name":"a","step":2,"rank":0},{"name":"c"}]})");
  const Json from = PageStatus(before), to = PageStatus(after);
  const Json patch = MergePatch(from, to);
  CHECK(patch == Json::parse(R"({"step":2,"waiting_for":null,
                                 "nodes":{"a":{"step":2},"b":null,"c":{"name":"c","lines":{}}}})"));
  Json merged = from;
  merged.merge_patch(patch);
  CHECK(merged == to);
  CHECK(MergePatch(to, to).empty());
}

}  // namespace
}  // namespace pando
