// Downloads published data sets for `pando data fetch`, with libcurl. A download continues where an
// earlier try ended, and is used only if its SHA-256 is the expected one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/status.h"

namespace pando {

struct FetchOptions {
  std::string name;    // the name of the data set
  std::string folder;  // created if it does not exist
  std::string mirror;  // base URL of the files instead of the publisher's; may be file://
  std::function<void(const std::string& line)> tell;
};

std::vector<std::string> FetchableDataSets();
// Returns ok when `folder` holds the data set. Files that exist are not downloaded again.
Status FetchDataSet(const FetchOptions& options);

// Unpacks the plain files of a .tar.gz, and creates their folders. A name that leads out of
// `folder` is an error; links and devices are skipped.
Status UnpackArchive(const std::string& path, const std::string& folder);

}  // namespace pando
