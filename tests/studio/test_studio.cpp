#include "studio/studio.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>

#include "base/json.h"

namespace lockstep {
namespace {

// What has happened to jobs, by topic, and the data of the last of each.
class Happened {
 public:
  void add(const Event& event) {
    const std::lock_guard lock(mutex_);
    last_[event.topic] = event.data;
    changed_.notify_all();
  }
  bool has(const std::string& topic) const {
    const std::lock_guard lock(mutex_);
    return last_.contains(topic);
  }
  Json wait(const std::string& topic) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return last_.contains(topic); });
    return Json::parse(last_[topic]);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> last_;
};

struct Client : JobFollower {
  explicit Client(const Happened& happened) : happened(happened) {}
  void queued(const std::shared_ptr<Job>& queued) override { job = queued; }
  void previewed(const Preview&) override {}
  void drawn(size_t) override {}
  void ended() override {
    others_knew = happened.has("job.completed");
    state = job->state;
    pictures = job->pictures.size();
    bytes = pictures > 0 ? job->pictures[0].bytes.size() : 0;
  }
  const Happened& happened;
  std::shared_ptr<Job> job;
  bool others_knew = true;
  JobState state = JobState::kQueued;
  size_t pictures = 0, bytes = 0;
};

TEST(Studio, TheClientThatWaitsHasItsAnswerBeforeOthersAreTold) {
  const fs::path folder = fs::temp_directory_path() / ("studio-" + std::to_string(::getpid()));
  Happened happened;
  {
    StudioOptions options;
    options.models = {{"tiny", fs::path(LOCKSTEP_SOURCE_DIR) / "models/tiny"}};
    options.device = "cpu";
    options.threads = 1;
    Studio studio(folder, options);
    studio.events().follow(0, [&happened](const Event& event) { happened.add(event); });
    const auto client = std::make_shared<Client>(happened);
    Submission submission;
    submission.kind = "generate";
    submission.fields = {{"prompt", "a red circle"}, {"steps", 2}, {"size", "64x64"}};
    submission.client = "anna";
    submission.waited_for = true;
    submission.follower = client;
    const std::string id = studio.submit(std::move(submission))->id;
    const Json completed = happened.wait("job.completed");
    EXPECT_FALSE(client->others_knew);
    EXPECT_EQ(client->state, JobState::kCompleted) << "whoever has the answer may ask for the job at once";
    EXPECT_EQ(client->pictures, 1u);
    EXPECT_GT(client->bytes, 0u);
    ASSERT_EQ(completed["images"].size(), 1u);
    EXPECT_EQ(completed["images"][0]["bytes"], client->bytes);
    EXPECT_EQ(studio.job(id)["images"].size(), 0u) << "nobody needs it any more";
    EXPECT_EQ(client->job->follower, nullptr) << "a client would stay as long as its job is told of";
    const Json progress = happened.wait("job.progress");
    EXPECT_EQ(progress["id"], id);
    EXPECT_EQ(progress["stage"], "decode");
    EXPECT_EQ(progress["image_index"], 0);
    EXPECT_TRUE(progress["eta_s"].is_number_float()) << progress.dump();
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
