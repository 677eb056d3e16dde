// BadPictureReports: the pictures that computing here found bad and that the scheduler does not
// know yet, repeated until acknowledged. Used by the session, which pushes nothing meanwhile: what
// was made of a replaced picture counts only once the scheduler has counted the picture.
// Threads: none.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/outbox.h"

namespace pando {

class BadPictureReports {
 public:
  static constexpr Micros kRepeatInterval = std::chrono::milliseconds(200);

  void Add(Micros now, const std::vector<BadPicture>& pictures);
  // True if these were the last ones that the scheduler did not know.
  bool Acknowledge(const std::vector<std::string>& names);
  // Whether the scheduler knows all.
  bool is_settled() const { return unknown_.empty(); }
  // The message that is due, if one is; it is due again after a while.
  std::optional<PicturesReplaced> TakeDue(Micros now);
  Micros NextDeadline() const { return is_settled() ? kNever : due_at_; }

 private:
  std::map<std::string, std::string> unknown_;  // name -> reason; of a step and a chunk at most
  std::set<std::string> known_;                 // data.bad_pictures_max at most, or the run ends
  Micros due_at_ = kNever;
};

}  // namespace pando
