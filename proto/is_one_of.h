// IsOneOf: whether a message is of one of these types. For the rules of message admission.
#pragma once

#include "proto/messages.h"

namespace pando {

template <class... Ms>
bool IsOneOf(const Message& message) {
  return (std::holds_alternative<Ms>(message) || ...);
}

}  // namespace pando
