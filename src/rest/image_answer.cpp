#include "rest/image_answer.h"

#include <fmt/format.h>

#include <charconv>

#include "base/base64.h"
#include "base/shown_json.h"
#include "rest/event_stream.h"
#include "rest/image_api.h"
#include "rest/rest_server.h"
#include "studio/wall_clock.h"

namespace lockstep {
namespace {

std::string base64_of(const std::string& bytes) {
  return base64({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

// JSON with pictures where it has `"b64_json":""`, in that order: megabytes of base64 that need no look at each letter.
// Nothing in it is a client's own words.
std::string json_with_pictures(const Json& json, const std::vector<std::string>& base64_texts) {
  const std::string text = shown_json(json), mark = "\"b64_json\":\"";
  size_t all = text.size(), from = 0;
  for (const std::string& one : base64_texts) all += one.size();
  std::string out;
  out.reserve(all);
  for (const std::string& one : base64_texts) {
    const size_t at = text.find(mark + "\"", from) + mark.size();
    out.append(text, from, at - from).append(one);
    from = at;
  }
  return out.append(text, from);
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
  Json told = facts(*job, nullptr);
  told["type"] = event_name("partial_image");
  told.erase("created_at");
  preview_facts_ = "event: " + event_name("partial_image") + "\ndata: " + shown_json(told);
  preview_facts_.pop_back();  // each preview goes on behind them
  connection_->send(event_stream_head());
}

std::string ImageAnswer::event_name(const std::string& kind) const {
  return (form_.edit ? "image_edit." : "image_generation.") + kind;
}

Json ImageAnswer::facts(const Job& job, const DrawnPicture* picture) const {
  return {{"created_at", static_cast<int64_t>(wall_secs())},
          {"size", picture ? fmt::format("{}x{}", picture->width, picture->height) : job.request.size_text()},
          {"quality", job.request.quality},
          {"background", job.request.background == "auto" ? "opaque" : job.request.background},
          {"output_format", job.request.output_format}};
}

void ImageAnswer::send_event(const std::string& kind, const Json& data, const std::string& picture) {
  const std::string name = event_name(kind);
  Json whole{{"type", name}, {"b64_json", ""}};
  whole.update(data);
  connection_->send("event: " + name + "\ndata: " + json_with_pictures(whole, {base64_of(picture)}) + "\n\n");
}

void ImageAnswer::previewed(const Preview& preview) {
  const auto job = job_.lock();
  if (!job || !form_.stream) return;
  std::string event;  // pieced together: a format that is read takes longer than the picture
  event.reserve(preview_facts_.size() + preview.base64.size() + 200);
  const auto number = [&event](const char* name, int64_t value) {
    char digits[24];
    event.append(name).append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  };
  event += preview_facts_;
  number(",\"created_at\":", static_cast<int64_t>(wall_secs()));
  number(",\"partial_image_index\":", partials_[preview.index]++);
  number(",\"image_index\":", preview.index);
  number(",\"step\":", preview.step);
  number(",\"steps\":", preview.steps);
  event.append(",\"b64_json\":\"").append(preview.base64).append("\"}\n\n");
  connection_->send(event);
}

void ImageAnswer::drawn(size_t index) {
  const auto job = job_.lock();
  if (!job || !form_.stream) return;
  const std::vector<DrawnPicture> pictures = studio_.pictures_of(*job);
  if (index >= pictures.size()) return;
  Json data = facts(*job, &pictures[index]);
  data.update({{"usage", usage_json(job->request, {&pictures[index], 1})},
               {"image_index", index},
               {"step", job->request.first.steps},
               {"steps", job->request.first.steps},
               {"seed", pictures[index].seed}});
  send_event("completed", data, pictures[index].bytes);
}

void ImageAnswer::ended() {
  const auto job = job_.lock();
  if (!job) return connection_->finish();
  const JobState state = job->state;
  if (state != JobState::kCompleted) {
    const HttpResponse failed = failure_of(*job);
    return connection_->finish(form_.stream ? "event: error\ndata: " + failed.body + "\n\n" : http_text(failed));
  }
  if (form_.stream) return connection_->finish();
  const std::vector<DrawnPicture> pictures = studio_.pictures_of(*job);
  Json data = Json::array();
  std::vector<std::string> texts;
  for (const DrawnPicture& picture : pictures) {
    Json one{{"seed", picture.seed}};
    if (form_.url) {
      one["url"] = origin_ + studio_.links().path_of(picture.id, wall_secs());
    } else {
      one["b64_json"] = "";
      texts.push_back(base64_of(picture.bytes));
    }
    if (picture.layer >= 0) one["layer"] = picture.layer + 1;
    data.push_back(std::move(one));
  }
  Json body = facts(*job, pictures.empty() ? nullptr : &pictures.front());
  body["created"] = body["created_at"];
  body.erase("created_at");
  body["data"] = std::move(data);
  body["usage"] = usage_json(job->request, pictures);
  body["timings"] = timings_json(job->timings);
  HttpResponse response = json_response(200, nullptr);
  response.body = json_with_pictures(body, texts);
  connection_->finish(http_text(response));
}

}  // namespace lockstep
