// y = a[c] * x + g[c] * f + b[c]: the coefficients are solved for, then recognised among the vectors that were recorded
// (parts of a modulation, weights), up to a function, a factor and an offset of them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "diagnose/pointwise/vector_origin.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/number_formats.h"

namespace lockstep {

struct Coefficient {
  double constant = 0;  // when there is no vector
  int vector = -1;      // of the dictionary
  int function = 0;     // of the vector, see the names in the .cpp; 0: itself
  double factor = 1, offset = 0;
  int times = -1;  // another term's coefficient goes with it: index of that term
  int table = -1;  // an unknown function of the vector: its values

  bool is_vector() const { return vector >= 0; }
  bool is(double value) const { return !is_vector() && constant == value; }
  bool is_plain() const { return is_vector() && function == 0 && offset == 0 && times < 0 && table < 0; }
  bool is_one_plus() const {
    return is_vector() && function == 0 && factor == 1 && offset == 1 && times < 0 && table < 0;
  }
  friend bool operator==(const Coefficient&, const Coefficient&) = default;
};

struct ChannelFormula {
  struct Term {
    int item = -1;
    Coefficient coefficient;
  };
  std::vector<Term> terms;
  Coefficient offset;
  double residual = INFINITY;

  const Coefficient* of(int item) const;
};

class ChannelSearch {
 public:
  explicit ChannelSearch(Case& failing);
  bool possible() const;
  ChannelFormula best(bool candidate) const;
  // The candidate from the items of the reference's formula, with coefficients that are none of the known vectors but
  // are read from a recorded one in another way: those join the known ones.
  ChannelFormula best_reading(const ChannelFormula& reference);
  // The candidate in terms of the reference's tensor itself and one more.
  ChannelFormula best_from_reference() const;
  struct Coarse {  // coefficients in a poorer format
    Format terms = nullptr, offset = nullptr;
    bool before = false;  // a constant is added to them
  };
  double residual(const ChannelFormula& formula, bool candidate) const { return residual(formula, candidate, {}); }
  double residual(const ChannelFormula& formula, bool candidate, const Coarse& coarse) const;

  std::string words(const Coefficient& k) const;
  std::string words(const ChannelFormula& formula) const;
  std::string label(int item) const;
  const Item* item(int index) const {
    return items_.size() > static_cast<size_t>(index) ? items_[static_cast<size_t>(index)] : nullptr;
  }
  bool is_reference(int index) const { return index == static_cast<int>(items_.size()); }
  // The candidate's rows of every tensor of this size that was recorded nearby: many more than formulas are made of.
  std::vector<std::pair<std::string, Values>> all_equal_sized() const;
  // The candidate's tensor with all but this term taken away, and the term's tensor as it should be: [rows, channels].
  std::pair<Values, Values> implied(const ChannelFormula& reference, size_t term) const;

 private:
  Values rows(const Values& x) const;
  using Solved = std::vector<std::vector<double>>;  // [item, then the offset][channel]
  std::optional<Solved> solve(const std::vector<int>& chosen, bool candidate) const;
  double size_of(bool candidate) const;  // rms of the tensor
  bool is_close(const Coefficient& known, const std::vector<double>& k) const;
  bool is_mixture(const std::vector<double>& k, size_t right) const;
  ChannelFormula fit(const std::vector<int>& chosen, bool candidate) const;
  std::optional<Coefficient> recognise(const std::vector<double>& k, bool candidate, double small) const;
  double value(const Coefficient& k, bool candidate, size_t channel, Format coarse = nullptr,
               bool before = false) const;
  double value(const ChannelFormula& formula, const Coefficient& k, bool candidate, size_t channel,
               Format coarse = nullptr, bool before = false) const;

  Case& failing_;
  std::vector<const Item*> items_;
  int axis_ = 0;
  int64_t item_ = 0;  // of the batch
  int64_t channels_ = 1;
  Values y_[2];
  std::vector<Values> x_[2];  // one for each item; the candidate's list ends with the reference's tensor
  std::vector<NamedVector> words_;
  std::vector<std::vector<double>> tables_;
};

}  // namespace lockstep
