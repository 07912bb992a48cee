#include "studio/job.h"

#include <fmt/format.h>

#include <numeric>

namespace lockstep {

const char* state_name(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return "queued";
    case JobState::kRunning:
      return "running";
    case JobState::kCompleted:
      return "completed";
    case JobState::kFailed:
      return "failed";
    case JobState::kCancelled:
      return "cancelled";
  }
  return "failed";
}

std::optional<JobState> state_named(std::string_view name) {
  for (const JobState state :
       {JobState::kQueued, JobState::kRunning, JobState::kCompleted, JobState::kFailed, JobState::kCancelled})
    if (name == state_name(state)) return state;
  return std::nullopt;
}

int64_t Job::work() const {
  return request.image_tokens() * request.first.steps * (request.first.guided() ? 2 : 1);
}

Json picture_json(const DrawnPicture& picture) {
  Json json{{"id", picture.id},
            {"seed", picture.seed},
            {"size", fmt::format("{}x{}", picture.width, picture.height)},
            {"output_format", picture.format},
            {"bytes", picture.size_bytes}};
  if (picture.layer >= 0) json["layer"] = picture.layer + 1;
  return json;
}

Json timings_json(const JobTimings& t) {
  return {{"queue_s", t.queue_s},     {"load_s", t.load_s},     {"text_s", t.text_s},   {"encode_s", t.encode_s},
          {"denoise_s", t.denoise_s}, {"decode_s", t.decode_s}, {"total_s", t.total_s}, {"steps", t.steps}};
}

Json usage_json(const DrawRequest& request, std::span<const DrawnPicture> pictures) {
  const size_t text = std::accumulate(request.text_tokens.begin(), request.text_tokens.end(), size_t{0});
  size_t out = 0;
  for (const DrawnPicture& picture : pictures) out += static_cast<size_t>((picture.width / 16) * (picture.height / 16));
  const size_t image = pictures.empty() ? 0 : out / pictures.size() * request.upload_count;
  return {{"input_tokens", text + image},
          {"output_tokens", out},
          {"total_tokens", text + image + out},
          {"input_tokens_details", {{"text_tokens", text}, {"image_tokens", image}}}};
}

Json job_json(const Job& job) {
  const DrawRequest& request = job.request;
  Json json{{"id", job.id},
            {"object", "job"},
            {"type", request.kind},
            {"status", state_name(job.state)},
            {"created", static_cast<int64_t>(job.created)},
            {"model", request.model},
            {"prompt", request.first.prompt},
            {"size", request.size_text()},
            {"n", request.count},
            {"seed", request.first.seed},
            {"steps", request.first.steps},
            {"guidance", request.first.guidance},
            {"quality", request.quality},
            {"output_format", request.output_format},
            {"device", request.device}};
  if (request.first.negative_prompt) json["negative_prompt"] = *request.first.negative_prompt;
  if (request.upload_count > 0) json["pictures"] = request.upload_count;
  if (job.started > 0) json["started"] = static_cast<int64_t>(job.started);
  if (job.finished > 0) json["finished"] = static_cast<int64_t>(job.finished);
  if (job.state == JobState::kRunning)
    json["progress"] = {{"stage", job.stage}, {"step", job.step}, {"steps", job.steps}};
  Json images = Json::array();
  for (const DrawnPicture& picture : job.pictures) images.push_back(picture_json(picture));
  json["images"] = std::move(images);
  if (has_ended(job.state)) json["timings"] = timings_json(job.timings);
  if (job.state == JobState::kCompleted && !job.pictures.empty()) json["usage"] = usage_json(request, job.pictures);
  if (!job.error_code.empty()) json["error"] = {{"code", job.error_code}, {"message", job.error_message}};
  return json;
}

}  // namespace lockstep
