#include "net/line_guard.h"

#include <doctest/doctest.h>

#include <functional>

#include "common/clock.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

TEST_CASE("a wrong token costs much less than an agreement on keys") {
  const TempFolder temp;
  REQUIRE(MakeKeys(temp.File("keys")).ok());
  const ZmqContext context(*ReadSchedulerKeys(temp.File("keys")));
  LineGuard guard(context, /*is_scheduler=*/true);
  const KeyPair member = DrawKeyPair();
  const Incarnation process(7);
  guard.Trust(process, member.public_key);
  const std::string plain = RoutingId({.channel = Channel::kData, .incarnation = process}, {});
  constexpr int kCount = 500;
  const auto time = [](const std::function<void(int)>& repeat) {
    const Micros start = SteadyNow();
    for (int i = 0; i < kCount; ++i) repeat(i);
    return SteadyNow() - start;
  };
  const KeyPair& shown = context.keys().Of(KeyRole::kAdmin);
  const Micros agreeing =
      time([&](int) { CHECK(!SharedSecret(shown, member.public_key).empty()); });
  const Micros refusing = time([&](int i) {
    CHECK(!guard.ProvenSender(plain + std::string(16, static_cast<char>(i))).has_value());
  });
  CHECK(refusing * 3 < agreeing);  // measured: a twentieth
  CHECK(guard.ProvenSender(plain + LineToken(member, shown.public_key, plain)) == process);
}

}  // namespace
}  // namespace pando
