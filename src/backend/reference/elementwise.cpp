#include <algorithm>
#include <cmath>

#include "backend/reference/access.h"
#include "backend/reference/kernels.h"
#include "backend/reference/scalar_functions.h"
#include "base/error.h"
#include "tensor/rehearsal.h"

namespace lockstep::reference {
namespace {

double apply(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::kSilu:
      return silu(x);
    case UnaryOp::kGeluTanh:
      return gelu_tanh(x);
    case UnaryOp::kGeluErf:
      return gelu_erf(x);
    case UnaryOp::kNegate:
      return -x;
    case UnaryOp::kCos:
      return std::cos(x);
    case UnaryOp::kSin:
      return std::sin(x);
    case UnaryOp::kExp:
      return std::exp(x);
    case UnaryOp::kClampUnit:
      return std::isnan(x) ? x : std::clamp(x, -1.0, 1.0);
  }
  return x;
}

double apply(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSubtract:
      return a - b;
    case BinaryOp::kMultiply:
      return a * b;
    case BinaryOp::kDivide:
      return a / b;
    case BinaryOp::kSiluMultiply:
      return silu(a) * b;
  }
  return a;
}

// Offsets of every element in row-major order.
std::vector<int64_t> element_offsets(const Tensor& tensor) {
  return row_offsets(tensor.unsqueeze(-1));
}

}  // namespace

void unary(const UnaryArgs& args) {
  const std::vector<int64_t> in = element_offsets(args.x), out = element_offsets(args.out);
  for (size_t i = 0; i < in.size(); ++i) store_at(args.out, out[i], apply(args.op, load_at(args.x, in[i])));
}

void binary(const BinaryArgs& args) {
  const Tensor a = args.a.broadcast_to(args.out.shape()), b = args.b.broadcast_to(args.out.shape());
  const std::vector<int64_t> in_a = element_offsets(a), in_b = element_offsets(b), out = element_offsets(args.out);
  for (size_t i = 0; i < out.size(); ++i)
    store_at(args.out, out[i], apply(args.op, load_at(a, in_a[i]), load_at(b, in_b[i])));
}

void add_gated(const AddGatedArgs& args) {
  for (int64_t b = 0; b < args.x.dim(0); ++b)
    for (int64_t n = 0; n < args.x.dim(1); ++n)
      for (int64_t d = 0; d < args.x.dim(2); ++d)
        store(args.out, {b, n, d}, load(args.x, {b, n, d}) + load(args.gate, {b, d}) * load(args.y, {b, n, d}));
}

void gather(const GatherArgs& args) {
  for (int64_t i = 0; i < args.ids.dim(0); ++i) {
    const int64_t id = static_cast<int64_t>(load(args.ids, {i}));
    if (id < 0 || id >= args.table.dim(0))
      fail(Code::kBadInput, "gather", "row out of range",
           {.expected = "0 to " + std::to_string(args.table.dim(0) - 1), .got = std::to_string(id)});
    for (int64_t d = 0; d < args.table.dim(1); ++d) store(args.out, {i, d}, load(args.table, {id, d}));
  }
}

void copy(const CopyArgs& args) {
  Tensor to = args.to;
  const Tensor cast = args.from.to(args.to.dtype());
  if (!rehearsing()) copy_strided(cast, to);
}

}  // namespace lockstep::reference
