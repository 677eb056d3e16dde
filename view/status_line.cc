#include "view/status_line.h"

#include <poll.h>

#include <array>
#include <utility>

namespace pando {

StatusLine::StatusLine(const Keys& keys, const std::string& endpoint)
    : context_(keys), client_(context_, {}), answered_at_(SteadyNow()) {
  (void)client_.Dial(endpoint);  // if it cannot be dialed, nothing answers
}

std::optional<std::string> StatusLine::Ask(Micros deadline, int stop_fd) {
  if (!is_asking_) is_asking_ = client_.Ask(StatusRequest{});
  std::optional<std::string> status;
  pollfd stop{.fd = stop_fd, .events = POLLIN, .revents = 0};
  while (SteadyNow() < deadline && poll(&stop, 1, 0) == 0) {
    client_.Wait(deadline, std::array{stop_fd});
    std::optional<Message> answer = client_.Poll();
    if (!answer) continue;
    is_asking_ = false;
    answered_at_ = SteadyNow();
    if (auto* report = std::get_if<StatusReport>(&*answer)) status = std::move(report->json);
  }
  return status;
}

}  // namespace pando
