#include "diagnose/replay/replay_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/replay/stage_graph.h"
#include "diagnose/search/budget.h"

namespace lockstep {
namespace {

constexpr int64_t kMostWork = int64_t{6} << 30;  // multiplications
constexpr double kAlike = 1.5;                   // residuals that tell no two explanations apart

// Stages that are one code: a mistake in it is made in each of them.
using Group = std::vector<size_t>;

std::vector<Group> groups_of(const std::vector<Stage>& stages) {
  std::vector<Group> out;
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto same = std::find_if(out.begin(), out.end(), [&](const Group& group) {
      return stages[group[0]].kind == stages[i].kind && stages[group[0]].place == stages[i].place;
    });
    if (same == out.end())
      out.push_back({i});
    else
      same->push_back(i);
  }
  return out;
}

struct Explained {
  size_t stage = 0, edit = 0;
  double residual = INFINITY, complexity = INFINITY;
  bool everywhere = true;
};

class Search {
 public:
  Search(Case& failing, StageGraph& graph) : failing_(failing), graph_(graph), budget_(kMostWork) {}

  std::optional<Explained> best() {
    for (const Group& group : groups_of(graph_.stages())) {
      const size_t edits = graph_.stages()[group[0]].edits.size();
      const int64_t work = graph_.work_of(group);
      for (size_t edit = 0; edit < edits; ++edit)
        if (budget_.spend(work)) consider(group, edit, true);
    }
    // Weights are loaded one by one: a mistake there may be one layer's.
    for (const Group& group : groups_of(graph_.stages()))
      for (const size_t stage : group)
        for (size_t edit = 0; !best_ && group.size() > 1 && edit < graph_.stages()[stage].edits.size(); ++edit)
          if (graph_.stages()[stage].edits[edit].blame == Blame::kWeights && budget_.spend(graph_.work_of({stage})))
            consider({stage}, edit, false);
    return best_;
  }

 private:
  void consider(const Group& group, size_t edit, bool everywhere) {
    const StageEdit& first = graph_.stages()[group[0]].edits[edit];
    std::vector<StageGraph::Change> changes;
    for (const size_t stage : group) {
      const std::vector<StageEdit>& edits = graph_.stages()[stage].edits;
      if (edit >= edits.size() || !(edits[edit].cause == first.cause)) continue;
      changes.push_back({stage, &edits[edit].apply});
    }
    const double residual = flat_distance(graph_.replay(changes), failing_.c.v);
    if (!failing_.explains_candidate(residual) || !failing_.is_better(residual, failing_.error)) return;
    const bool alike = best_ && residual < kAlike * best_->residual && best_->residual < kAlike * residual;
    if (best_ && (alike ? first.complexity >= best_->complexity : residual >= best_->residual)) return;
    best_ = Explained{group[0], edit, residual, first.complexity, everywhere};
  }

  Case& failing_;
  StageGraph& graph_;
  Budget budget_;
  std::optional<Explained> best_;
};

}  // namespace

Replayed search_stages_between(Case& failing) {
  Replayed out;
  if (failing.r.empty() || failing.r.size() != failing.c.size() || !std::isfinite(failing.error)) return out;
  StageGraph graph(failing);
  const RunView& run = failing.reference_run();
  for (const Stage& stage : graph.stages()) out.stages.push_back(graph.sources().name(stage.record));
  for (const size_t leaf : graph.leaves()) out.starts.push_back(graph.sources().name(leaf));
  if (!graph.is_complete()) return out;
  // All of it, from its beginnings: the replay must make the reference's own tensor.
  std::vector<StageGraph::Change> all;
  for (size_t i = 0; i < graph.stages().size(); ++i) all.push_back({i, &graph.stages()[i].apply});
  const double reference = flat_distance(graph.replay(all), failing.r.v);
  out.is_replayed = failing.explains(reference);
  if (!out.is_replayed) return out;
  const auto found = Search(failing, graph).best();
  if (!found) return out;
  const Stage& stage = graph.stages()[found->stage];
  const StageEdit& edit = stage.edits[found->edit];
  const std::string made = graph.sources().name(stage.record);
  const size_t others = static_cast<size_t>(std::count_if(graph.stages().begin(), graph.stages().end(), [&](const Stage& s) {
                          return s.kind == stage.kind && s.place == stage.place;
                        })) - 1;
  out.finding = Finding{
      .cause = edit.cause,
      .explanation = fmt::format("{} is not in your run; reference: {}; yours, to give what it gave: {}{}", made, stage.formula, edit.yours,
                                 found->everywhere && others ? fmt::format(" (there and in {} more)", others) : ""),
      .fix = edit.fix,
      .look_at = run.records[stage.record].key.name,
      .residual_reference = reference,
      .residual = found->residual,
      .complexity = edit.complexity,
      .blame = edit.blame};
  return out;
}

}  // namespace lockstep
