// PagedFloats: an array of floats whose memory comes when it is written and goes back to the system
// page by page. For a worker's flat parameter vector of which it holds a layer at a time
// (worker/parameter_store). Threads: as an array's.
#pragma once

#include <cstddef>

namespace pando {

class PagedFloats {
 public:
  // Reserves addresses, no memory: floats that were never written, or given back, read as 0.
  explicit PagedFloats(size_t float_count);
  ~PagedFloats();
  PagedFloats(const PagedFloats&) = delete;
  PagedFloats& operator=(const PagedFloats&) = delete;

  float* data() { return data_; }  // at the start of a page
  // Floats to a page. The last page is wholly the array's.
  static size_t page_floats();
  // Gives the memory of floats [first, last) back.  REQUIRES: both are multiples of page_floats().
  void GiveBack(size_t first, size_t last);

 private:
  size_t mapped_bytes_;
  float* data_;
};

}  // namespace pando
