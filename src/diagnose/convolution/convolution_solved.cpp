// A convolution with a kernel that is none of the known ones: it is solved for from what the kernel meets at each place
// of the picture; or known to be drawn at random by the angles it keeps, where there are too few places.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/case/thresholds.h"
#include "diagnose/convolution/convolution_probe.h"
#include "diagnose/weight/kept_angles.h"
#include "diagnose/weight/weight_levels.h"
#include "diagnose/weight/weight_relation.h"
#include "measure/residual.h"
#include "measure/small_solve.h"

namespace lockstep {
namespace {

constexpr size_t kMostUnknowns = 900;
constexpr int64_t kAnglesLookedAt = 40;

struct SolvedKernel {
  Values kernel;  // [channels, in, rows, columns]
  double residual = INFINITY;
};

std::optional<SolvedKernel> solve_kernel(const ConvProbe& probe, const ConvParams& r) {
  const size_t n = static_cast<size_t>(probe.patch_size()) + 1, m = probe.channels().size();
  if (n > kMostUnknowns || static_cast<size_t>(probe.places()) < n + n / 8) return std::nullopt;
  const auto [x, y] =
      probe.patches(r, static_cast<int64_t>(3 * n));  // [places, in * rows * columns], [places, channels]
  std::vector<double> gram(n * n), right(n * m), in(n, 1);
  for (int64_t place = 0; place < x.rows(); ++place) {
    std::copy(x.row(place).begin(), x.row(place).end(), in.begin());
    for (size_t a = 0; a < n; ++a) {
      if (in[a] == 0) continue;  // beyond the border
      for (size_t b = 0; b <= a; ++b) gram[a * n + b] += in[a] * in[b];
      for (size_t j = 0; j < m; ++j) right[a * m + j] += in[a] * y.row(place)[j];
    }
  }
  double trace = 0;
  for (size_t a = 0; a < n; ++a) trace += gram[a * n + a];
  for (size_t a = 0; a < n; ++a) gram[a * n + a] += 1e-11 * trace / static_cast<double>(n);
  if (!solve_symmetric(gram, right, n, m)) return std::nullopt;
  SolvedKernel out;
  out.kernel = make_values({static_cast<int64_t>(m), static_cast<int64_t>(n) - 1});
  for (size_t j = 0; j < m; ++j)
    for (size_t k = 0; k + 1 < n; ++k) out.kernel.v[j * (n - 1) + k] = static_cast<float>(right[k * m + j]);
  Residual unexplained;
  for (int64_t place = 0; place < x.rows(); ++place)
    for (size_t j = 0; j < m; ++j) {
      const double target = y.row(place)[j];
      unexplained.add(right[(n - 1) * m + j] + dot(x.row(place), out.kernel.row(static_cast<int64_t>(j))), target);
    }
  out.residual = unexplained.relative();
  return out;
}

// Of several taps of time one frame meets the last alone; what was drawn was drawn for all of them, and is as large as
// their number says.
Values for_each_tap(const Values& kernel, int64_t taps) {
  Values out = make_values({kernel.rows(), taps * kernel.last()});
  for (int64_t j = 0; j < kernel.rows(); ++j)
    for (int64_t t = 0; t < taps; ++t)
      std::copy(kernel.row(j).begin(), kernel.row(j).end(), out.row(j).begin() + t * kernel.last());
  return out;
}

}  // namespace

bool search_solved_kernel(Case& failing, const ConvProbe& probe, const ConvParams& r, const Report& report) {
  const auto add = [&](Cause cause, const std::string& yours, const std::string& fix, double residual) {
    return report.add({cause, fix, Blame::kWeights}, yours, std::min(residual, failing.tolerance), 2.2);
  };
  const std::string never = fmt::format("{}.weight was never loaded: check its name in the loader", failing.module);
  const auto solved = solve_kernel(probe, r);
  if (solved && solved->residual <= std::max(50 * failing.tolerance, 1e-3)) {
    const Values own = probe.kernel_rows(r);
    double related = 0;
    for (int64_t j = 0; j < own.rows(); ++j)
      related += std::fabs(correlation(solved->kernel.row(j), own.row(j))) / static_cast<double>(own.rows());
    if (related > kItsOwnScaled) return false;  // every row a multiple of its own: said more plainly of the channels
    if (related > kQuantisedRelated)
      if (const auto few = find_few_levels(solved->kernel, kSolvedNoise))
        return add("convolution.weight_rounded", "the same with a kernel that takes " + few->words,
                   "expected when the candidate is quantised; else load the full weight", solved->residual);
    const int64_t taps = probe.geometry().taps;
    const WeightRelation relation =
        relate_weights(failing.module + ".weight", for_each_tap(solved->kernel, taps), for_each_tap(own, taps));
    const bool random = related < kUnrelated && relation.id == "weights.random";
    return add(
        "convolution.different_weight",
        fmt::format("a convolution too, but with a kernel that is none of the checkpoint's ({})",
                    random ? relation.words : fmt::format("{:.2g} like its own", related)),
        random ? never
               : fmt::format("compare the loaded {}.weight with the file (lockstep weights compare)", failing.module),
        solved->residual);
  }
  if (solved || std::fabs(correlation(failing.c.v, failing.r.v)) > 0.3) return false;
  auto [x, y] = probe.patches(r, kAnglesLookedAt, true);
  if (const auto angles = kept_angles(std::move(x), std::move(y), true))
    return add("convolution.different_weight",
               fmt::format("keeps the angles between what the kernel meets as one drawn at random does ({})", *angles),
               never, failing.tolerance);
  return false;
}

}  // namespace lockstep
