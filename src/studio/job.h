// One request in the studio: from the queue to its pictures.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "studio/draw_request.h"

namespace lockstep {

enum class JobState { kQueued, kRunning, kCompleted, kFailed, kCancelled };
const char* state_name(JobState state);  // "queued", ...
std::optional<JobState> state_named(std::string_view name);
inline bool has_ended(JobState state) {
  return state != JobState::kQueued && state != JobState::kRunning;
}

struct DrawnPicture {
  std::string id, format;
  uint64_t seed = 0;
  int width = 0, height = 0, layer = -1;
  std::string bytes;  // empty once they are on disk
  uint64_t size_bytes = 0;
};

struct JobTimings {
  double queue_s = 0, load_s = 0, text_s = 0, encode_s = 0, denoise_s = 0, decode_s = 0, total_s = 0;
  int64_t steps = 0;
};

struct Preview {
  int index = 0, step = 0, steps = 0;
  std::string base64;  // of a picture in the format of the request
};

struct Job;

// Told of a job's way, by the thread that draws: must not block.
class JobFollower {
 public:
  virtual ~JobFollower() = default;
  virtual void queued(const std::shared_ptr<Job>& job) = 0;  // first of all, by whoever submits it
  virtual void previewed(const Preview& preview) = 0;
  virtual void drawn(size_t picture) = 0;
  virtual void ended() = 0;
};

struct Job {
  std::string id, client;
  DrawRequest request;
  bool waited_for = false;  // by a client on the line: it is gone with the client, and not kept on disk
  bool keep_files = false;  // pictures go to disk
  std::atomic<bool> dropped{false};
  int64_t layers_when_cancelled = 0;  // that the studio had begun, of all jobs

  // Under the studio's lock.
  JobState state = JobState::kQueued;
  double created = 0, started = 0, finished = 0;  // seconds of the system's clock
  int next_picture = 0;                           // of those that wait to be drawn
  int drawn_pictures = 0;
  std::string stage;
  int step = 0, steps = 0;
  std::vector<DrawnPicture> pictures;
  JobTimings timings;
  std::string error_code, error_message;
  std::shared_ptr<JobFollower> follower;

  int64_t work() const;  // a number to compare: tokens times steps times pictures
};

Json picture_json(const DrawnPicture& picture);
Json timings_json(const JobTimings& timings);
Json usage_json(const DrawRequest& request, std::span<const DrawnPicture> pictures);
// What is told of a job everywhere: REST, agents, events.
Json job_json(const Job& job);

}  // namespace lockstep
