// The thread that draws: takes pictures from the queue, runs the pipeline, and tells everybody.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/base64.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "io/image.h"
#include "pipeline/memory_need.h"
#include "pipeline/stages.h"
#include "studio/preview.h"
#include "studio/studio.h"
#include "studio/wall_clock.h"
#include "tensor/storage.h"

namespace lockstep {

namespace {

using DrawClock = std::chrono::steady_clock;

double since(DrawClock::time_point from) {
  return std::chrono::duration<double>(DrawClock::now() - from).count();
}

constexpr double kTellSecs = 0.1, kPreviewSecs = 0.25;  // at most so often for each job

const char* stage_group(std::string_view stage) {
  if (stage.starts_with("load")) return "load";
  if (stage == "text encoder" || stage == "caption") return "text";
  if (stage == "encode pictures") return "encode";
  return stage == "denoise" ? "denoise" : "decode";
}

// Equal for pictures whose steps take equally long.
std::string drawn_alike(const Job& job) {
  const DrawRequest& request = job.request;
  return fmt::format("{}|{}x{}|{}|{}|{}|{}|{}", request.model, request.first.width, request.first.height,
                     request.first.guided(), dtype_name(request.dtype), request.quantize, request.guidance_run,
                     request.upload_count);
}

}  // namespace

// One call of generate() for one or several pictures.
class DrawingRun : public RunWatch {
 public:
  DrawingRun(Studio& studio, const std::vector<PictureTask>& tasks, const Studio::NamedModel& model)
      : studio_(studio), tasks_(tasks), model_(model), told_(tasks.size()), previewed_(tasks.size()) {}

  bool dropped(size_t request) const override { return tasks_[request].job->dropped; }
  void layer_begins() override { ++studio_.layers_begun_; }

  // From settings.progress: the time since the last call belongs to the stage of that call.
  void staged(std::string_view stage, int64_t done, int64_t total) {
    account();
    if (stage != stage_) {
      stage_ = stage;
      std::vector<std::shared_ptr<Job>> told;
      const std::lock_guard lock(studio_.mutex_);
      for (const PictureTask& task : tasks_) {
        if (task.job->state != JobState::kRunning || std::count(told.begin(), told.end(), task.job)) continue;
        told.push_back(task.job);
        task.job->stage = stage_;
        task.job->step = task.job->steps = 0;
        tell(*task.job, task.index);
      }
    }
    if (stage == "denoise" && done == total) stepping_ = {};
  }
  void account() {
    const auto now = DrawClock::now();
    const double secs = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    if (!stage_.empty()) spent_[stage_group(stage_)] += secs;
  }

  void stepped(const WatchedStep& step) override {
    const PictureTask& task = tasks_[step.request];
    const auto now = DrawClock::now();
    if (stepping_ != DrawClock::time_point{} && step.request == first_of_step_)
      studio_.metrics_.step_took(std::chrono::duration<double>(now - stepping_).count());
    if (step.request == first_of_step_ || stepping_ == DrawClock::time_point{}) {
      stepping_ = now;
      first_of_step_ = step.request;
    }
    steps_ += 1;
    bool tells = false;
    {
      const std::lock_guard lock(studio_.mutex_);
      task.job->step = step.step;
      task.job->steps = step.steps;
      tells = now - told_[step.request] >= std::chrono::duration<double>(kTellSecs) || step.step == step.steps;
      if (tells && task.job->state == JobState::kRunning) tell(*task.job, task.index);
    }
    if (tells) told_[step.request] = now;
    preview(step, task, now);
  }

  std::map<std::string, double>& spent() { return spent_; }
  int64_t steps() const { return steps_; }
  Backend* backend = nullptr;
  PartShelf* shelf = nullptr;

 private:
  // Put together by hand: a document of JSON takes several times as long, and a picture of 20 steps waits for five.
  // Stages have names of ours, with nothing to be escaped.
  void tell(const Job& job, int index) {
    std::string text = R"({"id":")" + job.id + R"(","stage":")" + job.stage + R"(","step":)" + std::to_string(job.step);
    text += R"(,"steps":)" + std::to_string(job.steps) + R"(,"image_index":)" + std::to_string(index);
    text += R"(,"eta_s":)" + fmt::format("{:.3f}", studio_.eta_of(job)) + "}";
    studio_.events_.add_text("job.progress", std::move(text));
  }

  void preview(const WatchedStep& step, const PictureTask& task, DrawClock::time_point now) {
    if (step.step == step.steps || task.job->dropped) return;
    const int wanted = task.job->request.partial_images;
    bool partial = false;
    for (int i = 1; i <= wanted; ++i) partial |= step.step == std::max(1, step.steps * i / (wanted + 1));
    const bool followed = studio_.events_.followers() > 0 &&
                          now - previewed_[step.request] >= std::chrono::duration<double>(kPreviewSecs);
    if (!partial && !followed) return;
    const auto began = DrawClock::now();
    const std::string& format = task.job->request.output_format;
    const PreviewMap& map = model_.folder.defaults().preview;
    const bool by_vae = studio_.options_.vae_previews || map.factors.empty();
    const std::string bytes = encode_preview(by_vae ? by_decoder(step, *task.job) : preview_pixels(step, map), format);
    const Preview preview{task.index, step.step, step.steps,
                          base64({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()})};
    previewed_[step.request] = now;
    // Whoever comes later needs no old preview. Put together by hand, as it goes out with each: a document of JSON
    // takes longer than the picture.
    if (studio_.events_.followers() > 0)
      studio_.events_.add_text(
          "job.preview",
          fmt::format(R"({{"id":"{}","image_index":{},"step":{},"steps":{},"output_format":"{}","b64_json":"{}"}})",
                      task.job->id, task.index, step.step, step.steps, format, preview.base64));
    if (partial && task.job->follower) task.job->follower->previewed(preview);
    studio_.metrics_.previewed(since(began));
  }

  Tensor by_decoder(const WatchedStep& step, const Job& job) {
    GenerateSettings settings = job.request.settings();
    settings.shelf = shelf;
    const Stages stages(model_.folder, *backend, settings);
    return preview_by_vae(step, model_.folder.vae_config(), *stages.vae_decoder(), *backend, settings.dtype);
  }

  Studio& studio_;
  const std::vector<PictureTask>& tasks_;
  const Studio::NamedModel& model_;
  std::string stage_;
  DrawClock::time_point last_ = DrawClock::now(), stepping_;
  size_t first_of_step_ = 0;
  std::map<std::string, double> spent_;
  std::vector<DrawClock::time_point> told_, previewed_;
  int64_t steps_ = 0;
};

void Studio::work() {
  while (true) {
    std::vector<PictureTask> tasks;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      tasks = queue_.take([this](const Job& job) {
        // Pictures that go in are tokens of every step too.
        const int64_t tokens = job.request.image_tokens() * static_cast<int64_t>(1 + job.request.upload_count);
        const int64_t room = std::min<int64_t>(options_.batch_tokens / tokens, static_cast<int64_t>(queue_.alike(job)));
        return gain_.best(drawn_alike(job), static_cast<size_t>(std::max<int64_t>(1, room)));
      });
      const double now = wall_secs();
      for (const PictureTask& task : tasks)
        if (task.job->state == JobState::kQueued) {
          task.job->state = JobState::kRunning;
          task.job->started = now;
          task.job->timings.queue_s = now - task.job->created;
          ++running_;
          metrics_.queued_for(task.job->timings.queue_s);
          events_.add("job.started", {{"id", task.job->id}, {"queue_s", task.job->timings.queue_s}});
          save(*task.job);
        }
    }
    if (!tasks.empty()) {
      draw(tasks);
      {
        const std::lock_guard lock(mutex_);
        for (const PictureTask& task : tasks) release_uploads(*task.job);
      }
      changed_.notify_all();
    } else if (options_.keep_loaded_secs >= 0) {
      const auto long_ago = ModelShelf::Clock::now() - std::chrono::duration_cast<ModelShelf::Clock::duration>(
                                                           std::chrono::duration<double>(options_.keep_loaded_secs));
      prompts_.forget_unused(long_ago);
      if (shelf_.unload_idle(long_ago) > 0) release_cached_memory();
    }
  }
}

void Studio::draw(const std::vector<PictureTask>& tasks) {
  std::string code, message;
  try {
    return draw_once(tasks);
  } catch (const Error& error) {
    code = code_name(error.code());
    message = error.what();
    if (error.code() == Code::kCancelled && interrupted()) code = "interrupted";
  } catch (const std::bad_alloc&) {
    code = "memory";
    message = "[images] not enough memory for this picture; try a smaller size";
  } catch (const std::exception& error) {
    code = "internal";
    message = std::string("[images] ") + error.what();
  }
  if (tasks.size() > 1 && code != "interrupted") {  // one may be to blame for the others
    for (const PictureTask& task : tasks)
      if (!task.job->dropped) draw({task});
    return;
  }
  std::vector<std::shared_ptr<JobFollower>> followers;
  {
    const std::lock_guard lock(mutex_);
    for (const PictureTask& task : tasks) {
      if (has_ended(task.job->state)) continue;
      queue_.remove(*task.job);
      task.job->dropped = true;
      if (stopping_) code = "interrupted", message = "[images] the server ended while this was drawn";
      end_job(task.job, JobState::kFailed, code, message);
      if (task.job->follower) followers.push_back(std::move(task.job->follower));
    }
  }
  for (const auto& follower : followers) follower->ended();
}

void Studio::draw_once(const std::vector<PictureTask>& tasks) {
  const Job& first = *tasks.front().job;
  const NamedModel& model = model_named(first.request.model);
  std::vector<GenerateRequest> requests;
  for (const PictureTask& task : tasks) requests.push_back(task.job->request.picture(task.index));
  GenerateSettings settings = first.request.settings();
  settings.batch_tokens = options_.batch_tokens;
  std::string why;
  const std::string& device = first.request.device == "auto" ? options_.device : first.request.device;
  std::unique_ptr<Backend>& backend = backends_[device];
  if (!backend) backend = choose_backend(device, options_.threads, model.folder, settings, requests, why);
  // The length of a prompt hardly counts, and a rehearsal for every length would cost more than it tells.
  const std::string shape = fmt::format(
      "{}|{}|{}x{}|{}|{}|{}|{}|{}|{}", device, first.request.model, first.request.first.width,
      first.request.first.height, first.request.first.guided(), dtype_name(settings.dtype), first.request.quantize,
      first.request.tiling, tasks.size(), requests.front().pictures.empty() ? "" : first.id);
  if (!needs_.contains(shape)) {
    if (needs_.size() > 1000) needs_.clear();
    const uint64_t before = backend->memory().in_use_bytes;
    const uint64_t peak = memory_need(model.folder, *backend, settings, requests).bytes;
    needs_[shape] = peak - std::min(peak, before) + 1;
  }
  const uint64_t working = needs_[shape] + prompts_.bytes();
  shelf_.set_budget(options_.memory_bytes - std::min(options_.memory_bytes, working));
  const std::string prefix =
      fmt::format("{}{}/{}{}", device == options_.device ? "" : device + "/", model.name, dtype_name(settings.dtype),
                  first.request.quantize.empty() ? "" : "-" + first.request.quantize);
  ShelfOfModel shelf(shelf_, prefix, *backend);
  std::vector<std::string> clients;
  for (const PictureTask& task : tasks) clients.push_back(task.job->client);
  PromptsOfRun prompts(prompts_, prefix, std::move(clients));
  DrawingRun run(*this, tasks, model);
  run.backend = backend.get();
  run.shelf = &shelf;
  settings.watch = &run;
  settings.shelf = &shelf;
  settings.prompts = &prompts;
  settings.progress = [&run](std::string_view stage, int64_t done, int64_t total) { run.staged(stage, done, total); };
  const auto began = DrawClock::now();
  std::vector<GeneratedImage> images;
  try {
    images = generate(model.folder, *backend, settings, requests);
  } catch (const Error& error) {
    const bool all =
        std::all_of(tasks.begin(), tasks.end(), [](const PictureTask& t) { return t.job->dropped.load(); });
    if (error.code() != Code::kCancelled || !all || stopping_) throw;
    const std::lock_guard lock(mutex_);
    const Job& last = *std::max_element(tasks.begin(), tasks.end(), [](const PictureTask& a, const PictureTask& b) {
                         return a.job->finished < b.job->finished;
                       })->job;
    metrics_.cancelled_in(std::max(0.0, wall_secs() - last.finished), layers_begun_ - last.layers_when_cancelled);
    return;
  }
  run.account();
  for (const auto& [group, secs] : run.spent()) metrics_.stage_took(group, secs);
  {
    const std::lock_guard lock(mutex_);
    const double unit = since(began) / static_cast<double>(first.work() * static_cast<int64_t>(tasks.size()));
    secs_a_unit_ = secs_a_unit_ > 0 ? 0.7 * secs_a_unit_ + 0.3 * unit : unit;
    std::vector<const Job*> counted;
    for (const PictureTask& task : tasks) {
      if (std::count(counted.begin(), counted.end(), task.job.get())) continue;
      counted.push_back(task.job.get());
      JobTimings& t = task.job->timings;
      auto& spent = run.spent();
      t.load_s += spent["load"];
      t.text_s += spent["text"];
      t.encode_s += spent["encode"];
      t.denoise_s += spent["denoise"];
      t.decode_s += spent["decode"];
      t.steps += run.steps() / static_cast<int64_t>(tasks.size());
    }
  }
  const bool whole =
      std::none_of(tasks.begin(), tasks.end(), [](const PictureTask& t) { return t.job->dropped.load(); });
  if (whole && run.steps() > 0) {
    const std::lock_guard lock(mutex_);
    gain_.took(drawn_alike(first), tasks.size(), run.spent()["denoise"] / static_cast<double>(run.steps()));
  }
  metrics_.drew(images.size(), tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    std::vector<GeneratedImage> own;
    for (const GeneratedImage& image : images)
      if (image.request == i) own.push_back(image);
    if (!own.empty()) finish_picture(tasks[i], own, requests[i], model);
  }
}

void Studio::finish_picture(const PictureTask& task, const std::vector<GeneratedImage>& images,
                            const GenerateRequest& request, const NamedModel& model) {
  Job& job = *task.job;
  if (job.dropped) return;
  std::vector<DrawnPicture> drawn;
  for (const GeneratedImage& image : images) {
    DrawnPicture picture;
    picture.id = fmt::format("img_{}_{}", job.id.substr(4), task.index);
    if (image.layer >= 0) picture.id += fmt::format("_{}", image.layer);
    picture.format = job.request.output_format;
    picture.seed = request.seed;
    picture.width = image.width;
    picture.height = image.height;
    picture.layer = image.layer;
    const int quality = job.request.compression < 0 ? kPictureQuality : std::max(1, job.request.compression);
    picture.bytes = encode_image(picture.format, {image.pixels, picture_text(request, image, model.folder)}, quality);
    picture.size_bytes = picture.bytes.size();
    if (job.keep_files) {
      store_.add_picture(job, picture);
      if (!job.waited_for) picture.bytes = {};
    }
    drawn.push_back(std::move(picture));
  }
  std::shared_ptr<JobFollower> follower;
  size_t at = 0;
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    if (has_ended(job.state)) return;
    at = job.pictures.size();
    for (DrawnPicture& picture : drawn) job.pictures.push_back(std::move(picture));
    follower = job.follower;
    done = ++job.drawn_pictures == job.request.count;
    if (!done) save(job);
  }
  if (follower)
    for (size_t i = 0; i < images.size(); ++i) follower->drawn(at + i);
  if (!done) return;
  {
    const std::lock_guard lock(mutex_);
    if (has_ended(job.state)) return;
    settle_job(task.job, JobState::kCompleted);
  }
  const auto tell = [&] {
    const std::lock_guard lock(mutex_);
    tell_of_end(job);
    if (follower && !job.keep_files) job.pictures.clear();  // who has the answer needs them no more
    job.follower = nullptr;  // its connection is let go of now, and not with the job hours later
  };
  try {
    if (follower) follower->ended();  // before anybody else is told: a client waits for it
  } catch (...) {
    tell();
    throw;
  }
  tell();
}

}  // namespace lockstep
