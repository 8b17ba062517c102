// The step's own state, moved on by one thread; meaning of the slots: control/op.py.
enum State { STEP, RAYS, SKIPPED, SKIPPED_IN_A_ROW };
enum Counter { KEPT, EVALUATED, HIT, NONFINITE };
enum Hyper { LEARNING_RATE, EMA_OLD, EMA_NEW, MEAN_DENSITY };
constexpr int N_COUNTERS = 8, N_STATS = 8, RING = 256, RAY_MULTIPLE = 16;

extern "C" __global__ void begin(const long long* state, float* hyper, double step_ratio, double learning_rate, int decay_start, int decay_interval,
                                 double decay_base, double ema_decay) {
    const double step = static_cast<double>(state[STEP]), reference_step = step * step_ratio;
    const double decays = reference_step < decay_start ? 0.0 : 1.0 + floor((reference_step - decay_start) / decay_interval);
    const double before = 1.0 - pow(ema_decay, step), bias = 1.0 - pow(ema_decay, step + 1.0);
    hyper[LEARNING_RATE] = static_cast<float>(learning_rate * pow(decay_base, decays));
    hyper[EMA_OLD] = static_cast<float>(ema_decay * before / bias);
    hyper[EMA_NEW] = static_cast<float>((1.0 - ema_decay) / bias);
}

extern "C" __global__ void advance(long long* state, int* counters, const float* hyper, float* loss_sum, float* stats, long long target_samples,
                                   long long max_rays) {
    const long long step = state[STEP], rays = state[RAYS];
    const bool bad = counters[NONFINITE] > 0;
    float* row = stats + step % RING * N_STATS;
    row[0] = static_cast<float>(step);
    row[1] = static_cast<float>(rays);
    row[2] = static_cast<float>(counters[KEPT]);
    row[3] = static_cast<float>(counters[EVALUATED]);
    row[4] = static_cast<float>(counters[HIT]);
    row[5] = *loss_sum / static_cast<float>(rays);
    row[6] = bad ? 1.0f : 0.0f;
    row[7] = hyper[LEARNING_RATE];
    const long long kept = counters[KEPT] > 0 ? counters[KEPT] : 1;
    long long following = rays * target_samples / kept;
    following = ((following > 1 ? following : 1) + RAY_MULTIPLE - 1) / RAY_MULTIPLE * RAY_MULTIPLE;
    state[RAYS] = following < max_rays ? following : max_rays;
    state[SKIPPED] += bad;
    state[SKIPPED_IN_A_ROW] = bad ? state[SKIPPED_IN_A_ROW] + 1 : 0;
    state[STEP] = step + 1;
    for (int i = 0; i < N_COUNTERS; ++i) counters[i] = 0;
    *loss_sum = 0.0f;
}
