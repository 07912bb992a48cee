#include "rest/image_answer.h"

#include <fmt/format.h>

#include "base/base64.h"
#include "base/shown_json.h"
#include "rest/image_api.h"
#include "rest/rest_server.h"
#include "studio/wall_clock.h"

namespace lockstep {
namespace {

std::string base64_of(const std::string& bytes) {
  return base64({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

// Of a job that has no pictures: never 409, which clients try again.
HttpResponse failure_of(const Job& job) {
  if (job.state == JobState::kCancelled)
    return error_response(Code::kCancelled, job.error_message, 410, {"invalid_request_error", "", "job_cancelled"});
  const bool memory = job.error_code == "memory", told = job.error_code == "bad_input";
  HttpResponse response = error_response(memory ? Code::kMemory
                                         : told ? Code::kBadInput
                                                : Code::kInternal,
                                         job.error_message,
                                         memory ? 413
                                         : told ? 400
                                                : 500,
                                         {"", "", job.error_code});
  response.headers["x-should-retry"] = "false";  // it would fail again
  return response;
}

}  // namespace

void ImageAnswer::queued(const std::shared_ptr<Job>& job) {
  job_ = job;
  if (!form_.stream) return;
  HttpResponse head;
  head.type = "text/event-stream";
  head.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
  connection_->send(http_stream_head(head));
}

Json ImageAnswer::facts(const Job& job, const DrawnPicture* picture) const {
  return {{"created_at", static_cast<int64_t>(wall_secs())},
          {"size", picture ? fmt::format("{}x{}", picture->width, picture->height) : job.request.size_text()},
          {"quality", job.request.quality},
          {"background", job.request.background == "auto" ? "opaque" : job.request.background},
          {"output_format", job.request.output_format}};
}

void ImageAnswer::send_event(const std::string& kind, Json data) {
  const std::string name = (form_.edit ? "image_edit." : "image_generation.") + kind;
  Json whole{{"type", name}};
  whole.update(data);
  connection_->send("event: " + name + "\ndata: " + shown_json(whole) + "\n\n");
}

void ImageAnswer::previewed(const Preview& preview) {
  const auto job = job_.lock();
  if (!job || !form_.stream) return;
  Json data = facts(*job, nullptr);
  data.update({{"b64_json", base64_of(preview.bytes)},
               {"partial_image_index", partials_[preview.index]++},
               {"image_index", preview.index},
               {"step", preview.step},
               {"steps", preview.steps}});
  send_event("partial_image", std::move(data));
}

void ImageAnswer::drawn(size_t index) {
  const auto job = job_.lock();
  if (!job || !form_.stream) return;
  const std::vector<DrawnPicture> pictures = studio_.pictures_of(*job);
  if (index >= pictures.size()) return;
  Json data = facts(*job, &pictures[index]);
  data.update({{"b64_json", base64_of(pictures[index].bytes)},
               {"usage", usage_json(job->request, 1)},
               {"image_index", index},
               {"step", job->request.first.steps},
               {"steps", job->request.first.steps},
               {"seed", pictures[index].seed}});
  send_event("completed", std::move(data));
}

void ImageAnswer::ended() {
  const auto job = job_.lock();
  if (!job) return connection_->finish();
  const JobState state = job->state;
  if (state != JobState::kCompleted) {
    const HttpResponse failed = failure_of(*job);
    return connection_->finish(form_.stream ? "event: error\ndata: " + failed.body + "\n\n" : http_text(failed));
  }
  if (form_.stream) {
    connection_->finish();
    return studio_.forget(*job);
  }
  const std::vector<DrawnPicture> pictures = studio_.pictures_of(*job);
  Json data = Json::array();
  for (const DrawnPicture& picture : pictures) {
    Json one{{"seed", picture.seed}};
    if (form_.url)
      one["url"] = origin_ + studio_.links().path_of(picture.id, wall_secs());
    else
      one["b64_json"] = base64_of(picture.bytes);
    if (picture.layer >= 0) one["layer"] = picture.layer + 1;
    data.push_back(std::move(one));
  }
  Json body = facts(*job, pictures.empty() ? nullptr : &pictures.front());
  body["created"] = body["created_at"];
  body.erase("created_at");
  body["data"] = std::move(data);
  body["usage"] = usage_json(job->request, pictures.size());
  body["timings"] = timings_json(job->timings);
  HttpResponse response = json_response(200, body);
  connection_->finish(http_text(response));
  studio_.forget(*job);
}

}  // namespace lockstep
