#include "common/hash.h"

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <string_view>

#include "common/hash128.h"
#include "tests/repeated.h"

namespace pando {
namespace {

std::string Hex(std::string_view text) {
  Hash128 hash;
  hash.Update(std::as_bytes(std::span(text)));
  return hash.Hex();
}

// Expected values: Python's xxhash module, xxh3_128_hexdigest (canonical) and xxh3_64_intdigest.
TEST_CASE("xxh3-128 of known strings, in canonical hex") {
  CHECK(Hex("") == "99aa06d3014798d86001c324468d497f");
  CHECK(Hex("a") == "a96faf705af16834e6c632b61e964e1f");
  CHECK(Hex("abc") == "06b05ab6733a618578af5f94892f3950");
  CHECK(Hex("The quick brown fox jumps over the lazy dog") == "ddd650205ca3e7fa24a1cc2e3a8a7651");
  CHECK(Hex(Repeated("pando", 100)) == "2ad5cedf83782884b502286b4739d225");
}

TEST_CASE("a hash does not depend on how the stream is cut") {
  const std::string text = Repeated("pando", 100);
  for (size_t piece : {1u, 7u, 64u, 499u}) {
    Hash128 hash;
    for (size_t i = 0; i < text.size(); i += piece) {
      hash.Update(std::as_bytes(std::span(std::string_view(text).substr(i, piece))));
    }
    CHECK(hash.Hex() == "2ad5cedf83782884b502286b4739d225");
    CHECK(hash.Hex() == hash.Hex());  // reading it changes nothing
  }
}

TEST_CASE("xxh3-64 of known strings, with and without a seed") {
  CHECK(Hash64("") == 0x2d06800538d394c2);
  CHECK(Hash64("abc") == 0x78af5f94892f3950);
  CHECK(Hash64("abc", 7) == 0x48ff56f569e39912);
}

TEST_CASE("a record's hash tells versions, parameters and state apart") {
  const float a[] = {1, 2}, b[] = {2, 1};
  const uint64_t hash = RecordHash(Version(3), a, b);
  CHECK(hash == RecordHash(Version(3), a, b));
  CHECK(hash != RecordHash(Version(4), a, b));
  CHECK(hash != RecordHash(Version(3), b, b));
  CHECK(hash != RecordHash(Version(3), a, a));
  CHECK(hash != RecordHash(Version(3), a, {}));
}

}  // namespace
}  // namespace pando
