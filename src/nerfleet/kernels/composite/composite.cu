// Loss of rays and gradient of compositing; one thread a ray, one thread a sample. Arguments: composite/op.py.
#include "numbers.cuh"

constexpr int STATE_STEP = 0, STATE_RAYS = 1, COUNT_NONFINITE = 3, HYPER_MEAN_DENSITY = 3;
constexpr float RAW_LIMIT = 15.0f, MEAN_DENSITY_FLOOR = 0.01f, PUSH = 1e-4f, EMPTY_RAW = -10.0f, HUBER_DELTA = 0.1f, MIN_AFTER = 1e-6f;
enum Loss { HUBER, L2, RELATIVE_L2, L1, MAPE, SMAPE, LOG_L1 };

// Value and derivative for one channel.
__device__ __forceinline__ float2 loss_of(int kind, float prediction, float target) {
    const float difference = prediction - target, size = fabsf(difference);
    const float sign = difference > 0.0f ? 1.0f : (difference < 0.0f ? -1.0f : 0.0f);
    if (kind == HUBER) {
        if (size <= HUBER_DELTA) return make_float2(difference * difference, 2.0f * difference);
        return make_float2(2.0f * HUBER_DELTA * (size - 0.5f * HUBER_DELTA), 2.0f * HUBER_DELTA * sign);
    }
    if (kind == L2) return make_float2(difference * difference, 2.0f * difference);
    if (kind == L1) return make_float2(size, sign);
    if (kind == LOG_L1) return make_float2(log1pf(size), sign / (1.0f + size));
    if (kind == RELATIVE_L2) {
        const float scale = 1.0f / (prediction * prediction + 0.01f);
        return make_float2(difference * difference * scale, 2.0f * difference * scale);
    }
    const float scale = 1.0f / ((kind == MAPE ? fabsf(prediction) : 0.5f * (fabsf(prediction) + fabsf(target))) + 0.01f);
    return make_float2(size * scale, sign * scale);
}

extern "C" __global__ void __launch_bounds__(256)
ray_loss(const float* rgb, const float* transmittance, const float* targets, const float* backgrounds, const float* starts, const long long* state,
         int kind, float loss_scale, float* gradient, float* final, float* loss_sum, int* counters) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int n_rays = static_cast<int>(state[STATE_RAYS]);
    float loss = 0.0f;
    bool bad = false;
    if (i < n_rays) {
        const float left = transmittance[i], scale = loss_scale / static_cast<float>(n_rays);
        const bool counted = starts[i] >= 0.0f && left < 1.0f;
#pragma unroll
        for (int channel = 0; channel < 3; ++channel) {
            const int at = 3 * i + channel;
            const float colour = rgb[at] + left * backgrounds[at];
            const float2 value = loss_of(kind, colour, targets[at]);
            final[at] = colour;
            gradient[at] = counted ? value.y * scale : 0.0f;
            loss += counted ? value.x : 0.0f;
            bad |= !is_finite(value.x);
        }
    }
    if (__any_sync(0xFFFFFFFFu, bad) && (threadIdx.x & 31) == 0) atomicAdd(counters + COUNT_NONFINITE, 1);
    __shared__ float sums[8];
    for (int d = 16; d > 0; d >>= 1) loss += __shfl_xor_sync(0xFFFFFFFFu, loss, d);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x / 32] = loss;
    __syncthreads();
    if (threadIdx.x == 0) {
        float block = 0.0f;
        for (int w = 0; w < 8; ++w) block += sums[w];
        if (block != 0.0f) atomicAdd(loss_sum, block * (1.0f / 3.0f));
    }
}

// d loss/d raw density of a sample with d loss/d colour g, and the two regularisers.
__device__ __forceinline__ float density_gradient(float raw, float t, float dt, float slope_of_colour, const float* hyper, float near_distance) {
    float d = __expf(clamped(raw, -RAW_LIMIT, RAW_LIMIT)) * dt * slope_of_colour;
    if (hyper[HYPER_MEAN_DENSITY] < MEAN_DENSITY_FLOOR && raw < 0.0f) d -= PUSH;
    if (raw > EMPTY_RAW && t < near_distance) d += PUSH;
    return d;
}

extern "C" __global__ void __launch_bounds__(256)
composite_backward(const int* ray_indices, const float* rgb, const float* raw, const float* t, const float* dt, const float* weight,
                   const float* after, const float* prefix, const float* gradient, const float* final, const int* count, int capacity,
                   const float* hyper, float near_distance, float* d_rgb, float* d_raw) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= min(*count, capacity)) return;
    const int ray = ray_indices[i];
    const vec3 g = load3(gradient + 3 * ray), behind = load3(final + 3 * ray) - load3(prefix + 3 * i);
    store3(d_rgb + 3 * i, weight[i] * g);
    d_raw[i] = density_gradient(raw[i], t[i], dt[i], dot(g, after[i] * load3(rgb + 3 * i) - behind), hyper, near_distance);
}

extern "C" __global__ void __launch_bounds__(256)
relaxed_backward(const int* ray_indices, const float* rgb, const float* raw, const float* t, const float* dt, const float* weight,
                 const float* after, const float* prefix, const float* targets, const float* gradient, const float* final, const float* scale,
                 const long long* state, int first_step, int kind, const int* count, int capacity, const float* hyper, float near_distance,
                 float* d_rgb, float* d_raw) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= min(*count, capacity)) return;
    const int ray = ray_indices[i];
    const vec3 colour = load3(rgb + 3 * i), behind = load3(final + 3 * ray) - load3(prefix + 3 * i);
    vec3 g = load3(gradient + 3 * ray);
    if (state[STATE_STEP] >= first_step) {
        const float through = expf(-expf(raw[i]) * dt[i]), whole = through / fmaxf(after[i], MIN_AFTER);
        const vec3 mix = whole * behind + (1.0f - through) * colour, target = load3(targets + 3 * ray);
        g.x = scale[0] * loss_of(kind, mix.x, target.x).y;
        g.y = scale[0] * loss_of(kind, mix.y, target.y).y;
        g.z = scale[0] * loss_of(kind, mix.z, target.z).y;
    }
    store3(d_rgb + 3 * i, weight[i] * g);
    d_raw[i] = density_gradient(raw[i], t[i], dt[i], dot(g, after[i] * colour - behind), hyper, near_distance);
}
