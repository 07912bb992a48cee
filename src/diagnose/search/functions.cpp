#include "diagnose/search/functions.h"

#include <cmath>

namespace lockstep {
namespace {

double softplus(double x) {
  return x > 30 ? x : std::log1p(std::exp(x));
}

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

const ElementFunction kFunctions[] = {
    {"x", [](double x) { return x; }, false},
    {"SiLU(x)", [](double x) { return x * sigmoid(x); }, true},
    {"GELU(x), tanh form", gelu_tanh, true},
    {"GELU(x), erf form", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }, true},
    {"quick GELU(x)", [](double x) { return x * sigmoid(1.702 * x); }, true},
    {"GELU(x), tanh form without the cube", [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * x)); },
     true},
    {"ReLU(x)", [](double x) { return x > 0 ? x : 0; }, true},
    {"ReLU(x)^2", [](double x) { return x > 0 ? x * x : 0; }, true},
    {"ReLU6(x)", [](double x) { return x > 6   ? 6
                                       : x > 0 ? x
                                               : 0; }, true},
    {"sigmoid(x)", [](double x) { return sigmoid(x); }, true},
    {"tanh(x)", [](double x) { return std::tanh(x); }, true},
    {"ELU(x)", [](double x) { return x > 0 ? x : std::expm1(x); }, true},
    {"SELU(x)", [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); }, true},
    {"leaky ReLU(x), 0.01", [](double x) { return x > 0 ? x : 0.01 * x; }, true},
    {"leaky ReLU(x), 0.1", [](double x) { return x > 0 ? x : 0.1 * x; }, true},
    {"leaky ReLU(x), 0.2", [](double x) { return x > 0 ? x : 0.2 * x; }, true},
    {"softplus(x)", softplus, true},
    {"softsign(x)", [](double x) { return x / (1 + std::fabs(x)); }, true},
    {"Mish(x)", [](double x) { return x * std::tanh(softplus(x)); }, true},
    {"hard swish(x)", [](double x) { return x * std::fmin(std::fmax(x + 3, 0), 6) / 6; }, true},
    {"hard sigmoid(x)", [](double x) { return std::fmin(std::fmax(x + 3, 0), 6) / 6; }, true},
    {"SiLU(SiLU(x))",
     [](double x) {
       const double y = x * sigmoid(x);
       return y * sigmoid(y);
     },
     true},
    {"GELU(GELU(x))", [](double x) { return gelu_tanh(gelu_tanh(x)); }, true},
    {"sigmoid(x) alone, without x", [](double x) { return sigmoid(1.702 * x); }, true},
    {"|x|", [](double x) { return std::fabs(x); }, false},
    {"x^2", [](double x) { return x * x; }, false},
    {"x |x|", [](double x) { return x * std::fabs(x); }, false},
    {"sqrt(x)", [](double x) { return x >= 0 ? std::sqrt(x) : NAN; }, false},
    {"1/x", [](double x) { return 1 / x; }, false},
    {"1/sqrt(x)", [](double x) { return x > 0 ? 1 / std::sqrt(x) : NAN; }, false},
    {"exp(x)", [](double x) { return x < 80 ? std::exp(x) : NAN; }, false},
    {"exp(x/2)", [](double x) { return x < 80 ? std::exp(x / 2) : NAN; }, false},
    {"log(x)", [](double x) { return x > 0 ? std::log(x) : NAN; }, false},
    {"sin(x)", [](double x) { return std::sin(x); }, false},
    {"cos(x)", [](double x) { return std::cos(x); }, false},
};

}  // namespace

std::span<const ElementFunction> element_functions() {
  return kFunctions;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace lockstep
