// A sum or a product as the list of what is added or multiplied, however it was bracketed.
#pragma once
#include "zoom/side.h"

namespace lockstep::zoom {

struct Term {
  int value = -1;
  bool inverse = false;  // subtracted, or divided by
};

struct Terms {
  std::vector<Term> values;
  double number = 0;       // the plain numbers among them, put together
  std::vector<int> steps;  // of the chain, in no order
};

bool is_sum(const Step& step);
bool is_product(const Step& step);  // element by element

// What a value was before steps that copy it, or that add or take axes of size 1: the same elements in the same places.
int same_elements_before(const Side& side, int value);

// One kind, or both products of matrices: a layer without its bias is one, however it was written.
bool are_alike(std::string_view a, std::string_view b);

// `step` made by additions and subtractions, or by multiplications and divisions. Inner steps of the same sort are
// opened where `may_open` allows it for their result, also below a copy.
template <typename MayOpen>
Terms terms_of(const Side& side, int step, bool sum, MayOpen may_open);

namespace detail {

template <typename MayOpen>
void collect(const Side& side, int index, bool sum, bool inverse, const MayOpen& may_open, int depth, Terms& out) {
  const Step& step = side.step(index);
  out.steps.push_back(index);
  const auto take = [&](const char* parameter, bool is_inverse) {
    const int value = step.operand(parameter);
    if (value >= 0) {
      const int maker = side.value(same_elements_before(side, value)).step;
      if (maker >= 0 && depth < 16 && (sum ? is_sum(side.step(maker)) : is_product(side.step(maker))) &&
          may_open(value))
        collect(side, maker, sum, is_inverse, may_open, depth + 1, out);
      else
        out.values.push_back({value, is_inverse});
    } else if (const auto at = step.arguments.find(parameter); at != step.arguments.end() && at->is_number()) {
      const double number = at->template get<double>();
      if (sum)
        out.number += is_inverse ? -number : number;
      else
        out.number *= is_inverse ? 1 / number : number;
    }
  };
  if (step.kind == "neg") {
    take("input", sum ? !inverse : inverse);
    if (!sum) out.number = -out.number;
    return;
  }
  take("input", inverse);
  take("other", (step.kind == "sub" || step.kind == "div") ? !inverse : inverse);
}

}  // namespace detail

template <typename MayOpen>
Terms terms_of(const Side& side, int step, bool sum, MayOpen may_open) {
  Terms out;
  out.number = sum ? 0 : 1;
  detail::collect(side, step, sum, false, may_open, 0, out);
  return out;
}

}  // namespace lockstep::zoom
