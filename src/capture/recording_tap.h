// The listener at the taps: counts hits, records, compares with a reference as the program goes, and hands back the
// reference's values where they are to be substituted. The engine, the C ABI and the Python package all come through
// here, so that a hit means the same everywhere.
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "capture/record.h"
#include "capture/run_reader.h"
#include "capture/run_writer.h"
#include "tensor/input_tap.h"

namespace lockstep {

struct TapFilter {
  std::vector<std::string> tap, no_tap;    // globs; no `tap`: everything
  std::vector<std::pair<int, int>> steps;  // ranges, both ends included; empty: all. Outside the loop always passes

  bool wants(std::string_view name) const;
  bool wants_step(int step) const;
};

std::vector<std::pair<int, int>> steps_from_text(std::string_view text);  // "0,5-9"

struct TapOptions {
  TapFilter filter;
  const Run* reference = nullptr;       // must outlive the tap
  std::vector<std::string> substitute;  // globs: the program goes on with the reference's values
  // Called for each tensor whose counterpart in the reference has values, before it is substituted.
  std::function<void(const TensorKey&, const Tensor& candidate, const Tensor& reference)> compared = {};
  Role role = Role::kOutput;  // of tensors that come through offer()
};

class RecordingTap : public Tap, public InputTap {
 public:
  RecordingTap(RunWriter& writer, TapOptions options) : RecordingTap(&writer, std::move(options)) {}
  // Null: nothing is recorded, which leaves comparing and substituting.
  RecordingTap(RunWriter* writer, TapOptions options) : writer_(writer), options_(std::move(options)) {}

  bool wants(std::string_view name) const override { return options_.filter.wants(name); }
  std::optional<Tensor> offer(const TensorKey& key, const Tensor& tensor) override;
  bool takes_device_tensors() const override { return true; }
  std::optional<Tensor> offer_stage(const TensorKey& key, const Tensor& tensor) override;
  // Recorded only: a live comparison goes by what modules give, and substituting a module's result is enough.
  void offer_input(const TensorKey& key, const Tensor& tensor) override;
  // `call`: the hit of the call that the tensor goes into or comes out of; negative: counted here.
  std::optional<Tensor> offer(const TensorKey& key, const Tensor& tensor, Role role, const Where& where,
                              bool may_substitute = true, int call = -1);

  int64_t offered() const;      // tensors that passed the filter
  int64_t substituted() const;  // of these, replaced

 private:
  struct Hits {
    int next = 0;          // all below are taken
    std::set<int> beyond;  // taken as well: a call that began later has ended first, or one before it never did
  };

  int take_hit(const TensorKey& key, Role role, int call);
  std::optional<Tensor> reference_value(const TensorKey& key, Role role) const;
  bool wants_substitute(std::string_view name) const;
  void complain(const std::string& topic, const std::string& message);

  RunWriter* writer_;
  TapOptions options_;
  mutable std::mutex mutex_;
  std::map<std::string, Hits> hits_;
  std::set<std::string> complained_;
  int64_t offered_ = 0, substituted_ = 0;
};

}  // namespace lockstep
