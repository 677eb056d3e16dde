#include "train/paged_floats.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstdint>
#include <vector>

#include "common/float_buffer.h"

namespace pando {
namespace {

// Pages of [data, data + page_count pages) that have memory.
size_t ResidentPages(float* data, size_t page_count) {
  std::vector<unsigned char> is_resident(page_count);
  REQUIRE(mincore(data, page_count * PagedFloats::page_floats() * sizeof(float),
                  is_resident.data()) == 0);
  size_t count = 0;
  for (unsigned char page : is_resident) count += page & 1;
  return count;
}

TEST_CASE("pages have memory from when they are written until they are given back") {
  const size_t page = PagedFloats::page_floats();
  PagedFloats floats(10 * page + 1);
  CHECK(reinterpret_cast<uintptr_t>(floats.data()) % FloatBuffer::kAlignmentBytes == 0);
  CHECK(ResidentPages(floats.data(), 11) == 0);
  floats.data()[3 * page] = 1.0f;
  floats.data()[10 * page] = 2.0f;
  floats.data()[11 * page - 1] = 3.0f;  // the last page is the array's
  CHECK(ResidentPages(floats.data(), 11) == 2);
  floats.GiveBack(3 * page, 4 * page);
  CHECK(ResidentPages(floats.data(), 11) == 1);
  CHECK(floats.data()[3 * page] == 0.0f);
  CHECK(floats.data()[10 * page] == 2.0f);
  floats.GiveBack(5 * page, 5 * page);  // none
  floats.GiveBack(0, 11 * page);
  CHECK(ResidentPages(floats.data(), 11) == 0);
}

}  // namespace
}  // namespace pando
