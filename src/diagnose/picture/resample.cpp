// y = x enlarged twice: how the new pixels are made, along the rows and along the columns.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "diagnose/search/edits.h"
#include "diagnose/search/fit.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

// One axis of a picture enlarged: where the pixels of the result come from.
enum class Enlarged {
  kNearest,
  kLinear,
  kLinearCorners,
  kSpaced,
  kSpacedSecond,
  kNext,
  kBefore,
  kCubic,
  kCubicSharp,
  kCubicCorners,
  kTiled,
  kBackwards
};
constexpr Enlarged kAllEnlarged[] = {Enlarged::kNearest,      Enlarged::kLinear,       Enlarged::kLinearCorners,
                                     Enlarged::kSpaced,       Enlarged::kSpacedSecond, Enlarged::kNext,
                                     Enlarged::kBefore,       Enlarged::kCubic,        Enlarged::kCubicSharp,
                                     Enlarged::kCubicCorners, Enlarged::kTiled,        Enlarged::kBackwards};
constexpr const char* kEnlargedWords[] = {"nearest pixel repeated",
                                          "bilinear",
                                          "bilinear with aligned corners",
                                          "zeros between the pixels",
                                          "zeros between the pixels, the zeros first",
                                          "nearest pixel repeated, one pixel further on",
                                          "nearest pixel repeated, one pixel before",
                                          "bicubic (a = -0.75)",
                                          "bicubic (a = -0.5)",
                                          "bicubic with aligned corners",
                                          "the whole picture repeated side by side",
                                          "nearest pixel repeated, backwards"};

struct Taps {
  std::array<int64_t, 4> at{};
  std::array<double, 4> weight{};
};

double cubic(double t, double a) {
  t = std::fabs(t);
  return t <= 1 ? ((a + 2) * t - (a + 3)) * t * t + 1 : t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

Taps taps_of(Enlarged kind, int64_t i, int64_t n, int64_t out) {
  const auto single = [&](int64_t at) { return Taps{{std::clamp<int64_t>(at, 0, n - 1)}, {1}}; };
  const double ratio = static_cast<double>(n) / static_cast<double>(out);
  const double centre = (static_cast<double>(i) + 0.5) * ratio - 0.5;
  const double corner = static_cast<double>(i * (n - 1)) / static_cast<double>(std::max<int64_t>(1, out - 1));
  const auto linear = [&](double at) {
    at = std::clamp(at, 0.0, static_cast<double>(n - 1));
    const int64_t first = static_cast<int64_t>(at);
    const double share = at - static_cast<double>(first);
    return Taps{{first, std::min(first + 1, n - 1)}, {1 - share, share}};
  };
  const auto curve = [&](double at, double a) {
    Taps taps;
    const int64_t first = static_cast<int64_t>(std::floor(at)) - 1;
    for (size_t k = 0; k < 4; ++k) {
      const int64_t place = first + static_cast<int64_t>(k);
      taps.at[k] = std::clamp<int64_t>(place, 0, n - 1), taps.weight[k] = cubic(at - static_cast<double>(place), a);
    }
    return taps;
  };
  switch (kind) {
    case Enlarged::kNearest:
      return single(i * n / out);
    case Enlarged::kLinear:
      return linear(centre);
    case Enlarged::kLinearCorners:
      return linear(corner);
    case Enlarged::kSpaced:
      return i % 2 ? Taps{} : single(i / 2);
    case Enlarged::kSpacedSecond:
      return i % 2 ? single(i / 2) : Taps{};
    case Enlarged::kNext:
      return single((i + 1) * n / out);
    case Enlarged::kBefore:
      return single((i > 0 ? i - 1 : 0) * n / out);
    case Enlarged::kCubic:
      return curve(centre, -0.75);
    case Enlarged::kCubicSharp:
      return curve(centre, -0.5);
    case Enlarged::kCubicCorners:
      return curve(corner, -0.75);
    case Enlarged::kTiled:
      return single(i % n);
    case Enlarged::kBackwards:
      break;
  }
  return single((out - 1 - i) * n / out);
}

struct Enlargement {
  Enlarged rows = Enlarged::kNearest, columns = Enlarged::kNearest;

  bool operator==(const Enlargement& o) const = default;
  std::string words() const {
    const char* first = kEnlargedWords[static_cast<size_t>(rows)];
    return rows == columns ? first
                           : fmt::format("rows: {}, columns: {}", first, kEnlargedWords[static_cast<size_t>(columns)]);
  }
};

double enlarged_residual(const Enlargement& e, const Values& x, const Values& y, int64_t most_planes,
                         int64_t most_lines) {
  const int64_t h = x.dim(-2), w = x.dim(-1), oh = y.dim(-2), ow = y.dim(-1), planes = x.size() / (h * w);
  const std::vector<int64_t> of_rows = sample_indices(oh, most_lines), of_columns = sample_indices(ow, most_lines);
  std::vector<Taps> columns;
  for (const int64_t j : of_columns) columns.push_back(taps_of(e.columns, j, w, ow));
  Residual unexplained;
  for (const int64_t i : of_rows) {
    const Taps rows = taps_of(e.rows, i, h, oh);
    for (const int64_t plane : sample_indices(planes, most_planes))
      for (size_t k = 0; k < columns.size(); ++k) {
        double value = 0;
        for (size_t a = 0; a < 4; ++a)
          for (size_t b = 0; b < 4 && rows.weight[a] != 0; ++b)
            if (columns[k].weight[b] != 0)
              value += rows.weight[a] * columns[k].weight[b] *
                       x.v[static_cast<size_t>((plane * h + rows.at[a]) * w + columns[k].at[b])];
        const double target = y.v[static_cast<size_t>((plane * oh + i) * ow + of_columns[k])];
        unexplained.add(value, target);
      }
  }
  return unexplained.relative();
}

std::vector<Enlargement> all_enlargements() {
  std::vector<Enlargement> out;
  for (const Enlarged rows : kAllEnlarged)
    for (const Enlarged columns : kAllEnlarged) out.push_back({rows, columns});
  return out;
}

}  // namespace

void search_resample(Case& failing, Findings& out) {
  if (failing.r.rank() < 3 || !std::isfinite(failing.error)) return;
  for (const Item& item : failing.items) {
    if (item.relation != Relation::kOwnInput || item.shape.size() != failing.r.rank()) continue;
    if (failing.r.dim(-2) != 2 * item.shape[item.shape.size() - 2] || failing.r.dim(-1) != 2 * item.shape.back())
      continue;
    if (checked_numel(item.shape) * 4 != failing.r.size()) continue;
    const auto measure_r = [&](const Enlargement& e) {
      return enlarged_residual(e, failing.reference_of(item), failing.r, 16, 64);
    };
    const auto measure_c = [&](const Enlargement& e) {
      return enlarged_residual(e, failing.candidate_of(item), failing.c, 16, 64);
    };
    const auto r = fit_reference(all_enlargements(), measure_r, 0);
    if (!failing.explains(r.residual)) return;
    std::vector<Edit<Enlargement>> edits;
    for (const Enlargement& other : all_enlargements())
      if (!(other == r.form))
        edits.push_back({{"resample.kind", "use " + r.form.words()}, [=](Enlargement& e) { e = other; }});
    Budget budget(static_cast<int64_t>(edits.size()));
    EditSearch<Enlargement> search(r.form, measure_c, 1, budget);
    // A few pixels rule most of them out.
    search.look_first(
        [&](const Enlargement& e) { return enlarged_residual(e, failing.candidate_of(item), failing.c, 3, 12); }, 0.1);
    search.try_each(edits);
    const EditedForm<Enlargement>& c = search.best();
    if (failing.explains_candidate(c.residual) && failing.is_better(c.residual, measure_c(r.form)))
      Report("enlarged, " + r.form.words(), r.residual, out).add(c.name(), c.form.words(), c.residual, c.complexity());
    return;
  }
}

}  // namespace lockstep
