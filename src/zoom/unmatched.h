// What is between a pair that differs and the values that agree: the steps that nothing on the other side answers to.
#pragma once
#include "zoom/sums_and_products.h"

namespace lockstep::zoom {

class Unmatched : public SumsAndProducts {
 public:
  using SumsAndProducts::SumsAndProducts;

 protected:
  // Values on the way to `value` that agree with nothing on the other side, the earliest first.
  std::vector<int> unmatched_ancestors(const Side& side, int value);

  // Of the values that go into what cannot be narrowed the reference has one that yours lacks, and yours has another of
  // the reference's twice: one of the two is in the place of the one that is lacking.
  bool by_doubled_values(int c, int r);

  // Where yours only moves elements, what it moves is wrong, though the reference has it too: before another step.
  void add_makers_of_what_is_moved(Region& region, int c);

  // Yours is a multiple of the reference's: what first made it so is what differs.
  bool by_factor(int c, int r);

  // A layer's weight holds what the other side multiplies the layer's input by: the input without it is compared.
  bool by_folded_weight(const Step& step_c, const Step& step_r);

 private:
  bool matched(const Side& side, int value);
  // Values that agree with something on the other side and go into steps that agree with nothing.
  std::vector<int> frontier(const Side& side, const std::vector<int>& unmatched);
  // Of the unmatched those that are made of nothing unmatched.
  std::vector<int> first_of(const Side& side, const std::vector<int>& unmatched);
  bool same_line(int a, int b) const;
  // The other side's value that `folded` is when the weight's factor is taken out of `input`; -1: there is none.
  int without_factor(const Side& side, int input, int weight, const Side& other, int folded);
};

}  // namespace lockstep::zoom
