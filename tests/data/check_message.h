// CheckMessage: checks the text of a reader's error.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/status.h"

namespace pando {

// One line that holds these parts.
inline void CheckMessage(const Status& status, StatusCode code,
                         const std::vector<std::string>& parts) {
  CHECK(status.code() == code);
  CHECK(status.message().find('\n') == std::string::npos);
  for (const std::string& part : parts) {
    INFO(status.message());
    CHECK_MESSAGE(status.message().find(part) != std::string::npos, part);
  }
}

}  // namespace pando
