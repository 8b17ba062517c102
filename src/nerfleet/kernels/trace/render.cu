// Rendering: the same as training without its limits; nothing is stored but the pixels.
//   origins, directions [n, 3] f32, starts [n] f32 (negative: no ray)
//   scene   bits, box, lattice and crop box (march/cuda.py)
//   queue   [n, 2] i32 scratch; counters [2] i32 scratch, zero at the start: rays in the queue, its head
//   rgb [n, 3] premultiplied, alpha [n], depth [n] f32 (docs of nerfleet::render_rays)
#define NF_CROPPED
#include "trace.cuh"

extern __shared__ __align__(16) unsigned char shared_memory[];

extern "C" __global__ void __launch_bounds__(1024) render_blocks(const unsigned long long* bits, unsigned* blocks) { summarize_blocks(bits, blocks); }

extern "C" __global__ void __launch_bounds__(128)
render_candidates(const float* origins, const float* directions, const float* starts, int n, const Scene scene, int* queue, int* counters, float* rgb, float* alpha, float* depth) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = -1;
    if (i < n && starts[i] >= 0.0f) {
        k = first_candidate(scene, Ray{load3(origins + 3 * i), load3(directions + 3 * i), starts[i]});
    }
    const unsigned hits = __ballot_sync(ALL_LANES, k >= 0);
    int first = 0;
    if (lane_index() == 0 && hits) first = atomicAdd(counters, __popc(hits));
    first = __shfl_sync(ALL_LANES, first, 0);
    if (k >= 0) {
        reinterpret_cast<int2*>(queue)[first + __popc(hits & ((1u << lane_index()) - 1))] = make_int2(i, k);
    } else if (i < n) {
        store3(rgb + 3 * i, vec3{0.0f, 0.0f, 0.0f});
        alpha[i] = 0.0f;
        depth[i] = 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(128, 4)
render_rays(const float* origins, const float* directions, const float* starts, const Scene scene, const __half* table, const __half* mlp, const Grid grid, float min_transmittance, int lanes, int patience, const int* queue,
            int* counters, float* rgb, float* alpha, float* depth) {
    __half* weights = reinterpret_cast<__half*>(shared_memory);
    __half* tile = warp_tile(shared_memory);
    int* scratch = warp_scratch(tile);
    load_weights(mlp, weights);
    clear_padding(tile + lane_index() * TILE_STRIDE);
    __syncthreads();

    const int n_queue = counters[0];
    const Group group(lanes);
    Ray ray{};
    Gathered gathered{};
    int index = -1, k = 0;
    bool ended = true;
    while (true) {
        const int place = take_rays(group, index < 0, counters + 1, n_queue);
        if (place >= 0) {
            const int2 entry = reinterpret_cast<const int2*>(queue)[place];
            index = entry.x, k = entry.y, ended = false;
            ray = Ray{load3(origins + 3 * index), load3(directions + 3 * index), starts[index]};
            gathered = Gathered{1.0f, {0.0f, 0.0f, 0.0f}, 0.0f};
        }
        if (!__any_sync(ALL_LANES, index >= 0)) break;
        int own_k;
        const int found = find_samples(scene, ray, group, group.width, patience, scratch, k, ended, own_k);
        if (__any_sync(ALL_LANES, found > 0)) {
            const bool valid = group.rank < found;
            const Point point = point_at(scene, ray, valid ? own_k : k);
            const Sample sample = evaluate(weights, tile, table, grid, to_unit_cube(scene, point.position), ray.direction, valid);
            composite<true>(group, sample, point, found, min_transmittance, gathered);
            __syncwarp();
        }
        const bool cut = !(gathered.transmittance >= min_transmittance);
        if (index >= 0 && (cut || ended)) {
            if (group.rank == 0) {
                const float opacity = 1.0f - gathered.transmittance, scale = 1.0f / fmaxf(opacity, 1e-9f);
                store3(rgb + 3 * index, cut ? scale * gathered.rgb : gathered.rgb);
                alpha[index] = cut ? 1.0f : opacity;
                depth[index] = scale * gathered.depth;
            }
            index = -1;
            ended = true;
        }
    }
}
