#include "kernels/runtime_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

namespace pando {

std::string Dotted(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<RuntimeLibrary> RuntimeLibrary::Load(std::initializer_list<const char*> names,
                                            const char* remedy) {
  std::string why;
  for (const char* name : names) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return RuntimeLibrary(name, handle);
    why = dlerror();
  }
  return NotFound(
      fmt::format("cannot load {}: {}. {}; or use --device cpu", *names.begin(), why, remedy));
}

RuntimeLibrary::Function RuntimeLibrary::Find(const char* name) {
  void* address = dlsym(handle_, name);
  if (address == nullptr && status_.ok())
    status_ = NotFound(
        fmt::format("{} has no function {}: this pando needs another version", name_, name));
  return {address};
}

}  // namespace pando
