// Adam in one pass: master weights, moments, half copy, average, gradient read and cleared (adam/reference.py).
//   master, first_moment, second_moment [n] f32; weights, ema [n] f16; steps [n] i16; gradient [n] f16 or f32
//   hyper [4] f32 (learning rate, EMA factors); counters [8] i32 (non-finite: the step is skipped)
// A thread owns four neighbours, an entry of the usual grid. Where all four gradients are zero only the average moves, from the
// half copy of the weights: 6 bytes a parameter instead of 36. What no other kernel reads streams past the caches.
#include "numbers.cuh"

constexpr int COUNT_NONFINITE = 3, FOUR = 4, MAX_STEPS = 32767;
enum Hyper { LEARNING_RATE, EMA_OLD, EMA_NEW };

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

template <typename T>
struct alignas(sizeof(T) * FOUR) Pack {
    T v[FOUR];
};

__device__ __forceinline__ Pack<float> stream_in(const float* p) {
    const float4 v = __ldcs(reinterpret_cast<const float4*>(p));
    return {{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ void stream_out(float* p, const Pack<float>& v) { __stcs(reinterpret_cast<float4*>(p), make_float4(v.v[0], v.v[1], v.v[2], v.v[3])); }
__device__ __forceinline__ Pack<short> stream_in(const short* p) {
    const short4 v = __ldcs(reinterpret_cast<const short4*>(p));
    return {{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ void stream_out(short* p, const Pack<short>& v) { __stcs(reinterpret_cast<short4*>(p), make_short4(v.v[0], v.v[1], v.v[2], v.v[3])); }

// Halves as two words.
__device__ __forceinline__ Pack<float> widen(uint2 bits) {
    const float2 low = unpack_halves(bits.x), high = unpack_halves(bits.y);
    return {{low.x, low.y, high.x, high.y}};
}
__device__ __forceinline__ uint2 narrow(const Pack<float>& v) { return make_uint2(pack_halves(v.v[0], v.v[1]), pack_halves(v.v[2], v.v[3])); }

// The gradient, cleared behind the reader; nothing is written where it is zero.
__device__ __forceinline__ Pack<float> take(__half* p) {
    const uint2 bits = *reinterpret_cast<const uint2*>(p);
    if (bits.x | bits.y) *reinterpret_cast<uint2*>(p) = make_uint2(0, 0);
    return widen(bits);
}
__device__ __forceinline__ Pack<float> take(float* p) {
    const float4 v = *reinterpret_cast<const float4*>(p);
    *reinterpret_cast<float4*>(p) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return {{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }

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

// Average of four parameters; nothing is written where its bits stay the same.
__device__ __forceinline__ void move_average(uint2 old, __half* ema, const Pack<float>& weights, float ema_old, float ema_new) {
    const Pack<float> before = widen(old);
    Pack<float> moved;
#pragma unroll
    for (int i = 0; i < FOUR; ++i) moved.v[i] = before.v[i] * ema_old + weights.v[i] * ema_new;
    const uint2 bits = narrow(moved);
    if (bits.x != old.x || bits.y != old.y) __stcs(reinterpret_cast<uint2*>(ema), bits);
}

template <typename Gradient>
__device__ __forceinline__ void adam_four(const Arrays& a, Gradient* gradient, size_t at, float rate, float ema_old, float ema_new, bool skip_zero,
                                          bool skip_all, const Constants& c) {
    const Pack<float> g = take(gradient + at);
    const uint2 average = __ldcs(reinterpret_cast<const uint2*>(a.ema + at));
    const bool any = g.v[0] != 0.0f || g.v[1] != 0.0f || g.v[2] != 0.0f || g.v[3] != 0.0f;
    if (skip_all || (skip_zero && !any)) {
        move_average(average, a.ema + at, widen(*reinterpret_cast<const uint2*>(a.weights + at)), ema_old, ema_new);
        return;
    }
    Pack<float> master = stream_in(a.master + at), m = stream_in(a.first_moment + at), v = stream_in(a.second_moment + at);
    Pack<short> steps = stream_in(a.steps + at);
#pragma unroll
    for (int i = 0; i < FOUR; ++i) {
        if (is_finite(g.v[i]) && (g.v[i] != 0.0f || !skip_zero)) update_one(g.v[i], master.v[i], m.v[i], v.v[i], steps.v[i], rate, c);
    }
    stream_out(a.master + at, master);
    stream_out(a.first_moment + at, m);
    stream_out(a.second_moment + at, v);
    stream_out(a.steps + at, steps);
    *reinterpret_cast<uint2*>(a.weights + at) = narrow(master);
    move_average(average, a.ema + at, master, ema_old, ema_new);
}

template <typename Gradient>
__device__ __forceinline__ void adam_all(const Arrays& a, Gradient* gradient, long long n, const float* hyper, const int* counters, int skip_zero,
                                         const Constants& c) {
    const float rate = hyper[LEARNING_RATE], ema_old = hyper[EMA_OLD], ema_new = hyper[EMA_NEW];
    const bool skip_all = counters[COUNT_NONFINITE] > 0;
    const size_t at = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * FOUR;
    if (at + FOUR <= static_cast<size_t>(n)) {
        adam_four(a, gradient, at, rate, ema_old, ema_new, skip_zero != 0, skip_all, c);
        return;
    }
    for (size_t i = at; i < static_cast<size_t>(n); ++i) {  // the last few
        const float g = to_float(gradient[i]);
        gradient[i] = Gradient(0.0f);
        if (!skip_all && is_finite(g) && (g != 0.0f || !skip_zero)) {
            update_one(g, a.master[i], a.first_moment[i], a.second_moment[i], a.steps[i], rate, c);
            a.weights[i] = __float2half_rn(a.master[i]);
        }
        a.ema[i] = __float2half_rn(__half2float(a.ema[i]) * ema_old + a.master[i] * ema_new);
    }
}

extern "C" __global__ void __launch_bounds__(256, 6)
adam_half(const Arrays arrays, __half* gradient, long long n, const float* hyper, const int* counters, int skip_zero, const Constants constants) {
    adam_all(arrays, gradient, n, hyper, counters, skip_zero, constants);
}

extern "C" __global__ void __launch_bounds__(256, 6)
adam_float(const Arrays arrays, float* gradient, long long n, const float* hyper, const int* counters, int skip_zero, const Constants constants) {
    adam_all(arrays, gradient, n, hyper, counters, skip_zero, constants);
}
