// Of the pipeline: the features of a time, two predictions combined into one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "diagnose/replay/stage_graph.h"
#include "diagnose/sampler/guidance_mix.h"

namespace lockstep {
namespace {

struct Guided {
  Shape shape;
  guidance::Params params;
  bool exchanged = false;

  Flat operator()(Sources from) const {
    Values cond{shape, *from[exchanged ? 1 : 0]}, uncond{shape, *from[exchanged ? 0 : 1]};
    return guidance::Mix(std::move(cond), std::move(uncond), 1).result(params).v;
  }
};

// Cosines and sines of one time, as the models of pictures have them.
struct TimeFeatures {
  size_t half = 0;
  float factor = 1000;  // of the time
  bool cos_first = true;
  float sine = 1, times = 1;  // times: what yours multiplies the time with
  double theta = 1e4;
  bool to_the_last = false;  // the last frequency is 1 / theta, not the one that would come next

  Flat operator()(Sources from) const {
    const double steps = static_cast<double>(half) - (to_the_last ? 1 : 0);
    Flat out;
    for (const float t : *from[0]) {
      const size_t at = out.size();
      out.resize(at + 2 * half);
      for (size_t i = 0; i < half; ++i) {
        const float slower = static_cast<float>(std::exp(-std::log(theta) * static_cast<double>(i) / steps));
        const float angle = times * t * slower * factor;  // as programs do it: in f32
        out[at + i + (cos_first ? 0 : half)] = std::cos(angle);
        out[at + i + (cos_first ? half : 0)] = sine * std::sin(angle);
      }
    }
    return out;
  }
};

}  // namespace

std::optional<Stage> find_time_features(StageSources& in, size_t record) {
  constexpr double kTurned = 2e-3;  // angles of a thousand, in f32
  const auto given =
      in.failing().structure().records_of(in.failing().structure().site(record).module, Role::kInput, record);
  if (in.run().records[record].role != Role::kOutput || given.size() != 1 || given[0] > record) return std::nullopt;
  const int64_t times = in.size(given[0]), width = in.width(record);
  if (times == 0 || width < 16 || width % 2 || times * width != in.size(record)) return std::nullopt;
  const Flat* from[] = {&in.values(given[0])};
  // Where both recorded the time, and it agrees, a factor of the angles is none of the time's.
  const bool known = in.failing().partner && in.failing().partner(given[0]) != SIZE_MAX;
  const Cause scaled = known ? Cause("timestep.factor") : Cause("timestep.scale");
  for (const float factor : {1000.0F, 1.0F})
    for (const bool cos_first : {true, false}) {
      const TimeFeatures own{static_cast<size_t>(width / 2), factor, cos_first};
      if (flat_distance(own(from), in.values(record)) > kTurned) continue;
      Stage out{.from = {given[0]},
                .kind = "time features",
                .place = "",
                .formula = "cosines and sines of the time",
                // The reference's own to the last digit, for its own time; what is beside that follows the formula.
                .apply =
                    [own, values = in.values(record), ours = own(from)](Sources t) {
                      Flat made = own(t);
                      for (size_t i = 0; i < made.size() && made.size() == ours.size(); ++i)
                        made[i] += values[i] - ours[i];
                      return made;
                    },
                .work = kFunctionWork * in.size(record)};
      const auto add = [&](Cause cause, std::string yours, std::string fix, auto&& change) {
        TimeFeatures other = own;
        change(other);
        out.edits.push_back({cause, std::move(yours), std::move(fix), 0.8, other});
      };
      add("timestep.cos_sin_order", "sines and cosines the other way round", "exchange the halves",
          [](TimeFeatures& f) { f.cos_first = !f.cos_first; });
      add("timestep.sign", "the sines negated", "turn the sign of the sines", [](TimeFeatures& f) { f.sine = -1; });
      add("timestep.sign", "the time negated", "use the time as it is", [](TimeFeatures& f) { f.times = -1; });
      for (const double theta : {1e3, 1e5, 1e2, 1e6})
        add("timestep.theta", fmt::format("theta {:g}", theta), fmt::format("use theta {:g}", own.theta),
            [=](TimeFeatures& f) { f.theta = theta; });
      add("timestep.theta", "frequencies that end at 1 / theta", "divide by the number of frequencies, not by one less",
          [](TimeFeatures& f) { f.to_the_last = true; });
      for (const float by : {1000.0F, 0.001F})
        add(scaled, fmt::format("the time multiplied with {:g}", by), "use the time as it is",
            [by](TimeFeatures& f) { f.times = by; });
      out.numbers.push_back({scaled, "the time times", "use the time as it is", [own](Sources t, double by) {
                               TimeFeatures other = own;
                               other.times = static_cast<float>(by);
                               return other(t);
                             }});
      return out;
    }
  return std::nullopt;
}

std::optional<Stage> find_guidance(StageSources& in, size_t record) {
  using guidance::Params;
  using guidance::Sharing;
  constexpr size_t kMostPredictions = 6;
  if (!in.failing().structure().site(record).module.empty()) return std::nullopt;
  const Shape& shape = in.run().records[record].shape;
  const Values y{shape, in.values(record)};
  std::vector<size_t> near = in.near(record, in.size(record));
  near.resize(std::min(near.size(), kMostPredictions));
  for (const size_t uncond : near)
    for (const size_t cond : near) {
      if (cond == uncond) continue;
      const guidance::Mix mix({shape, in.values(cond)}, {shape, in.values(uncond)}, 1);
      for (const Sharing span : {Sharing::kNone, Sharing::kToken}) {
        Guided own{shape, {}, false};
        own.params.s = mix.solve_scale(y, span), own.params.span = span;
        const Flat* given[] = {&in.values(cond), &in.values(uncond)};
        if (!(own.params.s > 1) || !in.explains(flat_distance(own(given), y.v))) continue;
        Stage out{.from = {cond, uncond},
                  .kind = "guidance",
                  .place = "",
                  .formula = formula(own.params),
                  .apply = own,
                  .work = 8 * kElementWork * in.size(record)};
        const auto add = [&](Cause cause, std::string fix, auto&& change) {
          Guided other = own;
          change(other);
          out.edits.push_back({cause, (other.exchanged ? "with the two exchanged, " : "") + formula(other.params),
                               std::move(fix), 0.8, other});
        };
        out.numbers.push_back({"guidance.scale", "a scale of", fmt::format("use a scale of {:.6g}", own.params.s),
                               [own](Sources from, double s) {
                                 Guided other = own;
                                 other.params.s = s;
                                 return other(from);
                               }});
        const bool rescaled = span != Sharing::kNone;
        add("guidance.rescale", rescaled ? "scale each token back to the length of cond" : "do not rescale",
            [&](Guided& g) { g.params.span = rescaled ? Sharing::kNone : Sharing::kToken; });
        for (const Sharing other : {Sharing::kWhole, Sharing::kChannel})
          add("guidance.rescale", "scale each token back to the length of cond",
              [&](Guided& g) { g.params.span = other; });
        add("guidance.exchanged", "exchange the two predictions", [](Guided& g) { g.exchanged = true; });
        // uncond + (1 - s) (cond - uncond): exchanged where they are combined, and not where their length is taken.
        add("guidance.exchanged", "exchange the two predictions", [](Guided& g) { g.params.s = 1 - g.params.s; });
        for (const double s : {own.params.s + 1, own.params.s - 1, 1.0, 0.0, -own.params.s})
          add("guidance.scale", fmt::format("use a scale of {:.6g}", own.params.s), [=](Guided& g) { g.params.s = s; });
        return out;
      }
    }
  return std::nullopt;
}

}  // namespace lockstep
