// What record --health noted while the program ran (python/lockstep/health_watch.py), judged.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/interrupt.h"
#include "toolbox/run_health.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostNotes = 256 << 20;
constexpr double kUniform = 1e-3;      // how far the largest weight may be above the mean
constexpr double kCollapsed = 0.9999;  // of the weight on one key, the same for all queries
constexpr int64_t kManyKeys = 16, kManyQueries = 8;

std::string note_text(const Json& note, const char* field) {
  const auto at = note.find(field);
  return at != note.end() && at->is_string() ? at->get<std::string>() : std::string();
}

double note_number(const Json& note, const char* field) {
  const auto at = note.find(field);
  return at != note.end() && at->is_number() ? at->get<double>() : 0;
}

Shape note_shape(const Json& note, const char* field) {
  Shape shape;
  if (const auto at = note.find(field); at != note.end() && at->is_array() && at->size() <= 8)
    for (const Json& size : *at)
      if (size.is_number_unsigned()) shape.push_back(size.get<int64_t>());
  return shape;
}

Where note_place(const Json& note) {
  Where where;
  if (const auto at = note.find("where"); at != note.end() && at->is_object()) {
    where.file = note_text(*at, "file");
    where.line = static_cast<int>(std::clamp(note_number(*at, "line"), 0.0, 1e9));
    where.function = note_text(*at, "function");
  }
  return where;
}

class Watched {
 public:
  explicit Watched(RunHealth& health) : health_(health) {}

  void add(const Json& note) {
    const std::string kind = note_text(note, "kind"), name = note_text(note, "name");
    if (kind == "attention") {
      add_attention(note, name);
    } else if (kind == "raw_memory") {
      tell(note, name, kind,
           fmt::format("a tensor of {} with strides {} is not contiguous, and its address is taken here",
                       to_string(note_shape(note, "shape")), to_string(note_shape(note, "strides"))),
           "tensor.contiguous() before data_ptr(), and keep the result alive");
    } else if (kind == "growing_graph") {
      const bool mlx = note_text(note, "framework") == "mlx";
      tell(note, name, kind,
           mlx ? fmt::format("called {} times and nothing was evaluated in between: the lazy graph keeps growing",
                             note_number(note, "calls"))
               : fmt::format("{} calls in a row take tensors that hang on the gradients of earlier ones",
                             note_number(note, "calls")),
           mlx ? "mx.eval at the end of each step" : "torch.no_grad() or inference_mode() around the loop");
    } else if (kind == "shared_memory") {
      tell(note, name, kind,
           "shares memory with " + note_text(note, "other") + ", and was written to after it had been recorded",
           "a copy: clone() in torch, copy() in NumPy");
    }
  }

  void finish() {
    for (auto& [name, seen] : attention_) {
      for (AttentionSeen::Head& head : seen.heads) {
        head.entropy /= static_cast<double>(seen.calls);
        head.sink /= static_cast<double>(seen.calls);
      }
      health_.attention.push_back(std::move(seen));
    }
  }

 private:
  void add_attention(const Json& note, const std::string& name) {
    const auto heads = note.find("heads");
    if (heads == note.end() || !heads->is_array() || heads->size() > 4096) return;
    AttentionSeen& seen = attention_[name];
    if (seen.calls == 0) {
      seen.name = name;
      seen.where = note_place(note);
      seen.q = note_shape(note, "q");
      seen.k = note_shape(note, "k");
      seen.v = note_shape(note, "v");
      seen.heads.resize(heads->size());
    }
    if (heads->size() != seen.heads.size()) return;
    ++seen.calls;
    const Shape k = note_shape(note, "k");
    const int64_t keys = k.size() == 4 ? k[2] : 0;
    std::string uniform, collapsed;
    for (size_t i = 0; i < heads->size(); ++i) {
      const Json& head = (*heads)[i];
      if (!head.is_object()) continue;
      seen.heads[i].entropy += note_number(head, "entropy");
      seen.heads[i].sink += note_number(head, "sink");
      if (keys < kManyKeys || note_number(head, "queries") < kManyQueries) continue;
      if (note_number(head, "most_over_equal") < kUniform)
        uniform += fmt::format("{}{}", uniform.empty() ? "" : ", ", i);
      if (note_number(head, "least_top") > kCollapsed && head.value("one_key", Json(false)) == Json(true))
        collapsed += fmt::format("{}{}", collapsed.empty() ? "" : ", ", i);
    }
    const std::string shapes =
        fmt::format("q {}, k {} as [batch, heads, tokens, head size]", to_string(note_shape(note, "q")), to_string(k));
    if (!uniform.empty())
      tell(note, name, "uniform_head",
           fmt::format("head {} of {} looks at all {} keys alike; {}", uniform, heads->size(), keys, shapes),
           "q or k is (nearly) zero here: a weight that was not loaded, a scale applied twice, or heads and tokens "
           "exchanged");
    if (!collapsed.empty())
      tell(note, name, "collapsed_head",
           fmt::format("head {} of {} looks at one of {} keys for every query; {}", collapsed, heads->size(), keys,
                       shapes),
           "scores are far too large: the scale 1/sqrt(head size) or the norm of q and k is missing, or a mask hides "
           "the rest");
  }

  void tell(const Json& note, const std::string& name, const std::string& check, std::string explanation,
            std::string hint) {
    const auto [at, is_new] = told_.try_emplace({check, component_of_record(name)}, health_.findings.size());
    if (!is_new) {
      ++health_.findings[at->second].others;
      return;
    }
    RunFinding finding;
    finding.check = check;
    finding.key.name = name;
    finding.where = note_place(note);
    finding.explanation = std::move(explanation);
    finding.hint = std::move(hint);
    health_.findings.push_back(std::move(finding));
  }

  RunHealth& health_;
  std::map<std::string, AttentionSeen> attention_;
  std::map<std::pair<std::string, std::string>, size_t> told_;
};

}  // namespace

void add_watched(const Run& run, RunHealth& health) {
  Watched watched(health);
  std::error_code error;
  for (fs::directory_iterator it(run.path() / "health", error), end; !error && it != end; it.increment(error)) {
    check_interrupt("health");
    if (it->path().extension() != ".jsonl") continue;
    const std::string text = read_text(it->path(), kMostNotes);
    for (size_t at = 0; at < text.size();) {
      const size_t line_end = std::min(text.find('\n', at), text.size());
      const Json note = Json::parse(text.substr(at, line_end - at), nullptr, false);
      if (note.is_object()) watched.add(note);
      at = line_end + 1;
    }
  }
  watched.finish();
}

}  // namespace lockstep
