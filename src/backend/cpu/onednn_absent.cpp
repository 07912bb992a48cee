// In place of onednn.cpp where the build goes without oneDNN.
#include "backend/cpu/onednn.h"
#include "base/error.h"

namespace lockstep::cpu {
namespace {

[[noreturn]] void refuse() {
  fail(Code::kInternal, "cpu", "oneDNN was asked for work, and this program was built without it");
}

}  // namespace

struct OneDnn::Primitives {};

OneDnn::OneDnn(int) {}
OneDnn::~OneDnn() = default;

bool OneDnn::is_there() {
  return false;
}

std::string OneDnn::version() {
  return {};
}

void OneDnn::limit(Level) {}

std::shared_ptr<const PackedMatrix> OneDnn::pack(const Tensor&, DType) {
  refuse();
}

void OneDnn::multiply(const MatrixProduct&) {
  refuse();
}

void OneDnn::convolve(const Conv2dArgs&, const PackedFilter&) {
  refuse();
}

}  // namespace lockstep::cpu
