// One search for every stage whose result is a formula of which a part may be done otherwise.
//
// A stage has a *form*: everything about its formula that may differ. It says which forms the reference may have and
// how far a form is from a recorded result, and it lists *edits*: what each does to the form, its cause, its fix, which
// others it excludes, and whether it may be one of two; and *free numbers* that are solved for. The search gives back
// the edits that fit, so that a cause is never guessed again from the fields in which two forms differ.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "diagnose/case/thresholds.h"
#include "diagnose/search/budget.h"
#include "diagnose/search/report.h"

namespace lockstep {

template <typename Form>
struct Edit {
  EditName name;
  std::function<void(Form&)> apply;
  int kind = 0;       // two edits of one kind exclude each other; 0: none
  bool pairs = true;  // may be one of two
};

// A number of any size that the form has none of, or another.
template <typename Form>
struct FreeNumber {
  EditName name;
  std::function<void(Form&, double)> set;
  bool negative_too = false;
  double least = 1e-3, most = 1e3;  // where it is looked for
};

template <typename Form>
struct EditedForm {
  Form form;
  double residual = INFINITY;
  std::vector<EditName> names{};  // of its edits, the one that does most first
  int kind = 0;
  bool pairs = false;
  double promise = INFINITY;  // its residual, or what a first look made of it

  // As it is reported: the first edit's cause, the fixes of all, what they do as the table of causes says it.
  EditName name() const { return {names[0].cause, fix(), names[0].blame}; }
  std::string fix() const {
    return joined([](const EditName& name) { return name.fix.empty() ? name.cause.entry().fix : name.fix; });
  }
  std::string words() const {
    return joined([](const EditName& name) { return name.cause.entry().words; });
  }
  double complexity() const { return 0.7 + 0.4 * static_cast<double>(names.size() - 1); }

 private:
  template <typename Said>
  std::string joined(const Said& said) const {
    std::string out;
    for (const EditName& name : names)
      if (const std::string one(said(name)); out.find(one) == std::string::npos)
        out += (out.empty() ? "" : "; and ") + one;
    return out;
  }
};

// The first form that explains the reference, else the nearest; one that is nearer by no more than rounding does not
// count.
inline constexpr double kBeyondRounding = 0.97;
template <typename Form, typename Measure>
EditedForm<Form> fit_reference(const std::vector<Form>& forms, const Measure& measure, double tolerance) {
  EditedForm<Form> best;
  for (const Form& form : forms) {
    const double residual = measure(form);
    if (residual < kBeyondRounding * best.residual) best.form = form, best.residual = residual;
    if (best.residual <= tolerance) break;
  }
  return best;
}

// What solves first and recognises afterwards: a form that it made of the candidate's numbers, with the edits that it
// recognised in them. It starts from the reference's form.
template <typename Form>
using Solver = std::function<EditedForm<Form>(const Form& reference, Budget& budget)>;

template <typename Form>
class EditSearch {
 public:
  using Measure = std::function<double(const Form&)>;
  // `work`: of one measure.
  EditSearch(const Form& base, Measure measure, int64_t work, Budget& budget)
      : base_(base), measure_(std::move(measure)), work_(work), budget_(budget) {}

  const EditedForm<Form>& best() const { return best_; }
  // A look at a few places rules most edits out: those that leave no less than `limit` there are not measured.
  void look_first(Measure glance, double limit) { glance_ = std::move(glance), limit_ = limit; }
  // Taken where it is clearly better.
  void offer(EditedForm<Form> found) {
    if (found.residual < kClearlyBetter * best_.residual) best_ = std::move(found);
  }
  void take(EditedForm<Form> found) {  // where it is better at all
    if (found.residual < best_.residual) best_ = std::move(found);
  }
  // `limit`: what it leaves at most, where it may choose among so much that nothing less than exact is an answer.
  void solve(const Solver<Form>& solver, double limit = INFINITY) {
    if (EditedForm<Form> found = solver(base_, budget_); found.residual <= limit) offer(std::move(found));
  }

  // Each by itself. Of those that fit alike the first: some are the same by other words.
  void try_each(const std::vector<Edit<Form>>& edits) {
    double least = INFINITY;
    const size_t begin = singles_.size();
    for (const Edit<Form>& edit : edits) {
      singles_.push_back(made(base_, {}, edit));
      least = std::min(least, singles_.back().residual);
    }
    for (size_t i = begin; i < singles_.size(); ++i)
      if (singles_[i].residual <= kAlike * least) {
        if (best_.names.empty() || singles_[i].residual < kClearlyBetter * best_.residual) best_ = singles_[i];
        break;
      }
  }
  // On the base; a constant that nearly fits is no answer where some number fits.
  void try_number(const FreeNumber<Form>& number) { offer(best_number(base_, {}, number)); }
  // On the most promising single edits.
  void try_number_on(size_t promising, const FreeNumber<Form>& number) {
    for (const size_t i : order(promising)) take(best_number(singles_[i].form, singles_[i].names, number));
  }
  // The most promising single edits with one more each, until `is_enough`.
  template <typename Enough>
  void try_pairs(size_t promising, const std::vector<Edit<Form>>& others, const Enough& is_enough) {
    for (const size_t i : order(promising))
      for (const Edit<Form>& other : others) {
        if (budget_.is_spent()) return;
        const EditedForm<Form>& first = singles_[i];
        if (!first.pairs || !other.pairs || (first.kind != 0 && first.kind == other.kind)) continue;
        take(made(first.form, first.names, other));
        if (is_enough(best_.residual)) return;
      }
  }
  // Every two of them, after `try_each`; the one that does clearly more by itself is named first, else the likelier.
  template <typename Enough>
  void try_all_pairs(const std::vector<Edit<Form>>& edits, const Enough& is_enough) {
    for (size_t i = 0; i < edits.size(); ++i)
      for (size_t j = i + 1; j < edits.size() && edits[i].pairs; ++j) {
        if (is_enough(best_.residual) || budget_.is_spent()) return;
        if (!edits[j].pairs || (edits[i].kind != 0 && edits[i].kind == edits[j].kind)) continue;
        const bool first = singles_[i].promise <= kAlike * singles_[j].promise;
        Form form = base_;
        edits[i].apply(form);
        EditedForm<Form> both = made(form, {edits[i].name}, edits[j]);
        if (!first) std::swap(both.names[0], both.names[1]);
        take(std::move(both));
      }
  }

 private:
  static constexpr double kAlike = 1.5;

  EditedForm<Form> made(const Form& from, std::vector<EditName> names, const Edit<Form>& edit) {
    EditedForm<Form> out{from, INFINITY, std::move(names), edit.kind, edit.pairs};
    edit.apply(out.form);
    out.names.push_back(edit.name);
    if (!budget_.spend(work_)) return out;
    if (glance_ && !((out.promise = glance_(out.form)) < limit_)) return out;
    out.promise = out.residual = measure_(out.form);
    return out;
  }
  EditedForm<Form> best_number(const Form& from, std::vector<EditName> names, const FreeNumber<Form>& number) {
    EditedForm<Form> best{from, INFINITY, std::move(names), 0, false};
    best.names.push_back(number.name);
    double chosen = 1;
    const auto consider = [&](double x) {
      if (!budget_.spend(work_)) return;
      Form form = from;
      number.set(form, x);
      const double residual = measure_(form);
      if (residual < best.residual) best.form = std::move(form), best.residual = residual, chosen = x;
    };
    for (double x = number.least; x < number.most && !budget_.is_spent(); x *= 1.3) {
      consider(x);
      if (number.negative_too) consider(-x);
    }
    for (double step = 1.15; step > 1.00002 && !budget_.is_spent(); step = std::sqrt(step)) {
      const double middle = chosen;
      consider(middle * step), consider(middle / step);
    }
    // Someone chose it: the round number beside it, where that fits alike.
    const double magnitude = std::pow(10, std::floor(std::log10(std::fabs(chosen))) - 1);
    EditedForm<Form> round{from, INFINITY, best.names, 0, false};
    number.set(round.form, std::round(chosen / magnitude) * magnitude);
    if (budget_.spend(work_)) round.residual = measure_(round.form);
    return round.residual <= kAlike * best.residual ? round : best;
  }
  // The most promising first.
  std::vector<size_t> order(size_t most) const {
    std::vector<size_t> out(singles_.size());
    std::iota(out.begin(), out.end(), size_t{0});
    std::sort(out.begin(), out.end(), [&](size_t a, size_t b) { return singles_[a].residual < singles_[b].residual; });
    out.resize(std::min(out.size(), most));
    return out;
  }

  const Form& base_;
  Measure measure_, glance_;
  double limit_ = INFINITY;
  int64_t work_;
  Budget& budget_;
  std::vector<EditedForm<Form>> singles_;
  EditedForm<Form> best_;
};

}  // namespace lockstep
