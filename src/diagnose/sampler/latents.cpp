// z * std + mean per channel, between the packed latents and the decoder.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/layout/packing.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/number_formats.h"
#include "diagnose/search/report.h"
#include "measure/line_fit.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

struct PerChannel {
  std::vector<double> scale, offset;
  double residual = INFINITY;
};

PerChannel fit(const Values& z, const Values& y, int64_t channels) {
  PerChannel out{{}, {}, 0};
  const int64_t n = z.size() / channels;
  Residual unexplained;
  for (int64_t c = 0; c < channels; ++c) {
    const auto at = [&](int64_t i) { return static_cast<size_t>(c * n + i); };
    LineFit points;
    for (int64_t i = 0; i < n; ++i) points.add(z.v[at(i)], y.v[at(i)]);
    const Line line = points.line(0, 0);
    out.scale.push_back(line.scale), out.offset.push_back(line.offset);
    for (int64_t i = 0; i < n; ++i) unexplained.add(line.at(z.v[at(i)]), y.v[at(i)]);
  }
  out.residual = unexplained.relative();
  return out;
}

double residual_of(const PerChannel& p, const Values& z, const Values& y, int64_t channels) {
  const size_t n = z.v.size() / static_cast<size_t>(channels);
  Residual unexplained;
  for (size_t i = 0; i < z.v.size(); ++i) {
    unexplained.add(p.scale[i / n] * z.v[i] + p.offset[i / n], y.v[i]);
  }
  return unexplained.relative();
}

template <typename Rule>
bool all_near(const std::vector<double>& x, const Rule& rule) {
  for (size_t i = 0; i < x.size(); ++i)
    if (std::fabs(x[i] - rule(i)) > 1e-2 * std::max(1.0, std::fabs(rule(i)))) return false;
  return true;
}

// For each group of yours the channel of the reference whose numbers it has; empty when some group has nobody's.
std::vector<size_t> whose(const PerChannel& r, const PerChannel& c) {
  std::vector<size_t> out;
  for (size_t i = 0; i < c.scale.size(); ++i) {
    size_t best = 0;
    const auto apart = [&](size_t k) {
      return std::fabs(c.scale[i] / r.scale[k] - 1) + std::fabs(c.offset[i] - r.offset[k]) / std::fabs(r.scale[k]);
    };
    for (size_t k = 1; k < r.scale.size(); ++k)
      if (apart(k) < apart(best)) best = k;
    if (!(apart(best) < 1e-2)) return {};
    out.push_back(best);
  }
  return out;
}

std::string order_words(const std::vector<size_t>& order) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(order.size(), 8); ++i) out += fmt::format("{}{}", i ? ", " : "", order[i]);
  return out + (order.size() > 8 ? ", ..." : "");
}

// Channels that are z itself, where all others are right; empty where one is neither.
std::vector<size_t> left_as_they_are(const PerChannel& r, const PerChannel& c) {
  std::vector<size_t> out;
  for (size_t i = 0; i < c.scale.size(); ++i) {
    const auto is = [&](double scale, double offset) {
      return std::fabs(c.scale[i] - scale) < 1e-2 * std::max(1.0, std::fabs(scale)) &&
             std::fabs(c.offset[i] - offset) < 1e-2 * std::max(1.0, std::fabs(offset));
    };
    if (is(r.scale[i], r.offset[i])) continue;
    if (!is(1, 0)) return {};
    out.push_back(i);
  }
  return out;
}

void describe(const PerChannel& r, const PerChannel& c, const Report& report) {
  const auto& s = r.scale;
  const auto& m = r.offset;
  const auto set = [&](Cause cause, const std::string& yours, const char* fix) {
    report.add({cause, fix}, yours, c.residual, 0.7);
  };
  const auto scale_is = [&](auto&& rule) { return all_near(c.scale, rule); };
  const auto offset_is = [&](auto&& rule) { return all_near(c.offset, rule); };
  const auto zero = [](size_t) { return 0.0; };
  const auto one = [](size_t) { return 1.0; };
  const auto same_scale = [&](size_t i) { return s[i]; };
  const auto inverse = [&](size_t i) { return 1 / s[i]; };
  if (scale_is(one) && offset_is(zero))
    set("latents.not_denormalised", "z as it is", "multiply by latents_std and add latents_mean before decoding");
  else if (scale_is(inverse) && offset_is([&](size_t i) { return m[i]; }))
    set("latents.std_inverted", "z / std + mean", "multiply by latents_std: some code stores 1/std");
  else if (scale_is(inverse) && offset_is([&](size_t i) { return -m[i] / s[i]; }))
    set("latents.direction", "(z - mean) / std, which is the encoder's direction", "use z * std + mean");
  else if (scale_is(same_scale) && offset_is([&](size_t i) { return -m[i]; }))
    set("latents.mean_sign", "z * std - mean", "add the mean");
  else if (scale_is(same_scale) && offset_is(zero))
    set("latents.mean_missing", "z * std", "add latents_mean");
  else if (scale_is(one) && offset_is([&](size_t i) { return m[i]; }))
    set("latents.std_missing", "z + mean", "multiply by latents_std");
  else if (scale_is(same_scale) && offset_is([&](size_t i) { return m[i] * s[i]; }))
    set("latents.order", "(z + mean) * std", "multiply first, then add the mean");
  else if ((scale_is([&](size_t i) { return m[i]; }) || scale_is([&](size_t i) { return 1 / m[i]; })) &&
           (offset_is(same_scale) || offset_is(inverse)))
    set("latents.mean_std_exchanged", "z * mean + std", "exchange latents_mean and latents_std");
  else if (offset_is(zero) && scale_is([&](size_t) { return c.scale[0]; }))
    set("latents.statistics", "z times one factor for all channels",
        "use latents_mean and latents_std of each channel");
  else if (const std::vector<size_t> left = left_as_they_are(r, c); !left.empty())
    set("latents.not_denormalised", "some channels as they are: " + order_words(left), "denormalise every channel");
  else if (const std::vector<size_t> from = whose(r, c); !from.empty())
    set("latents.statistics", "std and mean of other channels: " + order_words(from),
        "give each channel its own latents_mean and latents_std");
  else
    set("latents.statistics", "other values for std and mean",
        "read latents_mean and latents_std from this VAE's config");
}

// Fitted by other groups than the channels: each place of a patch in each channel, each row, each column. Statistics
// that were applied before the tokens were unpacked, or along another axis, show so.
bool search_other_places(Case& failing, const PerChannel& r, const Values& z, const Values& y, const PatchGrid& grid,
                         const Report& report) {
  const auto add = [&](const PerChannel& c, const std::string& yours) {
    return report.add(
        {"latents.statistics", "unpack the tokens first, then give each channel its own latents_std and latents_mean"},
        yours, c.residual, 0.9);
  };
  const size_t channels = static_cast<size_t>(grid.channels), tokens = static_cast<size_t>(grid.rows * grid.columns);
  // [4 channels, tokens]: each number of a token by itself.
  constexpr PatchOrder kByPlace{2, 3, 4, 0, 1};
  const Values places = from_packed(to_packed(y, grid, kPicture), grid, kByPlace);
  if (tokens >= 8) {
    const PerChannel c = fit(from_packed(z, grid, kByPlace), places, 4 * grid.channels);
    if (failing.explains_candidate(c.residual)) {
      const std::vector<size_t> from = whose(r, c);
      if (from.empty()) return add(c, "z * s + m with other numbers for each place of the patch");
      const auto is = [&](auto&& rule) {
        for (size_t i = 0; i < from.size(); ++i)
          if (from[i] != rule(i)) return false;
        return true;
      };
      if (is([&](size_t i) { return i % channels; }))
        return add(c, fmt::format("the {} numbers four times over along a token, where each should stand four times: "
                                  "they are applied before the tokens are unpacked",
                                  channels));
      return add(c, "along a token the statistics of the channels " + order_words(from));
    }
  }
  for (const bool columns : {false, true}) {
    const PatchOrder lines = columns ? PatchOrder{1, 4, 2, 0, 3} : PatchOrder{0, 3, 2, 1, 4};
    const Values of_z = from_packed(z, grid, lines), of_y = from_packed(to_packed(y, grid, kPicture), grid, lines);
    const PerChannel c = fit(of_z, of_y, 2 * (columns ? grid.columns : grid.rows));
    if (failing.explains_candidate(c.residual))
      return add(c, fmt::format("z * s + m with numbers for each {} of the picture", columns ? "column" : "row"));
  }
  return false;
}

// The five parts of a packed latent taken for one another before it is denormalised: read from its tokens in another
// order, or laid down in another.
bool search_other_order(Case& failing, const PerChannel& r, const Values& z, const Values& y, const PatchGrid& grid,
                        Findings& out) {
  const size_t few = y.v.size() / static_cast<size_t>(grid.channels);  // one channel rules most orders out
  const Values first{{static_cast<int64_t>(few)}, {y.v.begin(), y.v.begin() + static_cast<int64_t>(few)}};
  const auto fits = [&](const PatchOrder& order, const PatchOrder& memory, const std::string& reference,
                        const std::string& yours) {
    const PatchPlaces place(grid, order, memory);
    Values some = make_values(first.shape);
    for (size_t i = 0; i < few; ++i) some.v[i] = z.v[place(i)];
    if (fit(some, first, 1).residual > 0.2) return false;
    const PerChannel other = fit(from_packed(z, grid, order, memory), y, grid.channels);
    if (!failing.explains_candidate(other.residual)) return false;
    return Report(reference, r.residual, out)
        .add({"layout.packing", "unpack the patches in the reference's order before they are denormalised"}, yours,
             other.residual, 0.9);
  };
  return any_patch_order(kPacked,
                         [&](const PatchOrder& memory) {
                           return fits(kPicture, memory, "the tokens read as " + words(kPacked, false),
                                       "as " + words(memory, false));
                         }) ||
         any_patch_order(kPicture, [&](const PatchOrder& order) {
           return fits(order, kPacked, "the tokens unpacked to " + words(kPicture, false), "to " + words(order, false));
         });
}

// A latent of the last step may be missing on one side: then the reference's is looked for among all that came before,
// and yours may have been made from another one by the right formula.
void search_other_latents(Case& failing, const PatchGrid& grid, Findings& out) {
  const int64_t channels = grid.channels;
  constexpr size_t kMostLatents = 12;
  const auto fits = [&](const RecordedTensor& record) {
    return record.load && is_floating(record.dtype) && !record.shape.empty() && record.shape.back() == 4 * channels &&
           checked_numel(record.shape) == failing.r.size();
  };
  const RunView &reference = failing.reference_run(), &candidate = failing.candidate_run();
  PerChannel r;
  size_t from = failing.reference_record();
  for (size_t looked = 0; from-- > 0 && looked < kMostLatents;) {
    if (!fits(reference.records[from])) continue;
    ++looked;
    r = fit(from_packed(failing.load_reference(from), grid, kPicture), failing.r, channels);
    if (failing.explains(r.residual)) break;
  }
  if (!failing.explains(r.residual)) return;
  size_t looked = 0;
  for (size_t i = failing.candidate_record(); i-- > 0 && looked < kMostLatents;) {
    if (!fits(candidate.records[i])) continue;
    ++looked;
    if (failing.load_candidate(i).size() != failing.r.size()) continue;
    const double residual = residual_of(r, from_packed(failing.load_candidate(i), grid, kPicture), failing.c, channels);
    if (!failing.explains_candidate(residual) ||
        to_string(candidate.records[i].key) == to_string(reference.records[from].key))
      continue;
    Report("made from " + to_string(reference.records[from].key), r.residual, out)
        .add({"stage.replaced",
              "decode the latents of the last step: a step is left out, or the wrong tensor is passed on"},
             "by the same formula from " + to_string(candidate.records[i].key), residual, 0.9);
    return;
  }
}

// Statistics in a poorer format.
Format coarse_statistics(const PerChannel& r, const PerChannel& c) {
  for (const NumberFormat& format : half_formats()) {
    double off = 0, apart = 0;
    for (size_t i = 0; i < r.scale.size(); ++i) {
      const double inverse = 1 / in_format(1 / r.scale[i], &format), plain = in_format(r.scale[i], &format);
      off =
          std::max({off, std::min(std::fabs(c.scale[i] - plain), std::fabs(c.scale[i] - inverse)) / std::fabs(plain),
                    std::fabs(c.offset[i] - in_format(r.offset[i], &format)) / std::max(1.0, std::fabs(r.offset[i]))});
      apart = std::max(apart, std::fabs(c.scale[i] / r.scale[i] - 1));
    }
    if (off < 0.2 * apart && apart < 2 * format.relative) return &format;
  }
  return nullptr;
}

}  // namespace

void search_latents(Case& failing, Findings& out) {
  const Shape& shape = failing.r.shape;
  if (shape.size() < 4 || !std::isfinite(failing.error)) return;
  const int64_t channels = shape[1], height = failing.r.dim(-2), width = failing.r.dim(-1);
  const PatchGrid grid{height / 2, width / 2, channels};
  const int64_t batch = shape[0], chosen = worst_item(failing);
  if (height % 2 || width % 2 || failing.r.size() != batch * channels * height * width) return;
  const Values y_r = batch_item(failing.r, chosen, batch), y_c = batch_item(failing.c, chosen, batch);
  for (const Item& item : failing.items) {
    if (checked_numel(item.shape) != failing.r.size() || item.shape.back() != 4 * channels) continue;
    const Values z_r = batch_item(failing.reference_of(item), chosen, batch),
                 z_c = batch_item(failing.candidate_of(item), chosen, batch);
    if (z_r.size() != y_r.size() || z_c.size() != y_c.size()) continue;
    const PerChannel r = fit(from_packed(z_r, grid, kPicture), y_r, channels);
    if (!failing.explains(r.residual)) continue;
    const Values own = from_packed(z_c, grid, kPicture);
    if (failing.note_local(residual_of(r, own, y_c, channels))) return;
    const PerChannel c = fit(own, y_c, channels);
    const Report report("z * std + mean for each channel", r.residual, out);
    if (failing.explains_candidate(c.residual)) {
      if (const Format format = coarse_statistics(r, c))
        report.add({format->cause, "keep latents_mean and latents_std in f32"},
                   fmt::format("the same with both in {}", format->name), c.residual, 0.7);
      else
        describe(r, c, report);
      return;
    }
    if (!search_other_places(failing, r, z_c, y_c, grid, report)) search_other_order(failing, r, z_c, y_c, grid, out);
    break;
  }
  if (!failing.only_local && batch == 1) search_other_latents(failing, grid, out);
}

}  // namespace lockstep
