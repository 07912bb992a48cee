#include "batch/worker.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <new>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/shown_json.h"
#include "base/text.h"
#include "io/image.h"
#include "pipeline/memory_need.h"
#include "pipeline/pipeline.h"
#include "service/compare_question.h"
#include "service/service.h"

namespace lockstep {
namespace {

double secs_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What the job itself says wrong stays wrong; a disk, memory or a device may recover.
bool may_succeed_later(Code code) {
  return code == Code::kIo || code == Code::kMemory || code == Code::kDevice || code == Code::kInternal;
}

Json failed(const BatchJob& job, Code code, const std::string& message) {
  return {{"id", job.id},
          {"kind", job.kind},
          {"status", "failed"},
          {"error", {{"code", code_name(code)}, {"message", message}}},
          {"retriable", may_succeed_later(code)}};
}

// The files that "image" and "mask" name, taken out of the fields: a batch reads them where the server gets uploads.
std::shared_ptr<const Uploads> uploads_from(Json& fields) {
  auto uploads = std::make_shared<Uploads>();
  Json pictures = fields.contains("image") ? fields["image"] : Json::array();
  if (pictures.is_string()) pictures = Json::array({pictures});
  for (const Json& path : pictures) uploads->pictures.push_back({{}, path.get<std::string>()});
  uploads->has_mask = fields.contains("mask");
  if (uploads->has_mask) uploads->mask.spooled = fields["mask"].get<std::string>();
  fields.erase("image");
  fields.erase("mask");
  return uploads;
}

}  // namespace

// No other budget than the machine's memory: a batch has one model, or a few.
BatchWorker::BatchWorker(WorkerOptions options) : options_(std::move(options)), shelf_(UINT64_MAX) {}

const ModelFolder& BatchWorker::model_at(const fs::path& path) {
  const auto found = models_.find(path);
  return found != models_.end() ? found->second : models_.emplace(path, ModelFolder::open(path)).first->second;
}

Json BatchWorker::finish(const BatchJob& job, Json result) const {
  Json whole{{"id", job.id}, {"kind", job.kind}, {"status", "done"}, {"digest", job.digest}};
  whole.update(result);
  write_atomically(result_file(options_.output, job.id), whole.dump() + "\n");
  return whole;
}

Json BatchWorker::draw(const BatchJob& job) {
  Json fields = job.fields;
  const fs::path folder = fields.contains("model") ? fs::path(fields["model"].get<std::string>())
                                                   : embedded_model_path(job.kind == "edit" ? "tiny-edit" : "tiny");
  if (folder.empty())
    fail(Code::kNotFound, "batch", "no embedded model beside the program",
         {.hint = "\"model\": \"FOLDER\" in the job"});
  const ModelFolder& model = model_at(folder);
  if (model.pipeline().command() != job.kind)
    fail(Code::kBadInput, "batch", folder.string() + " is for jobs of another kind",
         {.expected = std::string(model.pipeline().command()), .got = job.kind});
  fields.erase("model");
  const std::shared_ptr<const Uploads> uploads = uploads_from(fields);
  const DrawRequest request = read_draw_request(job.kind, fields, uploads, folder.string(), model);
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < request.count; ++i) requests.push_back(request.picture(i));
  GenerateSettings settings = request.settings();
  std::string why;
  if (!backend_) backend_ = choose_backend(options_.device, options_.threads, model, settings, requests, why);
  const std::string prefix = fmt::format("{}/{}{}", folder.string(), dtype_name(settings.dtype), request.quantize);
  ShelfOfModel shelf(shelf_, prefix, *backend_);
  PromptsOfRun prompts(prompts_, prefix, std::vector<std::string>(requests.size()));
  settings.shelf = &shelf;
  settings.prompts = &prompts;
  const auto began = std::chrono::steady_clock::now();
  Json files = Json::array();
  for (const GeneratedImage& image : generate(model, *backend_, settings, requests)) {
    const GenerateRequest& own = requests[image.request];
    std::string name = job.id;
    if (request.count > 1) name += fmt::format("-{}", image.request);
    if (image.layer >= 0) name += fmt::format("-layer{}", image.layer + 1);
    name += request.output_format == "jpeg" ? ".jpg" : "." + request.output_format;
    const int quality = request.compression < 0 ? kPictureQuality : std::max(1, request.compression);
    const std::string bytes =
        encode_image(request.output_format, {image.pixels, picture_text(own, image, model)}, quality);
    write_atomically(options_.output / name, bytes);
    files.push_back({{"file", name}, {"bytes", bytes.size()}, {"seed", own.seed}});
  }
  return finish(job, {{"files", files}, {"secs", secs_since(began)}});
}

Json BatchWorker::compare(const BatchJob& job) {
  const auto began = std::chrono::steady_clock::now();
  const CompareQuestion question = question_from(checked_arguments(known_operation("compare"), job.fields));
  const CompareAnswer answer = answer_to(question, options_.home);
  const std::string name = job.id + ".comparison.json";
  const std::string text = shown_json(json_from(answer)) + "\n";
  write_atomically(options_.output / name, text);
  return finish(job, {{"verdict", answer.comparison.verdict},
                      {"files", Json::array({Json{{"file", name}, {"bytes", text.size()}}})},
                      {"secs", secs_since(began)}});
}

Json BatchWorker::result_of(const BatchJob& job) {
  try {
    // Another worker may have done it, and been lost before it could say so.
    if (std::optional<Json> whole = whole_result(options_.output, job)) return *whole;
    return job.kind == "compare" ? compare(job) : draw(job);
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;
    return failed(job, error.code(), error.what());
  } catch (const Json::exception& error) {  // a field of another type than it must have
    return failed(job, Code::kBadInput, std::string("[batch] ") + error.what());
  } catch (const std::bad_alloc&) {
    return failed(job, Code::kMemory, "[batch] not enough memory for this job");
  }
}

void serve_jobs(BatchWorker& worker) {
  for (std::string line; std::getline(std::cin, line);) {
    check_interrupt("batch");
    const BatchJob job = job_from(parse_json(line, "stdin"), "", "stdin");
    print("{}\n", Text::trusted(shown_json(worker.result_of(job))));
    flush_output();
  }
}

}  // namespace lockstep
