#include "run/json_depth.h"

#include <doctest/doctest.h>

#include <string>

namespace pando {
namespace {

std::string Repeated(const std::string& part, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

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
