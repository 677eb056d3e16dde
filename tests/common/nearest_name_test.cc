#include "common/text.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace pando {
namespace {

const std::vector<std::string> kKeys{"lr", "momentum", "micro-batches", "workers", "servers"};

TEST_CASE("the distance counts insertions, deletions, substitutions and swaps") {
  CHECK(EditDistance("", "") == 0);
  CHECK(EditDistance("", "abc") == 3);
  CHECK(EditDistance("abc", "") == 3);
  CHECK(EditDistance("abc", "abc") == 0);
  CHECK(EditDistance("abc", "abd") == 1);
  CHECK(EditDistance("abc", "abcd") == 1);
  CHECK(EditDistance("abcd", "bcd") == 1);
  CHECK(EditDistance("mnist", "mnsit") == 1);
  CHECK(EditDistance("ab", "ba") == 1);
  CHECK(EditDistance("ca", "abc") == 3);  // restricted: no edit between swapped letters
  CHECK(EditDistance("kitten", "sitting") == 3);
}

TEST_CASE("case, and a dash against an underscore, are no difference") {
  CHECK(EditDistance("Micro_Batches", "micro-batches") == 0);
  CHECK(NearestNames("MICRO_BATCHES", kKeys) == std::vector<std::string>{"micro-batches"});
}

TEST_CASE("a misspelt name finds its neighbours, nearest first") {
  CHECK(NearestNames("momentun", kKeys) == std::vector<std::string>{"momentum"});
  // One edit to "servers", two to "workers".
  CHECK(NearestNames("serkers", kKeys) == std::vector<std::string>{"servers", "workers"});
}

TEST_CASE("a name of very many letters is like no other") {
  CHECK(NearestNames(std::string(100'000'000, 'x'), kKeys).empty());
  const std::vector<std::string> known{std::string(257, 'x')};
  CHECK(NearestNames(std::string(256, 'x'), known).empty());
}

TEST_CASE("a part of a name finds it, unless the part is tiny") {
  CHECK(NearestNames("batches", kKeys) == std::vector<std::string>{"micro-batches"});
  CHECK(NearestNames("om", kKeys).empty());
}

TEST_CASE("nothing is near to nonsense, or among no names") {
  CHECK(NearestNames("photosynthesis", kKeys).empty());
  CHECK(NearestNames("lr", {}).empty());
  CHECK(DidYouMean("photosynthesis", kKeys).empty());
}

TEST_CASE("at most three names are offered, equal ones in their order") {
  const std::vector<std::string> many{"aaa1", "aaa2", "aaa3", "aaa4"};
  CHECK(NearestNames("aaa", many) == std::vector<std::string>{"aaa1", "aaa2", "aaa3"});
}

TEST_CASE("the question reads well with one, two and three names") {
  CHECK(DidYouMean("momentun", kKeys) == "did you mean 'momentum'?");
  CHECK(DidYouMean("serkers", kKeys) == "did you mean 'servers' or 'workers'?");
  const std::vector<std::string> three{"a1", "a2", "a3"};
  CHECK(DidYouMean("a", three) == "did you mean 'a1', 'a2' or 'a3'?");
}

}  // namespace
}  // namespace pando
