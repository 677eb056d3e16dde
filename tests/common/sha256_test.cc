#include "common/sha256.h"

#include <doctest/doctest.h>

#include <vector>

namespace pando {
namespace {

std::string HashOf(const std::string& text, size_t piece) {
  Sha256 hash;
  const auto bytes = std::as_bytes(std::span(text));
  for (size_t at = 0; at < bytes.size(); at += piece)
    hash.Update(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  return hash.Hex();
}

// FIPS 180-4's examples.
TEST_CASE("SHA-256 is the published one, in pieces of any size") {
  CHECK(Sha256().Hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  const std::string million(1'000'000, 'a');
  for (size_t piece : {size_t{1}, size_t{7}, size_t{64}, size_t{100}}) {
    CHECK(HashOf("abc", piece) ==
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(HashOf(two_blocks, piece) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(HashOf(million, piece) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

// By `head -c N /dev/zero | tr '\0' x | sha256sum`: where padding takes one block more.
TEST_CASE("SHA-256 pads lengths around a block's end") {
  CHECK(HashOf(std::string(55, 'x'), 64) ==
        "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  CHECK(HashOf(std::string(56, 'x'), 64) ==
        "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  CHECK(HashOf(std::string(63, 'x'), 64) ==
        "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2");
  CHECK(HashOf(std::string(64, 'x'), 64) ==
        "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
}

}  // namespace
}  // namespace pando
