// Few items: every subset is tried, in float64 and in item order. One problem per warp.
//
// A lane takes the subsets whose first five bits are its own number. It holds the sums over the next five items in
// registers and goes through the choices of the last ones in ascending order of masks, so the first of equals is the
// smallest.

constexpr int LANE_ITEMS = N < 5 ? N : 5;
constexpr int LIST_ITEMS = N - LANE_ITEMS < 5 ? N - LANE_ITEMS : 5;
constexpr int LAST_ITEMS = N - LANE_ITEMS - LIST_ITEMS;
constexpr int LISTED = 1 << LIST_ITEMS;
constexpr int WARPS = BLOCK_THREADS / WARP;

__device__ inline int highest_bit(u32 x) { return 31 - __clz(x); }

__device__ inline Answer try_all(const double *item, double target)
{
    u32 first = lane_index() % (1 << LANE_ITEMS);
    double sums[LISTED];
    sums[0] = 0.0;
#pragma unroll
    for (int k = 0; k < LANE_ITEMS; k++)
        if (first >> k & 1) sums[0] += item[k];
#pragma unroll
    for (int i = 1; i < LISTED; i++) sums[i] = sums[i - (1 << highest_bit(i))] + item[LANE_ITEMS + highest_bit(i)];

    double best = fabs(target - sums[0]);
    u32 rest = 0;
    for (u32 last = 0; last < 1 << LAST_ITEMS; last++) {
#pragma unroll
        for (u32 i = 0; i < LISTED; i++) {
            double sum = sums[i];
#pragma unroll
            for (int k = 0; k < LAST_ITEMS; k++)
                if (last >> k & 1) sum += item[LANE_ITEMS + LIST_ITEMS + k];
            double error = fabs(target - sum);
            if (error < best) best = error, rest = last << LIST_ITEMS | i;
        }
    }
    return warp_best(best, first | rest << LANE_ITEMS);
}

template <class Problems> __device__ void solve_all(const Problems &problems, const Answers &answers)
{
    extern __shared__ uint4 shared[];
    int warp = threadIdx.x / WARP;
    double *item = reinterpret_cast<double *>(shared) + warp * WARP;
    auto stride = problems.at(i64(gridDim.x) * WARPS);
    auto cursor = problems.at(i64(blockIdx.x) * WARPS + warp);
    auto raw = problems.fetch(cursor);
    while (problems.holds(cursor)) {
        double mine = problems.item(raw), target = raw.target;
        auto next = problems.after(cursor, stride);
        raw = problems.fetch(next);
        __syncwarp();
        item[lane_index()] = mine;
        __syncwarp();
        Ends ends = ends_of(item);
        bool reachable = within(target, ends);
        answers.write(problems, cursor, reachable ? try_all(item, target) : nearest_end(target, ends, mine));
        cursor = next;
    }
}
