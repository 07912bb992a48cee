// weights.jsonl: which weights the modules of a run hold. Lines as in records.jsonl: a module's weight is known again
// by shape, statistics (which no layout changes) and checksum. Those of a small model are kept in weights/, so that a
// comparison needs no checkpoint; those of a large one are on the disk already.
#include <algorithm>
#include <fstream>

#include "capture/file_size_signal.h"
#include "capture/run_writer.h"
#include "capture/value_pass.h"
#include "io/npy.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostKeptBytes = 64 << 20;  // of all weights of a run together

}  // namespace

// Written before the line that names it: whoever reads the line finds it whole.
bool RunWriter::keep_weight(Record& record, const Tensor& tensor) {
  const auto bytes = static_cast<uint64_t>(tensor.numel()) * dtype_bytes(tensor.dtype());
  {
    const std::lock_guard lock(mutex_);
    const uint64_t most = std::min<uint64_t>(kMostKeptBytes, options_.budget_bytes);
    const uint64_t stored = store_bytes_ + counts_.tensor_bytes + weight_bytes_;
    if (options_.stats_only || tensors_broken_ || weight_bytes_ + bytes > most || stored + bytes > limits_.refuse_bytes)
      return false;
    weight_bytes_ += bytes;
  }
  std::error_code error;
  fs::create_directory(path() / "weights", error);
  const std::string name = "weights/" + std::to_string(record.seq) + ".npy";
  const Tensor packed = tensor.contiguous();
  std::ofstream file(path() / name, std::ios::binary);
  file << npy_header(packed.dtype(), packed.shape());
  file.write(reinterpret_cast<const char*>(packed.strided_data()), static_cast<std::streamsize>(bytes));
  file.close();
  if (!file) {
    fs::remove(path() / name, error);
    return false;
  }
  record.file = name;
  return true;
}

void RunWriter::note_weight(const std::string& module, const std::string& name, const Tensor& tensor) noexcept {
  try {
    if (forked() || closed_ || log_broken_) return;
    const HoldFileSizeSignal hold;
    Record record;
    record.key.name = module + "." + name;
    record.role = Role::kVariable;
    record.dtype = tensor.dtype();
    record.dtype_text = dtype_name(tensor.dtype());
    record.shape = tensor.shape();
    record.preview = preview_values(tensor);
    const PassResult result = pass_over_values(tensor, {});
    record.stats = result.stats;
    record.checksum = result.checksum;
    {
      const std::lock_guard lock(mutex_);
      record.seq = weights_++;
    }
    keep_weight(record, tensor);
    const std::lock_guard lock(mutex_);
    std::ofstream file(path() / "weights.jsonl", std::ios::app | std::ios::binary);
    file << line_from_record(record) << "\n";
  } catch (const std::exception& error) {
    warn_once("weight", "the weights of " + module + " could not be noted: " + error.what());
  }
}

}  // namespace lockstep
