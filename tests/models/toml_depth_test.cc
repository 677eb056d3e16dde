#include "models/toml_depth.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/repeated.h"

namespace pando {
namespace {

TEST_CASE("dots of a TOML key are counted, other dots are not") {
  const std::string deepest = Repeated("a.", kTomlKeyDotsMax) + "a";
  CHECK_FALSE(IsDeepToml(""));
  CHECK_FALSE(IsDeepToml(deepest + " = 1.5\n" + deepest + " = 1.5\n[" + deepest + "]\n"));
  CHECK(IsDeepToml("x = 1\na." + deepest + " = 1"));
  CHECK(IsDeepToml("[[ \"b.c\" . 'd' . " + deepest + "]]"));
  CHECK(IsDeepToml("x = {a." + deepest + " = 1}"));
  const std::string dots = Repeated("a.", 1000);
  CHECK_FALSE(IsDeepToml("# " + dots + "\nx = 1"));
  for (const std::string quote : {"\"", "'", "\"\"\"", "'''"}) {
    CAPTURE(quote);
    const std::string text = "x = " + quote + dots + quote;
    CHECK_FALSE(IsDeepToml(text));
    CHECK_FALSE(IsDeepToml("x = " + quote + dots));
    CHECK(IsDeepToml(text + "\na." + deepest + " = 1"));
  }
  // A text may end with an escaped quote, or one more.
  CHECK_FALSE(IsDeepToml("x = \"\\\"" + dots + "\""));
  CHECK(IsDeepToml("x = '\\'\na." + deepest));
  CHECK(IsDeepToml("x = \"\"\"a\"\"\"\"\na." + deepest + " = \"\""));
}

}  // namespace
}  // namespace pando
