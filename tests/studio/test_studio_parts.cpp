#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

#include "base/error.h"
#include "io/image.h"
#include "pipeline/pipeline.h"
#include "studio/batch_gain.h"
#include "studio/event_log.h"
#include "studio/fair_queue.h"
#include "studio/model_shelf.h"
#include "studio/preview.h"
#include "studio/signed_link.h"

namespace lockstep {
namespace {

std::shared_ptr<Job> job_of(const std::string& client, const std::string& id, int count = 1, int width = 128) {
  auto job = std::make_shared<Job>();
  job->client = client;
  job->id = id;
  job->request.count = count;
  job->request.first.width = width;
  job->request.first.height = 128;
  job->request.uploads = std::make_shared<Uploads>();
  return job;
}

std::string ids(const std::vector<PictureTask>& tasks) {
  std::string text;
  for (const PictureTask& task : tasks) text += task.job->id + std::to_string(task.index) + " ";
  return text;
}

TEST(FairQueue, ClientsTakeTurnsAndEachOnesJobsKeepTheirOrder) {
  FairQueue queue;
  for (const char* id : {"a", "b", "c"}) queue.add(job_of("anna", id));
  queue.add(job_of("ben", "x"));
  std::string order;
  const auto one = [](const Job&) { return size_t{1}; };
  EXPECT_EQ(queue.jobs(), 4u);
  EXPECT_EQ(queue.in_order()[1]->id, "x");
  while (!queue.empty()) order += ids(queue.take(one));
  EXPECT_EQ(order, "a0 x0 b0 c0 ");
}

TEST(FairQueue, PicturesOfOneShapeGoTogetherUpToTheCap) {
  FairQueue queue;
  queue.add(job_of("anna", "a", 2));
  queue.add(job_of("anna", "b", 1, 256));
  queue.add(job_of("ben", "x", 3));
  const auto four = [](const Job&) { return size_t{4}; };
  EXPECT_EQ(ids(queue.take(four)), "a0 a1 x0 x1 ");
  EXPECT_EQ(ids(queue.take(four)), "x2 ");  // ben's turn
  EXPECT_EQ(ids(queue.take(four)), "b0 ");
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueue, AJobThatLeavesIsForgotten) {
  FairQueue queue;
  const auto a = job_of("anna", "a"), b = job_of("ben", "b", 2);
  queue.add(a);
  queue.add(b);
  EXPECT_EQ(queue.pictures_of("ben"), 2u);
  EXPECT_TRUE(queue.remove(*a));
  EXPECT_FALSE(queue.remove(*a));
  EXPECT_EQ(ids(queue.take([](const Job&) { return size_t{1}; })), "b0 ");
  EXPECT_EQ(queue.jobs_of("ben"), 1u);
  EXPECT_TRUE(queue.remove(*b));
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueue, PicturesThatGoInAreNeverMixed) {
  const auto a = job_of("anna", "a"), b = job_of("anna", "b");
  EXPECT_EQ(shape_of(*a), shape_of(*b));
  auto uploads = std::make_shared<Uploads>();
  uploads->pictures.resize(1);
  a->request.uploads = b->request.uploads = uploads;
  EXPECT_NE(shape_of(*a), shape_of(*b));
}

TEST(EventLog, WhoComesBackIsToldWhatCameAfter) {
  EventLog log(100);
  std::string seen;
  const auto note_down = [&seen](const Event& event) { seen += std::to_string(event.id) + event.topic + " "; };
  log.add("a", {});
  log.add("b", {});
  const int follower = log.follow(100, note_down);
  log.add("c", {});
  log.leave(follower);
  log.add("d", {});
  EXPECT_EQ(seen, "101b 102c ");
  EXPECT_EQ(log.last_id(), 103);
}

TEST(EventLog, HoldsABoundedNumberOfBytes) {
  EventLog log(0);
  const std::string large(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) log.add("a", {{"text", large}});
  int held = 0;
  log.follow(-1, [&held](const Event&) { ++held; });
  EXPECT_GE(held, 7);
  EXPECT_LE(held, 8);
}

class ModelShelfTest : public ::testing::Test {
 protected:
  // Takes so many bytes for as long as it is held.
  PartShelf::Part load(ModelShelf& shelf, const std::string& key, int64_t bytes) {
    return shelf.part(key, *backend_, [&] {
      ++loads_[key];
      return PartShelf::Part(std::make_shared<const Tensor>(backend_->allocate(DType::kU8, {bytes})));
    });
  }
  std::unique_ptr<Backend> backend_ = make_backend("reference");
  std::map<std::string, int> loads_;
};

TEST_F(ModelShelfTest, PartsThatFitAreLoadedOnce) {
  ModelShelf shelf(3 << 20);
  for (int i = 0; i < 3; ++i)
    for (const char* key : {"text", "transformer", "vae"}) load(shelf, key, 900000);
  EXPECT_EQ(shelf.loads(), 3u);
  EXPECT_GE(shelf.bytes(), 2700000u);
}

TEST_F(ModelShelfTest, PartsThatDoNotFitAreSwappedInTurn) {
  ModelShelf shelf(2 << 20);
  for (int i = 0; i < 2; ++i)
    for (const char* key : {"text", "transformer", "vae"}) {
      load(shelf, key, 900000);
      EXPECT_LE(shelf.bytes(), uint64_t{2 << 20});
    }
  EXPECT_EQ(shelf.loads(), 6u);
  load(shelf, "huge", 3 << 20);
  EXPECT_EQ(shelf.parts().count("huge"), 0u);
}

TEST_F(ModelShelfTest, WhatIsUnusedGoesAndASmallerBudgetHolds) {
  ModelShelf shelf(4 << 20);
  load(shelf, "old", 900000);
  const auto between = ModelShelf::Clock::now();
  load(shelf, "new", 900000);
  EXPECT_GE(shelf.unload_idle(between), 900000u);
  EXPECT_EQ(shelf.parts().size(), 1u);
  shelf.set_budget(1000);
  EXPECT_TRUE(shelf.parts().empty());
}

TEST(BatchGain, DrawsTogetherOnlyWhatThatMakesFaster) {
  BatchGain gain;
  const auto took = [&](size_t pictures, double secs) {
    for (int i = 0; i < 2; ++i) gain.took("small", pictures, secs);
  };
  EXPECT_EQ(gain.best("small", 8), 1u) << "how long one takes is not known";
  gain.took("small", 1, 9.0);  // cold
  EXPECT_EQ(gain.best("small", 8), 1u) << "one sample says little";
  gain.took("small", 1, 1.0);
  EXPECT_EQ(gain.best("small", 8), 2u) << "to be tried";
  EXPECT_EQ(gain.best("other", 8), 1u);
  took(2, 0.9);
  EXPECT_EQ(gain.best("small", 8), 4u);
  EXPECT_EQ(gain.best("small", 3), 2u);
  took(4, 0.8);
  took(8, 0.79);
  EXPECT_EQ(gain.best("small", 8), 4u) << "eight together are hardly faster";
  EXPECT_EQ(gain.best("small", 100), 4u) << "and more of them are not tried";
  took(4, 1.3);
  EXPECT_EQ(gain.best("small", 8), 2u) << "four together have become slower";
  took(2, 0.98);
  EXPECT_EQ(gain.best("small", 8), 1u) << "no gain that could not be chance";
  EXPECT_EQ(gain.best("small", 1), 1u);
}

TEST(BatchGain, MeasuresAgainWhatWasMeasuredLongAgo) {
  BatchGain gain;
  for (int i = 0; i < 2; ++i) gain.took("small", 1, 1.0);
  for (int i = 0; i < 2; ++i) gain.took("small", 2, 2.0);
  EXPECT_EQ(gain.best("small", 2), 1u) << "slower";
  for (int i = 0; i < 499; ++i) gain.took("small", 1, 1.0);
  EXPECT_EQ(gain.best("small", 2), 1u);
  gain.took("small", 1, 1.0);
  EXPECT_EQ(gain.best("small", 2), 2u) << "perhaps the machine was busy then";
  gain.took("small", 2, 0.5);
  EXPECT_EQ(gain.best("small", 2), 2u) << "the old samples do not count";
  gain.took("small", 2, 0.5);
  for (int i = 0; i < 250; ++i) gain.took("small", 2, 0.5);
  EXPECT_EQ(gain.best("small", 2), 1u) << "one alone is measured again too";
}

TEST(SignedLinks, HoldForAnHourAndForThisPictureAlone) {
  const fs::path folder = fs::temp_directory_path() / ("links-" + std::to_string(::getpid()));
  SignedLinks links(folder);
  const std::string path = links.path_of("img_a_0", 1000);
  const std::string expires = "4600", signature = path.substr(path.rfind('=') + 1);
  EXPECT_NE(path.find("expires=" + expires), std::string::npos);
  EXPECT_TRUE(links.holds("img_a_0", expires, signature, 4600));
  EXPECT_FALSE(links.holds("img_a_0", expires, signature, 4601));
  EXPECT_FALSE(links.holds("img_b_0", expires, signature, 2000));
  EXPECT_FALSE(links.holds("img_a_0", "4601", signature, 2000));
  EXPECT_FALSE(links.holds("img_a_0", "", signature, 2000));
  EXPECT_TRUE(SignedLinks(folder).holds("img_a_0", expires, signature, 2000)) << "after a restart";
  fs::remove_all(folder);
}

TEST(Preview, MapsThePredictedCleanLatentToColours) {
  // One token of one channel: four latents. The clean one is latent - sigma * velocity.
  const Tensor latents = Tensor::from<float>({1, 1, 4}, {1.5f, 2.0f, -1.0f, 0.0f});
  const Tensor velocity = Tensor::from<float>({1, 1, 4}, {1.0f, 2.0f, 0.0f, 0.0f});
  const WatchedStep step{
      .request = 0, .step = 1, .steps = 2, .latents = latents, .velocity = velocity, .sigma = 0.5f, .grid = {1, 1, 1}};
  const PreviewMap map{{{100.0f, -50.0f, 0.0f}}, {10.0f, 100.0f, 7.0f}};
  const Tensor pixels = preview_pixels(step, map);
  ASSERT_EQ(pixels.shape(), (Shape{2, 2, 3}));
  const uint8_t expected[] = {110, 50, 7, 110, 50, 7, 0, 150, 7, 10, 100, 7};
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(pixels.data<uint8_t>()[i], expected[i]) << i;
  EXPECT_EQ(latents.data<float>()[0], 1.5f);
}

TEST(Preview, ShowsWhatIsNoColourAsTheNearest) {
  const float none = std::numeric_limits<float>::quiet_NaN(), most = std::numeric_limits<float>::infinity();
  const Tensor latents = Tensor::from<float>({1, 1, 4}, {none, most, -most, 254.4f}),
               velocity = Tensor::from<float>({1, 1, 4}, {0.0f, 0.0f, 0.0f, 0.0f});
  const WatchedStep step{
      .request = 0, .step = 1, .steps = 2, .latents = latents, .velocity = velocity, .sigma = 0.5f, .grid = {1, 1, 1}};
  const Tensor pixels = preview_pixels(step, {{{1.0f, 1.0f, 1.0f}}, {0.0f, 0.2f, 0.0f}});
  const uint8_t expected[] = {0, 0, 0, 255, 255, 255, 0, 0, 0, 254, 255, 254};
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(pixels.data<uint8_t>()[i], expected[i]) << i;
}

TEST(Preview, StoredPicturesAreReadAsTheyWere) {
  for (const Shape& shape : {Shape{16, 16, 3}, Shape{1, 5, 1}, Shape{7, 3, 4}, Shape{200, 150, 3}}) {  // several blocks
    Tensor pixels = Tensor::empty(DType::kU8, shape);
    for (int64_t i = 0; i < pixels.numel(); ++i)
      pixels.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(i * 7 + i / 251);
    const std::string bytes = encode_image("png", {pixels, {}}, kPictureQuality, PngPacking::kNone);
    const Image read = parse_image(std::as_bytes(std::span(bytes)), "stored");
    ASSERT_EQ(read.pixels.shape(), shape);
    EXPECT_TRUE(
        std::equal(pixels.data<uint8_t>(), pixels.data<uint8_t>() + pixels.numel(), read.pixels.data<uint8_t>()));
  }
}

TEST(Preview, StaysWithinItsBytes) {
  Tensor noise = Tensor::empty(DType::kU8, {256, 256, 3});
  uint32_t state = 1;
  for (int64_t i = 0; i < noise.numel(); ++i)
    noise.mutable_data<uint8_t>()[i] = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  for (const char* format : {"png", "jpeg", "webp"})
    EXPECT_LE(encode_preview(noise, format).size(), kMostPreviewBytes) << format;
}

}  // namespace
}  // namespace lockstep
