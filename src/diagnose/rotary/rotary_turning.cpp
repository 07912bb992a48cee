#include "diagnose/rotary/rotary_turning.h"

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

std::vector<ChangedTurning> changed_turnings(const Turning& r, const std::vector<PairBlock>& axes) {
  std::vector<ChangedTurning> out;
  const auto add = [&](EditName name, auto&& change) {
    Turning p = r;
    change(p);
    if (!(p == r)) out.push_back({std::move(name), std::move(p)});
  };
  const bool neighbours = r.rotation == Rotation::kInterleaved;
  const char* const own_pairs_fix = !r.halved.empty()
                                        ? "pair halves within the part of each axis: its first half turns "
                                          "with its second"
                                    : neighbours ? "pair neighbours (2i, 2i+1), not halves (i, i+d/2)"
                                                 : "pair halves (i, i+d/2), not neighbours (2i, 2i+1)";
  const EditName style{"rotary.style", own_pairs_fix}, added{"rotary.added"};
  for (const Rotation rotation : {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone})
    add(rotation == Rotation::kNone     ? EditName{"rotary.missing", "rotate by the position table"}
        : r.rotation == Rotation::kNone ? added
                                        : style,
        [&](Turning& p) { p.rotation = rotation, p.halved.clear(); });
  const EditName halved{"rotary.style", r.halved.empty()
                                            ? "pair neighbours (2i, 2i+1), not the halves of each axis's part"
                                            : own_pairs_fix};
  if (axes.size() > 1)
    add(r.rotation == Rotation::kNone ? added : halved,
        [&](Turning& p) { p.rotation = Rotation::kInterleaved, p = with_halves_of_axes(p, axes); });
  if (r.rotation == Rotation::kNone) return out;  // no more to change
  const EditName sign{"rotary.sign", "turn the other way: x0 cos - x1 sin, x0 sin + x1 cos"};
  add(sign, [](Turning& p) { p.sign = -1; });
  add({"rotary.cos_sin_exchanged", "cos turns the element itself, sin its partner"},
      [](Turning& p) { p.cos_sin = true; });
  add({"rotary.offset", "the reference's first token does not stand at 0: centre the image, start the text behind it"},
      [](Turning& p) { p.from_zero = true; });
  for (const double turns : {2.0, 0.5, 3.0})
    add({"rotary.factor", "rotate once, by the angle of the table"}, [&](Turning& p) { p.turns = turns; });
  for (const double share : {0.5, 0.25, 0.75, 0.125})
    for (const bool own_pairs : {true, false})
      for (const Columns columns : {Columns::kFirst, Columns::kSpread, Columns::kLast})
        for (const bool at_end : {false, true}) {
          if (own_pairs && neighbours) continue;  // pairs of neighbours lie within any part
          add({"rotary.partial"},
              [&](Turning& p) { p.share = share, p.own_pairs = own_pairs, p.columns = columns, p.at_end = at_end; });
        }
  for (const NumberFormat& format : half_formats())
    add({format.cause, "keep cos and sin in the reference's precision"}, [&](Turning& p) { p.held = &format; });
  const auto mixed = [](bool of_neighbours) {
    return EditName{
        "rotary.style",
        of_neighbours
            ? "repeat each angle side by side (a0, a0, a1, a1, ..), as the pairs of neighbours need it"
            : "repeat the angles in the second half (a0, a1, .., a0, a1, ..), as the pairs of halves need it"};
  };
  add(mixed(neighbours), [](Turning& p) { p.mixed = true; });
  add(mixed(neighbours), [](Turning& p) {
    p.mixed = true;
    p.rotation = p.rotation == Rotation::kHalves ? Rotation::kInterleaved : Rotation::kHalves;
  });
  // Halves of some axes' parts alone, or of the part that two neighbouring axes have together.
  for (size_t i = 0; i < axes.size() && axes.size() > 1 && neighbours; ++i)
    for (const size_t axes_together : {1, 2})
      for (const bool alone : {true, false})
        if (i + axes_together <= axes.size())
          add(halved, [&](Turning& p) {
            p.halved.clear();
            for (size_t a = 0; a < axes.size(); ++a) {
              if (a == i)
                add_block(p.halved, {axes[a].first, axes[a].count + (axes_together == 2 ? axes[a + 1].count : 0)});
              else if (!alone && (a < i || a >= i + axes_together))
                add_block(p.halved, axes[a]);
            }
          });
  add(sign, [](Turning& p) { p.plus = true; });
  add({"rotary.theta", "the first pair turns fastest: take the frequencies in falling order"},
      [](Turning& p) { p.columns = Columns::kReversed; });
  add({"rotary.partial", "add the partner's element times sin"}, [](Turning& p) { p.cos_alone = true; });
  return out;
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
