// Training: march, evaluate the field and composite, with early stop; two kernels.
//   origins, directions [N, 3] f32, starts [N] f32 (negative: no ray), state [4] i64 (STATE_RAYS: rays of this step)
//   scene           bits, box and lattice (march/cuda.py)
//   queue           [N, 2] i32 scratch: (ray, first k) of each ray that may have samples, in any order
//   lanes           that share a ray (4, 8, 16 or 32), or 0: as suits the batch; patience: tries before some wait no longer
//   counters        [8] i32, zero at the start: kept, evaluated, hit, non-finite, head and length of the queue
//   rgb [N, 3], transmittance [N] f32, kept [N] i32: written for every ray; transmittance 0: cut, 1: no samples
//   sample_*        [capacity, ...] the kept samples (docs of nerfleet::trace), in slots as they come: a different order every
//                   time. Everything else is the same every time, a sample's rank on its ray too (nerfleet::sample_order).
#include "trace.cuh"

extern __shared__ __align__(16) unsigned char shared_memory[];

constexpr int STATE_RAYS = 1;
enum Counter { KEPT, EVALUATED, HIT, NONFINITE, QUEUE, QUEUED };

// A block of 1,024 threads makes one word of the block field: 32 blocks of 16^3 cells.
extern "C" __global__ void __launch_bounds__(1024) trace_blocks(const unsigned long long* bits, unsigned* blocks) { summarize_blocks(bits, blocks); }

// One thread a ray: where it may have its first sample; rays that may have one join the queue.
extern "C" __global__ void __launch_bounds__(128)
trace_candidates(const float* origins, const float* directions, const float* starts, const long long* state, const Scene scene, int* queue, int* counters, float* rgb, float* transmittance,
                 int* kept) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool exists = i < static_cast<int>(state[STATE_RAYS]);
    int k = -1;
    if (exists && starts[i] >= 0.0f) {
        k = first_candidate(scene, Ray{load3(origins + 3 * i), load3(directions + 3 * i), starts[i]});
    }
    const unsigned hits = __ballot_sync(ALL_LANES, k >= 0);
    int first = 0;
    if (lane_index() == 0 && hits) first = atomicAdd(counters + QUEUED, __popc(hits));
    first = __shfl_sync(ALL_LANES, first, 0);
    if (k >= 0) {
        const int place = first + __popc(hits & ((1u << lane_index()) - 1));
        reinterpret_cast<int2*>(queue)[place] = make_int2(i, k);
    } else if (exists) {
        store3(rgb + 3 * i, vec3{0.0f, 0.0f, 0.0f});
        transmittance[i] = 1.0f;
        kept[i] = 0;
    }
}

struct Sinks {
    int* ray_indices;
    int* ranks;
    float* positions;
    float* t;
    float* dt;
    __half* features;
    float* rgb;
    float* raw;
    float* weight;
    float* after;
    float* prefix;
};

// Features of the warp's kept samples, whose tile rows follow one another in `rows`, to slots first .. first + n.
__device__ __forceinline__ void store_features(const __half* tile, const int* rows, int n, __half* out) {
    if constexpr (N_FEATURES % 8 == 0) {
        constexpr int CHUNKS = N_FEATURES / 8;
        for (int i = lane_index(); i < n * CHUNKS; i += 32) {
            const int column = i % CHUNKS * 8;
            *reinterpret_cast<uint4*>(out + static_cast<size_t>(i / CHUNKS) * N_FEATURES + column) =
                *reinterpret_cast<const uint4*>(tile + rows[i / CHUNKS] * TILE_STRIDE + column);
        }
    } else {
        for (int i = lane_index(); i < n * N_FEATURES; i += 32) out[i] = tile[rows[i / N_FEATURES] * TILE_STRIDE + i % N_FEATURES];
    }
}

__device__ __forceinline__ void store_sample(const Sinks& sinks, int slot, int ray, int rank, const Point& point, vec3 unit, const Sample& sample, const Composited& c) {
    sinks.ray_indices[slot] = ray;
    sinks.ranks[slot] = rank;
    store3(sinks.positions + 3 * slot, unit);
    sinks.t[slot] = point.t;
    sinks.dt[slot] = point.dt;
    store3(sinks.rgb + 3 * slot, sample.rgb);
    sinks.raw[slot] = sample.raw;
    sinks.weight[slot] = c.weight;
    sinks.after[slot] = c.after;
    store3(sinks.prefix + 3 * slot, c.prefix);
}

// Lanes a ray: more for long rays; at most a part of a group's samples is evaluated in vain. The ray count is steered so that the
// batch holds about half of `capacity` kept samples. Chosen by measurement (docs/performance.md).
__device__ __forceinline__ int lanes_a_ray(int capacity, int n_queue) {
    const int expected = capacity / 2 / max(n_queue, 1);
    return expected < 5 ? 8 : (expected < 38 ? 16 : 32);
}

extern "C" __global__ void __launch_bounds__(128, 4)
trace_rays(const float* origins, const float* directions, const float* starts, const Scene scene,
           const __half* table, const __half* mlp, const Grid grid, float min_transmittance, int lanes, int patience, const int* queue, int* counters, int capacity,
           float* rgb, float* transmittance, int* kept, const Sinks sinks) {
    __half* weights = reinterpret_cast<__half*>(shared_memory);
    __half* tile = warp_tile(shared_memory);
    int* scratch = warp_scratch(tile);
    load_weights(mlp, weights);
    clear_padding(tile + lane_index() * TILE_STRIDE);
    __syncthreads();

    const int n_queue = counters[QUEUED];
    const Group group(lanes > 0 ? lanes : lanes_a_ray(capacity, n_queue));
    Ray ray{};
    Gathered gathered{};
    int index = -1, k = 0, n_samples = 0, n_kept = 0, n_evaluated = 0, n_hit = 0;
    bool ended = true;
    while (true) {
        const int place = take_rays(group, index < 0, counters + QUEUE, n_queue);
        if (place >= 0) {
            const int2 entry = reinterpret_cast<const int2*>(queue)[place];
            index = entry.x, k = entry.y, n_samples = 0, n_kept = 0, ended = false;
            ray = Ray{load3(origins + 3 * index), load3(directions + 3 * index), starts[index]};
            gathered = Gathered{1.0f, {0.0f, 0.0f, 0.0f}, 0.0f};
        }
        if (!__any_sync(ALL_LANES, index >= 0)) break;
        int own_k;
        const int found = find_samples(scene, ray, group, min(group.width, MAX_SAMPLES - n_samples), patience, scratch, k, ended, own_k);
        n_hit += group.rank == 0 && found > 0 && n_samples == 0;
        n_samples += found;
        ended = ended || n_samples >= MAX_SAMPLES;
        if (__any_sync(ALL_LANES, found > 0)) {
            const bool valid = group.rank < found;
            const Point point = point_at(scene, ray, valid ? own_k : k);
            const vec3 unit = to_unit_cube(scene, point.position);
            const Sample sample = evaluate(weights, tile, table, grid, unit, ray.direction, valid);
            const Composited c = composite<false>(group, sample, point, found, min_transmittance, gathered);
            const unsigned stored = __ballot_sync(ALL_LANES, c.kept), own = group.part(stored);
            const int place = __popc(stored & ((1u << lane_index()) - 1)), n_stored = __popc(stored);
            int first = 0;
            if (lane_index() == 0) first = atomicAdd(counters + KEPT, n_stored);
            first = __shfl_sync(ALL_LANES, first, 0);
            if (c.kept) scratch[place] = lane_index();
            if (c.kept && first + place < capacity) store_sample(sinks, first + place, index, n_kept + __popc(own & group.below()), point, unit, sample, c);
            n_kept += __popc(own);
            __syncwarp();
            store_features(tile, scratch, max(min(n_stored, capacity - first), 0), sinks.features + static_cast<size_t>(first) * N_FEATURES);
            n_evaluated += valid;
            __syncwarp();
        }
        const bool cut = !(gathered.transmittance >= min_transmittance);
        if (index >= 0 && (cut || ended)) {
            if (group.rank == 0) {
                store3(rgb + 3 * index, gathered.rgb);
                transmittance[index] = cut ? 0.0f : gathered.transmittance;
                kept[index] = n_kept;
            }
            index = -1;
            ended = true;
        }
    }
    for (int d = 16; d > 0; d >>= 1) {
        n_evaluated += __shfl_xor_sync(ALL_LANES, n_evaluated, d);
        n_hit += __shfl_xor_sync(ALL_LANES, n_hit, d);
    }
    if (lane_index() == 0) {
        atomicAdd(counters + EVALUATED, n_evaluated);
        atomicAdd(counters + HIT, n_hit);
    }
}
