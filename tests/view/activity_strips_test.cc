#include "view/activity_strips.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

namespace pando {
namespace {

using Json = nlohmann::json;

std::vector<RunStatus::Node> StatusWith(const char* activity) {
  return {{.name = "worker 0", .activity = activity}};
}

TEST_CASE("looks at the same activity make one span, and another begins where it ended") {
  ActivityStrips strips;
  strips.Look(1, StatusWith("computing"));
  strips.Look(1.5, StatusWith("computing"));
  strips.Look(2, StatusWith("waiting for parameters"));
  strips.Look(2.5, StatusWith("waiting for parameters"));
  CHECK(strips.Since(-1) ==
        Json::parse(R"({"worker 0":[[1.0,2.0,"computing"],[2.0,2.5,"waiting for parameters"]]})"));
}

TEST_CASE("a reader gets the span that has become longer, and new ones") {
  ActivityStrips strips;
  strips.Look(1, StatusWith("computing"));
  strips.Look(1.5, StatusWith("waiting for parameters"));
  const double read = strips.last_look();
  CHECK(strips.Since(read).empty());
  strips.Look(2.001, StatusWith("waiting for parameters"));
  CHECK(strips.Since(read) == Json::parse(R"({"worker 0":[[1.5,2.0]]})"));
  strips.Look(2.5, StatusWith("computing"));
  CHECK(strips.Since(read) == Json::parse(R"({"worker 0":
      [[1.5,2.5],[2.5,2.5,"computing"]]})"));
}

TEST_CASE("a long time without looks is left open, and old spans go with their process") {
  ActivityStrips strips;
  strips.Look(0, StatusWith("computing"));
  strips.Look(10, StatusWith("computing"));
  CHECK(strips.Since(-1)["worker 0"].size() == 2);
  strips.Look(11 + ActivityStrips::kKeptSeconds, {});
  CHECK(strips.Since(-1).empty());
}

}  // namespace
}  // namespace pando
