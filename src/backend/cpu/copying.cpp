#include "backend/cpu/copying.h"

#include <cstring>
#include <string>

#include "backend/cpu/row_kernels.h"
#include "backend/cpu/threads.h"
#include "base/error.h"
#include "tensor/convert.h"

namespace lockstep::cpu {
namespace {

void convert_row(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) {
  if (from_dtype == to_dtype)
    std::memcpy(to, from, static_cast<size_t>(count) * dtype_bytes(from_dtype));
  else if (is_row_dtype(from_dtype) && is_row_dtype(to_dtype))
    convert_run(from, from_dtype, to, to_dtype, count);
  else
    convert_elements(from, from_dtype, to, to_dtype, count);
}

bool has_rows(const Tensor& tensor) {
  return tensor.rank() == 0 || tensor.dim(-1) <= 1 || tensor.strides().back() == 1;
}

void copy_rows(const Tensor& from, Tensor& to, int threads) {
  // A packed pair is one long line: cut it into pieces instead of following its axes.
  if (from.is_contiguous() && to.is_contiguous()) {
    const int64_t from_item = static_cast<int64_t>(dtype_bytes(from.dtype()));
    const int64_t to_item = static_cast<int64_t>(dtype_bytes(to.dtype()));
    return parallel_chunks(threads, from.numel(), 1, [&](int64_t begin, int64_t end) {
      convert_row(from.strided_data() + begin * from_item, from.dtype(), to.mutable_strided_data() + begin * to_item,
                  to.dtype(), end - begin);
    });
  }
  const Rows in(from, "copy"), out(to, "copy");
  parallel_chunks(threads, in.count(), in.columns(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      convert_row(in.bytes(row), from.dtype(), out.bytes(row), to.dtype(), in.columns());
  });
}

// Same dtype, strides in the way: slices of the longest axis go to different threads.
void copy_elements(const Tensor& from, Tensor& to, int threads) {
  int axis = 0;
  for (int i = 1; i < static_cast<int>(from.rank()); ++i)
    if (from.dim(i) > from.dim(axis)) axis = i;
  const int64_t length = from.dim(axis);
  parallel_chunks(threads, length, from.numel() / length * 2, [&](int64_t begin, int64_t end) {
    Tensor part = to.slice(axis, begin, end);
    copy_strided(from.slice(axis, begin, end), part);
  });
}

}  // namespace

Tensor converted(const Tensor& tensor, DType dtype, int threads) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor out = Tensor::empty(dtype, tensor.shape());
  copy({.from = tensor, .to = out}, threads);
  return out;
}

void copy(const CopyArgs& args, int threads) {
  if (args.from.shape() != args.to.shape())
    fail(Code::kBadInput, "copy", "shapes differ",
         {.expected = to_string(args.to.shape()), .got = to_string(args.from.shape())});
  if (args.from.numel() == 0) return;
  if (has_rows(args.from) && has_rows(args.to)) return copy_rows(args.from, args.to, threads);
  if (args.from.dtype() == args.to.dtype()) return copy_elements(args.from, args.to, threads);
  // The cast on packed values, the layout change on the narrower side of it.
  if (has_rows(args.from)) {
    Tensor cast = Tensor::empty(args.to.dtype(), args.from.shape());
    copy_rows(args.from, cast, threads);
    return copy_elements(cast, args.to, threads);
  }
  Tensor packed = Tensor::empty(args.from.dtype(), args.from.shape());
  copy_elements(args.from, packed, threads);
  copy({.from = packed, .to = args.to}, threads);
}

void gather(const GatherArgs& args, int threads) {
  const int64_t count = args.ids.dim(0), rows = args.table.dim(0), width = args.table.dim(1);
  const int64_t* ids = args.ids.data<int64_t>();
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] < 0 || ids[i] >= rows)
      fail(Code::kBadInput, "gather", "row out of range",
           {.expected = "0 to " + std::to_string(rows - 1), .got = std::to_string(ids[i])});
  const Rows table(args.table, "gather"), out(args.out, "gather");
  parallel_chunks(threads, count, width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      convert_row(table.bytes(ids[i]), args.table.dtype(), out.bytes(i), args.out.dtype(), width);
  });
}

}  // namespace lockstep::cpu
