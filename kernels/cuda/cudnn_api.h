// The functions of cuDNN that we call, loaded at run time.
#pragma once

#include <cudnn.h>

#include "common/status.h"

namespace pando::cuda {

struct CudnnApi {
  decltype(cudnnGetVersion)* GetVersion = nullptr;
  decltype(cudnnCreate)* Create = nullptr;
  decltype(cudnnDestroy)* Destroy = nullptr;
  decltype(cudnnSetStream)* SetStream = nullptr;
  decltype(cudnnGetErrorString)* GetErrorString = nullptr;
  decltype(cudnnBackendCreateDescriptor)* CreateDescriptor = nullptr;
  decltype(cudnnBackendDestroyDescriptor)* DestroyDescriptor = nullptr;
  decltype(cudnnBackendSetAttribute)* SetAttribute = nullptr;
  decltype(cudnnBackendGetAttribute)* GetAttribute = nullptr;
  decltype(cudnnBackendFinalize)* Finalize = nullptr;
  decltype(cudnnBackendExecute)* Execute = nullptr;
};

Result<CudnnApi> LoadCudnn();

}  // namespace pando::cuda
