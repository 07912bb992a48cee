#include "tensor/index_expression.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(std::string_view expression, const std::string& what) {
  fail(Code::kUsage, "slice", "\"" + std::string(expression) + "\": " + what, {.hint = "[0, :, -1, ::2]"});
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(trimmed(text.substr(0, at)));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

int64_t parse_integer(std::string_view expression, std::string_view text) {
  int64_t value = 0;
  const size_t sign = !text.empty() && text[0] == '+' ? 1 : 0;
  const auto [end, error] = std::from_chars(text.data() + sign, text.data() + text.size(), value);
  // Beyond 2^62 no index is valid, and the arithmetic below would overflow.
  if (error != std::errc() || end != text.data() + text.size() || value > (int64_t{1} << 62) ||
      value < -(int64_t{1} << 62))
    refuse(expression, "'" + std::string(text) + "' is no integer");
  return value;
}

struct Range {
  int64_t begin, step, size;
};

// Python's slice.indices().
Range resolve_range(std::string_view expression, const std::vector<std::string_view>& parts, int64_t size) {
  const auto part = [&](size_t i) -> std::optional<int64_t> {
    if (i >= parts.size() || parts[i].empty()) return std::nullopt;
    return parse_integer(expression, parts[i]);
  };
  const int64_t step = part(2).value_or(1);
  if (step == 0) refuse(expression, "a step of 0");
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
  const auto place = [&](std::optional<int64_t> given, int64_t otherwise) {
    if (!given) return otherwise;
    return std::clamp(*given < 0 ? *given + size : *given, lowest, highest);
  };
  const int64_t begin = place(part(0), step > 0 ? 0 : size - 1), end = place(part(1), step > 0 ? size : -1);
  const int64_t span = step > 0 ? end - begin : begin - end, stride = step > 0 ? step : -step;
  return {begin, step, span <= 0 ? 0 : (span - 1) / stride + 1};
}

class View {
 public:
  explicit View(const Tensor& tensor) : tensor_(tensor) {}

  void whole() {
    shape_.push_back(tensor_.shape()[axis_]);
    strides_.push_back(tensor_.strides()[axis_]);
    ++axis_;
  }
  void pick(std::string_view expression, std::string_view text) {
    const int64_t size = tensor_.shape()[axis_], given = parse_integer(expression, text);
    const int64_t index = given < 0 ? given + size : given;
    if (index < 0 || index >= size)
      refuse(expression, "index " + std::string(text) + " is outside axis " + std::to_string(axis_) + " of " +
                             to_string(tensor_.shape()));
    offset_ += index * tensor_.strides()[axis_];
    ++axis_;
  }
  void range(std::string_view expression, std::string_view text) {
    const auto parts = split(text, ':');
    if (parts.size() > 3) refuse(expression, "'" + std::string(text) + "' has more than three parts");
    const Range range = resolve_range(expression, parts, tensor_.shape()[axis_]);
    if (range.size > 0) offset_ += range.begin * tensor_.strides()[axis_];
    shape_.push_back(range.size);
    // One element is never stepped from; a huge step must not overflow the stride.
    strides_.push_back(range.size > 1 ? tensor_.strides()[axis_] * range.step : 1);
    ++axis_;
  }
  size_t axes_left() const { return tensor_.rank() - axis_; }

  Tensor finish() const {
    if (checked_numel(shape_) == 0) return Tensor::empty(tensor_.dtype(), shape_);
    const std::byte* data = tensor_.strided_data() + offset_ * static_cast<int64_t>(dtype_bytes(tensor_.dtype()));
    return Tensor::wrap(data, tensor_.dtype(), shape_, std::make_shared<const Tensor>(tensor_), strides_);
  }

 private:
  const Tensor& tensor_;
  size_t axis_ = 0;
  int64_t offset_ = 0;
  Shape shape_;
  Strides strides_;
};

}  // namespace

Tensor apply_slice(const Tensor& tensor, std::string_view expression) {
  std::string_view inner = trimmed(expression);
  if (!inner.empty() && inner.front() == '[') {
    if (inner.back() != ']') refuse(expression, "no closing bracket");
    inner = trimmed(inner.substr(1, inner.size() - 2));
  }
  if (inner.size() > 1 && inner.back() == ',') inner.remove_suffix(1);  // NumPy's [3,]
  if (inner.empty()) return tensor;
  const std::vector<std::string_view> items = split(inner, ',');
  const size_t dots = static_cast<size_t>(std::count(items.begin(), items.end(), "..."));
  if (dots > 1) refuse(expression, "more than one '...'");
  if (items.size() - dots > tensor.rank())
    refuse(expression, std::to_string(items.size() - dots) + " indices for the shape " + to_string(tensor.shape()));
  View view(tensor);
  for (const std::string_view item : items) {
    if (item == "...") {
      for (size_t n = tensor.rank() - (items.size() - 1); n > 0; --n) view.whole();
    } else if (item.empty()) {
      refuse(expression, "an empty index");
    } else if (item.find(':') != std::string_view::npos) {
      view.range(expression, item);
    } else {
      view.pick(expression, item);
    }
  }
  while (view.axes_left() > 0) view.whole();
  return view.finish();
}

}  // namespace lockstep
