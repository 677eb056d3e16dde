// PANDO_CHECK stops the process on a bug. It stays on in release: a wrong number is worse than a
// crash, and the protocol survives a crash. Bad input is never a bug: return a Status instead.
#pragma once

namespace pando {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace pando

// A macro, because the message has the condition's text and place.
#define PANDO_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::pando::CheckFailed(#condition, __FILE__, __LINE__))
