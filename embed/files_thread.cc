#include "embed/files_thread.h"

#include <fcntl.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <vector>

namespace pando {

void SeparateFiles(std::span<const int> kept) {
  if (unshare(CLONE_FILES) != 0) {
    // Children that the program forks then keep connections open until they end.
    spdlog::warn("cannot separate the library's file descriptors from the program's");
    return;
  }
  std::vector<int> last(kept.begin(), kept.end());
  last.push_back(STDERR_FILENO);
  std::ranges::sort(last);
  for (size_t i = 0; i < last.size(); ++i) {
    const bool is_end = i + 1 == last.size();
    const unsigned first = static_cast<unsigned>(last[i]) + 1;
    const unsigned end = is_end ? UINT_MAX : static_cast<unsigned>(last[i + 1]) - 1;
    if (last[i] >= STDERR_FILENO && first <= end) close_range(first, end, 0);
  }
}

}  // namespace pando
