// Dense products by cuBLASLt, opened at run time. The first product of a shape asks the library for candidates and,
// when it may, times those that give the same bits as the first; later ones reuse the winner. So no result depends on
// how long something took.
#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/cuda/leaf/context.h"
#include "backend/cuda/leaf/kernels.cuh"

namespace lockstep::cuda {
namespace {

constexpr size_t kWorkspace = size_t{64} << 20;
constexpr int kCandidates = 40, kTimings = 3;
constexpr double kWorthTiming = 2e9;  // operations
constexpr int kFloat32 = 1;           // lockstep::DType

struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
};

using Key = std::array<int64_t, 23>;

struct Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, c = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool supported = false;
};

cudaDataType_t type_of(int dtype) {
  switch (dtype) {
    case 1:
      return CUDA_R_32F;
    case 2:
      return CUDA_R_16F;
    case 3:
      return CUDA_R_16BF;
    default:
      return CUDA_R_8F_E4M3;
  }
}

}  // namespace

class CublasLt {
 public:
  Functions f{};
  cublasLtHandle_t handle = nullptr;
  void* workspaces[kStreams] = {};
  std::map<Key, Plan> plans;
  std::mutex mutex;
};

std::shared_ptr<CublasLt> open_cublaslt(const char* path, std::string& why) {
  if (!path) {
    why = "no libcublasLt.so.13 was found";
    return nullptr;
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    why = dlerror();
    return nullptr;
  }
  auto lt = std::make_shared<CublasLt>();
  bool whole = true;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    whole = whole && function;
  };
  load(lt->f.create, "cublasLtCreate");
  load(lt->f.version, "cublasLtGetVersion");
  load(lt->f.matmul, "cublasLtMatmul");
  load(lt->f.desc_create, "cublasLtMatmulDescCreate");
  load(lt->f.desc_destroy, "cublasLtMatmulDescDestroy");
  load(lt->f.desc_set, "cublasLtMatmulDescSetAttribute");
  load(lt->f.layout_create, "cublasLtMatrixLayoutCreate");
  load(lt->f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  load(lt->f.layout_set, "cublasLtMatrixLayoutSetAttribute");
  load(lt->f.preference_create, "cublasLtMatmulPreferenceCreate");
  load(lt->f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  load(lt->f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  load(lt->f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  if (!whole) {
    why = std::string(path) + " lacks a function of cuBLASLt 13";
    return nullptr;
  }
  if (lt->f.create(&lt->handle) != CUBLAS_STATUS_SUCCESS) {
    why = "cublasLtCreate failed";
    return nullptr;
  }
  for (void*& workspace : lt->workspaces)
    if (&workspace - lt->workspaces < 2 && cudaMalloc(&workspace, kWorkspace) != cudaSuccess) {
      why = "no device memory for cuBLASLt's workspace";
      return nullptr;
    }
  return lt;
}

int version_of(const CublasLt& lt) {
  return static_cast<int>(lt.f.version());
}

namespace {

template <typename T>
void set(const Functions& f, cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  f.desc_set(desc, attribute, &value, sizeof(value));
}

cublasLtMatrixLayout_t layout(const Functions& f, int dtype, int64_t rows, int64_t columns, int64_t leading,
                              int64_t batch, int64_t batch_stride) {
  cublasLtMatrixLayout_t made = nullptr;
  f.layout_create(&made, type_of(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), leading);
  const int32_t count = static_cast<int32_t>(batch);
  f.layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
  f.layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride, sizeof(batch_stride));
  return made;
}

// What of the pointers matters to the choice of a kernel: how they are aligned, and which are there.
int64_t alignment(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return !pointer ? 0 : address % 16 == 0 ? 16 : address % 8 == 0 ? 8 : address % 4 == 0 ? 4 : 2;
}

Key key_of(const MatmulTask& t) {
  return {t.operand_dtype,
          t.out_dtype,
          t.m,
          t.n,
          t.k,
          t.batch,
          t.x_row,
          t.w_row,
          t.out_row,
          t.residual_row,
          t.x_batch,
          t.w_batch,
          t.out_batch,
          t.residual_batch,
          t.w_is_k_by_n,
          t.gelu_tanh,
          alignment(t.x),
          alignment(t.w),
          alignment(t.out),
          alignment(t.residual),
          t.bias != nullptr,
          t.x_scale != nullptr,
          t.w_scale != nullptr};
}

// The library is column-major: it computes out^T = w^T-or-w * x^T.
void point(const Functions& f, Plan& plan, const MatmulTask& task) {
  if (task.bias) set(f, plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, task.bias);
  if (task.w_scale) set(f, plan.desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, task.w_scale);
  if (task.x_scale) set(f, plan.desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, task.x_scale);
}

cublasStatus_t run(CublasLt& lt, const Plan& plan, const MatmulTask& task, const cublasLtMatmulAlgo_t& algorithm,
                   void* workspace, cudaStream_t stream) {
  const float beta = task.residual ? 1.0f : 0.0f;
  return lt.f.matmul(lt.handle, plan.desc, &task.alpha, task.w, plan.w, task.x, plan.x, &beta,
                     task.residual ? task.residual : task.out, plan.c, task.out, plan.out, &algorithm, workspace,
                     kWorkspace, stream);
}

// For few rows and a long K the library names no kernel for scales by row, since it would cut K; those it names for a
// shorter K do it as well.
int borrow(CublasLt& lt, const Plan& plan, const MatmulTask& task, cublasLtMatmulPreference_t preference,
           std::vector<cublasLtMatmulHeuristicResult_t>& found, void* workspace, cudaStream_t stream) {
  if (task.w_is_k_by_n) return 0;
  for (int64_t k = task.k / 2; k >= 1024 && k % 16 == 0; k /= 2) {
    const cublasLtMatrixLayout_t w = layout(lt.f, task.operand_dtype, k, task.n, task.w_row, task.batch, task.w_batch),
                                 x = layout(lt.f, task.operand_dtype, k, task.m, task.x_row, task.batch, task.x_batch);
    int count = 0;
    if (lt.f.heuristic(lt.handle, plan.desc, w, x, plan.c, plan.out, preference, kCandidates, found.data(), &count) !=
        CUBLAS_STATUS_SUCCESS)
      count = 0;
    lt.f.layout_destroy(w);
    lt.f.layout_destroy(x);
    int kept = 0;
    for (int i = 0; i < count; ++i)
      if (run(lt, plan, task, found[static_cast<size_t>(i)].algo, workspace, stream) == CUBLAS_STATUS_SUCCESS)
        found[static_cast<size_t>(kept++)] = found[static_cast<size_t>(i)];
    if (kept > 0) return kept;
  }
  return 0;
}

// Of what the last product wrote, once it is done. The workspace is free by then.
uint64_t bits_of_result(const MatmulTask& task, void* workspace, cudaStream_t stream) {
  const int64_t words = task.out_dtype == kFloat32 ? 2 : 1;
  auto* sum = static_cast<unsigned long long*>(workspace);
  unsigned long long found = 0;
  const WordRows rows{static_cast<const uint16_t*>(task.out),
                      task.batch,
                      task.m,
                      task.n * words,
                      task.out_batch * words,
                      task.out_row * words};
  if (fingerprint(rows, sum, stream) != Outcome::kDone) return 0;
  cudaMemcpyAsync(&found, sum, sizeof(found), cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  return found;
}

void choose(CublasLt& lt, Plan& plan, const MatmulTask& task, bool tune, void* workspace, cudaStream_t stream) {
  cublasLtMatmulPreference_t preference = nullptr;
  lt.f.preference_create(&preference);
  lt.f.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof(kWorkspace));
  // Parts of K are added up in f32: sums of f16 or bf16 would round once for each.
  const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  lt.f.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof(reduction));
  const auto bytes = [](const void* p) { return static_cast<uint32_t>(alignment(p) ? alignment(p) : 16); };
  for (const auto& [attribute, value] :
       {std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes(task.w)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes(task.x)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes(task.residual ? task.residual : task.out)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes(task.out)}})
    lt.f.preference_set(preference, attribute, &value, sizeof(value));
  std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
  int count = 0;
  if (lt.f.heuristic(lt.handle, plan.desc, plan.w, plan.x, plan.c, plan.out, preference, kCandidates, found.data(),
                     &count) != CUBLAS_STATUS_SUCCESS)
    count = 0;
  if (count == 0 && task.x_scale) count = borrow(lt, plan, task, preference, found, workspace, stream);
  lt.f.preference_destroy(preference);
  if (count == 0) return;
  plan.algorithm = found[0].algo;
  plan.supported = true;
  const double work = 2.0 * static_cast<double>(task.m) * static_cast<double>(task.n) * static_cast<double>(task.k) *
                      static_cast<double>(task.batch);
  const double traffic = static_cast<double>(task.n) * static_cast<double>(task.k);
  if (!tune || task.residual == task.out || (work < kWorthTiming && traffic < 4e6)) return;
  cudaEvent_t begin, end;
  if (cudaEventCreate(&begin) != cudaSuccess || cudaEventCreate(&end) != cudaSuccess) return;
  float best = 1e30f;
  std::optional<uint64_t> expected;
  for (int i = 0; i < count; ++i) {
    if (run(lt, plan, task, found[static_cast<size_t>(i)].algo, workspace, stream) != CUBLAS_STATUS_SUCCESS) continue;
    const uint64_t bits = bits_of_result(task, workspace, stream);
    if (bits != expected.value_or(bits)) continue;
    expected = bits;
    float quickest = 1e30f;
    for (int repeat = 0; repeat < kTimings; ++repeat) {
      // Out of the cache with the weights: in a model they come from memory each time. The workspace is larger than it.
      cudaMemsetAsync(workspace, 0, kWorkspace, stream);
      cudaEventRecord(begin, stream);
      run(lt, plan, task, found[static_cast<size_t>(i)].algo, workspace, stream);
      cudaEventRecord(end, stream);
      cudaEventSynchronize(end);
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      if (ms < quickest) quickest = ms;
    }
    if (quickest < best) {
      best = quickest;
      plan.algorithm = found[static_cast<size_t>(i)].algo;
    }
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

Plan make_plan(CublasLt& lt, const MatmulTask& t) {
  Plan plan;
  lt.f.desc_create(&plan.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const int32_t w_operation = t.w_is_k_by_n ? CUBLAS_OP_N : CUBLAS_OP_T;
  set(lt.f, plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, w_operation);
  const uint32_t epilogue = t.gelu_tanh ? (t.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU)
                                        : (t.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
  set(lt.f, plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (t.bias) {
    const int32_t bias_type = type_of(t.out_dtype);
    set(lt.f, plan.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type);
  }
  const int32_t by_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  if (t.w_scale) set(lt.f, plan.desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, by_row);
  if (t.x_scale) set(lt.f, plan.desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, by_row);
  // Sums of e4m3 products in the tensor cores' own precision: far finer than the operands, and half again as fast.
  const int8_t fast = 1;
  if (t.x_scale) set(lt.f, plan.desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
  plan.w = t.w_is_k_by_n ? layout(lt.f, t.operand_dtype, t.n, t.k, t.w_row, t.batch, t.w_batch)
                         : layout(lt.f, t.operand_dtype, t.k, t.n, t.w_row, t.batch, t.w_batch);
  plan.x = layout(lt.f, t.operand_dtype, t.k, t.m, t.x_row, t.batch, t.x_batch);
  plan.c = layout(lt.f, t.out_dtype, t.n, t.m, t.residual ? t.residual_row : t.out_row, t.batch,
                  t.residual ? t.residual_batch : t.out_batch);
  plan.out = layout(lt.f, t.out_dtype, t.n, t.m, t.out_row, t.batch, t.out_batch);
  return plan;
}

}  // namespace

Outcome matmul(Context context, const MatmulTask* task, int tune, Stream stream) {
  Device& device = *static_cast<Device*>(context);
  if (!device.lt) return unsupported("dense products need cuBLASLt, which was not found");
  CublasLt& lt = *device.lt;
  const std::lock_guard lock(lt.mutex);
  void* workspace = lt.workspaces[stream == device.streams[1] ? 1 : 0];
  const auto on = static_cast<cudaStream_t>(stream);
  auto [at, fresh] = lt.plans.try_emplace(key_of(*task));
  Plan& plan = at->second;
  if (fresh) plan = make_plan(lt, *task);
  point(lt.f, plan, *task);
  if (fresh) choose(lt, plan, *task, tune != 0, workspace, on);
  if (!plan.supported) return unsupported("cuBLASLt has no kernel for this product");
  const cublasStatus_t status = run(lt, plan, *task, plan.algorithm, workspace, on);
  if (status == CUBLAS_STATUS_SUCCESS) return Outcome::kDone;
  return failed(("cublasLtMatmul: status " + std::to_string(static_cast<int>(status))).c_str());
}

}  // namespace lockstep::cuda
