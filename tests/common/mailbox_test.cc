#include "common/mailbox.h"

#include <poll.h>

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

namespace pando {
namespace {

bool IsReadable(int fd, int timeout_ms = 0) {
  pollfd item{fd, POLLIN, 0};
  return poll(&item, 1, timeout_ms) == 1;
}

TEST_CASE("items come out in order and the descriptor says whether there are any") {
  Mailbox<std::unique_ptr<int>> mailbox;
  CHECK(!IsReadable(mailbox.fd()));
  CHECK(!mailbox.Pop({}));
  for (int i = 0; i < 3; ++i) CHECK(mailbox.Push(std::make_unique<int>(i)));
  CHECK(IsReadable(mailbox.fd()));
  CHECK(**mailbox.Pop({}) == 0);
  CHECK(IsReadable(mailbox.fd()));
  CHECK(mailbox.Drain().size() == 2);
  CHECK(!IsReadable(mailbox.fd()));
  CHECK(mailbox.Drain().empty());
}

TEST_CASE("an item that may wait wakes no thread, and comes out with the next that does") {
  Mailbox<int> mailbox;
  CHECK(mailbox.Push(1, Wake::kLater));
  CHECK(!IsReadable(mailbox.fd()));
  CHECK(mailbox.Push(2));
  CHECK(IsReadable(mailbox.fd()));
  CHECK(mailbox.Push(3, Wake::kLater));
  CHECK(mailbox.Drain() == std::deque<int>{1, 2, 3});
  CHECK(!IsReadable(mailbox.fd()));
  CHECK(mailbox.Push(4, Wake::kLater));
  CHECK(mailbox.Pop({}) == 4);  // a taker that looks finds it
  CHECK(!IsReadable(mailbox.fd()));
}

TEST_CASE("a full mailbox refuses and takes again once there is room") {
  Mailbox<int> mailbox(2);
  CHECK(mailbox.Push(1));
  CHECK(mailbox.Push(2));
  CHECK(!mailbox.Push(3));
  CHECK(mailbox.Pop({}) == 1);
  CHECK(mailbox.Push(4));
  CHECK(mailbox.Pop({}) == 2);
  CHECK(mailbox.Pop({}) == 4);
}

TEST_CASE("waiting ends at the deadline") {
  Mailbox<int> mailbox;
  const auto deadline = Mailbox<int>::Clock::now() + std::chrono::milliseconds(5);
  CHECK(!mailbox.Pop(deadline));
  CHECK(Mailbox<int>::Clock::now() >= deadline);
}

TEST_CASE("closing wakes the taker, keeps queued items and refuses more") {
  Mailbox<int> mailbox;
  CHECK(mailbox.Push(1));
  std::vector<int> taken;
  std::thread taker([&] {
    while (const std::optional<int> item = mailbox.Pop()) taken.push_back(*item);
  });
  mailbox.Close();
  taker.join();
  CHECK(taken == std::vector<int>{1});
  CHECK(!mailbox.Push(2));
  CHECK(mailbox.is_closed());
  CHECK(IsReadable(mailbox.fd()));
}

TEST_CASE("no item is lost or doubled between many threads and one") {
  constexpr int kThreads = 4;
  constexpr int kItemsPerThread = 20000;
  Mailbox<int> mailbox;
  std::vector<std::thread> makers;
  for (int t = 0; t < kThreads; ++t) {
    makers.emplace_back([&mailbox, t] {
      for (int i = 0; i < kItemsPerThread; ++i) {
        if (!mailbox.Push(t * kItemsPerThread + i)) return;
      }
    });
  }
  std::vector<int> next(kThreads, 0);  // by maker: the item expected next
  for (int taken = 0; taken < kThreads * kItemsPerThread;) {
    REQUIRE(IsReadable(mailbox.fd(), 20000));
    for (const int item : mailbox.Drain()) {
      CHECK(item % kItemsPerThread == next[static_cast<size_t>(item / kItemsPerThread)]++);
      ++taken;
    }
  }
  for (std::thread& maker : makers) maker.join();
  CHECK(!IsReadable(mailbox.fd()));
}

}  // namespace
}  // namespace pando
