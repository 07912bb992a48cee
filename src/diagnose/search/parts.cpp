// Only a part of the tensor is wrong: some heads, tokens, channels, rows. The part is cut out of both sides and
// explained by itself, or found in another tensor.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/case/thresholds.h"
#include "diagnose/search/fit.h"
#include "measure/axis_words.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr int64_t kFewest = 8;  // elements: fewer fit anything

struct AxisPart {
  size_t axis = 0;
  std::vector<int64_t> kept;
};

Values taken(const Values& x, const AxisPart& part) {
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < part.axis; ++i) outer *= x.shape[i];
  for (size_t i = part.axis + 1; i < x.rank(); ++i) inner *= x.shape[i];
  const int64_t n = x.shape[part.axis], kept = static_cast<int64_t>(part.kept.size());
  Shape shape = x.shape;
  shape[part.axis] = kept;
  Values out = make_values(shape);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t k = 0; k < kept; ++k)
      std::copy_n(x.v.begin() + (o * n + part.kept[static_cast<size_t>(k)]) * inner, inner,
                  out.v.begin() + (o * kept + k) * inner);
  return out;
}

// Which slices of the axis differ by more than rounding; empty when all do, or nearly all.
std::vector<int64_t> bad_slices(const Values& r, const Values& c, size_t axis, double tolerance) {
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < axis; ++i) outer *= r.shape[i];
  for (size_t i = axis + 1; i < r.rank(); ++i) inner *= r.shape[i];
  const int64_t n = r.shape[axis];
  std::vector<double> dd(static_cast<size_t>(n)), rr(static_cast<size_t>(n));
  double total = 0;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < inner; ++i) {
        const size_t at = static_cast<size_t>((o * n + j) * inner + i);
        const double y = r.v[at], d = c.v[at] - y;
        dd[static_cast<size_t>(j)] += d * d, rr[static_cast<size_t>(j)] += y * y;
        total += y * y;
      }
  const double least = 0.06 * total / static_cast<double>(n);  // slices far below the average count as a quarter of it
  std::vector<int64_t> out;
  for (int64_t j = 0; j < n; ++j) {
    const size_t at = static_cast<size_t>(j);
    const double error = std::sqrt(dd[at] / std::max({rr[at], least, 1e-300}));
    if (!(error <= 2 * tolerance)) out.push_back(j);
  }
  if (static_cast<double>(out.size()) > kMostOfAxis * static_cast<double>(n)) out.clear();
  return out;
}

std::string words_of(const std::string& name, const Shape& shape, const std::vector<AxisPart>& parts) {
  const std::vector<std::string> words = axis_words(name, shape);
  std::string out;
  for (const AxisPart& part : parts) {
    std::vector<bool> marked(static_cast<size_t>(shape[part.axis]));
    for (const int64_t i : part.kept) marked[static_cast<size_t>(i)] = true;
    std::string set = index_set_words(words[part.axis], marked);
    if (set.empty()) set = fmt::format("{} of {} {}", part.kept.size(), marked.size(), plural(words[part.axis]));
    out += (out.empty() ? "" : "; ") + set;
  }
  return out;
}

Values cut(Values x, const std::vector<AxisPart>& parts) {
  for (const AxisPart& part : parts) x = taken(x, part);
  return x;
}

void search_other_tensors(Case& failing, const Case& part, const std::vector<AxisPart>& parts, const std::string& words,
                          Findings& out) {
  for (const Item* item : equal_size_items(failing, 12)) {
    Values other = failing.reference_of(*item);
    other.shape = failing.r.shape;
    const double residual = relative_error(part.c.v, cut(std::move(other), parts).v);
    if (!part.explains_candidate(residual)) continue;
    out.push_back({.cause = "stage.replaced",
                   .explanation = fmt::format("{}; reference: {}; yours: {}, unchanged; elsewhere they agree", words,
                                              failing.name, item->label()),
                   .fix = fmt::format("what lies between {} and {} is left out there", item->label(), failing.name),
                   .residual = residual,
                   .complexity = 1.6});
    return;
  }
}

// Pictures: the inside is right and the border is not. The outer rows then stand for all of it.
AxisPart border_part(const Case& failing) {
  const Values &r = failing.r, &c = failing.c;
  if (r.rank() < 4) return {};
  const int64_t height = r.dim(-2), width = r.dim(-1), planes = r.size() / (height * width);
  for (const int64_t b : {1, 2, 4, 8}) {
    if (2 * b >= std::min(height, width)) return {};
    Residual inside;
    for (int64_t p = 0; p < planes; ++p)
      for (int64_t y = b; y < height - b; ++y)
        for (int64_t x = b; x < width - b; ++x) {
          const size_t at = static_cast<size_t>((p * height + y) * width + x);
          inside.add(c.v[at], r.v[at]);
        }
    if (!(inside.relative_or(0) <= failing.tolerance)) continue;
    AxisPart out{r.rank() - 2, {}};
    for (int64_t y = 0; y < b; ++y) out.kept.push_back(y);
    for (int64_t y = height - b; y < height; ++y) out.kept.push_back(y);
    return out;
  }
  return {};
}

void say_where(Findings& found, const std::string& words, Findings& out) {
  for (Finding& finding : found) {
    finding.explanation = words + "; there " + finding.explanation;
    finding.complexity += 0.6;
    out.push_back(std::move(finding));
  }
}

}  // namespace

void search_parts(Case& failing, Findings& out) {
  if (!std::isfinite(failing.error) || failing.r.size() < 4 * kFewest) return;
  std::vector<AxisPart> parts;
  Values r = failing.r, c = failing.c;
  for (size_t axis = 0; axis < failing.r.rank(); ++axis) {
    if (r.shape[axis] < 2) continue;
    AxisPart part{axis, bad_slices(r, c, axis, failing.tolerance)};
    if (part.kept.empty()) continue;
    r = taken(r, part), c = taken(c, part);
    parts.push_back(std::move(part));
  }
  if (parts.empty()) {
    const AxisPart border = border_part(failing);
    if (border.kept.empty()) return;
    r = taken(failing.r, border), c = taken(failing.c, border);
    parts.push_back(border);
  }
  if (r.size() < kFewest) return;
  // An item of a batch by itself first: within it, what moved has come from rows that are right by chance (padding).
  if (parts.size() > 1 && parts[0].axis == 0) {
    const std::vector<AxisPart> item{parts[0]};
    Case alone = failing.with_pair(cut(failing.r, item), cut(failing.c, item));
    Findings found = explain_pair(alone);
    if (!found.empty()) return say_where(found, words_of(failing.name, failing.r.shape, item), out);
  }
  Case part = failing.with_pair(std::move(r), std::move(c));
  const std::string words = words_of(failing.name, failing.r.shape, parts);
  Findings found = explain_pair(part);
  const bool step_missing =
      std::any_of(found.begin(), found.end(), [](const Finding& f) { return f.cause.is_missing_step(); });
  say_where(found, words, out);
  // A step that is left out there also leaves the tensor before it: the step is the better answer.
  if (!step_missing) search_other_tensors(failing, part, parts, words, out);
}

}  // namespace lockstep
