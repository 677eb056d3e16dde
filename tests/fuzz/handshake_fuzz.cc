// The identity of a peer that dials a scheduler with keys: the user id of its key, its routing
// id and the public key that it registers. An input is the message and the user id (a byte), the
// size of the routing id, that, and the key.
#include <algorithm>

#include "common/check.h"
#include "net/line_guard.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {
namespace {

constexpr Incarnation kVictim(7);

struct Run {
  Run() {
    keys.folder = "drawn";
    for (KeyPair& pair : keys.pairs) pair = DrawKeyPair();
    guard.Trust(kVictim, victim.public_key);
  }
  // The routing id with the token that only the victim can make.
  std::string Signed(const std::string& routing_id) const {
    const std::string first = WithoutToken(routing_id);
    return first + LineToken(victim, keys.Of(KeyRole::kAdmin).public_key, first);
  }
  std::string VictimsId() const {
    return Signed(RoutingId({Channel::kData, kVictim, 0}, {kSchedulerNode, Incarnation(), 0}));
  }

  Keys keys;
  KeyPair victim = DrawKeyPair();
  ZmqContext context{keys};
  LineGuard guard{context, /*is_scheduler=*/true};
};

// Keys are drawn once, so seeds fit the process that made them.
Run& TheRun() {
  static Run run;
  return run;
}

std::string ToInput(uint8_t choice, const std::string& routing_id, const std::string& key) {
  return std::string{static_cast<char>(choice), static_cast<char>(routing_id.size())} + routing_id +
         key;
}

Message MessageFor(uint8_t choice, const std::string& key) {
  switch (choice % 4) {
    case 0:
      return Register{.public_key = key};
    case 1:
      return StatusRequest{};
    case 2:
      return Command{};
    default:
      return Heartbeat{};
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const Run& run = TheRun();
  std::vector<std::string> seeds;
  for (uint8_t choice = 0; choice < 16; ++choice)
    seeds.push_back(ToInput(choice, run.VictimsId(), run.victim.public_key));
  return seeds;
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  Run& run = TheRun();
  const std::string_view input = TextIn(data, size);
  if (input.size() < 2) return 0;
  const auto choice = static_cast<uint8_t>(input[0]);
  const std::string routing_id(input.substr(2, static_cast<uint8_t>(input[1])));
  const std::string key(input.substr(2 + routing_id.size()));
  const auto roles = std::to_array({"reader", "member", "admin", "stranger"});
  const std::string user_id = roles[choice / 4 % roles.size()];
  const Message message = MessageFor(choice, key);
  const bool is_permitted =
      run.guard.IsPermitted({.routing_id = routing_id, .user_id = user_id},
                            {.sender = {kUnknownNode, kVictim, 0}, .message = message});
  // None but the victim speaks for it, and only as its key permits.
  PANDO_CHECK(!is_permitted || routing_id == run.Signed(routing_id));
  PANDO_CHECK(!is_permitted || user_id != "stranger");
  PANDO_CHECK(!is_permitted || user_id == "admin" || !HoldsAny<Command>(message));
  PANDO_CHECK(!is_permitted || user_id != "reader" || HoldsAny<StatusRequest>(message));
  (void)run.guard.ProvenSender(routing_id);
  (void)run.guard.Complete(routing_id, Incarnation(choice));
  return 0;
}
