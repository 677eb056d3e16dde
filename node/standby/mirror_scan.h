// MirrorScan finds what has changed in a leader's run folder, for its standbys (P47). Mirror uses
// it. Threads: one at a time.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "proto/messages.h"

namespace pando {

struct MirrorChange {
  std::string name;
  MirrorKind kind = MirrorKind::kRemoved;
  uint64_t inode = 0;
  uint64_t from = 0;  // of a growing file: earlier changes named the bytes below
  uint64_t to = 0;    // the file's size
};

class MirrorScan {
 public:
  // After this time a file below timeline/ that has not changed is taken to be complete.
  static constexpr Micros kRest = std::chrono::seconds(5);
  // Each folder is listed at least this often.
  static constexpr Micros kListInterval = std::chrono::seconds(1);

  explicit MirrorScan(std::string run_dir) : run_dir_(std::move(run_dir)) {}

  // Appends what has changed since the last call. An error names what cannot be read; changes there
  // are found later.
  Status Look(Micros now, std::vector<MirrorChange>* changes);
  // Returns all files, as the calls of Look have found them.
  std::vector<MirrorChange> All() const;

 private:
  struct File {
    uint64_t inode = 0;
    uint64_t size = 0;
    int64_t changed_ns = 0;
    Micros noticed_at{0};
    bool is_told = false;  // a change has named it
  };
  struct Folder {
    int64_t changed_ns = -1;
    Micros noticed_at{0};
    Micros listed_at{0};
    std::map<std::string, File> files;  // by name within the run folder
  };
  Status LookInto(Micros now, const std::string& name, bool lists,
                  std::vector<MirrorChange>* changes);
  Status List(Micros now, const std::string& name, std::vector<MirrorChange>* changes);
  void Note(Micros now, const std::string& name, const struct stat& info, File* file,
            std::vector<MirrorChange>* changes) const;
  std::string PathTo(const std::string& name) const { return run_dir_ + "/" + name; }

  const std::string run_dir_;
  std::map<std::string, Folder> folders_{{"", {}}};  // by name within the run folder
  Micros list_at_{0};
};

}  // namespace pando
