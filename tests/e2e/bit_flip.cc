// The machines that compute wrongly (train/bit_flip.h, server/bit_flip.h): linked into
// pando_bitflip alone. PANDO_BIT_FLIP="STEP,MICRO_BATCH,RANK" flips one bit of the gradient of that
// micro-batch, once, in the worker of that rank.
#include "server/bit_flip.h"
#include "train/bit_flip.h"

#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>

namespace pando {
namespace {

constexpr uint32_t kFlippedBit = uint32_t{1} << 22;  // the mantissa's highest

struct Flip {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
};
Flip flip;  // written before the computing threads start
std::atomic<bool> is_armed = false;
bool has_looked = false;

}  // namespace

// PANDO_RECORD_FLIP="VERSION,SHARD,parameters" or "...,state" flips one bit of that record, once,
// in the server that has the variable.
void FlipRecord(ShardId shard, Version version, std::span<float> parameters,
                std::span<float> state) {
  const char* text = std::getenv("PANDO_RECORD_FLIP");
  unsigned long long flipped = 0;
  unsigned in_shard = 0;
  char what = 0;
  if (text == nullptr || std::sscanf(text, "%llu,%u,%c", &flipped, &in_shard, &what) != 3) return;
  const std::span<float> memory = what == 's' ? state : parameters;
  static std::atomic<bool> has_flipped = false;
  if (version.value() != flipped || shard.value() != in_shard || memory.empty()) return;
  if (has_flipped.exchange(true)) return;
  memory[0] = std::bit_cast<float>(std::bit_cast<uint32_t>(memory[0]) ^ kFlippedBit);
}

void ArmBitFlip(uint32_t worker_rank) {
  if (has_looked) return;  // a process that joins again has computed wrongly once
  has_looked = true;
  const char* text = std::getenv("PANDO_BIT_FLIP");
  unsigned long long step = 0;
  unsigned micro_batch = 0, rank = 0;
  if (text == nullptr || std::sscanf(text, "%llu,%u,%u", &step, &micro_batch, &rank) != 3) return;
  flip = {step, micro_batch};
  is_armed = rank == worker_rank;
}

void FlipBit(Step step, MicroBatch micro_batch, ShardPlan::Run shards, FloatBuffer& gradients) {
  if (step.value() != flip.step || micro_batch.value() != flip.micro_batch) return;
  if (shards.first != 0 || shards.last == 0 || !is_armed.exchange(false)) return;
  float& first = *gradients.data();
  first = std::bit_cast<float>(std::bit_cast<uint32_t>(first) ^ kFlippedBit);
}

}  // namespace pando
