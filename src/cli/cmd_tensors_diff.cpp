// lockstep tensors diff: two files or folders, tensor by tensor. Exit status 1 where they differ.
#include <fmt/format.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/names.h"
#include "base/number_text.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/cmd_tensors.h"
#include "cli/comparison_text.h"
#include "cli/table.h"
#include "cli/tensor_selection.h"
#include "measure/metrics_json.h"

namespace lockstep {
namespace {

struct DiffOptions {
  std::string reference, candidate, name, slice, tolerance = "default";
  bool common = false, all = false;
};

struct FilePair {
  const TensorInfo *reference, *candidate;
};

struct FilePairs {
  std::vector<FilePair> pairs;
  std::vector<std::string> only_reference, only_candidate;
};

// By name; but two files with one tensor each are about that tensor, whatever it is called.
FilePairs pair_up(const TensorSource& reference, const TensorSource& candidate, const std::string& pattern) {
  FilePairs pairing;
  if (pattern.empty() && reference.tensors().size() == 1 && candidate.tensors().size() == 1) {
    pairing.pairs.push_back({&reference.tensors()[0], &candidate.tensors()[0]});
    return pairing;
  }
  for (const TensorInfo* info : select_tensors(reference, pattern)) {
    if (const TensorInfo* other = candidate.find(info->name))
      pairing.pairs.push_back({info, other});
    else
      pairing.only_reference.push_back(info->name);
  }
  for (const TensorInfo& info : candidate.tensors())
    if (!reference.find(info.name) && (pattern.empty() || glob_match(pattern, info.name)))
      pairing.only_candidate.push_back(info.name);
  return pairing;
}

struct Result {
  std::string name;
  TensorComparison comparison;
};

class Diff {
 public:
  Diff(App& app, const DiffOptions& options) : app_(app), options_(options), terminal_(app.global) {}

  void run() {
    const std::optional<Tolerance> tolerance = parse_tolerance(options_.tolerance);
    const auto reference = open_tensors(options_.reference), candidate = open_tensors(options_.candidate);
    pairing_ = pair_up(*reference, *candidate, options_.name);
    if (pairing_.pairs.empty())
      fail(Code::kBadInput, "diff", "nothing was compared: the two have no tensor name in common",
           {.hint = fmt::format("lockstep tensors list {}", options_.candidate)});
    if (options_.common) pairing_.only_reference.clear(), pairing_.only_candidate.clear();
    uint64_t bytes = 0;
    for (const FilePair& pair : pairing_.pairs) bytes += pair.reference->size_bytes;
    {
      Progress progress("comparing", static_cast<int64_t>(bytes), !app_.global.quiet && pairing_.pairs.size() > 1);
      for (const FilePair& pair : pairing_.pairs) {
        check_interrupt("diff");
        add(pair.reference->name,
            compare_tensors(load_selected(*reference, *pair.reference, options_.slice),
                            load_selected(*candidate, *pair.candidate, options_.slice), tolerance));
        progress.advance(static_cast<int64_t>(pair.reference->size_bytes));
      }
    }
    if (app_.global.json)
      print_as_json();
    else
      print_as_text();
    app_.status = match() ? 0 : 1;
  }

 private:
  void add(const std::string& name, TensorComparison comparison) {
    note("diff", "{}: {} pairs of {} and {}, tolerance {} ({} + {} * |reference|)", name, comparison.count,
         dtype_name(comparison.reference_dtype), dtype_name(comparison.candidate_dtype), comparison.tolerance.name,
         comparison.tolerance.absolute, comparison.tolerance.relative);
    different_ += !comparison.match();
    results_.push_back({name, std::move(comparison)});
  }

  bool match() const { return different_ == 0 && pairing_.only_reference.empty() && pairing_.only_candidate.empty(); }

  void print_as_json() const {
    Json tensors = Json::array();
    for (const Result& result : results_) {
      Json json = {{"name", result.name}};
      json.update(json_from(result.comparison));
      tensors.push_back(std::move(json));
    }
    print_json({{"verdict", match() ? "match" : "mismatch"},
                {"compared", results_.size()},
                {"different", different_},
                {"tensors", tensors},
                {"unpaired", {{"reference", pairing_.only_reference}, {"candidate", pairing_.only_candidate}}}});
  }

  void print_unpaired(const char* side, const std::vector<std::string>& names) const {
    constexpr size_t kMost = 5;
    if (names.empty()) return;
    print("only in the {}: {}", side, text_from_count(static_cast<int64_t>(names.size())));
    for (size_t i = 0; i < names.size() && i < kMost; ++i) print("{} {}", i ? "," : ":", names[i]);
    print("{}\n", names.size() > kMost ? ", ..." : "");
  }

  void print_as_text() const {
    if (results_.size() == 1) {
      print("{}", text_from_comparison(results_[0].comparison, terminal_));
    } else {
      print_table();
    }
    print_unpaired("reference", pairing_.only_reference);
    print_unpaired("candidate", pairing_.only_candidate);
    if (results_.size() > 1 || (different_ == 0 && !match()))
      print("{}: {} compared, {} different\n",
            match() ? terminal_.styled("match", Style::kGreen) : terminal_.styled("MISMATCH", Style::kRed),
            results_.size(), different_);
  }

  void print_table() const {
    using enum Table::Align;
    Table table({{""},
                 {"name", kLeft, true},
                 {"dtype"},
                 {"shape"},
                 {"max abs", kRight},
                 {"rel L2", kRight},
                 {"cosine", kRight},
                 {"outside", kRight}});
    size_t hidden = 0, shown = 0;
    constexpr size_t kMostRows = 100;
    for (const Result& result : results_) {
      const TensorComparison& c = result.comparison;
      if ((c.match() || shown == kMostRows) && !options_.all) {
        ++hidden;
        continue;
      }
      ++shown;
      const std::string dtypes =
          c.reference_dtype == c.candidate_dtype
              ? std::string(dtype_name(c.reference_dtype))
              : fmt::format("{}/{}", dtype_name(c.reference_dtype), dtype_name(c.candidate_dtype));
      const Cell sign = c.match() ? Cell("ok", Style::kGreen) : Cell("DIFF", Style::kRed);
      if (!c.same_shape)
        table.add({sign, result.name, dtypes, to_string(c.reference_shape) + " / " + to_string(c.candidate_shape)});
      else
        table.add({sign, result.name, dtypes, to_string(c.reference_shape), text_from_number(c.max_abs),
                   text_from_number(c.relative_l2), fmt::format("{:.8f}", c.cosine),
                   text_from_share(c.mismatch_share())});
    }
    if (shown > 0) print("{}", table.text(terminal_));
    if (hidden > 0) print("{} not shown: --all shows them\n", text_from_count(static_cast<int64_t>(hidden)));
  }

  App& app_;
  const DiffOptions& options_;
  Terminal terminal_;
  FilePairs pairing_;
  std::vector<Result> results_;
  size_t different_ = 0;
};

}  // namespace

void add_diff(App& app, CLI::App& group, const std::string& name, const std::string& help,
              const std::string& examples) {
  CLI::App* command = group.add_subcommand(name, help);
  command->footer(examples);
  auto options = std::make_shared<DiffOptions>();
  command->add_option("REFERENCE", options->reference, "the correct file or folder")->required();
  command->add_option("CANDIDATE", options->candidate, "the file or folder to check")->required();
  command->add_option("NAME", options->name, "a tensor's name, or a glob such as '*.attn.*'");
  command->add_option("--slice", options->slice, "compare this part only: '[0, :, -1, ::2]'")->type_name("SLICE");
  command
      ->add_option(
          "--tolerance", options->tolerance,
          "default (by dtype), exact, identical (1e-6), high (1e-4), acceptable (1e-3), suspect (1e-2), ABS or ABS,REL")
      ->type_name("T")
      ->capture_default_str();
  command->add_flag("--common", options->common, "ignore tensors that only one side has");
  command->add_flag("--all", options->all, "also show matching tensors");
  command->callback([&app, options] {
    if (!options->name.empty() && options->name.front() == '[' && options->slice.empty())
      std::swap(options->slice, options->name);
    Diff(app, *options).run();
  });
}

}  // namespace lockstep
