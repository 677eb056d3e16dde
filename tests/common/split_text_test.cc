// Texts that hold lists.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/endpoint.h"
#include "common/text.h"

namespace pando {
namespace {

TEST_CASE("a separator ends a part, and two of them have an empty part between them") {
  using Parts = std::vector<std::string_view>;
  CHECK(SplitText("", ',') == Parts{});
  CHECK(SplitText("a", ',') == Parts{"a"});
  CHECK(SplitText("a,b,", ',') == Parts{"a", "b"});
  CHECK(SplitText(",a,,b", ',') == Parts{"", "a", "", "b"});
}

TEST_CASE("a list of endpoints shows one that is missing") {
  using Endpoints = std::vector<std::string>;
  CHECK(SplitEndpoints("tcp://a:1") == Endpoints{"tcp://a:1"});
  CHECK(SplitEndpoints("tcp://a:1,tcp://b:2") == Endpoints{"tcp://a:1", "tcp://b:2"});
  CHECK(SplitEndpoints("tcp://a:1,") == Endpoints{"tcp://a:1", ""});
  CHECK(SplitEndpoints("") == Endpoints{""});
}

}  // namespace
}  // namespace pando
