// This header has Message, which holds any message, and Envelope. The messages' structs and the
// table PANDO_MESSAGES are in message_structs.h, which the build generates from pando.capnp: read
// pando.capnp for their fields. The protocol cores see only these structs; proto/codec turns them
// into frames and back. A payload is a Blob: the gradient buffer itself when it is sent, a part of
// the frame when it is received. proto/codec.h says when it is copied. Rules (P...) and invariants
// (I...) are in docs/protocol.md.
//
// The table says which core handles a message (dispatch.h), from which senders it is accepted
// (ViewMember, Scheduler), what answers a client gets, and the channel. docs/protocol.md has the
// same messages, with their answers and repeats; the lint suite compares them. To add a message,
// write its struct and its union member in pando.capnp, its line in docs/protocol.md, and the
// handlers in the cores that it names.
#pragma once

#include <type_traits>
#include <variant>

#include "proto/message_structs.h"

namespace pando {

template <class, class... Ms>
using VariantWithoutFirst = std::variant<Ms...>;
#define PANDO_AS_ITEM(Name, ...) , Name
using MessageVariant = VariantWithoutFirst<void PANDO_MESSAGES(PANDO_AS_ITEM)>;
#undef PANDO_AS_ITEM
template <class M, class Variant>
inline constexpr bool kIsOneOf = false;
template <class M, class... Ms>
inline constexpr bool kIsOneOf<M, std::variant<Ms...>> = (std::is_same_v<M, Ms> || ...);
template <class M>
concept IsMessage = kIsOneOf<M, MessageVariant>;

// The rows of the table, by the message's index in the variant.
inline constexpr auto kMessageRows = [] {
  using enum Core;
  using enum Sender;
  using enum Generation;
  using enum About;
  using enum Size;
  using enum Channel;
#define PANDO_AS_ROW(Name, CONSTANT, ...) MessageRow{#Name, __VA_ARGS__},
  return std::to_array({PANDO_MESSAGES(PANDO_AS_ROW)});
#undef PANDO_AS_ROW
}();

// Message is one message of any type. messages.cc has its special members, because they would take
// a third of the compilation of each file that makes, copies or drops messages.
struct Message : MessageVariant {
  Message();
  template <IsMessage M>
  Message(M message);  // NOLINT(google-explicit-constructor): a message is passed where any may be
  Message(const Message& other);
  Message(Message&& other) noexcept;
  Message& operator=(const Message& other);
  Message& operator=(Message&& other) noexcept;
  ~Message();
};

// Returns whether a member of that role is one of these senders.
constexpr bool MaySend(Role role, Sender sender) {
  if (sender == Sender::kNodes) return role == Role::kServer || role == Role::kWorker;
  return sender == (role == Role::kServer ? Sender::kServers : Sender::kWorkers);
}

inline const MessageRow& RowFor(const Message& message) { return kMessageRows[message.index()]; }

// Returns whether a message has one of these types.
template <class... Ms>
bool HoldsAny(const Message& message) {
  return (std::holds_alternative<Ms>(message) || ...);
}

// Envelope is what every message travels in. The codec adds and checks the protocol's version.
struct Envelope {
  JobId job;  // 0 if the sender does not know its job
  uint32_t generation = 0;
  ViewId view;
  PeerId sender;
  PeerId receiver;  // P19: a node refuses messages for another incarnation
  Message message;
};

}  // namespace pando
