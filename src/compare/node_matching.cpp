#include "compare/node_matching.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/interrupt.h"
#include "compare/name_evidence.h"
#include "compare/refuted_pairs.h"
#include "diagnose/case/structure.h"

namespace lockstep {
namespace {

// Strengths, in the unit of a name's last word that is the same (1.5).
constexpr double kContent = 9, kContentDigits = 4;  // equal; and more the more digits agree
constexpr double kSimilarContent = 4, kOtherContent = -1;
constexpr double kSameSize = 1, kSizesApart = 0.1;  // a norm of a tensor is like it, and of another size
constexpr double kAlikeContent = 0.7;               // farther apart than this there is no likeness
constexpr double kMoved = -0.5;                     // equal in another order of axes
constexpr double kEqualElsewhere = -3;              // these differ, and one of them is equal to another
constexpr double kWeights = 7, kOtherWeights = -3;
constexpr double kTwin = 5, kOtherTwin = -4;  // the other side of the same call
constexpr double kTwinContent = 2;            // what goes into both is equal, or it is not
constexpr double kSameHeight = 1;             // both have modules inside, or neither has
constexpr double kParent = 3, kFartherParent = 1.5, kOtherParent = -4;
constexpr double kChild = 1, kOtherChild = -1.5, kMostChildren = 4;
constexpr double kOrder = 0.75, kOtherOrder = -1.5, kNever = -100;
constexpr double kNextOfItsSize = 2;       // after what yours named last, where the values are alike too
constexpr double kOnlyOnes = 3;            // of their size, on both sides
constexpr double kSameRank = 2;            // among its siblings of that size
constexpr double kOtherSurroundings = -1;  // equal values at quite another place are no pair
struct Level {
  double score, margin;  // the next best partner must be this much worse
};
constexpr Level kByHand = {3.25, 0.6};  // what is named by hand has no surroundings: likeness alone must do
constexpr Level kLevels[] = {{13, 1}, {11, 1}, {9, 1}, {7.5, 1}, {6, 1}, {5, 1}, {3.5, 2.5}};
constexpr double kLeastStatic = -1.5;  // a pair below is not thought of again
constexpr size_t kMostPairs = 3000000;
constexpr size_t kMostCalls = 4;  // of the candidate that one call of the reference is looked for in
constexpr double kWorthSaying = 3.5;

double equal_limit(const RecordedTensor& a, const RecordedTensor& b) {
  const auto coarse = [](DType dtype) { return is_floating(dtype) && unit_roundoff(dtype) > 1e-4; };
  return coarse(a.dtype) || coarse(b.dtype) ? 0.03 : 2e-3;
}

// A tensor that the candidate names by hand may be what a module of the reference is given.
bool may_be_one(const PairingNode& reference, const PairingNode& candidate) {
  return reference.input == candidate.input || candidate.by_hand;
}

// "blocks.7.attn.to_q" and "blocks.7.mlp".
bool is_of_one_layer(const PairingNode& a, const PairingNode& b) {
  const size_t end = a.pattern.find('#');
  return end != std::string::npos && a.numbers[0] == (b.numbers.empty() ? -1 : b.numbers[0]) &&
         a.pattern.compare(0, end + 1, b.pattern, 0, end + 1) == 0;
}

class Matcher {
 public:
  Matcher(const RunView& reference, const PairingGraph& r, const RunView& candidate, const PairingGraph& c,
          const ModuleWeights& weights_r, const ModuleWeights& weights_c, LikenessOracle& likeness)
      : reference_(reference),
        candidate_(candidate),
        r_(r),
        c_(c),
        likeness_(likeness),
        partner_r_(r.nodes.size(), SIZE_MAX),
        partner_c_(c.nodes.size(), SIZE_MAX) {
    class_r_ = content_classes(reference, r), class_c_ = content_classes(candidate, c);
    rank_r_ = ranks(reference, r), rank_c_ = ranks(candidate, c);
    think(weights_r, weights_c);
  }

  NodeMatching solve() {
    for (const Level& level : kLevels)
      while (commit_round(level)) check_interrupt("pairing");
    commit_equal_ones();
    for (const Level& level : kLevels)
      while (commit_round(level)) check_interrupt("pairing");
    while (commit_round(kByHand)) check_interrupt("pairing");
    put_names_right();
    std::sort(out_.pairs.begin(), out_.pairs.end(),
              [](const NodePair& a, const NodePair& b) { return a.candidate < b.candidate; });
    say_what_is_unsure();
    return std::move(out_);
  }

 private:
  // Nodes whose first tensors have the very same values have one number.
  static std::vector<size_t> content_classes(const RunView& run, const PairingGraph& graph) {
    std::map<std::string, size_t> seen;
    std::vector<size_t> out;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const PairingNode& node = graph.nodes[n];
      const RecordedTensor& record = run.records[node.slots[0].records[0]];
      const std::string key = record.checksum.empty() || node.slots.size() > 1
                                  ? "#" + std::to_string(n)
                                  : record.checksum + std::to_string(static_cast<int>(record.dtype));
      out.push_back(seen.try_emplace(key, n).first->second);
    }
    return out;
  }

  struct Rank {
    size_t at = 0, of = 0;
  };
  // Which of the nodes of its parent, side and size it is.
  static std::vector<Rank> ranks(const RunView& run, const PairingGraph& graph) {
    using Kind = std::tuple<size_t, bool, int64_t>;
    std::map<Kind, size_t> counts;
    std::vector<Kind> kinds;
    std::vector<Rank> out;
    for (const PairingNode& node : graph.nodes) {
      kinds.emplace_back(node.parent, node.input, checked_numel(run.records[node.first].shape));
      out.push_back({counts[kinds.back()]++, 0});
    }
    for (size_t n = 0; n < out.size(); ++n) out[n].of = counts[kinds[n]];
    return out;
  }

  void think(const ModuleWeights& weights_r, const ModuleWeights& weights_c) {
    const auto weights_of = [](const ModuleWeights& all, const PairingNode& node) -> const std::vector<WeightSketch>* {
      const auto found = all.find(node.name);
      return found == all.end() ? nullptr : &found->second;
    };
    const std::vector<bool> hands_on = calls_that_hand_on();
    for (size_t c = 0; c < c_.nodes.size(); ++c) {
      check_interrupt("pairing");
      for (size_t r = 0; r < r_.nodes.size(); ++r) {
        const PairingNode &a = r_.nodes[r], &b = c_.nodes[c];
        if (!may_be_one(a, b) || !shapes_may_agree(reference_.records[a.first], candidate_.records[b.first])) continue;
        Thought thought;
        thought.r = r, thought.c = c;
        thought.same_shape = same_size_shape(reference_.records[a.first].shape, candidate_.records[b.first].shape);
        weigh_content(a, b, thought);
        thought.fixed += thought.content + name_likeness(a, b);
        if (a.input != b.input) {  // a tensor named by hand is an input of something where it has its very values
          if (!thought.equal) continue;
          thought.fixed -= 2;
        }
        const auto *of_r = weights_of(weights_r, a), *of_c = weights_of(weights_c, b);
        thought.lacks_weights = of_r && !of_c && !weights_c.empty() && !b.by_hand && b.children.empty();
        if (!a.input && !b.input) {
          if (of_r && of_c) {
            thought.weights = same_weights(*of_r, *of_c);
            thought.fixed += thought.weights > 0 ? kWeights * thought.weights : kOtherWeights;
          } else if (thought.lacks_weights && !thought.equal) {
            thought.fixed += kOtherWeights;  // a layer with weights is none without
          }
        }
        // A tensor that was named by hand is what a call makes itself, not what its parents hand on.
        if (!a.by_hand)
          thought.fixed +=
              (b.by_hand ? !hands_on[r] : a.children.empty() == b.children.empty()) ? kSameHeight : -kSameHeight;
        if (thought.fixed < kLeastStatic) continue;
        if (thoughts_.size() >= kMostPairs) return;
        thoughts_.push_back(thought);
      }
    }
    weigh_twins();
    std::vector<bool> equal_r(r_.nodes.size()), equal_c(c_.nodes.size());
    for (const Thought& thought : thoughts_)
      if (thought.equal && thought.content > 0.5 * kContent) equal_r[thought.r] = equal_c[thought.c] = true;
    for (Thought& thought : thoughts_)
      if (thought.known && !thought.equal && (equal_r[thought.r] || equal_c[thought.c]))
        thought.fixed += kEqualElsewhere;
    forget_refuted(thoughts_, r_, c_);
  }

  // Calls that give what another has given before: a parent what its part gave, a list of one layer, dropout at rest. A
  // block that adds to its stream makes a tensor of its own.
  std::vector<bool> calls_that_hand_on() const {
    std::map<size_t, size_t> first;  // by class: when it was made
    for (size_t r = 0; r < r_.nodes.size(); ++r)
      if (!r_.nodes[r].input) {
        const auto [at, is_new] = first.try_emplace(class_r_[r], r_.nodes[r].made);
        if (!is_new) at->second = std::min(at->second, r_.nodes[r].made);
      }
    std::vector<bool> out(r_.nodes.size());
    for (size_t r = 0; r < r_.nodes.size(); ++r)
      out[r] = !r_.nodes[r].input && first.at(class_r_[r]) < r_.nodes[r].made;
    return out;
  }

  // A layer's result is handed on by its parents: what went in tells which of them it is.
  void weigh_twins() {
    std::map<std::pair<size_t, size_t>, const Thought*> of;
    for (const Thought& thought : thoughts_)
      if (r_.nodes[thought.r].input && c_.nodes[thought.c].input) of[{thought.r, thought.c}] = &thought;
    for (Thought& thought : thoughts_) {
      const size_t twin_r = r_.nodes[thought.r].twin, twin_c = c_.nodes[thought.c].twin;
      if (r_.nodes[thought.r].input || twin_r == SIZE_MAX || twin_c == SIZE_MAX) continue;
      const auto found = of.find({twin_r, twin_c});
      thought.same_given = found != of.end() && found->second->equal;
      thought.fixed += thought.same_given ? kTwinContent : -kTwinContent;
    }
  }

  void weigh_content(const PairingNode& a, const PairingNode& b, Thought& thought) {
    double sum = 0, of_size = 0;  // apart: a tensor is known by its values, not by their size
    size_t known = 0, equal = 0;
    // Arguments that one side alone has (a cache) say nothing: those of the side with fewer are looked for.
    const bool by_reference = a.slots.size() <= b.slots.size();
    for (const PairingSlot& slot : by_reference ? a.slots : b.slots) {
      Likeness best;
      size_t record = SIZE_MAX, of = SIZE_MAX;
      for (const PairingSlot& other : by_reference ? b.slots : a.slots) {
        const PairingSlot &theirs = by_reference ? slot : other, &own = by_reference ? other : slot;
        for (size_t k = 0; k < std::min(own.records.size(), kMostCalls); ++k) {
          const Likeness like = likeness_.of(theirs.records[0], own.records[k]);
          if (like.known && (!best.known || like.error < best.error))
            best = like, record = theirs.records[0], of = own.records[k];
        }
      }
      if (!best.known) continue;
      ++known;
      const double limit = equal_limit(reference_.records[record], candidate_.records[of]);
      if (best.error <= limit) {
        ++equal;
        sum += best.weight * (kContent + std::min(kContentDigits, std::log10(limit / std::max(best.error, 1e-9))) +
                              (best.moved ? kMoved : 0));
        continue;
      }
      // The angle between the two counts where their sizes differ.
      const double apart = std::min(best.error, std::sqrt(2 * std::max(0.0, 1 - best.correlation)));
      sum += best.weight * (apart < kAlikeContent ? kSimilarContent * (1 - apart) : apart > 1.1 ? kOtherContent : 0);
      if (b.by_hand && apart < kAlikeContent && std::fabs(best.size - 1) < kSizesApart)
        of_size += best.weight * kSameSize;
    }
    thought.known = known > 0;
    thought.equal = known > 0 && equal == known;
    thought.content = known ? sum / static_cast<double>(known) : 0;
    thought.fixed = known ? of_size / static_cast<double>(known) : 0;
  }

  static bool is_below(const PairingGraph& graph, size_t node, size_t above) {
    return node == above || graph.nodes[node].name == graph.nodes[above].name ||
           is_inside(graph.nodes[node].name, graph.nodes[above].name);
  }

  size_t nearest_paired_above(const PairingGraph& graph, const std::vector<size_t>& partner, size_t node) const {
    for (size_t up = graph.nodes[node].parent; up != SIZE_MAX; up = graph.nodes[up].parent)
      if (partner[up] != SIZE_MAX) return up;
    return SIZE_MAX;
  }

  // A call of yours hands what it is given (or what it gives) on as it is: it cannot be the reference's call of another
  // tensor than its part is.
  bool is_one_where_they_are_two(size_t r, size_t c) const {
    const PairingNode& own = c_.nodes[c];
    return std::any_of(own.children.begin(), own.children.end(), [&](size_t part) {
      return c_.nodes[part].input == own.input && class_c_[part] == class_c_[c] && partner_c_[part] != SIZE_MAX &&
             partner_c_[part] != r && class_r_[partner_c_[part]] != class_r_[r];
    });
  }

  double surroundings(const Thought& thought) const {
    const PairingNode &a = r_.nodes[thought.r], &b = c_.nodes[thought.c];
    if (!thought.equal && is_one_where_they_are_two(thought.r, thought.c)) return kNever;
    double score = names_.support(a, b);
    // The other side of the same call.
    const size_t twin_r = a.twin == SIZE_MAX ? SIZE_MAX : partner_r_[a.twin],
                 twin_c = b.twin == SIZE_MAX ? SIZE_MAX : partner_c_[b.twin];
    if (twin_r != SIZE_MAX && twin_r == b.twin)
      score += kTwin;
    else if ((twin_r != SIZE_MAX && b.twin != SIZE_MAX) || (twin_c != SIZE_MAX && a.twin != SIZE_MAX))
      score += kOtherTwin;
    // Whose code calls it.
    const size_t up_r = nearest_paired_above(r_, partner_r_, thought.r),
                 up_c = nearest_paired_above(c_, partner_c_, thought.c);
    bool same_parent = a.parent == SIZE_MAX && b.parent == SIZE_MAX;
    if (up_r != SIZE_MAX || up_c != SIZE_MAX) {
      const bool fits_r = up_r == SIZE_MAX || is_below(c_, thought.c, partner_r_[up_r]),
                 fits_c = up_c == SIZE_MAX || is_below(r_, thought.r, partner_c_[up_c]);
      same_parent = up_r != SIZE_MAX && up_c != SIZE_MAX && c_.nodes[partner_r_[up_r]].name == c_.nodes[up_c].name;
      if (!b.by_hand && !a.by_hand) score += same_parent ? kParent : fits_r && fits_c ? kFartherParent : kOtherParent;
    }
    double children = 0;
    for (const size_t child : a.children)
      if (partner_r_[child] != SIZE_MAX) children += is_below(c_, partner_r_[child], thought.c) ? kChild : kOtherChild;
    score += std::clamp(children, -kMostChildren, kMostChildren);
    const Rank &rank_r = rank_r_[thought.r], &rank_c = rank_c_[thought.c];
    if (same_parent && rank_r.of == rank_c.of && rank_r.at == rank_c.at)
      score += rank_r.of > 1 ? kSameRank : kSameRank / 2;
    return score + order_of(thought);
  }

  // What ran just before and just after in the reference did so in yours too. Within a layer two streams may take turns
  // otherwise; tensors named by hand in several layers come in the order of the program, and only equal content says
  // otherwise.
  double order_of(const Thought& thought) const {
    const PairingNode& a = r_.nodes[thought.r];
    const size_t first_c = c_.nodes[thought.c].first;
    const auto agrees = [&](size_t r, bool in_order) {
      if (in_order) return kOrder;
      const bool may_differ = !c_.nodes[thought.c].by_hand || thought.equal || is_of_one_layer(r_.nodes[r], a);
      return may_differ ? kOtherOrder : kNever;
    };
    double score = 0;
    const auto after = by_order_.upper_bound(a.made), at = by_order_.lower_bound(a.made);
    if (after != by_order_.end()) score += agrees(after->second, first_of_partner(after->second) > first_c);
    if (at != by_order_.begin())
      score += agrees(std::prev(at)->second, first_of_partner(std::prev(at)->second) < first_c);
    return score;
  }
  size_t first_of_partner(size_t r) const { return c_.nodes[partner_r_[r]].first; }

  // Tensors named by hand come in the order of the program: the first of that size after the one named before.
  bool is_next_of_its_size(const Thought& thought) const {
    const PairingNode &a = r_.nodes[thought.r], &b = c_.nodes[thought.c];
    if (!b.by_hand || a.input || thought.c == 0 || partner_c_[thought.c - 1] == SIZE_MAX) return false;
    const size_t before = partner_c_[thought.c - 1];
    if (before >= thought.r) return false;
    const int64_t size = checked_numel(reference_.records[a.first].shape);
    for (size_t n = before + 1; n < thought.r; ++n) {
      const PairingNode& between = r_.nodes[n];
      if (!between.input && partner_r_[n] == SIZE_MAX && class_r_[n] != class_r_[thought.r] &&
          class_r_[n] != class_r_[before] && checked_numel(reference_.records[between.first].shape) == size)
        return false;
    }
    return true;
  }

  struct Best {
    double score = -1e9, next = -1e9;
    size_t at = SIZE_MAX;  // thought
  };

  // How many tensors of each size have no partner yet; one that stands at several places is one.
  static std::map<std::pair<int64_t, bool>, std::set<size_t>> open_sizes(const RunView& run, const PairingGraph& graph,
                                                                         const std::vector<size_t>& partner,
                                                                         const std::vector<size_t>& classes) {
    std::map<std::pair<int64_t, bool>, std::set<size_t>> out;
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      if (partner[n] == SIZE_MAX)
        out[{checked_numel(run.records[graph.nodes[n].first].shape), graph.nodes[n].input}].insert(classes[n]);
    return out;
  }

  bool commit_round(const Level& level) {
    const auto sizes_r = open_sizes(reference_, r_, partner_r_, class_r_),
               sizes_c = open_sizes(candidate_, c_, partner_c_, class_c_);
    const auto is_only = [](const auto& sizes, const RecordedTensor& record, bool input) {
      const auto found = sizes.find({checked_numel(record.shape), input});
      return found != sizes.end() && found->second.size() == 1;
    };
    std::vector<Best> best_r(r_.nodes.size()), best_c(c_.nodes.size());
    std::erase_if(thoughts_,
                  [&](const Thought& t) { return partner_r_[t.r] != SIZE_MAX || partner_c_[t.c] != SIZE_MAX; });
    for (size_t t = 0; t < thoughts_.size(); ++t) {
      Thought& thought = thoughts_[t];
      const double around = surroundings(thought);
      thought.total = thought.fixed + around;
      const PairingNode &a = r_.nodes[thought.r], &b = c_.nodes[thought.c];
      if (thought.content > 0 && is_next_of_its_size(thought)) thought.total += kNextOfItsSize;
      // That both are the only ones means little where their values have nothing in common and nobody near knows them.
      const bool plausible = !thought.known || thought.content > 0 || around >= kTwin;
      if (plausible && a.input == b.input && is_only(sizes_r, reference_.records[a.first], a.input) &&
          is_only(sizes_c, candidate_.records[b.first], b.input))
        thought.total += kOnlyOnes;
      const auto put = [&](Best& best, bool same_values) {
        if (thought.total > best.score) {
          if (!same_values) best.next = best.score;
          best.score = thought.total, best.at = t;
        } else if (!same_values) {
          best.next = std::max(best.next, thought.total);
        }
      };
      // Rivals that hold the very same tensor are no rivals: whichever is taken, the values are right.
      const Best &of_r = best_r[thought.r], &of_c = best_c[thought.c];
      const bool twins_c = of_r.at != SIZE_MAX && class_c_[thoughts_[of_r.at].c] == class_c_[thought.c],
                 twins_r = of_c.at != SIZE_MAX && class_r_[thoughts_[of_c.at].r] == class_r_[thought.r];
      put(best_r[thought.r], twins_c && !thought.equal);
      put(best_c[thought.c], twins_r && !thought.equal);
    }
    std::vector<size_t> chosen;
    for (const Best& best : best_c) {
      if (best.at == SIZE_MAX || best.score < level.score || best.score - best.next < level.margin) continue;
      if (level.score == kByHand.score && !(c_.nodes[thoughts_[best.at].c].by_hand && thoughts_[best.at].content > 1))
        continue;
      const Best& back = best_r[thoughts_[best.at].r];
      if (back.at != best.at || back.score - back.next < level.margin) continue;
      chosen.push_back(best.at);
    }
    std::sort(chosen.begin(), chosen.end(),
              [&](size_t a, size_t b) { return thoughts_[a].total > thoughts_[b].total; });
    for (const size_t t : chosen) commit(thoughts_[t]);
    return !chosen.empty();
  }

  void commit(const Thought& thought) {
    if (partner_r_[thought.r] != SIZE_MAX || partner_c_[thought.c] != SIZE_MAX) return;
    partner_r_[thought.r] = thought.c, partner_c_[thought.c] = thought.r;
    by_order_[r_.nodes[thought.r].made] = thought.r;
    names_.learn(r_.nodes[thought.r], c_.nodes[thought.c]);
    std::string why = thought.equal ? "equal content" : thought.content > 1 ? "similar content" : "";
    if (thought.weights > 0.5) why += why.empty() ? "same weights" : ", same weights";
    if (why.empty())
      why = names_.support(r_.nodes[thought.r], c_.nodes[thought.c]) > 4 ? "named like others" : "place and name";
    out_.pairs.push_back({thought.r, thought.c, thought.total, why});
  }

  // Two of one parent that bear the same names on both sides and have each other's values were exchanged, not renamed.
  void put_names_right() {
    const auto same_name = [&](size_t r, size_t c) {
      return r_.nodes[r].segments.back() == c_.nodes[c].segments.back() && r_.nodes[r].input == c_.nodes[c].input;
    };
    for (NodePair& pair : out_.pairs)
      for (NodePair& other : out_.pairs) {
        if (pair.reference >= other.reference || same_name(pair.reference, pair.candidate)) continue;
        if (!same_name(pair.reference, other.candidate) || !same_name(other.reference, pair.candidate)) continue;
        if (r_.nodes[pair.reference].parent != r_.nodes[other.reference].parent ||
            c_.nodes[pair.candidate].parent != c_.nodes[other.candidate].parent)
          continue;
        std::swap(pair.candidate, other.candidate);
        pair.why = other.why = "names; the values are exchanged";
      }
  }

  // What is equal to several that are equal to each other: in order.
  void commit_equal_ones() {
    std::vector<size_t> equal;
    for (size_t t = 0; t < thoughts_.size(); ++t)
      if (thoughts_[t].equal && thoughts_[t].content > 0.5 * kContent &&
          thoughts_[t].total - thoughts_[t].fixed > kOtherSurroundings)
        equal.push_back(t);
    std::stable_sort(equal.begin(), equal.end(), [&](size_t a, size_t b) {
      return std::lround(4 * thoughts_[a].total) > std::lround(4 * thoughts_[b].total);
    });
    for (const size_t t : equal) commit(thoughts_[t]);
  }

  void say_what_is_unsure() {
    std::map<size_t, std::vector<const Thought*>> open;
    for (const Thought& thought : thoughts_)
      if (partner_r_[thought.r] == SIZE_MAX && partner_c_[thought.c] == SIZE_MAX && thought.total >= kWorthSaying)
        open[thought.c].push_back(&thought);
    for (auto& [c, among] : open) {
      std::stable_sort(among.begin(), among.end(),
                       [](const Thought* a, const Thought* b) { return a->total > b->total; });
      UnsureNode& unsure = out_.unsure.emplace_back(UnsureNode{c, {}});
      for (size_t i = 0; i < std::min<size_t>(among.size(), 3); ++i) unsure.among.push_back(among[i]->r);
    }
  }

  const RunView& reference_;
  const RunView& candidate_;
  const PairingGraph& r_;
  const PairingGraph& c_;
  LikenessOracle& likeness_;
  std::vector<size_t> partner_r_, partner_c_, class_r_, class_c_;
  std::vector<Rank> rank_r_, rank_c_;
  std::vector<Thought> thoughts_;
  std::map<size_t, size_t> by_order_;  // of the reference: when it was made → node that has a partner
  LearnedNames names_;
  NodeMatching out_;
};

}  // namespace

bool shapes_may_agree(const RecordedTensor& a, const RecordedTensor& b) {
  if (same_element_count(a, b)) return true;
  Shape x, y;
  for (const int64_t size : a.shape)
    if (size != 1) x.push_back(size);
  for (const int64_t size : b.shape)
    if (size != 1) y.push_back(size);
  if (x.size() != y.size() || x.size() < 2) return false;
  size_t differing = 0;
  for (size_t i = 0; i < x.size(); ++i) differing += x[i] != y[i];
  return differing == 1;
}

NodeMatching match_nodes(const RunView& reference, const PairingGraph& r, const RunView& candidate,
                         const PairingGraph& c, const ModuleWeights& weights_r, const ModuleWeights& weights_c,
                         LikenessOracle& likeness) {
  return Matcher(reference, r, candidate, c, weights_r, weights_c, likeness).solve();
}

}  // namespace lockstep
