// The occupancy bit field: NF_CASCADES cascades of 128^3 cells in Morton order (x lowest), cascade m the cube of edge 2^m
// around 0.5. 4x4x4 cells are one aligned 64-bit word, 2x2x2 cells one byte of it, and 16x16x16 cells one bit of the block
// field: empty space is skipped by the largest of them that is empty.
#pragma once
#include "numbers.cuh"

constexpr int CELLS = 128;
constexpr unsigned CELLS_A_CASCADE = 1u << 21;
constexpr int BLOCK_CELLS = 16;
constexpr unsigned BLOCK_WORDS = CELLS_A_CASCADE / (BLOCK_CELLS * BLOCK_CELLS * BLOCK_CELLS) / 32;  // of a cascade

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

// Smallest m with 256 dt < 2^m, not below 0: training looks at no finer cascade.
__device__ __forceinline__ int cascade_of_step(float dt) { return max(((__float_as_int(256.0f * dt) >> 23) & 255) - 127 + 1, 0); }

struct Cell {
    int cascade;
    unsigned x, y, z, code;   // code: Morton, in its cascade
    unsigned long long word;  // bits of its 4x4x4 neighbours
};

__device__ __forceinline__ bool is_occupied(const Cell& cell) { return (cell.word >> (cell.code & 63)) & 1; }

__device__ __forceinline__ unsigned cell_coordinate(float p, float inverse_edge) {
    const int c = static_cast<int>((p - 0.5f) * (inverse_edge * CELLS) + 0.5f * CELLS);
    return static_cast<unsigned>(min(max(c, 0), CELLS - 1));
}

__device__ __forceinline__ Cell look_up(const unsigned long long* bits, vec3 p, int cascade) {
    const float inverse_edge = exp2_int(-cascade);
    Cell cell;
    cell.cascade = cascade;
    cell.x = cell_coordinate(p.x, inverse_edge);
    cell.y = cell_coordinate(p.y, inverse_edge);
    cell.z = cell_coordinate(p.z, inverse_edge);
    cell.code = morton(cell.x, cell.y, cell.z);
    cell.word = __ldg(bits + (cascade * (CELLS_A_CASCADE / 64) + (cell.code >> 6)));
    return cell;
}

__device__ __forceinline__ bool block_is_empty(const unsigned* blocks, int cascade, unsigned code) {
    const unsigned block = code / (BLOCK_CELLS * BLOCK_CELLS * BLOCK_CELLS);
    return (__ldg(blocks + cascade * BLOCK_WORDS + block / 32) >> (block & 31) & 1) == 0;
}

// Where a ray leaves `size` cells around an empty cell, as a position t on the ray.
__device__ __forceinline__ float exit_of(const Cell& cell, unsigned size, vec3 p, vec3 direction, float t) {
    const float edge = exp2_int(cell.cascade), width = edge * (1.0f / CELLS), low = 0.5f - 0.5f * edge;
    const auto distance = [&](float position, float d, unsigned c) {
        const float border = low + width * static_cast<float>((c & (0u - size)) + (d > 0.0f ? size : 0u));
        return fabsf(d) > 1e-9f ? __fdividef(border - position, d) : 1e30f;
    };
    const float nearest = fminf(distance(p.x, direction.x, cell.x), fminf(distance(p.y, direction.y, cell.y), distance(p.z, direction.z, cell.z)));
    return t + fmaxf(nearest, 0.0f);
}
