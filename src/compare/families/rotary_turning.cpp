#include "compare/families/rotary_turning.h"

#include <fmt/format.h>

namespace lockstep {

namespace {

// A part of one pair is the same in halves.
void add_block(std::vector<PairBlock>& to, PairBlock block) {
  if (block.count > 1) to.push_back(block);
}

}  // namespace

Turning with_halves_of_axes(Turning p, const std::vector<PairBlock>& axes) {
  p.halved.clear();
  if (axes.size() > 1)
    for (const PairBlock& axis : axes) add_block(p.halved, axis);
  return p;
}

std::vector<Turning> changed_turnings(const Turning& r, const std::vector<PairBlock>& axes) {
  std::vector<Turning> out;
  const auto add = [&](auto&& change) {
    Turning p = r;
    change(p);
    if (!(p == r)) out.push_back(p);
  };
  for (const Rotation rotation : {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone})
    add([&](Turning& p) { p.rotation = rotation, p.halved.clear(); });
  if (axes.size() > 1) add([&](Turning& p) { p.rotation = Rotation::kInterleaved, p = with_halves_of_axes(p, axes); });
  if (r.rotation == Rotation::kNone) return out;  // no more to change
  add([](Turning& p) { p.sign = -1; });
  add([](Turning& p) { p.cos_sin = true; });
  add([](Turning& p) { p.from_zero = true; });
  for (const double turns : {2.0, 0.5, 3.0}) add([&](Turning& p) { p.turns = turns; });
  for (const double share : {0.5, 0.25, 0.75, 0.125})
    for (const bool own_pairs : {true, false})
      for (const Columns columns : {Columns::kFirst, Columns::kSpread, Columns::kLast})
        for (const bool at_end : {false, true}) {
          // Pairs of neighbours lie within any part.
          if (own_pairs && r.rotation == Rotation::kInterleaved) continue;
          add([&](Turning& p) { p.share = share, p.own_pairs = own_pairs, p.columns = columns, p.at_end = at_end; });
        }
  for (const NumberFormat& format : half_formats()) add([&](Turning& p) { p.held = &format; });
  add([](Turning& p) { p.mixed = true; });
  add([](Turning& p) {
    p.mixed = true;
    p.rotation = p.rotation == Rotation::kHalves ? Rotation::kInterleaved : Rotation::kHalves;
  });
  // Halves of some axes' parts alone, or of the part that two neighbouring axes have together.
  for (size_t i = 0; i < axes.size() && axes.size() > 1 && r.rotation == Rotation::kInterleaved; ++i)
    for (const size_t axes_together : {1, 2})
      for (const bool alone : {true, false})
        if (i + axes_together <= axes.size())
          add([&](Turning& p) {
            p.halved.clear();
            for (size_t a = 0; a < axes.size(); ++a) {
              if (a == i)
                add_block(p.halved, {axes[a].first, axes[a].count + (axes_together == 2 ? axes[a + 1].count : 0)});
              else if (!alone && (a < i || a >= i + axes_together))
                add_block(p.halved, axes[a]);
            }
          });
  add([](Turning& p) { p.plus = true; });
  add([](Turning& p) { p.columns = Columns::kReversed; });
  add([](Turning& p) { p.cos_alone = true; });
  return out;
}

const char* turning_cause(const Turning& r, const Turning& c) {
  if (c.rotation != r.rotation && c.rotation == Rotation::kNone) return "rotary.missing";
  if (c.rotation != r.rotation && r.rotation == Rotation::kNone) return "rotary.added";
  if (c.rotation != r.rotation || c.mixed != r.mixed || c.halved != r.halved) return "rotary.style";
  if (c.cos_sin != r.cos_sin) return "rotary.cos_sin_exchanged";
  if (c.sign != r.sign || c.plus != r.plus) return "rotary.sign";
  if (c.turns != r.turns) return "rotary.factor";
  if (c.from_zero != r.from_zero) return "rotary.offset";
  if (c.held) return c.held->cause;
  if (c.columns == Columns::kReversed) return "rotary.theta";
  return "rotary.partial";
}

std::string turning_fix(const Turning& r, const Turning& c) {
  const std::string cause = turning_cause(r, c);
  if (cause == "rotary.missing") return "rotate by the position table";
  if (cause == "rotary.added") return "do not rotate here";
  if (cause == "rotary.style" && c.mixed)
    return r.rotation == Rotation::kInterleaved
               ? "repeat each angle side by side (a0, a0, a1, a1, ..), as the pairs of neighbours need it"
               : "repeat the angles in the second half (a0, a1, .., a0, a1, ..), as the pairs of halves need it";
  if (cause == "rotary.style" && !r.halved.empty())
    return "pair halves within the part of each axis: its first half turns with its second";
  if (cause == "rotary.style" && !c.halved.empty())
    return "pair neighbours (2i, 2i+1), not the halves of each axis's part";
  if (cause == "rotary.style")
    return r.rotation == Rotation::kInterleaved ? "pair neighbours (2i, 2i+1), not halves (i, i+d/2)"
                                                : "pair halves (i, i+d/2), not neighbours (2i, 2i+1)";
  if (cause == "rotary.cos_sin_exchanged") return "cos turns the element itself, sin its partner";
  if (cause == "rotary.sign") return "turn the other way: x0 cos - x1 sin, x0 sin + x1 cos";
  if (cause == "rotary.factor") return "rotate once, by the angle of the table";
  if (cause == "rotary.offset")
    return "the reference's first token does not stand at 0: centre the image, start the text behind it";
  if (c.columns == Columns::kReversed) return "the first pair turns fastest: take the frequencies in falling order";
  if (c.held) return "keep cos and sin in the reference's precision";
  return c.cos_alone ? "add the partner's element times sin" : "rotate the whole head";
}

std::string words_of(const Turning& p) {
  if (p.rotation == Rotation::kNone) return "x, not rotated";
  std::string out =
      p.rotation == Rotation::kInterleaved ? "rope(x) on neighbours (2i, 2i+1)" : "rope(x) on halves (i, i+d/2)";
  if (!p.halved.empty()) {
    out = p.rotation == Rotation::kInterleaved ? "rope(x) on neighbours, but" : "rope(x)";
    for (const PairBlock& block : p.halved)
      out += fmt::format("{} on halves of the {} channels from {}", &block == p.halved.data() ? "" : ",",
                         2 * block.count, 2 * block.first);
  }
  if (p.sign < 0) out += ", by the negative angle";
  if (p.cos_sin) out += ", cos and sin exchanged";
  if (p.mixed) out += ", with the angles of the other pairing";
  if (p.plus) out += ", without the minus sign";
  if (p.cos_alone) out += ", cos alone";
  if (p.from_zero) out += ", positions counted from 0";
  if (p.share < 1) {
    out += fmt::format(", on the {} {:g} of each head", p.at_end ? "last" : "first", p.share);
    if (p.own_pairs) out += " with pairs inside it";
    if (p.columns == Columns::kSpread) out += ", by every " + fmt::format("{:g}", 1 / p.share) + "th angle";
    if (p.columns == Columns::kLast) out += ", by the last angles";
  }
  if (p.columns == Columns::kReversed) out += ", with the frequencies in reverse order";
  if (p.held) out += fmt::format(", cos and sin in {}", p.held->name);
  if (p.turns != 1) out += fmt::format(", by {:g} times the angle", p.turns);
  return out;
}

}  // namespace lockstep
