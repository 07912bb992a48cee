#include "cli/picture_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/platform/machine_facts.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/engine_profile.h"
#include "cli/official_arguments.h"
#include "cli/picture_file.h"
#include "cli/profile_text.h"
#include "io/image.h"
#include "io/picture_modes.h"
#include "pipeline/contact_sheet.h"
#include "pipeline/memory_need.h"
#include "pipeline/pipeline.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

// The same picture by the official pipeline; nothing where that has no such option.
std::optional<std::vector<std::string>> official_form(const PictureOptions& options, const GenerateRequest& request,
                                                      const fs::path& model) {
  const bool only_here = request.latents || !request.sigmas.empty() || options.schedule != "model" ||
                         !options.quantize.empty() || options.tiling || request.noise != NoiseStream::kTorch ||
                         request.positions != ImagePositions::kOfficial || request.rescale_layers ||
                         request.english_caption || request.greedy_caption;
  if (only_here) return std::nullopt;
  const bool edit = options.command == "edit";
  const auto absolute = [](const fs::path& path) { return fs::absolute(path).lexically_normal().string(); };
  OfficialPicture picture;
  picture.model = absolute(model), picture.dtype = options.dtype;
  if (!edit || !request.prompt.empty()) picture.prompt = request.prompt;
  picture.negative_prompt = request.negative_prompt;
  picture.seed = request.seed, picture.steps = request.steps, picture.guidance = request.guidance;
  picture.width = request.width, picture.height = request.height;
  for (const std::string& file : options.pictures) picture.pictures.push_back(absolute(file));
  if (!options.mask.empty()) picture.mask = absolute(options.mask);
  if (request.mask.defined() || (!edit && !request.pictures.empty())) picture.strength = request.strength;
  if (edit) {
    const ModelDefaults defaults = read_model_defaults(model);
    const auto or_default = [](int given, int own, int usual) { return given ? given : own == usual ? 0 : own; };
    picture.resolution = or_default(request.resolution, defaults.resolution, 1024);
    picture.condition_resolution = or_default(request.condition_resolution, defaults.condition_resolution, 384);
    picture.layers = request.layers;
  }
  return official_arguments(picture);
}

Json run_details(const PictureOptions& options, const GenerateRequest& request, const fs::path& model,
                 const Backend& backend) {
  Json settings{{"prompt", request.prompt}, {"width", request.width},       {"height", request.height},
                {"steps", request.steps},   {"guidance", request.guidance}, {"seed", request.seed},
                {"dtype", options.dtype}};
  settings["negative_prompt"] = request.negative_prompt ? Json(*request.negative_prompt) : Json(nullptr);
  if (!request.width) settings.erase("width");  // from the pictures
  if (!request.height) settings.erase("height");
  if (!request.pictures.empty()) settings["pictures"] = request.pictures.size();
  if (request.mask.defined() || (options.command == "generate" && !request.pictures.empty()))
    settings["strength"] = request.strength;
  Json details{{"producer",
                {{"name", "lockstep"},
                 {"version", LOCKSTEP_VERSION},
                 {"framework", "lockstep"},
                 {"language", "c++"},
                 {"device", backend.description()}}},
               {"model", fs::absolute(model).lexically_normal().string()},
               {"settings", settings}};
  if (const auto official = official_form(options, request, model)) details["official"] = *official;
  return details;
}

// {seed}, {index} and {layer} in the pattern are filled in; without them a number is put before the extension when
// there are several, and the layer behind it.
fs::path output_path(const std::string& pattern, size_t index, size_t total, uint64_t seed, int layer) {
  std::string path = pattern;
  const auto replace = [&path](std::string_view key, const std::string& value) {
    bool found = false;
    for (size_t at = path.find(key); at != std::string::npos; at = path.find(key, at + value.size())) {
      path.replace(at, key.size(), value);
      found = true;
    }
    return found;
  };
  const bool by_seed = replace("{seed}", std::to_string(seed)), by_index = replace("{index}", std::to_string(index));
  const bool by_layer = replace("{layer}", std::to_string(layer + 1));
  std::string number;
  if (total > 1 && !by_seed && !by_index) number += fmt::format("-{:03d}", index);
  if (layer >= 0 && !by_layer) number += fmt::format("-layer{}", layer + 1);
  const fs::path plain(path);
  return number.empty() ? plain : plain.parent_path() / (plain.stem().string() + number + plain.extension().string());
}

// A prompt may speak of "picture 3". There are other ways to say it, so this finds only what it can be sure of: the
// highest number behind the word for a picture.
int64_t highest_picture_named(std::string prompt) {
  std::transform(prompt.begin(), prompt.end(), prompt.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  int64_t highest = 0;
  for (const std::string_view word : {"picture ", "image "})
    for (size_t at = prompt.find(word); at != std::string::npos; at = prompt.find(word, at + 1)) {
      int64_t number = 0;
      size_t digit = at + word.size(), digits = 0;
      for (; digits < 3 && digit < prompt.size() && prompt[digit] >= '0' && prompt[digit] <= '9'; ++digit, ++digits)
        number = number * 10 + (prompt[digit] - '0');
      highest = std::max(highest, number);
    }
  return highest;
}

// What was asked for and will not quite be so.
void print_oddities(const PictureOptions& options, const std::vector<GenerateRequest>& requests) {
  const GenerateRequest& first = requests.front();
  if (first.width % 16 || first.height % 16)
    print_error("lockstep: sizes are multiples of 16: {}x{} becomes {}x{}\n", first.width, first.height,
                first.width / 16 * 16, first.height / 16 * 16);
  const auto given = static_cast<int64_t>(first.pictures.size());
  int64_t named = 0;
  for (const GenerateRequest& request : requests) named = std::max(named, highest_picture_named(request.prompt));
  if (options.command == "edit" && named > given)
    print_error("lockstep: a prompt names picture {}, and {} given\n", named,
                given == 1 ? "1 is" : fmt::format("{} are", given));
}

// One bar a stage, made when the stage reports first.
class StageBars {
 public:
  explicit StageBars(bool enabled) : enabled_(enabled) {}
  void update(std::string_view stage, int64_t done, int64_t total) {
    if (stage != stage_) {
      bar_.reset();
      stage_ = stage;
      bar_ = std::make_unique<Progress>(stage_, total, enabled_);
      if (stage_.starts_with("load")) bar_->set_note("MB");
      done_ = 0;
    }
    bar_->advance(done - done_);
    done_ = done;
  }

 private:
  bool enabled_;
  std::string stage_;
  int64_t done_ = 0;
  std::unique_ptr<Progress> bar_;
};

}  // namespace

void run_pictures(App& app, const PictureOptions& options, const ModelFolder& model,
                  const std::vector<GenerateRequest>& requests) {
  const auto start = std::chrono::steady_clock::now();
  const std::optional<DType> dtype = dtype_from_name(options.dtype);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kBF16))
    fail(Code::kUsage, options.command, "--dtype: no such compute type",
         {.expected = "f32 or bf16", .got = options.dtype});
  const GenerateRequest& first = requests.front();
  const auto output_of = [&](size_t request, int layer) {
    return output_path(options.output, request, requests.size(), requests[request].seed, layer);
  };
  for (size_t i = 0; i < requests.size(); ++i) check_picture_file(options.command, output_of(i, -1));
  if (!app.global.quiet) print_oddities(options, requests);
  if (!options.sheet.empty()) check_picture_file(options.command, options.sheet);
  if (!options.memory_limit.empty()) {
    const std::optional<uint64_t> limit = bytes_from_text(options.memory_limit);
    if (!limit)
      fail(Code::kUsage, options.command, "--memory-limit: not a size",
           {.expected = "a number with B, KB, MB or GB", .got = options.memory_limit});
    set_memory_limit(*limit);
  }
  GenerateSettings settings;
  settings.dtype = *dtype;
  if (options.quantize == "fp8")
    settings.linears.fp8 = true;
  else if (!options.quantize.empty())
    settings.linears.bits = std::stoi(options.quantize);
  settings.guidance = options.guidance_run == "batch"    ? GuidanceRun::kBatch
                      : options.guidance_run == "passes" ? GuidanceRun::kPasses
                                                         : GuidanceRun::kAuto;
  if (options.tiling) settings.tiling = models::Tiling{};
  if (options.schedule == "lightning") settings.scheduler = lightning_scheduler();
  std::string why_not_gpu;
  const std::unique_ptr<Backend> backend =
      choose_backend(options.device, options.threads, model, settings, requests, why_not_gpu);
  note("backend", "{}; {} compute; model {}", backend->description(), options.dtype, model.path().string());
  if (!why_not_gpu.empty()) note("backend", "no GPU: {}", why_not_gpu);
  const std::unique_ptr<DebugRun> debug =
      DebugRun::start(app, options.debug, run_details(options, first, model.path(), *backend));
  StageBars bars(!app.global.quiet && !app.global.json && !(debug && !options.debug.reference.empty()));
  settings.progress = [&bars](std::string_view stage, int64_t done, int64_t total) {
    if (done == total) note("stage", "{} done ({})", stage, total);
    bars.update(stage, done, total);
  };
  if (debug) settings.tap = debug->tap();
  std::unique_ptr<EngineProfile> profile;
  const auto make_sheet = [&](const std::vector<GeneratedImage>& images) {
    std::vector<Tensor> pictures;
    for (const GeneratedImage& image : images) pictures.push_back(image.pixels);
    return options.sheet.empty() ? Tensor() : contact_sheet(pictures, options.columns);
  };
  check_memory_limit(model, *backend, settings, requests, make_sheet);
  if (options.profile) {
    profile = std::make_unique<EngineProfile>(settings.tap);
    settings.tap = profile.get();
    settings.progress = [shown = settings.progress, &profile](std::string_view stage, int64_t done, int64_t total) {
      if (stage.starts_with("load")) profile->stage(stage);
      shown(stage, done, total);
    };
  }
  const std::vector<GeneratedImage> images = generate(model, *backend, settings, requests);
  std::vector<fs::path> files;
  for (const GeneratedImage& image : images) {
    files.push_back(output_of(image.request, image.layer));
    write_image(files.back(), {image.pixels, picture_text(requests[image.request], image, model)});
  }
  if (!options.sheet.empty())
    write_image(options.sheet, {make_sheet(images), {{"software", std::string("lockstep ") + LOCKSTEP_VERSION}}});
  if (debug) app.status = debug->finish(true, model.path());
  const fs::path profiled = profile ? profile->write(home_folder(app.global.home), options.command,
                                                     run_details(options, first, model.path(), *backend))
                                    : fs::path();
  const double secs = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (app.global.json) {
    Json result{{"images", Json::array()},
                {"secs", secs},
                {"peak_memory_bytes", peak_resident_bytes()},
                {"peak_tensor_bytes", memory_use().peak_bytes},
                {"device", backend->description()},
                {"dtype", dtype_name(*dtype)},
                {"model", model.path().string()}};
    for (size_t i = 0; i < images.size(); ++i) {
      const GenerateRequest& request = requests[images[i].request];
      Json entry{{"file", files[i].string()},   {"prompt", request.prompt},   {"seed", request.seed},
                 {"width", images[i].width},    {"height", images[i].height}, {"steps", request.steps},
                 {"guidance", request.guidance}};
      if (images[i].layer >= 0) entry["layer"] = images[i].layer + 1;
      if (!images[i].caption.empty()) entry["caption"] = images[i].caption;
      result["images"].push_back(std::move(entry));
    }
    if (debug) result["run"] = debug->summary();
    if (profile) {
      result["profile"] = json_from(read_profile(profiled));
      result["profile"]["run"] = profiled.filename().string();
    }
    print_json(result);
    return;
  }
  for (const fs::path& file : files) print("{}\n", file.string());
  if (debug) print("{}\n", debug->path().string());
  if (profile) print("\n{}\n{}\n", text_from(Terminal(app.global), read_profile(profiled)), profiled.string());
  if (!app.global.quiet)
    print_error("{:.2f} s, peak memory {:.0f} MB, {}\n", secs, static_cast<double>(peak_resident_bytes()) / 1e6,
                backend->description());
}

}  // namespace lockstep
