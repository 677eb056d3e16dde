#include "common/philox.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

namespace pando {
namespace {

TEST_CASE("Philox4x32-10 gives the known answers of Random123") {
  // The "philox4x32 10" lines of tests/kat_vectors in Random123 1.14: counter, key, result.
  CHECK(Philox4x32({0, 0, 0, 0}, {0, 0}) ==
        PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("keys differ by seed, purpose and name") {
  std::set<PhiloxKey> keys;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}}) {
    for (RandomPurpose purpose :
         {RandomPurpose::kInit, RandomPurpose::kDropout, RandomPurpose::kAugment,
          RandomPurpose::kShuffle, RandomPurpose::kSynthetic}) {
      for (const char* name : {"", "conv1.weight", "conv2.weight", "conv1"}) {
        CHECK(keys.insert(MakePhiloxKey(seed, purpose, name)).second);
      }
    }
  }
}

TEST_CASE("uniform floats fill [0, 1) from end to end") {
  CHECK(UniformFloat(0) == 0.0f);
  CHECK(UniformFloat(0xff) == 0.0f);  // the low 8 bits do not count
  CHECK(UniformFloat(0x80000000) == 0.5f);
  CHECK(UniformFloat(0xffffffff) == 1.0f - std::ldexp(1.0f, -24));
}

TEST_CASE("a block holds eight 16-bit uniforms, low half first") {
  const PhiloxBlock block{0x00020001, 0x00040003, 0x00060005, 0xffff0007};
  for (unsigned i = 0; i < 7; ++i) CHECK(Uniform16(block, i) == i + 1);
  CHECK(Uniform16(block, 7) == 0xffff);
}

}  // namespace
}  // namespace pando
