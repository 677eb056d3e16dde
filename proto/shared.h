// Shared is an immutable value that any number of messages and members share: a view, or the change
// of a view. Its encoding is made once, however many receivers it has. A value that was moved from
// may only be assigned to or destroyed. Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/blob.h"

namespace pando {

struct View;
struct ViewChange;

template <class T>
class Shared {
 public:
  Shared();         // of T()
  Shared(T value);  // NOLINT: functions that take shared values take values, too
  // `encoding`: the one from which the value was decoded.
  Shared(T value, Blob encoding);

  const T& operator*() const;
  const T* operator->() const { return &**this; }
  // Returns a hash of the whole value, which is the same on all machines.
  uint64_t hash() const;
  // Returns the value's encoding, which `encode` makes if there is none yet.
  const Blob& Encoding(const std::function<Blob(const T&)>& encode) const;

 private:
  struct Content;
  std::shared_ptr<Content> content_;
};

using SharedView = Shared<View>;
using SharedChange = Shared<ViewChange>;

}  // namespace pando
