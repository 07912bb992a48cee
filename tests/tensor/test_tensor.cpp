#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <numeric>

#include "base/error.h"
#include "tensor/convert.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

Tensor counting(const Shape& shape, DType dtype = DType::kI64) {
  Tensor tensor = Tensor::empty(DType::kI64, shape);
  std::iota(tensor.mutable_data<int64_t>(), tensor.mutable_data<int64_t>() + tensor.numel(), 0);
  return tensor.to(dtype);
}

// Row-major values by index arithmetic alone: what every copy must agree with.
std::vector<double> naive_values(const Tensor& tensor) {
  std::vector<double> values;
  Shape at(tensor.rank(), 0);
  const int64_t item = static_cast<int64_t>(dtype_bytes(tensor.dtype()));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < tensor.rank(); ++axis) offset += at[axis] * tensor.strides()[axis];
    values.push_back(element_as_double(tensor.strided_data() + offset * item, tensor.dtype()));
    for (size_t axis = tensor.rank(); axis-- > 0;) {
      if (++at[axis] < tensor.shape()[axis]) break;
      at[axis] = 0;
    }
  }
  return values;
}

TEST(Tensor, ViewsShareStorageAndNeverLookContiguous) {
  const Tensor base = counting({2, 3, 4});
  const Tensor turned = base.transpose(0, 2);
  EXPECT_EQ(turned.strided_data(), base.strided_data());
  EXPECT_EQ(turned.shape(), (Shape{4, 3, 2}));
  EXPECT_FALSE(turned.is_contiguous());
  EXPECT_THROW(turned.data<int64_t>(), Error);
  EXPECT_THROW(turned.contiguous_bytes(), Error);
  EXPECT_THROW(turned.reshape({24}), Error);
  EXPECT_THROW(base.data<float>(), Error);
  EXPECT_EQ(naive_values(turned.contiguous()), naive_values(turned));
  EXPECT_EQ(base.contiguous().strided_data(), base.strided_data());
  EXPECT_NE(base.clone().strided_data(), base.strided_data());
  EXPECT_EQ(base.to(DType::kI64).strided_data(), base.strided_data());
}

TEST(Tensor, SlicesAndSelections) {
  const Tensor base = counting({4, 5});
  EXPECT_EQ(naive_values(base.slice(1, 1, 5, 2)), (std::vector<double>{1, 3, 6, 8, 11, 13, 16, 18}));
  EXPECT_EQ(naive_values(base.select(0, 2)), (std::vector<double>{10, 11, 12, 13, 14}));
  EXPECT_TRUE(base.slice(0, 1, 3).is_contiguous());
  EXPECT_FALSE(base.slice(1, 0, 2).is_contiguous());
  EXPECT_EQ(base.slice(0, 4, 4).numel(), 0);
  EXPECT_TRUE(base.slice(0, 4, 4).is_contiguous());
  EXPECT_THROW(base.slice(0, -1, 2), Error);
  EXPECT_THROW(base.slice(0, 0, 5), Error);
  EXPECT_THROW(base.slice(0, 3, 2), Error);
  EXPECT_THROW(base.slice(0, 0, 2, 0), Error);
  EXPECT_THROW(base.slice(2, 0, 1), Error);
  EXPECT_THROW(base.select(0, 4), Error);
  EXPECT_THROW(base.permute({0, 0}), Error);
  EXPECT_THROW(base.permute({0}), Error);
  EXPECT_THROW(base.squeeze(0), Error);
}

TEST(Tensor, SizeOneAxesDoNotSpoilContiguity) {
  const Tensor base = counting({3, 1, 4});
  EXPECT_TRUE(base.transpose(0, 1).is_contiguous());
  EXPECT_TRUE(base.unsqueeze(0).is_contiguous());
  EXPECT_TRUE(base.unsqueeze(-1).is_contiguous());
  EXPECT_EQ(base.unsqueeze(-1).shape(), (Shape{3, 1, 4, 1}));
}

TEST(Tensor, Broadcasts) {
  const Tensor row = counting({1, 3});
  const Tensor wide = row.broadcast_to({2, 2, 3});
  EXPECT_EQ(wide.strides(), (Strides{0, 0, 1}));
  EXPECT_EQ(naive_values(wide.contiguous()), (std::vector<double>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_THROW(row.broadcast_to({3, 2}), Error);
  EXPECT_THROW(counting({2, 3}).broadcast_to({3}), Error);
  EXPECT_EQ(counting({}).broadcast_to({2}).contiguous().numel(), 2);
}

TEST(Tensor, SizesThatOverflowAreRefusedBeforeAllocating) {
  const int64_t big = int64_t{1} << 40;
  EXPECT_THROW(Tensor::empty(DType::kF32, {big, big}), Error);
  EXPECT_THROW(contiguous_strides({big, big}), Error);
  EXPECT_THROW(Tensor::empty(DType::kU8, {int64_t{1} << 61, 4}), Error);
  EXPECT_THROW(Tensor::empty(DType::kF64, {int64_t{1} << 61}), Error);
  EXPECT_THROW(Tensor::empty(DType::kF32, {-1}), Error);
  EXPECT_THROW(Tensor::empty(DType::kF32, Shape(kMaxRank + 1, 1)), Error);
  EXPECT_EQ(Tensor::empty(DType::kF32, {0, 5}).numel(), 0);
  EXPECT_THROW(counting({2, 3}).reshape({4, -1}), Error);
  EXPECT_THROW(counting({2, 3}).reshape({-1, -1}), Error);
  EXPECT_THROW(counting({2, 3}).reshape({big, big}), Error);
  EXPECT_THROW(counting({2, 3}).reshape({int64_t{1} << 62, 4, -1}), Error);
  EXPECT_EQ(counting({2, 3}).reshape({3, -1}).shape(), (Shape{3, 2}));
  EXPECT_THROW((Tensor::from<float>({3}, {1, 2})), Error);
}

TEST(Tensor, ForeignMemoryMustBeAlignedAndIsKeptAlive) {
  auto owner = std::make_shared<std::vector<float>>(8, 2.0f);
  std::weak_ptr<std::vector<float>> watch = owner;
  EXPECT_THROW(Tensor::wrap(reinterpret_cast<std::byte*>(owner->data()) + 1, DType::kF32, {1}, owner), Error);
  EXPECT_THROW(Tensor::wrap(nullptr, DType::kF32, {1}, owner), Error);
  EXPECT_THROW(Tensor::wrap(owner->data(), DType::kF32, {2, 2}, owner, {1}), Error);
  Tensor view = Tensor::wrap(owner->data(), DType::kF32, {2, 4}, owner).select(0, 1);
  owner.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(view.data<float>()[3], 2.0f);
  view = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, MemoryIsCountedLimitedAndReused) {
  release_cached_memory();
  const uint64_t before = memory_use().in_use_bytes;
  {
    const Tensor tensor = Tensor::empty(DType::kU8, {1 << 20});
    EXPECT_GE(memory_use().in_use_bytes, before + (1 << 20));
  }
  EXPECT_EQ(memory_use().in_use_bytes, before);
  const uint64_t allocations = memory_use().system_allocations;
  { const Tensor again = Tensor::empty(DType::kU8, {1 << 20}); }
  EXPECT_EQ(memory_use().system_allocations, allocations);
  set_memory_limit(before + (1 << 20));
  EXPECT_THROW(Tensor::empty(DType::kU8, {1 << 22}), Error);
  set_memory_limit(0);
}

// As when a model was loaded: what its passes need must not be given back to keep what only the loading needed.
TEST(Tensor, OfFreedMemoryWhatWasUsedLastIsKept) {
  release_cached_memory();
  reset_peak_memory();
  { const Tensor loading = Tensor::empty(DType::kU8, {4 << 20}); }
  { const Tensor pass = Tensor::empty(DType::kU8, {3 << 20}); }
  const uint64_t allocations = memory_use().system_allocations;
  { const Tensor second_pass = Tensor::empty(DType::kU8, {3 << 20}); }
  EXPECT_EQ(memory_use().system_allocations, allocations);
  { const Tensor loading = Tensor::empty(DType::kU8, {4 << 20}); }
  EXPECT_EQ(memory_use().system_allocations, allocations + 1) << "no more is kept than was ever in use";
}

// Random views of random tensors, packed by copy_strided, against index arithmetic.
RC_GTEST_PROP(TensorProperties, PackingAnyViewKeepsItsValues, ()) {
  const size_t rank = *rc::gen::inRange<size_t>(1, 5);
  Shape shape;
  for (size_t i = 0; i < rank; ++i) shape.push_back(*rc::gen::inRange<int64_t>(1, 9));
  const DType dtype = *rc::gen::element(DType::kU8, DType::kI16, DType::kF32, DType::kF64);
  Tensor view = counting(shape, dtype);
  const int steps = *rc::gen::inRange(0, 4);
  for (int i = 0; i < steps; ++i) {
    const int axis = *rc::gen::inRange(0, static_cast<int>(view.rank()));
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        view = view.transpose(axis, *rc::gen::inRange(0, static_cast<int>(view.rank())));
        break;
      case 1: {
        const int64_t begin = *rc::gen::inRange<int64_t>(0, view.dim(axis) + 1);
        view = view.slice(axis, begin, *rc::gen::inRange<int64_t>(begin, view.dim(axis) + 1),
                          *rc::gen::inRange<int64_t>(1, 4));
        break;
      }
      case 2:
        view = view.unsqueeze(axis);
        break;
      default: {
        Shape wide = view.shape();
        wide.insert(wide.begin(), 3);
        view = view.broadcast_to(wide);
      }
    }
  }
  RC_ASSERT(naive_values(view.clone()) == naive_values(view));
  // And into a strided destination.
  Shape doubled = view.shape();
  doubled.push_back(2);
  Tensor target = Tensor::zeros(dtype, doubled).select(-1, 1);
  copy_strided(view, target);
  RC_ASSERT(naive_values(target) == naive_values(view));
}

TEST(Tensor, LargePermutationsAreThreadedAndExact) {
  const Tensor base = counting({67, 130, 131}, DType::kF32);
  for (const auto& axes : {std::vector<int>{0, 2, 1}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}, {1, 2, 0}})
    EXPECT_EQ(naive_values(base.permute(axes).contiguous()), naive_values(base.permute(axes)));
  const Tensor bytes = counting({1, 1 << 19}, DType::kU8).broadcast_to({4, 1 << 19});
  EXPECT_EQ(naive_values(bytes.contiguous()), naive_values(bytes));
}

}  // namespace
}  // namespace lockstep
