#include "tensor/dlpack.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

TEST(Dlpack, StructsHaveTheSpecificationsLayout) {
  static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 && sizeof(DLManagedTensorVersioned) == 80);
  static_assert(offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, byte_offset) == 40);
  static_assert(offsetof(DLManagedTensorVersioned, dl_tensor) == 32);
}

TEST(Dlpack, RoundTripOfEveryDtypeIsTheSameMemory) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const Tensor tensor = Tensor::zeros(static_cast<DType>(i), {2, 3}).transpose(0, 1);
    const Tensor old = tensor_from_dlpack(dlpack_from_tensor(tensor));
    const Tensor versioned = tensor_from_dlpack(versioned_dlpack_from_tensor(tensor, true));
    for (const Tensor& back : {old, versioned}) {
      EXPECT_EQ(back.strided_data(), tensor.strided_data());
      EXPECT_EQ(back.dtype(), tensor.dtype());
      EXPECT_EQ(back.shape(), tensor.shape());
      EXPECT_EQ(back.strides(), tensor.strides());
    }
  }
}

TEST(Dlpack, StorageLivesUntilTheConsumerLetsGo) {
  auto values = std::make_shared<std::vector<float>>(4, 3.0f);
  std::weak_ptr<std::vector<float>> watch = values;
  DLManagedTensor* managed = dlpack_from_tensor(Tensor::wrap(values->data(), DType::kF32, {4}, values));
  values.reset();
  ASSERT_FALSE(watch.expired());
  EXPECT_EQ(static_cast<float*>(managed->dl_tensor.data)[3], 3.0f);
  managed->deleter(managed);
  EXPECT_TRUE(watch.expired());
}

struct Foreign {
  float data[6] = {0, 1, 2, 3, 4, 5};
  int64_t shape[2] = {2, 2}, strides[2] = {3, 1};
  int deleted = 0;
  DLManagedTensor managed{{data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 4},
                          this,
                          [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; }};
};

TEST(Dlpack, ForeignOffsetsAndStridesAreHonouredAndDeletedOnce) {
  Foreign foreign;
  {
    const Tensor tensor = tensor_from_dlpack(&foreign.managed);
    const Tensor copy = tensor;
    EXPECT_EQ(to_floats(copy), (std::vector<float>{1, 2, 4, 5}));
    EXPECT_EQ(foreign.deleted, 0);
  }
  EXPECT_EQ(foreign.deleted, 1);
  foreign.shape[0] = 0;  // empty: nothing to keep, so it is handed back at once
  foreign.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(tensor_from_dlpack(&foreign.managed).numel(), 0);
  EXPECT_EQ(foreign.deleted, 2);
}

TEST(Dlpack, WhatWeCannotHoldStaysWithTheCaller) {
  const auto refused = [](const auto& change) {
    Foreign foreign;
    change(foreign.managed.dl_tensor);
    EXPECT_THROW(tensor_from_dlpack(&foreign.managed), Error);
    EXPECT_EQ(foreign.deleted, 0);
  };
  refused([](DLTensor& t) { t.device.device_type = 2; });
  refused([](DLTensor& t) { t.dtype = {5, 64, 1}; });
  refused([](DLTensor& t) { t.dtype.lanes = 4; });
  refused([](DLTensor& t) { t.ndim = -1; });
  refused([](DLTensor& t) { t.ndim = 1000; });
  refused([](DLTensor& t) { t.shape = nullptr; });
  refused([](DLTensor& t) { t.shape[0] = -1; });
  refused([](DLTensor& t) { t.byte_offset = 1; });
  refused([](DLTensor& t) { t.data = nullptr; });
  DLManagedTensorVersioned* versioned = versioned_dlpack_from_tensor(Tensor::zeros(DType::kF32, {1}), false);
  versioned->version.major = 2;
  EXPECT_THROW(tensor_from_dlpack(versioned), Error);
  versioned->deleter(versioned);
}

}  // namespace
}  // namespace lockstep
