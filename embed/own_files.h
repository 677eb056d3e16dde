// OwnFiles: the library's threads have a separate table of file descriptors, so that a child which
// the program forks inherits none of their connections: they end with this process. Memory
// for payloads needs descriptors (P42), so the program's threads let a thread of the library make
// it. Used by ProgramWorker.
#pragma once

#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "common/float_buffer.h"
#include "common/mailbox.h"

namespace pando {

// The calling thread, and the threads that it starts from now on, share no descriptors with others
// any more. Those that are open now are in both tables.
void SeparateFiles();

// Runs functions of other threads on its thread. Threads: any may call Do. Construct it
// before SeparateFiles, Start it behind.
class FilesThread {
 public:
  ~FilesThread() {
    tasks_.Close();
    if (thread_.joinable()) thread_.join();
  }
  void Start() {
    thread_ = std::thread([this] {
      while (std::optional<std::packaged_task<void()>> task = tasks_.Pop()) (*task)();
    });
  }
  // Returns once the function has run. False: the thread has ended.
  bool Do(std::function<void()> function) {
    std::packaged_task<void()> task(std::move(function));
    std::future<void> done = task.get_future();
    if (!tasks_.Push(std::move(task))) return false;
    done.wait();
    return true;
  }
  // A source whose buffers are made on the thread. It outlives the source.
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
