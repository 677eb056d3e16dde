// For tests that look for words in a text.
#pragma once

#include <string>

namespace pando {

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace pando
