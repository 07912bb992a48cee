// Norms of pictures, [batch, channels, (time,) rows, columns]: which channels are taken together, whether the
// statistics run over the whole picture or over each pixel alone, whether the mean is taken away. Group norm, instance
// norm and layer norm are cases of it, and so is the RMS norm over the channels of a pixel.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/search/edits.h"
#include "diagnose/search/fit.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr int64_t kMostPixels = 1024;  // looked at, once the statistics of the whole are known
constexpr int64_t kMostNormed = int64_t{1} << 27;

// What the statistics run over beside the channels of a group: one pixel, the whole picture, its rows or its columns.
enum class Extent { kPixel, kPicture, kRow, kColumn };
constexpr Extent kExtents[] = {Extent::kPixel, Extent::kPicture, Extent::kRow, Extent::kColumn};
constexpr const char* kExtentWords[] = {"one pixel", "the whole picture", "one row of pixels", "one column of pixels"};

struct SpaceNorm {
  int64_t groups = 1;  // of channels
  Extent extent = Extent::kPixel;
  bool centred = false;
  bool weighted = true;  // times the norm's own weight
  double eps = 0;
  double factor = 1;  // what it is multiplied with beyond that

  std::string words(int64_t channels) const {
    const std::string what = groups == 1          ? "all channels"
                             : groups == channels ? "each channel"
                                                  : fmt::format("each of {} groups of channels", groups);
    return fmt::format("{} over {} of {}{}{}", centred ? "(x - mean) / deviation" : "x / rms", what,
                       kExtentWords[static_cast<size_t>(extent)], weighted ? ", times the weight" : ", no weight",
                       std::fabs(factor - 1) < 1e-3 ? "" : fmt::format(", times {}", number(factor)));
  }
};

// One picture of each side and its statistics: [channels, pixels].
struct Normed {
  int64_t channels = 1, pixels = 1, height = 1, width = 1;
  Values x, y;
  // Sums over the pixels of each extent: [channels, how many there are].
  struct Sums {
    int64_t count = 1;
    std::vector<double> sum, squares;
  };
  Sums sums[4];
  std::vector<int64_t> sample;
  std::vector<float> sampled_x, sampled_y;  // [pixels of the sample, channels]: a pixel's channels side by side

  Normed(const Values& input, const Values& output, int64_t item, int64_t batch)
      : x(batch_item(input, item, batch)), y(batch_item(output, item, batch)) {
    channels = y.shape[1], pixels = y.size() / channels;
    sample = sample_indices(pixels, kMostPixels);
    width = y.last(), height = pixels / width;
    for (const int64_t p : sample)
      for (int64_t c = 0; c < channels; ++c) {
        sampled_x.push_back(x.v[static_cast<size_t>(c * pixels + p)]);
        sampled_y.push_back(y.v[static_cast<size_t>(c * pixels + p)]);
      }
    for (const Extent extent : kExtents) {
      Sums& of = sums[static_cast<size_t>(extent)];
      of.count = extent == Extent::kPixel     ? 0
                 : extent == Extent::kPicture ? 1
                 : extent == Extent::kRow     ? height
                                              : width;
      of.sum.resize(static_cast<size_t>(channels * of.count)), of.squares = of.sum;
      for (int64_t line = 0; line < channels * height && of.count > 0; ++line) {
        const int64_t base = line / height * of.count, row = line % height;
        for (int64_t column = 0; column < width; ++column) {
          const size_t at = static_cast<size_t>(base + place(extent, row, column));
          const double value = x.v[static_cast<size_t>(line * width + column)];
          of.sum[at] += value, of.squares[at] += value * value;
        }
      }
    }
  }
  static int64_t place(Extent extent, int64_t row, int64_t column) {
    return extent == Extent::kRow ? row : extent == Extent::kColumn ? column : 0;
  }

  // What is left when y is `form` of x; the factor is solved for, or taken from the form.
  EditedForm<SpaceNorm> fitted(SpaceNorm form, const std::vector<float>& weight, bool solve) const {
    const int64_t size = channels / form.groups;
    std::vector<double> z;
    z.reserve(static_cast<size_t>(channels) * sample.size());
    double zy = 0, zz = 0, yy = 0;
    for (int64_t g = 0; g < form.groups; ++g) {
      const Sums& of = sums[static_cast<size_t>(form.extent)];
      for (size_t i = 0; i < sample.size(); ++i) {
        const float* const xs = sampled_x.data() + i * static_cast<size_t>(channels);
        const float* const ys = sampled_y.data() + i * static_cast<size_t>(channels);
        const int64_t line = place(form.extent, sample[i] / width, sample[i] % width);
        double s = 0, ss = 0, n = static_cast<double>(size);
        for (int64_t c = g * size; c < (g + 1) * size; ++c)
          if (form.extent == Extent::kPixel) {
            const double value = xs[c];
            s += value, ss += value * value;
          } else {
            const size_t at = static_cast<size_t>(c * of.count + line);
            s += of.sum[at], ss += of.squares[at];
          }
        if (form.extent != Extent::kPixel) n *= static_cast<double>(pixels / of.count);
        const double mean = form.centred ? s / n : 0, variance = std::max(0.0, ss / n - mean * mean);
        const double scale = variance + form.eps > 0 ? 1 / std::sqrt(variance + form.eps) : 0;
        for (int64_t c = g * size; c < (g + 1) * size; ++c) {
          const double value = (xs[c] - mean) * scale * (form.weighted ? weight[static_cast<size_t>(c)] : 1),
                       target = ys[c];
          z.push_back(value);
          zy += value * target, zz += value * value, yy += target * target;
        }
      }
    }
    if (!(zz > 0) || !(yy > 0)) return {form};
    if (solve) form.factor = zy / zz;
    const double left = std::sqrt(std::max(0.0, yy - 2 * form.factor * zy + form.factor * form.factor * zz) / yy);
    if (left >= 1e-3) return {form, left};
    Residual unexplained;  // the difference of large sums says no more: count it out
    size_t i = 0;
    for (int64_t g = 0; g < form.groups; ++g)
      for (size_t pixel = 0; pixel < sample.size(); ++pixel)
        for (int64_t c = g * size; c < (g + 1) * size; ++c, ++i)
          unexplained.add(form.factor * z[i],
                          sampled_y[pixel * static_cast<size_t>(channels) + static_cast<size_t>(c)]);
    return {form, unexplained.relative()};
  }

  // With the eps that fits best, and any factor.
  EditedForm<SpaceNorm> solved(SpaceNorm form, const std::vector<float>& weight) const {
    EditedForm<SpaceNorm> best = fitted(form, weight, true);
    if (best.residual > 0.3) return best;
    for (const double eps : {1e-12, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3}) {
      form.eps = eps;
      if (auto fit = fitted(form, weight, true); fit.residual < 0.7 * best.residual) best = std::move(fit);
    }
    return best;
  }
};

std::vector<SpaceNorm> space_norms(int64_t channels) {
  std::vector<SpaceNorm> out;
  for (int64_t groups = 1; groups <= channels; ++groups) {
    if (channels % groups || (groups > 64 && groups != channels)) continue;
    for (const Extent extent : kExtents)
      for (const bool centred : {false, true}) {
        // Single numbers become signs; lines are taken channel by channel or all together.
        if (extent == Extent::kPixel && groups * (centred ? 2 : 1) >= channels) continue;
        if ((extent == Extent::kRow || extent == Extent::kColumn) && groups != 1 && groups != channels) continue;
        for (const bool weighted : {true, false}) out.push_back({groups, extent, centred, weighted});
      }
  }
  return out;
}

std::vector<Edit<SpaceNorm>> space_norm_edits(const SpaceNorm& r, int64_t channels) {
  std::vector<Edit<SpaceNorm>> out;
  for (const SpaceNorm& c : space_norms(channels)) {
    const Cause cause = c.centred != r.centred                         ? Cause("norm.kind")
                        : c.groups != r.groups || c.extent != r.extent ? Cause("norm.axis")
                        : r.weighted && !c.weighted                    ? Cause("norm.weight_missing")
                        : c.weighted && !r.weighted                    ? Cause("norm.weight_added")
                                                                       : Cause("norm.factor");
    out.push_back({{cause, "normalise as the reference does: " + r.words(channels)}, [=](SpaceNorm& p) { p = c; }});
  }
  return out;
}

}  // namespace

void search_space_norm(Case& failing, Findings& out) {
  if (failing.r.rank() < 4 || !failing.is_leaf || failing.role == Role::kInput || !std::isfinite(failing.error)) return;
  const int64_t batch = failing.r.shape[0], channels = failing.r.shape[1], item = worst_item(failing);
  if (channel_axis(failing.name, failing.r.shape) != 1 || channels < 2 ||
      failing.r.size() / std::max<int64_t>(1, batch) > kMostNormed)
    return;
  std::vector<float> weight(static_cast<size_t>(channels), 1);
  for (const char* name : {".gamma", ".weight", ".scale"})
    if (const auto found = failing.weight_r(failing.module + name)) {
      if (found->size() != channels) return;
      weight = found->v;
    }
  for (const Item* input : equal_size_items(failing, 3)) {
    if (input->relation != Relation::kOwnInput) continue;
    const Normed of_r(failing.reference_of(*input), failing.r, item, batch);
    const auto near = fit_reference(
        space_norms(channels), [&](const SpaceNorm& p) { return of_r.solved(p, weight).residual; }, 0);
    const auto r = of_r.solved(near.form, weight);
    if (!failing.explains(r.residual)) continue;
    const Normed of_c(failing.candidate_of(*input), failing.c, item, batch);
    const double with_reference = of_c.fitted(r.form, weight, false).residual;
    if (failing.note_local(with_reference)) return;
    Budget budget(1000);
    EditSearch<SpaceNorm> search(
        r.form, [&](const SpaceNorm& p) { return of_c.solved(p, weight).residual; }, 1, budget);
    search.try_each(space_norm_edits(r.form, channels));
    const EditedForm<SpaceNorm>& c = search.best();
    if (failing.explains_candidate(c.residual) && failing.is_better(c.residual, with_reference))
      Report(r.form.words(channels), r.residual, out)
          .add(c.name(), of_c.solved(c.form, weight).form.words(channels), c.residual, 0.8);
    return;
  }
}

}  // namespace lockstep
