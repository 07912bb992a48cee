#include <numbers>
#include <stdexcept>

#include "backend/kernels.h"
#include "backend/mlx/leaf/kernels.h"

namespace lockstep::mlx {
namespace {

using Arrays = std::vector<mx::array>;

mx::array number(double value) {
  return mx::array(static_cast<float>(value));
}

Arrays gated(const Arrays& in) {  // x, gate, y
  return {mx::add(f32(in[0]), mx::multiply(f32(in[1]), f32(in[2])))};
}

Arrays silu_of(const Arrays& in) {
  return {silu(f32(in[0]))};
}
Arrays gelu_tanh_of(const Arrays& in) {
  return {gelu_tanh(f32(in[0]))};
}
Arrays gelu_erf_of(const Arrays& in) {
  return {gelu_erf(f32(in[0]))};
}
Arrays cos_of(const Arrays& in) {
  return {mx::cos(f32(in[0]))};
}
Arrays sin_of(const Arrays& in) {
  return {mx::sin(f32(in[0]))};
}
// MLX's CPU form multiplies by log2(e) before it takes the fraction, and so loses a bit for each doubling of |x|: the
// whole part comes off first, in two steps that round once.
Arrays exp_of(const Arrays& in) {
  const mx::array x = f32(in[0]);
  if (on_gpu()) return {mx::exp(x)};
  const mx::array whole = mx::round(mx::multiply(x, number(std::numbers::log2e)), 0);
  const mx::array most = mx::subtract(x, mx::multiply(whole, number(0.693359375)));  // exact: ln 2 to nine bits
  const mx::array rest = mx::add(most, mx::multiply(whole, number(2.12194440054690583e-4)));
  const mx::array fine = mx::multiply(mx::exp(rest), mx::power(number(2), whole));
  return {mx::where(mx::less(mx::abs(x), number(87)), fine, mx::exp(x))};
}
Arrays clamped(const Arrays& in) {
  return {mx::clip(f32(in[0]), mx::array(-1.0f), mx::array(1.0f))};
}
Arrays silu_times(const Arrays& in) {
  return {mx::multiply(silu(f32(in[0])), f32(in[1]))};
}

}  // namespace

mx::array silu(const mx::array& x) {
  return mx::divide(x, mx::add(number(1), mx::exp(mx::negative(x))));
}
mx::array gelu_tanh(const mx::array& x) {
  const mx::array cube = mx::multiply(mx::multiply(x, x), x);
  const mx::array inner = mx::multiply(number(std::numbers::sqrt2 * std::numbers::inv_sqrtpi),
                                       mx::add(x, mx::multiply(number(0.044715), cube)));
  return mx::multiply(mx::multiply(number(0.5), x), mx::add(number(1), mx::tanh(inner)));
}
mx::array gelu_erf(const mx::array& x) {
  const mx::array share = mx::add(number(1), mx::erf(mx::multiply(x, number(1 / std::numbers::sqrt2))));
  return mx::multiply(mx::multiply(number(0.5), x), share);
}

void add_gated(const View& x, const View& gate, const View& y, View& out) {
  write(out, fused(gated, type_of(out.dtype), {read(x), for_rows(read(gate), x), read(y)}));
}

void unary(int op, const View& x, View& out) {
  const mx::array value = read(x);
  const auto run = [&](Chain chain) { write(out, fused(chain, type_of(out.dtype), {value})); };
  switch (static_cast<UnaryOp>(op)) {
    case UnaryOp::kSilu:
      return run(silu_of);
    case UnaryOp::kGeluTanh:
      return run(gelu_tanh_of);
    case UnaryOp::kGeluErf:
      return run(gelu_erf_of);
    case UnaryOp::kNegate:
      return write(out, mx::negative(value));
    case UnaryOp::kCos:
      return run(cos_of);
    case UnaryOp::kSin:
      return run(sin_of);
    case UnaryOp::kExp:
      return run(exp_of);
    case UnaryOp::kClampUnit:
      return run(clamped);
  }
  throw std::invalid_argument("no such operation");
}

void binary(int op, const View& a, const View& b, View& out) {
  const bool mixed = a.dtype != b.dtype || a.dtype != out.dtype;
  const mx::array left = mixed ? f32(read(a)) : read(a), right = mixed ? f32(read(b)) : read(b);
  switch (static_cast<BinaryOp>(op)) {
    case BinaryOp::kAdd:
      return write(out, mx::add(left, right));
    case BinaryOp::kSubtract:
      return write(out, mx::subtract(left, right));
    case BinaryOp::kMultiply:
      return write(out, mx::multiply(left, right));
    case BinaryOp::kDivide:
      return write(out, mx::divide(left, right));
    case BinaryOp::kSiluMultiply:
      return write(out, fused(silu_times, type_of(out.dtype), {left, right}));
  }
  throw std::invalid_argument("no such operation");
}

}  // namespace lockstep::mlx
