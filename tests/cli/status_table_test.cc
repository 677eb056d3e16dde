#include "cli/status_table.h"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

namespace pando {
namespace {

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string AnswerWith(const std::string& nodes) {
  return R"({"model":"mlp","dataset":"mnist","phase":"training","step":7,"step_count":9,"view":3,)"
         R"("nodes":[)" +
         nodes + "]}";
}

std::string Table(const std::string& answer) {
  const Result<RunStatus> status = ParseStatus(answer);
  REQUIRE_MESSAGE(status.ok(), status.status().message());
  return StatusTable(*status);
}

TEST_CASE("the time since a node's last message is in one column, for any connections") {
  const auto node = [](const std::string& lines) {
    return R"({"name":"worker-0","host":"h","pid":1,"step":7,"activity":"computing",)" + lines +
           R"("silent_ms":12})";
  };
  const std::vector<std::string> kinds{R"("lines":{"shm":1,"tcp":1},)",
                                       R"("lines":{"shm":2,"ipc":10,"tcp":16},)",
                                       R"("lines":{"tcp":1},)", ""};
  for (const std::string& widest : kinds) {
    const std::string table = Table(AnswerWith(node(widest) + "," + node(kinds[2])));
    CAPTURE(table);
    const std::vector<std::string> lines = SplitLines(table);
    REQUIRE(lines.size() == 4);
    const size_t heard = lines[1].find("HEARD");
    for (size_t i : {2, 3}) CHECK(lines[i].substr(heard) == "12 ms ago");
    CHECK(lines[3].substr(lines[1].find("LINES")).starts_with("tcp 1 "));
  }
  const std::string mixed = Table(AnswerWith(node(kinds[1])));
  CHECK(mixed.find(" shm 2, ipc 10, tcp 16 12 ms ago\n") != std::string::npos);
}

TEST_CASE("a long wait and its reason move no other column") {
  const std::string waits =
      R"({"name":"worker 0","activity":"waiting for parameters","waiting_for":"server 12",)"
      R"("waiting_ms":123456,"lines":{"tcp":1},"silent_ms":12})";
  const std::string computes = R"({"name":"worker 1","activity":"computing","silent_ms":7})";
  const std::string text = Table(AnswerWith(waits + "," + computes));
  const std::vector<std::string> lines = SplitLines(text);
  REQUIRE(lines.size() == 4);
  const size_t heard = lines[1].find("HEARD");
  CHECK(lines[2].find(" from server 12 for 123456 ms tcp 1 12 ms ago") != std::string::npos);
  CHECK(lines[2].substr(heard) == "12 ms ago");
  CHECK(lines[3].substr(heard) == "7 ms ago");
}

TEST_CASE("a run without members has a heading alone") {
  const std::vector<std::string> lines = SplitLines(Table(AnswerWith("")));
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "mlp on mnist: training, step 7 of 9, view 3");
  CHECK(lines[1].ends_with("LINES HEARD"));
}

TEST_CASE("a run with standbys has a line for its schedulers") {
  const std::string table = StatusTable({.schedulers = std::vector<SchedulerPlace>{
                                             {"tcp://a:1", "leads"}, {"tcp://b:1", "may lead"}}});
  CHECK(table.find("\nschedulers: tcp://a:1 leads, tcp://b:1 may lead\n") != std::string::npos);
  CHECK(StatusTable({}).find("schedulers") == std::string::npos);
}

TEST_CASE("the newest faults are listed by their ids, and the earlier ones are counted") {
  RunStatus status{.fault_count = 40};
  for (uint64_t id = 9; id <= 40; ++id) {
    status.faults.push_back(
        {.id = id, .action = "kill", .target = "worker 1", .step = Step(7), .injected_ms = 1});
  }
  const std::string table = StatusTable(status);
  CHECK(
      table.find("FAULTS (30 earlier ones)\n31   worker 1     kill at step 7, not noticed yet\n") !=
      std::string::npos);
  CHECK(table.ends_with("\n40   worker 1     kill at step 7, not noticed yet\n"));
}

}  // namespace
}  // namespace pando
