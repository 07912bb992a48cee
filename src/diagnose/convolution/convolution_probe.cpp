#include "diagnose/convolution/convolution_probe.h"
#include "measure/residual.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

constexpr const char* kAxisNames[] = {"out", "in", "time", "rows", "columns"};
constexpr size_t kWorstPlaces = 24, kFewPlaces = 10;

int64_t beyond_border(int64_t at, int64_t begin, int64_t end, Border border) {
  if (at >= begin && at < end) return at;
  const int64_t n = end - begin;
  switch (border) {
    case Border::kReplicate:
      return std::clamp(at, begin, end - 1);
    case Border::kReflect:
      return at < begin ? begin + std::min(begin - at, n - 1) : std::max(2 * end - 2 - at, begin);
    case Border::kCircular:
      return begin + ((at - begin) % n + n) % n;
    case Border::kZero:
      break;
  }
  return -1;
}

// Orders in which a port may find the channels of an input.
std::vector<ChannelOrder> orders_of(int64_t n) {
  std::vector<ChannelOrder> out(1);  // the first: as they are
  const auto add = [&](std::string words, auto&& rule) {
    ChannelOrder order{std::move(words), {}};
    for (int64_t i = 0; i < n; ++i) order.from.push_back(rule(i));
    out.push_back(std::move(order));
  };
  if (n < 2) return out;
  add("input channels in reverse order", [&](int64_t i) { return n - 1 - i; });
  for (const int64_t parts : {2, 3, 4}) {
    if (n % parts) continue;
    const int64_t size = n / parts;
    add(fmt::format("the {} parts of the input channels exchanged", parts), [&](int64_t i) { return (i + size) % n; });
    if (parts == 3) add("the 3 parts of the input channels exchanged", [&](int64_t i) { return (i + 2 * size) % n; });
  }
  for (const int64_t shift : {1, -1, 2, -2})
    if (n > 4)
      add(fmt::format("the input channels rolled by {}", shift), [&](int64_t i) { return ((i - shift) % n + n) % n; });
  for (int64_t a = 2; a <= n / 2; ++a)
    if (n % a == 0)
      add(fmt::format("the input channels read as {} x {} in place of {} x {}", n / a, a, a, n / a),
          [&](int64_t i) { return i % a * (n / a) + i / a; });
  return out;
}

}  // namespace

std::string KernelMemory::words() const {
  std::string out;
  for (const int axis : axes) out += (out.empty() ? "[" : ", ") + std::string(kAxisNames[axis]);
  return read ? "W's memory taken for " + out + "]" : "W laid down as " + out + "] and read as if it were not";
}

Values as_picture(const Values& x, bool one_axis) {
  if (!one_axis) return x;
  Shape shape = x.shape;
  shape.insert(shape.end() - 1, 1);
  return reshaped(x, shape);
}

ConvProbe::ConvProbe(Case& failing, const Item& input, const Values& w)
    : w_(as_picture(w, w.rank() == 3)), tolerance_(failing.tolerance) {
  const int64_t batch = failing.r.shape[0], worst = worst_item(failing);
  const auto item = [&](const Values& of) { return as_picture(batch_item(of, worst, batch), w.rank() == 3); };
  x_[0] = item(failing.reference_of(input)), x_[1] = item(failing.candidate_of(input));
  y_[0] = item(failing.r), y_[1] = item(failing.c);
  g_ = {w_.shape[1], w_.shape[0], w_.rank() == 5 ? w_.shape[2] : 1, w_.dim(-2), w_.dim(-1)};
  if (auto bias = failing.weight_r(failing.module + ".bias")) bias_ = std::move(bias->v);
  channels_ = sample_indices(g_.out, g_.out <= 64 ? g_.out : 24);
  for (const int64_t i : sample_indices(static_cast<int64_t>(channels_.size()), 5))
    few_channels_.push_back(channels_[static_cast<size_t>(i)]);
  if (possible()) orders_ = orders_of(g_.in), choose_places();
}

bool ConvProbe::possible() const {
  constexpr int64_t kMostTaps = 16;
  return w_.size() > 0 && g_.taps <= kMostTaps && x_[0].rank() >= 4 && x_[0].shape[1] == g_.in &&
         x_[0].shape == x_[1].shape && (x_[0].rank() < 5 || x_[0].dim(2) == 1) && y_[0].shape == y_[1].shape &&
         y_[0].shape[1] == g_.out && (bias_.empty() || static_cast<int64_t>(bias_.size()) == g_.out) &&
         x_[0].shape[0] == 1;
}

// A grid over the whole picture, and the places that are furthest off: a wrong border or seam is seen nowhere else.
void ConvProbe::choose_places() {
  const int64_t height = y_[0].dim(-2), width = y_[0].dim(-1);
  std::vector<double> off(static_cast<size_t>(height * width));
  for (const int64_t o : channels_)
    for (size_t i = 0; i < off.size(); ++i) {
      const size_t at = static_cast<size_t>(o) * off.size() + i;
      off[i] += std::fabs(static_cast<double>(y_[1].v[at]) - y_[0].v[at]);
    }
  std::vector<size_t> order(off.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t worst = std::min(kWorstPlaces, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(worst), order.end(),
                    [&](size_t a, size_t b) { return off[a] > off[b]; });
  for (const int64_t y : sample_indices(height, 6))
    for (const int64_t x : sample_indices(width, 6)) places_.push_back({y, x});
  for (size_t i = 0; i < worst; ++i) {
    const Place place{static_cast<int64_t>(order[i]) / width, static_cast<int64_t>(order[i]) % width};
    places_.push_back(place);
    if (i % 3 == 0) few_places_.push_back(place);
  }
  for (const int64_t i : sample_indices(36, 4))
    if (static_cast<size_t>(i) < places_.size() && few_places_.size() < kFewPlaces)
      few_places_.push_back(places_[static_cast<size_t>(i)]);
}

std::vector<int64_t> ConvProbe::seams(bool columns) const {
  const int64_t height = y_[0].dim(-2), width = y_[0].dim(-1), n = columns ? width : height;
  const int64_t reach = (columns ? g_.columns : g_.rows) / 2;
  if (reach < 1 || n < 4 * reach) return {};
  std::vector<double> dd(static_cast<size_t>(n)), yy(static_cast<size_t>(n));
  for (size_t i = 0; i < y_[0].v.size(); ++i) {
    const int64_t place = static_cast<int64_t>(i) % (height * width);
    const size_t at = static_cast<size_t>(columns ? place % width : place / width);
    const double d = static_cast<double>(y_[1].v[i]) - y_[0].v[i];
    dd[at] += d * d, yy[at] += static_cast<double>(y_[0].v[i]) * y_[0].v[i];
  }
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i) {
    const auto bad = [&](int64_t at) {
      return dd[static_cast<size_t>(at)] > 4 * tolerance_ * tolerance_ * yy[static_cast<size_t>(at)];
    };
    if (!bad(i)) continue;
    int64_t end = i;
    while (end < n && bad(end)) ++end;
    if (end - i > 2 * reach || i == 0 || end == n) return {};
    out.push_back(i + reach);
    i = end;
  }
  return out;
}

// Where a tap of the kernel reads, -1 outside; within the tile that the output lies in.
int64_t ConvProbe::source(int64_t at, int64_t tap, int64_t n, const ConvParams& p, bool columns) const {
  int64_t begin = 0, end = n;
  for (const int64_t seam : columns ? p.seams_columns : p.seams_rows) {
    if (seam <= at) begin = std::max(begin, seam);
    if (seam > at) end = std::min(end, seam);
  }
  return beyond_border(at * p.stride + (tap - (columns ? p.left : p.top)) * p.dilation, begin, end, p.border);
}

// [rows, columns, in] that the kernel meets at one place of the output.
void ConvProbe::patch(bool candidate, const ConvParams& p, const Place& at, std::vector<float>& into) const {
  const Values& x = x_[candidate];
  const int64_t height = x.dim(-2), width = x.dim(-1);
  const std::vector<int64_t>& order = orders_[static_cast<size_t>(p.order)].from;
  into.assign(static_cast<size_t>(g_.rows * g_.columns * g_.in), 0);
  for (int64_t ky = 0; ky < g_.rows; ++ky)
    for (int64_t kx = 0; kx < g_.columns; ++kx) {
      const int64_t sy = source(at.y, ky, height, p, false), sx = source(at.x, kx, width, p, true);
      if (sy < 0 || sx < 0 || (p.middle && (ky != g_.rows / 2 || kx != g_.columns / 2))) continue;
      float* to = into.data() + (ky * g_.columns + kx) * g_.in;
      for (int64_t i = 0; i < g_.in; ++i) {
        const int64_t from = order.empty() ? i : order[static_cast<size_t>(i)];
        float value = x.v[static_cast<size_t>((from * height + sy) * width + sx)];
        if (p.before) value = static_cast<float>(p.before->f(value));
        to[i] = p.input ? p.input->round(value) : value;
      }
    }
}

// [channels, rows, columns, in]: the weights that such a patch is multiplied with.
std::vector<float> ConvProbe::kernel(const ConvParams& p, const ConvInstead& instead,
                                     const std::vector<int64_t>& channels) const {
  const Values& w = instead.weight ? *instead.weight : w_;
  const std::array<int64_t, 5> size = g_.axes();
  std::array<int64_t, 5> stride{}, step{};  // of the axes in plain memory; of the axes in the other memory
  for (int64_t axis = 4, n = 1; axis >= 0; --axis)
    stride[static_cast<size_t>(axis)] = n, n *= size[static_cast<size_t>(axis)];
  for (int64_t k = 4, n = 1; k >= 0; --k) {
    const size_t axis = static_cast<size_t>(p.memory.axes[static_cast<size_t>(k)]);
    step[axis] = n, n *= size[axis];
  }
  const auto moved = [&](int64_t flat) {  // the element that lies there once W was laid down in the other order
    int64_t from = 0;
    for (size_t k = 5; k-- > 0;) {
      const size_t axis = static_cast<size_t>(p.memory.axes[k]);
      from += flat % size[axis] * stride[axis], flat /= size[axis];
    }
    return from;
  };
  const unsigned taps = p.taps ? p.taps : 1u << (g_.taps - 1);
  const float share = p.taps_average ? 1.0f / static_cast<float>(g_.taps) : 1.0f;
  std::vector<float> out(channels.size() * static_cast<size_t>(g_.rows * g_.columns * g_.in));
  size_t to = 0;
  for (size_t k = 0; k < channels.size(); ++k)
    for (int64_t ky = 0; ky < g_.rows; ++ky)
      for (int64_t kx = 0; kx < g_.columns; ++kx)
        for (int64_t i = 0; i < g_.in; ++i, ++to)
          for (int64_t t = 0; t < g_.taps; ++t) {
            if (!(taps >> t & 1)) continue;
            int64_t a = channels[k], b = i, y = p.flip_rows ? g_.rows - 1 - ky : ky,
                    x = p.flip_columns ? g_.columns - 1 - kx : kx;
            if (p.swap_rows_columns) std::swap(y, x);
            if (p.transposed) std::swap(a, b);
            float value = 0;
            if (instead.rows) {
              value = instead.rows->row(
                  static_cast<int64_t>(k))[static_cast<size_t>(b * stride[1] + t * stride[2] + y * stride[3] + x)];
            } else {
              int64_t at = a * stride[0] + b * stride[1] + t * stride[2] + y * stride[3] + x;
              if (!p.memory.plain())
                at = p.memory.read ? a * step[0] + b * step[1] + t * step[2] + y * step[3] + x * step[4] : moved(at);
              value = w.v[static_cast<size_t>(at)];
            }
            out[to] += share * (p.kernel ? p.kernel->round(value) : value);
          }
  return out;
}

double ConvProbe::sums(bool candidate, const ConvParams& p, const ConvInstead& instead, bool quick,
                       std::vector<double>* into) const {
  const std::vector<int64_t>& channels = quick ? few_channels_ : channels_;
  const std::vector<Place>& places = quick ? few_places_ : places_;
  const std::vector<float>& bias = instead.bias ? *instead.bias : bias_;
  const std::vector<float> w = kernel(p, instead, channels);
  const Values& y = y_[candidate];
  const int64_t height = y.dim(-2), width = y.dim(-1);
  if (into) into->assign(channels.size() * places.size(), 0);
  std::vector<float> x;
  Residual unexplained;
  for (size_t at = 0; at < places.size(); ++at) {
    patch(candidate, p, places[at], x);
    for (size_t k = 0; k < channels.size(); ++k) {
      const size_t o = static_cast<size_t>(channels[k]);
      double sum = bias.empty() ? 0 : p.bias * in_format(bias[o], p.added);
      const float* row = w.data() + k * x.size();
      for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(row[i]) * x[i];
      if (into) (*into)[k * places.size() + at] = sum;
      const double target =
          y.v[(o * static_cast<size_t>(height) + static_cast<size_t>(places[at].y)) * static_cast<size_t>(width) +
              static_cast<size_t>(places[at].x)];
      unexplained.add(sum, target);
    }
  }
  return unexplained.relative();
}

double ConvProbe::measure(bool candidate, const ConvParams& p, const ConvInstead& instead, bool quick) const {
  return sums(candidate, p, instead, quick, nullptr);
}

std::pair<Values, Values> ConvProbe::products(const ConvParams& r) const {
  std::vector<double> plain;
  ConvParams without = r;
  without.bias = 0;
  sums(true, without, {}, false, &plain);
  const int64_t places = static_cast<int64_t>(places_.size());
  Values right = make_values({static_cast<int64_t>(channels_.size()), places}), mine = right;
  const Values& y = y_[1];
  for (size_t c = 0, i = 0; c < channels_.size(); ++c)
    for (const Place& at : places_) {
      right.v[i] = static_cast<float>(plain[i]);
      mine.v[i] = y.v[static_cast<size_t>((channels_[c] * y.dim(-2) + at.y) * y.dim(-1) + at.x)] -
                  (bias_.empty() || !r.bias ? 0 : bias_[static_cast<size_t>(channels_[c])]);
      ++i;
    }
  return {std::move(right), std::move(mine)};
}

Values ConvProbe::own_rows() const {
  return take_rows(reshaped(w_, {g_.out, w_.size() / g_.out}), channels_);
}

std::pair<Values, Values> ConvProbe::patches(const ConvParams& r, int64_t most, bool all_channels) const {
  const Values& y = y_[1];
  const std::vector<int64_t> at = sample_indices(places(), most);
  const std::vector<int64_t> channels = all_channels ? sample_indices(g_.out, g_.out) : channels_;
  const int64_t taps = g_.rows * g_.columns;
  Values x = make_values({static_cast<int64_t>(at.size()), patch_size()}),
         out = make_values({static_cast<int64_t>(at.size()), static_cast<int64_t>(channels.size())});
  std::vector<float> met;
  for (size_t k = 0; k < at.size(); ++k) {
    patch(true, r, {at[k] / y.dim(-1), at[k] % y.dim(-1)}, met);
    const std::span<float> row = x.row(static_cast<int64_t>(k));
    for (int64_t i = 0; i < g_.in; ++i)
      for (int64_t t = 0; t < taps; ++t)
        row[static_cast<size_t>(i * taps + t)] = met[static_cast<size_t>(t * g_.in + i)];
    for (size_t j = 0; j < channels.size(); ++j)
      out.row(static_cast<int64_t>(k))[j] = y.v[static_cast<size_t>(channels[j] * places() + at[k])];
  }
  return {std::move(x), std::move(out)};
}

Values ConvProbe::kernel_rows(const ConvParams& r) const {
  const std::vector<float> w = kernel(r, {}, channels_);  // [channels, rows, columns, in]
  const int64_t taps = g_.rows * g_.columns;
  Values out = make_values({static_cast<int64_t>(channels_.size()), patch_size()});
  for (int64_t k = 0; k < out.rows(); ++k)
    for (int64_t i = 0; i < g_.in; ++i)
      for (int64_t t = 0; t < taps; ++t)
        out.row(k)[static_cast<size_t>(i * taps + t)] = w[static_cast<size_t>((k * taps + t) * g_.in + i)];
  return out;
}

}  // namespace lockstep
