// The program's version, from meson.build.
#pragma once

namespace pando {

const char* PandoVersion();

}  // namespace pando
