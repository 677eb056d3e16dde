#include "proto/packing.h"

#include <doctest/doctest.h>

#include <cstring>

#include "proto/codec.h"

namespace pando {
namespace {

std::vector<uint64_t> Words(size_t count) {
  std::vector<uint64_t> words(count);
  for (size_t i = 0; i < count; ++i) words[i] = i / 3 * i;
  return words;
}

TEST_CASE("packed words are whole words, and the same again after unpacking") {
  for (size_t count : {0u, 1u, 2u, 100u, 10000u}) {
    const std::vector<uint64_t> words = Words(count);
    const Blob packed = Pack(words);
    CHECK(packed.size_bytes() % sizeof(uint64_t) == 0);
    const Result<std::vector<uint64_t>> unpacked = Unpack(packed.bytes(), count);
    REQUIRE(unpacked.ok());
    CHECK(*unpacked == words);
  }
}

TEST_CASE("bytes that are not packed words are refused, and no more is unpacked than allowed") {
  const Blob packed = Pack(Words(1000));
  CHECK_FALSE(Unpack({}, 1000).ok());
  CHECK_FALSE(Unpack(packed.bytes().first(4), 1000).ok());
  CHECK_FALSE(Unpack(packed.bytes().first(packed.size_bytes() / 2), 1000).ok());
  CHECK(Unpack(packed.bytes(), 999).status().message() ==
        "1000 packed words, at most 999 are allowed");
  CHECK_FALSE(Unpack(packed.bytes().first(16), 1 << 20).ok());
  std::vector<std::byte> changed(packed.bytes().begin(), packed.bytes().end());
  changed[0] = std::byte{0xe7};  // 999 words
  CHECK_FALSE(Unpack(changed, 1000).ok());
  changed[0] = std::byte{0xe8};
  changed[40] ^= std::byte{1};
  CHECK_FALSE(Unpack(changed, 1000).ok());
}

TEST_CASE("a message with a view that cannot be unpacked is not valid") {
  const Blob packed = Pack(Words(100));
  const auto decode = [](const Blob& encoding) {
    return Decode(Encode({.message = ViewUpdate{{View(), encoding}, ""}}));
  };
  CHECK_FALSE(decode(packed).ok());  // no view
  const Blob cut(packed.bytes().first(24), packed.keep_alive());
  CHECK(decode(cut).status().message() ==
        "a view or its change: packed words that zlib cannot read");
  CHECK(Decode(Encode({.message = ViewUpdate{View(), ""}})).ok());
}

}  // namespace
}  // namespace pando
