#include "tests/sim/coverage.h"

namespace pando::sim {
namespace {

constexpr std::array<const char*, kEventCount> kNames{"promotion",
                                                      "transfer",
                                                      "rollback",
                                                      "rollback to stored records",
                                                      "move undone",
                                                      "scheduler restart",
                                                      "death in a commit",
                                                      "fence",
                                                      "resume",
                                                      "drained",
                                                      "rejoin",
                                                      "false suspicion",
                                                      "no worker",
                                                      "speculation",
                                                      "snapshot",
                                                      "snapshot failure",
                                                      "evaluation",
                                                      "report",
                                                      "early stop",
                                                      "divergence",
                                                      "wrong memory",
                                                      "outvoted",
                                                      "flipped bit",
                                                      "flipper drained",
                                                      "flip not compared",
                                                      "layer residency",
                                                      "loss scaling",
                                                      "rows lost",
                                                      "shared memory",
                                                      "payload overtaken",
                                                      "fp16 pushes",
                                                      "bf16 pushes",
                                                      "int8 pushes",
                                                      "1-bit pushes",
                                                      "top-k pushes",
                                                      "fp16 pulls",
                                                      "bf16 pulls",
                                                      "int8 pulls",
                                                      "feedback",
                                                      "feedback gone",
                                                      "given to a relay",
                                                      "summed by a relay",
                                                      "relay asked",
                                                      "stopped",
                                                      "hostile peer",
                                                      "forged view dropped",
                                                      "takeover",
                                                      "view not in the journal"};

template <size_t N>
void AddOnce(std::array<uint64_t, N>& sums, const std::array<uint64_t, N>& seed) {
  for (size_t i = 0; i < N; ++i) sums[i] += seed[i] > 0;
}

}  // namespace

const char* EventName(Event event) { return kNames[static_cast<size_t>(event)]; }

void Coverage::AddSeed(const Coverage& seed) {
  AddOnce(events, seed.events);
  AddOnce(faults, seed.faults);
  AddOnce(messages, seed.messages);
}

}  // namespace pando::sim
