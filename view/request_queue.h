// RequestQueue has the threads that answer a WebServer's requests. When all are busy, connections
// wait in the system's queue, so that any number of connections takes bounded memory.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pando {

// Threads: any may call enqueue, which waits for room.
class RequestQueue : public httplib::TaskQueue {
 public:
  static constexpr size_t kThreads = 24;
  static constexpr size_t kWaitingMax = 16;

  RequestQueue();
  void enqueue(std::function<void()> task) override;
  // Ends the threads after the waiting tasks, each of which closes its connection.
  void shutdown() override;

 private:
  void Run();

  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool is_closed_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace pando
