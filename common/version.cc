#include "common/version.h"

namespace pando {

const char* PandoVersion() { return PANDO_VERSION; }

}  // namespace pando
