// Kernels: threads of a block are run one after the other on one fiber, until one waits: then
// another fiber goes on with the rest. A kernel that never waits costs no switch.
#include <setjmp.h>
#include <ucontext.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "common/check.h"
#include "tests/cuda_on_host/cuda_runtime.h"

namespace cuda_on_host {
namespace {

constexpr unsigned kWarp = 32;
constexpr size_t kStackBytes = size_t{64} << 10;

struct Fiber {
  ucontext_t context;  // for its first turn
  jmp_buf place;       // for the others: no call of the kernel
  bool is_begun = false;
  std::unique_ptr<std::byte[]> stack;
  uint3 thread;             // whose turn it has
  bool is_waiting = false;  // at a barrier
};

// One block at a time.
class Block {
 public:
  void Run(dim3 size, const std::function<void()>& kernel);
  void Wait();
  uint64_t Exchange(uint64_t bits, unsigned from_lane);

 private:
  static void Main();
  void RunThreads();
  void Resume(Fiber& fiber);
  void Rest(Fiber& fiber);  // until it is resumed
  Fiber& FreeFiber();

  const std::function<void()>* kernel_ = nullptr;
  unsigned thread_count_ = 0;
  unsigned next_thread_ = 0;
  Fiber* current_ = nullptr;
  jmp_buf scheduler_;
  std::deque<Fiber> fibers_;
  std::vector<Fiber*> waiting_;  // in the order of threads
  std::vector<uint64_t> given_;  // by thread
};

Block& TheBlock() {
  thread_local Block block;  // fibers stay on the thread that made them
  return block;
}

unsigned ThreadNumber() {
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

void Block::Run(dim3 size, const std::function<void()>& kernel) {
  kernel_ = &kernel;
  thread_count_ = size.x * size.y * size.z;
  next_thread_ = 0;
  given_.assign(thread_count_, 0);
  while (next_thread_ < thread_count_) Resume(FreeFiber());
  while (!waiting_.empty()) {  // all that have not returned are at the barrier
    for (Fiber* fiber : std::exchange(waiting_, {})) {
      fiber->is_waiting = false;
      Resume(*fiber);
    }
  }
}

Fiber& Block::FreeFiber() {
  for (Fiber& fiber : fibers_) {
    if (!fiber.is_waiting) return fiber;
  }
  Fiber& fiber = fibers_.emplace_back();
  fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, &Block::Main, 0);
  return fiber;
}

void Block::Resume(Fiber& fiber) {
  current_ = &fiber;
  threadIdx = fiber.thread;
  if (_setjmp(scheduler_) != 0) return;
  if (fiber.is_begun) _longjmp(fiber.place, 1);
  fiber.is_begun = true;
  setcontext(&fiber.context);
}

void Block::Rest(Fiber& fiber) {
  if (_setjmp(fiber.place) == 0) _longjmp(scheduler_, 1);
}

void Block::Main() { TheBlock().RunThreads(); }

// Never returns: a fiber that has no thread left rests until a later block.
void Block::RunThreads() {
  while (true) {
    Fiber& self = *current_;
    while (next_thread_ < thread_count_) {
      const unsigned i = next_thread_++;
      threadIdx = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
      (*kernel_)();
    }
    Rest(self);
  }
}

void Block::Wait() {
  Fiber& self = *current_;
  self.thread = threadIdx;
  self.is_waiting = true;
  waiting_.push_back(&self);
  Rest(self);
}

uint64_t Block::Exchange(uint64_t bits, unsigned from_lane) {
  const unsigned self = ThreadNumber();
  given_[self] = bits;
  Wait();
  const uint64_t got = given_.at(self / kWarp * kWarp + from_lane);
  Wait();
  return got;
}

}  // namespace

unsigned LaneOfThread() { return ThreadNumber() % kWarp; }

uint64_t Exchange(uint64_t bits, unsigned from_lane) {
  return TheBlock().Exchange(bits, from_lane);
}

void RunGrid(dim3 grid_size, dim3 block_size, const std::function<void()>& kernel) {
  PANDO_CHECK(block_size.x * block_size.y * block_size.z <= 1024);
  gridDim = grid_size;
  blockDim = block_size;
  if (choose_block) {
    const dim3 chosen = choose_block(grid_size);
    blockIdx = {chosen.x, chosen.y, chosen.z};
    return TheBlock().Run(block_size, kernel);
  }
  for (unsigned z = 0; z < grid_size.z; ++z) {
    for (unsigned y = 0; y < grid_size.y; ++y) {
      for (unsigned x = 0; x < grid_size.x; ++x) {
        blockIdx = {x, y, z};
        TheBlock().Run(block_size, kernel);
      }
    }
  }
}

}  // namespace cuda_on_host

void __syncthreads() { cuda_on_host::TheBlock().Wait(); }
