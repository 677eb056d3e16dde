// Source: NVIDIA's cuBLAS documentation, "Using the cuBLASLt API".
#include "kernels/cuda/matrix_library.h"

#include <cublasLt.h>
#include <fmt/core.h>

#include <array>
#include <map>

#include "common/check.h"
#include "kernels/cuda/runtime.h"
#include "kernels/runtime_library.h"

// Like PANDO_CUDA_CHECK, for cuBLASLt's calls, in scopes that have `api`.
#define PANDO_CUBLAS_CHECK(call) \
  PANDO_STATUS_CHECK(call, #call, CUBLAS_STATUS_SUCCESS, api.GetStatusString)

namespace pando::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // NVIDIA's advice for Hopper
constexpr uint32_t kAlignmentBytes = 16;

struct CublasApi : RuntimeLibrary {
  decltype(cublasLtGetVersion)* GetVersion = Find("cublasLtGetVersion");
  decltype(cublasLtCreate)* Create = Find("cublasLtCreate");
  decltype(cublasLtDestroy)* Destroy = Find("cublasLtDestroy");
  decltype(cublasLtGetStatusString)* GetStatusString = Find("cublasLtGetStatusString");
  decltype(cublasLtMatrixLayoutCreate)* LayoutCreate = Find("cublasLtMatrixLayoutCreate");
  decltype(cublasLtMatrixLayoutDestroy)* LayoutDestroy = Find("cublasLtMatrixLayoutDestroy");
  decltype(cublasLtMatmulDescCreate)* DescCreate = Find("cublasLtMatmulDescCreate");
  decltype(cublasLtMatmulDescDestroy)* DescDestroy = Find("cublasLtMatmulDescDestroy");
  decltype(cublasLtMatmulDescSetAttribute)* DescSetAttribute =
      Find("cublasLtMatmulDescSetAttribute");
  decltype(cublasLtMatmulPreferenceCreate)* PreferenceCreate =
      Find("cublasLtMatmulPreferenceCreate");
  decltype(cublasLtMatmulPreferenceDestroy)* PreferenceDestroy =
      Find("cublasLtMatmulPreferenceDestroy");
  decltype(cublasLtMatmulPreferenceSetAttribute)* PreferenceSetAttribute =
      Find("cublasLtMatmulPreferenceSetAttribute");
  decltype(cublasLtMatmulAlgoGetHeuristic)* AlgoGetHeuristic =
      Find("cublasLtMatmulAlgoGetHeuristic");
  decltype(cublasLtMatmul)* Matmul = Find("cublasLtMatmul");
};

Result<CublasApi> LoadCublas() {
  return LoadFunctions<CublasApi>({"libcublasLt.so.13", "libcublasLt.so.12"});
}

cudaDataType_t DataType(ElementType element) {
  constexpr std::array kTypes{CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F};
  return kTypes.at(static_cast<size_t>(element));
}

cublasLtMatrixLayout_t MakeLayout(const CublasApi& api, cudaDataType_t type, uint64_t rows,
                                  uint64_t cols) {
  cublasLtMatrixLayout_t layout = nullptr;
  PANDO_CUBLAS_CHECK(api.LayoutCreate(&layout, type, rows, cols, static_cast<int64_t>(rows)));
  return layout;
}

// The library is column-major, so for it our row-major c is cᵀ = bᵀ · aᵀ.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr;   // our b
  cublasLtMatrixLayout_t second = nullptr;  // our a
  cublasLtMatrixLayout_t result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

template <class T>
void Set(const CublasApi& api, cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name,
         const T& value) {
  PANDO_CUBLAS_CHECK(api.DescSetAttribute(operation, name, &value, sizeof(value)));
}

cublasLtEpilogue_t ChooseEpilogue(const Product& p) {
  if (p.has_bias) return p.has_relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return p.has_relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

// Returns the library's first choice among algorithms that do not split a sum over blocks that add
// in place. Such blocks add in the order in which they end.
cublasLtMatmulAlgo_t ChooseAlgorithm(const CublasApi& api, cublasLtHandle_t handle,
                                     const Plan& plan, const Product& product) {
  cublasLtMatmulPreference_t preference = nullptr;
  PANDO_CUBLAS_CHECK(api.PreferenceCreate(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
    PANDO_CUBLAS_CHECK(api.PreferenceSetAttribute(preference, name, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(name, kAlignmentBytes);
  }
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t asked =
      api.AlgoGetHeuristic(handle, plan.operation, plan.first, plan.second, plan.result,
                           plan.result, preference, 1, &found, &count);
  PANDO_CUBLAS_CHECK(api.PreferenceDestroy(preference));
  if (asked == CUBLAS_STATUS_SUCCESS && count == 1) return found.algo;
  const std::string text =
      fmt::format("{} rows, {} columns, {} terms a sum: no algorithm may be used ({})",
                  product.rows, product.cols, product.depth, api.GetStatusString(asked));
  CudaFailed("matrix product", text.c_str(), __FILE__, __LINE__);
}

Plan MakePlan(const CublasApi& api, cublasLtHandle_t handle, const CudaOptions& options,
              const Product& p) {
  const cudaDataType_t type = DataType(options.element);
  const bool is_tf32 = options.element == ElementType::kFloat32 && options.allow_tf32;
  Plan plan;
  PANDO_CUBLAS_CHECK(api.DescCreate(
      &plan.operation, is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Set(api, plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(api, plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(api, plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, ChooseEpilogue(p));
  plan.first = p.b_transposed ? MakeLayout(api, type, p.depth, p.cols)
                              : MakeLayout(api, type, p.cols, p.depth);
  plan.second = p.a_transposed ? MakeLayout(api, type, p.rows, p.depth)
                               : MakeLayout(api, type, p.depth, p.rows);
  plan.result = MakeLayout(api, p.is_float ? CUDA_R_32F : type, p.cols, p.rows);
  if (p.has_bias) {  // aligned like biases, so that the choice depends on no address (P35)
    Set(api, plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
        reinterpret_cast<void*>(uintptr_t{kAlignmentBytes}));
  }
  plan.algorithm = ChooseAlgorithm(api, handle, plan, p);
  return plan;
}

void Destroy(const CublasApi& api, const Plan& plan) {
  for (cublasLtMatrixLayout_t layout : {plan.first, plan.second, plan.result}) {
    PANDO_CUBLAS_CHECK(api.LayoutDestroy(layout));
  }
  PANDO_CUBLAS_CHECK(api.DescDestroy(plan.operation));
}

}  // namespace

struct MatrixLibrary::Impl {
  Impl(const CublasApi& cublas, const CudaOptions& o, cudaStream_t s)
      : api(cublas), options(o), stream(s) {
    PANDO_CUBLAS_CHECK(api.Create(&handle));
    PANDO_CUDA_CHECK(cudaMalloc(&workspace, kWorkspaceBytes));
  }
  ~Impl() {
    for (const auto& [product, plan] : plans) Destroy(api, plan);
    PANDO_CUDA_CHECK(cudaFree(workspace));
    PANDO_CUBLAS_CHECK(api.Destroy(handle));
  }

  const CublasApi api;
  const CudaOptions options;
  const cudaStream_t stream;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::map<Product, Plan> plans;
};

Result<std::unique_ptr<MatrixLibrary>> MatrixLibrary::Open(const CudaOptions& options,
                                                           cudaStream_t stream) {
  PANDO_ASSIGN_OR_RETURN(const CublasApi api, LoadCublas());
  return std::make_unique<MatrixLibrary>(std::make_unique<Impl>(api, options, stream));
}

MatrixLibrary::MatrixLibrary(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

bool MatrixLibrary::IsThere() { return LoadCublas().ok(); }

size_t MatrixLibrary::version() const { return impl_->api.GetVersion(); }
MatrixLibrary::~MatrixLibrary() = default;

void MatrixLibrary::Run(const Product& product, const ProductArrays& arrays) {
  const CublasApi& api = impl_->api;
  auto it = impl_->plans.find(product);
  if (it == impl_->plans.end()) {
    const Plan plan = MakePlan(api, impl_->handle, impl_->options, product);
    it = impl_->plans.emplace(product, plan).first;
  }
  const Plan& plan = it->second;
  if (product.has_bias) {
    Set(api, plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, arrays.bias);
  }
  const float one = 1.0f, zero = 0.0f;
  PANDO_CUBLAS_CHECK(api.Matmul(impl_->handle, plan.operation, &one, arrays.b, plan.first, arrays.a,
                                plan.second, &zero, arrays.c, plan.result, arrays.c, plan.result,
                                &plan.algorithm, impl_->workspace, kWorkspaceBytes, impl_->stream));
}

}  // namespace pando::cuda
