// Evaluating and compositing a warp's 32 samples, which belong to 32 / width rays, in order along each ray.
#pragma once
#include "field.cuh"
#include "march.cuh"

// Shared memory of a block: the weights, then for each warp a tile and 32 ints.
constexpr int WARP_BYTES = TILE_HALVES * 2 + 32 * 4;
__device__ __forceinline__ __half* warp_tile(unsigned char* shared) {
    return reinterpret_cast<__half*>(shared + WEIGHT_HALVES * 2 + threadIdx.x / 32 * WARP_BYTES);
}
__device__ __forceinline__ int* warp_scratch(__half* tile) { return reinterpret_cast<int*>(tile + TILE_HALVES); }

struct Sample {
    float raw;
    vec3 rgb;
};

// One sample a lane. Lanes without one leave their tile row as it is: rows do not mix.
__device__ __forceinline__ Sample evaluate(const __half* weights, __half* tile, const __half* table, const Grid& grid, vec3 unit_position,
                                           vec3 direction, bool valid) {
    __half* row = tile + lane_index() * TILE_STRIDE;
    if (valid) {
        encode(table, grid, unit_position, row);
        store_harmonics(direction, row + INPUT_TILED);
    }
    __syncwarp();
    Operand<2, 1> outputs;
    Sample s;
    s.raw = density_forward(weights, tile, outputs);
    s.rgb = logistic(colour_forward(weights, tile, outputs));
    return s;
}

// What a ray has gathered so far; the same in all lanes of its group.
struct Gathered {
    float transmittance;
    vec3 rgb;
    float depth;
};

struct Composited {
    bool kept;
    float weight, after;  // transmittance after the sample
    vec3 prefix;          // colour up to and including the sample
};

__device__ __forceinline__ float scan_sum(const Group& group, float value) {
    for (int d = 1; d < group.width; d <<= 1) {
        const float other = __shfl_up_sync(ALL_LANES, value, d, group.width);
        if (group.rank >= d) value += other;
    }
    return value;
}
__device__ __forceinline__ float scan_product(const Group& group, float value) {
    for (int d = 1; d < group.width; d <<= 1) {
        const float other = __shfl_up_sync(ALL_LANES, value, d, group.width);
        if (group.rank >= d) value *= other;
    }
    return value;
}

// Adds the group's samples (ranks 0 .. found) to what its ray has; the one that takes the transmittance below the minimum is
// the last that counts.
template <bool DEPTH>
__device__ __forceinline__ Composited composite(const Group& group, const Sample& sample, const Point& point, int found, float min_transmittance,
                                                Gathered& ray) {
    const bool valid = group.rank < found;
    const float through = valid ? __expf(-__expf(sample.raw) * point.dt) : 1.0f;
    Composited c;
    c.after = ray.transmittance * scan_product(group, through);
    const float above = __shfl_up_sync(ALL_LANES, c.after, 1, group.width);
    const float before = group.rank == 0 ? ray.transmittance : above;
    c.kept = valid && before >= min_transmittance;
    c.weight = c.kept ? before * (1.0f - through) : 0.0f;
    const vec3 share = c.kept ? c.weight * sample.rgb : vec3{0.0f, 0.0f, 0.0f};
    c.prefix = ray.rgb + vec3{scan_sum(group, share.x), scan_sum(group, share.y), scan_sum(group, share.z)};
    const int n_kept = __popc(group.ballot(c.kept)), last = max(n_kept - 1, 0);
    const float end = group.from(c.after, last);
    if (n_kept > 0) ray.transmittance = end;
    ray.rgb = {group.from(c.prefix.x, group.width - 1), group.from(c.prefix.y, group.width - 1), group.from(c.prefix.z, group.width - 1)};
    if (DEPTH) ray.depth += group.from(scan_sum(group, c.kept ? c.weight * point.t : 0.0f), group.width - 1);
    return c;
}

// Each idle group takes the next ray of the queue: its place there, or -1 when the queue is empty.
__device__ __forceinline__ int take_rays(const Group& group, bool idle, int* queue_head, int n_queue) {
    const unsigned takers = __ballot_sync(ALL_LANES, idle && group.rank == 0);
    if (takers == 0) return -1;
    int first = 0;
    if (lane_index() == 0) first = atomicAdd(queue_head, __popc(takers));
    first = __shfl_sync(ALL_LANES, first, 0);
    const int place = first + __popc(takers & ((1u << group.shift) - 1));
    return idle && place < n_queue ? place : -1;
}
