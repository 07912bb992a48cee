#include "backend/reference/access.h"
#include "backend/reference/kernels.h"

namespace lockstep::reference {

void conv2d(const Conv2dArgs& args) {
  const Tensor& w = args.weight.weight;  // [O, I, kh, kw]
  const int64_t height = args.x.dim(1), width = args.x.dim(2), inputs = args.x.dim(3);
  const std::vector<double> weights = to_doubles(w), x = to_doubles(args.x);
  for (int64_t b = 0; b < args.out.dim(0); ++b)
    for (int64_t oy = 0; oy < args.out.dim(1); ++oy)
      for (int64_t ox = 0; ox < args.out.dim(2); ++ox)
        for (int64_t o = 0; o < args.out.dim(3); ++o) {
          double sum = args.weight.bias.defined() ? load(args.weight.bias, {o}) : 0;
          for (int64_t ky = 0; ky < w.dim(2); ++ky)
            for (int64_t kx = 0; kx < w.dim(3); ++kx) {
              const int64_t y = oy * args.stride + ky - args.pad_top, xx = ox * args.stride + kx - args.pad_left;
              if (y < 0 || y >= height || xx < 0 || xx >= width) continue;
              for (int64_t i = 0; i < inputs; ++i)
                sum += x[static_cast<size_t>(((b * height + y) * width + xx) * inputs + i)] *
                       weights[static_cast<size_t>(((o * inputs + i) * w.dim(2) + ky) * w.dim(3) + kx)];
            }
          if (args.residual) sum += load(*args.residual, {b, oy, ox, o});
          store(args.out, {b, oy, ox, o}, sum);
        }
}

}  // namespace lockstep::reference
