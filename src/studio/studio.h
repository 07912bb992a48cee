// Pictures on request: models that stay loaded, one queue, one thread that draws, and everybody who waits. The same
// pipeline as `lockstep generate` and `lockstep edit`.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "studio/batch_gain.h"
#include "studio/counting_tokenizer.h"
#include "studio/event_log.h"
#include "studio/fair_queue.h"
#include "studio/job_store.h"
#include "studio/kept_prompts.h"
#include "studio/model_shelf.h"
#include "studio/signed_link.h"
#include "studio/studio_metrics.h"

namespace lockstep {

struct StudioOptions {
  std::vector<std::pair<std::string, fs::path>> models;  // name and folder; none: those that come with the program
  std::string device = "auto";
  int threads = 0;
  uint64_t memory_bytes = 0;      // for models and pictures; 0: three quarters of the machine's
  double keep_loaded_secs = 600;  // a part that is unused for so long is unloaded; below 0: never
  size_t most_waiting = 64, most_client_jobs = 32, most_client_pictures = 64;
  size_t most_kept = 256;  // jobs that have ended
  double most_kept_secs = 24 * 3600.0;
  bool vae_previews = false;
  int64_t batch_tokens = kBatchTokens;
};

struct Submission {
  std::string kind;  // "generate" or "edit"
  Json fields;
  std::shared_ptr<const Uploads> uploads = std::make_shared<Uploads>();
  std::string client;
  bool waited_for = false, keep_files = false;
  std::shared_ptr<JobFollower> follower = nullptr;
};

struct StoredPicture {
  std::string bytes, format;
};

class Studio {
 public:
  Studio(fs::path folder, StudioOptions options);
  ~Studio();
  Studio(const Studio&) = delete;
  Studio& operator=(const Studio&) = delete;

  Json models() const;                                       // the OpenAI list
  Json model(const std::string& name) const;                 // ParameterError{kNotFound}
  std::shared_ptr<Job> submit(Submission submission);        // ParameterError, BusyError
  Json job(const std::string& id) const;                     // Error{kNotFound}
  Json jobs(size_t limit, const std::string& status) const;  // newest first
  Json cancel(const std::string& id);                        // what it was then; a job that has ended stays as it is
  // Until the job has ended, `stop` says so, or the time is over.
  void wait(const std::string& id, double secs, const std::function<bool()>& stop);
  StoredPicture picture(const std::string& picture_id) const;  // Error{kNotFound}
  std::vector<DrawnPicture> pictures_of(const Job& job) const;

  EventLog& events() { return events_; }
  SignedLinks& links() { return links_; }
  StudioMetrics& metrics() { return metrics_; }
  std::string metrics_text() const;
  size_t running() const;
  size_t waiting() const;
  bool busy() const { return running() + waiting() > 0; }
  const fs::path& folder() const { return store_.folder(); }
  fs::path spool_folder() const { return store_.spool_folder(); }

 private:
  friend class DrawingRun;
  struct NamedModel {
    std::string name;
    ModelFolder folder;
    std::unique_ptr<CountingTokenizer> tokens = std::make_unique<CountingTokenizer>();
  };

  void open_models();
  void restore();
  const NamedModel& model_named(const std::string& name) const;
  const NamedModel& model_for(const std::string& kind, const Json& fields) const;
  void count_tokens(DrawRequest& request, const NamedModel& model) const;
  void check_room(const Job& job) const;  // under the lock
  int retry_secs() const;                 // under the lock
  double eta_of(const Job& job) const;    // under the lock: seconds until it has been drawn
  Json told(const Job& job) const;        // under the lock
  Json with_links(Json images) const;
  std::shared_ptr<Job> find(const std::string& id) const;  // under the lock
  void end_job(const std::shared_ptr<Job>& job, JobState state, const std::string& code = {},
               const std::string& message = {});  // under the lock; both of these:
  void settle_job(const std::shared_ptr<Job>& job, JobState state, const std::string& code = {},
                  const std::string& message = {});
  void tell_of_end(const Job& job);
  void save(const Job& job) const;
  void prune();                          // under the lock
  void release_uploads(Job& job) const;  // under the lock: of one that has ended and is not on disk
  void work();
  void draw(const std::vector<PictureTask>& tasks);
  void draw_once(const std::vector<PictureTask>& tasks);
  void finish_picture(const PictureTask& task, const std::vector<GeneratedImage>& images,
                      const GenerateRequest& request, const NamedModel& model);

  StudioOptions options_;
  JobStore store_;
  std::vector<NamedModel> models_;
  EventLog events_;
  StudioMetrics metrics_;
  mutable SignedLinks links_;
  ModelShelf shelf_;
  std::map<std::string, std::unique_ptr<Backend>> backends_;  // of the thread that draws, by device
  std::map<std::string, uint64_t> needs_;
  KeptPrompts prompts_;  // of the thread that draws

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  FairQueue queue_;
  BatchGain gain_;
  std::map<std::string, std::shared_ptr<Job>> jobs_;
  std::vector<std::shared_ptr<Job>> order_;  // as they came
  size_t running_ = 0;
  double secs_a_unit_ = 0;  // of work, by what was drawn lately
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> layers_begun_{0};  // by the thread that draws, since the start
  std::thread worker_;
};

}  // namespace lockstep
