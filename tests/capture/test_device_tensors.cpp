// Recording a tensor that lies on a device: what is written must be what recording its host copy writes.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "capture/checksum.h"
#include "capture/recording_tap.h"
#include "capture/run_reader.h"
#include "capture/scratch_home.h"
#include "tensor/storage.h"
#include "tensor/value_digest.h"

namespace lockstep {
namespace {

// Bytes that only host() and digest() show.
class FarStorage final : public Storage {
 public:
  explicit FarStorage(const Tensor& tensor) : bytes_(tensor.bytes()), dtype_(tensor.dtype()), shape_(tensor.shape()) {
    std::memcpy(bytes_.data(), tensor.contiguous_bytes().data(), bytes_.size());
  }
  std::shared_ptr<const std::byte> host(size_t offset, size_t bytes) const override {
    ++downloads;
    std::shared_ptr<std::byte> copy(new std::byte[bytes], std::default_delete<std::byte[]>());
    std::memcpy(copy.get(), bytes_.data() + offset, bytes);
    return copy;
  }
  void* device() const override { return const_cast<std::byte*>(bytes_.data()); }
  std::shared_ptr<PendingDigest> digest(const Tensor& tensor) const override {
    if (!digests) return nullptr;
    struct Late final : PendingDigest {
      ValueDigest made;
      int delay_ms = 0;
      bool fails = false;
      const ValueDigest& wait() override {
        std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
        if (fails) throw std::runtime_error("the device is gone");
        return made;
      }
    };
    auto late = std::make_shared<Late>();
    late->fails = fails;
    late->delay_ms = delay_ms;
    const Tensor here = Tensor::wrap(bytes_.data(), dtype_, tensor.shape(), nullptr);
    if (bytes_.size() < kShortestBlockChecksum) {
      late->made.values = bytes_;
    } else {
      std::vector<uint64_t> sums(checksum_blocks(bytes_.size()) * kChecksumLanes);
      checksum_block_sums(bytes_.data(), checksum_blocks(bytes_.size()), sums.data());
      const std::span<const std::byte> all(bytes_);
      late->made.stats = tensor_statistics(here);
      late->made.checksum = checksum_from_sums(sums, all.subspan(checksum_tail_begin(bytes_.size())), bytes_.size());
      late->made.first.assign(bytes_.begin(), bytes_.begin() + 64);
    }
    return late;
  }
  mutable int downloads = 0;
  bool digests = true, fails = false;
  int delay_ms = 0;

 private:
  std::vector<std::byte> bytes_;
  DType dtype_;
  Shape shape_;
};

Tensor random_tensor(int64_t count, int seed) {
  std::mt19937 engine(static_cast<uint32_t>(seed));
  std::normal_distribution<float> normal;
  Tensor tensor = Tensor::empty(DType::kF32, {count});
  for (int64_t i = 0; i < count; ++i) tensor.mutable_data<float>()[i] = normal(engine);
  return tensor;
}

struct Far {
  std::shared_ptr<FarStorage> storage;
  Tensor tensor;
};
Far far_copy(const Tensor& tensor) {
  auto storage = std::make_shared<FarStorage>(tensor);
  return {storage, Tensor::on(storage, tensor.dtype(), tensor.shape())};
}

TEST(DeviceTensors, BlockSumsGiveTheLibrarysChecksum) {
  for (const size_t bytes : {241, 256, 1023, 1024, 1025, 1087, 1088, 1089, 2048, 2049, 65536, 100001}) {
    std::vector<std::byte> data(bytes);
    std::mt19937 engine(static_cast<uint32_t>(bytes));
    for (std::byte& one : data) one = static_cast<std::byte>(engine());
    std::vector<uint64_t> sums(checksum_blocks(bytes) * kChecksumLanes);
    checksum_block_sums(data.data(), checksum_blocks(bytes), sums.data());
    const std::span<const std::byte> all(data);
    EXPECT_EQ(checksum_text(checksum_from_sums(sums, all.subspan(checksum_tail_begin(bytes)), bytes)),
              checksum_text(all))
        << bytes;
  }
}

TEST(DeviceTensors, StatisticsAreRecordedInOrderWithoutADownload) {
  ScratchHome home;
  std::vector<Tensor> values;
  for (int i = 0; i < 12; ++i) values.push_back(random_tensor(i % 3 == 0 ? 20 : 1000 + 333 * i, i));
  const auto record = [&](const std::string& name, bool far) {
    RunOptions options = home.options(name);
    options.stats_only = true;
    const std::unique_ptr<RunWriter> writer = RunWriter::create(options);
    RecordingTap tap(*writer, {});
    for (size_t i = 0; i < values.size(); ++i) {
      const TensorKey key{"t" + std::to_string(i), -1, 0, {}};
      if (!far || i == 7) {  // one of them on the host, between the others
        tap.offer(key, values[i]);
        continue;
      }
      const Far there = far_copy(values[i]);
      there.storage->delay_ms = i == 2 ? 30 : 0;
      tap.offer(key, there.tensor);
      EXPECT_EQ(there.storage->downloads, 0);
    }
    writer->close();
    return lockstep::Run::open("latest:" + name, home.path());
  };
  const lockstep::Run near = record("near", false), far = record("far", true);
  ASSERT_EQ(near.records().size(), values.size());
  ASSERT_EQ(far.records().size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const Record &a = near.records()[i], &b = far.records()[i];
    EXPECT_EQ(a.key.name, b.key.name);
    EXPECT_EQ(a.seq, b.seq);
    EXPECT_EQ(a.checksum, b.checksum);
    EXPECT_EQ(a.preview, b.preview);
    ASSERT_TRUE(b.stats);
    EXPECT_NEAR(a.stats->mean, b.stats->mean, 1e-12);
    EXPECT_NEAR(a.stats->std, b.stats->std, 1e-12);
    EXPECT_EQ(a.stats->absmax, b.stats->absmax);
  }
  EXPECT_TRUE(home.warnings.empty());
}

TEST(DeviceTensors, ValuesThatAreKeptAndThoseWithoutADigestAreDownloaded) {
  ScratchHome home;
  const Tensor values = random_tensor(5000, 1);
  const Far kept = far_copy(values), plain = far_copy(values);
  plain.storage->digests = false;
  RunOptions options = home.options();
  options.full = {"kept"};
  const std::unique_ptr<RunWriter> writer = RunWriter::create(options);
  RecordingTap tap(*writer, {});
  tap.offer({"kept", -1, 0, {}}, kept.tensor);
  tap.offer({"plain", -1, 0, {}}, plain.tensor);
  writer->close();
  EXPECT_EQ(kept.storage->downloads, 1);
  EXPECT_EQ(plain.storage->downloads, 1);
  const lockstep::Run run = lockstep::Run::open("latest:test", home.path());
  ASSERT_EQ(run.records().size(), 2u);
  EXPECT_TRUE(run.has_values(run.records()[0]));
  EXPECT_EQ(run.records()[0].checksum, run.records()[1].checksum);
  ASSERT_TRUE(run.records()[1].stats);
}

TEST(DeviceTensors, ADeviceThatFailsCostsTheStatisticsAlone) {
  ScratchHome home;
  const Far broken = far_copy(random_tensor(5000, 1));
  broken.storage->fails = true;
  RunOptions options = home.options();
  options.stats_only = true;
  const std::unique_ptr<RunWriter> writer = RunWriter::create(options);
  RecordingTap tap(*writer, {});
  tap.offer({"broken", -1, 0, {}}, broken.tensor);
  tap.offer({"next", -1, 0, {}}, random_tensor(3, 2));
  writer->close();
  const lockstep::Run run = lockstep::Run::open("latest:test", home.path());
  ASSERT_EQ(run.records().size(), 2u);
  EXPECT_FALSE(run.records()[0].stats);
  EXPECT_TRUE(run.records()[1].stats);
  ASSERT_EQ(home.warnings.size(), 1u);
  EXPECT_NE(home.warnings[0].find("the device is gone"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
