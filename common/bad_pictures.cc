#include "common/bad_pictures.h"

namespace pando {
namespace {

constexpr size_t kNamedMax = 8;  // in one line

}  // namespace

bool BadPictures::Add(const BadPicture& picture) {
  return reasons_.emplace(picture.name, picture.reason).second;
}

void BadPictures::AddAll(const std::vector<BadPicture>& pictures) {
  for (const BadPicture& picture : pictures) Add(picture);
}

std::vector<BadPicture> BadPictures::list() const {
  std::vector<BadPicture> list;
  for (const auto& [name, reason] : reasons_) list.push_back({name, reason});
  return list;
}

std::string BadPictures::TextOf(const BadPicture& picture) const {
  return picture.name + ": " + picture.reason + "; replaced by the next picture, " +
         std::to_string(count()) + " of " + std::to_string(max_) + " that may be";
}

Status BadPictures::Verdict() const {
  if (count() <= max_) return Status();
  std::string text =
      std::to_string(count()) +
      (count() == 1 ? " picture that cannot be decoded (" : " pictures that cannot be decoded (");
  size_t named = 0;
  for (const auto& [name, reason] : reasons_) {
    if (++named > kNamedMax) break;
    text += (named == 1 ? "" : "; ") + name + ": " + reason;
  }
  if (count() > kNamedMax) text += "; and " + std::to_string(count() - kNamedMax) + " more";
  return Corrupt(text + "), and data.bad_pictures_max is " + std::to_string(max_) +
                 ": mend or remove them, or raise it to have such pictures replaced");
}

}  // namespace pando
