#include "zoom/blame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep::zoom {
namespace {

constexpr size_t kMostBehind = 32;  // values on the way back from one that lies otherwise

std::string short_text(const Json& json) {
  return json.is_string() ? json.get<std::string>() : json.dump();
}

bool same_argument(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    const double x = a.get<double>(), y = b.get<double>();
    return std::fabs(x - y) <= 1e-7 * std::max(std::fabs(x), std::fabs(y));
  }
  return a == b;
}

// Of one shape but for axes of size 1.
bool same_sizes(Shape a, Shape b) {
  erase(a, 1);
  erase(b, 1);
  return a == b;
}

bool holds_truth(const Side& side, int value) {
  return side.value(value).tensor.defined() && side.value(value).tensor.dtype() == DType::kBool;
}

// The last step on the way to a value that took a parameter; -1: none.
int nearest_parameter_use(const Side& side, int value) {
  std::vector<int> pending{value};
  std::set<int> seen;
  int found = -1;
  while (!pending.empty()) {
    const int maker = side.value(pending.back()).step;
    pending.pop_back();
    if (maker < 0 || !seen.insert(maker).second) continue;
    bool takes = false;
    for (const Operand& operand : side.step(maker).operands) {
      takes |= side.value(operand.value).origin == Origin::kParameter && side.value(operand.value).shape.size() > 1;
      pending.push_back(operand.value);
    }
    if (takes) found = std::max(found, maker);
  }
  return found;
}

}  // namespace

std::string described(const Side& side, int value) {
  const Value& of = side.value(value);
  if (of.origin == Origin::kParameter) return fmt::format("the parameter {}.{}", side.tape().call, of.name);
  if (of.origin == Origin::kInput) return "the input " + of.name;
  if (of.step < 0) return "a constant";
  const Step& step = side.step(of.step);
  std::string text = "the result of " + step.kind;
  if (step.outputs.size() > 1) {
    const auto at = std::find(step.outputs.begin(), step.outputs.end(), value);
    text += fmt::format(" (part {})", at - step.outputs.begin());
  }
  if (!step.where.empty()) text += fmt::format(" in line {}", step.where.front().line);
  return text;
}

std::vector<ArgumentDifference> argument_differences(const Step& yours, const Step& reference) {
  std::vector<ArgumentDifference> out;
  for (const auto& [name, value] : yours.arguments.items()) {
    const auto at = reference.arguments.find(name);
    if (at == reference.arguments.end())
      out.push_back({name, short_text(value), "absent"});
    else if (!same_argument(value, *at))
      out.push_back({name, short_text(value), short_text(*at)});
  }
  for (const auto& [name, value] : reference.arguments.items())
    if (!yours.arguments.contains(name)) out.push_back({name, "absent", short_text(value)});
  return out;
}

int stripped(const Side& side, int value, std::vector<int>& moved) {
  for (int maker = side.value(value).step; maker >= 0 && only_moves(side.step(maker)) &&
                                           side.step(maker).operands.size() == 1 && !side.step(maker).in_place;
       maker = side.value(value).step) {
    moved.push_back(maker);
    value = side.step(maker).operands.front().value;
  }
  return value;
}

Region& Blame::add(Kind kind, int c, int r) {
  Region region;
  region.kind = kind;
  region.yours_value = c;
  region.reference_value = r;
  const auto a = yours_.numbers(c), b = reference_.numbers(r);
  region.error =
      a && b && a->count() == b->count() ? relative_distance(a->values.data(), b->values.data(), a->count()) : 1;
  region.proven = proven_;
  region.other_executions = other_executions_;
  region.reference_user = user_r_;
  regions_.push_back(std::move(region));
  return regions_.back();
}

void Blame::blame_layout(int c, int r, const std::vector<int>& moved_c, const std::vector<int>& moved_r) {
  Region& region = add(Kind::kLayout, c, r);
  region.yours = moved_c;
  region.reference = moved_r;
  region.note = "the same elements arrive in other places";
}

void Blame::blame_arrangement(int c, int r, int c0, int r0, const std::vector<int>& moved_c,
                              const std::vector<int>& moved_r) {
  if (partners_.agreement(c0, r0).arrangement >= Arrangement::kFlat) return blame_layout(c, r, moved_c, moved_r);
  std::vector<int> behind;
  add_moves_behind(c0, behind);
  const bool same_moves =
      std::equal(moved_c.begin(), moved_c.end(), moved_r.begin(), moved_r.end(), [&](int mine, int theirs) {
        const Step &a = yours_.step(mine), &b = reference_.step(theirs);
        return a.kind == b.kind && argument_differences(a, b).empty();
      });
  if (same_moves && !behind.empty()) return blame_layout(c0, r0, behind, moved_r);
  behind.insert(behind.end(), moved_c.begin(), moved_c.end());
  blame_layout(c, r, behind, moved_r);
}

bool Blame::blame_missing(int c, int r, int earlier, int user_c) {
  Region& region = add(Kind::kMissingStep, c, r);
  region.reference = reference_.steps_between(earlier, r);
  // It belongs between the step that makes the value and the one that takes it.
  for (const int near : {user_c, yours_.value(c).step})
    if (near >= 0) region.yours.push_back(near);
  region.note = "yours takes the value before this step";
  region.same_function = true;
  return true;
}

bool Blame::blame_extra(int c, int r, int earlier) {
  Region& region = add(Kind::kExtraStep, c, r);
  region.yours = yours_.steps_between(earlier, c);
  if (const int maker = reference_.value(r).step; maker >= 0) region.reference = {maker};
  region.note = "the reference takes the value before this step";
  return true;
}

bool Blame::blame_wiring(int c, int r, int elsewhere, int user_c, int user_r) {
  Region& region = add(Kind::kWiring, c, r);
  if (user_c >= 0) region.yours.push_back(user_c);
  if (user_r >= 0) region.reference.push_back(user_r);
  if (user_c < 0 && yours_.value(c).step >= 0) region.yours.push_back(yours_.value(c).step);
  region.note = fmt::format("yours takes what is {} in the reference, which takes {}", described(reference_, elsewhere),
                            described(reference_, r));
  // Values that were made of each other's parameters may have changed places there.
  const std::vector<Match>& wanted = partners_.of_reference(r);
  const int maker = nearest_parameter_use(yours_, c);
  if (maker >= 0 && (wanted.empty() || nearest_parameter_use(yours_, wanted.front().value) != maker))
    region.yours.push_back(maker);
  return true;
}

void Blame::blame_leaf(int c, int r, int user_c, int user_r) {
  Region& region = add(Kind::kParameter, c, r);
  if (user_c >= 0) region.yours.push_back(user_c);
  if (user_r >= 0) region.reference.push_back(user_r);
  if (yours_.value(c).step >= 0) region.yours.push_back(yours_.value(c).step);
  if (reference_.value(r).step >= 0) region.reference.push_back(reference_.value(r).step);
  region.note = fmt::format("yours takes {}, the reference {}", described(yours_, c), described(reference_, r));
  const std::vector<Match> elsewhere = partners_.of_yours(c);
  if (!elsewhere.empty() && !partners_.is_neutral(yours_, c))
    region.note +=
        fmt::format("; yours holds what the reference has as {}", described(reference_, elsewhere.front().value));
  else if (yours_.value(c).origin == Origin::kParameter && reference_.value(r).origin == Origin::kParameter)
    region.note += "; their numbers differ";
}

void Blame::blame_step(int c, int r, int maker_c, int maker_r, std::vector<Partner> partners,
                       std::vector<ArgumentDifference> arguments) {
  std::vector<int> reread;  // what made numbers of true and false, or the reverse
  for (const Partner& partner : partners)
    if (partner.reference >= 0 && yours_.step(maker_c).kind == "attention" &&
        holds_truth(yours_, partner.yours) != holds_truth(reference_, partner.reference)) {
      const auto word = [](bool truth) { return truth ? "true and false" : "numbers"; };
      arguments.push_back({partner.parameter, word(holds_truth(yours_, partner.yours)),
                           word(holds_truth(reference_, partner.reference))});
      stripped(yours_, partner.yours, reread);
    }
  const bool narrower = is_narrower(maker_c, maker_r);
  Region& region = add(narrower ? Kind::kPrecision : arguments.empty() ? Kind::kOperation : Kind::kArgument, c, r);
  region.yours = {maker_c};
  region.yours.insert(region.yours.end(), reread.begin(), reread.end());
  region.reference = {maker_r};
  region.arguments = std::move(arguments);
  // An operand that agrees only after its axes were exchanged may be what is wrong: what moved it belongs to the
  // answer.
  for (const Partner& partner : partners)
    if (partner.agreement.arrangement == Arrangement::kPermuted ||
        partner.agreement.arrangement == Arrangement::kReordered) {
      std::vector<int> moved;
      if (partner.agreement.arrangement == Arrangement::kReordered || same_shapes(partner))
        add_moves_behind(partner.yours, moved);
      else
        stripped(yours_, partner.yours, moved);
      region.yours.insert(region.yours.end(), moved.begin(), moved.end());
      if (same_shapes(partner) && region.arguments.empty()) {
        region.kind = Kind::kLayout;
        region.note = fmt::format("{} arrives {}", partner.parameter, words_from(partner.agreement));
      }
    }
  region.partners = std::move(partners);
}

template <typename Belongs>
void Blame::add_steps_behind(int value, std::vector<int>& out, const Belongs& belongs) {
  std::vector<int> pending{value};
  std::set<int> seen;
  while (!pending.empty() && seen.size() < kMostBehind) {
    const int at = pending.back();
    pending.pop_back();
    const int maker = yours_.value(at).step;
    if (maker < 0 || !seen.insert(at).second || !belongs(at, maker)) continue;
    out.push_back(maker);
    for (const Operand& operand : yours_.step(maker).operands) pending.push_back(operand.value);
  }
}

// Steps that cut, repeat and join what a value is made of, back to values that lie as the reference's do. An exchange
// of axes along the way may be the reference's in another order: only elements in the same places end the walk. What is
// computed of slices in another order lies in another order too: the walk goes through it, and through what it was
// computed by, which nothing of the reference's agrees with where that takes several steps in one.
void Blame::add_moves_behind(int value, std::vector<int>& out) {
  const auto arrangement = [&](int at) {
    const std::vector<Match>& matches = partners_.of_yours(at);
    return matches.empty() ? Arrangement::kNone : matches.front().agreement.arrangement;
  };
  const bool reordered = arrangement(value) == Arrangement::kReordered;
  std::vector<int> found;
  add_steps_behind(value, found, [&](int at, int maker) {
    const Arrangement best = arrangement(at);
    if (moves_some_or_joins(yours_.step(maker))) return at == value || best < Arrangement::kFlat;
    return reordered && best <= Arrangement::kReordered;
  });
  std::erase_if(found, [&](int step) { return !moves_some_or_joins(yours_.step(step)); });
  out.insert(out.end(), found.begin(), found.end());
}

void Blame::add_idle_selections(Region& region) const {
  static const std::set<std::string_view> kKinds{"getitem", "narrow", "index_select"};
  std::set<int> found;
  for (const int step : region.yours)
    for (const Operand& operand : yours_.step(step).operands) {
      const int maker = yours_.value(operand.value).step;
      if (maker < 0 || !kKinds.contains(yours_.step(maker).kind) || yours_.step(maker).operand("input") < 0) continue;
      const Shape &whole = yours_.value(yours_.step(maker).operand("input")).shape,
                  &part = yours_.value(operand.value).shape;
      if (whole == part) found.insert(maker);
    }
  region.yours.insert(region.yours.end(), found.begin(), found.end());
}

// Steps that a value is made by, for as long as what it is made of lies otherwise than the reference's too.
void Blame::add_makers_of_arrangement(int value, std::vector<int>& out) {
  add_steps_behind(value, out, [&](int at, int) {
    const std::vector<Match>& matches = partners_.of_yours(at);
    return !matches.empty() && matches.front().agreement.arrangement < Arrangement::kFlat;
  });
}

namespace {

// Its result depends on which axis is which: elements of other places are put together.
bool looks_at_places(const Step& step) {
  return step.kind == "conv" || step.kind == "unfold" || step.kind == "reshape" || step.kind == "getitem" ||
         step.kind == "cumsum" || step.kind.ends_with("pool2d") || step.kind == "embedding";
}

}  // namespace

void Blame::add_rearranging_steps(Region& region) {
  std::set<int> made;
  for (const int step : region.yours)
    for (const int output : yours_.step(step).outputs) made.insert(output);
  std::vector<int> found;
  for (const int step : region.yours)
    for (const Operand& operand : yours_.step(step).operands) {
      if (made.contains(operand.value) || yours_.value(operand.value).step < 0) continue;
      const std::vector<Match> matches = partners_.of_yours(operand.value);
      if (matches.empty()) continue;
      const Arrangement best = matches.front().agreement.arrangement;
      const bool lies_otherwise = std::any_of(matches.begin(), matches.end(), [&](const Match& match) {
        return match.agreement.arrangement == Arrangement::kReordered ||
               same_sizes(yours_.value(operand.value).shape, reference_.value(match.value).shape);
      });
      if (best < Arrangement::kFlat && lies_otherwise) {
        add_makers_of_arrangement(operand.value, found);
      } else if (best == Arrangement::kPermuted && looks_at_places(yours_.step(step))) {
        std::vector<int> moves;
        stripped(yours_, operand.value, moves);
        found.insert(found.end(), moves.begin(), moves.end());
      }
    }
  region.yours.insert(region.yours.end(), found.begin(), found.end());
}

bool Blame::same_shapes(const Partner& partner) const {
  return same_sizes(yours_.value(partner.yours).shape, reference_.value(partner.reference).shape);
}

bool Blame::is_narrower(int maker_c, int maker_r) const {
  const auto roundoff = [](const Side& side, int maker) {
    double worst = 0;
    for (const int output : side.step(maker).outputs)
      if (side.value(output).tensor.defined())
        worst = std::max(worst, unit_roundoff(side.value(output).tensor.dtype()));
    return worst;
  };
  const double mine = roundoff(yours_, maker_c), theirs = roundoff(reference_, maker_r);
  return mine > 0 && theirs > 0 && mine > theirs * 1.5;
}

void Blame::blame_operands(int c, int r, const std::vector<Partner>& partners) {
  std::vector<int> behind;
  for (const Partner& partner : partners) add_steps_behind(partner.yours, behind, [](int, int) { return true; });
  std::sort(behind.begin(), behind.end());
  for (const int step : behind) {
    if (yours_.step(step).outputs.empty()) continue;
    const int made = yours_.step(step).outputs.front();
    for (const Match& match : partners_.of_yours(made)) {
      const int other = reference_.value(match.value).step;
      if (other < 0 || !is_narrower(step, other)) continue;
      Region& region = add(Kind::kPrecision, made, match.value);
      region.yours = {step};
      region.reference = {other};
      return;
    }
  }
  Region& region = add(Kind::kNotNarrowed, c, r);
  region.note = fmt::format(
      "{} makes your result of your values too, which differ by no more than rounding may: "
      "what differs in them is too small to be followed",
      described(reference_, r));
}

Region& Blame::blame_chain(Kind kind, int c, int r, const Terms& left, const Terms& right,
                           std::vector<Partner> partners) {
  Region& region = add(kind, c, r);
  region.yours = left.steps;
  region.reference = right.steps;
  region.partners = std::move(partners);
  if (kind == Kind::kOperation) add_rearranging_steps(region);
  return region;
}

}  // namespace lockstep::zoom
