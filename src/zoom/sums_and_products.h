// Sums and products of the two sides compared as lists of terms: those that agree go, the rest is what differs.
#pragma once
#include "zoom/blame.h"

namespace lockstep::zoom {

class SumsAndProducts : public Blame {
 public:
  using Blame::Blame;
  virtual ~SumsAndProducts() = default;

 protected:
  // What made c differ from r: the search that this is a part of.
  virtual void locate(int c, int r, int user_c, int user_r) = 0;

  bool by_terms(int c, int r, int maker_c, int maker_r, bool sum);

 private:
  // Terms that agree leave both lists.
  void pair_terms(Terms& left, Terms& right, std::vector<Partner>& partners, bool sum);
  bool are_opposites(int c, int r);
  // A bias that one side adds by itself is inside the other side's layer: that one is taken apart.
  bool open_a_bias(Side& side, Terms& of, const Terms& other);
  // A term that both sides have, added by one and subtracted by the other: a mistake of its own beside any other.
  bool blame_signs(int c, int r, Terms& left, Terms& right, const std::vector<Partner>& partners, bool sum);
  // Several terms on both sides agree with nothing: those of one shape and one kind are taken for partners. What one
  // side has more of is missing in the other.
  bool by_leftover_terms(int c, int r, const Terms& left, const Terms& right, const std::vector<Partner>& partners,
                         bool sum);
  void blame_odd_term(int c, int r, const Terms& left, const Terms& right, const std::vector<Partner>& partners,
                      bool sum, const Term& odd, bool missing);
  bool share_an_operand(int maker_c, int maker_r);
};

}  // namespace lockstep::zoom
