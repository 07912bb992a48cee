#include <cmath>

#include "backend/kernels.h"
#include "backend/mlx/leaf/kernels.h"

namespace lockstep::mlx {
namespace {

using Arrays = std::vector<mx::array>;

Arrays scaled(const Arrays& in) {
  return {mx::multiply(f32(in[0]), f32(in[1]))};
}

Arrays modulated(const Arrays& in) {  // normal, scale, shift
  return {mx::add(mx::multiply(f32(in[0]), mx::add(f32(in[1]), mx::array(1.0f))), f32(in[2]))};
}
Arrays modulated_by_scale(const Arrays& in) {
  return {mx::multiply(f32(in[0]), mx::add(f32(in[1]), mx::array(1.0f)))};
}
Arrays shifted(const Arrays& in) {
  return {mx::add(f32(in[0]), f32(in[1]))};
}

Arrays turned_first(const Arrays& in) {  // first, second, cos, sin
  return {mx::subtract(mx::multiply(f32(in[0]), in[2]), mx::multiply(f32(in[1]), in[3]))};
}
Arrays turned_second(const Arrays& in) {
  return {mx::add(mx::multiply(f32(in[0]), in[3]), mx::multiply(f32(in[1]), in[2]))};
}

// Of [..., D/2] for every other element or for the halves.
mx::array half(const mx::array& x, bool second, bool interleaved) {
  const int width = x.shape(-1), last = static_cast<int>(x.ndim()) - 1;
  mx::Shape start(x.ndim(), 0), stop = x.shape(), step(x.ndim(), 1);
  const auto at = static_cast<size_t>(last);
  if (interleaved) {
    start[at] = second;
    step[at] = 2;
  } else {
    start[at] = second ? width / 2 : 0;
    stop[at] = second ? width : width / 2;
  }
  return mx::slice(x, start, stop, step);
}

Arrays channel_scaled(const Arrays& in) {  // x, factor [..., 1], gamma
  return {mx::multiply(mx::multiply(f32(in[0]), in[1]), f32(in[2]))};
}
Arrays channel_scaled_silu(const Arrays& in) {
  return {silu(channel_scaled(in).front())};
}

}  // namespace

mx::array for_rows(const mx::array& lines, const View& rows) {
  mx::Shape shape(static_cast<size_t>(rows.rank), 1);
  shape.front() = lines.shape(0);
  shape.back() = lines.shape(-1);
  if (rows.rank < 2) return mx::reshape(lines, {-1});
  return mx::reshape(lines, shape);
}

void rms_norm(const View& x, const View* weight, View& out, float eps) {
  const mx::array rows = read(x);
  if (weight && weight->dtype == x.dtype && out.dtype == x.dtype)
    return write(out, mx::fast::rms_norm(rows, read(*weight), eps));
  const mx::array normal = mx::fast::rms_norm(rows, std::nullopt, eps);  // rounded before the weight, as torch does
  write(out, weight ? fused(scaled, type_of(out.dtype), {normal, read(*weight)}) : normal);
}

void layer_norm(const View& x, const View* weight, const View* bias, const View* scale, const View* shift, View& out,
                float eps) {
  const mx::Dtype type = type_of(out.dtype);
  const auto wide = [](const View* view) { return view ? std::optional(f32(read(*view))) : std::nullopt; };
  const mx::array normal = mx::fast::layer_norm(f32(read(x)), wide(weight), wide(bias), eps);
  if (scale && shift)
    return write(out, fused(modulated, type, {normal, for_rows(read(*scale), x), for_rows(read(*shift), x)}));
  if (scale) return write(out, fused(modulated_by_scale, type, {normal, for_rows(read(*scale), x)}));
  if (shift) return write(out, fused(shifted, type, {normal, for_rows(read(*shift), x)}));
  write(out, normal);
}

// No fast::rope: it turns by one position a token, and these tables have three (row, column, picture).
void head_norm_rope(const View& x, const View* weight, const View* cos, const View* sin, View& out, float eps,
                    int style) {
  mx::array y = read(x);  // [B, S, H, D]
  const mx::Dtype type = type_of(out.dtype);
  const auto named = static_cast<RopeStyle>(style);
  if (weight) {
    y = mx::fast::rms_norm(y, std::nullopt, eps);
    y = fused(scaled, named == RopeStyle::kNone ? type : mx::float32, {y, read(*weight)});
  }
  if (named == RopeStyle::kNone) return write(out, y);
  const bool interleaved = named == RopeStyle::kInterleaved;
  const mx::array first = half(y, false, interleaved), second = half(y, true, interleaved);
  const auto table = [](const View& view) { return mx::expand_dims(f32(read(view)), {0, 2}); };  // [1, S, 1, D/2]
  const Arrays inputs{first, second, table(*cos), table(*sin)};
  const mx::array a = fused(turned_first, type, inputs), b = fused(turned_second, type, inputs);
  write(out, interleaved ? mx::reshape(mx::stack({a, b}, -1), y.shape()) : mx::concatenate({a, b}, -1));
}

void channel_norm(const View& x, const View& gamma, View& out, bool with_silu) {
  const mx::array rows = read(x);
  const float root = std::sqrt(static_cast<float>(rows.shape(-1)));
  const mx::array length = mx::sqrt(mx::sum(mx::square(f32(rows)), -1, true));
  const mx::array factor = mx::divide(mx::array(root), mx::maximum(length, mx::array(1e-12f)));
  write(out, fused(with_silu ? channel_scaled_silu : channel_scaled, type_of(out.dtype), {rows, factor, read(gamma)}));
}

void guidance(const View& cond, const View& uncond, View& out, float scale, bool rescale) {
  const mx::array c = f32(read(cond)), u = f32(read(uncond));
  mx::array combined = mx::add(u, mx::multiply(mx::array(scale), mx::subtract(c, u)));
  if (!rescale) return write(out, combined);
  combined = f32(mx::astype(combined, type_of(out.dtype)));
  const auto length = [](const mx::array& rows) { return mx::sqrt(mx::sum(mx::square(rows), -1, true)); };
  write(out, mx::multiply(combined, mx::divide(length(c), length(combined))));
}

}  // namespace lockstep::mlx
