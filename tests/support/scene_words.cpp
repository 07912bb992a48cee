#include <algorithm>
#include <cmath>

#include "support/scene_checker.h"

namespace lockstep::testing {
namespace {

struct Ink {
  int left = 0, top = 0, width = 0, height = 0;
  std::vector<double> sums;  // [(height + 1) * (width + 1)] integral of cover

  double integral(double x, double y) const {  // over [0, x) x [0, y), pixels are flat inside
    x = std::clamp(x, 0.0, static_cast<double>(width));
    y = std::clamp(y, 0.0, static_cast<double>(height));
    const int x0 = std::min(static_cast<int>(x), width - 1), y0 = std::min(static_cast<int>(y), height - 1);
    const double fx = x - x0, fy = y - y0;
    const auto at = [&](int column, int row) { return sums[static_cast<size_t>(row * (width + 1) + column)]; };
    return (at(x0, y0) * (1 - fx) + at(x0 + 1, y0) * fx) * (1 - fy) +
           (at(x0, y0 + 1) * (1 - fx) + at(x0 + 1, y0 + 1) * fx) * fy;
  }
  double mean(double x, double y, double w, double h) const {
    return (integral(x + w, y + h) - integral(x, y + h) - integral(x + w, y) + integral(x, y)) / (w * h);
  }
};

Ink ink_of(const std::vector<SceneObject>& strokes) {
  Ink ink{strokes[0].left, strokes[0].top, 0, 0, {}};
  int right = 0, bottom = 0;
  for (const SceneObject& stroke : strokes) {
    ink.left = std::min(ink.left, stroke.left);
    ink.top = std::min(ink.top, stroke.top);
    right = std::max(right, stroke.left + stroke.width);
    bottom = std::max(bottom, stroke.top + stroke.height);
  }
  ink.width = right - ink.left;
  ink.height = bottom - ink.top;
  std::vector<double> cover(static_cast<size_t>(ink.width * ink.height));
  for (const SceneObject& stroke : strokes)
    for (int y = 0; y < stroke.height; ++y)
      for (int x = 0; x < stroke.width; ++x) {
        const int column = x + stroke.left - ink.left, row = y + stroke.top - ink.top;
        double& pixel = cover[static_cast<size_t>(row * ink.width + column)];
        pixel = std::max(pixel, stroke.at(x, y));
      }
  ink.sums.assign(static_cast<size_t>((ink.width + 1) * (ink.height + 1)), 0.0);
  for (int y = 0; y < ink.height; ++y)
    for (int x = 0; x < ink.width; ++x) {
      const auto at = [&](int column, int row) -> double& {
        return ink.sums[static_cast<size_t>(row * (ink.width + 1) + column)];
      };
      at(x + 1, y + 1) = cover[static_cast<size_t>(y * ink.width + x)] + at(x, y + 1) + at(x + 1, y) - at(x, y);
    }
  return ink;
}

// Edges of the ink with sub-pixel precision: a border column that is a third covered ends a third into the pixel.
struct Box {
  double left, top, right, bottom;
};

Box tight_box(const Ink& ink) {
  const auto strongest = [&](bool column, int at) {
    double most = 0;
    for (int i = 0, end = column ? ink.height : ink.width; i < end; ++i)
      most = std::max(most, column ? ink.mean(at, i, 1, 1) : ink.mean(i, at, 1, 1));
    return most;
  };
  const auto edge = [&](bool column, int at, int step) {
    double share = strongest(column, at);
    while (share < 0.1) share = strongest(column, at += step);
    return step > 0 ? at + 1 - share : at + share;
  };
  return {edge(true, 0, 1), edge(false, 0, 1), edge(true, ink.width - 1, -1), edge(false, ink.height - 1, -1)};
}

struct Reading {
  std::string word;
  double agreement = -1;  // mean over the letters of 1 - |seen - wanted|, rescaled so that 0 is a blank guess
};

Reading read_letters(const SceneDefinitions& definitions, const Ink& ink, const Box& box, int letters) {
  const double cell_width = (box.right - box.left) / (kFontPitch * letters - 1);
  const double cell_height = (box.bottom - box.top) / kFontRows;
  constexpr double kInset = 0.15;  // the rim of a cell belongs to blurred edges
  Reading reading;
  reading.agreement = 0;
  for (int i = 0; i < letters; ++i) {
    std::array<double, kFontRows * kFontColumns> seen{};
    for (int row = 0; row < kFontRows; ++row)
      for (int column = 0; column < kFontColumns; ++column)
        seen[static_cast<size_t>(row * kFontColumns + column)] =
            ink.mean(box.left + (i * kFontPitch + column + kInset) * cell_width, box.top + (row + kInset) * cell_height,
                     (1 - 2 * kInset) * cell_width, (1 - 2 * kInset) * cell_height);
    char best = '?';
    double best_agreement = -1;
    for (const auto& [letter, rows] : definitions.font()) {
      double agreement = 0;
      for (size_t cell = 0; cell < seen.size(); ++cell)
        agreement += 1 - 2 * std::fabs(seen[cell] - (rows[cell / kFontColumns][cell % kFontColumns] == '#'));
      agreement /= static_cast<double>(seen.size());
      if (agreement > best_agreement) {
        best_agreement = agreement;
        best = letter;
      }
    }
    constexpr double kReadable = 0.5;  // three cells of four
    reading.word += best_agreement < kReadable ? '?' : best;
    reading.agreement += best_agreement / letters;
  }
  return reading;
}

}  // namespace

std::string read_word(const SceneDefinitions& definitions, const std::vector<SceneObject>& strokes) {
  if (strokes.empty()) return "";
  const Ink ink = ink_of(strokes);
  const Box box = tight_box(ink);
  if (box.right - box.left < kFontColumns || box.bottom - box.top < kFontRows) return "";
  Reading best;
  constexpr int kLongest = 6;
  for (int letters = 1; letters <= kLongest; ++letters) {
    const double cell_width = (box.right - box.left) / (kFontPitch * letters - 1);
    const double squareness = cell_width * kFontRows / (box.bottom - box.top);
    if (squareness < 0.7 || squareness > 1.4) continue;
    const Reading reading = read_letters(definitions, ink, box, letters);
    if (reading.agreement > best.agreement) best = reading;
  }
  return best.word;
}

}  // namespace lockstep::testing
