// y = rope(x): a tensor recorded after its rotation, or one that must not be rotated yet.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/families/fit.h"
#include "compare/families/rotary_recorded.h"

namespace lockstep {
namespace {

struct Turn {
  Rotation rotation = Rotation::kNone;
  int sign = 1, shift = 0;
  bool cos_sin = false;
  double share = 1, turns = 1;
  double residual = INFINITY;
};

std::string words(const Turn& p) {
  if (p.rotation == Rotation::kNone) return "x, not rotated";
  std::string out =
      p.rotation == Rotation::kInterleaved ? "rope(x) on neighbours (2i, 2i+1)" : "rope(x) on halves (i, i+d/2)";
  if (p.sign < 0) out += ", by the negative angle";
  if (p.shift) out += fmt::format(", positions {:+d}", p.shift);
  if (p.cos_sin) out += ", cos and sin exchanged";
  if (p.share < 1) out += fmt::format(", on {:g} of each head", p.share);
  if (p.turns != 1) out += fmt::format(", by {:g} times the angle", p.turns);
  return out;
}

// Which token a run of d elements belongs to: [.., tokens, d], [.., tokens, heads, d] or [.., tokens, heads * d].
struct Tokens {
  int64_t rows = 0, heads = 1;
  int64_t of(int64_t run) const { return run / heads % rows; }
};

std::optional<Tokens> tokens_of(const Shape& shape, int64_t rows, int64_t d) {
  const size_t rank = shape.size();
  if (shape[rank - 1] == d && rank >= 2 && shape[rank - 2] == rows) return Tokens{rows, 1};
  if (shape[rank - 1] == d && rank >= 3 && shape[rank - 3] == rows) return Tokens{rows, shape[rank - 2]};
  if (shape[rank - 1] % d == 0 && rank >= 2 && shape[rank - 2] == rows) return Tokens{rows, shape[rank - 1] / d};
  return std::nullopt;
}

double residual_of(const Turn& p, const RotaryTable& table, const Values& x, const Values& y, const Shape& shape) {
  const int64_t d = 2 * table.pairs;
  const auto tokens = tokens_of(shape, table.rows, d);
  if (!tokens || x.size() != y.size()) return INFINITY;
  double dd = 0, yy = 0;
  std::vector<double> turned(static_cast<size_t>(d));
  for (const int64_t run : sample_indices(y.size() / d, kFitRows)) {
    std::copy_n(x.v.begin() + run * d, d, turned.begin());
    if (p.rotation != Rotation::kNone &&
        !table.rotate(turned, tokens->of(run) + p.shift, p.rotation, p.sign, p.cos_sin, p.share, p.turns))
      return INFINITY;
    for (int64_t j = 0; j < d; ++j) {
      const double target = y.v[static_cast<size_t>(run * d + j)], left = turned[static_cast<size_t>(j)] - target;
      dd += left * left, yy += target * target;
    }
  }
  return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
}

std::vector<Turn> changes(const Turn& r) {
  std::vector<Turn> out;
  for (const Rotation rotation : {Rotation::kNone, Rotation::kInterleaved, Rotation::kHalves}) {
    Turn base = r;
    base.rotation = rotation;
    out.push_back(base);
    const auto add = [&](auto&& change) {
      Turn p = base;
      change(p);
      out.push_back(p);
    };
    add([](Turn& p) { p.sign = -1; });
    add([](Turn& p) { p.cos_sin = true; });
    for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16}) add([&](Turn& p) { p.shift = shift; });
    for (const double share : {0.5, 0.25, 0.75}) add([&](Turn& p) { p.share = share; });
    for (const double turns : {2.0, 0.5, 3.0}) add([&](Turn& p) { p.turns = turns; });
  }
  return out;
}

const char* cause_of(const Turn& r, const Turn& c) {
  if (c.rotation != r.rotation)
    return c.rotation == Rotation::kNone   ? "rotary.missing"
           : r.rotation == Rotation::kNone ? "rotary.added"
                                           : "rotary.style";
  if (c.cos_sin != r.cos_sin) return "rotary.cos_sin_exchanged";
  if (c.sign != r.sign) return "rotary.sign";
  if (c.shift != r.shift) return "rotary.offset";
  return c.turns != r.turns ? "rotary.factor" : "rotary.partial";
}

// What may have been rotated: as many elements, split into heads or not yet.
std::vector<const Item*> sources(Case& failing) {
  std::vector<const Item*> out;
  for (const Item& item : failing.items) {
    if (out.size() >= 6) break;
    if (checked_numel(item.shape) != failing.r.size()) continue;
    if (!is_floating(failing.reference_run().records[item.reference].dtype)) continue;
    if (failing.reference_of(item).size() == failing.r.size() && failing.candidate_of(item).size() == failing.r.size())
      out.push_back(&item);
  }
  return out;
}

}  // namespace

void search_rotation(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !std::isfinite(failing.error)) return;
  const std::vector<RotaryTable> tables_r = recorded_tables(failing, false), tables_c = recorded_tables(failing, true);
  if (tables_r.size() != tables_c.size()) return;
  for (size_t t = 0; t < tables_r.size(); ++t) {
    const RotaryTable &table_r = tables_r[t], &table_c = tables_c[t];
    if (!tokens_of(failing.r.shape, table_r.rows, 2 * table_r.pairs)) continue;
    for (const Item* item : sources(failing)) {
      const Values &x_r = failing.reference_of(*item), &x_c = failing.candidate_of(*item);
      Turn r;
      for (const Rotation rotation : {Rotation::kNone, Rotation::kInterleaved, Rotation::kHalves}) {
        Turn p;
        p.rotation = rotation, p.residual = residual_of(p, table_r, x_r, failing.r, failing.r.shape);
        if (p.residual < r.residual) r = p;
      }
      if (!failing.explains(r.residual)) continue;
      const double with_reference = residual_of(r, table_c, x_c, failing.c, failing.r.shape);
      if (r.rotation != Rotation::kNone && failing.note_local(with_reference)) return;
      Turn best;
      for (Turn& p : changes(r)) {
        p.residual = residual_of(p, table_c, x_c, failing.c, failing.r.shape);
        if (p.residual < best.residual) best = p;
      }
      if (!failing.explains_candidate(best.residual) || !failing.is_better(best.residual, with_reference)) continue;
      out.push_back({cause_of(r, best),
                     fmt::format("reference: {}; yours: {}; x is {}", words(r), words(best), item->label()),
                     fmt::format("make it {}", words(r)), "", r.residual, best.residual, 0.9, 0, Blame::kNone});
      return;
    }
  }
}

}  // namespace lockstep
