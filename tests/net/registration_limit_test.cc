#include "net/registration_limit.h"

#include <doctest/doctest.h>

namespace pando {
namespace {

using std::chrono::seconds;

TEST_CASE("a cluster behind one address registers at once, and a flood does not") {
  RegistrationLimit limit;
  Micros now{1'000'000};
  uint64_t life = 0;
  uint64_t passed = 0;
  const auto flood = [&](const char* address, int count) {
    passed = 0;
    for (int i = 0; i < count; ++i) passed += limit.Admit(now, address, Incarnation(++life));
  };
  flood("10.0.0.1", 2000);
  CHECK(passed == 2000);
  flood("10.0.0.1", 10'000);
  CHECK(passed == 48);
  for (uint64_t known = 1; known <= 500; ++known)  // P10: repeats of a life are not new
    CHECK(limit.Admit(now, "10.0.0.1", Incarnation(known)));
  flood("10.0.0.2", 500);  // others do not suffer
  CHECK(passed == 500);
  now += seconds(10);
  flood("10.0.0.1", 10'000);
  CHECK(passed == 320);
  now += seconds(100'000);
  flood("10.0.0.1", 10'000);
  CHECK(passed == 2048);
}

TEST_CASE("registrations of many addresses are bounded too") {
  RegistrationLimit limit;
  for (uint64_t i = 0; i < 10'000; ++i)
    CHECK(limit.Admit(Micros(1), std::to_string(i), Incarnation(i + 1)));
}

}  // namespace
}  // namespace pando
