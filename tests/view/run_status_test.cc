#include "view/run_status.h"

#include <doctest/doctest.h>

namespace pando {
namespace {

using Json = nlohmann::json;

TEST_CASE("the page gets processes by name, and times only as exactly as it shows them") {
  const RunStatus status{
      .phase = "training",
      .stall = RunStatus::Stall{.waited_for = "server 1", .since_ms = 1400, .text = "no step"},
      .clock_us = 123,
      .nodes = {{.name = "worker 1",
                 .silent_ms = 99,
                 .micro_batch_us = 12345,
                 .data_stall_us = 5,
                 .lines = RunStatus::Lines{.tcp = 1},
                 .traffic = RunStatus::Traffic{.tcp = {{1, 2}}},
                 .waiting_ms = 250}},
      .evaluation = RunStatus::Evaluation(),
      .snapshots = {{1, Version(5)}, {1, Version(9)}},
      .faults = {{.id = 1}},
      .fault_count = 1};
  CHECK(PageStatus(status) == Json::parse(R"({
      "phase":"training","step":0,"step_count":0,"term":0,"view":0,"generation":0,"model":"",
      "dataset":"","newest_snapshot":9,"fault_count":1,
      "stall":{"waiter":"","waited_for":"server 1","what":"","since_ms":1400,"text":"no step",
               "log_line":""},
      "nodes":{"worker 1":{"name":"worker 1","role":"","rank":0,"host":"","pid":0,"health":"ready",
               "draining":false,"activity":"unknown","step":0,"silent_ms":0,"waiting_ms":200,
               "micro_batch_us":12000,"lines":{"tcp":1}}}})"));
}

TEST_CASE("a patch has what differs alone, and makes the one status from the other") {
  const Json from = PageStatus(
      {.waiting_for = "worker 1",
       .step = 1,
       .model = "mlp",
       .nodes = {{.name = "a", .step = 1}, {.name = "b", .lines = RunStatus::Lines{.tcp = 2}}}});
  const Json to =
      PageStatus({.step = 2, .model = "mlp", .nodes = {{.name = "a", .step = 2}, {.name = "c"}}});
  const Json patch = MergePatch(from, to);
  CHECK(patch["nodes"]["c"] == to["nodes"]["c"]);
  CHECK(patch ==
        Json{{"step", 2},
             {"waiting_for", nullptr},
             {"nodes", {{"a", {{"step", 2}}}, {"b", nullptr}, {"c", patch["nodes"]["c"]}}}});
  Json merged = from;
  merged.merge_patch(patch);
  CHECK(merged == to);
  CHECK(MergePatch(to, to).empty());
}

}  // namespace
}  // namespace pando
