// FilesThread: opens files and sockets for the threads of a program, whose table of descriptors is
// not the library's. ProgramWorker uses it.
//
// The library's threads have a separate table, so that a child which the program forks inherits
// none of their connections. The connections end with this process.
#pragma once

#include <functional>
#include <future>
#include <span>
#include <thread>
#include <utility>

#include "common/buffer_pool.h"
#include "common/mailbox.h"

namespace pando {

// After it, the calling thread, and the threads that it starts, share no descriptors with others.
// Of the open ones it keeps 0 to 2 and `kept`, and closes the others in its table: a pipe that the
// program closes later must not stay open here.
void SeparateFiles(std::span<const int> kept);

// Threads: any may call Do. Construct it before SeparateFiles; call Start after it.
class FilesThread {
 public:
  ~FilesThread() {
    tasks_.Close();
    if (thread_.joinable()) thread_.join();
  }
  int fd() const { return tasks_.fd(); }
  void Start() {
    thread_ = std::thread([this] {
      while (std::optional<std::packaged_task<void()>> task = tasks_.Pop()) (*task)();
    });
  }
  // Returns after the function has run, and rethrows its exception. False: the thread has ended.
  bool Do(std::function<void()> function) {
    std::packaged_task<void()> task(std::move(function));
    std::future<void> done = task.get_future();
    if (!tasks_.Push(std::move(task))) return false;
    done.get();
    return true;
  }
  // Returns a source whose buffers are made on the thread. This outlives the source.
  BufferSource Wrap(BufferSource source) {
    return {.make =
                [this, make = std::move(source.make)](size_t count) {
                  FloatBuffer buffer;
                  if (!Do([&] { buffer = make(count); })) buffer = FloatBuffer(count);
                  return buffer;
                },
            .renew = std::move(source.renew)};
  }

 private:
  Mailbox<std::packaged_task<void()>> tasks_;
  std::thread thread_;
};

}  // namespace pando
