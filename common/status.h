// Status and Result<T>: expected failures as values, which the caller must handle. A message says
// what failed, where, what was expected and, for users, what to do next.
#pragma once

#include <optional>
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

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit, so that `return value;` works
  Result(Status status) : status_(std::move(status)) { PANDO_CHECK(!status_.ok()); }  // NOLINT
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok().
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->Checked(); }
  T&& operator*() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->Checked(); }

 private:
  T& Checked() {
    PANDO_CHECK(value_.has_value());
    return *value_;
  }
  Status status_;
  std::optional<T> value_;
};

}  // namespace pando

// These are macros because they return from the function in which they stand.
//
// Returns the failure of `expression`, a Status, if it is one.
#define PANDO_RETURN_IF_ERROR(...)                                                             \
  do {                                                                                         \
    if (::pando::Status pando_status = (__VA_ARGS__); !pando_status.ok()) return pando_status; \
  } while (false)

// Declares `variable`, "Job job" or "const auto job", as the value of `expression`, a Result.
// Returns the result's status if it is a failure. A type with a comma needs `auto`.
#define PANDO_ASSIGN_OR_RETURN(variable, ...) \
  PANDO_ASSIGN_OR_RETURN_LINE(PANDO_CONCATENATE(pando_result_, __LINE__), variable, __VA_ARGS__)
#define PANDO_ASSIGN_OR_RETURN_LINE(result, variable, ...) \
  auto result = (__VA_ARGS__);                             \
  if (!result.ok()) return result.status();                \
  variable = *std::move(result)
#define PANDO_CONCATENATE(a, b) PANDO_CONCATENATE_EXPANDED(a, b)
#define PANDO_CONCATENATE_EXPANDED(a, b) a##b
