// z * std + mean per channel, between the packed latents and the decoder.
#include <fmt/format.h>

#include <cmath>

#include "compare/families/fit.h"
#include "compare/families/number_formats.h"

namespace lockstep {
namespace {

struct PerChannel {
  std::vector<double> scale, offset;
  double residual = INFINITY;
};

// How the four values of a patch lie in a token: channel, row, column in some order; tokens along rows or columns.
struct Packing {
  int order = 0;  // see kOrders
  bool down = false;
};
constexpr const char* kOrders[] = {"channel, row, column", "channel, column, row", "row, column, channel",
                                   "column, row, channel", "row, channel, column", "column, channel, row"};

int64_t place(const Packing& p, int64_t channels, int64_t c, int64_t y, int64_t x) {
  switch (p.order) {
    case 1:
      return c * 4 + x * 2 + y;
    case 2:
      return (y * 2 + x) * channels + c;
    case 3:
      return (x * 2 + y) * channels + c;
    case 4:
      return (y * channels + c) * 2 + x;
    case 5:
      return (x * channels + c) * 2 + y;
    default:
      return c * 4 + y * 2 + x;
  }
}

// Packed [tokens, channels * 4] → [channels, 2 rows, 2 columns], tokens in rows of `columns`.
Values unpacked(const Values& packed, int64_t channels, int64_t height, int64_t width, const Packing& p = {}) {
  Values out = make_values({channels, height, width});
  const int64_t columns = width / 2, rows = height / 2;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x)
        out.v[static_cast<size_t>((c * height + y) * width + x)] =
            packed.v[static_cast<size_t>((p.down ? x / 2 * rows + y / 2 : y / 2 * columns + x / 2) * channels * 4 +
                                         place(p, channels, c, y % 2, x % 2))];
  return out;
}

PerChannel fit(const Values& z, const Values& y, int64_t channels) {
  PerChannel out{{}, {}, 0};
  const int64_t n = z.size() / channels;
  double dd = 0, yy = 0;
  for (int64_t c = 0; c < channels; ++c) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double a = z.v[static_cast<size_t>(c * n + i)], b = y.v[static_cast<size_t>(c * n + i)];
      sx += a, sy += b, sxx += a * a, sxy += a * b;
    }
    const double m = static_cast<double>(n), variance = sxx - sx * sx / m,
                 k = variance > 0 ? (sxy - sx * sy / m) / variance : 0;
    const double b = (sy - k * sx) / m;
    out.scale.push_back(k), out.offset.push_back(b);
    for (int64_t i = 0; i < n; ++i) {
      const double d = k * z.v[static_cast<size_t>(c * n + i)] + b - y.v[static_cast<size_t>(c * n + i)];
      dd += d * d, yy += static_cast<double>(y.v[static_cast<size_t>(c * n + i)]) * y.v[static_cast<size_t>(c * n + i)];
    }
  }
  out.residual = yy > 0 ? std::sqrt(dd / yy) : INFINITY;
  return out;
}

double residual_of(const PerChannel& p, const Values& z, const Values& y, int64_t channels) {
  const size_t n = z.v.size() / static_cast<size_t>(channels);
  double dd = 0, yy = 0;
  for (size_t i = 0; i < z.v.size(); ++i) {
    const double d = p.scale[i / n] * z.v[i] + p.offset[i / n] - y.v[i];
    dd += d * d, yy += static_cast<double>(y.v[i]) * y.v[i];
  }
  return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
}

template <typename Rule>
bool all_near(const std::vector<double>& x, const Rule& rule) {
  for (size_t i = 0; i < x.size(); ++i)
    if (std::fabs(x[i] - rule(i)) > 1e-2 * std::max(1.0, std::fabs(rule(i)))) return false;
  return true;
}

Finding describe(const PerChannel& r, const PerChannel& c) {
  Finding out{"", "", "", "", r.residual, c.residual, 0.7, 0, Blame::kNone};
  const auto& s = r.scale;
  const auto& m = r.offset;
  const auto set = [&](const char* cause, const char* yours, const char* fix) {
    out.cause = cause, out.fix = fix;
    out.explanation = fmt::format("reference: z * std + mean for each channel; yours: {}", yours);
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
  else
    set("latents.statistics", "other values for std and mean",
        "read latents_mean and latents_std from this VAE's config");
  return out;
}

// A latent of the last step may be missing on one side: then the reference's is looked for among all that came before,
// and yours may have been made from another one by the right formula.
void search_other_latents(Case& failing, int64_t channels, int64_t height, int64_t width, Findings& out) {
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
    r = fit(unpacked(failing.load_reference(from), channels, height, width), failing.r, channels);
    if (failing.explains(r.residual)) break;
  }
  if (!failing.explains(r.residual)) return;
  size_t looked = 0;
  for (size_t i = failing.candidate_record(); i-- > 0 && looked < kMostLatents;) {
    if (!fits(candidate.records[i])) continue;
    ++looked;
    if (failing.load_candidate(i).size() != failing.r.size()) continue;
    const double residual =
        residual_of(r, unpacked(failing.load_candidate(i), channels, height, width), failing.c, channels);
    if (!failing.explains_candidate(residual) ||
        to_string(candidate.records[i].key) == to_string(reference.records[from].key))
      continue;
    out.push_back({"stage.replaced",
                   fmt::format("reference: made from {}; yours: by the same formula from {}",
                               to_string(reference.records[from].key), to_string(candidate.records[i].key)),
                   "decode the latents of the last step: a step is left out, or the wrong tensor is passed on", "",
                   r.residual, residual, 0.9, 0, Blame::kNone});
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
  const int64_t batch = shape[0], chosen = worst_item(failing);
  if (height % 2 || width % 2 || failing.r.size() != batch * channels * height * width) return;
  const Values y_r = batch_item(failing.r, chosen, batch), y_c = batch_item(failing.c, chosen, batch);
  for (const Item& item : failing.items) {
    if (checked_numel(item.shape) != failing.r.size() || item.shape.back() != 4 * channels) continue;
    const Values z_r = batch_item(failing.reference_of(item), chosen, batch),
                 z_c = batch_item(failing.candidate_of(item), chosen, batch);
    if (z_r.size() != y_r.size() || z_c.size() != y_c.size()) continue;
    const PerChannel r = fit(unpacked(z_r, channels, height, width), y_r, channels);
    if (!failing.explains(r.residual)) continue;
    const Values own = unpacked(z_c, channels, height, width);
    if (failing.note_local(residual_of(r, own, y_c, channels))) return;
    const PerChannel c = fit(own, y_c, channels);
    if (failing.explains_candidate(c.residual)) {
      out.push_back(describe(r, c));
      if (const Format format = coarse_statistics(r, c)) {
        out.back().cause = format->cause, out.back().fix = "keep latents_mean and latents_std in f32";
        out.back().explanation =
            fmt::format("reference: z * std + mean for each channel; yours: the same with both in {}", format->name);
      }
      return;
    }
    for (const bool down : {false, true})
      for (int order = 0; order < 6; ++order) {
        const Packing packing{order, down};
        const PerChannel other = fit(unpacked(z_c, channels, height, width, packing), y_c, channels);
        if (!failing.explains_candidate(other.residual)) continue;
        out.push_back(
            {"layout.packing",
             fmt::format("reference: each token holds {}, tokens along the rows; yours: {}, tokens along the {}",
                         kOrders[0], kOrders[order], down ? "columns" : "rows"),
             "unpack the patches in the reference's order before they are denormalised", "", r.residual, other.residual,
             0.9, 0, Blame::kNone});
        return;
      }
    break;
  }
  if (!failing.only_local && batch == 1) search_other_latents(failing, channels, height, width, out);
}

}  // namespace lockstep
