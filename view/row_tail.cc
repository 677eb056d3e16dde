#include "view/row_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/unique_fd.h"

namespace pando {
namespace {

constexpr size_t kReadBytes = 256 << 10;

}  // namespace

void RowTail::Read(const std::function<void()>& restart,
                   const std::function<void(std::string_view row)>& take) {
  const UniqueFd fd(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (fd.get() < 0 || fstat(fd.get(), &facts) != 0) return;
  if (inode_ != 0 && (inode_ != facts.st_ino || facts.st_size < offset_)) {
    offset_ = 0;
    skips_ = false;
    restart();
  }
  inode_ = facts.st_ino;
  std::string text;
  size_t kept = 0;  // bytes of `text`: a row without an end yet
  while (true) {
    text.resize(kept + kReadBytes);
    const ssize_t count =
        pread(fd.get(), text.data() + kept, kReadBytes, offset_ + static_cast<off_t>(kept));
    if (count <= 0) return;
    std::string_view rest(text.data(), kept + static_cast<size_t>(count));
    for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      if (!skips_) take(rest.substr(0, end));
      skips_ = false;
      rest.remove_prefix(end + 1);
      offset_ += static_cast<off_t>(end + 1);
    }
    if (rest.size() > kRowBytesMax) {
      offset_ += static_cast<off_t>(rest.size());
      skips_ = true;
      rest.remove_prefix(rest.size());
    }
    kept = rest.size();
    text = std::string(rest);
  }
}

}  // namespace pando
