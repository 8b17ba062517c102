// The occupancy bit field: 128^3 cells a cascade in Morton order (x lowest), cascade m the cube of edge 2^m around 0.5.
// A block of 4x4x4 cells is one aligned 64-bit word, 2x2x2 cells one byte of it: empty space is skipped by blocks.
#pragma once
#include "stepping.cuh"

constexpr int CELLS = 128;
constexpr unsigned CELLS_A_CASCADE = 1u << 21;

__device__ __forceinline__ unsigned spread_bits(unsigned v) {
    v = (v * 0x00010001u) & 0xFF0000FFu;
    v = (v * 0x00000101u) & 0x0F00F00Fu;
    v = (v * 0x00000011u) & 0xC30C30C3u;
    return (v * 0x00000005u) & 0x49249249u;
}
__device__ __forceinline__ unsigned gather_bits(unsigned v) {
    v &= 0x49249249u;
    v = (v | (v >> 2)) & 0xC30C30C3u;
    v = (v | (v >> 4)) & 0x0F00F00Fu;
    v = (v | (v >> 8)) & 0xFF0000FFu;
    return (v | (v >> 16)) & 0x0000FFFFu;
}
__device__ __forceinline__ unsigned morton(unsigned x, unsigned y, unsigned z) {
    return spread_bits(x) | (spread_bits(y) << 1) | (spread_bits(z) << 2);
}

__device__ __forceinline__ float exp2_int(int e) { return __int_as_float((127 + e) << 23); }

// Smallest m with value <= 2^m, for value > 0.
__device__ __forceinline__ int ceil_log2(float value) {
    const int bits = __float_as_int(value);
    return ((bits >> 23) & 255) - 127 + ((bits & 0x7FFFFF) != 0);
}

// Smallest cascade whose cube holds the point.
__device__ __forceinline__ int cascade_of_position(vec3 p, int max_cascade) {
    const float reach = 2.0f * fmaxf(fabsf(p.x - 0.5f), fmaxf(fabsf(p.y - 0.5f), fabsf(p.z - 0.5f)));
    return min(max(ceil_log2(reach), 0), max_cascade);
}

// Smallest cascade m with 256 dt < 2^m, as training marches.
__device__ __forceinline__ int cascade_of_step(float dt, int max_cascade) {
    const int bits = __float_as_int(256.0f * dt);
    return min(max(((bits >> 23) & 255) - 127 + 1, 0), max_cascade);
}

struct Cell {
    bool occupied;
    int size;      // edge in cells of the empty block around the point: 4, 2 or 1
    int cascade;
    unsigned x, y, z;
};

__device__ __forceinline__ unsigned cell_coordinate(float p, float inverse_edge) {
    const int c = static_cast<int>(((p - 0.5f) * inverse_edge + 0.5f) * CELLS);
    return static_cast<unsigned>(min(max(c, 0), CELLS - 1));
}

__device__ __forceinline__ Cell look_up(const unsigned long long* bits, vec3 p, int cascade) {
    const float inverse_edge = exp2_int(-cascade);
    Cell cell;
    cell.cascade = cascade;
    cell.x = cell_coordinate(p.x, inverse_edge);
    cell.y = cell_coordinate(p.y, inverse_edge);
    cell.z = cell_coordinate(p.z, inverse_edge);
    const unsigned index = morton(cell.x, cell.y, cell.z);
    const unsigned long long word = __ldg(bits + (cascade * (CELLS_A_CASCADE / 64) + (index >> 6)));
    cell.occupied = (word >> (index & 63)) & 1;
    cell.size = word == 0 ? 4 : (((word >> (index & 56)) & 255) == 0 ? 2 : 1);
    return cell;
}

// Distance from t to where the ray leaves the empty block, as a position t on the ray.
__device__ __forceinline__ float block_exit(const Cell& cell, vec3 p, vec3 direction, float t) {
    const float edge = exp2_int(cell.cascade), width = edge * (1.0f / CELLS);
    const unsigned mask = ~static_cast<unsigned>(cell.size - 1);
    const float low = 0.5f - 0.5f * edge;
    const auto distance = [&](float position, float d, unsigned c) {
        const float border = low + width * static_cast<float>((c & mask) + (d > 0.0f ? cell.size : 0));
        return fabsf(d) > 1e-9f ? __fdividef(border - position, d) : 1e30f;
    };
    const float nearest = fminf(distance(p.x, direction.x, cell.x), fminf(distance(p.y, direction.y, cell.y), distance(p.z, direction.z, cell.z)));
    return t + fmaxf(nearest, 0.0f);
}
