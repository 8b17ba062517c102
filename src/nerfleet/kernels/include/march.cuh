// Marching: the samples of a ray are the lattice points n = start + k that lie inside the box and in an occupied cell.
// One thread looks for where a ray comes near something occupied; a group of neighbouring lanes finds samples together.
#pragma once
#include "occupancy.cuh"
#include "stepping.cuh"

constexpr unsigned ALL_LANES = 0xFFFFFFFFu;
constexpr int MAX_SAMPLES = 1024;  // of a training ray
constexpr int MAX_CASCADE = NF_CASCADES - 1;
constexpr bool STEP_CASCADES = NF_STEP_CASCADES;  // cells are looked up no finer than the step; else by position alone
#ifdef NF_CROPPED
constexpr bool CROPPED = true;  // samples outside of the scene's crop box are skipped
#else
constexpr bool CROPPED = false;
#endif
constexpr float SKIP_SLACK = 0.01f;  // in steps: rounding must not skip a sample just past an empty cell's border

struct Scene {
    const unsigned long long* bits;
    const unsigned* blocks;
    float half_edge, inverse_edge;  // of the box: a cube around 0.5
    Stepping stepping;
    vec3 crop_low, crop_high;       // rendering only: points outside have no density
};

struct Ray {
    vec3 origin, direction;
    float start;
};

struct Point {
    float t, dt;
    vec3 position;
};

__device__ __forceinline__ Point point_at(const Scene& scene, const Ray& ray, int k) {
    const float n = ray.start + static_cast<float>(k);
    Point p;
    p.t = from_lattice(scene.stepping, n);
    p.dt = step_from(scene.stepping, n, p.t);
    p.position = ray.origin + p.t * ray.direction;
    return p;
}

__device__ __forceinline__ float reach_of(vec3 p) { return fmaxf(fabsf(p.x - 0.5f), fmaxf(fabsf(p.y - 0.5f), fabsf(p.z - 0.5f))); }

__device__ __forceinline__ vec3 to_unit_cube(const Scene& scene, vec3 p) {
    return {__saturatef((p.x - 0.5f) * scene.inverse_edge + 0.5f), __saturatef((p.y - 0.5f) * scene.inverse_edge + 0.5f),
            __saturatef((p.z - 0.5f) * scene.inverse_edge + 0.5f)};
}

struct Probe {
    bool inside, occupied;
    float t;
    vec3 position;
    Cell cell;
};

// Looks at lattice point k.
__device__ __forceinline__ Probe look(const Scene& scene, const Ray& ray, int k) {
    Probe probe;
    probe.t = from_lattice(scene.stepping, ray.start + static_cast<float>(k));
    probe.position = ray.origin + probe.t * ray.direction;
    const float reach = reach_of(probe.position);
    probe.inside = reach <= scene.half_edge;
    probe.occupied = false;
    if (!probe.inside) return probe;
    int cascade = 0;
    if (MAX_CASCADE > 0) {
        cascade = max(ceil_log2(2.0f * reach), 0);
        if (STEP_CASCADES) cascade = max(cascade, cascade_of_step(step_at(scene.stepping, probe.t)));
        cascade = min(cascade, MAX_CASCADE);
    }
    probe.cell = look_up(scene.bits, probe.position, cascade);
    probe.occupied = is_occupied(probe.cell);
    if (CROPPED && probe.occupied) {
        const vec3 p = probe.position;
        probe.occupied = p.x >= scene.crop_low.x && p.y >= scene.crop_low.y && p.z >= scene.crop_low.z && p.x <= scene.crop_high.x &&
                         p.y <= scene.crop_high.y && p.z <= scene.crop_high.z;
    }
    return probe;
}

// The first k after a point without density that can be occupied: past the largest empty block around the point. Blocks that
// are empty on a coarse cascade are empty on all finer ones, whose occupied cells it includes.
__device__ __forceinline__ int skip(const Scene& scene, const Ray& ray, int k, const Probe& probe) {
    Cell cell = probe.cell;
    if (is_occupied(cell)) return k + 1;  // cropped
    unsigned size = (cell.word >> (cell.code & 56) & 255) == 0 ? 2 : 1;
    if (cell.word == 0) {
        size = 4;
        if (block_is_empty(scene.blocks, cell.cascade, cell.code)) {
            size = BLOCK_CELLS;
            while (cell.cascade < MAX_CASCADE) {
                constexpr unsigned QUARTER = CELLS / 4;
                const unsigned x = cell.x / 2 + QUARTER, y = cell.y / 2 + QUARTER, z = cell.z / 2 + QUARTER, code = morton(x, y, z);
                if (!block_is_empty(scene.blocks, cell.cascade + 1, code)) break;
                cell.x = x, cell.y = y, cell.z = z, cell.code = code;
                ++cell.cascade;
            }
        }
    }
    float exit = exit_of(cell, size, probe.position, ray.direction, probe.t);
#if NF_CONE && NF_STEP_CASCADES
    if (cell.cascade < MAX_CASCADE) {
        // From here on the step asks for a coarser cascade, which may be occupied where this one is empty.
        const float limit = exp2_int(cell.cascade - 8) / scene.stepping.cone;
        if (probe.t < limit) exit = fminf(exit, limit);
    }
#endif
    const float ahead = fminf(to_lattice(scene.stepping, exit) - ray.start - SKIP_SLACK, 1e9f);
    return max(k + 1, static_cast<int>(ceilf(ahead)));
}

// First occupied k of a ray, or -1 if there is none; one thread a ray. After FINE_TRIES looks into blocks that are not empty it
// answers with where it is: along a surface a thread on its own would go on cell by cell for too long, groups of lanes are better.
__device__ __forceinline__ int first_candidate(const Scene& scene, const Ray& ray) {
    constexpr int FINE_TRIES = 16;
    int k = 0;
    for (int fine = 0; fine < FINE_TRIES;) {
        const Probe probe = look(scene, ray, k);
        if (!probe.inside) {
            if (k > 0) return -1;
            k = 1;  // rounding can put the first point just outside of the box
            continue;
        }
        if (probe.occupied) return k;
        fine += probe.cell.word != 0;
        k = skip(scene, ray, k, probe);
    }
    return k;
}

// One bit for each block of 16^3 cells: whether one of them is occupied. A warp reads the 512 bytes of a block.
__device__ __forceinline__ void summarize_blocks(const unsigned long long* bits, unsigned* blocks) {
    const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    const bool any = (bits[warp * 64 + lane] | bits[warp * 64 + 32 + lane]) != 0;
    const bool occupied = __any_sync(ALL_LANES, any);
    __shared__ unsigned flags[32];
    if (lane == 0) flags[threadIdx.x / 32] = occupied;
    __syncthreads();
    if (threadIdx.x < 32) {
        const unsigned word = __ballot_sync(ALL_LANES, flags[threadIdx.x] != 0);
        if (threadIdx.x == 0) blocks[blockIdx.x] = word;
    }
}

// A warp's 32 lanes as 32 / width groups of neighbours; each group works on one ray.
struct Group {
    int width, shift;  // lanes; first lane
    int rank;          // of this lane

    __device__ __forceinline__ explicit Group(int width) : width(width) {
        const int lane = threadIdx.x & 31;
        rank = lane & (width - 1);
        shift = lane - rank;
    }
    __device__ __forceinline__ unsigned part(unsigned all) const { return width == 32 ? all : all >> shift & ((1u << width) - 1); }
    __device__ __forceinline__ unsigned ballot(bool value) const { return part(__ballot_sync(ALL_LANES, value)); }
    __device__ __forceinline__ int below() const { return (1 << rank) - 1; }
    template <typename T>
    __device__ __forceinline__ T from(T value, int source_rank) const {
        return __shfl_sync(ALL_LANES, value, shift + source_rank);
    }
};

// Finds up to `want` (at most the group's width) samples from ray k on and gives the i-th to the lane of rank i.
// k moves on; `ended` is set when the ray has left the box. All lanes of the warp call it together; a group whose ray is
// `ended` on entry takes no part. Stops after `patience` tries, with or without samples: how many a group has then depends on
// its own ray alone, and with it the order of additions along the ray.
// scratch: 32 ints a warp. Returns the number found.
__device__ __forceinline__ int find_samples(const Scene& scene, const Ray& ray, const Group& group, int want, int patience, int* scratch, int& k, bool& ended,
                                            int& own_k) {
    int found = 0;
    for (int tries = 0; tries < patience; ++tries) {
        const bool searching = !ended && found < want;
        if (!__any_sync(ALL_LANES, searching)) break;
        bool inside = true, filled = false;
        int next = k + group.width;
        if (searching) {
            const Probe probe = look(scene, ray, k + group.rank);
            inside = probe.inside, filled = probe.occupied;
            if (group.rank == group.width - 1 && inside && !filled) next = skip(scene, ray, k + group.rank, probe);
        }
        const unsigned outside = group.ballot(!inside);
        unsigned occupied = group.ballot(filled);
        if (outside) occupied &= (outside & (0u - outside)) - 1;  // nothing counts from the first lane outside on
        const int rank = __popc(occupied & group.below()), room = want - found, n_new = __popc(occupied);
        const bool mine = occupied >> group.rank & 1;
        if (mine && rank < room) scratch[group.shift + found + rank] = k + group.rank;
        const unsigned left_over = group.ballot(mine && rank == room);
        next = group.from(next, group.width - 1);
        if (searching) {
            if (left_over) {
                k += __ffs(left_over) - 1;
            } else if (outside) {
                ended = true;
            } else {
                k = next;
            }
            found += min(n_new, room);
        }
    }
    __syncwarp();
    own_k = scratch[threadIdx.x & 31];
    __syncwarp();
    return found;
}
