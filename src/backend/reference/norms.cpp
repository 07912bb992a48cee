#include <cmath>

#include "backend/reference/access.h"
#include "backend/reference/kernels.h"
#include "backend/reference/scalar_functions.h"

namespace lockstep::reference {

void rms_norm(const RmsNormArgs& args) {
  const std::vector<int64_t> in = row_offsets(args.x), out = row_offsets(args.out);
  const int64_t width = args.x.dim(-1);
  for (size_t row = 0; row < in.size(); ++row) {
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += std::pow(load_at(args.x, in[row] + i), 2);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(width) + args.eps);
    for (int64_t i = 0; i < width; ++i) {
      double y =
          rounded_to(args.x.dtype(), load_at(args.x, in[row] + i) * inverse);  // torch casts before the weight product
      if (args.weight) y *= load(*args.weight, {i});
      store_at(args.out, out[row] + i, y);
    }
  }
}

void layer_norm(const LayerNormArgs& args) {
  const std::vector<int64_t> in = row_offsets(args.x), out = row_offsets(args.out);
  const int64_t width = args.x.dim(-1);
  const int64_t batch = args.scale ? args.scale->dim(0) : 1;
  for (size_t row = 0; row < in.size(); ++row) {
    const int64_t b = static_cast<int64_t>(row) / (static_cast<int64_t>(in.size()) / batch);
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i) mean += load_at(args.x, in[row] + i);
    mean /= static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) variance += std::pow(load_at(args.x, in[row] + i) - mean, 2);
    const double inverse = 1 / std::sqrt(variance / static_cast<double>(width) + args.eps);
    for (int64_t i = 0; i < width; ++i) {
      double y = (load_at(args.x, in[row] + i) - mean) * inverse;
      if (args.weight) y *= load(*args.weight, {i});
      if (args.bias) y += load(*args.bias, {i});
      if (args.scale) y *= 1 + load(*args.scale, {b, i});
      if (args.shift) y += load(*args.shift, {b, i});
      store_at(args.out, out[row] + i, y);
    }
  }
}

void channel_norm(const ChannelNormArgs& args) {
  const std::vector<int64_t> in = row_offsets(args.x), out = row_offsets(args.out);
  const int64_t channels = args.x.dim(-1);
  for (size_t row = 0; row < in.size(); ++row) {
    double squares = 0;
    for (int64_t c = 0; c < channels; ++c) squares += std::pow(load_at(args.x, in[row] + c), 2);
    const double factor = std::sqrt(static_cast<double>(channels)) / std::max(std::sqrt(squares), 1e-12);
    for (int64_t c = 0; c < channels; ++c) {
      const double y = load_at(args.x, in[row] + c) * factor * load(args.gamma, {c});
      store_at(args.out, out[row] + c, args.silu ? silu(y) : y);
    }
  }
}

void head_norm_rope(const HeadNormRopeArgs& args) {
  const int64_t batch = args.x.dim(0), tokens = args.x.dim(1), heads = args.x.dim(2), width = args.x.dim(3);
  std::vector<double> y(static_cast<size_t>(width));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t s = 0; s < tokens; ++s)
      for (int64_t h = 0; h < heads; ++h) {
        double squares = 0;
        for (int64_t d = 0; d < width; ++d)
          squares += std::pow(y[static_cast<size_t>(d)] = load(args.x, {b, s, h, d}), 2);
        if (args.weight) {
          const double inverse = 1 / std::sqrt(squares / static_cast<double>(width) + args.eps);
          for (int64_t d = 0; d < width; ++d)
            y[static_cast<size_t>(d)] =
                rounded_to(args.x.dtype(), y[static_cast<size_t>(d)] * inverse) * load(*args.weight, {d});
        }
        if (args.style != RopeStyle::kNone)
          for (int64_t i = 0; i < width / 2; ++i) {
            const bool interleaved = args.style == RopeStyle::kInterleaved;
            double& first = y[static_cast<size_t>(interleaved ? 2 * i : i)];
            double& second = y[static_cast<size_t>(interleaved ? 2 * i + 1 : i + width / 2)];
            const double c = load(*args.cos, {s, i}), n = load(*args.sin, {s, i});
            const double rotated = first * c - second * n;
            second = first * n + second * c;
            first = rotated;
          }
        for (int64_t d = 0; d < width; ++d) store(args.out, {b, s, h, d}, y[static_cast<size_t>(d)]);
      }
}

void guidance(const GuidanceArgs& args) {
  const std::vector<int64_t> cond = row_offsets(args.cond), uncond = row_offsets(args.uncond),
                             out = row_offsets(args.out);
  const int64_t width = args.cond.dim(-1);
  std::vector<double> combined(static_cast<size_t>(width));
  for (size_t row = 0; row < cond.size(); ++row) {
    double cond_squares = 0, combined_squares = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double c = load_at(args.cond, cond[row] + i), u = load_at(args.uncond, uncond[row] + i);
      combined[static_cast<size_t>(i)] = rounded_to(args.out.dtype(), u + args.scale * (c - u));
      cond_squares += c * c;
      combined_squares += std::pow(combined[static_cast<size_t>(i)], 2);
    }
    // No epsilon: the official pipeline has none, and 0/0 is NaN there too.
    const double factor = args.rescale ? std::sqrt(cond_squares) / std::sqrt(combined_squares) : 1;
    for (int64_t i = 0; i < width; ++i) store_at(args.out, out[row] + i, combined[static_cast<size_t>(i)] * factor);
  }
}

}  // namespace lockstep::reference
