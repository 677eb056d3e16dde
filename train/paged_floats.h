// PagedFloats: an array of floats that gets its memory when it is written and returns it to the
// system page by page. It holds a worker's flat parameter vector, of which only a few layers are in
// memory at a time (train/parameter_store). Threads: as an array.
#pragma once

#include <cstddef>

namespace pando {

class PagedFloats {
 public:
  // Reserves addresses but no memory. Floats never written, or given back, read as 0.
  explicit PagedFloats(size_t float_count);
  ~PagedFloats();
  PagedFloats(const PagedFloats&) = delete;
  PagedFloats& operator=(const PagedFloats&) = delete;

  float* data() { return data_; }  // aligned to a page
  const float* data() const { return data_; }
  // Floats per page. The last page belongs wholly to the array.
  static size_t page_floats();
  // Returns the memory of floats [first, last). REQUIRES: both are multiples of page_floats().
  void GiveBack(size_t first, size_t last);

 private:
  size_t mapped_bytes_;
  float* data_;
};

}  // namespace pando
