#include "proto/messages.h"

#include <utility>

namespace pando {

template <IsMessage M>
Message::Message(M message) : MessageVariant(std::in_place_type<M>, std::move(message)) {}
#define PANDO_AS_ITEM(Name, ...) template Message::Message(Name);
PANDO_MESSAGES(PANDO_AS_ITEM)
#undef PANDO_AS_ITEM

Message::Message() = default;
Message::Message(const Message& other) = default;
Message::Message(Message&& other) noexcept = default;
Message& Message::operator=(const Message& other) = default;
Message& Message::operator=(Message&& other) noexcept = default;
Message::~Message() = default;

}  // namespace pando
