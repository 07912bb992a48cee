#include "studio/studio.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/log.h"
#include "base/names.h"
#include "base/platform/machine_facts.h"
#include "base/thread.h"
#include "pipeline/pipeline.h"
#include "studio/parameter_error.h"
#include "studio/wall_clock.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

uint64_t machine_bytes() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Numbers of events go on growing over restarts, so that a client that comes back is told everything.
int64_t first_event() {
  return static_cast<int64_t>(wall_secs()) * 1'000'000;
}

Json queued_facts(const Job& job) {
  return {{"id", job.id}, {"type", job.request.kind}, {"model", job.request.model}, {"n", job.request.count}};
}

}  // namespace

double wall_secs() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Studio::Studio(fs::path folder, StudioOptions options)
    : options_(std::move(options)),
      store_(std::move(folder)),
      events_(first_event()),
      links_(store_.folder()),
      shelf_(options_.memory_bytes ? options_.memory_bytes : machine_bytes() / 4 * 3) {
  if (!options_.memory_bytes) options_.memory_bytes = machine_bytes() / 4 * 3;
  open_models();
  restore();
  worker_ = start_thread("images", [this] { work(); });
}

Studio::~Studio() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [id, job] : jobs_)
      if (job->state == JobState::kRunning) job->dropped = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void Studio::open_models() {
  std::vector<std::pair<std::string, fs::path>> wanted = options_.models;
  if (wanted.empty())
    for (const char* name : {"tiny", "tiny-edit"})
      if (const fs::path path = embedded_model_path(name); !path.empty()) wanted.emplace_back(name, path);
  for (const auto& [name, path] : wanted) {
    if (std::any_of(models_.begin(), models_.end(), [&name = name](const NamedModel& m) { return m.name == name; }))
      fail(Code::kUsage, "serve", "two models are called " + name, {.hint = "--model NAME=DIR with another name"});
    models_.push_back({name, ModelFolder::open(path)});
  }
}

// Jobs that waited wait again; those that ran when the server ended are told so.
void Studio::restore() {
  const std::lock_guard lock(mutex_);
  for (JobStore::Stored& stored : store_.stored()) {
    auto job = std::make_shared<Job>();
    job->id = stored.id;
    job->keep_files = true;
    try {
      const Json& request = stored.request;
      const auto kind = request.at("kind").get<std::string>(), name = request.at("model").get<std::string>();
      job->client = request.at("client").get<std::string>();
      job->waited_for = request.value("waited_for", false);
      const Json& state = stored.state;
      job->state = state_named(state.at("status").get<std::string>()).value_or(JobState::kFailed);
      job->created = state.at("created").get<double>();
      job->started = state.at("started").get<double>();
      job->finished = state.at("finished").get<double>();
      job->error_code = state.at("error_code").get<std::string>();
      job->error_message = state.at("error_message").get<std::string>();
      job->timings.total_s = state.at("timings").at("total_s").get<double>();
      for (const Json& one : state.at("pictures"))
        job->pictures.push_back({one.at("id").get<std::string>(),
                                 one.at("format").get<std::string>(),
                                 one.at("seed").get<uint64_t>(),
                                 one.at("width").get<int>(),
                                 one.at("height").get<int>(),
                                 one.at("layer").get<int>(),
                                 {},
                                 one.at("bytes").get<uint64_t>()});
      const NamedModel& model = model_named(name);
      job->request = read_draw_request(kind, request.at("fields"), stored.uploads, name, model.folder);
      count_tokens(job->request, model);
    } catch (const std::exception& problem) {
      if (job->state == JobState::kQueued) {  // its model is not served any more
        job->state = JobState::kFailed;
        job->error_code = "not_restored";
        job->error_message = problem.what();
      }
      if (!job->request.uploads) job->request.uploads = stored.uploads;
    }
    jobs_[job->id] = job;
    order_.push_back(job);
    if (job->state == JobState::kRunning || (job->state == JobState::kQueued && job->waited_for))
      end_job(job, JobState::kFailed, "interrupted", "[images] the server ended while this was drawn");
    else if (job->state == JobState::kQueued)
      queue_.add(job);
  }
  prune();
}

const Studio::NamedModel& Studio::model_named(const std::string& name) const {
  std::vector<std::string> names;
  for (const NamedModel& model : models_) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  std::string all;
  for (const std::string& one : names) all += (all.empty() ? "" : ", ") + one;
  const std::vector<std::string> near = nearest_names(name, names, 1);
  try {
    fail(Code::kNotFound, "images", "there is no model '" + name.substr(0, 100) + "'",
         {.expected = all.empty() ? "--model NAME=DIR" : all, .hint = near.empty() ? "GET /v1/models" : near[0]});
  } catch (const Error& error) {
    throw ParameterError(error.code(), "model", error.what(), "model_not_found");
  }
}

const Studio::NamedModel& Studio::model_for(const std::string& kind, const Json& fields) const {
  const auto given = fields.is_object() ? fields.find("model") : fields.end();
  if (fields.is_object() && given != fields.end() && !given->is_null()) {
    if (!given->is_string()) refuse_parameter("model", "the model is no text");
    const NamedModel& model = model_named(given->get<std::string>());
    if (kind == "generate" && model.folder.pipeline().command() == "edit")
      refuse_parameter("model", "this model edits pictures", {.hint = "POST /v1/images/edits"});
    return model;
  }
  for (const NamedModel& model : models_)
    if (model.folder.pipeline().command() == kind) return model;
  if (kind == "edit" && !models_.empty()) return models_.front();
  throw ParameterError(Code::kNotFound, "model", "[images] no model is served that does this", "model_not_found");
}

void Studio::count_tokens(DrawRequest& request, const NamedModel& model) const {
  const auto count = [&](const std::string& prompt) { return model.tokens->count(model.folder, prompt); };
  request.text_tokens = {count(request.first.prompt)};
  if (request.first.guided()) request.text_tokens.push_back(count(*request.first.negative_prompt));
}

Json Studio::models() const {
  Json list = Json::array();
  for (const NamedModel& one : models_) list.push_back(model(one.name));
  return {{"object", "list"}, {"data", list}};
}

Json Studio::model(const std::string& name) const {
  const NamedModel& found = model_named(name);
  const ModelDefaults& defaults = found.folder.defaults();
  return {{"id", found.name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "lockstep"},
          {"class", found.folder.pipeline().class_name()},
          {"type", found.folder.pipeline().command()},
          {"size", fmt::format("{}x{}", defaults.width, defaults.height)},
          {"steps", defaults.steps},
          {"guidance", defaults.guidance}};
}

int Studio::retry_secs() const {
  double secs = 1;
  const auto waiting = queue_.in_order();
  if (!waiting.empty()) secs = static_cast<double>(waiting.front()->work()) * secs_a_unit_;
  return static_cast<int>(std::clamp(std::ceil(secs), 1.0, 60.0));
}

void Studio::check_room(const Job& job) const {
  if (queue_.jobs() >= options_.most_waiting)
    throw BusyError(fmt::format("[images] the queue is full: {} jobs wait; try again later", queue_.jobs()),
                    "queue_full", retry_secs());
  if (queue_.jobs_of(job.client) >= options_.most_client_jobs)
    throw BusyError(fmt::format("[images] {} of your jobs wait; try again later", queue_.jobs_of(job.client)),
                    "too_many_requests", retry_secs());
  if (queue_.pictures_of(job.client) + static_cast<size_t>(job.request.count) > options_.most_client_pictures)
    throw BusyError(fmt::format("[images] {} of your pictures wait; try again later", queue_.pictures_of(job.client)),
                    "too_many_pictures", retry_secs());
}

std::shared_ptr<Job> Studio::submit(Submission submission) {
  const NamedModel& model = model_for(submission.kind, submission.fields);
  auto job = std::make_shared<Job>();
  job->id = new_job_id();
  job->request = read_draw_request(submission.kind, submission.fields, submission.uploads, model.name, model.folder);
  count_tokens(job->request, model);
  job->client = submission.client + (job->request.user.empty() ? "" : "/" + job->request.user);
  job->waited_for = submission.waited_for;
  job->keep_files = submission.keep_files || !submission.waited_for;
  job->follower = std::move(submission.follower);
  job->created = wall_secs();
  {
    const std::lock_guard lock(mutex_);
    check_room(*job);
  }
  if (job->keep_files) store_.create(*job);
  {
    const std::lock_guard lock(mutex_);
    try {
      check_room(*job);
    } catch (...) {
      store_.remove(job->id);
      throw;
    }
    jobs_[job->id] = job;
    order_.push_back(job);
    if (job->follower) job->follower->queued(job);
    queue_.add(job);
    const auto waiting = queue_.in_order();
    const auto place = std::find(waiting.begin(), waiting.end(), job) - waiting.begin();
    Json facts = queued_facts(*job);
    facts["position"] = place + 1;
    facts["eta_s"] = eta_of(*job);
    events_.add("job.queued", facts);
  }
  changed_.notify_all();
  return job;
}

double Studio::eta_of(const Job& job) const {
  int64_t work = 0;
  size_t running = running_;
  for (auto one = order_.rbegin(); running > 0 && one != order_.rend(); ++one) {
    if ((*one)->state != JobState::kRunning) continue;
    --running;
    if (one->get() != &job) work += (*one)->work() * ((*one)->request.count - (*one)->drawn_pictures);
  }
  for (const auto& one : queue_.in_order()) {
    work += one->work() * (one->request.count - one->next_picture);
    if (one.get() == &job) break;
  }
  if (job.state == JobState::kRunning) work = job.work() * (job.request.count - job.drawn_pictures);
  return std::round(static_cast<double>(work) * secs_a_unit_ * 1000) / 1000;
}

Json Studio::with_links(Json images) const {
  for (Json& image : images) image["url"] = links_.path_of(image["id"].get<std::string>(), wall_secs());
  return images;
}

Json Studio::told(const Job& job) const {
  Json json = job_json(job);
  if (job.keep_files) json["images"] = with_links(std::move(json["images"]));
  if (job.state == JobState::kQueued) {
    const auto waiting = queue_.in_order();
    const auto found = std::find_if(waiting.begin(), waiting.end(), [&](const auto& one) { return one.get() == &job; });
    json["position"] = found - waiting.begin() + 1;
  }
  if (!has_ended(job.state)) json["eta_s"] = eta_of(job);
  return json;
}

std::shared_ptr<Job> Studio::find(const std::string& id) const {
  const auto found = jobs_.find(id);
  if (found == jobs_.end())
    fail(Code::kNotFound, "jobs", "there is no job '" + id.substr(0, 60) + "'", {.hint = "GET /v1/jobs"});
  return found->second;
}

Json Studio::job(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return told(*find(id));
}

Json Studio::jobs(size_t limit, const std::string& status) const {
  const std::lock_guard lock(mutex_);
  Json list = Json::array();
  bool more = false;
  for (auto one = order_.rbegin(); one != order_.rend(); ++one) {
    const Job& job = **one;
    if (!status.empty() && status != state_name(job.state)) continue;
    more = list.size() >= limit;
    if (more) break;
    list.push_back(told(job));
  }
  return {{"object", "list"}, {"data", list}, {"has_more", more}};
}

Json Studio::cancel(const std::string& id) {
  std::shared_ptr<JobFollower> follower;
  Json was;
  {
    const std::lock_guard lock(mutex_);
    const std::shared_ptr<Job> job = find(id);
    if (!has_ended(job->state)) {
      job->layers_when_cancelled = layers_begun_;
      job->dropped = true;  // whoever draws it stops at the next layer
      queue_.remove(*job);
      const bool waited = job->state == JobState::kQueued;
      end_job(job, JobState::kCancelled, "cancelled", "[jobs] the job was cancelled");
      if (waited) release_uploads(*job);  // else whoever draws it may be reading them
      follower = job->follower;
    }
    was = told(*job);
  }
  changed_.notify_all();
  if (follower) follower->ended();
  return was;
}

void Studio::end_job(const std::shared_ptr<Job>& job, JobState state, const std::string& code,
                     const std::string& message) {
  settle_job(job, state, code, message);
  tell_of_end(*job);
}

void Studio::settle_job(const std::shared_ptr<Job>& job, JobState state, const std::string& code,
                        const std::string& message) {
  if (job->state == JobState::kRunning && running_ > 0) --running_;
  job->state = state;
  job->finished = wall_secs();
  job->error_code = code;
  job->error_message = message;
  job->timings.total_s = job->finished - job->created;
  if (job->waited_for && state != JobState::kCompleted) job->pictures.clear();
  metrics_.ended(state_name(state));
  save(*job);
}

void Studio::tell_of_end(const Job& job) {
  Json facts{{"id", job.id}};
  if (job.state == JobState::kCompleted) {
    Json images = Json::array();
    for (const DrawnPicture& picture : job.pictures) images.push_back(picture_json(picture));
    facts["images"] = job.keep_files ? with_links(std::move(images)) : std::move(images);
    facts["timings"] = timings_json(job.timings);
  } else if (!job.error_code.empty()) {
    facts["error"] = {{"code", job.error_code}, {"message", job.error_message}};
  }
  events_.add(std::string("job.") + state_name(job.state), facts);
  prune();
}

void Studio::save(const Job& job) const {
  if (!job.keep_files || !store_.exists(job.id)) return;
  try {
    store_.save(job);
  } catch (const Error& error) {  // a full disk costs what is kept, not the server
    note("images", "{}: {}", job.id, error.what());
  }
}

void Studio::release_uploads(Job& job) const {
  if (has_ended(job.state) && !job.keep_files) job.request.uploads = std::make_shared<Uploads>();
}

// Of jobs that have ended, all but the newest go. It runs after each job: it moves handles and copies nothing.
void Studio::prune() {
  size_t ended = 0;
  const double now = wall_secs();
  auto kept = order_.rbegin();
  for (auto one = order_.rbegin(); one != order_.rend(); ++one) {
    std::shared_ptr<Job>& job = *one;
    if (has_ended(job->state) && (++ended > options_.most_kept || now - job->finished >= options_.most_kept_secs)) {
      if (job->keep_files) store_.remove(job->id);
      jobs_.erase(job->id);
    } else {
      std::swap(*kept++, job);
    }
  }
  order_.erase(order_.begin(), kept.base());
}

void Studio::wait(const std::string& id, double secs, const std::function<bool()>& stop) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::min(secs, 1e6));
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Job> job = find(id);
  while (!has_ended(job->state) && !stopping_ && std::chrono::steady_clock::now() < until && !stop())
    changed_.wait_for(lock, std::chrono::milliseconds(50));
}

StoredPicture Studio::picture(const std::string& picture_id) const {
  std::shared_ptr<Job> job;
  DrawnPicture found;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, one] : jobs_)
      for (const DrawnPicture& picture : one->pictures)
        if (picture.id == picture_id) job = one, found = picture;
  }
  if (!job) fail(Code::kNotFound, "images", "there is no picture '" + picture_id.substr(0, 60) + "'");
  if (!found.bytes.empty()) return {found.bytes, found.format};
  const auto file = store_.open_picture(job->id, found);
  const auto bytes = file->bytes();
  return {std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), found.format};
}

std::vector<DrawnPicture> Studio::pictures_of(const Job& job) const {
  const std::lock_guard lock(mutex_);
  return job.pictures;
}

size_t Studio::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

size_t Studio::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.jobs();
}

std::string Studio::metrics_text() const {
  StudioMetrics::Now now;
  now.running = running();
  now.waiting = waiting();
  now.streams = events_.followers();
  now.resident_bytes = resident_bytes();
  now.tensor_bytes = memory_use().in_use_bytes;
  now.loads = shelf_.loads();
  now.parts = shelf_.parts();
  return metrics_.text(now);
}

}  // namespace lockstep
