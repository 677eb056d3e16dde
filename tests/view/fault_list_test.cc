#include "view/fault_list.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>

namespace pando {
namespace {

using Json = nlohmann::json;

Json FaultAt(double step, Json injected_ms, Json detected_ms, Json recovered_ms) {
  return {{"target", "scheduler"},
          {"action", injected_ms.is_null() ? "exit" : "kill"},
          {"step", step},
          {"injected_ms", std::move(injected_ms)},
          {"detected_ms", std::move(detected_ms)},
          {"recovered_ms", std::move(recovered_ms)}};
}

TEST_CASE("a killed scheduler's rows are one fault, in any order, and its recovery comes once") {
  // As in events.jsonl: the new life's detection, the injected kill, and its end.
  const std::array rows{FaultAt(400, nullptr, 83674.2, nullptr),
                        FaultAt(400, 79734.7, 79937.9, nullptr),
                        FaultAt(400, 79734.7, 79937.9, 84782.3)};
  std::array order{0, 1, 2};
  do {
    FaultList faults;
    int recovery_count = 0;
    for (int round = 0; round < 2; ++round) {
      for (const int row : order) {
        const std::optional<double> recovery_ms = faults.Add(rows[static_cast<size_t>(row)]);
        if (!recovery_ms) continue;
        ++recovery_count;
        CHECK(*recovery_ms == doctest::Approx(5047.6));
      }
    }
    CHECK(recovery_count == 1);
    CHECK(faults.noticed_count() == 1);
    const Json list = faults.Since(0);
    REQUIRE(list.size() == 1);
    CHECK(list[0]["action"] == "kill");
    CHECK(list[0]["injected_ms"] == 79734.7);
    CHECK(list[0]["recovered_ms"] == 84782.3);
  } while (std::ranges::next_permutation(order).found);
}

TEST_CASE("faults of other processes, steps and times are others") {
  FaultList faults;
  faults.Add(FaultAt(1, nullptr, 10, nullptr));
  faults.Add(FaultAt(2, nullptr, 20, nullptr));
  Json other = FaultAt(1, nullptr, 10, nullptr);
  other["target"] = "worker 1";
  faults.Add(other);
  faults.Add(FaultAt(3, 30, nullptr, nullptr));  // not noticed yet
  CHECK(faults.Since(0).size() == 4);
  CHECK(faults.noticed_count() == 3);
}

TEST_CASE("a reader gets what has changed, and which entries have become part of others") {
  FaultList faults;
  faults.Add(FaultAt(1, nullptr, 10, nullptr));
  faults.Add(FaultAt(2, 5, nullptr, nullptr));
  const uint64_t read = faults.changes();
  CHECK(faults.Since(read).empty());
  faults.Add(FaultAt(2, 5, 10, nullptr));  // it was one fault
  CHECK(faults.Since(read) == Json::parse(R"([
      {"id":0,"target":"scheduler","action":"kill","step":2.0,"injected_ms":5.0,"detected_ms":10.0},
      {"id":1,"is_gone":true}])"));
  CHECK(faults.noticed_count() == 1);
}

TEST_CASE("what is no fault is ignored, and values of other types are not known") {
  FaultList faults;
  for (const char* text : {"null", "7", "[]", "{}", R"({"detected_ms":"x"})"}) {
    faults.Add(Json::parse(text));
  }
  CHECK(faults.Since(0).empty());
  faults.Add(Json::parse(R"({"detected_ms":1,"target":7,"action":{},"step":"x"})"));
  CHECK(faults.Since(0) == Json::parse(R"([{"id":0,"target":"","action":"","detected_ms":1.0}])"));
}

TEST_CASE("the newest faults are kept, and all are counted") {
  FaultList faults;
  constexpr size_t kMore = 5;
  for (size_t i = 0; i < FaultList::kFaultsMax + kMore; ++i)
    faults.Add(FaultAt(static_cast<double>(i), nullptr, i, nullptr));
  CHECK(faults.Since(0).size() == FaultList::kFaultsMax);
  CHECK(faults.Since(0)[0]["id"] == kMore);
  CHECK(faults.noticed_count() == FaultList::kFaultsMax + kMore);
}

}  // namespace
}  // namespace pando
