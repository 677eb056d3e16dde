#include "net/client.h"

#include <algorithm>

#include <fmt/format.h>

#include "net/clock.h"
#include "net/incarnation.h"
#include "net/transport.h"

namespace pando {
namespace {

constexpr Micros kAskAgain = std::chrono::milliseconds(200);

}  // namespace

Result<std::string> RequestStatus(ZmqContext& context, const std::string& endpoint,
                                  Micros deadline) {
  const PeerId self{kUnknownNode, NewIncarnation(), 0};
  const PeerId scheduler{kSchedulerNode, Incarnation(), 0};
  std::string last_warning;
  Transport transport(context, self, {.linger_ms = 0, .on_warning = [&](const std::string& text) {
                                        last_warning = "; " + text;
                                      }});
  if (Status s = transport.Dial(scheduler, endpoint); !s.ok()) return s;
  Micros ask_at = SteadyNow();
  for (Micros now = ask_at; now < deadline; now = SteadyNow()) {
    if (now >= ask_at) {
      transport.Send({.sender = self, .receiver = scheduler, .message = StatusRequest{}});
      ask_at = now + kAskAgain;
    }
    Envelope answer;
    while (transport.Receive(&answer)) {
      if (auto* report = std::get_if<StatusReport>(&answer.message)) return std::move(report->json);
    }
    transport.Wait(std::min(ask_at, deadline));
  }
  return Unavailable(
      fmt::format("no scheduler answered at {}{}: check the address, and that the "
                  "run has not ended",
                  endpoint, last_warning));
}

}  // namespace pando
