#include "plan/role_memory.h"

#include <bit>

namespace pando {
namespace {

// A replica has the kept versions and a pin; three roots; one state in use and one that a snapshot
// reads; and two records that are being written to the disk.
constexpr uint64_t kRoots = 3;
constexpr uint64_t kStates = 2;
constexpr uint64_t kStoring = 2;
constexpr uint64_t kTransferBytes = 16 << 20;        // per newcomer
constexpr uint64_t kRepliesPerConnection = 4 << 20;  // from the scheduler
constexpr uint64_t kHeldRowsBytes = 2 * (16 << 20);  // for metrics and events, on a full disk
constexpr uint64_t kShardsPulled = 16, kShardBytes = 4 << 20;  // final weights

uint64_t RoundUp(uint64_t value, uint64_t by) { return (value + by - 1) / by; }

}  // namespace

std::vector<MemoryBound> BoundMemory(const MemoryInput& input) {
  const uint64_t model = input.parameter_bytes;
  const uint64_t hosted = RoundUp(model * input.replicas, input.servers);
  const uint64_t primary = RoundUp(model, input.servers);
  const uint64_t sums_per_thread = std::bit_width(input.micro_batches - 1u) + 1;
  const uint64_t steps = input.staleness + 1;  // that may be sent at a time (P4)
  const uint64_t versions = 2 * steps;         // that are kept
  const uint64_t states = input.optimizer_states + input.staleness;  // with the version before
  const uint64_t members = uint64_t{input.workers} + input.servers;
  return {
      {"worker", "parameters", model * versions},
      {"worker", "gradients that are not answered", model * steps},
      {"worker", "sums in work", model * sums_per_thread * input.threads},
      {"server", "records: kept versions, and a pinned one", hosted * (versions + 1)},
      {"server", "optimizer state, and one that a snapshot reads", hosted * states * kStates},
      {"server", "roots until they are committed", hosted * kRoots},
      {"server", "contributions", primary * RoundUp(input.micro_batches, 2) * steps},
      {"server", "records in replies to workers", primary * input.workers * steps},
      {"server", "records being stored", hosted * kStoring},
      {"server", "transfers to newcomers", kTransferBytes * (input.servers - 1u)},
      {"scheduler", "replies that wait for members", kRepliesPerConnection * members},
      {"scheduler", "rows that wait for a full disk", kHeldRowsBytes},
      {"scheduler", "final weights", model + kShardsPulled * kShardBytes},
  };
}

}  // namespace pando
