#include "view/fault_list.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace pando {
namespace {

FaultRecord FaultAt(uint64_t id, double injected_ms, double detected_ms, double recovered_ms) {
  return {.id = id,
          .action = injected_ms < 0 ? "exit" : "kill",
          .target = "scheduler",
          .injected_ms = injected_ms,
          .detected_ms = detected_ms,
          .recovered_ms = recovered_ms};
}

TEST_CASE("a killed scheduler's rows are one fault, in any order, and its news come once") {
  // As in events.jsonl: the new life's detection, the injected kill, and its end.
  const std::array rows{FaultAt(1, -1, 83674.2, -1), FaultAt(1, 79734.7, 79937.9, -1),
                        FaultAt(1, 79734.7, 79937.9, 84782.3)};
  std::array order{0, 1, 2};
  do {
    FaultList faults;
    int noticed_count = 0;
    int recovery_count = 0;
    for (int round = 0; round < 2; ++round) {
      for (const int row : order) {
        const FaultList::News news = faults.Add(rows[static_cast<size_t>(row)]);
        noticed_count += news.is_noticed;
        if (!news.recovery_ms) continue;
        ++recovery_count;
        CHECK(*news.recovery_ms == doctest::Approx(5047.6));
      }
    }
    CHECK(recovery_count == 1);
    CHECK(noticed_count == 1);
    const nlohmann::json list = faults.Since(0);
    REQUIRE(list.size() == 1);
    CHECK(list[0]["action"] == "kill");
    CHECK(list[0]["injected_ms"] == 79734.7);
    CHECK(list[0]["recovered_ms"] == 84782.3);
  } while (std::ranges::next_permutation(order).found);
}

TEST_CASE("faults of one process at one time are several if their ids differ") {
  FaultList faults;
  CHECK(faults.Add(FaultAt(1, -1, 10, -1)).is_noticed);
  CHECK(faults.Add(FaultAt(2, -1, 10, -1)).is_noticed);
  CHECK_FALSE(faults.Add(FaultAt(3, 10, -1, -1)).is_noticed);
  CHECK(faults.Since(0).size() == 3);
}

TEST_CASE("a reader gets what has changed, as other readers of faults get it") {
  FaultList faults;
  faults.Add(FaultAt(1, -1, 10, -1));
  faults.Add(FaultAt(2, 5, -1, -1));
  const uint64_t read = faults.changes();
  CHECK(faults.Since(read).empty());
  faults.Add(FaultAt(2, 5, 10, -1));
  faults.Add(FaultAt(1, -1, 10, -1));
  CHECK(faults.Since(read) == nlohmann::json::parse(R"([
      {"id":2,"action":"kill","target":"scheduler","host":"","process_id":0,"step":0,
       "injected_ms":5.0,"detected_ms":10.0,"detected_by":null,"recovered_ms":null}])"));
}

TEST_CASE(
    "the newest faults are kept, those that are forgotten stay so, and one without an id is none") {
  FaultList faults;
  constexpr size_t kMore = 5;
  for (uint64_t id = 0; id <= FaultList::kFaultsMax + kMore; ++id)
    CHECK(faults.Add(FaultAt(id, -1, 10, -1)).is_noticed == (id > 0));
  CHECK_FALSE(faults.Add(FaultAt(kMore, -1, 10, 20)).recovery_ms);
  CHECK(faults.Since(0).size() == FaultList::kFaultsMax);
  CHECK(faults.Since(0)[0]["id"] == kMore + 1);
}

}  // namespace
}  // namespace pando
