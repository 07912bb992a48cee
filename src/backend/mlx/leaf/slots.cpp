#include "backend/mlx/leaf/slots.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

#include "backend/mlx/leaf/session.h"

namespace lockstep::mlx {
namespace {

int64_t elements_in(const View& view) {
  int64_t count = 1;
  for (int i = 0; i < view.rank; ++i) count *= view.shape[i];
  return count;
}

bool is_packed(const View& view) {
  int64_t expected = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    if (view.shape[i] != 1 && view.strides[i] != expected) return false;
    expected *= view.shape[i];
  }
  return true;
}

bool covers_slot(const View& view, mx::Dtype type) {
  return view.offset == 0 && static_cast<size_t>(elements_in(view)) * mx::size_of(type) == view.slot->bytes &&
         is_packed(view);
}

// The slot's elements as one row of that type.
mx::array row_of(const Slot& slot, mx::Dtype type) {
  if (slot.bytes % mx::size_of(type) != 0) throw std::invalid_argument("a storage of no whole number of elements");
  if (!slot.value) return mx::zeros({mx::safe_cast(slot.bytes / mx::size_of(type))}, type);
  mx::array row = mx::reshape(*slot.value, {-1});
  return row.dtype() == type ? row : mx::view(row, type);
}

// A part of a row as a box: the row folded so that each axis of the part is a range of an axis of the row.
struct Box {
  mx::Shape folded, start, stop, part;
  std::vector<int> order;  // of the view's axes
};

// Axes in order of their strides fold the row where each stride divides the one before it; else there is no box.
std::optional<Box> box_of(const View& view, int64_t length) {
  Box box;
  for (int i = 0; i < view.rank; ++i)
    if (view.shape[i] != 1) box.order.push_back(i);
  std::stable_sort(box.order.begin(), box.order.end(), [&](int a, int b) { return view.strides[a] > view.strides[b]; });
  int64_t outer = length, offset = view.offset;
  const auto add = [&](int64_t stride, int64_t extent) {
    if (stride <= 0 || outer % stride != 0) return false;
    const int64_t size = outer / stride, start = offset / stride;
    if (start + extent > size) return false;
    box.folded.push_back(mx::safe_cast(size));
    box.start.push_back(mx::safe_cast(start));
    box.stop.push_back(mx::safe_cast(start + extent));
    box.part.push_back(mx::safe_cast(extent));
    offset %= stride;
    outer = stride;
    return true;
  };
  for (const int axis : box.order)
    if (!add(view.strides[axis], view.shape[axis])) return std::nullopt;
  if (outer != 1 && !add(1, 1)) return std::nullopt;
  return box;
}

}  // namespace

mx::Dtype type_of(int dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::kF32:
      return mx::float32;
    case DType::kF16:
      return mx::float16;
    case DType::kBF16:
      return mx::bfloat16;
    case DType::kI8:
      return mx::int8;
    case DType::kI16:
      return mx::int16;
    case DType::kI32:
      return mx::int32;
    case DType::kI64:
      return mx::int64;
    case DType::kU16:
      return mx::uint16;
    case DType::kU32:
      return mx::uint32;
    case DType::kF64:
    case DType::kU64:
      return mx::uint64;
    case DType::kBool:
      return mx::bool_;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kU8:
      break;
  }
  return mx::uint8;
}

bool computes(int dtype) {
  const auto named = static_cast<DType>(dtype);
  return named == DType::kF32 || named == DType::kF16 || named == DType::kBF16;
}

mx::Shape shape_of(const View& view) {
  mx::Shape shape;
  for (int i = 0; i < view.rank; ++i) shape.push_back(mx::safe_cast(view.shape[i]));
  return shape;
}

mx::array read(const View& view) {
  const mx::Dtype type = type_of(view.dtype);
  const mx::Shape shape = shape_of(view);
  if (elements_in(view) == 0) return mx::zeros(shape, type);
  if (covers_slot(view, type)) {
    if (view.slot->value && view.slot->value->dtype() == type)
      return view.slot->value->shape() == shape ? *view.slot->value : mx::reshape(*view.slot->value, shape);
    return mx::reshape(row_of(*view.slot, type), shape);
  }
  mx::Strides strides;
  for (int i = 0; i < view.rank; ++i) strides.push_back(view.strides[i]);
  return mx::as_strided(row_of(*view.slot, type), shape, strides, static_cast<size_t>(view.offset));
}

std::optional<mx::array> read(const View* view) {
  return view ? std::optional(read(*view)) : std::nullopt;
}

void replace(Slot& slot, mx::array value) {
  slot.value = std::move(value);
  session().mark(slot);
}

void write(const View& view, mx::array value) {
  const mx::Dtype type = type_of(view.dtype);
  if (elements_in(view) == 0) return;
  if (value.dtype() != type) value = mx::astype(value, type);
  const mx::Shape shape = shape_of(view);
  if (value.shape() != shape) value = mx::broadcast_to(value, shape);
  if (covers_slot(view, type)) return replace(*view.slot, std::move(value));

  const mx::array row = row_of(*view.slot, type);
  if (const std::optional<Box> box = box_of(view, static_cast<int64_t>(row.size()))) {
    // Axes of one element have no place in the box, whatever their strides.
    mx::Shape long_axes;
    std::vector<int> turned(box->order.size());
    std::vector<int> kept = box->order;
    std::sort(kept.begin(), kept.end());
    for (const int axis : kept) long_axes.push_back(shape[static_cast<size_t>(axis)]);
    for (size_t i = 0; i < turned.size(); ++i)
      turned[i] = static_cast<int>(std::find(kept.begin(), kept.end(), box->order[i]) - kept.begin());
    const mx::array part = mx::reshape(mx::transpose(mx::reshape(value, long_axes), turned), box->part);
    return replace(*view.slot, mx::slice_update(mx::reshape(row, box->folded), part, box->start, box->stop));
  }
  mx::Strides strides;
  for (int i = 0; i < view.rank; ++i) strides.push_back(view.strides[i]);
  const mx::array places = mx::reshape(
      mx::as_strided(mx::arange(0, mx::safe_cast(row.size())), shape, strides, static_cast<size_t>(view.offset)), {-1});
  replace(*view.slot, mx::scatter(row, places, mx::reshape(value, {-1, 1}), 0));
}

mx::array fused(Chain chain, mx::Dtype result, const std::vector<mx::array>& inputs) {
  const auto run = [chain, result](const std::vector<mx::array>& given) {
    return std::vector<mx::array>{mx::astype(chain(given).front(), result)};
  };
  if (!on_gpu()) return run(inputs).front();
  using Compiled = std::function<std::vector<mx::array>(const std::vector<mx::array>&)>;
  static std::map<std::pair<Chain, mx::Dtype::Val>, Compiled> made;  // calls of the leaf are one at a time
  Compiled& compiled = made[{chain, result.val()}];
  if (!compiled) compiled = mx::compile(Compiled(run), true);
  return compiled(inputs).front();
}

}  // namespace lockstep::mlx
