// Downloads of published data sets, for `pando data fetch`: by libcurl, resumed where an earlier
// try ended, and used only if their SHA-256 is the expected one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/status.h"

namespace pando {

struct FetchOptions {
  std::string name;    // of the data set
  std::string folder;  // made where it is not there
  std::string mirror;  // base URL of the files instead of the publisher's; file:// will do
  std::function<void(const std::string& line)> tell;
};

std::vector<std::string> FetchableDataSets();
// When it returns ok, `folder` holds the data set. Files that exist are not downloaded again.
Status FetchDataSet(const FetchOptions& options);

// Unpacks the plain files of a .tar.gz and the folders that they are in. Names that lead out of
// `folder` are errors; links and devices are skipped.
Status UnpackArchive(const std::string& path, const std::string& folder);

}  // namespace pando
