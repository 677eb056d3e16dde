#include "job/data_default.h"

#include <fmt/format.h>

#include "data/dataset.h"

namespace pando {
namespace {

constexpr const char* kName = "data.name";
constexpr const char* kPath = "data.path";
constexpr const char* kSynthetic = "synthetic-digits";

std::string FindFolder(const std::string& name) {
  for (const char* parent : {"data/", "../shared/data/"}) {
    const std::string folder = FindDataFolder(name, parent);
    if (!folder.empty()) return folder;
  }
  return "";
}

}  // namespace

std::string ChooseData(JobDraft* draft) {
  if (!draft->job().data_path.empty()) return "";
  const std::string name = draft->job().dataset;
  const std::string folder = name == kSynthetic ? "" : FindFolder(name);
  if (!folder.empty()) {
    draft->SetDefault(kPath, folder);
    return fmt::format("training on {} from {}", name, folder);
  }
  if (draft->IsGiven(kName)) return "";
  draft->SetDefault(kName, kSynthetic);
  return fmt::format(
      "no {} in data/{} or ../shared/data/{}: training on synthetic-digits, drawn by pando itself "
      "(--data FOLDER takes {} from elsewhere)",
      name, name, name, name);
}

}  // namespace pando
