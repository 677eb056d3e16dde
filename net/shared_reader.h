// SharedReader: what a peer of this host has let us read of its SharedPool (P42). Used by
// net/shared_link alone.
// Trusts nobody: a reference is checked against the size that the segment is sealed at, and what a
// word says is checked by taking it.
// Threads: one; blobs that it gave may be let go on any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/blob.h"
#include "common/status.h"
#include "net/shared_pool.h"

namespace pando {

class SharedReader {
 public:
  // `while_reading` is kept until the reader and all blobs that it gave are gone.
  explicit SharedReader(std::shared_ptr<const void> while_reading)
      : while_reading_(std::move(while_reading)) {}

  // The peer's next segment, where we are this reader.  kCorrupt: it is not what the peer says.
  Status Map(uint32_t segment, UniqueFd fd, uint64_t size_bytes, uint32_t reader);

  uint32_t segment_count() const { return static_cast<uint32_t>(mappings_.size()); }

  // The payload, which is not written again while a copy of the blob lives.  kUnavailable: it was
  // overtaken, and may have been written again; kCorrupt: there can be no such payload.
  Result<Blob> Open(const SharedReference& reference);

 private:
  class Mapping;
  std::shared_ptr<const void> while_reading_;
  std::vector<std::shared_ptr<Mapping>> mappings_;  // by segment
};

}  // namespace pando
