#include <initializer_list>

#include "kernels/cuda/cublas_api.h"
#include "kernels/cuda/cudnn_api.h"
#include "kernels/runtime_library.h"

namespace pando::cuda {
namespace {

Status FirstFailure(std::initializer_list<Status> all) {
  for (const Status& status : all) {
    if (!status.ok()) return status;
  }
  return Status();
}

}  // namespace

Result<CudnnApi> LoadCudnn() {
  const Result<RuntimeLibrary> library = RuntimeLibrary::Load({"libcudnn.so.9"});
  if (!library.ok()) return library.status();
  CudnnApi api;
  const Status found = FirstFailure(
      {library->Find("cudnnGetVersion", &api.GetVersion), library->Find("cudnnCreate", &api.Create),
       library->Find("cudnnDestroy", &api.Destroy), library->Find("cudnnSetStream", &api.SetStream),
       library->Find("cudnnGetErrorString", &api.GetErrorString),
       library->Find("cudnnBackendCreateDescriptor", &api.CreateDescriptor),
       library->Find("cudnnBackendDestroyDescriptor", &api.DestroyDescriptor),
       library->Find("cudnnBackendSetAttribute", &api.SetAttribute),
       library->Find("cudnnBackendGetAttribute", &api.GetAttribute),
       library->Find("cudnnBackendFinalize", &api.Finalize),
       library->Find("cudnnBackendExecute", &api.Execute)});
  if (!found.ok()) return found;
  return api;
}

Result<CublasApi> LoadCublas() {
  const Result<RuntimeLibrary> library =
      RuntimeLibrary::Load({"libcublasLt.so.13", "libcublasLt.so.12"});
  if (!library.ok()) return library.status();
  CublasApi api;
  const Status found = FirstFailure(
      {library->Find("cublasLtGetVersion", &api.GetVersion),
       library->Find("cublasLtCreate", &api.Create), library->Find("cublasLtDestroy", &api.Destroy),
       library->Find("cublasLtGetStatusString", &api.GetStatusString),
       library->Find("cublasLtMatrixLayoutCreate", &api.LayoutCreate),
       library->Find("cublasLtMatrixLayoutDestroy", &api.LayoutDestroy),
       library->Find("cublasLtMatmulDescCreate", &api.DescCreate),
       library->Find("cublasLtMatmulDescDestroy", &api.DescDestroy),
       library->Find("cublasLtMatmulDescSetAttribute", &api.DescSetAttribute),
       library->Find("cublasLtMatmulPreferenceCreate", &api.PreferenceCreate),
       library->Find("cublasLtMatmulPreferenceDestroy", &api.PreferenceDestroy),
       library->Find("cublasLtMatmulPreferenceSetAttribute", &api.PreferenceSetAttribute),
       library->Find("cublasLtMatmulAlgoGetHeuristic", &api.AlgoGetHeuristic),
       library->Find("cublasLtMatmul", &api.Matmul)});
  if (!found.ok()) return found;
  return api;
}

}  // namespace pando::cuda
