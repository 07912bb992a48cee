#include "backend/cpu/onednn.h"

#include <sys/mman.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/cpu/threads.h"
#include "base/error.h"
#include "tensor/rehearsal.h"
#include "tensor/storage.h"

namespace lockstep::cpu {
namespace {

using dnnl::memory;
using Dims = memory::dims;

memory::data_type type_of(DType dtype) {
  return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// A rows x columns matrix with its rows `stride` elements apart.
memory::desc matrix(int64_t rows, int64_t columns, DType dtype, int64_t stride) {
  return {Dims{rows, columns}, type_of(dtype), Dims{stride, 1}};
}

template <typename Function>
auto guarded(const char* operation, Function&& function) {
  try {
    return function();
  } catch (const dnnl::error& e) {
    fail(e.status == dnnl_out_of_memory ? Code::kMemory : Code::kInternal, operation,
         std::string("oneDNN refused: ") + e.message);
  }
}

struct OneDnnMatrix : PackedMatrix {
  memory values;
  std::shared_ptr<std::byte> storage;
};

// One packed form per layout that a geometry asks for.
using OneDnnFilter = std::vector<std::pair<memory, std::shared_ptr<std::byte>>>;

const memory& values_of(const PackedMatrix& matrix) {
  return static_cast<const OneDnnMatrix&>(matrix).values;
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// oneDNN 2.6 writes its machine code without asking whether it got the memory for it: see first that there is some.
void check_room_for_code() {
  constexpr size_t kRoom = size_t{8} << 20;
  void* room = mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    fail(Code::kMemory, "allocate", "the system has no " + std::to_string(kRoom) + " bytes to give");
  munmap(room, kRoom);
}

}  // namespace

struct OneDnn::Primitives {
  using Key = std::array<int64_t, 16>;
  struct Prepared {
    dnnl::primitive primitive;
    std::vector<dnnl::memory::desc> arguments;  // in the order of the caller
    size_t scratch_bytes = 0;
    dnnl::memory::desc scratch;
  };

  explicit Primitives(int threads) : threads_(threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  std::shared_ptr<const PackedMatrix> pack(const Tensor& weight, DType dtype);
  void multiply(const MatrixProduct& product);
  void convolve(const Conv2dArgs& args, const PackedFilter& filter);

  int threads_for(int64_t products) const;
  void execute(const dnnl::primitive& primitive, const std::unordered_map<int, dnnl::memory>& arguments);
  dnnl::memory::desc product_weight(int64_t rows, int64_t n, int64_t k, DType dtype);
  // A primitive is made for one thread count, the current one.
  const Prepared& product(const MatrixProduct& p, int threads);
  const Prepared& convolution(const Conv2dArgs& args, const PackedFilter& filter, int threads);
  const dnnl::memory& packed(const PackedFilter& filter, const dnnl::memory::desc& wanted);

  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Prepared>> prepared_;
};

OneDnn::OneDnn(int threads) : primitives_(std::make_unique<Primitives>(threads)) {}
OneDnn::~OneDnn() = default;

bool OneDnn::is_there() {
  return true;
}

std::string OneDnn::version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

void OneDnn::limit(Level level) {
#if defined(__x86_64__)
  using dnnl::cpu_isa;
  const cpu_isa isa = level == Level::kAmx          ? cpu_isa::all
                      : level == Level::kAvx512Bf16 ? cpu_isa::avx512_core_bf16
                      : level == Level::kAvx512     ? cpu_isa::avx512_core
                      : level == Level::kAvx2       ? cpu_isa::avx2
                                                    : cpu_isa::sse41;
  // Refused only if a primitive was made before us; then oneDNN already runs with what it detected, and the one
  // dangerous case, tiles without their palette, must not go on.
  if (dnnl::set_max_cpu_isa(isa) != dnnl::status::success && level != Level::kAmx &&
      dnnl::get_effective_cpu_isa() == cpu_isa::avx512_core_amx)
    fail(Code::kInternal, "cpu", "oneDNN was used before its instruction set could be limited");
#else
  (void)level;
#endif
}

std::shared_ptr<const PackedMatrix> OneDnn::pack(const Tensor& weight, DType dtype) {
  return primitives_->pack(weight, dtype);
}

void OneDnn::multiply(const MatrixProduct& product) {
  primitives_->multiply(product);
}

void OneDnn::convolve(const Conv2dArgs& args, const PackedFilter& filter) {
  primitives_->convolve(args, filter);
}

int OneDnn::Primitives::threads_for(int64_t products) const {
  return products / kProductsPerOperation < kWorthAThread ? 1 : threads_;
}

void OneDnn::Primitives::execute(const dnnl::primitive& primitive, const std::unordered_map<int, memory>& arguments) {
  if (rehearsing()) return;
  primitive.execute(stream_, arguments);
  stream_.wait();
}

// The layout is asked for at a middling number of rows and then kept for all.
memory::desc OneDnn::Primitives::product_weight(int64_t rows, int64_t n, int64_t k, DType dtype) {
  const dnnl::matmul::desc desc(matrix(rows, k, dtype, k), {Dims{k, n}, type_of(dtype), memory::format_tag::any},
                                matrix(rows, n, dtype, n));
  return dnnl::matmul::primitive_desc(desc, attributes(), engine_).weights_desc();
}

std::shared_ptr<const PackedMatrix> OneDnn::Primitives::pack(const Tensor& weight, DType dtype) {
  return guarded("prepare", [&] {
    const ThreadsForOneDnn scope(threads_);
    auto packed = std::make_shared<OneDnnMatrix>();
    packed->n = weight.dim(0);
    packed->k = weight.dim(1);
    packed->dtype = dtype;
    const memory::desc layout = product_weight(1024, packed->n, packed->k, dtype);
    packed->storage = allocate_bytes(layout.get_size());
    packed->values = memory(layout, engine_, packed->storage.get());
    const Tensor source = weight.to(dtype).contiguous();
    // [N, K] row major is [K, N] column major.
    const memory::desc plain({packed->k, packed->n}, type_of(dtype), Dims{1, packed->k});
    memory from(plain, engine_, const_cast<std::byte*>(source.strided_data()));
    execute(dnnl::reorder(from, packed->values), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, packed->values}});
    return std::shared_ptr<const PackedMatrix>(packed);
  });
}

const OneDnn::Primitives::Prepared& OneDnn::Primitives::product(const MatrixProduct& p, int threads) {
  const Key key = {0,
                   threads,
                   p.rows,
                   p.weight.n,
                   p.weight.k,
                   p.x_stride,
                   p.out_stride,
                   static_cast<int64_t>(p.weight.dtype),
                   static_cast<int64_t>(p.out_dtype),
                   p.bias != nullptr};
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Prepared>& slot = prepared_[key];
  if (slot) return *slot;
  check_room_for_code();
  const memory::desc x = matrix(p.rows, p.weight.k, p.weight.dtype, p.x_stride);
  const memory::desc out = matrix(p.rows, p.weight.n, p.out_dtype, p.out_stride);
  const memory::desc weight = values_of(p.weight).get_desc();
  const memory::desc bias = matrix(1, p.weight.n, DType::kF32, p.weight.n);
  const dnnl::matmul::desc desc =
      p.bias ? dnnl::matmul::desc(x, weight, bias, out) : dnnl::matmul::desc(x, weight, out);
  const dnnl::matmul::primitive_desc primitive(desc, attributes(), engine_);
  auto made = std::make_unique<Prepared>();
  made->primitive = dnnl::matmul(primitive);
  made->arguments = {x, weight, out, bias};
  made->scratch = primitive.scratchpad_desc();
  made->scratch_bytes = made->scratch.get_size();
  slot = std::move(made);
  return *slot;
}

void OneDnn::Primitives::multiply(const MatrixProduct& p) {
  guarded("linear", [&] {
    const int threads = threads_for(p.rows * p.weight.n * p.weight.k);
    const ThreadsForOneDnn scope(threads);
    const Prepared& ready = product(p, threads);
    const std::shared_ptr<std::byte> scratch = allocate_bytes(ready.scratch_bytes);
    std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, {ready.arguments[0], engine_, const_cast<void*>(p.x)}},
                                                 {DNNL_ARG_WEIGHTS, values_of(p.weight)},
                                                 {DNNL_ARG_DST, {ready.arguments[2], engine_, p.out}},
                                                 {DNNL_ARG_SCRATCHPAD, {ready.scratch, engine_, scratch.get()}}};
    if (p.bias) arguments[DNNL_ARG_BIAS] = {ready.arguments[3], engine_, const_cast<float*>(p.bias)};
    execute(ready.primitive, arguments);
  });
}

const OneDnn::Primitives::Prepared& OneDnn::Primitives::convolution(const Conv2dArgs& args, const PackedFilter& filter,
                                                                    int threads) {
  const Tensor &x = args.x, &w = filter.weight, &out = args.out;
  const Key key = {1,
                   threads,
                   x.dim(0),
                   x.dim(1),
                   x.dim(2),
                   x.dim(3),
                   out.dim(1),
                   out.dim(2),
                   out.dim(3),
                   w.dim(2),
                   w.dim(3),
                   args.stride,
                   args.pad_top << 16 | args.pad_left,
                   args.pad_bottom << 16 | args.pad_right,
                   static_cast<int64_t>(w.dtype()),
                   (filter.bias.defined() ? 2 : 0) + (args.residual ? 1 : 0)};
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Prepared>& slot = prepared_[key];
  if (slot) return *slot;
  check_room_for_code();
  const memory::data_type type = type_of(w.dtype());
  using Tag = memory::format_tag;
  const memory::desc source({x.dim(0), x.dim(3), x.dim(1), x.dim(2)}, type, Tag::nhwc);
  const memory::desc target({out.dim(0), out.dim(3), out.dim(1), out.dim(2)}, type, Tag::nhwc);
  const memory::desc weights({w.dim(0), w.dim(1), w.dim(2), w.dim(3)}, type, Tag::any);
  const memory::desc bias =
      filter.bias.defined() ? memory::desc({w.dim(0)}, memory::data_type::f32, Tag::a) : memory::desc();
  dnnl::primitive_attr attr = attributes();
  if (args.residual) {
    dnnl::post_ops post;
    post.append_binary(dnnl::algorithm::binary_add, target);
    attr.set_post_ops(post);
  }
  const Dims strides = {args.stride, args.stride};
  const Dims before = {args.pad_top, args.pad_left}, after = {args.pad_bottom, args.pad_right};
  using Convolution = dnnl::convolution_forward;
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const Convolution::desc desc =
      filter.bias.defined() ? Convolution::desc(kind, algorithm, source, weights, bias, target, strides, before, after)
                            : Convolution::desc(kind, algorithm, source, weights, target, strides, before, after);
  const Convolution::primitive_desc primitive(desc, attr, engine_);
  auto made = std::make_unique<Prepared>();
  made->primitive = Convolution(primitive);
  made->arguments = {source, primitive.weights_desc(), target, bias};
  made->scratch = primitive.scratchpad_desc();
  made->scratch_bytes = made->scratch.get_size();
  slot = std::move(made);
  return *slot;
}

const memory& OneDnn::Primitives::packed(const PackedFilter& filter, const memory::desc& wanted) {
  const std::lock_guard lock(filter.mutex);
  if (!filter.packed) filter.packed = std::make_shared<OneDnnFilter>();
  OneDnnFilter& forms = *static_cast<OneDnnFilter*>(filter.packed.get());
  for (const auto& [memory, storage] : forms)
    if (memory.get_desc() == wanted) return memory;
  const std::shared_ptr<std::byte> storage = allocate_bytes(wanted.get_size());
  memory to(wanted, engine_, storage.get());
  const Tensor& w = filter.weight;
  memory from({{w.dim(0), w.dim(1), w.dim(2), w.dim(3)}, type_of(w.dtype()), memory::format_tag::oihw}, engine_,
              const_cast<std::byte*>(w.strided_data()));
  execute(dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  forms.reserve(16);  // references handed out stay valid: more layouts than this do not exist
  if (forms.size() >= 16) fail(Code::kInternal, "conv2d", "too many layouts of one filter");
  forms.emplace_back(to, storage);
  return forms.back().first;
}

void OneDnn::Primitives::convolve(const Conv2dArgs& args, const PackedFilter& filter) {
  guarded("conv2d", [&] {
    const Tensor& w = filter.weight;
    const int threads = threads_for(args.out.numel() * w.dim(1) * w.dim(2) * w.dim(3));
    const ThreadsForOneDnn scope(threads);
    const Prepared& ready = convolution(args, filter, threads);
    const memory& weights = packed(filter, ready.arguments[1]);
    const std::shared_ptr<std::byte> scratch = allocate_bytes(ready.scratch_bytes);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, {ready.arguments[0], engine_, const_cast<std::byte*>(args.x.strided_data())}},
        {DNNL_ARG_WEIGHTS, weights},
        {DNNL_ARG_DST, {ready.arguments[2], engine_, args.out.mutable_strided_data()}},
        {DNNL_ARG_SCRATCHPAD, {ready.scratch, engine_, scratch.get()}}};
    if (filter.bias.defined())
      arguments[DNNL_ARG_BIAS] = {ready.arguments[3], engine_, const_cast<float*>(filter.bias.data<float>())};
    if (args.residual)
      arguments[DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1] = {
          ready.arguments[2], engine_, const_cast<std::byte*>(args.residual->strided_data())};
    execute(ready.primitive, arguments);
  });
}

}  // namespace lockstep::cpu
