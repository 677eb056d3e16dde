// Result<T> is a value, or the Status that says why there is none. Its users need not include
// status.h.
#pragma once

#include <optional>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace pando {

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

// Declares `variable`, "Job job" or "const auto job", as the value of `expression`, a Result.
// Returns the result's status if it is a failure. A type with a comma needs `auto`. It is a macro
// because it returns from the function in which it stands.
#define PANDO_ASSIGN_OR_RETURN(variable, ...) \
  PANDO_ASSIGN_OR_RETURN_LINE(PANDO_CONCATENATE(pando_result_, __LINE__), variable, __VA_ARGS__)
#define PANDO_ASSIGN_OR_RETURN_LINE(result, variable, ...) \
  auto result = (__VA_ARGS__);                             \
  if (!result.ok()) return result.status();                \
  variable = *std::move(result)
#define PANDO_CONCATENATE(a, b) PANDO_CONCATENATE_EXPANDED(a, b)
#define PANDO_CONCATENATE_EXPANDED(a, b) a##b
