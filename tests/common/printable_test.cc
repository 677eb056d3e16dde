#include "common/text.h"

#include <doctest/doctest.h>

namespace pando {
namespace {

TEST_CASE("what is fit for a line stays as it is") {
  CHECK(Printable("") == "");
  CHECK(Printable("conv1 → relu") == "conv1 → relu");
  const std::string longest(kPrintableBytesMax, 'a');
  CHECK(Printable(longest) == longest);
}

TEST_CASE("control characters are escaped") {
  CHECK(Printable("a\nb\r\tc") == "a\\nb\\r\\tc");
  CHECK(Printable(std::string_view("\0\x1b[2J\x7f", 6)) == "\\x00\\x1b[2J\\x7f");
}

TEST_CASE("a long text is cut, between the characters of UTF-8") {
  const std::string cut = Printable(std::string(kPrintableBytesMax + 1, 'a'));
  CHECK(cut == std::string(kPrintableBytesMax - 3, 'a') + "...");
  CHECK(Printable(std::string(1 << 20, '\n')).size() == kPrintableBytesMax);
  std::string wide;
  while (wide.size() <= kPrintableBytesMax) wide += "→";  // of three bytes
  CHECK(Printable(wide) == wide.substr(0, 75) + "...");
}

TEST_CASE("what is not UTF-8 is escaped byte by byte") {
  CHECK(AsUtf8("train/ants/é → 𝄞.jpg") == "train/ants/é → 𝄞.jpg");
  CHECK(AsUtf8("caf\xe9.jpg") == "caf\\xe9.jpg");
  CHECK(AsUtf8("\xe2\x86") == "\\xe2\\x86");           // cut off
  CHECK(AsUtf8("\xc0\xaf") == "\\xc0\\xaf");           // longer than need be
  CHECK(AsUtf8("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // half of a pair
  CHECK(AsUtf8("\xf4\x90\x80\x80").size() == 16);      // beyond the last
  CHECK(AsUtf8("\xf0\x9d\x84") == "\\xf0\\x9d\\x84");
  CHECK(AsUtf8("a\nb\x7f") == "a\\nb\\x7f");
  CHECK(AsUtf8("caf\\xe9") == "caf\\\\xe9");
  CHECK(AsUtf8("\xc2\x9b") == "\\xc2\\x9b");  // a terminal's escape sequences begin so
  CHECK(AsUtf8("\xc2\xa0") == "\xc2\xa0");
}

}  // namespace
}  // namespace pando
