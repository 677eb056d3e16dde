#include "files/json_depth.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/repeated.h"

namespace pando {
namespace {

TEST_CASE("open brackets of JSON are counted, texts are not") {
  const std::string deepest = Repeated("[{\"a\":", kJsonDepthMax / 2);
  CHECK_FALSE(IsDeepJson(""));
  CHECK_FALSE(IsDeepJson(deepest));
  CHECK(IsDeepJson(deepest + "["));
  CHECK(IsDeepJson("{\"a\": \"]]]\\\"]]]\", \"b\": " + deepest + "["));
  CHECK_FALSE(IsDeepJson(Repeated("[]{}", 1000)));
  CHECK_FALSE(IsDeepJson("\"\\\\\\\"" + Repeated("[", 1000)));
  CHECK_FALSE(IsDeepJson("]" + deepest));
}

}  // namespace
}  // namespace pando
