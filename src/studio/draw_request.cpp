#include "studio/draw_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>

#include "backend/devices.h"
#include "base/base64.h"
#include "base/escape.h"
#include "base/utf8.h"
#include "io/image.h"
#include "io/npy.h"
#include "io/picture_modes.h"
#include "pipeline/pipeline.h"
#include "studio/parameter_error.h"

namespace lockstep {

void refuse_parameter(const std::string& parameter, const std::string& what, const Detail& detail) {
  try {
    fail(Code::kBadInput, "images", what, detail);
  } catch (const Error& error) {
    throw ParameterError(error.code(), parameter, error.what());
  }
}

namespace {

// Fields by name; what was never asked for is refused at the end.
class FieldReader {
 public:
  explicit FieldReader(const Json& fields) : fields_(fields) {
    if (!fields.is_object()) refuse_parameter("", "the request is no JSON object");
  }

  const Json* find(const char* name) {
    known_.push_back(name);
    const auto found = fields_.find(name);
    return found == fields_.end() || found->is_null() ? nullptr : &*found;
  }
  std::string text(const char* name, const std::string& standard, size_t most_characters = 1000) {
    const Json* value = find(name);
    if (!value) return standard;
    if (!value->is_string()) refuse_parameter(name, std::string(name) + " is no text", {.got = value->type_name()});
    std::string text = value->get<std::string>();
    if (!is_valid_utf8(text) || text.find('\0') != std::string::npos)
      refuse_parameter(name, std::string(name) + " is no UTF-8 text without zero bytes");
    const auto characters = static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
    if (characters > most_characters)
      refuse_parameter(
          name, std::string(name) + " is too long",
          {.expected = fmt::format("at most {} characters", most_characters), .got = std::to_string(characters)});
    return text;
  }
  std::string choice(const char* name, const std::string& standard, const std::vector<std::string>& choices) {
    const std::string value = text(name, standard);
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return value;
    std::string all;
    for (const std::string& one : choices) all += (all.empty() ? "" : ", ") + one;
    refuse_parameter(name, std::string(name) + " is not supported", {.expected = all, .got = value.substr(0, 80)});
  }
  int64_t integer(const char* name, int64_t standard, int64_t least, int64_t most) {
    const Json* value = find(name);
    if (!value) return standard;
    if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{1} << 62) ||
        value->get<int64_t>() < least || value->get<int64_t>() > most)
      refuse_parameter(name, std::string(name) + " is out of range",
                       {.expected = fmt::format("a whole number, {} to {}", least, most), .got = shown(*value)});
    return value->get<int64_t>();
  }
  double number(const char* name, double standard, double least, double most) {
    const Json* value = find(name);
    if (!value) return standard;
    if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most))
      refuse_parameter(name, std::string(name) + " is out of range",
                       {.expected = fmt::format("a number, {} to {}", least, most), .got = shown(*value)});
    return value->get<double>();
  }
  bool flag(const char* name, bool standard) {
    const Json* value = find(name);
    if (!value) return standard;
    if (!value->is_boolean()) refuse_parameter(name, std::string(name) + " is neither true nor false");
    return value->get<bool>();
  }
  void finish() const {
    for (const auto& [name, value] : fields_.items())
      if (std::find(known_.begin(), known_.end(), name) == known_.end() && !value.is_null())
        refuse_parameter(escaped(name.substr(0, 100)), "there is no parameter '" + name.substr(0, 100) + "' here",
                         {.hint = "docs/server.md, which lists them"});
  }
  static std::string shown(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
  }

 private:
  const Json& fields_;
  std::vector<std::string> known_;
};

bool number_in(std::string_view text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && text.size() <= 5 && error == std::errc() && end == text.data() + text.size() &&
         text.front() != '-' && text.front() != '+';
}

void read_size(const std::string& text, GenerateRequest& request) {
  if (text == "auto") return;
  const size_t x = text.find('x');
  int width = 0, height = 0;
  const bool two =
      x != std::string::npos && number_in(text.substr(0, x), width) && number_in(text.substr(x + 1), height);
  if (!two || width < 16 || height < 16 || width % 16 || height % 16 || std::max(width, height) > kLongestSide ||
      int64_t{width} * height > kMostPixels)
    refuse_parameter("size", "the size is not possible",
                     {.expected = "auto or WIDTHxHEIGHT, both divisible by 16, at most 3840x2160 or 2160x3840",
                      .got = text.substr(0, 40)});
  request.width = width;
  request.height = height;
}

// Fewer steps where the caller wants it quick; `steps` says it exactly.
int steps_for(const std::string& quality, int own) {
  if (quality == "low") return std::max(2, (own * 2 + 2) / 5);
  if (quality == "medium") return std::max(2, (own * 7 + 5) / 10);
  return own;
}

Tensor latents_from(const std::string& text) {
  const auto bytes = bytes_from_base64(text);
  if (!bytes) refuse_parameter("latents", "latents are no base64", {.expected = "a .npy file in base64"});
  const auto kept = std::make_shared<const std::vector<uint8_t>>(*bytes);
  try {
    const Tensor tensor = parse_npy(std::as_bytes(std::span(*kept)), "latents", kept);
    if (!is_floating(tensor.dtype()) || tensor.numel() > (int64_t{1} << 24))
      refuse_parameter("latents", "latents are no tensor of floats", {.got = std::string(dtype_name(tensor.dtype()))});
    const Tensor floats = tensor.contiguous().to(DType::kF32);
    const float* values = floats.data<float>();
    if (!std::all_of(values, values + floats.numel(), [](float v) { return std::isfinite(v); }))
      refuse_parameter("latents", "latents hold values that are not finite");
    return tensor.contiguous();
  } catch (const ParameterError&) {
    throw;
  } catch (const Error& error) {
    throw ParameterError(Code::kBadInput, "latents", error.what());
  }
}

std::vector<double> sigmas_from(FieldReader& reader) {
  const Json* value = reader.find("sigmas");
  std::vector<double> sigmas;
  if (!value) return sigmas;
  if (!value->is_array() || value->empty() || value->size() > kMostSteps)
    refuse_parameter("sigmas", "sigmas are no list of numbers", {.expected = "1 to 1000 numbers in (0, 1]"});
  for (const Json& one : *value) {
    if (!one.is_number() || !(one.get<double>() > 0 && one.get<double>() <= 1))
      refuse_parameter("sigmas", "a sigma is out of range",
                       {.expected = "numbers in (0, 1]", .got = FieldReader::shown(one)});
    sigmas.push_back(one.get<double>());
  }
  return sigmas;
}

// Only the first of the two names may be given, or the second: both would be one too many.
double guidance_from(FieldReader& reader, double standard) {
  const bool both = reader.find("guidance") && reader.find("true_cfg_scale");
  if (both) refuse_parameter("true_cfg_scale", "guidance and true_cfg_scale mean the same; one of them");
  return reader.number("true_cfg_scale", reader.number("guidance", standard, 0, 100), 0, 100);
}

int64_t steps_from(FieldReader& reader, int64_t standard) {
  const bool both = reader.find("steps") && reader.find("num_inference_steps");
  if (both) refuse_parameter("num_inference_steps", "steps and num_inference_steps mean the same; one of them");
  return reader.integer("num_inference_steps", reader.integer("steps", standard, 1, kMostSteps), 1, kMostSteps);
}

std::string device_from(FieldReader& reader) {
  const std::string device = reader.text("device", "auto");
  if (device == "auto" || device == "cpu" || device == "reference") return device;
  std::string all = "auto";
  for (const UsableDevice& one : usable_devices()) {
    if (device == one.name || (device == "cuda" && one.name.starts_with("cuda:"))) return one.name;
    all += ", " + one.name;
  }
  refuse_parameter("device", "this machine has no such device", {.expected = all, .got = device.substr(0, 40)});
}

void read_edit_fields(FieldReader& reader, GenerateRequest& request, const ModelFolder& model) {
  request.resolution = static_cast<int>(reader.integer("resolution", 0, 32, 4096));
  request.condition_resolution = static_cast<int>(reader.integer("condition_resolution", 0, 32, 4096));
  request.positions = reader.choice("image_positions", "official", {"official", "mrope"}) == "mrope"
                          ? ImagePositions::kMrope
                          : ImagePositions::kOfficial;
  const bool layered = model.pipeline().makes_layers();
  if (reader.find("layers") && !layered)
    refuse_parameter("layers", "this model makes one picture",
                     {.expected = "a QwenImageLayeredPipeline", .got = std::string(model.pipeline().class_name())});
  request.layers = static_cast<int>(reader.integer("layers", request.layers, 1, 64));
  request.rescale_layers = reader.flag("rescale_guidance", false);
  request.english_caption = reader.flag("english_caption", false);
  request.greedy_caption = reader.choice("caption", "model", {"model", "greedy"}) == "greedy";
}

// What the pipeline itself would refuse, told before the request waits in line.
void check_with_pipeline(const DrawRequest& draw, const ModelFolder& model) {
  GenerateRequest request = draw.first;
  const Uploads& uploads = *draw.uploads;
  const bool layered = model.pipeline().makes_layers();
  for (size_t i = 0; i < uploads.pictures.size(); ++i) {
    const Tensor pixels = uploads.pictures[i].pixels("image");
    request.pictures.push_back(layered ? rgba_picture(pixels) : rgb_over_white(pixels));
  }
  if (uploads.has_mask) request.mask = mask_picture(uploads.mask.pixels("mask"));
  try {
    const SchedulerConfig scheduler = draw.schedule == "lightning" ? lightning_scheduler() : model.scheduler();
    model.pipeline().check(request, scheduler);
  } catch (const Error& error) {
    const std::string what = error.what();
    const char* parameter = what.find("mask") != std::string::npos       ? "mask"
                            : what.find("picture") != std::string::npos  ? "image"
                            : what.find("step") != std::string::npos     ? "steps"
                            : what.find("strength") != std::string::npos ? "strength"
                            : what.find("size") != std::string::npos     ? "size"
                                                                         : "";
    throw ParameterError(error.code(), parameter, what);
  }
}

uint64_t drawn_seed() {
  thread_local std::random_device device;
  return device();
}

}  // namespace

Upload upload_from_data_url(const std::string& url, const std::string& parameter) {
  const std::string_view whole = url;
  if (!whole.starts_with("data:"))
    refuse_parameter(parameter, "only data URLs are taken: nothing is fetched",
                     {.expected = "data:image/png;base64,...", .got = url.substr(0, 40)});
  const size_t comma = whole.find(',');
  if (comma == std::string_view::npos || comma > 200 || !whole.substr(0, comma).ends_with(";base64"))
    refuse_parameter(parameter, "a data URL without base64", {.expected = "data:image/png;base64,..."});
  if (whole.size() - comma > kMostPictureBytes / 3 * 4 + 16)
    refuse_parameter(parameter, "the picture is too large", {.expected = "at most 50 MB"});
  const auto bytes = bytes_from_base64(whole.substr(comma + 1));
  if (!bytes || bytes->empty()) refuse_parameter(parameter, "a data URL whose base64 cannot be read");
  return {std::string(bytes->begin(), bytes->end()), {}};
}

Tensor Upload::pixels(const std::string& parameter) const {
  try {
    const auto file = spooled.empty() ? nullptr : MappedFile::open(spooled);
    const auto view = file ? file->bytes() : std::as_bytes(std::span(bytes.data(), bytes.size()));
    if (view.size() > kMostPictureBytes)
      refuse_parameter(parameter, "the picture is too large", {.expected = "at most 50 MB"});
    const PixelLimit limit(kMostPicturePixels);
    return parse_image(view, "the picture").pixels;
  } catch (const ParameterError&) {
    throw;
  } catch (const Error& error) {
    if (error.code() == Code::kIo || error.code() == Code::kMemory) throw;
    throw ParameterError(Code::kBadInput, parameter, error.what());
  }
}

std::string DrawRequest::size_text() const {
  return first.width && first.height ? fmt::format("{}x{}", first.width, first.height) : std::string("auto");
}

int64_t DrawRequest::image_tokens() const {
  const int64_t width = first.width ? first.width : standard_width,
                height = first.height ? first.height : standard_height;
  return std::max<int64_t>(1, (width / 16) * (height / 16));
}

std::string DrawRequest::shape() const {
  std::string tokens;
  for (const size_t count : text_tokens) tokens += fmt::format(" {}", count);
  return fmt::format("{}|{}|{}x{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", model, kind, first.width, first.height, first.steps,
                     first.guidance, first.guided(), dtype_name(dtype), quantize, schedule, guidance_run, device,
                     tiling, tokens);
}

GenerateRequest DrawRequest::picture(int index) const {
  GenerateRequest request = first;
  request.seed += static_cast<uint64_t>(index);
  for (const Upload& upload : uploads->pictures) {
    const Tensor pixels = upload.pixels("image");
    request.pictures.push_back(layered ? rgba_picture(pixels) : rgb_over_white(pixels));
  }
  if (uploads->has_mask) request.mask = mask_picture(uploads->mask.pixels("mask"));
  return request;
}

GenerateSettings DrawRequest::settings() const {
  GenerateSettings settings;
  settings.dtype = dtype;
  if (quantize == "fp8")
    settings.linears.fp8 = true;
  else if (!quantize.empty())
    settings.linears.bits = std::stoi(quantize);
  if (tiling) settings.tiling = models::Tiling{};
  if (schedule == "lightning") settings.scheduler = lightning_scheduler();
  settings.guidance = guidance_run == "batch"    ? GuidanceRun::kBatch
                      : guidance_run == "passes" ? GuidanceRun::kPasses
                                                 : GuidanceRun::kAuto;
  return settings;
}

DrawRequest read_draw_request(const std::string& kind, const Json& fields, std::shared_ptr<const Uploads> uploads,
                              const std::string& model_name, const ModelFolder& model) {
  const ModelDefaults& defaults = model.defaults();
  FieldReader reader(fields);
  DrawRequest draw;
  draw.kind = kind;
  draw.model = model_name;
  draw.fields = fields;
  draw.uploads = std::move(uploads);
  draw.upload_count = draw.uploads->pictures.size();
  reader.find("model");
  GenerateRequest& request = draw.first;
  request.prompt = reader.text("prompt", "", kMostPromptCharacters);
  if (request.prompt.empty() && !model.pipeline().makes_layers())
    refuse_parameter("prompt", "the prompt is missing", {.expected = "1 to 32000 characters"});
  request.negative_prompt = defaults.negative_prompt;
  if (fields.contains("negative_prompt") && !fields["negative_prompt"].is_null())
    request.negative_prompt = reader.text("negative_prompt", "", kMostPromptCharacters);
  reader.find("negative_prompt");
  draw.count = static_cast<int>(reader.integer("n", 1, 1, kMostOfOne));
  draw.quality = reader.choice("quality", "auto", {"auto", "low", "medium", "high", "standard", "hd"});
  draw.background = reader.choice("background", "auto", {"auto", "opaque"});
  draw.output_format = reader.choice("output_format", "png", {"png", "jpeg", "webp"});
  draw.compression = static_cast<int>(reader.integer("output_compression", -1, 0, 100));
  if (draw.compression >= 0 && draw.output_format == "png")
    refuse_parameter("output_compression", "PNG is always lossless", {.expected = "output_format jpeg or webp"});
  draw.partial_images = static_cast<int>(reader.integer("partial_images", 0, 0, 3));
  draw.user = reader.text("user", "", 256);
  const std::string dtype = reader.choice("dtype", "f32", {"f32", "bf16"});
  draw.dtype = dtype == "bf16" ? DType::kBF16 : DType::kF32;
  draw.quantize = reader.choice("quantize", "", {"", "2", "3", "4", "6", "8", "fp8"});
  draw.schedule = reader.choice("schedule", "model", {"model", "lightning"});
  draw.guidance_run = reader.choice("guidance_run", "auto", {"auto", "passes", "batch"});
  draw.device = device_from(reader);
  draw.tiling = reader.flag("vae_tiling", false);
  const bool lightning = draw.schedule == "lightning";
  request.sigmas = sigmas_from(reader);
  request.steps = static_cast<int>(steps_from(reader, lightning ? 8 : steps_for(draw.quality, defaults.steps)));
  if (!request.sigmas.empty()) request.steps = static_cast<int>(request.sigmas.size());
  request.guidance = guidance_from(reader, lightning ? 1 : defaults.guidance);
  draw.seed_given = reader.find("seed") != nullptr;
  request.seed = static_cast<uint64_t>(reader.integer("seed", 0, 0, int64_t{1} << 62));
  if (!draw.seed_given) {
    request.seed = drawn_seed();
    draw.fields["seed"] = request.seed;  // after a restart it is the same picture
  }
  request.strength = reader.number("strength", request.strength, 0, 1);
  request.max_prompt_tokens = static_cast<int>(reader.integer("max_prompt_tokens", 512, 1, 1024));
  draw.standard_width = defaults.width, draw.standard_height = defaults.height;
  request.width = request.height = 0;
  read_size(reader.text("size", "auto"), request);
  const bool edits = model.pipeline().command() == "edit";
  draw.layered = model.pipeline().makes_layers();
  if (edits) read_edit_fields(reader, request, model);
  if (!edits && !request.width) request.width = defaults.width, request.height = defaults.height;
  if (const Json* latents = reader.find("latents")) {
    if (!latents->is_string())
      refuse_parameter("latents", "latents are no text", {.expected = "a .npy file in base64"});
    request.latents = latents_from(latents->get_ref<const std::string&>());
  }
  reader.finish();
  if (kind == "edit" && draw.uploads->pictures.empty())
    refuse_parameter("image", "there is no picture to edit",
                     {.expected = R"(image in a form, or "images" in JSON)", .got = "none"});
  if (draw.uploads->pictures.size() > kMostPictures)
    refuse_parameter("image", "too many pictures",
                     {.expected = "at most 16", .got = std::to_string(draw.uploads->pictures.size())});
  check_with_pipeline(draw, model);
  return draw;
}

}  // namespace lockstep
