// Another user of this machine reaches nothing. Only root can try.
#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "net/shm/shared_link.h"
#include "tests/net/net_fixture.h"

namespace pando {
namespace {

constexpr uid_t kOther = 65534;  // of none of our processes

enum Answer : int { kCutOff, kAnswered, kNotReached };

// As that user connects to the socket and sends the first bytes of a ZeroMQ peer. In a child, which
// exits with the answer.
[[noreturn]] void KnockAs(uid_t user, int type, const sockaddr_un& address, socklen_t size) {
  if (user != geteuid() && (setgroups(0, nullptr) != 0 || setuid(user) != 0)) _exit(kNotReached);
  const int fd = socket(AF_UNIX, type, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) _exit(kNotReached);
  constexpr char kGreeting[] = "\xff\0\0\0\0\0\0\0\1\x7f\3";
  std::ignore = send(fd, kGreeting, sizeof(kGreeting) - 1, MSG_NOSIGNAL);
  pollfd polled{fd, POLLIN, 0};
  char answer;
  const bool is_ready = poll(&polled, 1, 60'000) == 1;
  _exit(is_ready && recv(fd, &answer, 1, 0) == 1 ? kAnswered : kCutOff);
}

int AnswerTo(uid_t user, int type, const sockaddr_un& address, socklen_t size) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) KnockAs(user, type, address, size);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

sockaddr_un AddressFor(std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

TEST_CASE("a Unix socket takes this user's processes alone, with and without a name in a folder") {
  if (geteuid() != 0) {
    MESSAGE("SKIPPED: only root can become another user");
    return;
  }
  ScratchFolder folder;
  ZmqContext context;
  for (const std::string& endpoint : {folder.Ipc("lane"), std::string("ipc://@pando-test-other")}) {
    Transport lane(context, {NodeId(1), NewIncarnation(), 0}, {.linger_ms = 0});
    REQUIRE(lane.Bind(endpoint).ok());
    std::string path = endpoint.substr(std::string_view("ipc://").size());
    const bool is_abstract = path.starts_with('@');
    if (is_abstract) path[0] = '\0';
    if (!is_abstract) {  // the filter decides, not the file system
      REQUIRE(chmod(std::filesystem::path(path).parent_path().c_str(), 0755) == 0);
      REQUIRE(chmod(path.c_str(), 0777) == 0);
    }
    const sockaddr_un address = AddressFor(path);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    CHECK(AnswerTo(geteuid(), SOCK_STREAM, address, size) == kAnswered);
    CHECK(AnswerTo(kOther, SOCK_STREAM, address, size) == kCutOff);
  }
}

TEST_CASE("shared memory is not shared with another user") {
  if (geteuid() != 0) {
    MESSAGE("SKIPPED: only root can become another user");
    return;
  }
  const LinkPeer self{NewIncarnation(), 0};
  const Result<UniqueFd> listening = SharedLink::Listen(self);
  REQUIRE(listening.ok());
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  REQUIRE(getsockname(listening->get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) KnockAs(kOther, SOCK_SEQPACKET, address, size);
  pollfd polled{listening->get(), POLLIN, 0};
  REQUIRE(poll(&polled, 1, 60'000) == 1);
  const auto accepted = SharedLink::Accept(listening->get(), {});
  CHECK((accepted.ok() && *accepted == nullptr));
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == kCutOff);
}

}  // namespace
}  // namespace pando
