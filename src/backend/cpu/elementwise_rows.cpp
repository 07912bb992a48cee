#include <cmath>

#include "backend/cpu/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/elementwise_rows.cpp"
#include "tensor/simd_targets.h"
// after the choice of targets
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after the target headers
#include "backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

template <typename T, typename Function>
HWY_INLINE void map_rows(const UnaryRows& task, int64_t begin, int64_t end, Function&& function) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = task.x.at<T>(row);
    T* out = task.out.at<T>(row);
    sweep(task.x.columns(), [&](int64_t i, auto part) HWY_ATTR { put(function(load(x + i, part)), out + i, part); });
  }
}

// Functions of few elements and much consequence (timestep features: one unit in the last place of a frequency moves a
// feature by 5e-5): computed in double and rounded once.
template <typename T>
HWY_INLINE void map_exactly(const UnaryRows& task, int64_t begin, int64_t end, double (*function)(double)) {
  HWY_ALIGN float block[hn::MaxLanes(kFloat)];
  for (int64_t row = begin; row < end; ++row) {
    const T* x = task.x.at<T>(row);
    T* out = task.out.at<T>(row);
    sweep(task.x.columns(), [&](int64_t i, auto part) HWY_ATTR {
      store(load(x + i, part), block);
      for (float& value : block) value = static_cast<float>(function(static_cast<double>(value)));
      store(load(block), out + i, part);
    });
  }
}

template <typename T>
void unary_as(const UnaryRows& task, int64_t begin, int64_t end) {
  switch (task.op) {
    case UnaryOp::kSilu:
      return map_rows<T>(task, begin, end, [](Vector x) HWY_ATTR { return silu(x); });
    case UnaryOp::kGeluTanh:
      return map_rows<T>(task, begin, end, [](Vector x) HWY_ATTR { return gelu_tanh(x); });
    case UnaryOp::kGeluErf:
      return map_rows<T>(task, begin, end, [](Vector x) HWY_ATTR { return gelu_erf(x); });
    case UnaryOp::kNegate:
      return map_rows<T>(task, begin, end, [](Vector x) HWY_ATTR { return hn::Neg(x); });
    case UnaryOp::kClampUnit:
      return map_rows<T>(task, begin, end, [](Vector x) HWY_ATTR {
        const auto one = hn::Set(kFloat, 1.0f);
        return hn::IfThenElse(hn::IsNaN(x), x, hn::Max(hn::Min(x, one), hn::Neg(one)));
      });
    case UnaryOp::kCos:
      return map_exactly<T>(task, begin, end, [](double x) { return std::cos(x); });
    case UnaryOp::kSin:
      return map_exactly<T>(task, begin, end, [](double x) { return std::sin(x); });
    case UnaryOp::kExp:
      return map_exactly<T>(task, begin, end, [](double x) { return std::exp(x); });
  }
}

template <typename T>
HWY_INLINE Vector spread(const T* at) {  // one element in every lane
  HWY_ALIGN T block[hn::MaxLanes(kFloat)];
  for (T& value : block) value = *at;
  return load(block);
}

template <typename T, typename Function>
HWY_INLINE void combine_rows(const BinaryRows& task, int64_t begin, int64_t end, Function&& function) {
  const int64_t width = task.out.columns();
  for (int64_t row = begin; row < end; ++row) {
    const T *a = task.a.at<T>(row), *b = task.b.at<T>(row);
    T* out = task.out.at<T>(row);
    const Vector all_a = task.a_scalar ? spread(a) : hn::Zero(kFloat);
    const Vector all_b = task.b_scalar ? spread(b) : hn::Zero(kFloat);
    if (!task.a_scalar && !task.b_scalar)
      sweep(width,
            [&](int64_t i, auto part) HWY_ATTR { put(function(load(a + i, part), load(b + i, part)), out + i, part); });
    else
      sweep(width, [&](int64_t i, auto part) HWY_ATTR {
        const Vector left = task.a_scalar ? all_a : load(a + i, part);
        put(function(left, task.b_scalar ? all_b : load(b + i, part)), out + i, part);
      });
  }
}

template <typename T>
void binary_as(const BinaryRows& task, int64_t begin, int64_t end) {
  switch (task.op) {
    case BinaryOp::kAdd:
      return combine_rows<T>(task, begin, end, [](Vector a, Vector b) HWY_ATTR { return hn::Add(a, b); });
    case BinaryOp::kSubtract:
      return combine_rows<T>(task, begin, end, [](Vector a, Vector b) HWY_ATTR { return hn::Sub(a, b); });
    case BinaryOp::kMultiply:
      return combine_rows<T>(task, begin, end, [](Vector a, Vector b) HWY_ATTR { return hn::Mul(a, b); });
    case BinaryOp::kDivide:
      return combine_rows<T>(task, begin, end, [](Vector a, Vector b) HWY_ATTR { return hn::Div(a, b); });
    case BinaryOp::kSiluMultiply:
      return combine_rows<T>(task, begin, end, [](Vector a, Vector b) HWY_ATTR { return hn::Mul(silu(a), b); });
  }
}

template <typename T, typename Writer>
void add_gated_with(const AddGatedRows& task, int64_t begin, int64_t end) {
  const int64_t width = task.x.columns();
  for (int64_t row = begin; row < end; ++row) {
    const T *x = task.x.at<T>(row), *y = task.y.at<T>(row);
    const float* gate = task.gate + row / task.rows_per_batch * width;
    T* out = task.out.at<T>(row);
    sweep(width, [&](int64_t i, auto part) HWY_ATTR {
      Writer::put(hn::MulAdd(load(gate + i, part), load(y + i, part), load(x + i, part)), out + i, part);
    });
  }
}

template <typename T>
void add_gated_as(const AddGatedRows& task, int64_t begin, int64_t end) {
  if (task.out.worth_streaming() && task.out.base() != task.x.base() && task.out.base() != task.y.base())
    add_gated_with<T, Past>(task, begin, end);
  else
    add_gated_with<T, Usual>(task, begin, end);
}

template <typename T, typename Activate>
HWY_INLINE void epilogue_with(const EpilogueRows& task, int64_t begin, int64_t end, int64_t first, int64_t last,
                              int64_t columns, Activate&& activate) {
  for (int64_t row = begin; row < end; ++row) {
    const float* y = task.y + (row - begin) * task.y_stride;
    const float* bias = task.bias ? task.bias + first : nullptr;
    const T* multiply = task.multiply ? task.multiply->at<T>(row) + first : nullptr;
    const T* residual = task.residual ? task.residual->at<T>(row) + first : nullptr;
    const float* gate = task.gate ? task.gate + row / task.rows_per_batch * columns + first : nullptr;
    T* out = task.out.at<T>(row) + first;
    sweep(last - first, [&](int64_t i, auto part) HWY_ATTR {
      Vector v = load(y + i, part);
      if (bias) v = hn::Add(v, load(bias + i, part));
      v = activate(v);
      if (multiply) v = hn::Mul(v, load(multiply + i, part));
      if (gate) v = hn::Mul(v, load(gate + i, part));
      if (residual) v = hn::Add(v, load(residual + i, part));
      put(v, out + i, part);
    });
  }
}

template <typename T>
void epilogue_as(const EpilogueRows& task, int64_t begin, int64_t end, int64_t first, int64_t last) {
  const int64_t columns = task.out.columns();
  switch (task.activation) {
    case Activation::kNone:
      return epilogue_with<T>(task, begin, end, first, last, columns, [](Vector x) HWY_ATTR { return x; });
    case Activation::kGeluTanh:
      return epilogue_with<T>(task, begin, end, first, last, columns, [](Vector x) HWY_ATTR { return gelu_tanh(x); });
    case Activation::kGeluErf:
      return epilogue_with<T>(task, begin, end, first, last, columns, [](Vector x) HWY_ATTR { return gelu_erf(x); });
    case Activation::kSilu:
      return epilogue_with<T>(task, begin, end, first, last, columns, [](Vector x) HWY_ATTR { return silu(x); });
  }
}

template <typename From, typename To>
HWY_INLINE void convert_as(const void* from, void* to, int64_t count) {
  const From* in = static_cast<const From*>(from);
  To* out = static_cast<To*>(to);
  sweep(count, [&](int64_t i, auto part) HWY_ATTR { store(load(in + i, part), out + i, part); });
}

void Unary(const UnaryRows& task, int64_t begin, int64_t end) {
  if (task.dtype == DType::kBF16) return unary_as<BFloat16>(task, begin, end);
  if (task.dtype == DType::kF16) return unary_as<Half>(task, begin, end);
  unary_as<float>(task, begin, end);
}
void Binary(const BinaryRows& task, int64_t begin, int64_t end) {
  if (task.dtype == DType::kBF16) return binary_as<BFloat16>(task, begin, end);
  if (task.dtype == DType::kF16) return binary_as<Half>(task, begin, end);
  binary_as<float>(task, begin, end);
}
void AddGated(const AddGatedRows& task, int64_t begin, int64_t end) {
  if (task.dtype == DType::kBF16) return add_gated_as<BFloat16>(task, begin, end);
  if (task.dtype == DType::kF16) return add_gated_as<Half>(task, begin, end);
  add_gated_as<float>(task, begin, end);
}
void Epilogue(const EpilogueRows& task, int64_t begin, int64_t end, int64_t first, int64_t last) {
  if (task.dtype == DType::kBF16) return epilogue_as<BFloat16>(task, begin, end, first, last);
  if (task.dtype == DType::kF16) return epilogue_as<Half>(task, begin, end, first, last);
  epilogue_as<float>(task, begin, end, first, last);
}
void Convert(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) {
  const auto into = [&](auto* source) HWY_ATTR {
    using From = std::remove_pointer_t<decltype(source)>;
    if (to_dtype == DType::kBF16) return convert_as<From, BFloat16>(from, to, count);
    if (to_dtype == DType::kF16) return convert_as<From, Half>(from, to, count);
    convert_as<From, float>(from, to, count);
  };
  if (from_dtype == DType::kBF16) return into(static_cast<BFloat16*>(nullptr));
  if (from_dtype == DType::kF16) return into(static_cast<Half*>(nullptr));
  into(static_cast<float*>(nullptr));
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {

HWY_EXPORT(Unary);
HWY_EXPORT(Binary);
HWY_EXPORT(AddGated);
HWY_EXPORT(Epilogue);
HWY_EXPORT(Convert);

void unary_rows(const UnaryRows& task, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Unary)(task, begin, end);
}
void binary_rows(const BinaryRows& task, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Binary)(task, begin, end);
}
void add_gated_rows(const AddGatedRows& task, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(AddGated)(task, begin, end);
}
void epilogue_block(const EpilogueRows& task, int64_t begin, int64_t end, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(Epilogue)(task, begin, end, first, last);
}
void convert_run(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Convert)(from, from_dtype, to, to_dtype, count);
}

}  // namespace lockstep::cpu
#endif
