#include "worker/bad_picture_reports.h"

#include "proto/message_limits.h"

namespace pando {

void BadPictureReports::Add(Micros now, const std::vector<BadPicture>& pictures) {
  for (const BadPicture& picture : pictures) {
    if (known_.contains(picture.name)) continue;
    if (unknown_.emplace(picture.name, picture.reason).second) due_at_ = now;
  }
}

bool BadPictureReports::Acknowledge(const std::vector<std::string>& names) {
  const bool was_settled = is_settled();
  for (const std::string& name : names) {
    if (unknown_.erase(name) == 1) known_.insert(name);
  }
  return !was_settled && is_settled();
}

std::optional<PicturesReplaced> BadPictureReports::TakeDue(Micros now) {
  if (now < NextDeadline()) return std::nullopt;
  due_at_ = now + kRepeatInterval;
  PicturesReplaced message;
  for (const auto& [name, reason] : unknown_) {
    if (message.items.size() == kPicturesPerMessageMax) break;
    message.items.push_back({name, reason});
  }
  return message;
}

}  // namespace pando
