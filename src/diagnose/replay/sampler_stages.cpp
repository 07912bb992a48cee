// Two predictions combined into one.
#include <fmt/format.h>

#include <algorithm>
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

}  // namespace

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
                  .work = 8 * in.size(record)};
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
