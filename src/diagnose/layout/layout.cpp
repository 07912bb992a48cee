// The right values in the wrong places.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/case/family.h"
#include "diagnose/layout/layouts.h"
#include "diagnose/layout/packing.h"

namespace lockstep {
namespace {

// Numbers as they leave a generator, in the shape they are packed into: [.., tokens, 4 channels] → [channels, rows,
// columns], tokens in rows of `columns`.
Values unpacked(const Values& x, int64_t tokens, int64_t columns) {
  const int64_t rows = tokens / columns, channels = x.last() / 4;
  return reshaped(permuted(reshaped(x, {x.rows() / tokens, rows, columns, channels, 2, 2}), {0, 3, 1, 4, 2, 5}),
                  {x.rows() / tokens, channels, 2 * rows, 2 * columns});
}

// The same numbers, each as often: they were put in place by another rule. A stage that draws them may have drawn with
// its axes in another order, before they were packed.
void search_same_numbers(Case& failing, Findings& out) {
  constexpr size_t kFewest = 256, kMost = size_t{1} << 23;
  if (failing.r.v.size() < kFewest || failing.r.v.size() > kMost || failing.r.size() != failing.c.size()) return;
  // What no order changes, before anything is sorted.
  const auto differs = [&](auto&& of) {
    double a = 0, b = 0, size = 0;
    for (size_t i = 0; i < failing.r.v.size(); ++i)
      a += of(failing.r.v[i]), b += of(failing.c.v[i]), size += std::fabs(of(failing.r.v[i]));
    return !(std::fabs(a - b) <= 4 * failing.tolerance * size);
  };
  if (differs([](double x) { return x; }) || differs([](double x) { return x * x; }) ||
      differs([](double x) { return std::fabs(x); }))
    return;
  std::vector<float> r = failing.r.v, c = failing.c.v;
  std::sort(r.begin(), r.end()), std::sort(c.begin(), c.end());
  size_t kinds = 1;
  for (size_t i = 1; i < r.size(); ++i) kinds += r[i] != r[i - 1];
  if (kinds * 2 < r.size() || relative_error(c, r) > failing.tolerance) return;  // few kinds are alike by chance
  const int64_t tokens = failing.r.rank() >= 2 ? failing.r.dim(-2) : 0;
  if (failing.module.empty() && tokens > 1 && failing.r.last() % 4 == 0)
    for (int64_t columns = 1; columns <= tokens; ++columns) {
      if (tokens % columns) continue;
      const Values of_r = unpacked(failing.r, tokens, columns), of_c = unpacked(failing.c, tokens, columns);
      const auto found = find_axis_order(of_r, of_c, failing.tolerance);  // the draw is the reference's: plain memory
      if (!found) continue;
      out.push_back({.cause = "layout.axes",
                     .explanation = fmt::format(
                         "reference: drawn as {} and packed; yours: the same numbers drawn with the axes in "
                         "another order ({}), then packed",
                         to_string(of_r.shape), found->words),
                     .fix = "draw the noise in the reference's shape, then permute it",
                     .residual = found->residual,
                     .complexity = 1.2});
      return;
    }
  out.push_back(
      {.cause = "layout.permuted",
       .explanation =
           "reference: these values; yours: the same values, each as often, in an order that no rule explains",
       .fix = "check how the values are drawn, packed or gathered: the order of axes and strides",
       .residual = failing.tolerance,
       .complexity = 2.4});
}

// Item by item of the first axis: which of the reference's it is. Empty: some are none, or two of them are alike and
// anything would fit.
std::vector<int64_t> order_of_items(const Values& c, const Values& r, double tolerance) {
  const int64_t batch = r.shape[0];
  const size_t size = static_cast<size_t>(r.size() / batch);
  const auto item = [&](const Values& x, int64_t i) {
    return std::span(x.v).subspan(static_cast<size_t>(i) * size, size);
  };
  std::vector<int64_t> out;
  for (int64_t i = 0; i < batch; ++i) {
    std::vector<int64_t> alike;
    for (int64_t k = 0; k < batch; ++k)
      if (relative_error(item(c, i), item(r, k)) <= tolerance) alike.push_back(k);
    if (alike.size() != 1) return {};
    out.push_back(alike[0]);
  }
  return out;
}

// A mask has two values, and any order of it is a guess: unless what was given with it to the same call, with values
// enough to know it by, has its items in that order too.
void search_order_of_masks(Case& failing, Findings& out) {
  constexpr int64_t kMostInBatch = 64;
  constexpr size_t kNeighbours = 8;  // records either side
  const Shape& shape = failing.r.shape;
  if (shape.size() < 2 || shape[0] < 2 || shape[0] > kMostInBatch || failing.c.shape != shape || !failing.partner)
    return;
  const std::vector<int64_t> order = order_of_items(failing.c, failing.r, failing.tolerance);
  if (order.empty() || std::is_sorted(order.begin(), order.end())) return;
  const RunView& run = failing.reference_run();
  const size_t own = failing.reference_record();
  for (size_t i = own > kNeighbours ? own - kNeighbours : 0; i < std::min(own + kNeighbours + 1, run.records.size());
       ++i) {
    const RecordedTensor& record = run.records[i];
    const size_t partner = failing.partner(i);
    if (i == own || record.role != failing.role || partner == SIZE_MAX || !record.load || !is_floating(record.dtype) ||
        record.shape.size() < 2 || record.shape[0] != shape[0] || !same_call(run, i, own) ||
        parent_of(record.key.name) != parent_of(failing.name))
      continue;
    const Values &r = failing.load_reference(i), &c = failing.load_candidate(partner);
    if (r.size() != c.size() || order_of_items(c, r, std::max(1e-3, failing.tolerance)) != order) continue;
    const auto found = find_slice_moves(record.key.name, c, r, std::max(1e-3, failing.tolerance));
    if (!found) continue;
    out.push_back({.cause = found->id,
                   .explanation = fmt::format("reference: these values; yours: the same values, {}, as in {}",
                                              found->words, record.key.name),
                   .complexity = 0.9 + 0.2 * found->complexity,
                   .blame = Blame::kCapture});
    return;
  }
}

// Packed latents whose rows, columns, channels and places in the patch were laid down in another order. Some of these
// orders could be told as parts of the channels; that they are packed says what to look for.
bool search_packing(Case& failing, Findings& out) {
  const Values &r = failing.r, &c = failing.c;
  const RunView& run = failing.reference_run();
  // Between the pipeline's stages, or at the place of what a model was given and handed on.
  const size_t made = first_with_these_values(run, failing.reference_record());
  const std::string& module = failing.structure().site(made).module;
  if ((!module.empty() && (run.records[made].role != Role::kInput || module.find('.') != std::string::npos)) ||
      r.rank() < 2 || r.rank() > 3 || r.last() % 4 || r.last() < 8 || r.v.size() != c.v.size() || r.v.size() < 64)
    return false;
  const auto is_latents = [&](const RecordedTensor& record) {
    return record.role == Role::kCheckpoint && record.key.name.find("latents") != std::string::npos &&
           same_size_shape(record.shape, r.shape);
  };
  if (std::none_of(run.records.begin(), run.records.end(), is_latents)) return false;
  const int64_t tokens = r.dim(-2);
  // Several hundred places, spread evenly: an order that fits them fits all.
  const std::vector<int64_t> sample = sample_indices(tokens * r.last(), 257);
  const double limit = std::max(8 * failing.tolerance, 1e-6) * rms(r.v);
  for (int64_t columns = tokens; columns > 0; --columns) {  // one row first: there only the tokens' own values move
    if (tokens % columns) continue;
    const PatchGrid grid{tokens / columns, columns, r.last() / 4};
    const bool found = any_patch_order(kPacked, [&](const PatchOrder& order) {
      const PatchPlaces place(grid, order);
      for (const int64_t i : sample)
        if (!(std::fabs(c.v[static_cast<size_t>(i)] - r.v[place(static_cast<size_t>(i))]) <= limit)) return false;
      const Values moved = from_packed(r, grid, order);
      const double residual = relative_error(c.v, moved.v);
      if (!failing.explains_candidate(residual) || failing.explains_candidate(relative_error(r.v, moved.v)))
        return false;
      const bool of_token = order[0] == 0 && order[1] == 1;
      out.push_back({.cause = "layout.packing",
                     .explanation = fmt::format("reference: packed as {}; yours: as {}", words(kPacked, of_token),
                                                words(order, of_token)),
                     .residual = residual,
                     .complexity = 0.85});
      return true;
    });
    if (found) return true;
  }
  return false;
}

}  // namespace

void search_layout(Case& failing, Findings& out) {
  const auto is_flag = [](float x) { return x == 0 || x == 1; };
  if (std::all_of(failing.r.v.begin(), failing.r.v.end(), is_flag)) return search_order_of_masks(failing, out);
  const size_t before = out.size();
  if (search_packing(failing, out)) return;
  std::vector<Rearrangement> all = find_rearrangements(failing.name, failing.c, failing.r, failing.tolerance);
  if (all.empty())
    if (auto padded = find_padded_rows(failing.c, failing.r, failing.tolerance)) all.push_back(std::move(*padded));
  for (const Rearrangement& found : all) {
    if (!failing.explains_candidate(found.residual)) continue;
    out.push_back({.cause = found.id,
                   .explanation = "reference: these values; yours: the same values, " + found.words,
                   .residual = found.residual,
                   .complexity = 0.9 + 0.2 * found.complexity,
                   .blame = Blame::kCapture});
  }
  if (out.size() == before && std::isfinite(failing.error)) search_same_numbers(failing, out);
}

}  // namespace lockstep
