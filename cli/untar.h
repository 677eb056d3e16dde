// Unpacks a .tar.gz: plain files and the folders they are in, nothing else. For `pando data fetch`.
#pragma once

#include <string>

#include "common/status.h"

namespace pando {

// Names that lead out of `folder` are errors; links and devices are passed over.
Status UnpackTarGz(const std::string& archive, const std::string& folder);

}  // namespace pando
