// Dispatch hands a message to the handler of its type. The scheduler, lanes and sessions use it.
// The schema says which types each of them handles (pando.capnp, $message); each ignores the
// others. If a handler is missing, or the schema does not name it, the code does not compile:
//
//   Dispatch<Core::kScheduler>(envelope.message,
//                              [&](const Ready& ready) { members_.OnReady(now, from, ready); },
//                              [&](const Bye&) { members_.OnBye(from); }, ...);
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include "proto/messages.h"

namespace pando {

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

template <class M, class... Ms>
constexpr const MessageRow& FindRow(std::type_identity<std::variant<Ms...>>) {
  size_t index = 0;
  (void)((!std::is_same_v<M, Ms> && ++index > 0) && ...);
  return kMessageRows[index];
}

// True if Handlers takes M exactly when the table says that this core handles M.
template <Core kCore, class M, class Handlers>
inline constexpr bool kIsAsInTable =
    std::is_invocable_v<const Handlers&, const M&> ==
    HasCore(FindRow<M>(std::type_identity<MessageVariant>()).handlers, kCore);

template <Core kCore, class... Handlers>
void Dispatch(const Message& message, Handlers... handlers) {
  using All = Overloaded<Handlers...>;
  const All all{std::move(handlers)...};
  std::visit(
      [&]<class M>(const M& m) {
        static_assert(kIsAsInTable<kCore, M, All>,
                      "the core's handlers differ from the message's line in pando.capnp");
        if constexpr (std::is_invocable_v<const All&, const M&>) all(m);
      },
      message);
}

}  // namespace pando
