// The functions of NCCL that we call, loaded at run time.
#pragma once

#include <nccl.h>

#include "common/status.h"

namespace pando::cuda {

struct NcclApi {
  decltype(ncclGetUniqueId)* GetUniqueId = nullptr;
  decltype(ncclCommInitRankConfig)* CommInitRankConfig = nullptr;
  decltype(ncclCommGetAsyncError)* CommGetAsyncError = nullptr;
  decltype(ncclCommAbort)* CommAbort = nullptr;
  decltype(ncclAllReduce)* AllReduce = nullptr;
  decltype(ncclGetErrorString)* GetErrorString = nullptr;
  decltype(ncclGetLastError)* GetLastError = nullptr;
};

Result<NcclApi> LoadNccl();

}  // namespace pando::cuda
