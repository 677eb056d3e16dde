#include "bench/training/line_tail.h"

#include <fstream>
#include <iterator>

namespace pando::bench {

std::vector<std::string> LineTail::Take() {
  std::ifstream file(path_, std::ios::binary);
  if (!file.seekg(static_cast<std::streamoff>(read_bytes_))) return {};
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  read_bytes_ += begin;
  return lines;
}

}  // namespace pando::bench
