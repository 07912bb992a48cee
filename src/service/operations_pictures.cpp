#include "base/base64.h"
#include "base/error.h"
#include "service/groups.h"
#include "service/service.h"
#include "studio/parameter_error.h"

namespace lockstep {
namespace {

using enum ArgumentType;

constexpr size_t kMostShown = 4;                                      // pictures of one answer
constexpr size_t kMostShownBytes = 4 << 20;                           // of one of them
constexpr size_t kMostPictureText = (kMostPictureBytes / 3 + 8) * 4;  // a picture as a data URL
constexpr size_t kMostPromptBytes = 4 * kMostPromptCharacters;

// The answer, with the job's pictures for whoever can see them.
Json with_pictures(Studio& studio, Json job, bool show) {
  if (!show || job["status"] != Json("completed")) return job;
  Json shown = Json::array();
  for (const Json& image : job["images"]) {
    if (shown.size() >= kMostShown) break;
    const StoredPicture picture = studio.picture(image["id"].get<std::string>());
    if (picture.bytes.size() > kMostShownBytes) continue;
    shown.push_back({{"mime_type", "image/" + picture.format},
                     {"b64", base64({reinterpret_cast<const uint8_t*>(picture.bytes.data()), picture.bytes.size()})}});
  }
  job[kShownField] = std::move(shown);
  return job;
}

Json waited(Service& service, const std::string& id, const Json& arguments, CallControl& control) {
  Studio& studio = service.studio();
  const double secs = std::min(arguments.value("max_wait", 0.0), control.longest_wait_secs);
  if (secs > 0) studio.wait(id, secs, [&control] { return control.cancelled(); });
  return with_pictures(studio, studio.job(id), arguments.value("show", false));
}

Json call_create(Service& service, const Json& arguments, CallControl& control) {
  auto uploads = std::make_shared<Uploads>();
  Json fields = arguments;
  for (const Json& url : arguments.value("images", Json::array()))
    uploads->pictures.push_back(upload_from_data_url(url.get_ref<const std::string&>(), "images"));
  if (arguments.contains("mask")) {
    uploads->mask = upload_from_data_url(arguments["mask"].get_ref<const std::string&>(), "mask");
    uploads->has_mask = true;
  }
  if (arguments.contains("sigmas")) {
    fields["sigmas"] = Json::array();
    for (const Json& text : arguments["sigmas"]) {
      const Json number = Json::parse(text.get_ref<const std::string&>(), nullptr, false);
      if (!number.is_number()) refuse_parameter("sigmas", "a sigma is no number");
      fields["sigmas"].push_back(number);
    }
  }
  for (const char* ours : {"type", "images", "mask", "max_wait", "show"}) fields.erase(ours);
  const std::string asked = text_argument(arguments, "type");
  const std::string kind = !asked.empty() ? asked : uploads->pictures.empty() ? "generate" : "edit";
  const auto job = service.studio().submit({kind, std::move(fields), uploads, control.client, false, true, nullptr});
  return waited(service, job->id, arguments, control);
}

Json call_show(Service& service, const Json& arguments, CallControl& control) {
  return waited(service, text_argument(arguments, "id"), arguments, control);
}

Json call_list(Service& service, const Json& arguments, CallControl&) {
  return service.studio().jobs(arguments["limit"].get<size_t>(), text_argument(arguments, "status"));
}

Json call_cancel(Service& service, const Json& arguments, CallControl&) {
  return service.studio().cancel(text_argument(arguments, "id"));
}

Json call_models(Service& service, const Json&, CallControl&) {
  return service.studio().models();
}

Json call_model(Service& service, const Json& arguments, CallControl&) {
  return service.studio().model(text_argument(arguments, "id"));
}

Argument show_argument() {
  return {.name = "show", .type = kBool, .help = "include the pictures of a finished job", .standard = false};
}

Argument wait_argument() {
  return {.name = "max_wait",
          .type = kNumber,
          .help = "seconds to wait for the job to end",
          .standard = 0,
          .least = 0,
          .most = 86400,
          .value = "SECS"};
}

Argument id_argument(const char* help) {
  return {.name = "id", .help = help, .required = true, .positional = true};
}

std::vector<Argument> create_arguments() {
  return {
      {.name = "prompt", .help = "what to draw, or what to change", .most_bytes = kMostPromptBytes},
      {.name = "type", .help = "generate or edit (default: edit if there are images)", .choices = {"generate", "edit"}},
      {.name = "model", .help = "a name from models_list (default: the first that fits)"},
      {.name = "n", .type = kInteger, .help = "number of pictures", .least = 1, .most = kMostOfOne},
      {.name = "size", .help = "auto or WIDTHxHEIGHT, both divisible by 16, at most 3840x2160"},
      {.name = "quality",
       .help = "number of steps, unless steps is given: low, medium, high (the model's default), auto",
       .choices = {"auto", "low", "medium", "high", "standard", "hd"}},
      {.name = "background", .help = "auto or opaque", .choices = {"auto", "opaque"}},
      {.name = "output_format", .help = "png, jpeg or webp", .choices = {"png", "jpeg", "webp"}},
      {.name = "output_compression", .type = kInteger, .help = "quality of jpeg and webp", .least = 0, .most = 100},
      {.name = "seed",
       .type = kInteger,
       .help = "seed of the first picture; n increments it",
       .least = 0,
       .most = 4.6e18},
      {.name = "steps", .type = kInteger, .help = "denoising steps", .least = 1, .most = kMostSteps},
      {.name = "guidance", .type = kNumber, .help = "true classifier-free guidance; 1: none", .least = 0, .most = 100},
      {.name = "negative_prompt", .help = "what to avoid", .most_bytes = kMostPromptBytes},
      {.name = "images",
       .type = kTextList,
       .help = "pictures as data URLs (data:image/png;base64,...), at most 16",
       .most_bytes = kMostPictureText},
      {.name = "mask",
       .help = "a data URL: draw only where it is white or transparent",
       .most_bytes = kMostPictureText},
      {.name = "strength",
       .type = kNumber,
       .help = "with a mask or an initial picture: share of the steps to run",
       .least = 0,
       .most = 1},
      {.name = "latents", .help = "initial noise: a .npy file in base64", .most_bytes = kMostPictureText},
      {.name = "sigmas", .type = kTextList, .help = "custom schedule: numbers in (0, 1]"},
      {.name = "schedule", .help = "model or lightning", .choices = {"model", "lightning"}},
      {.name = "guidance_run", .help = "auto, passes or batch", .choices = {"auto", "passes", "batch"}},
      {.name = "dtype", .help = "f32 or bf16", .choices = {"f32", "bf16"}},
      {.name = "quantize",
       .help = "quantise transformer weights to N bits (MLX scheme), or fp8",
       .choices = {"2", "3", "4", "6", "8", "fp8"}},
      {.name = "device", .help = "auto (the server's device), cpu, reference, cuda, cuda:N or mlx"},
      {.name = "vae_tiling", .type = kBool, .help = "encode and decode in tiles"},
      {.name = "max_prompt_tokens", .type = kInteger, .help = "truncate longer prompts", .least = 1, .most = 1024},
      {.name = "resolution", .type = kInteger, .help = "edit: side of the working area", .least = 32, .most = 4096},
      {.name = "condition_resolution",
       .type = kInteger,
       .help = "edit: side of the text encoder's copy",
       .least = 32,
       .most = 4096},
      {.name = "image_positions", .help = "edit: official or mrope", .choices = {"official", "mrope"}},
      {.name = "layers", .type = kInteger, .help = "layered models: number of layers", .least = 1, .most = 64},
      {.name = "caption", .help = "layered models: model or greedy", .choices = {"model", "greedy"}},
      {.name = "english_caption", .type = kBool, .help = "layered models: describe in English"},
      {.name = "rescale_guidance", .type = kBool, .help = "layered models: rescale guidance"},
      {.name = "user", .help = "separates the people behind one client, so that they take turns"},
      wait_argument(),
      show_argument(),
  };
}

constexpr const char* kJobResult =
    "id:string object:string type:string status:string created:integer model:string prompt:string size:string "
    "n:integer seed:integer steps:integer guidance:number images:objects error?:object progress?:object "
    "position?:integer eta_s?:number timings?:object usage?:object shown?:objects";

}  // namespace

std::vector<Operation> picture_operations() {
  return {
      {.name = "jobs create",
       .help = "request pictures from a prompt or from other pictures, without waiting for them",
       .arguments = create_arguments(),
       .result = kJobResult,
       .examples = {"lockstep jobs create --prompt 'three green stars' --seed 1 --max-wait 60"},
       .route = "/v1/jobs",
       .call = &call_create},
      {.name = "jobs list",
       .help = "list queued, running and finished jobs, newest first",
       .arguments =
           {{.name = "limit", .type = kInteger, .help = "maximum number", .standard = 50, .least = 1, .most = 500},
            {.name = "status",
             .help = "only jobs with this status",
             .choices = {"queued", "running", "completed", "failed", "cancelled"}}},
       .result = "object:string data:objects has_more:boolean",
       .reads = true,
       .examples = {"lockstep jobs list --status running"},
       .route = "/v1/jobs",
       .call = &call_list},
      {.name = "jobs show",
       .help = "show the progress of a job and its pictures",
       .arguments = {id_argument("a job"), wait_argument(), show_argument()},
       .result = kJobResult,
       .reads = true,
       .examples = {"lockstep jobs show ID"},
       .route = "/v1/jobs/{id}",
       .call = &call_show},
      {.name = "jobs cancel",
       .help = "cancel a job at the next layer; a finished job is left unchanged",
       .arguments = {id_argument("a job")},
       .result = kJobResult,
       .examples = {"lockstep jobs cancel ID"},
       .route = "/v1/jobs/{id}/cancel",
       .call = &call_cancel},
      {.name = "models list",
       .help = "list the models that can draw",
       .arguments = {},
       .result = "object:string data:objects",
       .reads = true,
       .examples = {"curl -H @key \"$(cat url)/v1/models\""},
       .route = "/v1/models",
       .call = &call_models},
      {.name = "models show",
       .help = "show one model: its class, default size and default steps",
       .arguments = {id_argument("a model's name")},
       .result = "id:string object:string created:integer owned_by:string class:string type:string size:string "
                 "steps:integer guidance:number",
       .reads = true,
       .examples = {"curl -H @key \"$(cat url)/v1/models/tiny\""},
       .route = "/v1/models/{id}",
       .call = &call_model},
  };
}

}  // namespace lockstep
