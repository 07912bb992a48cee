// A program of several processes that share one model (torchrun, mpirun, mlx.launch). Each rank writes its own part of
// the one run: RUN/ranks/N, a run folder like any other. Whoever opens the run sees the records of all of them.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/json.h"

namespace lockstep {

struct RankPlace {
  int rank = 0;
  int world = 0;  // 0: not known
};

// What the launcher says: LOCKSTEP_RANK and LOCKSTEP_WORLD, RANK and WORLD_SIZE (torchrun), OMPI_COMM_WORLD_*, PMI_*,
// MLX_RANK. Nothing where the program runs alone.
std::optional<RankPlace> rank_from_environment();

// The part's folder, with a run.json; what is there already is left as it is.
fs::path make_rank_folder(const fs::path& run, const RankPlace& place);

struct RankPart {
  int rank = 0;
  fs::path path;
};
std::vector<RankPart> rank_parts(const fs::path& run);  // by rank; empty: a program of one process

// What `lockstep record` says of its ranks at the end. Recovers what a killed one has left behind.
struct RankStates {
  Json ranks = Json::array();  // {"rank": 1, "status": "killed"}
  int world = 0;
  std::optional<int> failed;  // the rank that failed, or was killed, first
  std::string status;         // of that one
};
RankStates states_of_ranks(const fs::path& run, std::optional<int> first_lost);

// Sees the processes of the ranks end. When one dies its launcher ends the others: only the first one tells why.
class RankWatch {
 public:
  explicit RankWatch(fs::path run) : run_(std::move(run)) {}
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  void look();                           // for ranks that have begun since, and for those that have ended
  std::vector<int> descriptors() const;  // readable when a rank has ended
  bool has_any() const { return !seen_.empty(); }
  std::optional<int> first_lost() const { return first_lost_; }  // ended without having said that it finished

 private:
  void find_new_ranks();

  fs::path run_;
  std::map<int, int> descriptor_of_;  // rank → pidfd
  std::set<int> seen_;
  std::optional<int> first_lost_;
  std::chrono::steady_clock::time_point next_look_{};
};

}  // namespace lockstep
