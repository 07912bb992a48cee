// What somebody wants drawn: the fields of a request, read once and strictly. The same fields come from the OpenAI
// routes, from /v1/jobs, from agents and, after a restart, from the disk.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "pipeline/generate.h"

namespace lockstep {

inline constexpr size_t kMostPromptCharacters = 32000;
inline constexpr size_t kMostPictures = 16;
inline constexpr uint64_t kMostPictureBytes = 50ull << 20;
inline constexpr uint64_t kMostPicturePixels = 1ull << 25;  // of one that comes with a request, decoded
inline constexpr int kLongestSide = 3840;
inline constexpr int64_t kMostPixels = 3840ll * 2160;
inline constexpr int kMostOfOne = 10;  // pictures of one request
inline constexpr int kMostSteps = 1000;

// A picture that came with a request: bytes in memory, or a file of our own that they were spooled to.
struct Upload {
  std::string bytes;
  fs::path spooled;

  Tensor pixels(const std::string& parameter) const;  // decoded; the error names the parameter
};
Upload upload_from_data_url(const std::string& url, const std::string& parameter);

struct Uploads {
  std::vector<Upload> pictures;
  Upload mask;
  bool has_mask = false;
};

struct DrawRequest {
  Json fields = Json::object();  // as told, without pictures: what is kept on disk
  std::string kind, model;       // "generate" or "edit"; the model's name
  int count = 1;
  bool seed_given = false;
  std::string output_format = "png", quality = "auto", background = "auto", user;
  int compression = -1;  // -1: the format's own
  int partial_images = 0;
  DType dtype = DType::kF32;
  std::string quantize, schedule = "model", guidance_run = "auto";
  std::string device = "auto";  // auto: the server's own
  bool tiling = false, layered = false;
  std::vector<size_t> text_tokens;  // of the prompt and the negative prompt
  GenerateRequest first;            // of the first picture; pictures and mask are read when it is drawn
  std::shared_ptr<const Uploads> uploads;
  size_t upload_count = 0;                      // pictures that came with it, also when they are gone
  int standard_width = 0, standard_height = 0;  // of the model's pictures

  std::string size_text() const;
  int64_t image_tokens() const;  // of one picture; where its size follows an upload, of the model's own size
  std::string shape() const;     // equal for requests that may be drawn together
  // The request of one picture, with its seed, and everything that was uploaded.
  GenerateRequest picture(int index) const;
  GenerateSettings settings() const;
};

// Fields as in docs/server.md. `kind` says which command's defaults hold. ParameterError names what is wrong.
DrawRequest read_draw_request(const std::string& kind, const Json& fields, std::shared_ptr<const Uploads> uploads,
                              const std::string& model_name, const ModelFolder& model);

}  // namespace lockstep
