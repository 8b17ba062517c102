// Multiresolution grid (Mueller et al. 2022): cells, weights, entries. Specialised by macros:
// NF_LEVELS, NF_FEATURES, NF_DENSE_LEVELS (the first levels index densely, the others hash), NF_TILED (an index can pass its
// level's entries more than once), NF_INTERPOLATION (0 linear, 1 smoothstep, 2 nearest).
#pragma once
#include "ptx.cuh"
#include "numbers.cuh"

constexpr int N_FEATURES = NF_LEVELS * NF_FEATURES;

struct Level {
    float scale;
    unsigned n_entries, first, stride_y, stride_z;
};
struct Grid {
    Level level[NF_LEVELS];
};

struct Corners {
    vec3 fraction;
    unsigned x, y, z;
};

__device__ __forceinline__ void split(float position, float scale, unsigned& cell, float& fraction) {
    const float scaled = position * scale + 0.5f;
    const int whole = static_cast<int>(scaled);
    cell = static_cast<unsigned>(whole);
    fraction = scaled - static_cast<float>(whole);
#if NF_INTERPOLATION == 1
    fraction = fraction * fraction * (3.0f - 2.0f * fraction);
#elif NF_INTERPOLATION == 2
    fraction = 0.0f;
#endif
}

__device__ __forceinline__ Corners corners_of(vec3 p, float scale) {
    Corners c;
    split(p.x, scale, c.x, c.fraction.x);
    split(p.y, scale, c.y, c.fraction.y);
    split(p.z, scale, c.z, c.fraction.z);
    return c;
}

__device__ __forceinline__ unsigned entry_of(const Level& level, bool dense, unsigned x, unsigned y, unsigned z) {
    if (!dense) return level.first + ((x ^ (y * 2654435761u) ^ (z * 805459861u)) & (level.n_entries - 1));
    unsigned index = x + y * level.stride_y + z * level.stride_z;
#if NF_TILED
    index %= level.n_entries;
#else
    if (index >= level.n_entries) index -= level.n_entries;
#endif
    return level.first + index;
}

__device__ __forceinline__ float corner_weight(vec3 fraction, int corner) {
    return (corner & 1 ? fraction.x : 1.0f - fraction.x) * (corner & 2 ? fraction.y : 1.0f - fraction.y) *
           (corner & 4 ? fraction.z : 1.0f - fraction.z);
}

__device__ __forceinline__ void add_entry(const __half* table, unsigned entry, float weight, float (&sum)[NF_FEATURES]) {
    const __half* p = table + static_cast<size_t>(entry) * NF_FEATURES;
#if NF_FEATURES == 1
    sum[0] += weight * __half2float(*p);
#else
    unsigned bits[NF_FEATURES / 2];
#if NF_FEATURES == 2
    bits[0] = __ldg(reinterpret_cast<const unsigned*>(p));
#elif NF_FEATURES == 4
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(p));
    bits[0] = v.x, bits[1] = v.y;
#else
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(p));
    bits[0] = v.x, bits[1] = v.y, bits[2] = v.z, bits[3] = v.w;
#endif
#pragma unroll
    for (int i = 0; i < NF_FEATURES / 2; ++i) {
        const float2 f = unpack_halves(bits[i]);
        sum[2 * i] += weight * f.x;
        sum[2 * i + 1] += weight * f.y;
    }
#endif
}

// Features of one level of a point in the unit cube.
__device__ __forceinline__ void encode_level(const __half* table, const Level& level, bool dense, vec3 p, float (&sum)[NF_FEATURES]) {
    const Corners c = corners_of(p, level.scale);
#pragma unroll
    for (int f = 0; f < NF_FEATURES; ++f) sum[f] = 0.0f;
#pragma unroll
    for (int corner = 0; corner < (NF_INTERPOLATION == 2 ? 1 : 8); ++corner) {
        const unsigned entry = entry_of(level, dense, c.x + (corner & 1), c.y + (corner >> 1 & 1), c.z + (corner >> 2));
        add_entry(table, entry, corner_weight(c.fraction, corner), sum);
    }
}

// All features of a point, rounded to halves, into row[0 .. N_FEATURES), 16-byte aligned.
__device__ __forceinline__ void encode(const __half* table, const Grid& grid, vec3 p, __half* row) {
    constexpr int CHUNK = NF_FEATURES > 8 ? 1 : 8 / NF_FEATURES;  // levels in 16 bytes
#pragma unroll
    for (int first = 0; first < NF_LEVELS; first += CHUNK) {
        float values[8] = {};
#pragma unroll
        for (int i = 0; i < CHUNK; ++i) {
            if (first + i < NF_LEVELS) {
                float sum[NF_FEATURES];
                encode_level(table, grid.level[first + i], first + i < NF_DENSE_LEVELS, p, sum);
#pragma unroll
                for (int f = 0; f < NF_FEATURES; ++f) values[i * NF_FEATURES + f] = sum[f];
            }
        }
        *reinterpret_cast<uint4*>(row + first * NF_FEATURES) =
            make_uint4(pack_halves(values[0], values[1]), pack_halves(values[2], values[3]), pack_halves(values[4], values[5]),
                       pack_halves(values[6], values[7]));
    }
}
