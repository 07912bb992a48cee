#include "diagnose/replay/replay_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "diagnose/replay/stage_graph.h"
#include "diagnose/search/budget.h"

namespace lockstep {
namespace {

constexpr int64_t kMostWork = int64_t{24} << 30;  // two or three seconds, whatever the stages are
constexpr size_t kFewEdits = 200;
constexpr double kUsual = 0.8;     // complexity of what ports often get wrong
constexpr double kRare = 0.92;     // and of edits that are tried where no other fits
constexpr double kLastDigits = 5;  // of a tensor that it need not be: an explanation by chance leaves much more
constexpr double kAlike = 1.5;     // residuals that tell no two explanations apart

// Stages that are one code: a mistake in it is made in each of them.
using Group = std::vector<size_t>;

// "txt_norm1" and "img_norm1" → "norm1": code for two streams is often one function.
std::string without_streams(const std::string& place) {
  std::string out, word;
  const auto end = [&] {
    static const std::set<std::string> kStreams{"img", "image", "txt", "text", "add", "added", "encoder", "context"};
    if (!kStreams.contains(word)) out += word + ".";
    word.clear();
  };
  for (const char c : place) {
    if (c == '.' || c == '_' || c == ' ')
      end();
    else
      word += c;
  }
  end();
  return out;
}

// What is done at one place of each layer; at such places of both streams; everywhere in the same way.
std::vector<Group> groups_of(const std::vector<Stage>& stages) {
  std::vector<Group> out;
  for (const int level : {0, 1, 2}) {
    std::map<std::string, Group> of_code;
    std::vector<std::string> order;
    for (size_t i = 0; i < stages.size(); ++i) {
      if (stages[i].edits.empty() || stages[i].kind == "given") {
        if (level == 0 && !stages[i].edits.empty()) out.push_back({i});
        continue;
      }
      const std::string key = stages[i].kind + " " +
                              (level == 0   ? stages[i].place
                               : level == 1 ? without_streams(stages[i].place)
                                            : std::to_string(stages[i].edits.size()));
      const auto [group, is_new] = of_code.try_emplace(key);
      if (is_new) order.push_back(key);
      group->second.push_back(i);
    }
    for (const std::string& key : order)
      if (std::find(out.begin(), out.end(), of_code[key]) == out.end()) out.push_back(of_code[key]);
  }
  return out;
}

struct Explained {
  size_t stage = 0, edit = 0, target = 0;
  double residual = INFINITY, complexity = INFINITY;
  size_t members = 1;                 // stages that are done so
  std::optional<double> number = {};  // then `edit` counts the stage's numbers
};

class Search {
 public:
  // `likely`: what it is taken to be. For any other tensor that it may be, of many, nothing but the last digits counts.
  Search(Case& failing, StageGraph& graph, std::vector<size_t> targets, size_t likely)
      : failing_(failing), graph_(graph), targets_(std::move(targets)), likely_(likely), budget_(kMostWork) {}

  std::optional<Explained> best() {
    std::vector<Group> groups = groups_of(graph_.stages());
    // An attention has a hundred times as many edits as others: it comes last.
    std::stable_partition(groups.begin(), groups.end(),
                          [&](const Group& group) { return graph_.stages()[group[0]].edits.size() < kFewEdits; });
    for (const bool rare : {false, true})
      for (const Group& group : groups) try_group(group, rare);
    const auto solve_all = [&](bool recorded) {
      for (const Group& group : groups)
        for (size_t i = 0; !best_ && i < graph_.stages()[group[0]].numbers.size(); ++i)
          if (graph_.stages()[group[0]].is_recorded == recorded) solve(group, i);
    };
    solve_all(false);
    // Weights are loaded one by one: a mistake there may be one layer's.
    for (const Group& group : groups)
      for (const size_t stage : group)
        for (size_t edit = 0; !best_ && group.size() > 1 && edit < graph_.stages()[stage].edits.size(); ++edit)
          if (graph_.stages()[stage].edits[edit].blame == Blame::kWeights && budget_.spend(graph_.work_of({stage})))
            consider({stage}, edit);
    solve_all(true);  // a factor on the way to a stage says less than one of the stage's own
    return best_;
  }

 private:
  // Nothing is more exact, nor simpler: what fits as well has other words for it.
  bool is_settled() const {
    return best_ && best_->complexity <= kUsual && best_->residual <= std::max(2 * failing_.tolerance, failing_.floor);
  }

  void try_group(const Group& group, bool rare) {
    const std::vector<StageEdit>& edits = graph_.stages()[group[0]].edits;
    if (is_settled() && (rare || edits.size() >= kFewEdits)) return;
    const int64_t work = graph_.work_of(group);
    for (size_t edit = 0; edit < edits.size(); ++edit)
      if ((edits[edit].complexity > kRare) == rare && budget_.spend(work)) consider(group, edit);
  }

  void consider(const Group& group, size_t edit) {
    const StageEdit& first = graph_.stages()[group[0]].edits[edit];
    std::vector<StageGraph::Change> changes;
    for (const size_t stage : group) {
      const std::vector<StageEdit>& edits = graph_.stages()[stage].edits;
      if (edit >= edits.size() || !(edits[edit].cause == first.cause)) continue;
      changes.push_back({stage, &edits[edit].apply});
    }
    const std::map<size_t, Flat> made = graph_.replay(changes);
    for (const size_t target : targets_)
      if (const auto values = made.find(target); values != made.end())
        take({group[0], edit, target, flat_distance(values->second, graph_.sources().bad()), first.complexity,
              changes.size()});
  }

  // On a grid of all sizes first, then ever closer.
  void solve(const Group& group, size_t which) {
    constexpr double kNumberComplexity = 1;
    const int64_t work = graph_.work_of(group);
    Explained best{group[0], which, 0, INFINITY, kNumberComplexity, group.size(), 1.0};
    const auto consider_number = [&](double x) {
      if (!budget_.spend(work)) return;
      std::vector<std::function<Flat(Sources)>> made_with;
      std::vector<StageGraph::Change> changes;
      made_with.reserve(group.size());
      for (const size_t stage : group)
        if (which < graph_.stages()[stage].numbers.size()) {
          made_with.push_back(
              [&apply = graph_.stages()[stage].numbers[which].apply, x](Sources from) { return apply(from, x); });
          changes.push_back({stage, &made_with.back()});
        }
      const std::map<size_t, Flat> made = graph_.replay(changes);
      for (const size_t target : targets_)
        if (const auto values = made.find(target); values != made.end())
          if (const double residual = flat_distance(values->second, graph_.sources().bad()); residual < best.residual)
            best.residual = residual, best.target = target, best.number = x;
    };
    for (double x = 1e-8; x < 1e4; x *= x < 1e-3 ? 10 : 1.3) consider_number(x);
    for (double step = 1.15; step > 1.00002; step = std::sqrt(step)) {
      const double middle = *best.number;
      consider_number(middle * step), consider_number(middle / step);
    }
    take(best);
  }

  void take(const Explained& found) {
    const bool fits = found.target != likely_ ? found.residual <= kLastDigits * failing_.tolerance
                                              : failing_.explains_candidate(found.residual) &&
                                                    failing_.is_better(found.residual, failing_.error);
    if (!fits) return;
    const bool alike = best_ && found.residual < kAlike * best_->residual && best_->residual < kAlike * found.residual;
    if (best_ && (alike ? found.complexity >= best_->complexity : found.residual >= best_->residual)) return;
    best_ = found;
  }

  Case& failing_;
  StageGraph& graph_;
  std::vector<size_t> targets_;
  size_t likely_;
  Budget budget_;
  std::optional<Explained> best_;
};

// The targets that the stages, from their beginnings, make as the reference has them.
std::vector<size_t> replayed_targets(StageGraph& graph, const Case& failing, double& misfit) {
  std::vector<StageGraph::Change> all;
  for (size_t i = 0; i < graph.stages().size(); ++i) all.push_back({i, &graph.stages()[i].apply});
  const std::map<size_t, Flat> made = graph.replay(all);
  std::vector<size_t> out;
  for (const size_t target : graph.targets()) {
    const double apart =
        made.contains(target) ? flat_distance(made.at(target), graph.sources().values(target)) : INFINITY;
    if (failing.explains(apart)) out.push_back(target), misfit = std::max(misfit, apart);
  }
  return out;
}

Finding finding_of(StageGraph& graph, const Explained& found, double reference) {
  const Stage& stage = graph.stages()[found.stage];
  StageEdit edit;
  if (found.number) {
    const StageNumber& number = stage.numbers[found.edit];
    edit = {number.cause, fmt::format("{} {:.5g}", number.what, *found.number), number.fix, found.complexity, {},
            Blame::kNone};
  } else {
    edit = stage.edits[found.edit];
  }
  return {.cause = edit.cause,
          .explanation = fmt::format(
              "{}reference: {}; yours, to give what it gave: {}{}",
              stage.is_recorded ? "" : graph.sources().name(stage.record) + " is not in your run; ", stage.formula,
              edit.yours, found.members > 1 ? fmt::format(" (there and in {} more)", found.members - 1) : ""),
          .fix = edit.fix,
          .look_at = graph.sources().run().records[stage.record].key.name,
          .residual_reference = reference,
          .residual = found.residual,
          .complexity = edit.complexity,
          .blame = edit.blame};
}

Replayed searched(Case& failing, const std::vector<size_t>& targets, size_t likely) {
  Replayed out;
  StageGraph graph(failing, targets);
  if (likely != SIZE_MAX) likely = graph.sources().origin(likely);
  double reference = 0;
  const std::vector<size_t> replayed = replayed_targets(graph, failing, reference);
  if (replayed.empty()) return out;
  out.target = likely;
  if (const auto found = Search(failing, graph, replayed, likely).best()) {
    out.target = found->target;
    out.finding = finding_of(graph, *found, reference);
  }
  out.is_replayed = std::find(replayed.begin(), replayed.end(), out.target) != replayed.end();
  const std::set<size_t> makers = graph.makers_of(out.target);
  for (const Stage& stage : graph.stages())
    if (makers.contains(stage.record) && !stage.is_recorded) out.stages.push_back(graph.sources().name(stage.record));
  for (const size_t leaf : graph.leaves())
    if (makers.contains(leaf)) out.starts.push_back(graph.sources().name(leaf));
  return out;
}

}  // namespace

Replayed search_stages_between(Case& failing) {
  if (failing.r.empty() || failing.r.size() != failing.c.size() || !std::isfinite(failing.error)) return {};
  return searched(failing, {failing.reference_record()}, failing.reference_record());
}

Replayed search_partner(Case& failing, std::vector<size_t> targets, size_t likely) {
  if (likely != SIZE_MAX) targets.push_back(likely);
  return failing.c.empty() || targets.empty() ? Replayed{} : searched(failing, targets, likely);
}

}  // namespace lockstep
