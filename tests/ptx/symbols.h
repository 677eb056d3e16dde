// The names of this program's functions, which unnamed namespaces too may hold.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace pando::ptx {

// Reads the program's own file.
class Symbols {
 public:
  Symbols();
  // Stops the process if no function begins there.
  const std::string& Find(const void* function) const;

 private:
  std::unordered_map<uint64_t, std::string> names_;  // by address
};

}  // namespace pando::ptx
