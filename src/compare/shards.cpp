#include "compare/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

constexpr int kMostParts = 3;  // gate and up; q, k and v

bool agree_but_for(std::span<const Shape> shapes, size_t axis) {
  for (const Shape& shape : shapes) {
    if (shape.size() != shapes[0].size()) return false;
    for (size_t k = 0; k < shape.size(); ++k)
      if (k != axis && shape[k] != shapes[0][k]) return false;
  }
  return true;
}

std::optional<Shape> joined_shape(const JoinStep& step, std::span<const Shape> shapes) {
  const size_t axis = step.join == Join::kConcatenate ? static_cast<size_t>(step.axis) : SIZE_MAX;
  if (shapes.empty() || !agree_but_for(shapes, axis)) return std::nullopt;
  Shape out = shapes[0];
  if (step.join != Join::kConcatenate) return out;
  if (axis >= out.size()) return std::nullopt;
  out[axis] = 0;
  for (const Shape& shape : shapes) {
    if (shape[axis] % step.parts != 0 || out[axis] > INT64_MAX / 2 - shape[axis]) return std::nullopt;
    out[axis] += shape[axis];
  }
  return out;
}

Tensor concatenated(const JoinStep& step, std::span<const Tensor> pieces, const Shape& shape) {
  Tensor out = Tensor::empty(pieces[0].dtype(), shape);
  int64_t at = 0;
  for (int part = 0; part < step.parts; ++part)
    for (const Tensor& piece : pieces) {
      const int64_t size = piece.dim(step.axis) / step.parts;
      Tensor place = out.slice(step.axis, at, at + size);
      copy_strided(piece.slice(step.axis, part * size, (part + 1) * size).to(out.dtype()), place);
      at += size;
    }
  return out;
}

// In double, then rounded as the pieces are.
Tensor summed(std::span<const Tensor> pieces) {
  std::vector<double> sum = to_doubles(pieces[0]);
  for (const Tensor& piece : pieces.subspan(1)) {
    const std::vector<double> more = to_doubles(piece);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  }
  return Tensor::from<double>(pieces[0].shape(), sum).to(pieces[0].dtype());
}

Tensor joined(const JoinStep& step, std::span<const Tensor> pieces, size_t representative) {
  std::vector<Shape> shapes;
  for (const Tensor& piece : pieces) shapes.push_back(piece.shape());
  const auto shape = joined_shape(step, shapes);
  if (!shape) fail(Code::kBadInput, "ranks", "the shards do not fit together", {.expected = words_of({step})});
  if (step.join == Join::kConcatenate) return concatenated(step, pieces, *shape);
  return step.join == Join::kSum ? summed(pieces) : pieces[std::min(representative, pieces.size() - 1)];
}

std::vector<JoinStep> single_steps(size_t rank, size_t count) {
  std::vector<JoinStep> out{{Join::kReplicate, 0, 1, count}};
  for (int parts = 1; parts <= kMostParts; ++parts) {
    for (size_t axis = 0; axis < rank; ++axis)
      out.push_back({Join::kConcatenate, static_cast<int>(axis), parts, count});
    if (parts == 1) out.push_back({Join::kSum, 0, 1, count});
  }
  return out;
}

bool is_flat(const Assembly& assembly) {
  return assembly.size() == 1;
}

std::string step_text(const JoinStep& step, bool with_count) {
  std::string out = step.join == Join::kReplicate ? "replicate"
                    : step.join == Join::kSum     ? "sum"
                                                  : fmt::format("concatenate {}", step.axis);
  if (step.parts > 1) out += fmt::format(" in {} parts", step.parts);
  return with_count ? fmt::format("{} of {}", out, step.count) : out;
}

std::string join_words(const JoinStep& step) {
  if (step.join == Join::kReplicate) return "replicated";
  if (step.join == Join::kSum) return "summed";
  return fmt::format("concatenated along axis {}{}", step.axis,
                     step.parts > 1 ? fmt::format(", each of {} parts by itself", step.parts) : "");
}

[[noreturn]] void fail_text(std::string_view text) {
  fail(Code::kBadInput, "map", "a way to put ranks together cannot be read",
       {.expected = R"("replicate", "sum", "concatenate AXIS" or "concatenate AXIS in N parts", each with "of COUNT")",
        .got = "'" + std::string(text.substr(0, 80)) + "'"});
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t end = text.find(at);
    if (const std::string_view word = text.substr(0, end); !word.empty()) out.push_back(word);
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

JoinStep step_from_text(std::string_view text) {
  const std::vector<std::string_view> words = split(text, ' ');
  const auto number = [&](size_t at) {
    int value = -1;
    if (at >= words.size()) fail_text(text);
    const auto [end, error] = std::from_chars(words[at].data(), words[at].data() + words[at].size(), value);
    if (error != std::errc() || end != words[at].data() + words[at].size() || value < 0 || value > 65536)
      fail_text(text);
    return value;
  };
  JoinStep step;
  size_t at = 1;
  if (words.empty()) fail_text(text);
  if (words[0] == "concatenate") {
    step.join = Join::kConcatenate, step.axis = number(at++);
    if (at < words.size() && words[at] == "in") {
      step.parts = std::max(1, number(at + 1));
      if (at + 2 >= words.size() || words[at + 2] != "parts") fail_text(text);
      at += 3;
    }
  } else if (words[0] == "sum") {
    step.join = Join::kSum;
  } else if (words[0] != "replicate") {
    fail_text(text);
  }
  if (at < words.size() && words[at] == "of") step.count = static_cast<size_t>(number(at + 1)), at += 2;
  if (at != words.size()) fail_text(text);
  return step;
}

}  // namespace

std::vector<Assembly> possible_assemblies(std::span<const Shape> shards, bool nested) {
  std::vector<Assembly> out;
  if (shards.empty()) return out;
  const auto add = [&](Assembly assembly) {
    if (assembled_shape(assembly, shards)) out.push_back(std::move(assembly));
  };
  const size_t rank = shards[0].size(), count = shards.size();
  if (!nested) {
    for (const JoinStep& step : single_steps(rank, count)) add({step});
    return out;
  }
  for (size_t inner = 2; inner < count; ++inner) {
    if (count % inner != 0) continue;
    for (const JoinStep& first : single_steps(rank, inner))
      for (const JoinStep& second : single_steps(rank, count / inner))
        if (first.join != second.join || first.axis != second.axis) add({first, second});
  }
  return out;
}

std::optional<Shape> assembled_shape(const Assembly& assembly, std::span<const Shape> shards) {
  std::vector<Shape> now(shards.begin(), shards.end());
  for (const JoinStep& step : assembly) {
    if (step.count == 0 || now.size() % step.count != 0) return std::nullopt;
    std::vector<Shape> next;
    for (size_t i = 0; i < now.size(); i += step.count) {
      const auto shape = joined_shape(step, std::span(now).subspan(i, step.count));
      if (!shape) return std::nullopt;
      next.push_back(*shape);
    }
    now = std::move(next);
  }
  return now.size() == 1 ? std::optional(now[0]) : std::nullopt;
}

Tensor assembled(const Assembly& assembly, std::vector<Tensor> shards, size_t representative) {
  for (const JoinStep& step : assembly) {
    if (step.count == 0 || shards.size() % step.count != 0)
      fail(Code::kBadInput, "ranks", "the steps do not fit the number of ranks", {.got = text_of(assembly)});
    std::vector<Tensor> next;
    for (size_t i = 0; i < shards.size(); i += step.count)
      next.push_back(joined(step, std::span(shards).subspan(i, step.count), representative));
    shards = std::move(next);
  }
  return shards.at(0);
}

bool is_replicated(const Assembly& assembly) {
  return std::all_of(assembly.begin(), assembly.end(),
                     [](const JoinStep& step) { return step.join == Join::kReplicate; });
}

bool has_sum(const Assembly& assembly) {
  return std::any_of(assembly.begin(), assembly.end(), [](const JoinStep& step) { return step.join == Join::kSum; });
}

std::string words_of(const Assembly& assembly) {
  std::string out;
  for (const JoinStep& step : assembly) {
    if (!out.empty()) out += ", then ";
    out += is_flat(assembly) ? join_words(step) : fmt::format("{} {}", step.count, join_words(step));
  }
  return out;
}

std::string text_of(const Assembly& assembly) {
  std::string out;
  for (const JoinStep& step : assembly) out += (out.empty() ? "" : ", ") + step_text(step, !is_flat(assembly));
  return out;
}

Assembly assembly_from_text(std::string_view text, size_t ranks) {
  Assembly out;
  for (const std::string_view step : split(text, ',')) out.push_back(step_from_text(step));
  if (out.empty() || out.size() > 4) fail_text(text);
  if (is_flat(out) && out[0].count == 0) out[0].count = ranks;
  return out;
}

}  // namespace lockstep
