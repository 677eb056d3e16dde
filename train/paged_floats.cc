#include "train/paged_floats.h"

#include <sys/mman.h>
#include <unistd.h>

#include "common/check.h"

namespace pando {

size_t PagedFloats::page_floats() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE)) / sizeof(float);
}

PagedFloats::PagedFloats(size_t float_count)
    : mapped_bytes_((float_count / page_floats() + 1) * page_floats() * sizeof(float)) {
  void* memory = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PANDO_CHECK(memory != MAP_FAILED);
  madvise(memory, mapped_bytes_, MADV_NOHUGEPAGE);  // huge pages would hold more than was written
  data_ = static_cast<float*>(memory);
}

PagedFloats::~PagedFloats() { munmap(data_, mapped_bytes_); }

void PagedFloats::GiveBack(size_t first, size_t last) {
  PANDO_CHECK(first % page_floats() == 0 && last % page_floats() == 0);
  if (first >= last) return;
  PANDO_CHECK(last * sizeof(float) <= mapped_bytes_);
  PANDO_CHECK(madvise(data_ + first, (last - first) * sizeof(float), MADV_DONTNEED) == 0);
}

}  // namespace pando
