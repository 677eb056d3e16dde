// Members of JSON objects that another process has written, and whose types are therefore not
// known. Used in view/.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace pando {

// Empty if there is no such text.
inline std::string TextAt(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);  // end() where it is no object
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

inline std::optional<double> NumberAt(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
}

}  // namespace pando
