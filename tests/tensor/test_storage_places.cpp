// Tensors whose bytes are not in host memory: a made-up device that keeps them in a vector and counts what is fetched.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "tensor/convert.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

class FarStorage final : public Storage {
 public:
  explicit FarStorage(const Tensor& values) : bytes_(values.bytes()) {
    std::memcpy(bytes_.data(), values.strided_data(), values.bytes());
  }
  std::shared_ptr<const std::byte> host(size_t offset, size_t bytes) const override {
    fetched += bytes;
    const std::shared_ptr<std::byte> copy(new std::byte[bytes], std::default_delete<std::byte[]>());
    std::memcpy(copy.get(), bytes_.data() + offset, bytes);
    return copy;
  }
  void* device() const override { return const_cast<FarStorage*>(this); }
  const char* place() const override { return "far:0"; }

  mutable size_t fetched = 0;

 private:
  std::vector<std::byte> bytes_;
};

Tensor counted_up(const Shape& shape) {
  Tensor values = Tensor::empty(DType::kF32, shape);
  for (int64_t i = 0; i < values.numel(); ++i) values.mutable_data<float>()[i] = static_cast<float>(i);
  return values;
}

TEST(TensorPlaces, BytesOfADeviceAreNeverReadAsHostMemory) {
  const auto storage = std::make_shared<FarStorage>(counted_up({2, 3}));
  Tensor far = Tensor::on(storage, DType::kF32, {2, 3});
  EXPECT_TRUE(far.defined());
  EXPECT_FALSE(far.on_host());
  const auto message_of = [](auto&& call) {
    try {
      call();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  for (const std::string& message :
       {message_of([&] { far.data<float>(); }), message_of([&] { far.mutable_data<float>(); }),
        message_of([&] { far.strided_data(); }), message_of([&] { far.contiguous_bytes(); })})
    EXPECT_NE(message.find("one on far:0"), std::string::npos) << message;
  EXPECT_EQ(storage->fetched, 0u);
}

TEST(TensorPlaces, AViewFetchesItsOwnStretchOnly) {
  const Tensor near = counted_up({4, 5, 6});
  const auto storage = std::make_shared<FarStorage>(near);
  const Tensor far = Tensor::on(storage, DType::kF32, near.shape());
  EXPECT_EQ(to_floats(far.slice(0, 1, 3).permute({2, 0, 1}).host()), to_floats(near.slice(0, 1, 3).permute({2, 0, 1})));
  EXPECT_EQ(storage->fetched, 2 * 5 * 6 * sizeof(float));
  EXPECT_EQ(to_floats(far.select(1, 4).slice(1, 1, 6, 2).host()), to_floats(near.select(1, 4).slice(1, 1, 6, 2)));
  EXPECT_EQ(far.slice(0, 2, 2).host().numel(), 0);
}

TEST(TensorPlaces, HostMemoryIsItsOwnHost) {
  const Tensor near = counted_up({3});
  EXPECT_EQ(near.host().strided_data(), near.strided_data());
  EXPECT_EQ(near.storage()->device(), nullptr);
}

}  // namespace
}  // namespace lockstep
