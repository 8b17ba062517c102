// The stepping lattice n(t) and its inverse (docs/conventions.md): linear, then logarithmic with ratio 1 + cone, then linear;
// n(0) = 0, so a negative start means a ray without samples. Constants come from the host (march/cuda.py).
// Specialised by NF_CONE: 0 where the cone angle is 0 and the lattice linear everywhere.
#pragma once
#include "numbers.cuh"

constexpr float FINEST_STEP = 1.7320508075688772f / 1024.0f;
constexpr float COARSEST_STEP = 1.7320508075688772f;  // 2^7 * 1024 / 128 finest steps

struct Stepping {
    float cone, log2_growth, inverse_log2_growth;  // log2(1 + cone)
    float t_log, inverse_t_log, n_log;             // where the logarithmic piece begins
    float t_linear, n_linear;                      // where it ends
};

__device__ __forceinline__ float to_lattice(const Stepping& s, float t) {
#if NF_CONE
    if (t <= s.t_log) return t * (1.0f / FINEST_STEP);
    if (t <= s.t_linear) return s.n_log + __log2f(t * s.inverse_t_log) * s.inverse_log2_growth;
    return s.n_linear + (t - s.t_linear) * (1.0f / COARSEST_STEP);
#else
    return t * (1.0f / FINEST_STEP);
#endif
}

__device__ __forceinline__ float from_lattice(const Stepping& s, float n) {
#if NF_CONE
    if (n <= s.n_log) return n * FINEST_STEP;
    if (n <= s.n_linear) return s.t_log * exp2f((n - s.n_log) * s.log2_growth);
    return s.t_linear + (n - s.n_linear) * COARSEST_STEP;
#else
    return n * FINEST_STEP;
#endif
}

// Length of the step at distance t, to within the one step in which two pieces meet.
__device__ __forceinline__ float step_at(const Stepping& s, float t) {
#if NF_CONE
    return clamped(t * s.cone, FINEST_STEP, COARSEST_STEP);
#else
    return FINEST_STEP;
#endif
}

// Length of the step from lattice point n at distance t: without the cancellation of a difference, but where two pieces meet.
__device__ __forceinline__ float step_from(const Stepping& s, float n, float t) {
#if NF_CONE
    if (n >= s.n_log && n + 1.0f <= s.n_linear) return t * s.cone;
    if (n + 1.0f <= s.n_log) return FINEST_STEP;
    if (n >= s.n_linear) return COARSEST_STEP;
    return from_lattice(s, n + 1.0f) - t;
#else
    return FINEST_STEP;
#endif
}
