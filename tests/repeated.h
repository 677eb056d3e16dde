// Texts that are one part many times over.
#pragma once

#include <cstddef>
#include <string>

namespace pando {

inline std::string Repeated(const std::string& part, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

}  // namespace pando
