// DenormalsKept lets the calling thread keep denormals while it lives, as before
// SetFloatEnvironment (common/system.h). It serves results that must be equal in threads that have
// called that function and in those that have not.
#pragma once

namespace pando {

class DenormalsKept {
 public:
  DenormalsKept();
  ~DenormalsKept();
  DenormalsKept(const DenormalsKept&) = delete;

 private:
  unsigned control_ = 0;  // the processor's control word before
};

}  // namespace pando
