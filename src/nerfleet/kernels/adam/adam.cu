// Adam in one pass: master weights, moments, half copy, average, gradient read and cleared (adam/reference.py).
//   master, first_moment, second_moment [n] f32; weights, ema [n] f16; steps [n] i16
//   gradient [n] f32, or pairs in fixed point, 4 bytes a parameter too (fixed_point.cuh)
//   hyper [4] f32 (learning rate, EMA factors); counters [8] i32 (non-finite: the step is skipped)
// A thread owns eight neighbours: 16 or 32 bytes of each array, whole sectors. Where all eight gradients are zero only the
// average moves, from the half copy of the weights: 8 bytes a parameter instead of 40. (Four neighbours with streaming loads
// took 1.5 times as long: too few bytes in flight.)
#include "fixed_point.cuh"

constexpr int COUNT_NONFINITE = 3, EIGHT = 8, MAX_STEPS = 32767;
enum Hyper { LEARNING_RATE, EMA_OLD, EMA_NEW };

template <typename T>
struct alignas(16) Pack {
    T v[sizeof(T) == sizeof(FixedPair) ? EIGHT / 2 : EIGHT];  // a pair is two parameters
};

template <typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* p) {
    constexpr int QUADS = sizeof(Pack<T>) / 16;
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < QUADS; ++i) reinterpret_cast<uint4*>(&pack)[i] = reinterpret_cast<const uint4*>(p)[i];
    return pack;
}
template <typename T>
__device__ __forceinline__ void store_pack(T* p, const Pack<T>& pack) {
    constexpr int QUADS = sizeof(Pack<T>) / 16;
#pragma unroll
    for (int i = 0; i < QUADS; ++i) reinterpret_cast<uint4*>(p)[i] = reinterpret_cast<const uint4*>(&pack)[i];
}

struct Constants {
    float beta1, beta2, log2_beta1, log2_beta2, epsilon, l2_reg, inverse_scale;
};

struct Arrays {
    float* master;
    __half* weights;
    __half* ema;
    float* first_moment;
    float* second_moment;
    short* steps;
};

// Where parameter i's gradient is in an array, and its value there.
__device__ __forceinline__ size_t place_of(const float*, size_t i) { return i; }
__device__ __forceinline__ size_t place_of(const FixedPair*, size_t i) { return i / 2; }
__device__ __forceinline__ float value_of(const float* gradient, size_t i) { return gradient[i]; }
__device__ __forceinline__ float value_of(const FixedPair* gradient, size_t i) {
    const float2 pair = unpack_fixed(gradient[i / 2]);
    return i & 1 ? pair.y : pair.x;
}

__device__ __forceinline__ float fast_sqrt(float v) { return v > 0.0f ? v * rsqrtf(v) : 0.0f; }

__device__ __forceinline__ void update_one(float g, float& master, float& m, float& v, short& steps, float rate, const Constants& c) {
    const int t = min(steps + 1, MAX_STEPS);
    steps = static_cast<short>(t);
    g = g * c.inverse_scale + c.l2_reg * master;
    m = c.beta1 * m + (1.0f - c.beta1) * g;
    v = c.beta2 * v + (1.0f - c.beta2) * g * g;
    const float correction = __fdividef(fast_sqrt(1.0f - exp2f(t * c.log2_beta2)), 1.0f - exp2f(t * c.log2_beta1));
    master -= rate * correction * __fdividef(m, fast_sqrt(v) + c.epsilon);
}

// Average of eight parameters; nothing is written where its bits stay the same.
__device__ __forceinline__ void move_average(const Pack<__half>& old, __half* ema, const float (&weights)[EIGHT], float ema_old, float ema_new) {
    Pack<__half> moved;
    bool changed = false;
#pragma unroll
    for (int i = 0; i < EIGHT; ++i) {
        moved.v[i] = __float2half_rn(__half2float(old.v[i]) * ema_old + weights[i] * ema_new);
        changed |= __half_as_ushort(moved.v[i]) != __half_as_ushort(old.v[i]);
    }
    if (changed) store_pack(ema, moved);
}

template <typename Gradient>
__device__ __forceinline__ void adam_eight(const Arrays& a, Gradient* gradient, size_t at, float rate, float ema_old, float ema_new, bool skip_zero,
                                           bool skip_all, const Constants& c) {
    const Pack<Gradient> g = load_pack(gradient + place_of(gradient, at));
    const Pack<__half> average = load_pack(a.ema + at);
    bool any = false, active = false;
    float values[EIGHT];
#pragma unroll
    for (int i = 0; i < EIGHT; ++i) {
        values[i] = value_of(g.v, i);
        any |= values[i] != 0.0f;
    }
    active = !skip_all && (any || !skip_zero);
    if (any) store_pack(gradient + place_of(gradient, at), Pack<Gradient>{});
    if (!active) {
        const Pack<__half> weights = load_pack(a.weights + at);
        float current[EIGHT];
#pragma unroll
        for (int i = 0; i < EIGHT; ++i) current[i] = __half2float(weights.v[i]);
        move_average(average, a.ema + at, current, ema_old, ema_new);
        return;
    }
    Pack<float> master = load_pack(a.master + at), m = load_pack(a.first_moment + at), v = load_pack(a.second_moment + at);
    Pack<short> steps = load_pack(a.steps + at);
    Pack<__half> weights;
#pragma unroll
    for (int i = 0; i < EIGHT; ++i) {
        if (is_finite(values[i]) && (values[i] != 0.0f || !skip_zero)) update_one(values[i], master.v[i], m.v[i], v.v[i], steps.v[i], rate, c);
        weights.v[i] = __float2half_rn(master.v[i]);
    }
    store_pack(a.master + at, master);
    store_pack(a.first_moment + at, m);
    store_pack(a.second_moment + at, v);
    store_pack(a.steps + at, steps);
    store_pack(a.weights + at, weights);
    move_average(average, a.ema + at, master.v, ema_old, ema_new);
}

template <typename Gradient>
__device__ __forceinline__ void adam_all(const Arrays& a, Gradient* gradient, long long n, const float* hyper, const int* counters, int skip_zero,
                                         const Constants& c) {
    const float rate = hyper[LEARNING_RATE], ema_old = hyper[EMA_OLD], ema_new = hyper[EMA_NEW];
    const bool skip_all = counters[COUNT_NONFINITE] > 0;
    const size_t at = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * EIGHT;
    if (at + EIGHT <= static_cast<size_t>(n)) {
        adam_eight(a, gradient, at, rate, ema_old, ema_new, skip_zero != 0, skip_all, c);
        return;
    }
    for (size_t i = at; i < static_cast<size_t>(n); ++i) {  // the last few
        const float g = value_of(gradient, i);
        if (i + 1 == static_cast<size_t>(n) || place_of(gradient, i + 1) != place_of(gradient, i)) gradient[place_of(gradient, i)] = 0;
        if (!skip_all && is_finite(g) && (g != 0.0f || !skip_zero)) {
            update_one(g, a.master[i], a.first_moment[i], a.second_moment[i], a.steps[i], rate, c);
            a.weights[i] = __float2half_rn(a.master[i]);
        }
        a.ema[i] = __float2half_rn(__half2float(a.ema[i]) * ema_old + a.master[i] * ema_new);
    }
}

extern "C" __global__ void __launch_bounds__(128)
adam_fixed(const Arrays arrays, FixedPair* gradient, long long n, const float* hyper, const int* counters, int skip_zero, const Constants constants) {
    adam_all(arrays, gradient, n, hyper, counters, skip_zero, constants);
}

extern "C" __global__ void __launch_bounds__(128)
adam_float(const Arrays arrays, float* gradient, long long n, const float* hyper, const int* counters, int skip_zero, const Constants constants) {
    adam_all(arrays, gradient, n, hyper, counters, skip_zero, constants);
}
