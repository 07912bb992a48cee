// What the MLX leaf does with storages: parts of them, views, memory that is lent to it, threads. The kernels
// themselves are tested like those of any backend, with LOCKSTEP_TEST_BACKEND=mlx.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <thread>

#include "backend/backend.h"
#include "backend/mlx/library.h"
#include "backend/mlx/report.h"
#include "backend/mlx/storage.h"
#include "base/error.h"
#include "tensor/convert.h"

namespace lockstep::testing {
namespace {

class MlxStorages : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!mlx_report().usable) GTEST_SKIP() << mlx_report().why;
    backend_ = make_backend("mlx");
  }
  static Tensor counted(const Shape& shape, float from = 0) {
    Tensor tensor = Tensor::empty(DType::kF32, shape);
    std::iota(tensor.mutable_data<float>(), tensor.mutable_data<float>() + tensor.numel(), from);
    return tensor;
  }
  // The same writes on the host and on MLX leave the same bytes in the whole storage.
  void expect_written(const Tensor& whole, const Shape& shape, const Strides& strides, int64_t offset) {
    const auto part = [&](const Tensor& of) {
      return Tensor::on(of.storage(), DType::kF32, shape, strides, of.offset_bytes() + 4 * offset);
    };
    Tensor there = backend_->upload(whole), here = whole.clone();
    const Tensor value = counted(shape, 1000);
    Tensor to = part(there), host_to = part(here);
    backend_->copy({.from = backend_->upload(value), .to = to});
    copy_strided(value, host_to);
    EXPECT_EQ(to_doubles(here), to_doubles(there.host()));
    EXPECT_EQ(to_doubles(host_to), to_doubles(to.host()));
    Tensor read_back = backend_->allocate(DType::kF32, shape);
    backend_->copy({.from = to, .to = read_back});
    EXPECT_EQ(to_doubles(value), to_doubles(read_back.host()));
  }
  std::unique_ptr<Backend> backend_;
};

TEST_F(MlxStorages, PartsAreWrittenWhereTheyBelong) {
  const Tensor whole = counted({4, 5, 6});
  expect_written(whole, {4, 5, 6}, {30, 6, 1}, 0);   // all of it
  expect_written(whole, {4, 2, 6}, {30, 6, 1}, 12);  // rows in the middle
  expect_written(whole, {4, 5, 3}, {30, 6, 1}, 3);   // columns
  expect_written(whole, {4, 5, 3}, {30, 6, 2}, 1);   // every other column
  expect_written(whole, {6, 5, 4}, {1, 6, 30}, 0);   // transposed
  expect_written(whole, {5, 3}, {6, 2}, 61);         // one plane
  expect_written(whole, {1, 1, 1}, {7, 7, 7}, 119);  // the last element
  expect_written(whole, {}, {}, 17);
  expect_written(whole, {2, 1, 6}, {60, 1, 1}, 30);
}

TEST_F(MlxStorages, PartsThatFoldNoRowAreScattered) {
  const Tensor whole = counted({30});
  expect_written(whole, {3, 3}, {7, 2}, 1);
  expect_written(whole, {4, 2}, {7, 3}, 0);
}

TEST_F(MlxStorages, AStorageIsReadInAnotherDtype) {
  const Tensor whole = counted({8});
  const Tensor there = backend_->upload(whole);
  const Tensor words = Tensor::on(there.storage(), DType::kU32, {8});
  EXPECT_EQ(to_doubles(Tensor::wrap(whole.strided_data(), DType::kU32, {8}, nullptr)), to_doubles(words.host()));
  Tensor bytes = Tensor::on(there.storage(), DType::kU8, {4}, {}, 4);
  backend_->copy({.from = backend_->upload(Tensor::zeros(DType::kU8, {4})), .to = bytes});
  EXPECT_EQ(to_doubles(there.host()), (std::vector<double>{0, 0, 2, 3, 4, 5, 6, 7}));
}

TEST_F(MlxStorages, AResultOutlivesWhatItWasMadeFrom) {
  Tensor sum = backend_->allocate(DType::kF32, {4});
  {
    const Tensor a = backend_->upload(counted({4})), b = backend_->upload(counted({4}, 10));
    backend_->binary({.op = BinaryOp::kAdd, .a = a, .b = b, .out = sum});
  }
  EXPECT_EQ(to_doubles(sum.host()), (std::vector<double>{10, 12, 14, 16}));
  const Tensor before = sum.host();
  backend_->unary({.op = UnaryOp::kNegate, .x = sum, .out = sum});
  backend_->flush();
  EXPECT_EQ(to_doubles(before)[3], 16) << "what was read stays as it was";
  EXPECT_EQ(to_doubles(sum.host())[3], -16);
}

TEST_F(MlxStorages, WhatOneThreadMadeAnotherMayRead) {
  const Tensor x = backend_->upload(counted({3}));
  Tensor y = backend_->allocate(DType::kF32, {3});
  backend_->binary({.op = BinaryOp::kMultiply, .a = x, .b = x, .out = y});
  std::vector<double> seen;
  std::thread([&] {
    seen = to_doubles(y.host());
    Tensor z = backend_->allocate(DType::kF32, {3});
    backend_->unary({.op = UnaryOp::kNegate, .x = y, .out = z});
    backend_->synchronize();
  }).join();
  EXPECT_EQ(seen, (std::vector<double>{0, 1, 4}));
}

// Weights are lent in whole pages of their file's mapping.
TEST_F(MlxStorages, LentPagesAreReadFromTheirMiddleAndLetGo) {
  constexpr size_t kPage = 4096;
  std::shared_ptr<std::byte> pages(static_cast<std::byte*>(std::aligned_alloc(kPage, 3 * kPage)), std::free);
  auto* floats = reinterpret_cast<float*>(pages.get());
  std::iota(floats, floats + 3 * kPage / 4, 0.0f);
  const std::weak_ptr<std::byte> owner = pages;
  for (const size_t first : {size_t{0}, size_t{25}, size_t{1020}, size_t{1024}}) {
    const auto storage =
        std::make_shared<mlx::MlxStorage>(*mlx::library().leaf, std::make_shared<mlx::Account>(), 4000);
    mlx::lend(*mlx::library().leaf, Tensor::wrap(floats + first, DType::kF32, {1000}, pages), *storage, kPage);
    const std::vector<double> got = to_doubles(Tensor::on(storage, DType::kF32, {1000}).host());
    for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(got[i], static_cast<double>(first + i));
  }
  pages.reset();
  EXPECT_TRUE(owner.expired());
}

TEST_F(MlxStorages, MemoryIsCounted) {
  const uint64_t before = backend_->memory().in_use_bytes;
  {
    const Tensor a = backend_->allocate(DType::kBF16, {10, 10});
    EXPECT_EQ(backend_->memory().in_use_bytes, before + 200);
  }
  EXPECT_EQ(backend_->memory().in_use_bytes, before);
  EXPECT_GE(backend_->memory().peak_bytes, before + 200);
  backend_->reset_peak();
  EXPECT_EQ(backend_->memory().peak_bytes, before);
}

TEST_F(MlxStorages, HostTensorsAreRefused) {
  const Tensor host = counted({2});
  Tensor out = backend_->allocate(DType::kF32, {2});
  EXPECT_THROW(backend_->unary({.op = UnaryOp::kNegate, .x = host, .out = out}), Error);
}

TEST(MlxDevice, WithoutItTheReasonIsSaid) {
  const MlxReport report = mlx_report();
  if (report.usable) GTEST_SKIP() << "MLX can be used here";
  EXPECT_FALSE(report.why.empty());
  try {
    make_backend("mlx");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDevice);
    EXPECT_NE(std::string(error.what()).find(report.why), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::testing
