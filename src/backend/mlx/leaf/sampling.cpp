#include <stdexcept>

#include "backend/mlx/leaf/kernels.h"

namespace lockstep::mlx {
namespace {

// A round trip through the dtype: where torch rounds, so does this.
mx::array rounded(const mx::array& x, mx::Dtype type) {
  return type == mx::float32 ? x : f32(mx::astype(x, type));
}

}  // namespace

void euler_step(const View& x, const View& velocity, View& out, float dt) {
  const mx::array move = rounded(mx::multiply(f32(read(velocity)), mx::array(dt)), type_of(velocity.dtype));
  write(out, mx::add(f32(read(x)), move));
}

void denormalize(const View& x, const View& inverse_std, const View& mean, View& out) {
  mx::Shape channels(static_cast<size_t>(x.rank), 1);
  channels[1] = mx::safe_cast(x.shape[1]);
  const auto line = [&](const View& view) { return mx::reshape(read(view), channels); };
  const mx::array scaled = rounded(mx::divide(f32(read(x)), line(inverse_std)), type_of(x.dtype));
  write(out, mx::add(scaled, line(mean)));
}

void pixels(const View& x, View& out) {
  const mx::Dtype type = type_of(x.dtype);
  const mx::array half = rounded(mx::multiply(f32(read(x)), mx::array(0.5f)), type);
  const mx::array unit = mx::clip(rounded(mx::add(half, mx::array(0.5f)), type), mx::array(0.0f), mx::array(1.0f));
  const mx::array levels = mx::round(mx::multiply(unit, mx::array(255.0f)), 0);  // ties to even
  write(out, mx::astype(mx::where(mx::isnan(unit), mx::array(0.0f), levels), mx::uint8));
}

void gather(const View& table, const View& ids, View& out) {
  write(out, mx::take(read(table), read(ids), 0));
}

void copy(const View& from, View& to) {
  if (from.dtype != to.dtype && !(computes(from.dtype) && computes(to.dtype)))
    throw std::invalid_argument("a cast that belongs to the host");
  write(to, read(from));
}

}  // namespace lockstep::mlx
