// Status is an expected failure as a value, which the caller must handle, or success. Its message
// says what failed, where, what was expected and, for users, what to do next.
#pragma once

#include <string>
#include <utility>

#include "common/check.h"

namespace pando {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // a flag, key or value that cannot work
  kCorrupt,          // bytes that are not what they claim to be
  kNotFound,
  kAlreadyExists,
  kNoSpace,      // a disk is full: a retry works after a user has freed space
  kUnavailable,  // no answer, or a resource is in use
  kInterrupted,  // asked to stop
  kInternal,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {
    PANDO_CHECK(code != StatusCode::kOk);
  }
  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status Corrupt(std::string m) { return {StatusCode::kCorrupt, std::move(m)}; }
inline Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status AlreadyExists(std::string m) { return {StatusCode::kAlreadyExists, std::move(m)}; }
inline Status NoSpace(std::string m) { return {StatusCode::kNoSpace, std::move(m)}; }
inline Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
inline Status Interrupted(std::string m) { return {StatusCode::kInterrupted, std::move(m)}; }
inline Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

}  // namespace pando

// Returns the failure of the expression, a Status, if it is one. It is a macro because it returns
// from the function in which it stands.
#define PANDO_RETURN_IF_ERROR(...)                                                             \
  do {                                                                                         \
    if (::pando::Status pando_status = (__VA_ARGS__); !pando_status.ok()) return pando_status; \
  } while (false)
