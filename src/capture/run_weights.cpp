// weights.jsonl: which weights the modules of a run hold. Lines as in records.jsonl, without values: a module's weight
// is known again by shape, statistics (which no layout changes) and checksum.
#include <fstream>

#include "capture/file_size_signal.h"
#include "capture/run_writer.h"
#include "capture/value_pass.h"

namespace lockstep {

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
    const std::lock_guard lock(mutex_);
    record.seq = weights_++;
    std::ofstream file(path() / "weights.jsonl", std::ios::app | std::ios::binary);
    file << line_from_record(record) << "\n";
  } catch (const std::exception& error) {
    warn_once("weight", "the weights of " + module + " could not be noted: " + error.what());
  }
}

}  // namespace lockstep
