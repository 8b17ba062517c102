// The stepping lattice n(t) and its inverse (docs/conventions.md): linear, then logarithmic with ratio 1 + cone, then linear;
// n(0) = 0, so a negative start means a ray without samples.
#pragma once
#include "numbers.cuh"

constexpr float FINEST_STEP = 1.7320508075688772f / 1024.0f;
constexpr float COARSEST_STEP = 1.7320508075688772f;  // 2^7 * 1024 / 128 finest steps

struct Stepping {
    float cone;        // cone angle; 0: the lattice is linear everywhere
    float per_log;     // 1 / ln(1 + cone)
    float log_growth;  // ln(1 + cone)
    float t_log, n_log;        // where the logarithmic piece begins
    float t_linear, n_linear;  // where it ends
};

__device__ __forceinline__ Stepping make_stepping(float cone) {
    Stepping s{};
    s.cone = cone;
    if (cone > 0.0f) {
        s.log_growth = log1pf(cone);
        s.per_log = 1.0f / s.log_growth;
        s.t_log = FINEST_STEP * s.per_log;
        s.t_linear = COARSEST_STEP * s.per_log;
        s.n_log = s.t_log * (1.0f / FINEST_STEP);
        s.n_linear = s.n_log + logf(s.t_linear / s.t_log) * s.per_log;
    }
    return s;
}

__device__ __forceinline__ float to_lattice(const Stepping& s, float t) {
    if (s.cone <= 0.0f || t <= s.t_log) return t * (1.0f / FINEST_STEP);
    if (t <= s.t_linear) return s.n_log + logf(t / s.t_log) * s.per_log;
    return s.n_linear + (t - s.t_linear) * (1.0f / COARSEST_STEP);
}

__device__ __forceinline__ float from_lattice(const Stepping& s, float n) {
    if (s.cone <= 0.0f || n <= s.n_log) return n * FINEST_STEP;
    if (n <= s.n_linear) return s.t_log * expf((n - s.n_log) * s.log_growth);
    return s.t_linear + (n - s.n_linear) * COARSEST_STEP;
}
