#include "view/run_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "common/text.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// Returns the folders of an absolute path, the last one first.
std::vector<std::string> SplitFolders(const std::string& path) {
  std::vector<std::string> folders;
  for (const fs::path& part : fs::absolute(path).lexically_normal()) {
    if (part.has_filename() && part != "/") folders.push_back(part.string());
  }
  std::ranges::reverse(folders);
  return folders;
}

// Returns the last `count` folders: "runs/first".
std::string JoinLast(const std::vector<std::string>& folders, size_t count) {
  std::string name;
  for (size_t i = 0; i < std::min(count, folders.size()); ++i)
    name = name.empty() ? folders[i] : folders[i] + "/" + name;
  return name.empty() ? "/" : name;
}

}  // namespace

std::vector<std::string> NamesForFolders(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> folders;
  size_t longest = 1;
  for (const std::string& path : paths) {
    folders.push_back(SplitFolders(path));
    names.push_back(JoinLast(folders.back(), 1));
    longest = std::max(longest, folders.back().size());
  }
  for (size_t count = 2; count <= longest; ++count) {
    const std::vector<std::string> before = names;
    for (size_t i = 0; i < names.size(); ++i) {
      if (std::ranges::count(before, before[i]) > 1) names[i] = JoinLast(folders[i], count);
    }
  }
  std::set<std::string> taken;
  for (std::string& name : names) {
    const std::string own = AsUtf8(name);
    name = own;  // the same folder may be given twice
    for (int i = 2; !taken.insert(name).second; ++i) name = fmt::format("{}#{}", own, i);
  }
  return names;
}

}  // namespace pando
