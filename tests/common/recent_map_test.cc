#include "common/recent_map.h"

#include <doctest/doctest.h>

#include <string>

namespace pando {
namespace {

TEST_CASE("what was touched longest ago makes room, and what is touched again stays") {
  RecentMap<int, std::string> map(3);
  for (int key : {1, 2, 3}) map.Touch(key) = std::to_string(key);
  CHECK(map.Touch(1) == "1");
  map.Touch(4);
  CHECK(map.size() == 3);
  CHECK(map.Find(2) == nullptr);
  CHECK(*map.Find(1) == "1");
  for (int key = 10; key < 1000; ++key) {
    map.Touch(key);
    map.Touch(1);
  }
  CHECK(map.size() == 3);
  CHECK(*map.Find(1) == "1");
  CHECK(map.Find(998) != nullptr);
  CHECK(map.Find(997) == nullptr);
}

}  // namespace
}  // namespace pando
