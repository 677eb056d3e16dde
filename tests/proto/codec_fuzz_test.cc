// For any bytes that a peer sends, Decode returns: a message within its bounds, or a Status. What
// it must not do (crash, read outside the frames, allocate without bound) shows under ASan and
// UBSan.
#include <cstring>
#include <random>

#include <doctest/doctest.h>

#include "tests/proto/message_samples.h"

namespace pando {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<Bytes> ToBytes(const Frames& frames) {
  std::vector<Bytes> all;
  for (const Blob& frame : frames) all.emplace_back(frame.bytes().begin(), frame.bytes().end());
  return all;
}

Frames ToFrames(const std::vector<Bytes>& all) {
  Frames frames;
  for (const Bytes& bytes : all) {
    auto owner = std::make_shared<Bytes>(bytes);
    frames.emplace_back(std::span<const std::byte>(*owner), owner);
  }
  return frames;
}

// Decodes and, if that succeeds, reads everything. Whether it was a message.
bool Survives(const std::vector<Bytes>& all) {
  const Result<Envelope> decoded = Decode(ToFrames(all));
  if (!decoded.ok()) {
    CHECK(!decoded.status().message().empty());
    return false;
  }
  CHECK(!Render(*decoded).empty());
  return true;
}

// The samples in few bytes each, so that a flipped bit is likely to mean something.
std::vector<std::vector<Bytes>> SmallSamples() {
  std::vector<std::vector<Bytes>> samples;
  for (const Envelope& envelope : SampleEnvelopes()) {
    std::vector<Bytes> bytes = ToBytes(Encode(envelope));
    size_t total_bytes = 0;
    for (const Bytes& frame : bytes) total_bytes += frame.size();
    if (total_bytes < 16384) samples.push_back(std::move(bytes));
  }
  return samples;
}

size_t Below(std::mt19937_64& random, size_t bound) { return random() % bound; }

void FlipBit(std::mt19937_64& random, std::vector<Bytes>& frames) {
  Bytes& frame = frames[Below(random, frames.size())];
  if (frame.empty()) return;
  frame[Below(random, frame.size())] ^= static_cast<std::byte>(1 << Below(random, 8));
}

TEST_CASE("flipped bits give a message or a status") {
  const auto samples = SmallSamples();
  size_t message_count = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    std::mt19937_64 random(seed);
    auto frames = samples[Below(random, samples.size())];
    const size_t flip_count = 1 + Below(random, 8);
    for (size_t i = 0; i < flip_count; ++i) FlipBit(random, frames);
    message_count += Survives(frames);
  }
  CHECK(message_count > 0);
  CHECK(message_count < 20000);
}

TEST_CASE("every word of every sample may be any edge value") {
  constexpr uint64_t kEdges[] = {0,
                                 1,
                                 UINT64_MAX,
                                 0x7fffffff,
                                 0x80000000,
                                 0xfffffffc00000001,
                                 0x0000000200000000,
                                 0xffffffff00000001};
  for (const auto& sample : SmallSamples()) {
    for (size_t offset = 0; offset + 8 <= std::min<size_t>(sample[0].size(), 1024); offset += 8) {
      for (uint64_t edge : kEdges) {
        auto frames = sample;
        std::memcpy(frames[0].data() + offset, &edge, sizeof(edge));
        Survives(frames);
      }
    }
  }
}

TEST_CASE("truncated, dropped, doubled and exchanged frames give a message or a status") {
  const auto samples = SmallSamples();
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    std::mt19937_64 random(seed);
    auto frames = samples[Below(random, samples.size())];
    const size_t at = Below(random, frames.size());
    switch (Below(random, 4)) {
      case 0:
        frames[at].resize(Below(random, frames[at].size() + 1));
        break;
      case 1:
        frames.erase(frames.begin() + static_cast<ptrdiff_t>(at));
        break;
      case 2:
        frames.push_back(frames[at]);
        break;
      case 3:
        std::swap(frames[0], frames[at]);
        break;
    }
    Survives(frames);
  }
  for (const auto& sample : samples) {
    for (size_t size = 0; size < std::min<size_t>(sample[0].size(), 2048); ++size) {
      auto frames = sample;
      frames[0].resize(size);
      Survives(frames);
    }
  }
}

TEST_CASE("random frames give a status") {
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Bytes> frames(1 + Below(random, 4));
    for (Bytes& frame : frames) {
      frame.resize(Below(random, 64) * 8 + (Below(random, 8) == 0 ? Below(random, 8) : 0));
      for (std::byte& b : frame) b = static_cast<std::byte>(random());
    }
    CHECK(!Survives(frames));
  }
}

TEST_CASE("another protocol version is refused and both versions are named") {
  auto frames = ToBytes(Encode({.message = Bye{}}));
  // The root struct follows the root pointer; the protocol version is its first field.
  uint32_t version = 0;
  std::memcpy(&version, frames[0].data() + 8, sizeof(version));
  REQUIRE(version == kProtocolVersion);
  version = 77;
  std::memcpy(frames[0].data() + 8, &version, sizeof(version));
  const Result<Envelope> decoded = Decode(ToFrames(frames));
  REQUIRE(!decoded.ok());
  CHECK(
      decoded.status().message() ==
      "the peer speaks protocol version 77, this program version 15: run the same release of pando "
      "everywhere");
}

TEST_CASE("an unknown kind of message is refused by its number, and so is a retired one") {
  constexpr uint16_t kFirst = 6;  // the number of the first message
  for (const uint16_t kind : std::initializer_list<uint16_t>{54 - kFirst, 55 - kFirst, 999}) {
    auto frames = ToBytes(Encode({.message = Bye{}}));
    // The union's tag: the first 16-bit field behind version, generation and job.
    std::memcpy(frames[0].data() + 8 + 16, &kind, sizeof(kind));
    const Result<Envelope> decoded = Decode(ToFrames(frames));
    REQUIRE(!decoded.ok());
    CHECK(decoded.status().message() == "message kind " + std::to_string(kind) + " is not known");
  }
}

TEST_CASE("a count far beyond the bytes that carry it costs nothing") {
  // A list of 2^29 - 1 structs without content: the wire allows it in one word.
  auto frames = ToBytes(Encode({.message = Pull{{{ShardId(1), Version(1)}}}}));
  Bytes& frame = frames[0];
  for (size_t offset = 8; offset + 8 <= frame.size(); offset += 8) {
    uint64_t word = 0;
    std::memcpy(&word, frame.data() + offset, sizeof(word));
    const bool is_inline_list = (word & 3) == 1 && (word >> 32 & 7) == 7;
    if (!is_inline_list) continue;
    const uint64_t tag = uint64_t{(1u << 29) - 1} << 2;  // element count, no data, no pointers
    word = (word & 0x7ffffffffull);                      // a list of zero words
    std::memcpy(frame.data() + offset, &word, sizeof(word));
    std::memcpy(frame.data() + offset + 8, &tag, sizeof(tag));
  }
  CHECK(!Survives(frames));
}

}  // namespace
}  // namespace pando
