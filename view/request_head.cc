#include "view/request_head.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

namespace pando {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
// These headers decide where a request ends and for which site it is.
constexpr std::array<std::string_view, 3> kOnceOnly{"content-length", "transfer-encoding", "host"};

bool IsVisible(char c) { return c > ' ' && c <= '~'; }

bool IsNameLetter(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || kMarks.find(c) != std::string::npos;
}

bool IsName(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, IsNameLetter);
}

bool IsControl(char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7f; }

std::string Lowered(std::string_view text) {
  std::string lowered(text);
  std::ranges::transform(lowered, lowered.begin(), [](unsigned char c) { return std::tolower(c); });
  return lowered;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// Accepts for example "GET /metrics HTTP/1.1".
bool IsRequestLine(std::string_view line) {
  const size_t target = line.find(' ') + 1;
  const size_t version = line.rfind(' ') + 1;
  if (target == 0 || version <= target) return false;
  const std::string_view path = line.substr(target, version - 1 - target);
  const std::string_view name = line.substr(version);
  return IsName(line.substr(0, target - 1)) && path.starts_with('/') &&
         std::ranges::all_of(path, IsVisible) && (name == "HTTP/1.1" || name == "HTTP/1.0");
}

}  // namespace

std::string FindFault(std::string_view head) {
  const std::string_view first = head.substr(0, head.find(kLineEnd));
  if (!IsRequestLine(first)) return "the first line is not METHOD /PATH HTTP/1.1";
  std::map<std::string, std::string> once;
  head.remove_prefix(std::min(first.size() + kLineEnd.size(), head.size()));
  while (head != kLineEnd) {
    const std::string_view line = head.substr(0, head.find(kLineEnd));
    head.remove_prefix(std::min(line.size() + kLineEnd.size(), head.size()));
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string name = Lowered(line.substr(0, colon));
    if (colon == line.size() || !IsName(name) || std::ranges::any_of(line, IsControl))
      return "a header is not NAME: VALUE on one line that ends with CR and LF";
    if (std::ranges::find(kOnceOnly, name) == kOnceOnly.end()) continue;
    if (!once.emplace(name, Trimmed(line.substr(colon + 1))).second)
      return "two headers are named " + name;
  }
  const auto length = once.find("content-length");
  const auto coding = once.find("transfer-encoding");
  if (length != once.end() && coding != once.end())
    return "Content-Length and Transfer-Encoding say two lengths";
  constexpr size_t kDigitsMax = 18;
  if (length != once.end() &&
      (length->second.empty() || length->second.size() > kDigitsMax ||
       !std::ranges::all_of(length->second, [](char c) { return c >= '0' && c <= '9'; })))
    return "Content-Length is no number of bytes";
  if (coding != once.end() && (Lowered(coding->second) != "chunked" || first.ends_with("1.0")))
    return "Transfer-Encoding is not the chunked one of HTTP/1.1";
  return "";
}

}  // namespace pando
