// Regions of an answer as a search finds them: what differs, between which steps, in which words.
#pragma once
#include "zoom/moves.h"
#include "zoom/partners.h"
#include "zoom/region.h"
#include "zoom/terms.h"

namespace lockstep::zoom {

// What a value was before steps that only move its elements; `moved` gets these, the last first.
int stripped(const Side& side, int value, std::vector<int>& moved);

// "the parameter to_q.weight", "the result of linear in line 31"
std::string described(const Side& side, int value);

std::vector<ArgumentDifference> argument_differences(const Step& yours, const Step& reference);

class Blame {
 public:
  Blame(Side& reference, Side& yours, double tolerance)
      : reference_(reference), yours_(yours), partners_(reference, yours, tolerance) {}

  Partners& partners() { return partners_; }
  std::vector<Region> take_regions() { return std::move(regions_); }

 protected:
  // c: the value of yours, r: the reference's that should equal it. user_c, user_r: the steps that take them.
  Region& add(Kind kind, int c, int r);
  void blame_layout(int c, int r, const std::vector<int>& moved_c, const std::vector<int>& moved_r);
  // Of c0 and r0, which agree, c and r are made by moving elements: by what moves them, or by what came before.
  void blame_arrangement(int c, int r, int c0, int r0, const std::vector<int>& moved_c,
                         const std::vector<int>& moved_r);
  bool blame_missing(int c, int r, int earlier, int user_c);
  bool blame_extra(int c, int r, int earlier);
  bool blame_wiring(int c, int r, int elsewhere, int user_c, int user_r);
  void blame_leaf(int c, int r, int user_c, int user_r);
  void blame_step(int c, int r, int maker_c, int maker_r, std::vector<Partner> partners,
                  std::vector<ArgumentDifference> arguments);
  // A step is right, but magnifies what its operands differ by: the first that is in a narrower format is blamed, or no
  // line.
  void blame_operands(int c, int r, const std::vector<Partner>& partners);
  Region& blame_chain(Kind kind, int c, int r, const Terms& left, const Terms& right, std::vector<Partner> partners);

  // Operands that agree only in another arrangement may be what is wrong: what brought them into it belongs to the
  // answer.
  void add_rearranging_steps(Region& region);
  // A selection that takes all of what it is given may have been meant to take less.
  void add_idle_selections(Region& region) const;

  Side& reference_;
  Side& yours_;
  Partners partners_;
  bool proven_ = false;          // everything after the pair at hand was replayed
  ValuePairs other_executions_;  // what the line made that the pair at hand comes from, the other times
  int user_r_ = -1;              // the step of the reference that takes the pair at hand

 private:
  bool same_shapes(const Partner& partner) const;
  // The makers of a value and of what they take, for as long as `belongs(value, its maker)`; the walk is bounded.
  template <typename Belongs>
  void add_steps_behind(int value, std::vector<int>& out, const Belongs& belongs);
  void add_makers_of_arrangement(int value, std::vector<int>& out);
  void add_moves_behind(int value, std::vector<int>& out);
  bool is_narrower(int maker_c, int maker_r) const;

  std::vector<Region> regions_;
};

}  // namespace lockstep::zoom
