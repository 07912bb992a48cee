// Parts of models that stay loaded between pictures: text encoder, transformer, VAE, of several models, within one
// budget of bytes. What does not fit beside the part that is needed now goes, the one unused for longest first; so
// where memory is short the parts of one model are swapped in turn, and where it is not they all stay.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "backend/backend.h"
#include "pipeline/watch.h"

namespace lockstep {

class ModelShelf {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ModelShelf(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  struct Kept {
    PartShelf::Part part;
    uint64_t bytes = 0;
    Clock::time_point used;
  };

  // The part of this key, loaded where it is not there. `backend` says what loading took.
  PartShelf::Part part(const std::string& key, const Backend& backend, const std::function<PartShelf::Part()>& load);
  uint64_t unload_idle(Clock::time_point unused_since);  // bytes that went
  void set_budget(uint64_t bytes);                       // what is beyond it goes
  uint64_t bytes() const;
  std::map<std::string, uint64_t> parts() const;  // bytes of each
  uint64_t loads() const;                         // since the start

 private:
  void make_room(uint64_t bytes);  // under the lock

  mutable std::mutex mutex_;
  uint64_t budget_bytes_;
  std::map<std::string, Kept> kept_;
  std::map<std::string, uint64_t> known_bytes_;  // of parts that were loaded before
  uint64_t loads_ = 0;
};

// The shelf as one model of one number format sees it.
class ShelfOfModel : public PartShelf {
 public:
  ShelfOfModel(ModelShelf& shelf, std::string prefix, const Backend& backend)
      : shelf_(shelf), prefix_(std::move(prefix)), backend_(backend) {}
  Part part(const std::string& name, const std::function<Part()>& load) override {
    return shelf_.part(prefix_ + "/" + name, backend_, load);
  }

 private:
  ModelShelf& shelf_;
  std::string prefix_;
  const Backend& backend_;
};

}  // namespace lockstep
