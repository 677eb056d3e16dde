// The functions of cuBLASLt that we call, loaded at run time.
#pragma once

#include <cublasLt.h>

#include "common/status.h"

namespace pando::cuda {

struct CublasApi {
  decltype(cublasLtGetVersion)* GetVersion = nullptr;
  decltype(cublasLtCreate)* Create = nullptr;
  decltype(cublasLtDestroy)* Destroy = nullptr;
  decltype(cublasLtGetStatusString)* GetStatusString = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* LayoutCreate = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* LayoutDestroy = nullptr;
  decltype(cublasLtMatmulDescCreate)* DescCreate = nullptr;
  decltype(cublasLtMatmulDescDestroy)* DescDestroy = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* DescSetAttribute = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* PreferenceCreate = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* PreferenceDestroy = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* PreferenceSetAttribute = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* AlgoGetHeuristic = nullptr;
  decltype(cublasLtMatmul)* Matmul = nullptr;
};

Result<CublasApi> LoadCublas();

}  // namespace pando::cuda
