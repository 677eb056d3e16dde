// BadPictures: the undecodable pictures of a data set, each once, and their limit
// (data.bad_pictures_max). The scheduler or the serial trainer keeps one for a whole run. Readers
// without a run keep one too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/status.h"

namespace pando {

struct BadPicture {
  std::string name;    // in the data set's folder: "train/ants/1.jpg", alike on every machine
  std::string reason;  // for people
};

// Threads: none.
class BadPictures {
 public:
  // Bounds data.bad_pictures_max, and so what is kept.
  static constexpr uint64_t kMaxMax = 100'000;

  explicit BadPictures(uint64_t max) : max_(max) {}
  // Returns whether it was not known.
  bool Add(const BadPicture& picture);
  void AddAll(const std::vector<BadPicture>& pictures);
  uint64_t count() const { return reasons_.size(); }
  std::vector<BadPicture> list() const;  // by name
  // "train/ants/1.jpg: it is cut off; replaced by the next picture, 1 of 2 that may be".
  std::string TextOf(const BadPicture& picture) const;
  // kCorrupt once there are more than may be: one line that names them.
  Status Verdict() const;

 private:
  uint64_t max_;
  std::map<std::string, std::string> reasons_;  // by name
};

}  // namespace pando
