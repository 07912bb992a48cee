// Statistics and checksums that a device works out of tensors which stay there, against the host's over the same
// values.
#include "backend/cases.h"
#include "tensor/statistics.h"
#include "tensor/storage.h"
#include "tensor/value_digest.h"

namespace lockstep::testing {
namespace {

std::unique_ptr<Backend> own_backend() {
  const char* named = std::getenv("LOCKSTEP_TEST_BACKEND");
  return make_backend(named ? named : "cpu");
}

void expect_near(double expected, double got, double size, const char* what) {
  if (std::isnan(expected))
    EXPECT_TRUE(std::isnan(got)) << what;
  else
    EXPECT_NEAR(expected, got, 1e-12 * size) << what;
}

void check(const Tensor& host, const ValueDigest& digest) {
  const auto bytes = host.contiguous_bytes();
  if (!digest.values.empty()) {
    ASSERT_EQ(digest.values.size(), bytes.size());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), digest.values.begin()));
    return;
  }
  std::vector<uint64_t> sums(checksum_blocks(bytes.size()) * kChecksumLanes);
  checksum_block_sums(bytes.data(), checksum_blocks(bytes.size()), sums.data());
  EXPECT_EQ(checksum_from_sums(sums, bytes.subspan(checksum_tail_begin(bytes.size())), bytes.size()), digest.checksum);
  const Statistics expected = tensor_statistics(host), &got = digest.stats;
  EXPECT_EQ(expected.count, got.count);
  EXPECT_EQ(expected.nan, got.nan);
  EXPECT_EQ(expected.inf, got.inf);
  EXPECT_EQ(expected.zero, got.zero);
  EXPECT_EQ(expected.denormal, got.denormal);
  const double size = std::isnan(expected.absmax) ? 1 : expected.absmax;
  expect_near(expected.min, got.min, 0, "min");
  expect_near(expected.max, got.max, 0, "max");
  expect_near(expected.mean, got.mean, size, "mean");
  // Sums of squares keep that many digits of the square of the largest value, not of the distance from the mean.
  expect_near(expected.std * expected.std, got.std * got.std, size * size, "variance");
  expect_near(expected.rms, got.rms, size, "rms");
  EXPECT_TRUE(std::equal(digest.first.begin(), digest.first.end(), bytes.begin()));
}

TEST(Digests, AreThoseOfTheHost) {
  const std::unique_ptr<Backend> backend = own_backend();
  Random random(7);
  if (!backend->upload(random.tensor(DType::kF32, {1}))
           .storage()
           ->digest(backend->upload(Tensor::zeros(DType::kF32, {1}))))
    GTEST_SKIP() << "values are in host memory";
  std::vector<std::pair<Tensor, std::shared_ptr<PendingDigest>>> waiting;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const int64_t count : {1, 10, 16384, 32768, 32769, 40000, 65536, 65537, 100001, 262144, 3000001}) {
      Tensor host = random.tensor(dtype, {count}, 3, 1);
      if (count == 100001) host = random.tensor(dtype, {count}, 1e-5f, 1000);  // far from zero
      if (count == 40000) host = Tensor::zeros(dtype, {count});
      const Tensor on = backend->upload(host);
      waiting.emplace_back(host, on.storage()->digest(on));
    }
  for (auto& [host, pending] : waiting) {
    ASSERT_TRUE(pending) << to_string(host.shape());
    check(host, pending->wait());
  }
}

TEST(Digests, CountWhatIsNotFinite) {
  const std::unique_ptr<Backend> backend = own_backend();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Tensor host = Random(3).tensor(DType::kF32, {70000});
    float* values = host.mutable_data<float>();
    for (const int at : {0, 5, 40000, 69999}) values[at] = NAN;
    for (const int at : {7, 40001, 69998}) values[at] = at % 2 ? INFINITY : -INFINITY;
    for (const int at : {9, 50000, 69997}) values[at] = dtype == DType::kF16 ? 1e-5f : 1e-40f;
    for (const int at : {11, 30000, 30001, 69996}) values[at] = at % 2 ? -0.0f : 0.0f;
    const Tensor on = backend->upload(host.to(dtype));
    const std::shared_ptr<PendingDigest> pending = on.storage()->digest(on);
    if (!pending) GTEST_SKIP() << "values are in host memory";
    check(host.to(dtype), pending->wait());
    std::fill_n(values, 70000, NAN);
    const Tensor nothing = backend->upload(host.to(dtype));
    check(host.to(dtype), nothing.storage()->digest(nothing)->wait());
  }
}

// Digests travel together, and there is room for so many of them: who asks for more waits, and all arrive.
TEST(Digests, OfMoreThanTravelsAtOnce) {
  const std::unique_ptr<Backend> backend = own_backend();
  const Tensor host = Random(9).tensor(DType::kBF16, {3 << 20}), other = Random(10).tensor(DType::kBF16, {3 << 20});
  const Tensor first = backend->upload(host), second = backend->upload(other);
  Tensor on = backend->upload(host);
  std::vector<std::shared_ptr<PendingDigest>> waiting;
  for (int i = 0; i < 500; ++i) {
    backend->copy({.from = i % 2 ? second : first, .to = on});
    waiting.push_back(on.storage()->digest(on));
    if (!waiting.back()) GTEST_SKIP() << "values are in host memory";
  }
  for (size_t i = 0; i < waiting.size(); i += 83) check(i % 2 ? other : host, waiting[i]->wait());
  for (size_t i = 2; i < waiting.size(); ++i)
    EXPECT_EQ(waiting[i]->wait().checksum, waiting[i % 2]->wait().checksum) << i;
}

// What is written into the tensor afterwards does not count, nor who lives longer.
TEST(Digests, AreOfTheMomentTheyWereAskedFor) {
  std::unique_ptr<Backend> backend = own_backend();
  const Tensor host = Random(5).tensor(DType::kBF16, {1 << 20});
  std::vector<std::shared_ptr<PendingDigest>> waiting;
  {
    Tensor on = backend->upload(host);
    const Tensor zeros = backend->upload(Tensor::zeros(DType::kBF16, {1 << 20}));
    for (int i = 0; i < 40; ++i) {
      waiting.push_back(on.storage()->digest(on));
      if (!waiting.back()) GTEST_SKIP() << "values are in host memory";
      Tensor scratch = backend->allocate(DType::kBF16, {1 << 20});
      backend->copy({.from = on, .to = scratch});
      backend->copy({.from = zeros, .to = on});
      backend->copy({.from = scratch, .to = on});
    }
  }
  backend.reset();
  for (const auto& one : waiting) check(host, one->wait());
}

}  // namespace
}  // namespace lockstep::testing
