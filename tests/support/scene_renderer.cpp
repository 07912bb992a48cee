#include "support/scene_renderer.h"

#include <algorithm>
#include <cmath>

namespace lockstep::testing {
namespace {

double uniform(std::mt19937_64& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
}

template <typename T>
const T& pick(std::mt19937_64& random, const std::vector<T>& from) {
  return from[random() % from.size()];
}

void draw(const SceneDefinitions& definitions, const Sprite& sprite, int width, int height,
          std::vector<Color>& canvas) {
  const double reach = 1.2 * sprite.r + 2;  // the longest outline ends at 1.08 r
  const int left = std::max(0, static_cast<int>(sprite.cx - reach)),
            top = std::max(0, static_cast<int>(sprite.cy - reach));
  const int right = std::min(width, static_cast<int>(sprite.cx + reach) + 1);
  const int bottom = std::min(height, static_cast<int>(sprite.cy + reach) + 1);
  for (int y = top; y < bottom; ++y)
    for (int x = left; x < right; ++x) {
      const double u = (x + 0.5 - sprite.cx) / sprite.r, v = (y + 0.5 - sprite.cy) / sprite.r;
      const double distance = sprite.shape.empty() ? definitions.letter_distance(sprite.letter, u, v)
                                                   : definitions.shape_distance(sprite.shape, u, v);
      const double cover = std::clamp(0.5 - distance * sprite.r, 0.0, 1.0);
      Color& pixel = canvas[static_cast<size_t>(y * width + x)];
      for (size_t c = 0; c < 3; ++c) pixel[c] += cover * (sprite.color[c] - pixel[c]);
    }
}

constexpr double kMinContrast = 110;  // between ink and background, and between two objects
constexpr size_t kObjectColors = 10;  // the first of the palette; the others are backgrounds only

struct Layout {
  std::vector<Point> spots;  // fractions of the picture
  double smallest, largest;  // radius as a fraction of the shorter side
};

const std::vector<Layout>& layouts_of(int count) {
  static const std::map<int, std::vector<Layout>> kLayouts{
      {2, {{{{0.27, 0.5}, {0.73, 0.5}}, 0.12, 0.2}, {{{0.5, 0.27}, {0.5, 0.73}}, 0.12, 0.2}}},
      {3,
       {{{{0.19, 0.5}, {0.5, 0.5}, {0.81, 0.5}}, 0.105, 0.135},
        {{{0.5, 0.27}, {0.27, 0.72}, {0.73, 0.72}}, 0.12, 0.175}}},
      {4, {{{{0.27, 0.27}, {0.73, 0.27}, {0.27, 0.73}, {0.73, 0.73}}, 0.12, 0.18}}}};
  return kLayouts.at(count);
}

}  // namespace

Tensor render(const SceneDefinitions& definitions, const Scene& scene) {
  std::vector<Color> canvas(static_cast<size_t>(scene.width * scene.height), scene.background);
  for (const Sprite& sprite : scene.sprites) draw(definitions, sprite, scene.width, scene.height, canvas);
  Tensor pixels = Tensor::empty(DType::kU8, {scene.height, scene.width, 3});
  uint8_t* out = pixels.mutable_data<uint8_t>();
  for (const Color& pixel : canvas)
    for (const double level : pixel) *out++ = static_cast<uint8_t>(std::lround(std::clamp(level, 0.0, 255.0)));
  return pixels;
}

Expected random_expectation(const SceneDefinitions& definitions, SceneKind kind, const std::string& background,
                            std::mt19937_64& random) {
  Expected expected;
  expected.kind = kind;
  expected.background = background;
  const auto fresh_color = [&] {
    for (;;) {
      const std::string& name = definitions.colors()[random() % kObjectColors].first;
      const auto contrasts = [&](const std::string& other) {
        return color_distance(definitions.color(name), definitions.color(other)) >= kMinContrast;
      };
      if (contrasts(background) && std::all_of(expected.colors.begin(), expected.colors.end(), contrasts)) return name;
    }
  };
  if (kind == SceneKind::kWord) {
    expected.colors = {fresh_color()};
    for (size_t i = 0, length = 1 + random() % 4; i < length; ++i)
      expected.word += static_cast<char>('A' + random() % 26);
    return expected;
  }
  if (kind == SceneKind::kPair) {
    for (int i = 0; i < 2; ++i) {
      expected.colors.push_back(fresh_color());
      expected.shapes.push_back(pick(random, definitions.shapes()));
    }
    expected.relation = pick<std::string>(random, {"left", "right", "above", "below"});
  } else {
    const size_t copies = kind == SceneKind::kSingle ? 1 : 2 + random() % 3;
    expected.colors.assign(copies, fresh_color());
    expected.shapes.assign(copies, pick(random, definitions.shapes()));
  }
  expected.count = static_cast<int>(expected.shapes.size());
  return expected;
}

Scene lay_out(const SceneDefinitions& definitions, const Expected& expected, int width, int height,
              std::mt19937_64& random) {
  Scene scene{width, height, definitions.color(expected.background), {}};
  const double side = std::min(width, height);
  const auto add = [&](size_t object, double x, double y, double r) {
    scene.sprites.push_back({expected.shapes[object], 0, x, y, r, definitions.color(expected.colors[object])});
  };
  switch (expected.kind) {
    case SceneKind::kWord: {
      const double length = static_cast<double>(expected.word.size());
      const double cell =
          std::min(0.93 * width / (kFontPitch * length - 1), 0.55 * height / kFontRows) * uniform(random, 0.96, 1);
      const double cx = width * uniform(random, 0.492, 0.508), cy = height * uniform(random, 0.47, 0.53);
      for (size_t i = 0; i < expected.word.size(); ++i)
        scene.sprites.push_back({"", expected.word[i],
                                 cx + (static_cast<double>(i) - (length - 1) / 2) * kFontPitch * cell, cy,
                                 cell * kFontRows / 2, definitions.color(expected.colors[0])});
      break;
    }
    case SceneKind::kSingle: {
      const bool centered = random() % 2;
      const double r = side * (centered ? uniform(random, 0.10, 0.35) : uniform(random, 0.10, 0.215));
      const double reach = 1.1 * r + 2;
      const std::vector<double> places{0.26, 0.5, 0.74};
      const double fx = centered ? uniform(random, 0.45, 0.55) : pick(random, places);
      const double fy = centered ? uniform(random, 0.45, 0.55) : pick(random, places);
      add(0, std::clamp(fx * width, reach, width - reach), std::clamp(fy * height, reach, height - reach), r);
      break;
    }
    case SceneKind::kPair: {
      const bool across = expected.relation == "left" || expected.relation == "right";
      const bool forward = expected.relation == "left" || expected.relation == "above";
      for (size_t i = 0; i < 2; ++i) {
        const double r = side * pick<double>(random, {0.115, 0.17, 0.22}) * uniform(random, 0.94, 1.06);
        const double along = (forward == (i == 0) ? 0.26 : 0.74) + uniform(random, -0.015, 0.015);
        const double aside = uniform(random, 0.46, 0.54);
        add(i, width * (across ? along : aside), height * (across ? aside : along), r);
      }
      break;
    }
    case SceneKind::kCount: {
      const Layout& layout = pick(random, layouts_of(expected.count));
      const double r = side * uniform(random, layout.smallest, layout.largest);
      for (size_t i = 0; i < layout.spots.size(); ++i)
        add(i, width * (layout.spots[i].x + uniform(random, -0.015, 0.015)),
            height * (layout.spots[i].y + uniform(random, -0.015, 0.015)), r);
      break;
    }
  }
  return scene;
}

}  // namespace lockstep::testing
