#include "node/service_notice.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "tests/deadline.h"
#include "tests/temp_folder.h"

namespace pando {
namespace {

using std::chrono::seconds;

// Plays the manager's part: a bound datagram socket. `name`: a path, or "@NAME".
class FakeManager {
 public:
  explicit FakeManager(const std::string& name)
      : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    REQUIRE(name.size() < sizeof address.sun_path);
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    REQUIRE(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
  }

  bool HasMessage(int within_ms = 0) const {
    pollfd polled{fd_.get(), POLLIN, 0};
    return poll(&polled, 1, within_ms) == 1;
  }
  std::string Receive() const {
    const std::chrono::milliseconds deadline = kEventDeadline;
    REQUIRE(HasMessage(static_cast<int>(deadline.count())));
    std::array<char, 1024> text{};
    const ssize_t size = recv(fd_.get(), text.data(), text.size(), 0);
    REQUIRE(size >= 0);
    return {text.data(), static_cast<size_t>(size)};
  }

 private:
  const UniqueFd fd_;
};

TEST_CASE("a manager gets each notice as one datagram, by path and in the abstract") {
  TempFolder temp;
  for (const std::string& name :
       {temp.File("notify"), "@pando-service-notice-" + std::to_string(getpid())}) {
    CAPTURE(name);
    const FakeManager manager(name);
    ServiceNotice notice({.socket = name});
    notice.SendReady("bound\nWATCHDOG=trigger");
    CHECK(manager.Receive() == "READY=1\nSTATUS=bound WATCHDOG=trigger");
    notice.SendStatus("step 7");
    CHECK(manager.Receive() == "STATUS=step 7");
    notice.SendStopping();
    CHECK(manager.Receive() == "STOPPING=1\nSTATUS=leaving");
  }
}

TEST_CASE("signs of life are at most half of the watchdog's timeout apart") {
  TempFolder temp;
  const FakeManager manager(temp.File("notify"));
  ServiceNotice notice({.socket = temp.File("notify"), .watchdog_timeout = seconds(8)});
  CHECK(notice.feed_interval() == seconds(2));
  notice.Feed(seconds(100));
  CHECK(manager.Receive() == "WATCHDOG=1");
  notice.Feed(seconds(102) - Micros(1));
  CHECK_FALSE(manager.HasMessage());
  notice.Feed(seconds(104) - Micros(1));  // the next turn, an interval later
  CHECK(manager.Receive() == "WATCHDOG=1");
}

TEST_CASE("without a manager or a watchdog nothing is sent, and nothing fails") {
  TempFolder temp;
  for (const std::string& name : {std::string(), temp.File("gone"), std::string(200, 'x')}) {
    ServiceNotice notice({.socket = name, .watchdog_timeout = seconds(8)});
    CHECK(notice.feed_interval() == kNever);
    notice.SendReady("bound");
    notice.Feed(seconds(100));
    notice.SendStopping();
  }
  const FakeManager manager(temp.File("notify"));
  ServiceNotice notice({.socket = temp.File("notify")});
  CHECK(notice.feed_interval() == kNever);
  notice.Feed(seconds(100));
  CHECK_FALSE(manager.HasMessage());
}

}  // namespace
}  // namespace pando
