// libcuda.so.1 for a machine without a GPU. cuDNN proposes engines that it compiles at run time
// only if the driver has all of these functions. It plans such an engine if its code can be loaded.

namespace {

constexpr int kSuccess = 0, kNoDevice = 100;  // CUresult, whose header renames some functions
int loaded_code = 0;                          // stands for any

int Load(void** handle) {
  *handle = &loaded_code;
  return kSuccess;
}

}  // namespace

// A macro because a function's name is what matters.
#define PANDO_WITHOUT_DEVICE(name) \
  int name() { return kNoDevice; }

extern "C" {

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuGetErrorString(int, const char** text) {
  *text = "an error of the stand-in for the driver";
  return kSuccess;
}
int cuLibraryLoadData(void** library) { return Load(library); }
int cuLibraryGetKernel(void** kernel) { return Load(kernel); }
int cuLibraryUnload() { return kSuccess; }

PANDO_WITHOUT_DEVICE(cuInit)
PANDO_WITHOUT_DEVICE(cuCtxGetCurrent)
PANDO_WITHOUT_DEVICE(cuCtxGetLimit)
PANDO_WITHOUT_DEVICE(cuCtxPopCurrent)
PANDO_WITHOUT_DEVICE(cuCtxPushCurrent)
PANDO_WITHOUT_DEVICE(cuDeviceGet)
PANDO_WITHOUT_DEVICE(cuDeviceGetCount)
PANDO_WITHOUT_DEVICE(cuGetErrorName)
PANDO_WITHOUT_DEVICE(cuKernelGetAttribute)
PANDO_WITHOUT_DEVICE(cuKernelSetAttribute)
PANDO_WITHOUT_DEVICE(cuLaunchCooperativeKernel)
PANDO_WITHOUT_DEVICE(cuLaunchKernel)
PANDO_WITHOUT_DEVICE(cuLaunchKernelEx)
PANDO_WITHOUT_DEVICE(cuLibraryLoadFromFile)
PANDO_WITHOUT_DEVICE(cuLinkAddData)
PANDO_WITHOUT_DEVICE(cuLinkComplete)
PANDO_WITHOUT_DEVICE(cuLinkCreate)
PANDO_WITHOUT_DEVICE(cuLinkDestroy)
PANDO_WITHOUT_DEVICE(cuOccupancyMaxPotentialClusterSize)
PANDO_WITHOUT_DEVICE(cuStreamGetCtx)

}  // extern "C"
