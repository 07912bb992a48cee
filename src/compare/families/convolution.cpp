// y = conv(x, W) + b over a single frame: kernel orientation, temporal slice, padding, bias, whose weight.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/families/fit.h"
#include "compare/families/number_formats.h"
#include "compare/layouts.h"

namespace lockstep {
namespace {

constexpr const char* kMemory[] = {"", "[out, rows, columns, in]", "[rows, columns, in, out]",
                                   "[in, out, rows, columns]",
                                   "[out, in, rows, columns] when it is [out, rows, columns, in]"};
enum class Padding { kZero, kReplicate, kReflect, kCircular };

struct Params {
  int64_t stride = 1, top = 1, left = 1;
  int slice = -1;  // of the temporal taps; -1 the last, -2 their sum
  bool flip_rows = false, flip_columns = false, swap_rows_columns = false, transposed = false;
  Padding padding = Padding::kZero;
  int bias = 1;  // how many times
  int64_t dilation = 1;
  int memory = 0;  // the weight's memory taken for another order of axes, see kMemory
  bool inputs_reversed = false;
  int input_parts = 1;                                        // halves, thirds ... of the input exchanged
  int64_t roll = 0;                                           // of the input's channels
  bool middle = false;                                        // the middle tap of the kernel alone
  Format kernel = nullptr, added = nullptr, input = nullptr;  // weight, bias, input in a poorer format
  std::string weight = {};                                    // empty: its own
  double residual = INFINITY;
};

struct Geometry {
  int64_t in = 1, out = 1, taps = 1, kh = 1, kw = 1;
};

std::string formula(const Params& p) {
  std::string out = p.weight.empty() ? "conv(x, W)" : "conv(x, " + p.weight + ")";
  if (p.bias) out += p.bias > 1 ? " + 2 b" : " + b";
  if (p.memory) out += std::string(", W's memory taken for ") + kMemory[p.memory];
  if (p.dilation > 1) out += fmt::format(", dilation {}", p.dilation);
  if (p.inputs_reversed) out += ", input channels in reverse order";
  if (p.input_parts > 1) out += fmt::format(", the {} parts of the input channels exchanged", p.input_parts);
  if (p.roll) out += fmt::format(", the input channels rolled by {}", p.roll);
  if (p.middle) out += ", the middle tap alone";
  for (const auto& [format, what] : {std::pair{p.kernel, "W"}, {p.added, "b"}, {p.input, "x"}})
    if (format) out += fmt::format(", {} in {}", what, format->name);
  if (p.slice == -2) out += ", taps summed";
  if (p.slice >= 0) out += fmt::format(", temporal tap {}", p.slice);
  if (p.flip_rows || p.flip_columns) out += ", kernel mirrored";
  if (p.swap_rows_columns) out += ", kernel rows and columns exchanged";
  if (p.transposed) out += ", in and out channels exchanged";
  if (p.padding == Padding::kReplicate) out += ", border repeated";
  if (p.padding == Padding::kReflect) out += ", border mirrored";
  if (p.padding == Padding::kCircular) out += ", border wrapped around";
  return out + fmt::format(" (stride {}, {} rows and {} columns before)", p.stride, p.top, p.left);
}

int64_t border(int64_t at, int64_t n, Padding padding) {
  if (at >= 0 && at < n) return at;
  switch (padding) {
    case Padding::kReplicate:
      return std::clamp<int64_t>(at, 0, n - 1);
    case Padding::kReflect:
      return at < 0 ? std::min(-at, n - 1) : std::max<int64_t>(2 * n - 2 - at, 0);
    case Padding::kCircular:
      return (at % n + n) % n;
    case Padding::kZero:
      break;
  }
  return -1;
}

class Search {
 public:
  Search(Case& failing, const Item& input, const Values& w) : w_(w) {
    x_[0] = failing.reference_of(input), x_[1] = failing.candidate_of(input);
    y_[0] = failing.r, y_[1] = failing.c;
    g_ = {w.shape[1], w.shape[0], w.rank() == 5 ? w.shape[2] : 1, w.dim(-2), w.dim(-1)};
    if (auto bias = failing.weight_r(failing.module + ".bias")) bias_ = std::move(bias->v);
    const int64_t height = y_[0].dim(-2), width = y_[0].dim(-1);
    for (const int64_t y : sample_indices(height, 6))
      for (const int64_t x : sample_indices(width, 6)) places_.emplace_back(y, x);
    channels_ = sample_indices(g_.out, g_.out <= 64 ? g_.out : 24);
  }

  bool possible() const {
    return x_[0].rank() >= 4 && x_[0].shape[1] == g_.in && x_[0].shape == x_[1].shape &&
           (x_[0].rank() < 5 || x_[0].dim(2) == 1) && y_[0].shape[1] == g_.out;
  }

  double measure(bool candidate, const Params& p, const Values* other = nullptr,
                 const std::vector<float>* other_bias = nullptr, std::vector<double>* into = nullptr) const {
    const Values &x = x_[candidate], &y = y_[candidate], &w = other ? *other : w_;
    const std::vector<float>& bias = other_bias ? *other_bias : bias_;
    const int64_t height = x.dim(-2), width = x.dim(-1), out_h = y.dim(-2), out_w = y.dim(-1);
    double dd = 0, yy = 0;
    for (const int64_t o : channels_)
      for (const auto& [py, px] : places_) {
        double sum = !bias.empty() ? p.bias * in_format(bias[static_cast<size_t>(o)], p.added) : 0;
        for (int64_t ky = 0; ky < g_.kh; ++ky)
          for (int64_t kx = 0; kx < g_.kw; ++kx) {
            const int64_t sy = border(py * p.stride + (ky - p.top) * p.dilation, height, p.padding),
                          sx = border(px * p.stride + (kx - p.left) * p.dilation, width, p.padding);
            if (sy < 0 || sx < 0 || (p.middle && (ky != g_.kh / 2 || kx != g_.kw / 2))) continue;
            for (int64_t i = 0; i < g_.in; ++i)
              sum += static_cast<double>(tap(w, p, o, i, ky, kx)) *
                     in_format(x.v[static_cast<size_t>((source(p, i) * height + sy) * width + sx)], p.input);
          }
        if (into) into->push_back(sum);
        const double target = y.v[static_cast<size_t>((o * out_h + py) * out_w + px)];
        dd += (sum - target) * (sum - target), yy += target * target;
      }
    return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
  }

  Params reference(double tolerance) const {
    Params best;
    const int64_t height = x_[0].dim(-2), out_h = y_[0].dim(-2);
    for (const int64_t stride : {1, 2})
      for (int64_t top = 0; top <= g_.kh / 2; ++top) {
        if (out_h > (height + 2 * top) / stride + 1) continue;
        Params p;
        p.stride = stride, p.top = top, p.left = g_.kw == g_.kh ? top : g_.kw / 2, p.bias = bias_.empty() ? 0 : 1;
        p.residual = measure(false, p);
        if (p.residual < best.residual) best = p;
        if (best.residual <= tolerance) return best;
      }
    return best;
  }

  std::vector<Params> alternatives(const Params& r) const {
    std::vector<Params> out;
    const auto add = [&](auto&& change) {
      Params p = r;
      change(p);
      out.push_back(p);
    };
    add([](Params& p) { p.bias = 0; });
    add([](Params& p) { p.bias = 2; });
    for (int t = 0; t + 1 < g_.taps; ++t) add([&](Params& p) { p.slice = t; });
    if (g_.taps > 1) add([](Params& p) { p.slice = -2; });
    add([](Params& p) { p.flip_rows = p.flip_columns = true; });
    add([](Params& p) { p.flip_rows = true; });
    add([](Params& p) { p.flip_columns = true; });
    if (g_.kh == g_.kw) add([](Params& p) { p.swap_rows_columns = true; });
    if (g_.in == g_.out) add([](Params& p) { p.transposed = true; });
    for (const Padding padding : {Padding::kReplicate, Padding::kReflect, Padding::kCircular})
      add([&](Params& p) { p.padding = padding; });
    for (int64_t top = 0; top < g_.kh; ++top)
      for (int64_t left = 0; left < g_.kw; ++left)
        if (top != r.top || left != r.left) add([&](Params& p) { p.top = top, p.left = left; });
    if (g_.kh > 1) {
      for (const int64_t shift : {-1, 1}) {
        add([&](Params& p) { p.top += shift * g_.kh; });
        add([&](Params& p) { p.left += shift * g_.kw; });
      }
      add([](Params& p) { p.dilation = 2; });
      add([](Params& p) { p.middle = true; });
    }
    for (int memory = 1; memory < 5; ++memory) add([&](Params& p) { p.memory = memory; });
    add([](Params& p) { p.inputs_reversed = true; });
    for (const int parts : {2, 3, 4})
      if (g_.in % parts == 0) add([&](Params& p) { p.input_parts = parts; });
    for (const int64_t roll : {1, -1, 2, -2})
      if (g_.in > 4) add([&](Params& p) { p.roll = roll; });
    for (const NumberFormat& format : number_formats()) {
      add([&](Params& p) { p.kernel = &format; });
      add([&](Params& p) { p.kernel = p.added = &format; });
      add([&](Params& p) { p.added = &format; });
      add([&](Params& p) { p.input = &format; });
      add([&](Params& p) { p.input = p.kernel = &format; });
      add([&](Params& p) { p.input = p.kernel = p.added = &format; });
    }
    return out;
  }

  // What the reference's formula makes of the candidate's input, and what the candidate has: [channels, places], the
  // bias taken away from both.
  std::pair<Values, Values> products(const Params& r) const {
    std::vector<double> sums;
    Params plain = r;
    plain.bias = 0;
    measure(true, plain, nullptr, nullptr, &sums);
    const int64_t places = static_cast<int64_t>(places_.size());
    Values right = make_values({static_cast<int64_t>(channels_.size()), places}), mine = right;
    const Values& y = y_[1];
    for (size_t c = 0, i = 0; c < channels_.size(); ++c)
      for (const auto& [py, px] : places_) {
        right.v[i] = static_cast<float>(sums[i]);
        mine.v[i] = y.v[static_cast<size_t>((channels_[c] * y.dim(-2) + py) * y.dim(-1) + px)] -
                    (bias_.empty() || !r.bias ? 0 : bias_[static_cast<size_t>(channels_[c])]);
        ++i;
      }
    return {std::move(right), std::move(mine)};
  }

 private:
  float tap(const Values& w, const Params& p, int64_t o, int64_t i, int64_t ky, int64_t kx) const {
    if (p.flip_rows) ky = g_.kh - 1 - ky;
    if (p.flip_columns) kx = g_.kw - 1 - kx;
    if (p.swap_rows_columns) std::swap(ky, kx);
    if (p.transposed) std::swap(o, i);
    const auto at = [&](int64_t t) {
      const int64_t k = ky * g_.kw + kx, taps = g_.kh * g_.kw;
      if (p.memory && g_.taps == 1) {
        const int64_t index = p.memory == 1   ? (o * taps + k) * g_.in + i
                              : p.memory == 2 ? (k * g_.in + i) * g_.out + o
                              : p.memory == 4 ? (o * g_.in + (i * taps + k) % g_.in) * taps + (i * taps + k) / g_.in
                                              : (i * g_.out + o) * taps + k;
        return w.v[static_cast<size_t>(index)];
      }
      return w.v[static_cast<size_t>((((o * g_.in + i) * g_.taps + t) * g_.kh + ky) * g_.kw + kx)];
    };
    if (p.kernel) return p.kernel->round(at(g_.taps - 1));
    if (p.slice >= 0) return at(p.slice);
    if (p.slice == -1) return at(g_.taps - 1);
    float sum = 0;
    for (int64_t t = 0; t < g_.taps; ++t) sum += at(t);
    return sum;
  }
  int64_t source(const Params& p, int64_t i) const {
    if (p.inputs_reversed) return g_.in - 1 - i;
    if (p.roll) return ((i - p.roll) % g_.in + g_.in) % g_.in;
    return p.input_parts > 1 ? (i + g_.in / p.input_parts) % g_.in : i;
  }
  const Values& w_;
  Values x_[2], y_[2];
  Geometry g_;
  std::vector<float> bias_;
  std::vector<std::pair<int64_t, int64_t>> places_;
  std::vector<int64_t> channels_;
};

Finding describe(const Params& r, const Params& c) {
  Finding out{"",          fmt::format("reference: {}; yours: {}", formula(r), formula(c)),
              "",          "",
              r.residual,  c.residual,
              0.7,         0,
              Blame::kNone};
  if (c.bias != r.bias)
    out.cause = c.bias ? "convolution.bias_doubled" : "convolution.bias_missing", out.fix = "add the bias once";
  else if (c.memory)
    out.cause = "convolution.kernel_axes",
    out.fix = "permute the weight's axes as the library wants them, do not only rename them";
  else if (c.inputs_reversed || c.input_parts > 1 || c.roll)
    out.cause = "convolution.input_order", out.fix = "the channels of the input are in another order";
  else if (c.input)
    out.cause = c.input->cause, out.fix = "do not cast the input of this layer";
  else if (c.kernel)
    out.cause = "convolution.weight_rounded", out.fix = "keep the weight in its own dtype", out.blame = Blame::kWeights;
  else if (c.added)
    out.cause = "convolution.different_bias", out.fix = "keep the bias in its own dtype", out.blame = Blame::kWeights;
  else if (c.middle)
    out.cause = "convolution.kernel_size", out.fix = "apply the whole kernel";
  else if (c.dilation != r.dilation)
    out.cause = "convolution.dilation", out.fix = "do not dilate the kernel";
  else if (!c.weight.empty())
    out.cause = "convolution.other_weight", out.fix = "load this layer's own weight, not " + c.weight,
    out.blame = Blame::kWeights;
  else if (c.slice != r.slice)
    out.cause = "convolution.temporal_tap",
    out.fix = "for one frame use the newest (last) temporal tap of the kernel alone";
  else if (c.flip_rows != r.flip_rows || c.flip_columns != r.flip_columns)
    out.cause = "convolution.kernel_mirrored", out.fix = "do not mirror the kernel: layers compute a correlation";
  else if (c.swap_rows_columns)
    out.cause = "convolution.kernel_axes",
    out.fix = "the kernel's rows and columns are exchanged: permute the weight as the library wants it";
  else if (c.transposed)
    out.cause = "convolution.transposed_weight", out.fix = "in and out channels of the weight are exchanged",
    out.blame = Blame::kWeights;
  else if (c.padding != r.padding)
    out.cause = "convolution.padding", out.fix = "pad the border as the reference does";
  else
    out.cause = "convolution.padding",
    out.fix = fmt::format("pad {} rows and {} columns in front, not {} and {}", r.top, r.left, c.top, c.left);
  return out;
}

// The right product with another factor, order or offset for each output channel.
void search_products(Case& failing, const Search& search, const Params& r, Findings& out) {
  auto [right, mine] = search.products(r);
  const auto add = [&](const char* cause, std::string yours, std::string fix, double residual, double complexity) {
    out.push_back({cause, fmt::format("reference: {}; yours: {}", formula(r), yours), std::move(fix), "", r.residual,
                   residual, complexity, 0, Blame::kWeights});
  };
  const size_t places = static_cast<size_t>(right.last());
  double all_xy = 0, all_xx = 0, one = 0, each = 0, offset = 0;
  const double yy = squared_norm(mine.v);
  if (!(yy > 0)) return add("convolution.zero_weight", "b alone", "the weight is zeros: it was never loaded", 0, 0.7);
  for (size_t i = 0; i < mine.v.size(); ++i)
    all_xy += static_cast<double>(mine.v[i]) * right.v[i], all_xx += static_cast<double>(right.v[i]) * right.v[i];
  const double factor = all_xx > 0 ? all_xy / all_xx : 0;
  for (size_t c = 0; c * places < mine.v.size(); ++c) {
    double xy = 0, xx = 0, d = 0;
    for (size_t i = c * places; i < (c + 1) * places; ++i)
      xy += static_cast<double>(mine.v[i]) * right.v[i], xx += static_cast<double>(right.v[i]) * right.v[i],
          d += static_cast<double>(mine.v[i]) - right.v[i];
    const double k = xx > 0 ? xy / xx : 0, b = d / static_cast<double>(places);
    for (size_t i = c * places; i < (c + 1) * places; ++i)
      one += std::pow(mine.v[i] - factor * right.v[i], 2), each += std::pow(mine.v[i] - k * right.v[i], 2),
          offset += std::pow(mine.v[i] - right.v[i] - b, 2);
  }
  const auto fits = [&](double squares) { return failing.explains_candidate(std::sqrt(squares / yy)); };
  if (fits(one))
    return add("convolution.weight_scaled", fmt::format("{} conv(x, W) + b", number(factor)),
               "a factor on the weight is missing or applied twice", std::sqrt(one / yy), 1);
  if (fits(offset) && places >= 4)
    return add("convolution.different_bias", "conv(x, W) plus another vector, which is not this layer's bias",
               "compare the loaded bias with the file", std::sqrt(offset / yy), 1);
  if (fits(each) && places >= 6)
    return add("convolution.weight_scaled", "conv(x, W) with a factor of its own for each output channel, plus b",
               "the scales of the weight's rows are missing, or those of other rows", std::sqrt(each / yy), 1.4);
  for (const Rearrangement& found : find_rearrangements("", mine, right, failing.tolerance))
    if (failing.explains_candidate(found.residual))
      return add(found.id.c_str(), "the same product, " + found.words + ", and then the bias in its own order",
                 "the output channels of the weight are in another order than those of the bias", found.residual, 1.2);
}

}  // namespace

void search_convolution(Case& failing, Findings& out) {
  if (failing.role == Role::kInput || !failing.weights_r || failing.r.rank() < 4) return;
  const auto weight = failing.weight_r(failing.module + ".weight");
  if (!weight || weight->rank() < 4) return;
  for (const Item* input : input_items(failing, 0)) {
    if (input->shape.size() != failing.r.rank()) continue;
    const Search search(failing, *input, *weight);
    if (!search.possible()) continue;
    const Params r = search.reference(failing.tolerance);
    if (!failing.explains(r.residual)) continue;
    const double with_reference = search.measure(true, r);
    if (failing.note_local(with_reference)) return;
    Params best;
    for (Params p : search.alternatives(r)) {
      p.residual = search.measure(true, p);
      if (p.residual < best.residual) best = p;
    }
    size_t loads = 0;
    for (const auto& [name, shape] : failing.weights_r->shapes()) {
      if (shape != weight->shape || name == failing.module + ".weight" || ++loads > 40 ||
          failing.explains_candidate(best.residual))
        continue;
      const auto other = failing.weight_r(name), bias = failing.weight_r(parent_of(name) + ".bias");
      Params p = r;
      p.weight = name;
      if (!other) continue;
      p.residual = search.measure(true, p, &*other, bias ? &bias->v : nullptr);
      if (p.residual < best.residual) best = p;
    }
    if (failing.explains_candidate(best.residual) && failing.is_better(best.residual, with_reference))
      out.push_back(describe(r, best));
    else
      search_products(failing, search, r, out);
    return;
  }
}

}  // namespace lockstep
