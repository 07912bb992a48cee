#include "service/opened_runs.h"

#include <fmt/format.h>

#include <chrono>

#include "base/interrupt.h"
#include "capture/store.h"
#include "compare/layout_view.h"

namespace lockstep {
namespace {

constexpr size_t kKeptRuns = 6, kKeptComparisons = 3;

std::string file_state(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) return "none";
  const auto time = fs::last_write_time(file, error).time_since_epoch();
  // Not its own count, which has 128 bits with some libraries.
  return fmt::format("{}.{}", size, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

// Changes whenever the run does. Empty: it cannot be told, as of a plain folder of files.
std::string run_state(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path / "records.jsonl", error)) return "";
  return path.string() + "\n" + file_state(path / "records.jsonl") + "\n" + file_state(path / "run.json") + "\n" +
         file_state(path);
}

template <typename List>
auto taken_from(List& list, const std::string& key) -> decltype(list.front().value) {
  for (auto item = list.begin(); item != list.end(); ++item)
    if (item->key == key) {
      list.splice(list.begin(), list, item);
      return list.front().value;
    }
  return nullptr;
}

template <typename List>
void put_in_front(List& list, typename List::value_type item, size_t most) {
  list.push_front(std::move(item));
  while (list.size() > most) list.pop_back();
}

}  // namespace

std::shared_ptr<const Run> OpenedRuns::run(const std::string& spec) {
  const std::string state = run_state(Store(home_).resolve(spec));
  if (!state.empty()) {
    const std::lock_guard lock(mutex_);
    if (auto kept = taken_from(runs_, state)) return kept;
  }
  auto opened = std::make_shared<const Run>(Run::open(spec, home_));
  if (!state.empty() && opened->status() != "running") {
    const std::lock_guard lock(mutex_);
    put_in_front(runs_, {run_state(opened->path()), opened}, kKeptRuns);
  }
  return opened;
}

std::shared_ptr<const OpenedRuns::Compared> OpenedRuns::comparison(const CompareQuestion& question) {
  const std::shared_ptr<const Run> reference = run(question.reference), candidate = run(question.candidate);
  const std::string states[] = {run_state(reference->path()), run_state(candidate->path())};
  std::string key = states[0] + "\n" + states[1];
  for (const std::string* part : {&question.only, &question.noise, &question.weights, &question.weights_a,
                                  &question.weights_b, &question.map, &question.tolerances})
    key += "\n" + *part;
  for (const std::string* file : {&question.map, &question.tolerances})
    if (!file->empty()) key += "\n" + file_state(*file);
  key += question.propose ? "\npropose" : "";
  key += question.partial ? "\npartial" : "";
  const bool can_be_kept = !states[0].empty() && !states[1].empty();
  const auto kept = [&]() -> std::shared_ptr<const Compared> {
    const std::lock_guard lock(mutex_);
    return can_be_kept ? taken_from(comparisons_, key) : nullptr;
  };
  if (auto known = kept()) return known;
  std::unique_lock comparing(comparing_, std::defer_lock);
  while (!comparing.try_lock_for(std::chrono::milliseconds(50))) check_interrupt("compare");
  if (auto known = kept()) return known;
  auto made = std::make_shared<Compared>();
  made->answer = answer_to(question, home_, view_of(reference), view_of(candidate));
  made->candidate_in_layout = in_layout_of(made->answer.reference, made->answer.candidate, made->answer.comparison);
  if (can_be_kept) {
    const std::lock_guard lock(mutex_);
    put_in_front(comparisons_, {key, made}, kKeptComparisons);
  }
  return made;
}

}  // namespace lockstep
