#include "compare/first_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "compare/divergence.h"
#include "compare/layout_view.h"
#include "diagnose/case/neighbours.h"
#include "diagnose/diagnose.h"
#include "diagnose/replay/replay_search.h"
#include "diagnose/work_back/work_back.h"
#include "measure/region.h"

namespace lockstep {
namespace {

constexpr double kVague = 3;  // complexity of a cause that fits many mistakes ("some function of each element")

// A whole weight of unknown numbers explains whatever is done to the layer's input: a formula with few of them, found
// there, says more.
bool is_a_solved_weight(const Finding& finding) {
  return finding.cause == Cause("linear.different_weight") || finding.cause == Cause("convolution.different_weight");
}

// A program whose modules alone were recorded does not say what passes between them: the pipeline's stages.
bool has_no_stages(const RunView& candidate) {
  return std::none_of(candidate.records.begin(), candidate.records.end(),
                      [](const RecordedTensor& record) { return record.role == Role::kCheckpoint; });
}

// The first bad tensor, and the questions that are asked about it, each where those before it left something open.
class FirstBad {
 public:
  FirstBad(const RunView& reference, const RunView& candidate, const Structure& structure,
           const CompareOptions& options, const std::function<bool(size_t)>& is_good, double unit, Comparison& out)
      : reference_(reference),
        view_(in_layout_of(reference, candidate, out)),
        structure_(structure),
        options_(options),
        is_good_(is_good),
        out_(out),
        result_(out.results[out.first->result]),
        record_(result_.pair.reference),
        by_hand_(has_no_inputs(candidate)),
        no_stages_(has_no_stages(candidate)) {
    for (const PairResult& each : out.results) partners_[each.pair.reference] = each.pair.candidate;
    partner_ = [this](size_t i) {
      const auto found = partners_.find(i);
      return found == partners_.end() ? SIZE_MAX : found->second;
    };
    bad_ = std::make_unique<Case>(case_at(record_));
    bad_->items = items_of(record_);
    bad_->text_of_tokens = options.text_of_tokens;
    bad_->isolated = result_.isolated;
    bad_->error = result_.error.relative;
    bad_->tolerance = std::min(std::max(kFit, 6 * unit), std::isfinite(bad_->error) ? bad_->error / 4 : 1);
  }

  void explain() {
    describe();
    input_ = work_back(*bad_);
    for (const auto question :
         {&FirstBad::ask_the_input_that_layers_agree_on, &FirstBad::ask_the_tensor_itself,
          &FirstBad::ask_the_input_worked_back, &FirstBad::ask_beside_what_was_not_called,
          &FirstBad::ask_as_the_result_of_what_was_not_called, &FirstBad::ask_the_stages_in_between})
      (this->*question)();
    settle_the_kind();
  }

 private:
  void describe() {
    for (const Item& item : bad_->items)
      if (item.relation != Relation::kEarlier && !item.assumed && out_.first->good_inputs.size() < 6)
        out_.first->good_inputs.push_back(item.label());
    if (bad_->r.shape == bad_->c.shape)
      out_.first->region = describe_region(bad_->name, bad_->c, bad_->r, out_.floor_factor * result_.noise_floor).words;
    const auto inputs = structure_.records_of(bad_->module, Role::kInput, record_);
    out_.first->input_unknown =
        by_hand_ || (!inputs.empty() &&
                     std::all_of(inputs.begin(), inputs.end(), [&](size_t i) { return partner_(i) == SIZE_MAX; }));
  }

  // Several layers that share an input agree that it is wrong: then it is wrong, whatever may be said of the layers.
  void ask_the_input_that_layers_agree_on() {
    if (!layers_agree()) return;
    const size_t made = first_with_these_values(reference_, input_->record);
    blame_the_input(made, causes_of_the_input(made));
  }

  void ask_the_tensor_itself() {
    if (out_.causes.empty()) out_.causes = diagnose(*bad_);
  }

  // A single layer: it could be wrong itself, and was asked first. What fits many mistakes does not stand in the way.
  void ask_the_input_worked_back() {
    const bool solved = !out_.causes.empty() && is_a_solved_weight(out_.causes[0]);
    if (!input_ || layers_agree() || (names_one_mistake() && !solved)) return;
    const size_t made = first_with_these_values(reference_, input_->record);
    std::vector<Finding> causes = causes_of_the_input(made);
    if (causes.empty() || (solved && is_a_solved_weight(causes[0]))) return;
    if (out_.causes.empty() || names_a_mistake(causes)) blame_the_input(made, std::move(causes));
  }

  // A neighbour that yours did not call (a norm that it skips) is taken to be right too: the reference's formula may
  // need it, and what yours used in its place is then among the rest.
  void ask_beside_what_was_not_called() {
    if (names_a_mistake(out_.causes) || by_hand_) return;
    const std::string scope = bad_->role == Role::kInput ? parent_of(bad_->module) : bad_->module;
    bad_->items = gather_items(reference_, structure_, record_, partner_, is_good_, [&](size_t i) {
      return partner_(i) == SIZE_MAX && reference_.records[i].role == Role::kOutput &&
             parent_of(structure_.site(i).module) == scope;
    });
    if (std::none_of(bad_->items.begin(), bad_->items.end(), [](const Item& item) { return item.assumed; })) return;
    std::vector<Finding> causes = diagnose(*bad_);
    if (names_a_mistake(causes)) out_.causes = std::move(causes);
  }

  // The module that makes this in the reference was not called by yours under its name (another was, its code was
  // written out, or it was left out): asked as its result. What it was given is taken to be right; the proof is that a
  // formula fits.
  void ask_as_the_result_of_what_was_not_called() {
    const bool replaced = !out_.causes.empty() && out_.causes[0].cause == Cause("stage.replaced");
    if (names_a_mistake(out_.causes) && !replaced) return;
    const size_t made = first_with_these_values(reference_, record_);
    const std::string& maker = structure_.site(made).module;
    if (bad_->role != Role::kInput || made == record_ || reference_.records[made].role != Role::kOutput ||
        structure_.is_container(maker))
      return;
    Case asked = case_at(made);
    asked.r.shape = bad_->r.shape, asked.c = bad_->c;
    asked.items = gather_items(reference_, structure_, made, partner_, is_good_, [&](size_t i) {
      const bool given = structure_.site(i).module == maker && reference_.records[i].role == Role::kInput;
      return given ? partner_(i) == SIZE_MAX || !is_good_(i) : is_taken_to_be_right(i);
    });
    asked.error = bad_->error, asked.tolerance = bad_->tolerance;
    std::vector<Finding> causes = diagnose(asked);
    const auto missing =
        std::find_if(causes.begin(), causes.end(), [](const Finding& f) { return f.cause.is_missing_step(); });
    if (replaced && missing != causes.end())
      out_.causes = {std::move(*missing), std::move(out_.causes[0])};  // which step it was that was left out
    else if (!replaced && names_a_mistake(causes))
      out_.causes = std::move(causes);
  }

  // Several stages of the reference lie between what both recorded and the bad tensor: each is done otherwise in turn,
  // and what it would give is compared with the bad tensor.
  void ask_the_stages_in_between() {
    if (names_one_mistake()) return;
    const ReplayedTensor& before = options_.replayed;
    const bool searched = before.candidate == result_.pair.candidate && before.search.target != SIZE_MAX &&
                          is_same_tensor(reference_, before.search.target, record_);
    Replayed replayed = searched ? before.search : search_stages_between(*bad_);
    const bool named = by_hand_ && bad_->candidate_run().records[result_.pair.candidate].role == Role::kCheckpoint;
    // What was replayed starts from tensors that are taken to be right. Where nothing agrees before the bad tensor and
    // nothing explains it either, the mistake may as well lie before them.
    const bool is_proven = replayed.finding || !named || has_a_partner_before();
    if (replayed.is_replayed && out_.first->input_unknown && is_proven) {
      out_.first->stages_between = std::move(replayed.stages);
      out_.first->starts = std::move(replayed.starts);
    } else if (named) {
      list_what_was_not_recorded();
    }
    if (!replayed.finding) return;
    if (replayed.finding->blame == Blame::kWeights) out_.first->stage = replayed.finding->look_at;
    out_.causes.insert(out_.causes.begin(), std::move(*replayed.finding));
    if (out_.causes.size() > kMostCauses) out_.causes.pop_back();
  }

  bool has_a_partner_before() const {
    for (size_t i = 0; i < record_; ++i)
      if (partner_(i) != SIZE_MAX) return true;
    return false;
  }

  // Where the stages cannot be replayed, all that may be at fault is told: what ran since the last tensor that both
  // recorded, and in the same call before that, because a tensor that agrees says nothing of those beside it.
  void list_what_was_not_recorded() {
    size_t last = 0;
    for (size_t i = 0; i < record_; ++i)
      if (partner_(i) != SIZE_MAX) last = i;
    std::vector<std::string>& names = out_.first->stages_between;
    for (size_t i = 0; i < record_; ++i) {
      if (partner_(i) != SIZE_MAX ||
          (i < last && !same_call(reference_, i, record_) && !same_call(reference_, i, last)))
        continue;
      const RecordedTensor& tensor = reference_.records[i];
      const std::string name = (tensor.role == Role::kInput ? "input " : "") + tensor.key.name;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    if (partner_(last) != SIZE_MAX) out_.first->starts = {reference_.records[last].key.name};
  }

  void settle_the_kind() {
    if (out_.causes.empty()) return;
    if (out_.causes[0].blame == Blame::kWeights) out_.first->kind = "weights";
    if (out_.causes[0].blame == Blame::kCapture && result_.isolated) out_.first->kind = "capture";
  }

  // The candidate's bad tensor, asked as what the reference has at this record.
  Case case_at(size_t record) const {
    Case made(reference_, view_, structure_, record, result_.pair.candidate);
    made.partner = partner_;
    made.weights_r = options_.weights_reference, made.weights_c = options_.weights_candidate;
    made.floor = result_.noise_floor;
    return made;
  }

  // A run without inputs was recorded by hand: what it left out before the bad tensor is taken to be right, and a
  // formula that then explains the bad one to the last digit proves it.
  bool is_taken_to_be_right(size_t i) const {
    return partner_(i) == SIZE_MAX && (by_hand_ || (no_stages_ && reference_.records[i].role == Role::kCheckpoint));
  }
  std::vector<Item> items_of(size_t record) const {
    return gather_items(reference_, structure_, record, partner_, is_good_,
                        [&](size_t i) { return is_taken_to_be_right(i); });
  }

  bool names_one_mistake() const { return names_a_mistake(out_.causes) && out_.causes[0].complexity < kVague; }
  bool layers_agree() const { return input_ && input_->from.size() > 1; }

  // What a layer is given may have been given to its parents first: the code to read is where it was `made`.
  std::vector<Finding> causes_of_the_input(size_t made) {
    Case fed = case_at(made);
    fed.r = std::move(input_->reference), fed.c = std::move(input_->candidate);
    for (auto& [record, values] : input_->elsewhere)
      fed.worked_back.emplace(first_with_these_values(reference_, record), std::move(values));
    fed.items = items_of(made);
    fed.isolated = bad_->isolated;
    fed.error = relative_error(fed.c.v, fed.r.v);
    fed.tolerance = input_->tolerance;
    return diagnose(fed);
  }
  void blame_the_input(size_t made, std::vector<Finding> causes) {
    const std::string& module = structure_.site(made).module;
    out_.causes = std::move(causes);
    out_.first->kind = "glue";
    out_.first->parent = reference_.records[made].role == Role::kInput ? structure_.caller_of(module) : module;
    out_.first->worked_back_from = input_->from;
  }

  const RunView& reference_;
  const RunView view_;  // the candidate, in the reference's layout
  const Structure& structure_;
  const CompareOptions& options_;
  const std::function<bool(size_t)>& is_good_;
  Comparison& out_;
  const PairResult& result_;
  const size_t record_;  // the reference's
  const bool by_hand_;
  const bool no_stages_;
  std::map<size_t, size_t> partners_;
  std::function<size_t(size_t)> partner_;
  std::unique_ptr<Case> bad_;
  std::optional<WorkedBack> input_;  // what the bad tensor's layer was given, where that was not recorded
};

}  // namespace

std::string name_in_between(const RunView& reference, const std::function<size_t(size_t)>& partner, size_t record) {
  constexpr size_t kMost = 4;
  std::vector<std::string> names;
  std::string last;
  for (size_t i = record; i-- > 0;) {
    const std::string& name = reference.records[i].key.name;
    if (partner(i) != SIZE_MAX) {
      last = name;
      break;
    }
    const std::string label = (reference.records[i].role == Role::kInput ? "the input of " : "") + name;
    if (std::find(names.begin(), names.end(), label) == names.end()) names.push_back(label);
  }
  if (names.empty()) return "";
  std::string list;
  for (size_t i = 0, parts = std::min(kMost, names.size()); i < parts; ++i)
    list += (list.empty() ? "" : ", ") + names[names.size() - 1 - i * names.size() / parts];
  return fmt::format("your run has nothing between {} and this; name more of it, such as {}",
                     last.empty() ? "its beginning" : last, list);
}

void explain_first(const RunView& reference, const RunView& candidate, const Structure& structure,
                   const CompareOptions& options, const std::function<bool(size_t)>& is_good, double unit,
                   Comparison& out) {
  FirstBad(reference, candidate, structure, options, is_good, unit, out).explain();
}

}  // namespace lockstep
