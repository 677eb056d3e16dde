// The messages between a node and the scheduler's file store (P45), about files of the run folder.
// proto/messages.h has all others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/blob.h"

namespace pando {

// The store's lane: it has a thread and an endpoint beside the scheduler's.
inline constexpr uint16_t kFilesLane = 1;

// Node -> store: bytes of a file. Repeated until answered.
struct StoreFile {
  std::string name;     // within the run folder: "snapshots/g000-v000000500-...safetensors"
  uint64_t offset = 0;  // of the payload
  uint64_t size = 0;    // of the file
  std::string hash;     // of the file (Hash128)
  Blob payload;
};
struct StoreFileAck {
  std::string name;        // copied
  uint64_t offset = 0;     // bytes that the store has: where to go on
  bool is_stored = false;  // whole and durable
  std::string failure;     // why it cannot be stored; empty: it can
};
// Node -> store, repeated until answered.
struct ReadFile {
  std::string name;
  uint64_t offset = 0;
  uint64_t size = 0;  // bytes wanted; 0: only the file's size
};
struct FilePart {
  std::string name;        // copied
  uint64_t offset = 0;     // copied
  uint64_t file_size = 0;  // of the whole file
  bool is_missing = false;
  std::string failure;  // why it cannot be read; empty: it can
  Blob payload;         // fewer bytes than wanted: there the file ends
};
// Node -> store, repeated until answered: names of files that begin so.
struct ListFiles {
  std::string prefix;
  std::string after;  // those that come after this one
};
struct FileNames {
  std::string prefix;              // copied
  std::string after;               // copied
  std::vector<std::string> names;  // ascending, at most kFileNamesMax; as many: there are more
};

}  // namespace pando
