// The pipelines that take pictures against what the official classes computed: every tap that both sides have.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "io/image.h"
#include "io/picture_modes.h"
#include "pipeline/generate.h"
#include "support/golden_recording.h"

namespace lockstep {
namespace {

using testing::CollectingTap;
using testing::GoldenRecording;
using testing::kF32Bound;
using testing::kGoldens;
using testing::relative_l2;

struct PictureGolden {
  const char *folder, *stem, *model, *backend;
  size_t least;  // tensors that have to be compared
};

void PrintTo(const PictureGolden& golden, std::ostream* out) {
  *out << golden.folder << "/" << golden.stem << " on " << golden.backend;
}

GenerateRequest picture_request(const Json& settings, const fs::path& folder) {
  GenerateRequest request;
  request.prompt = settings["prompt"];
  if (!settings["negative_prompt"].is_null()) request.negative_prompt = settings["negative_prompt"].get<std::string>();
  request.width = settings["width"].is_null() ? 0 : settings["width"].get<int>();
  request.height = settings["height"].is_null() ? 0 : settings["height"].get<int>();
  request.steps = settings["steps"];
  request.guidance = settings["guidance"];
  request.seed = settings["seed"];
  request.strength = settings.value("strength", request.strength);
  request.resolution = settings.value("resolution", 0);
  request.condition_resolution = settings.value("condition_resolution", 0);
  if (settings.value("mrope", false)) request.positions = ImagePositions::kMrope;
  const bool layered = settings.contains("layers");
  if (layered) request.layers = settings["layers"];
  if (settings.contains("options")) request.english_caption = settings["options"].value("use_en_prompt", false);
  for (const Json& name : settings["pictures"]) {
    const Tensor pixels = read_image(folder / name.get<std::string>()).pixels;
    request.pictures.push_back(layered ? rgba_picture(pixels) : rgb_over_white(pixels));
  }
  if (settings.contains("mask"))
    request.mask = mask_picture(read_image(folder / settings["mask"].get<std::string>()).pixels);
  return request;
}

// The same components under another class: what diffusers' from_pipe does.
class FolderOfClass {
 public:
  FolderOfClass(const fs::path& model, const std::string& class_name)
      : path(fs::temp_directory_path() / ("lockstep-" + class_name + std::to_string(::getpid()))) {
    fs::remove_all(path);
    fs::create_directory(path);
    for (const auto& entry : fs::directory_iterator(model))
      if (entry.is_directory()) fs::create_directory_symlink(entry.path(), path / entry.path().filename());
    Json index = read_json(model / "model_index.json");
    if (!class_name.empty()) index["_class_name"] = class_name;
    std::ofstream(path / "model_index.json") << index.dump();
  }
  ~FolderOfClass() { fs::remove_all(path); }
  const fs::path path;
};

class PictureGoldens : public ::testing::TestWithParam<PictureGolden> {};

TEST_P(PictureGoldens, AgreeWithTheOfficialPipelineAtEveryTap) {
  const fs::path folder = kGoldens / GetParam().folder;
  const GoldenRecording golden(folder / GetParam().stem);
  CollectingTap ours;
  const std::unique_ptr<Backend> backend = make_backend(GetParam().backend);
  GenerateSettings run;
  run.tap = &ours;
  const FolderOfClass model(kGoldens / GetParam().model, golden.settings().value("as_class", ""));
  const std::vector<GeneratedImage> images =
      generate(ModelFolder::open(model.path), *backend, run, {picture_request(golden.settings(), folder)});
  if (golden.settings().contains("caption")) {
    EXPECT_EQ(images.at(0).caption, golden.settings()["caption"].get<std::string>());
  }
  size_t compared = 0;
  for (const TensorKey& key : ours.order) {
    if (!golden.has(key)) continue;
    const Tensor expected = golden.tensor(key), &got = ours.tensors.at(key);
    ASSERT_EQ(expected.shape(), got.shape()) << to_string(key);
    ++compared;
    if (key.name == "image" || key.name == "images") {
      const std::vector<double> a = to_doubles(expected), b = to_doubles(got);
      for (size_t i = 0; i < a.size(); ++i) ASSERT_LE(std::fabs(a[i] - b[i]), 1) << "pixel " << i;
      continue;
    }
    ASSERT_LE(relative_l2(expected, got), kF32Bound) << "first divergence: " << to_string(key);
  }
  EXPECT_GE(compared, GetParam().least) << "most of the recording has to be paired, or nothing is proven";
}

INSTANTIATE_TEST_SUITE_P(All, PictureGoldens,
                         ::testing::Values(PictureGolden{"edit", "two", "edit/model", "reference", 150},
                                           PictureGolden{"edit", "two", "edit/model", "cpu", 150},
                                           PictureGolden{"edit", "mrope", "edit/model", "cpu", 15},
                                           PictureGolden{"edit", "one", "edit/model", "cpu", 15},
                                           PictureGolden{"edit", "masked", "edit/model", "cpu", 15},
                                           PictureGolden{"start", "image", "t2i_f32/model", "cpu", 12},
                                           PictureGolden{"start", "masked", "t2i_f32/model", "cpu", 15},
                                           PictureGolden{"layered", "described", "layered/model", "cpu", 12},
                                           PictureGolden{"layered", "captioned", "layered/model", "cpu", 12}));

}  // namespace
}  // namespace lockstep
