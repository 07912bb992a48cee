// The checker of generated pictures, itself checked on drawn ones: right on true promises, and not blind to false ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/scene_checker.h"
#include "support/scene_renderer.h"

namespace lockstep::testing {
namespace {

const SceneDefinitions& definitions() {
  static const SceneDefinitions kDefinitions(read_json(fs::path(LOCKSTEP_SOURCE_DIR) / "training/eval_prompts.json"));
  return kDefinitions;
}

constexpr double kBar = 0.99;

struct Score {
  int right = 0, of = 0;
  void add(bool value) {
    right += value;
    ++of;
  }
};

void expect_bar(const std::map<std::string, Score>& scores, const char* title) {
  fmt::print("{}\n", title);
  for (const auto& [name, score] : scores) {
    fmt::print("  {:<24} {:4d} of {:4d}\n", name, score.right, score.of);
    EXPECT_GE(score.right, kBar * score.of) << name;
  }
}

struct Drawn {
  Expected expected;
  Scene scene;
};

// Sanitizers look at memory, and every kind on every background shows it to them: the judgement's shares are taken
// from the plain build.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMostOfEach = 1;
#else
constexpr int kMostOfEach = 8;
#endif

// Every kind on every background, `each` times.
void for_every_kind_and_background(int each, int width, int height,
                                   const std::function<void(const Drawn&, std::mt19937_64&)>& visit) {
  std::mt19937_64 random(7);
  for (const auto& [background, color] : definitions().colors())
    for (const SceneKind kind : {SceneKind::kSingle, SceneKind::kPair, SceneKind::kCount, SceneKind::kWord})
      for (int i = 0; i < std::min(each, kMostOfEach); ++i) {
        Drawn drawn;
        drawn.expected = random_expectation(definitions(), kind, background, random);
        drawn.scene = lay_out(definitions(), drawn.expected, width, height, random);
        visit(drawn, random);
      }
}

// What a small autoencoder does to a picture: soft edges and a few levels of noise.
Tensor degrade(const Tensor& pixels, std::mt19937_64& random) {
  const int64_t height = pixels.dim(0), width = pixels.dim(1);
  Tensor out = Tensor::empty(DType::kU8, pixels.shape());
  const uint8_t* from = pixels.data<uint8_t>();
  uint8_t* to = out.mutable_data<uint8_t>();
  std::normal_distribution<double> noise(0, 5);
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        double sum = 0, weights = 0;
        for (int64_t dy = -1; dy <= 1; ++dy)
          for (int64_t dx = -1; dx <= 1; ++dx) {
            const int64_t ny = std::clamp<int64_t>(y + dy, 0, height - 1),
                          nx = std::clamp<int64_t>(x + dx, 0, width - 1);
            const double weight = (dx == 0 ? 2 : 1) * (dy == 0 ? 2 : 1);
            sum += weight * from[(ny * width + nx) * 3 + c];
            weights += weight;
          }
        to[(y * width + x) * 3 + c] =
            static_cast<uint8_t>(std::lround(std::clamp(sum / weights + noise(random), 0.0, 255.0)));
      }
  return out;
}

void expect_right_on_true_promises(int each, int width, int height, bool degraded) {
  const SceneChecker checker(definitions());
  std::map<std::string, Score> scores;
  int told = 0;
  for_every_kind_and_background(each, width, height, [&](const Drawn& drawn, std::mt19937_64& random) {
    Tensor pixels = render(definitions(), drawn.scene);
    if (degraded) pixels = degrade(pixels, random);
    const Verdict verdict = checker.judge(pixels, drawn.expected);
    for (const Measure& measure : kMeasures)
      if (const std::optional<bool> value = verdict.*measure.value) scores[measure.name].add(*value);
    if (!verdict.all_right() && told++ < 10)
      fmt::print("  misjudged: {} {} {} {} on {}: sees {}\n", drawn.expected.count, drawn.expected.colors[0],
                 drawn.expected.shapes.empty() ? drawn.expected.word : drawn.expected.shapes.back(),
                 drawn.expected.relation, drawn.expected.background, checker.describe(pixels, drawn.expected));
  });
  ASSERT_EQ(scores.size(), kMeasures.size());
  expect_bar(scores, fmt::format("{}x{}{}", width, height, degraded ? ", blurred and noisy" : "").c_str());
}

TEST(SceneChecker, IsRightOnDrawnScenes) {
  expect_right_on_true_promises(8, 128, 128, false);
}

TEST(SceneChecker, IsRightOnBlurredAndNoisyScenes) {
  expect_right_on_true_promises(8, 128, 128, true);
}

TEST(SceneChecker, IsRightOnOtherSizes) {
  expect_right_on_true_promises(4, 192, 128, false);
  expect_right_on_true_promises(4, 160, 256, false);
}

TEST(SceneChecker, FlagsWhatIsNotThere) {
  const SceneChecker checker(definitions());
  std::map<std::string, Score> flagged;
  for_every_kind_and_background(4, 128, 128, [&](const Drawn& drawn, std::mt19937_64& random) {
    const Tensor pixels = render(definitions(), drawn.scene);
    const auto another = [&](const std::string& than, const std::vector<std::string>& of) {
      for (;;)
        if (const std::string& picked = of[random() % of.size()]; picked != than) return picked;
    };
    std::vector<std::string> names;
    for (const auto& [name, color] : definitions().colors()) names.push_back(name);
    const auto flags = [&](const char* what, std::optional<bool> Verdict::*measure, const Expected& wrong) {
      flagged[what].add(!(checker.judge(pixels, wrong).*measure).value_or(true));
    };
    const Expected& truth = drawn.expected;
    Expected wrong = truth;
    wrong.background = another(truth.background, names);
    flags("background", &Verdict::background, wrong);
    wrong = truth;
    wrong.colors.back() = another(truth.colors.back(), names);
    if (truth.kind == SceneKind::kCount) wrong.colors.assign(truth.colors.size(), wrong.colors.back());
    flags("colors", &Verdict::colors, wrong);
    if (truth.kind == SceneKind::kWord) {
      wrong = truth;
      char& letter = wrong.word[random() % wrong.word.size()];
      letter = static_cast<char>('A' + (letter - 'A' + 1 + static_cast<int>(random() % 25)) % 26);
      flags("word: another letter", &Verdict::word, wrong);
      wrong.word = truth.word + "I";
      flags("word: a letter more", &Verdict::word, wrong);
      wrong.word = truth.word.substr(1);
      flags("word: a letter less", &Verdict::word, wrong);
      return;
    }
    wrong = truth;
    const size_t at = random() % truth.shapes.size();
    wrong.shapes[at] = another(truth.shapes[at], definitions().shapes());
    if (truth.kind == SceneKind::kCount) wrong.shapes.assign(truth.shapes.size(), wrong.shapes[at]);
    flags("shape", &Verdict::shape, wrong);
    if (truth.kind == SceneKind::kCount) {
      for (const int other : {1, 2, 3, 4, 5}) {
        wrong = truth;
        wrong.count = other;
        if (other != truth.count) flags("count", &Verdict::count, wrong);
      }
    }
    if (truth.kind == SceneKind::kPair) {
      wrong = truth;
      for (const char* other : {"left", "right", "above", "below"}) {
        wrong.relation = other;
        if (other != truth.relation) flags("relation", &Verdict::relation, wrong);
      }
      wrong = truth;
      std::swap(wrong.colors[0], wrong.colors[1]);
      flags("relation: swapped", &Verdict::relation, wrong);
    }
  });
  ASSERT_EQ(flagged.size(), 9u);
  expect_bar(flagged, "false promises flagged");
}

TEST(SceneChecker, FlagsPicturesThatWentWrong) {
  const SceneChecker checker(definitions());
  std::map<std::string, Score> flagged;
  for_every_kind_and_background(4, 128, 128, [&](const Drawn& drawn, std::mt19937_64& random) {
    Scene scene = drawn.scene;
    scene.sprites.clear();
    const Verdict blank = checker.judge(render(definitions(), scene), drawn.expected);
    for (const Measure& measure : kMeasures)
      if (measure.value != &Verdict::background && (blank.*measure.value).has_value())
        flagged["nothing drawn"].add(!*(blank.*measure.value));
    scene = drawn.scene;
    scene.background = definitions().color(drawn.expected.colors[0]);
    for (Sprite& sprite : scene.sprites) sprite.color = drawn.scene.background;
    const Verdict inverse = checker.judge(render(definitions(), scene), drawn.expected);
    flagged["inverse colours"].add(!*inverse.colors && !*inverse.background);
    if (drawn.expected.kind == SceneKind::kWord) return;
    scene = drawn.scene;
    scene.sprites.back().shape.clear();
    scene.sprites.back().letter = static_cast<char>('A' + random() % 26);
    flagged["a letter for a shape"].add(!*checker.judge(render(definitions(), scene), drawn.expected).shape);
    if (drawn.expected.kind == SceneKind::kCount) {
      scene = drawn.scene;
      scene.sprites.pop_back();
      flagged["one too few"].add(!*checker.judge(render(definitions(), scene), drawn.expected).count);
      scene = drawn.scene;
      const Sprite& model = scene.sprites.front();
      scene.sprites.push_back({model.shape, 0, 7, 7, 5.8, model.color});
      flagged["one too many"].add(!*checker.judge(render(definitions(), scene), drawn.expected).count);
    }
    if (drawn.expected.kind == SceneKind::kPair) {
      scene = drawn.scene;
      scene.sprites[0].color = scene.sprites[1].color;
      const Verdict same = checker.judge(render(definitions(), scene), drawn.expected);
      flagged["both in one colour"].add(!*same.colors && !*same.relation);
      scene = drawn.scene;
      std::swap(scene.sprites[0].shape, scene.sprites[1].shape);
      if (scene.sprites[0].shape != scene.sprites[1].shape)
        flagged["shapes swapped"].add(!*checker.judge(render(definitions(), scene), drawn.expected).shape);
    }
  });
  ASSERT_EQ(flagged.size(), 7u);
  expect_bar(flagged, "wrong pictures flagged");
}

}  // namespace
}  // namespace lockstep::testing
