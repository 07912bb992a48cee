// lockstep generate: text to image.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "capture/store.h"
#include "cli/app.h"
#include "cli/debug_run.h"
#include "cli/picture_file.h"
#include "io/image.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "pipeline/contact_sheet.h"
#include "pipeline/generate.h"
#include "pipeline/memory_need.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

struct Options {
  std::vector<std::string> prompts;
  std::string prompt_file, negative_prompt, model, output = "lockstep.png", device = "cpu", dtype = "f32", latents,
                                                   sigmas, sheet, memory_limit, guidance_run = "auto",
                                                   schedule = "model";
  int width = 0, height = 0, steps = 0, count = 1, threads = 0, max_prompt_tokens = 512, columns = 4, quantize = 0;
  double guidance = -1;
  uint64_t seed = 0;
  bool tiling = false, has_negative = false;
  DebugOptions debug;
};

Json run_details(const Options& options, const GenerateRequest& request, const fs::path& model,
                 const Backend& backend) {
  Json settings{{"prompt", request.prompt}, {"width", request.width},       {"height", request.height},
                {"steps", request.steps},   {"guidance", request.guidance}, {"seed", request.seed},
                {"dtype", options.dtype}};
  settings["negative_prompt"] = request.negative_prompt ? Json(*request.negative_prompt) : Json(nullptr);
  return {{"producer",
           {{"name", "lockstep"},
            {"version", LOCKSTEP_VERSION},
            {"framework", "lockstep"},
            {"language", "c++"},
            {"device", backend.description()}}},
          {"model", model.string()},
          {"settings", settings}};
}

uint64_t peak_resident_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

std::vector<std::string> read_prompts(const Options& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.prompt_file.empty()) {
    constexpr uint64_t kMaxPromptFileBytes = 64 << 20;
    std::istringstream lines(read_text(options.prompt_file, kMaxPromptFileBytes));
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) prompts.push_back(line);
  }
  if (prompts.empty())
    fail(Code::kUsage, "generate", "no prompt", {.hint = "--prompt \"a red circle left of a blue square\""});
  return prompts;
}

Tensor read_latents(const std::string& path) {
  if (!fs::path(path).extension().compare(".safetensors")) {
    const auto file = SafetensorsFile::open(path);
    if (file->tensors().size() != 1)
      fail(Code::kBadInput, "latents", path + " holds several tensors",
           {.expected = "one", .got = std::to_string(file->tensors().size())});
    return file->tensor(file->tensors()[0].name);
  }
  return read_npy(path);
}

std::vector<double> parse_sigmas(const std::string& text) {
  std::vector<double> values;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    size_t end = 0;
    double value = 0;
    try {
      value = std::stod(item, &end);
    } catch (const std::exception&) {
    }
    if (end == 0 || end != item.size() || !(value > 0 && value <= 1))
      fail(Code::kUsage, "generate", "--sigmas: \"" + item + "\" is not a sigma",
           {.expected = "numbers in (0, 1] with commas between them"});
    values.push_back(value);
  }
  return values;
}

// {seed} and {index} in the pattern are filled in; without them a number is put before the extension when
// there are several.
fs::path output_path(const std::string& pattern, size_t index, size_t total, uint64_t seed) {
  std::string path = pattern;
  const auto replace = [&path](std::string_view key, const std::string& value) {
    for (size_t at = path.find(key); at != std::string::npos; at = path.find(key, at + value.size()))
      path.replace(at, key.size(), value);
  };
  const bool named = path.find("{seed}") != std::string::npos || path.find("{index}") != std::string::npos;
  replace("{seed}", std::to_string(seed));
  replace("{index}", std::to_string(index));
  if (total > 1 && !named) {
    const fs::path plain(path);
    return plain.parent_path() / fmt::format("{}-{:03d}{}", plain.stem().string(), index, plain.extension().string());
  }
  return path;
}

struct Job {
  GenerateRequest request;
  fs::path output;
};

std::vector<Job> plan_jobs(const Options& options, const ModelDefaults& defaults) {
  const std::vector<std::string> prompts = read_prompts(options);
  if (options.count < 1 || options.count > 10000)
    fail(Code::kUsage, "generate", "--count is out of range",
         {.expected = "1 to 10000", .got = std::to_string(options.count)});
  std::vector<Job> jobs;
  const size_t total = prompts.size() * static_cast<size_t>(options.count);
  for (const std::string& prompt : prompts)
    for (int i = 0; i < options.count; ++i) {
      GenerateRequest request;
      request.prompt = prompt;
      request.negative_prompt =
          options.has_negative ? std::optional(options.negative_prompt) : defaults.negative_prompt;
      request.width = options.width ? options.width : defaults.width;
      request.height = options.height ? options.height : defaults.height;
      const bool lightning = options.schedule == "lightning";
      request.steps = options.steps ? options.steps : lightning ? 8 : defaults.steps;
      request.guidance = options.guidance >= 0 ? options.guidance : lightning ? 1 : defaults.guidance;
      request.seed = options.seed + static_cast<uint64_t>(i);
      request.max_prompt_tokens = options.max_prompt_tokens;
      if (!options.latents.empty()) request.latents = read_latents(options.latents);
      if (!options.sigmas.empty()) {
        request.sigmas = parse_sigmas(options.sigmas);
        request.steps = static_cast<int>(request.sigmas.size());
      }
      const fs::path output = output_path(options.output, jobs.size(), total, request.seed);
      jobs.push_back({std::move(request), output});
    }
  return jobs;
}

void write_result(const Job& job, const GeneratedImage& image, const fs::path& model) {
  const GenerateRequest& request = job.request;
  Image picture{image.pixels, {}};
  picture.text = {{"prompt", request.prompt},
                  {"seed", std::to_string(request.seed)},
                  {"steps", std::to_string(request.steps)},
                  {"guidance", fmt::format("{}", request.guidance)},
                  {"size", fmt::format("{}x{}", image.width, image.height)},
                  {"model", model.filename().string()},
                  {"software", std::string("lockstep ") + LOCKSTEP_VERSION}};
  if (request.guided()) picture.text["negative_prompt"] = *request.negative_prompt;
  write_image(job.output, picture);
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

void run_generate(App& app, const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const fs::path model_path = options.model.empty() ? embedded_model_path() : fs::path(options.model);
  if (model_path.empty())
    fail(Code::kNotFound, "generate", "no embedded model beside the program", {.hint = "--model DIR"});
  const ModelFolder model = ModelFolder::open(model_path);
  const std::optional<DType> dtype = dtype_from_name(options.dtype);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kBF16))
    fail(Code::kUsage, "generate", "--dtype: no such compute type", {.expected = "f32 or bf16", .got = options.dtype});
  const std::vector<Job> jobs = plan_jobs(options, model.defaults());
  std::vector<GenerateRequest> requests;
  for (const Job& job : jobs) {
    check_picture_file("generate", job.output);
    requests.push_back(job.request);
  }
  const GenerateRequest& first = requests.front();
  if (!app.global.quiet && (first.width % 16 || first.height % 16))
    fmt::print(stderr, "lockstep: sizes are multiples of 16: {}x{} becomes {}x{}\n", first.width, first.height,
               first.width / 16 * 16, first.height / 16 * 16);
  if (!options.sheet.empty()) check_picture_file("generate", options.sheet);
  if (!options.memory_limit.empty()) {
    const std::optional<uint64_t> limit = bytes_from_text(options.memory_limit);
    if (!limit)
      fail(Code::kUsage, "generate", "--memory-limit: not a size",
           {.expected = "a number with B, KB, MB or GB", .got = options.memory_limit});
    set_memory_limit(*limit);
  }
  const std::unique_ptr<Backend> backend = make_backend(options.device, options.threads);
  note("backend", "{}; {} compute; model {}", backend->description(), options.dtype, model.path().string());
  const std::unique_ptr<DebugRun> debug =
      DebugRun::start(app, options.debug, run_details(options, first, model.path(), *backend));
  StageBars bars(!app.global.quiet && !app.global.json && !(debug && !options.debug.reference.empty()));
  GenerateSettings settings;
  settings.dtype = *dtype;
  settings.quantize_bits = options.quantize;
  settings.guidance = options.guidance_run == "batch"    ? GuidanceRun::kBatch
                      : options.guidance_run == "passes" ? GuidanceRun::kPasses
                                                         : GuidanceRun::kAuto;
  if (options.tiling) settings.tiling = models::Tiling{};
  if (options.schedule == "lightning") settings.scheduler = lightning_scheduler();
  settings.progress = [&bars](std::string_view stage, int64_t done, int64_t total) {
    if (done == total) note("stage", "{} done ({})", stage, total);
    bars.update(stage, done, total);
  };
  if (debug) settings.tap = debug->tap();
  const auto make_sheet = [&](const std::vector<GeneratedImage>& images) {
    std::vector<Tensor> pictures;
    for (const GeneratedImage& image : images) pictures.push_back(image.pixels);
    return options.sheet.empty() ? Tensor() : contact_sheet(pictures, options.columns);
  };
  check_memory_limit(model, *backend, settings, requests, make_sheet);
  const std::vector<GeneratedImage> images = generate(model, *backend, settings, requests);
  for (size_t i = 0; i < jobs.size(); ++i) write_result(jobs[i], images[i], model.path());
  if (!options.sheet.empty())
    write_image(options.sheet, {make_sheet(images), {{"software", std::string("lockstep ") + LOCKSTEP_VERSION}}});
  if (debug) app.status = debug->finish(true, model.path());
  const double secs = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (app.global.json) {
    Json result{{"images", Json::array()},
                {"secs", secs},
                {"peak_memory_bytes", peak_resident_bytes()},
                {"peak_tensor_bytes", memory_use().peak_bytes},
                {"device", backend->description()},
                {"dtype", dtype_name(*dtype)},
                {"model", model.path().string()}};
    for (size_t i = 0; i < jobs.size(); ++i)
      result["images"].push_back({{"file", jobs[i].output.string()},
                                  {"prompt", requests[i].prompt},
                                  {"seed", requests[i].seed},
                                  {"width", images[i].width},
                                  {"height", images[i].height},
                                  {"steps", requests[i].steps},
                                  {"guidance", requests[i].guidance}});
    if (debug) result["run"] = debug->summary();
    fmt::print("{}\n", result.dump());
    return;
  }
  for (const Job& job : jobs) fmt::print("{}\n", job.output.string());
  if (debug) fmt::print("{}\n", debug->path().string());
  if (!app.global.quiet)
    fmt::print(stderr, "{:.2f} s, peak memory {:.0f} MB, {}\n", secs, static_cast<double>(peak_resident_bytes()) / 1e6,
               backend->description());
}

}  // namespace

void add_generate(App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.cli.add_subcommand("generate", "text to image");
  command->footer(
      "lockstep generate --prompt \"a red circle left of a blue square\"\n"
      "lockstep generate --prompt \"three green stars\" --count 4 --output stars-{seed}.png\n"
      "lockstep generate --model Qwen-Image --prompt \"a cat\" --negative-prompt \" \" --width 1024 --height 1024");
  command->add_option("--prompt", options->prompts, "what to draw; may be given several times");
  command->add_option("--prompt-file", options->prompt_file, "one prompt a line; the model is loaded once");
  CLI::Option* negative = command->add_option("--negative-prompt", options->negative_prompt,
                                              "what to steer away from; guidance is off without one");
  command->add_option("--model", options->model,
                      "a Qwen-Image folder in diffusers layout (default: the embedded model)");
  command->add_option("--width", options->width, "pixels, floored to a multiple of 16");
  command->add_option("--height", options->height, "pixels, floored to a multiple of 16");
  command->add_option("--steps", options->steps, "denoising steps");
  command->add_option("--sigmas", options->sigmas, "a schedule of your own: 1.0,0.75,0.5,0.25");
  command
      ->add_option("--schedule", options->schedule,
                   "model (the folder's own) or lightning (distilled weights: 8 steps, or --steps 4, and no guidance)")
      ->check(CLI::IsMember({"model", "lightning"}));
  command->add_option("--guidance", options->guidance, "true classifier-free guidance; 1 switches it off");
  command
      ->add_option("--guidance-run", options->guidance_run,
                   "auto, passes (one after the other, as the official pipeline) or batch (both at once)")
      ->check(CLI::IsMember({"auto", "passes", "batch"}));
  command->add_option("--seed", options->seed, "first seed; --count counts it up");
  command->add_option("--count", options->count, "pictures for each prompt");
  command->add_option("--output", options->output, "file, or a pattern with {seed} and {index}; .png .jpg .webp");
  command->add_option("--sheet", options->sheet, "also write all pictures on one page");
  command->add_option("--columns", options->columns, "pictures across on the page");
  command->add_option(
      "--memory-limit", options->memory_limit,
      "for tensors, weights included (8GB); a call that needs more is refused at its start with the number");
  command->add_option("--latents", options->latents, "start from saved noise (.npy or .safetensors)");
  command->add_option("--device", options->device, "cpu or reference");
  command->add_option("--dtype", options->dtype, "f32 or bf16");
  command
      ->add_option("--quantize", options->quantize, "hold the transformer's weights in so many bits, as MLX quantises")
      ->check(CLI::IsMember({2, 3, 4, 6, 8}));
  command->add_option("--threads", options->threads, "0: all cores");
  command->add_option("--max-prompt-tokens", options->max_prompt_tokens, "longer prompts are cut (at most 1024)");
  command->add_flag("--vae-tiling", options->tiling, "decode large images in tiles of 256 pixels");
  add_debug_options(*command, options->debug);
  command->callback([&app, options, negative] {
    options->has_negative = negative->count() > 0;
    run_generate(app, *options);
  });
}

}  // namespace lockstep
