#include "tests/sim/world.h"

#include <doctest/doctest.h>

#include <vector>

using namespace pando;
using namespace pando::sim;

namespace {

std::vector<uint64_t> Draw(Chance chance) {
  std::vector<uint64_t> draws;
  for (int i = 0; i < 5; ++i) draws.push_back(chance.Next());
  return draws;
}

TEST_CASE("the draws of a fork depend on the seed and the name alone") {
  const Chance fresh(7);
  Chance used(7);
  used.Next();
  used.Below(10);
  used.Fork("files").Next();
  CHECK(Draw(used.Fork("hostile")) == Draw(fresh.Fork("hostile")));
  CHECK(Draw(fresh.Fork("hostile")) != Draw(fresh.Fork("files")));
  CHECK(Draw(fresh.Fork("hostile")) != Draw(fresh));
  CHECK(Draw(fresh.Fork("hostile")) != Draw(Chance(8).Fork("hostile")));
}

TEST_CASE("what is drawn from a fork does not change the stream that it was made from") {
  const Chance untouched(7);
  Chance forked(7);
  Chance fork = forked.Fork("hostile");
  fork.Next();
  CHECK(Draw(forked) == Draw(untouched));
}

TEST_CASE("a fork of a fork is another stream") {
  const Chance fork = Chance(7).Fork("hostile");
  CHECK(Draw(fork.Fork("views")) != Draw(fork));
  CHECK(Draw(fork.Fork("views")) != Draw(Chance(7).Fork("views")));
}

}  // namespace
