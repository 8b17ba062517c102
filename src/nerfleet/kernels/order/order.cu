// A sequence of the step's samples that is the same every time, whatever slots they took: ray after ray, in order along each.
//   kept         [N] i32 samples of each ray      state [4] i64 (STATE_RAYS: rays of this step)
//   offsets      [N] i32 scratch: samples of all rays before
//   ray_indices, ranks [capacity] i32 of the stored samples
//   counters     [8] i32: samples kept; written: length of the sequence
//   order        [capacity] i32, written: slot of the i-th sample of the sequence
constexpr int STATE_RAYS = 1, RAYS = 1024;  // of a block
enum Counter { KEPT = 0, ORDERED = 6 };
constexpr unsigned ALL_LANES = 0xFFFFFFFFu;

// Exclusive sum in one launch: each block adds up all rays before its own, from the cache, which takes less than a second launch.
extern "C" __global__ void __launch_bounds__(1024) ray_offsets(const int* kept, const long long* state, int* offsets) {
    const int n_rays = static_cast<int>(state[STATE_RAYS]), first = blockIdx.x * RAYS, ray = first + threadIdx.x;
    if (first >= n_rays) return;
    int before = 0;
    for (int i = 4 * threadIdx.x; i < first; i += 4 * RAYS) {
        const int4 four = *reinterpret_cast<const int4*>(kept + i);
        before += four.x + four.y + four.z + four.w;
    }
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, own = ray < n_rays ? kept[ray] : 0;
    int upto = own;
    for (int d = 1; d < 32; d <<= 1) {
        const int other = __shfl_up_sync(ALL_LANES, upto, d);
        if (lane >= d) upto += other;
        before += __shfl_xor_sync(ALL_LANES, before, d);
    }
    __shared__ int warps[32], warps_before[32];
    if (lane == 31) warps[warp] = upto;
    if (lane == 0) warps_before[warp] = before;
    __syncthreads();
    int offset = upto - own;
    for (int w = 0; w < 32; ++w) offset += warps_before[w] + (w < warp ? warps[w] : 0);
    if (ray < n_rays) offsets[ray] = offset;
}

// With more samples than slots, which ones are stored is chance: then there is no sequence.
extern "C" __global__ void __launch_bounds__(256)
sample_order(const int* ray_indices, const int* ranks, const int* offsets, int capacity, int* counters, int* order) {
    const int slot = blockIdx.x * blockDim.x + threadIdx.x, kept = counters[KEPT], n = kept <= capacity ? kept : 0;
    if (slot == 0) counters[ORDERED] = n;
    if (slot < n) order[offsets[ray_indices[slot]] + ranks[slot]] = slot;
}
