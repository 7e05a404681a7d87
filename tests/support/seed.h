// The seed of a test that makes random choices: the same in every run of the gate, so that a change fails only for its
// own faults. ESCROW_TEST_SEED=N gives another one, ESCROW_TEST_SEED=random draws one (deploy/campaigns.sh does).
// The seed is printed and recorded as the test's property "seed". seed.py is the same for Python.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

namespace escrow::support {

inline constexpr std::uint64_t kSeedOfTheGate = 13;

inline std::uint64_t seed_of_this_run() {
  const char* const given = std::getenv("ESCROW_TEST_SEED");
  std::uint64_t seed = kSeedOfTheGate;
  if (given != nullptr) {
    seed = std::string(given) == "random" ? std::random_device{}() : std::stoull(given);
  }
  std::printf("ESCROW_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

// Chooses how much a test does whose rounds differ by the seed or by chance alone. ESCROW_TEST_SEED is set in a
// campaign, and is not in the gate.
inline std::uint64_t gate_or_campaign(std::uint64_t gate, std::uint64_t campaign) {
  return std::getenv("ESCROW_TEST_SEED") == nullptr ? gate : campaign;
}

}  // namespace escrow::support
