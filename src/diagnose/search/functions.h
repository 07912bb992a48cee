// Functions of one number that models apply element by element; one list for every family that looks for them.
#pragma once
#include <span>

namespace lockstep {

struct ElementFunction {
  const char* name;  // written with x
  double (*f)(double);
  bool is_activation;  // else plain arithmetic: a square, an absolute value
};

// The first is x itself.
std::span<const ElementFunction> element_functions();

double sigmoid(double x);

}  // namespace lockstep
