#include "support/scene_segmentation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace lockstep::testing {
namespace {

constexpr int kNone = -1;
constexpr std::array<std::pair<int, int>, 8> kNeighbours{
    {{-1, 0}, {1, 0}, {0, -1}, {0, 1}, {-1, -1}, {1, -1}, {-1, 1}, {1, 1}}};

struct Picture {
  int width = 0, height = 0;
  std::vector<Color> pixels;

  int size() const { return width * height; }
  const Color& at(int i) const { return pixels[static_cast<size_t>(i)]; }

  template <typename Visit>
  void neighbours(int i, size_t count, Visit visit) const {
    const int x = i % width, y = i / width;
    for (size_t n = 0; n < count; ++n) {
      const int nx = x + kNeighbours[n].first, ny = y + kNeighbours[n].second;
      if (nx >= 0 && nx < width && ny >= 0 && ny < height) visit(ny * width + nx);
    }
  }
};

Picture picture_from(const Tensor& tensor) {
  Picture picture{static_cast<int>(tensor.dim(1)), static_cast<int>(tensor.dim(0)), {}};
  const Tensor packed = tensor.contiguous();
  const uint8_t* levels = packed.data<uint8_t>();
  picture.pixels.resize(static_cast<size_t>(picture.size()));
  for (Color& pixel : picture.pixels)
    for (double& level : pixel) level = *levels++;
  return picture;
}

Color median_color(const std::vector<Color>& colors) {
  Color median{};
  std::vector<double> levels(colors.size());
  for (size_t c = 0; c < 3; ++c) {
    std::transform(colors.begin(), colors.end(), levels.begin(), [c](const Color& color) { return color[c]; });
    const auto middle = levels.begin() + static_cast<std::ptrdiff_t>(levels.size() / 2);
    std::nth_element(levels.begin(), middle, levels.end());
    median[c] = *middle;
  }
  return median;
}

std::vector<Color> border_of(const Picture& picture) {
  constexpr int kBorder = 2;  // a four-letter word comes within four pixels of the edge
  std::vector<Color> border;
  for (int i = 0; i < picture.size(); ++i) {
    const int x = i % picture.width, y = i / picture.width;
    if (std::min({x, y, picture.width - 1 - x, picture.height - 1 - y}) < kBorder) border.push_back(picture.at(i));
  }
  return border;
}

// Labels connected pixels 0, 1, ...; `joins(a, b)` says whether two neighbouring pixels of the mask belong together.
int label_parts(const Picture& picture, const std::vector<bool>& mask, std::vector<int>& label,
                const std::function<bool(int, int)>& joins) {
  label.assign(mask.size(), kNone);
  int parts = 0;
  std::vector<int> stack;
  for (int start = 0; start < picture.size(); ++start) {
    if (!mask[static_cast<size_t>(start)] || label[static_cast<size_t>(start)] != kNone) continue;
    label[static_cast<size_t>(start)] = parts;
    stack = {start};
    while (!stack.empty()) {
      const int i = stack.back();
      stack.pop_back();
      picture.neighbours(i, 8, [&](int n) {
        if (!mask[static_cast<size_t>(n)] || label[static_cast<size_t>(n)] != kNone || !joins(i, n)) return;
        label[static_cast<size_t>(n)] = parts;
        stack.push_back(n);
      });
    }
    ++parts;
  }
  return parts;
}

// The inks of a picture as regions: flat insides first, then every other pixel of the foreground goes to the region it
// touches, because an anti-aliased edge of red on white is pink by its colour and red by its place.
struct Regions {
  std::vector<int> label;  // region of each pixel, or kNone
  std::vector<Color> ink;
  std::vector<double> area;
};

Regions find_regions(const Picture& picture, const Color& background) {
  constexpr double kForeground = 30;               // levels: above the noise of the background
  constexpr double kFlat = 14, kFlatShare = 0.16;  // levels, or share of the contrast
  constexpr double kSameInk = 60;                  // levels: two inks of the grammar are 110 apart
  const size_t size = static_cast<size_t>(picture.size());
  std::vector<bool> foreground(size), flat(size);
  for (int i = 0; i < picture.size(); ++i) {
    const double contrast = color_distance(picture.at(i), background);
    foreground[static_cast<size_t>(i)] = contrast > kForeground;
    double steepest = 0;
    picture.neighbours(i, 4,
                       [&](int n) { steepest = std::max(steepest, color_distance(picture.at(i), picture.at(n))); });
    flat[static_cast<size_t>(i)] = contrast > kForeground && steepest < std::max(kFlat, kFlatShare * contrast);
  }
  Regions regions;
  int count = label_parts(picture, flat, regions.label,
                          [&](int a, int b) { return color_distance(picture.at(a), picture.at(b)) < kSameInk; });
  // strokes too thin to have a flat inside: their own region, its ink the strongest third
  std::vector<int> whole;
  const int wholes = label_parts(picture, foreground, whole, [](int, int) { return true; });
  // a flat of a few pixels beside a larger one is a coincidence on an edge, and its colour a mixture
  constexpr int kLeastFlat = 6;
  std::vector<int> flat_size(static_cast<size_t>(count)), largest(static_cast<size_t>(wholes));
  for (const int label : regions.label)
    if (label != kNone) ++flat_size[static_cast<size_t>(label)];
  for (size_t i = 0; i < size; ++i)
    if (regions.label[i] != kNone) {
      int& most = largest[static_cast<size_t>(whole[i])];
      most = std::max(most, flat_size[static_cast<size_t>(regions.label[i])]);
    }
  std::vector<bool> seeded(static_cast<size_t>(wholes));
  for (size_t i = 0; i < size; ++i) {
    if (regions.label[i] == kNone) continue;
    const int flat_pixels = flat_size[static_cast<size_t>(regions.label[i])];
    if (flat_pixels < kLeastFlat && flat_pixels < largest[static_cast<size_t>(whole[i])])
      regions.label[i] = kNone;
    else
      seeded[static_cast<size_t>(whole[i])] = true;
  }
  std::vector<std::vector<Color>> inside(static_cast<size_t>(count + wholes));
  for (size_t i = 0; i < size; ++i) {
    if (whole[i] != kNone && !seeded[static_cast<size_t>(whole[i])]) regions.label[i] = count + whole[i];
    if (regions.label[i] != kNone) inside[static_cast<size_t>(regions.label[i])].push_back(picture.pixels[i]);
  }
  for (size_t part = 0; part < inside.size(); ++part) {
    std::vector<Color>& colors = inside[part];
    if (colors.size() > 3 && part >= static_cast<size_t>(count)) {
      std::sort(colors.begin(), colors.end(), [&](const Color& a, const Color& b) {
        return color_distance(a, background) > color_distance(b, background);
      });
      colors.resize(colors.size() / 3);
    }
    regions.ink.push_back(colors.empty() ? background : median_color(colors));
  }
  // grow into the rest of the foreground, ring by ring
  std::vector<int> front, next;
  for (int i = 0; i < picture.size(); ++i)
    if (regions.label[static_cast<size_t>(i)] != kNone) front.push_back(i);
  for (; !front.empty(); front.swap(next)) {
    next.clear();
    for (const int i : front)
      picture.neighbours(i, 8, [&](int n) {
        if (!foreground[static_cast<size_t>(n)] || regions.label[static_cast<size_t>(n)] != kNone) return;
        regions.label[static_cast<size_t>(n)] = regions.label[static_cast<size_t>(i)];
        next.push_back(n);
      });
  }
  regions.area.assign(regions.ink.size(), 0);
  for (const int label : regions.label)
    if (label != kNone) ++regions.area[static_cast<size_t>(label)];
  return regions;
}

// Touching regions become one when their inks are alike, or when one is a stain on the other.
void merge_regions(const Picture& picture, Regions& regions) {
  constexpr double kAlike = 45, kStain = 0.12;
  std::vector<int> parent(regions.ink.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int label) {
    while (parent[static_cast<size_t>(label)] != label) label = parent[static_cast<size_t>(label)];
    return label;
  };
  for (int i = 0; i < picture.size(); ++i)
    picture.neighbours(i, 8, [&](int n) {
      const int here = regions.label[static_cast<size_t>(i)], there = regions.label[static_cast<size_t>(n)];
      if (here == kNone || there == kNone) return;
      int a = root(here), b = root(there);
      if (a == b) return;
      const auto at = [](auto& values, int index) -> auto& {
        return values[static_cast<size_t>(index)];
      };
      if (at(regions.area, a) < at(regions.area, b)) std::swap(a, b);
      if (color_distance(at(regions.ink, a), at(regions.ink, b)) > kAlike &&
          at(regions.area, b) > kStain * at(regions.area, a))
        return;
      at(parent, b) = a;
      at(regions.area, a) += at(regions.area, b);
    });
  for (int& label : regions.label)
    if (label != kNone) label = root(label);
}

SceneObject object_from(const Picture& picture, const std::vector<int>& members, const std::vector<double>& cover,
                        const Color& ink) {
  SceneObject object;
  object.ink = ink;
  int right = 0, bottom = 0;
  object.left = picture.width;
  object.top = picture.height;
  for (const int i : members) {
    object.left = std::min(object.left, i % picture.width);
    right = std::max(right, i % picture.width + 1);
    object.top = std::min(object.top, i / picture.width);
    bottom = std::max(bottom, i / picture.width + 1);
  }
  object.width = right - object.left;
  object.height = bottom - object.top;
  object.cover.assign(static_cast<size_t>(object.width * object.height), 0.0);
  double xx = 0, yy = 0;
  for (const int i : members) {
    const int x = i % picture.width, y = i / picture.width;
    const double share = cover[static_cast<size_t>(i)];
    object.cover[static_cast<size_t>((y - object.top) * object.width + x - object.left)] = share;
    object.area += share;
    object.cx += share * (x + 0.5);
    object.cy += share * (y + 0.5);
    xx += share * (x + 0.5) * (x + 0.5);
    yy += share * (y + 0.5) * (y + 0.5);
  }
  object.cx /= object.area;
  object.cy /= object.area;
  object.spread_x = xx / object.area - object.cx * object.cx;
  object.spread_y = yy / object.area - object.cy * object.cy;
  return object;
}

// Two objects that touch in a pixel or two are two: the eye cuts them at the bridge. Labels the solid pixels of the
// mask so that parts which fall apart when the mask loses its rim are apart.
std::vector<int> split_at_bridges(const Picture& picture, const std::vector<bool>& solid,
                                  const std::vector<int>& region, double smallest) {
  const auto same = [&](int a, int b) { return region[static_cast<size_t>(a)] == region[static_cast<size_t>(b)]; };
  std::vector<bool> core(solid.size());
  for (int i = 0; i < picture.size(); ++i) {
    bool inner = solid[static_cast<size_t>(i)];
    picture.neighbours(i, 4, [&](int n) { inner = inner && solid[static_cast<size_t>(n)]; });
    core[static_cast<size_t>(i)] = inner;
  }
  std::vector<int> whole, part;
  const int wholes = label_parts(picture, solid, whole, same);
  const int parts = label_parts(picture, core, part, same);
  std::vector<double> area(static_cast<size_t>(parts));
  std::vector<int> owner(static_cast<size_t>(parts));
  for (size_t i = 0; i < part.size(); ++i)
    if (part[i] != kNone) {
      ++area[static_cast<size_t>(part[i])];
      owner[static_cast<size_t>(part[i])] = whole[i];
    }
  std::vector<double> largest(static_cast<size_t>(wholes));
  for (size_t p = 0; p < area.size(); ++p)
    largest[static_cast<size_t>(owner[p])] = std::max(largest[static_cast<size_t>(owner[p])], area[p]);
  std::vector<int> substantial(static_cast<size_t>(wholes));
  const auto counts = [&](size_t p) {
    return area[p] >= smallest && area[p] > 0.4 * largest[static_cast<size_t>(owner[p])];
  };
  for (size_t p = 0; p < area.size(); ++p)
    if (counts(p)) ++substantial[static_cast<size_t>(owner[p])];
  std::vector<int> label(solid.size(), kNone), front, next;
  for (int i = 0; i < picture.size(); ++i) {
    const size_t at = static_cast<size_t>(i);
    if (whole[at] == kNone) continue;
    if (substantial[static_cast<size_t>(whole[at])] < 2) {
      label[at] = whole[at];
    } else if (part[at] != kNone && counts(static_cast<size_t>(part[at]))) {
      label[at] = wholes + part[at];
      front.push_back(i);
    }
  }
  for (; !front.empty(); front.swap(next)) {
    next.clear();
    for (const int i : front)
      picture.neighbours(i, 8, [&](int n) {
        if (whole[static_cast<size_t>(n)] != whole[static_cast<size_t>(i)] || label[static_cast<size_t>(n)] != kNone)
          return;
        label[static_cast<size_t>(n)] = label[static_cast<size_t>(i)];
        next.push_back(n);
      });
  }
  return label;
}

}  // namespace

Segmentation segment(const Tensor& pixels, double smallest) {
  const Picture picture = picture_from(pixels);
  const std::vector<Color> border = border_of(picture);
  Segmentation result;
  result.background = median_color(border);
  constexpr double kPlain = 40;  // levels: still the same background
  result.background_share = static_cast<double>(std::count_if(
                                border.begin(), border.end(),
                                [&](const Color& c) { return color_distance(c, result.background) < kPlain; })) /
                            static_cast<double>(border.size());
  Regions regions = find_regions(picture, result.background);
  merge_regions(picture, regions);
  // cover: how far the pixel is on the way from background to ink
  const size_t size = static_cast<size_t>(picture.size());
  std::vector<double> cover(size);
  std::vector<bool> solid(size);
  for (size_t i = 0; i < size; ++i) {
    if (regions.label[i] == kNone) continue;
    const Color& ink = regions.ink[static_cast<size_t>(regions.label[i])];
    double along = 0, length = 1e-9;
    for (size_t c = 0; c < 3; ++c) {
      along += (picture.pixels[i][c] - result.background[c]) * (ink[c] - result.background[c]);
      length += (ink[c] - result.background[c]) * (ink[c] - result.background[c]);
    }
    cover[i] = std::clamp(along / length, 0.0, 1.0);
    solid[i] = cover[i] >= 0.5;
  }
  const double speck = smallest * static_cast<double>(picture.size()) / (128.0 * 128.0);
  std::vector<int> label = split_at_bridges(picture, solid, regions.label, speck);
  // the faint outer half of an edge belongs to the solid pixel beside it
  std::map<int, std::vector<int>> members;
  for (int i = 0; i < picture.size(); ++i) {
    int owner = label[static_cast<size_t>(i)];
    if (owner == kNone && cover[static_cast<size_t>(i)] > 0)
      picture.neighbours(i, 8, [&](int n) {
        if (owner == kNone && regions.label[static_cast<size_t>(n)] == regions.label[static_cast<size_t>(i)])
          owner = label[static_cast<size_t>(n)];
      });
    if (owner != kNone) members[owner].push_back(i);
  }
  for (const auto& [owner, pixels_of] : members) {
    const Color& ink = regions.ink[static_cast<size_t>(regions.label[static_cast<size_t>(pixels_of.front())])];
    SceneObject object = object_from(picture, pixels_of, cover, ink);
    if (object.area >= speck) result.objects.push_back(std::move(object));
  }
  std::sort(result.objects.begin(), result.objects.end(),
            [](const SceneObject& a, const SceneObject& b) { return a.area > b.area; });
  return result;
}

double hole_share(const SceneObject& object) {
  // paper that a walk from outside the box does not reach
  const int width = object.width + 2, height = object.height + 2;
  Picture frame{width, height, {}};
  const auto paper = [&](int i) {
    const int x = i % width - 1, y = i / width - 1;
    return x < 0 || y < 0 || x >= object.width || y >= object.height || object.at(x, y) < 0.5;
  };
  std::vector<bool> reached(static_cast<size_t>(frame.size()));
  std::vector<int> stack{0};
  reached[0] = true;
  while (!stack.empty()) {
    const int i = stack.back();
    stack.pop_back();
    frame.neighbours(i, 4, [&](int n) {
      if (reached[static_cast<size_t>(n)] || !paper(n)) return;
      reached[static_cast<size_t>(n)] = true;
      stack.push_back(n);
    });
  }
  double enclosed = 0;
  for (int i = 0; i < frame.size(); ++i)
    if (paper(i) && !reached[static_cast<size_t>(i)]) ++enclosed;
  return enclosed / std::max(object.area, 1.0);
}

}  // namespace lockstep::testing
