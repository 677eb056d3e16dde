#include "node/standby/mirror_names.h"

#include <algorithm>
#include <array>

#include "common/text.h"
#include "proto/message_limits.h"
#include "run/run_folder.h"

namespace pando {
namespace {

// Files that belong to one process or machine.
constexpr std::array<std::string_view, 3> kOwnNames{"keys", "endpoint", "files-endpoint"};
constexpr std::string_view kJournalName = "scheduler.db";

}  // namespace

bool IsMirrored(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('/'));
  if (first.starts_with(kJournalName) || std::ranges::count(kOwnNames, first) != 0) return false;
  if (name.size() > kNameBytesMax || name.ends_with(kDraftEnding)) return false;
  if (Cleaned(name, LineEnds::kReplaced) != name) return false;  // the codec would change it
  size_t begin = 0;
  do {  // each part between slashes
    if (begin >= name.size() || name[begin] == '/' || name[begin] == '.') return false;
    begin = name.find('/', begin) + 1;
  } while (begin != std::string_view::npos + 1);
  return true;
}

bool IsGrowing(std::string_view name) {
  return name == "metrics.csv" || name == "events.jsonl" || name.starts_with(kTensorBoardPrefix) ||
         name.starts_with("logs/");
}

}  // namespace pando
