#include "common/text.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

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

TEST_CASE("a text of others holds no command for a terminal") {
  using std::string_literals::operator""s;
  for (const auto& [text, cleaned] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"host-1 é → 𝄞 caf\xe9", "host-1 é → 𝄞 caf\xe9"},
           {"\x1b[2J\x1b]0;title\a", "?[2J?]0;title?"},
           {"a\0b\rc\bd\x7f"s, "a?b?c?d?"},
           {"\u009b2J \u0085 \u0080\u009f \u00a0", "?2J ? ?? \u00a0"},
           {"\x9b"
            "2J \xc2",
            "?2J \xc2"},  // of a terminal with one byte a letter
           {"\u202aa\u202b\u202c\u202d\u202e", "?a????"},
           {"\u2066\u2067\u2068\u2069", "????"},
           {"\u2029\u202f\u2065\u206a\uff41", "\u2029\u202f\u2065\u206a\uff41"},
           {"\xe2\x80", "\xe2?"},
           {"\xf0\x9d\x84\x1b", "\xf0???"}}) {
    CAPTURE(text);
    CHECK(Cleaned(text, LineEnds::kReplaced) == cleaned);
    CHECK(Cleaned(cleaned, LineEnds::kReplaced) == cleaned);
  }
  CHECK(Cleaned("a\n\tb\r\n", LineEnds::kKept) == "a\n\tb?\n");
  CHECK(Cleaned("a\n\tb\r\n", LineEnds::kReplaced) == "a??b??");
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
