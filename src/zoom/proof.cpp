#include "zoom/proof.h"

#include <algorithm>

#include "zoom/agreement.h"
#include "zoom/evaluate.h"
#include "zoom/forms.h"

namespace lockstep::zoom {
namespace {

constexpr size_t kMostTries = 48;  // combinations of forms

class Proving {
 public:
  Proving(const Side& reference, const Side& yours, const std::vector<std::pair<int, int>>& outputs, double tolerance,
          double work)
      : reference_(reference), yours_(yours), outputs_(outputs), tolerance_(tolerance), work_(work) {}

  Proof of(const std::vector<Region>& regions) {
    std::vector<Place> places;
    for (const Region& region : regions) {
      if (!add_place(region.yours_value, region.reference_value, region.reference_user, places)) return Proof::kOpen;
      for (const auto& [mine, theirs] : region.other_executions)
        if (!add_place(mine, theirs, -1, places)) return Proof::kOpen;
    }
    if (places.empty()) return Proof::kOpen;
    // In all uses of the reference's value, then in the one that was looked at: yours may use it rightly elsewhere.
    bool replayed = false;
    for (const bool everywhere : {true, false})
      for (size_t next = 0; next < combinations(places) && next < kMostTries; ++next) {
        const Proof one = tried(places, next, everywhere);
        if (one == Proof::kProven) return one;
        replayed |= one == Proof::kRefuted;
      }
    return replayed ? Proof::kRefuted : Proof::kOpen;
  }

 private:
  struct Place {
    int value, user;
    std::vector<std::shared_ptr<const Numbers>> forms;
  };

  bool add_place(int mine, int theirs, int user, std::vector<Place>& places) const {
    if (mine < 0 || theirs < 0) return false;
    const auto numbers = yours_.numbers(mine);
    if (!numbers) return false;
    places.push_back({theirs, user, forms_of(*numbers, reference_.value(theirs).shape)});
    return !places.back().forms.empty();
  }

  static size_t combinations(const std::vector<Place>& places) {
    size_t out = 1;
    for (const Place& place : places) out = std::min(out * place.forms.size(), kMostTries);
    return out;
  }

  Proof tried(const std::vector<Place>& places, size_t number, bool everywhere) {
    Substitutes put;
    for (const Place& place : places) {
      const auto& form = place.forms[number % place.forms.size()];
      number /= place.forms.size();
      if (everywhere || place.user < 0)
        put.values[place.value] = form;
      else
        put.uses[{place.user, place.value}] = form;
    }
    for (const auto& [c, r] : outputs_) {
      const double work = replay_work(reference_, r, put);
      if (work > work_) return Proof::kOpen;
      work_ -= work;
      const auto made = replay(reference_, r, put);
      const auto mine = yours_.numbers(c);
      if (!made || !mine) return Proof::kOpen;
      if (!agreement_of(*mine, *made, tolerance_)) return Proof::kRefuted;
    }
    return Proof::kProven;
  }

  const Side& reference_;
  const Side& yours_;
  const std::vector<std::pair<int, int>>& outputs_;
  double tolerance_, work_;
};

}  // namespace

Proof prove(const std::vector<Region>& regions, const Side& reference, const Side& yours,
            const std::vector<std::pair<int, int>>& outputs, double tolerance, double work) {
  return Proving(reference, yours, outputs, tolerance, work).of(regions);
}

}  // namespace lockstep::zoom
