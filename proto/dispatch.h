// Dispatch hands a message to the handler of its type. Every protocol core routes its messages with
// it. A core lists the types that it ignores, so a forgotten handler does not compile:
//
//   using SchedulerIgnores = Ignored<Push, Pull, ...>;
//   Dispatch(envelope.message, SchedulerIgnores(),
//            [&](const Ready& ready) { members_.OnReady(now, from, ready); },
//            [&](const Bye&) { members_.OnBye(from); }, ...);
//
// A type that is both handled and ignored does not compile either: the call is ambiguous.
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include "proto/messages.h"

namespace pando {

// The message types that a core ignores.
template <class M>
struct IgnoredType {
  void operator()(const M&) const {}
};
template <class... Ms>
struct Ignored : IgnoredType<Ms>... {
  using IgnoredType<Ms>::operator()...;
};

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

template <class Handler, class Variant>
inline constexpr bool kTakesAll = false;
template <class Handler, class... Ms>
inline constexpr bool kTakesAll<Handler, std::variant<Ms...>> =
    (std::is_invocable_v<Handler&, const Ms&> && ...);

template <class Ignores, class... Handlers>
void Dispatch(const Message& message, Ignores ignores, Handlers... handlers) {
  using All = Overloaded<Ignores, Handlers...>;
  static_assert(kTakesAll<All, MessageVariant>,
                "a message type is neither handled nor ignored, or it is both");
  if constexpr (kTakesAll<All, MessageVariant>)
    std::visit(All{std::move(ignores), std::move(handlers)...}, message);
}

}  // namespace pando
