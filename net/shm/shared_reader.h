// SharedReader: the parts of a SharedPool that a peer of this host lets this process read (P42).
// Used by net/shm/shared_link alone.
// It trusts no peer. References are checked against the sealed size of the segment, and a word is
// checked by taking it.
// Threads: one; its blobs may be released on any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/blob.h"
#include "common/status.h"
#include "net/shm/shared_pool.h"

namespace pando {

class SharedReader {
 public:
  // `while_reading` is kept until the reader and all its blobs are gone.
  explicit SharedReader(std::shared_ptr<const void> while_reading)
      : while_reading_(std::move(while_reading)) {}

  // Maps the peer's next segment, in which this process is `reader`. kCorrupt: it is not what the
  // peer described.
  Status Map(uint32_t segment, UniqueFd fd, uint64_t size_bytes, uint32_t reader);

  uint32_t segment_count() const { return static_cast<uint32_t>(mappings_.size()); }

  // The payload, which is not written again while a copy of the blob lives. kUnavailable: it was
  // overtaken and may have been written again. kCorrupt: such a payload cannot exist.
  Result<Blob> Open(const SharedReference& reference);

 private:
  class Mapping;
  std::shared_ptr<const void> while_reading_;
  std::vector<std::shared_ptr<Mapping>> mappings_;  // by segment
};

}  // namespace pando
