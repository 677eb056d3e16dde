#include "common/buffer_pool.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace pando {
namespace {

TEST_CASE("a buffer is aligned, zeroed and padded with zeros to its last line") {
  for (size_t count : {0u, 1u, 15u, 16u, 17u, 1000u}) {
    const FloatBuffer buffer(count);
    CHECK(buffer.size() == count);
    CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % FloatBuffer::kAlignmentBytes == 0);
    const size_t padded = (count + 15) / 16 * 16;
    for (size_t i = 0; i < padded; ++i) CHECK(buffer.data()[i] == 0.0f);
  }
}

TEST_CASE("a blob shows a part of the buffer and keeps it alive") {
  auto buffer = std::make_shared<FloatBuffer>(40);
  for (size_t i = 0; i < 40; ++i) buffer->data()[i] = float(i);
  const float* memory = buffer->data();
  std::weak_ptr<FloatBuffer> watch = buffer;
  Blob part = ToBlob(buffer, 8, 4);
  const Blob rest = ToBlob(std::move(buffer), 16);
  CHECK(part.floats().data() == memory + 8);
  CHECK(part.floats().size() == 4);
  CHECK(rest.floats().size() == 24);
  CHECK(rest.floats()[0] == 16.0f);
  part = Blob();
  CHECK_FALSE(watch.expired());
}

TEST_CASE("the pool hands the same memory out again once every blob is gone") {
  BufferPool pool(32);
  SharedBuffer first = pool.Take();
  const float* memory = first->data();
  CHECK(first->size() == 32);
  Blob blob = ToBlob(std::move(first));
  CHECK(pool.Take()->data() != memory);  // still seen through the blob
  CHECK(pool.made_count() == 2);
  blob = Blob();
  SharedBuffer a = pool.Take();
  SharedBuffer b = pool.Take();
  CHECK((a->data() == memory || b->data() == memory));
  CHECK(pool.made_count() == 2);
}

TEST_CASE("a pool in steady use makes as many buffers as are in use at once") {
  BufferPool pool(8);
  std::vector<SharedBuffer> in_use;
  for (int round = 0; round < 100; ++round) {
    in_use.push_back(pool.Take());
    if (in_use.size() == 3) in_use.erase(in_use.begin());
  }
  CHECK(pool.made_count() == 3);
}

TEST_CASE("a buffer that its source does not renew is left alone, and taken once it does") {
  const float* read_elsewhere = nullptr;
  BufferPool pool(16, BufferSource{.renew = [&](const FloatBuffer& buffer) {
                    return buffer.data() != read_elsewhere;
                  }});
  SharedBuffer first = pool.Take();
  read_elsewhere = first->data();
  first.reset();
  SharedBuffer second = pool.Take();
  CHECK(second->data() != read_elsewhere);
  CHECK(pool.made_count() == 2);
  read_elsewhere = nullptr;
  CHECK(pool.Take()->data() != second->data());
  CHECK(pool.made_count() == 2);
}

TEST_CASE("buffers survive their pool") {
  auto pool = std::make_unique<BufferPool>(16);
  SharedBuffer kept = pool->Take();
  pool->Take().reset();  // one waits in the pool
  kept->data()[15] = 4.0f;
  pool.reset();
  CHECK(kept->data()[15] == 4.0f);
  kept.reset();
}

TEST_CASE("buffers may be given back on another thread") {
  BufferPool pool(16);
  for (int round = 0; round < 200; ++round) {
    std::thread sender([blob = ToBlob(pool.Take())] { CHECK(blob.floats().size() == 16); });
    pool.Take().reset();
    sender.join();
  }
  CHECK(pool.made_count() <= 2);
}

}  // namespace
}  // namespace pando
