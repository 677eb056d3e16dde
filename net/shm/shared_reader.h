// SharedReader maps the parts of a SharedPool that a peer of this host lets this process read.
// Only net/shm/shared_link uses it. It trusts no peer: it checks references against the sealed size
// of the segment, and checks a word by taking it. Threads: one; its blobs may be released on any
// thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/blob.h"
#include "net/shm/shared_pool.h"

namespace pando {

// Called once for each slot of a peer, with its pages, when a payload at its beginning arrives.
// This process can only read them. A GPU's driver registers the memory with it. The result, null if
// there is none, lives as long as the mapping.
using OnMapped = std::function<std::shared_ptr<const void>(std::span<const std::byte> memory)>;

class SharedReader {
 public:
  // `while_reading` stays alive until the reader and all its blobs are gone.
  explicit SharedReader(std::shared_ptr<const void> while_reading, OnMapped on_mapped = {})
      : while_reading_(std::move(while_reading)), on_mapped_(std::move(on_mapped)) {}

  // Maps the peer's next segment, in which this process is `reader`. kCorrupt: the segment is not
  // what the peer described.
  Status Map(uint32_t segment, UniqueFd fd, uint64_t size_bytes, uint32_t reader);

  uint32_t segment_count() const { return static_cast<uint32_t>(mappings_.size()); }

  // Returns the payload, which is not written again while a copy of the blob lives. kUnavailable:
  // it was overtaken and may have been written again. kCorrupt: such a payload cannot exist.
  Result<Blob> Open(const SharedReference& reference);

 private:
  class Mapping;
  std::shared_ptr<const void> while_reading_;
  OnMapped on_mapped_;
  std::vector<std::shared_ptr<Mapping>> mappings_;  // by segment
};

}  // namespace pando
