// tests/rig/gpu_host.cpp: see tests/rig/gpu_host.h: fibers, the block's barriers, shared and device memory.
#include "tests/rig/gpu_host.h"

#include "gpu/gpu.h"

#include <deque>
#include <map>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

dim3 threadIdx, blockIdx, blockDim, gridDim;

// ---- the order of rules ---------------------------------------------------------------------------------------------

static uint64_t order_state = 1;

void gpu_host_seed(uint64_t seed) { order_state = seed * 2 + 1; }

static size_t pick(size_t n) {
    order_state ^= order_state << 13;
    order_state ^= order_state >> 7;
    order_state ^= order_state << 17;
    return (size_t)(order_state % n);
}

// ---- stacks ---------------------------------------------------------------------------------------------------------

// Saves the callee-saved registers on the current stack, stores its pointer in *from, and continues on the stack `to`.
extern "C" void gpu_host_switch(void **from, void *to);

#if defined(__x86_64__)
__asm__(".text\n.globl gpu_host_switch\n.type gpu_host_switch, @function\ngpu_host_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
        ".size gpu_host_switch, .-gpu_host_switch\n");

static void *first_frame(char *top, void (*entry)()) {
    void **sp = (void **)top - 1; // the stack pointer must be as after a call: 8 past a multiple of 16
    *sp = NULL;
    *--sp = (void *)entry;
    for (int i = 0; i < 6; i++) *--sp = NULL;
    return sp;
}
#elif defined(__aarch64__)
__asm__(".text\n.globl gpu_host_switch\n.type gpu_host_switch, %function\ngpu_host_switch:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
        "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
        "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
        "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
        "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n  ret\n"
        ".size gpu_host_switch, .-gpu_host_switch\n");

static void *first_frame(char *top, void (*entry)()) {
    void **sp = (void **)(top - 160);
    memset(sp, 0, 160);
    sp[11] = (void *)entry; // register x30, the return address
    return sp;
}
#else
#error "gpu_host.cpp: a stack switch for this CPU is missing"
#endif

// ---- fibers ---------------------------------------------------------------------------------------------------------

enum { MAX_THREADS = 1024 };
#ifdef HAS_ASAN
enum { STACK = 256 << 10 };
#else
enum { STACK = 64 << 10 };
#endif

typedef enum { READY, IN_WARP, AT_BARRIER, PARKED, OVER } FiberState;

struct AsyncCopy {
    void *to;
    const void *from;
    int bytes;
    bool valid;
};

// The sums of products that run on (tests/rig/gpu_host_sm90.h).
struct AsyncSums {
    float *registers;
    std::vector<float> sums;
    int group; // the newest group of products that adds to them
};

struct Fiber {
    char *stack;
    void *sp;
    FiberState state;
    dim3 thread;
    bool waited;      // for the previous launch
    const char *file; // place in the source where it waits
    int line;
    unsigned mask;
    void (*op)(void **);
    void *mine;
    const void *parked;                      // what it waits for
    std::deque<AsyncSums> mma;               // a deque: addresses of elements stay
    int mma_group;                           // products that are committed next
    std::vector<AsyncCopy> open;             // asynchronous copies that are not committed
    std::deque<std::vector<AsyncCopy>> sent; // committed groups of copies that are not waited for
    void *fake_stack;                        // for AddressSanitizer
};

static Fiber fibers[MAX_THREADS];
static Fiber *running; // NULL: the scheduler runs
static void *scheduler_sp;
static const std::function<void()> *body;
static std::vector<int> ready;
static int n_fibers, n_over, n_at_barrier;
static char launch_name[128], fault[640];
static bool faulted;  // the current launch has had a fault
static bool foregone; // the launch has run up to its wait for the previous launch

static void fiber_main();

#ifdef HAS_ASAN
static const void *scheduler_stack;
static size_t scheduler_size;
#endif

static void to_scheduler() {
    Fiber *f = running;
#ifdef HAS_ASAN
    __sanitizer_start_switch_fiber(f->state == OVER ? NULL : &f->fake_stack, scheduler_stack, scheduler_size);
#endif
    gpu_host_switch(&f->sp, scheduler_sp);
#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(f->fake_stack, NULL, NULL);
#endif
}

static void resume(Fiber *f) {
    running = f;
    threadIdx = f->thread;
#ifdef HAS_ASAN
    void *fake;
    __sanitizer_start_switch_fiber(&fake, f->stack, STACK);
#endif
    gpu_host_switch(&scheduler_sp, f->sp);
#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
    running = NULL;
}

static void fiber_main() {
#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_size);
#endif
    (*body)();
    running->state = OVER;
    to_scheduler();
    abort(); // not reached: a finished fiber is not resumed
}

static char *stack_new() {
    size_t page = 4096;
    char *p = (char *)mmap(NULL, STACK + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p, page, PROT_NONE) != 0) {
        fprintf(stderr, "gpu_host: no memory for a stack\n");
        abort();
    }
    return p + page;
}

static void fiber_start(int i, dim3 block) {
    Fiber *f = &fibers[i];
    if (!f->stack) f->stack = stack_new();
#ifdef HAS_ASAN
    __asan_unpoison_memory_region(f->stack, STACK);
#endif
    unsigned n = (unsigned)i;
    f->sp = first_frame(f->stack + STACK, fiber_main);
    f->state = READY;
    f->waited = false;
    f->thread = dim3(n % block.x, n / block.x % block.y, n / block.x / block.y);
    f->open.clear();
    f->sent.clear();
    f->mma.clear();
    f->mma_group = 0;
    f->fake_stack = NULL;
}

// ---- faults ---------------------------------------------------------------------------------------------------------

void gpu_host_fault(const char *format, ...) {
    if (!faulted) {
        va_list args;
        va_start(args, format);
        vsnprintf(fault, sizeof fault, format, args);
        va_end(args);
        faulted = true;
        gpu_launch_failed(launch_name, QUILL_MODEL, fault);
    }
    if (running) to_scheduler(); // does not return
}

// No thread can continue: prints where some of them wait.
static void report_deadlock() {
    char text[512];
    int n = snprintf(text, sizeof text, "block (%u, %u, %u) stands still:", blockIdx.x, blockIdx.y, blockIdx.z);
    const char *file = NULL;
    int line = 0, shown = 0;
    for (int i = 0; i < n_fibers && shown < 4; i++) {
        const Fiber *f = &fibers[i];
        if (f->state == OVER || (file == f->file && line == f->line)) continue;
        file = f->file;
        line = f->line;
        shown++;
        n += snprintf(text + n, sizeof text - (size_t)n, " thread %d waits %s at %s:%d;", i,
                      f->state == IN_WARP  ? "for its warp"
                      : f->state == PARKED ? "for other warps"
                                           : "at the barrier",
                      file, line);
        if (n >= (int)sizeof text) break;
    }
    gpu_host_fault("%s %d of %d threads are over", text, n_over, n_fibers);
}

// ---- barriers, warps ------------------------------------------------------------------------------------------------

static void make_ready(int i) {
    fibers[i].state = READY;
    ready.push_back(i);
}

void gpu_host_block_barrier(const char *file, int line) {
    Fiber *f = running;
    f->state = AT_BARRIER;
    f->file = file;
    f->line = line;
    n_at_barrier++;
    to_scheduler();
}

// All threads of the block wait. If they wait at different places, this is a fault.
static void release_barrier() {
    const Fiber *first = NULL;
    for (int i = 0; i < n_fibers; i++)
        if (fibers[i].state == AT_BARRIER) {
            if (!first) first = &fibers[i];
            if (fibers[i].line != first->line || fibers[i].file != first->file) return report_deadlock();
        }
    n_at_barrier = 0;
    for (int i = 0; i < n_fibers; i++)
        if (fibers[i].state == AT_BARRIER) make_ready(i);
}

void gpu_host_warp(unsigned mask, void (*op)(void **), void *mine, const char *file, int line) {
    Fiber *f = running;
    int me = (int)(f - fibers), base = me / WARP * WARP;
    static char none;
    if (!(mask >> (me - base) & 1)) gpu_host_fault("%s:%d: thread %d is not in its own mask", file, line, me);
    f->state = IN_WARP;
    f->file = file;
    f->line = line;
    f->mask = mask;
    f->op = op;
    f->mine = mine ? mine : &none;
    void *lanes[WARP] = {0};
    for (int i = 0; i < WARP; i++) {
        if (!(mask >> i & 1)) continue;
        const Fiber *other = &fibers[base + i];
        if (base + i >= n_fibers || other->state == OVER)
            gpu_host_fault("%s:%d: lane %d is in the mask, but over", file, line, i);
        if (other->state != IN_WARP) return to_scheduler();
        if (other->op != op || other->mask != mask || other->line != line)
            gpu_host_fault("thread %d is at %s:%d, thread %d of its warp at %s:%d", me, file, line, base + i,
                           other->file, other->line);
        lanes[i] = other->mine;
    }
    op(lanes);
    for (int i = 0; i < WARP; i++)
        if (lanes[i]) make_ready(base + i);
    to_scheduler();
}

// ---- barriers and products of sm_90 (tests/rig/gpu_host_sm90.h) -----------------------------------------------------

void gpu_host_park(const void *at, const char *file, int line) {
    Fiber *f = running;
    f->state = PARKED;
    f->parked = at;
    f->file = file;
    f->line = line;
    to_scheduler();
}

void gpu_host_wake(const void *at) {
    for (int i = 0; i < n_fibers; i++)
        if (fibers[i].state == PARKED && fibers[i].parked == at) make_ready(i);
}

static int named_arrived[16];

void gpu_host_named_barrier(int id, int n, bool wait, const char *file, int line) {
    if (id < 1 || id > 15 || n % WARP) gpu_host_fault("%s:%d: no such barrier: %d of %d threads", file, line, id, n);
    if (++named_arrived[id] == n) {
        named_arrived[id] = 0;
        gpu_host_wake(&named_arrived[id]);
    } else if (wait) gpu_host_park(&named_arrived[id], file, line);
}

float *gpu_host_mma_sums(float *registers, int n) {
    Fiber *f = running;
    for (AsyncSums &s : f->mma)
        if (s.registers == registers) {
            s.group = f->mma_group;
            return s.sums.data();
        }
    f->mma.push_back({registers, std::vector<float>(registers, registers + n), f->mma_group});
    for (int i = 0; i < n; i++) registers[i] = NAN;
    return f->mma.back().sums.data();
}

void gpu_host_mma_commit() { running->mma_group++; }

void gpu_host_mma_wait(int pending) {
    Fiber *f = running;
    for (size_t i = 0; i < f->mma.size();) {
        AsyncSums &s = f->mma[i];
        if (s.group >= f->mma_group - pending) {
            i++;
            continue;
        }
        std::copy(s.sums.begin(), s.sums.end(), s.registers);
        f->mma.erase(f->mma.begin() + (ptrdiff_t)i);
    }
}

// ---- early launches -------------------------------------------------------------------------------------------------

void gpu_host_wait_for_last() {
    running->waited = true;
    if (!foregone) return;
    running->state = OVER;
    to_scheduler(); // does not return
}

// ---- asynchronous copies --------------------------------------------------------------------------------------------

void gpu_host_cp_async(void *smem, const void *global, int bytes, bool valid) {
    if ((uintptr_t)smem % (unsigned)bytes || (uintptr_t)global % (unsigned)bytes)
        gpu_host_fault("cp.async from %p to %p: not aligned to %d bytes", global, smem, bytes);
    running->open.push_back({smem, global, bytes, valid});
}

void gpu_host_cp_commit() {
    running->sent.push_back(running->open);
    running->open.clear();
}

void gpu_host_cp_wait(int pending) {
    for (; (int)running->sent.size() > pending; running->sent.pop_front())
        for (const AsyncCopy &c : running->sent.front())
            if (c.valid) memcpy(c.to, c.from, (size_t)c.bytes);
            else memset(c.to, 0, (size_t)c.bytes);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

// Red zones hold a NaN that no kernel writes by chance, as f32 and as two halves. A block has as much shared memory as
// on the smallest GPU (sm_86, sm_89), or as on sm_90.
enum { ZONE = 256, SMEM_SM86 = 99 << 10, SMEM_SM90 = 227 << 10, SMEM_ZONE = 64, MAX_PIECES = 32 };
static bool is_sm90;
static int smem_most() { return is_sm90 ? SMEM_SM90 : SMEM_SM86; }
void gpu_host_sm90(bool on) { is_sm90 = on; }
static const unsigned char zone_bytes[4] = {0xc5, 0xff, 0xc6, 0xff};

static void zone_fill(unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = zone_bytes[i % 4];
#ifdef HAS_ASAN
    __asan_poison_memory_region(p, n);
#endif
}

static bool zone_whole(const unsigned char *p, size_t n) {
#ifdef HAS_ASAN
    __asan_unpoison_memory_region(p, n);
#endif
    bool whole = true;
    for (size_t i = 0; i < n; i++) whole &= p[i] == zone_bytes[i % 4];
#ifdef HAS_ASAN
    __asan_poison_memory_region(p, n);
#endif
    return whole;
}

alignas(1024) static unsigned char smem[SMEM_SM90 + MAX_PIECES * SMEM_ZONE];
static size_t smem_given;                                  // bytes of shared memory of the launch
static unsigned piece_at[MAX_PIECES], piece_n[MAX_PIECES]; // for each piece in smem: its offset and its bytes
static unsigned n_pieces;

unsigned char *gpu_host_smem(unsigned at, unsigned piece, unsigned bytes) {
    if (at + bytes > smem_given)
        gpu_host_fault("takes %u bytes of shared memory, was launched with %zu", at + bytes, smem_given);
    if (piece >= MAX_PIECES) gpu_host_fault("takes more than %d pieces of shared memory", MAX_PIECES);
    unsigned start = at + piece * SMEM_ZONE;
    if (piece == n_pieces) { // the first thread that reserves this piece
        piece_at[n_pieces] = start;
        piece_n[n_pieces++] = bytes;
#ifdef HAS_ASAN
        __asan_unpoison_memory_region(smem + start, bytes + SMEM_ZONE);
#endif
        memset(smem + start, 0xff, bytes);
        zone_fill(smem + start + bytes, SMEM_ZONE);
    } else if (piece_at[piece] != start || piece_n[piece] != bytes)
        gpu_host_fault("threads take different pieces of shared memory (number %u)", piece);
    return smem + start;
}

unsigned gpu_host_smem_address(const void *p) { return (unsigned)((const unsigned char *)p - smem); }
const unsigned char *gpu_host_smem_at(unsigned address, unsigned bytes) {
    for (unsigned i = 0; i < n_pieces; i++)
        if (address >= piece_at[i] && address + bytes <= piece_at[i] + piece_n[i]) return smem + address;
    gpu_host_fault("reads shared memory at %u, where no piece is", address);
    return NULL;
}

static void check_smem() {
    for (unsigned i = 0; i < n_pieces; i++)
        if (!zone_whole(smem + piece_at[i] + piece_n[i], SMEM_ZONE))
            gpu_host_fault("block (%u, %u, %u) wrote past piece %u of its shared memory (%u bytes)", blockIdx.x,
                           blockIdx.y, blockIdx.z, i, piece_n[i]);
}

// Device memory is cut from one range of addresses, from its start to its end. The host may not touch it: the range is
// open only while an Access lives, which launches and copies have. After the last cudaFree it is cut from the start
// again.
enum : size_t { RANGE = (size_t)64 << 30, PAGE = 4096 };
static unsigned char *range;
static size_t range_cut;                         // bytes that are given out, in whole pages
static std::map<unsigned char *, size_t> device; // allocations of cudaMalloc: address and bytes

struct Access {
    static int depth;
    Access() {
        if (depth++ == 0) protect(PROT_READ | PROT_WRITE);
    }
    ~Access() {
        if (--depth == 0) protect(PROT_NONE);
    }
    static void protect(int how) {
        if (range_cut && mprotect(range, range_cut, how) != 0) abort();
    }
};
int Access::depth;

static size_t pages_of(size_t n) { return (ZONE + n + ZONE + PAGE - 1) / PAGE * PAGE; }

cudaError_t cudaMalloc(void **out, size_t n) {
    if (!range) {
        void *p = mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return cudaErrorMemoryAllocation;
        range = (unsigned char *)p;
    }
    if (n > RANGE || pages_of(n) > RANGE - range_cut) return cudaErrorMemoryAllocation;
    unsigned char *data = range + range_cut + ZONE;
    range_cut += pages_of(n);
    Access::protect(PROT_READ | PROT_WRITE); // also if an Access lives, which has not opened the new pages
    Access open;
#ifdef HAS_ASAN
    __asan_unpoison_memory_region(data - ZONE, pages_of(n));
#endif
    zone_fill(data - ZONE, ZONE);
    memset(data, 0xff, n);
    zone_fill(data + n, ZONE);
    device[data] = n;
    *out = data;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
    if (!p) return cudaSuccess;
    gpu_host_check_memory("cudaFree");
    unsigned char *data = (unsigned char *)p;
    size_t bytes = pages_of(device[data]);
    device.erase(data);
    madvise(data - ZONE, bytes, MADV_DONTNEED);
#ifdef HAS_ASAN
    __asan_poison_memory_region(data - ZONE, bytes);
#endif
    if (device.empty()) range_cut = 0;
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind) {
    Access open;
    memmove(to, from, n);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int byte, size_t n) {
    Access open;
    memset(p, byte, n);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaGetDevice(int *out) {
    *out = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr what, int) {
    *out = what == cudaDevAttrMultiProcessorCount      ? 2
           : what == cudaDevAttrComputeCapabilityMajor ? 8 + is_sm90
           : what == cudaDevAttrComputeCapabilityMinor ? 6 * !is_sm90
                                                       : smem_most();
    return cudaSuccess;
}

void gpu_host_check_memory(const char *when) {
    Access open;
    for (auto &d : device) {
        bool before = !zone_whole(d.first - ZONE, ZONE), after = !zone_whole(d.first + d.second, ZONE);
        if (before || after)
            gpu_host_fault("%s: device memory written %s an allocation of %zu bytes", when, before ? "before" : "past",
                           d.second);
    }
}

// ---- launches -------------------------------------------------------------------------------------------------------

static void check_waited() {
    for (int i = 0; i < n_fibers && !faulted; i++)
        if (!fibers[i].waited) gpu_host_fault("thread %d of an early launch did not wait for the launch before it", i);
}

static void run_block() {
    n_pieces = 0;
    n_over = n_at_barrier = 0;
    memset(named_arrived, 0, sizeof named_arrived);
    ready.clear();
    for (int i = 0; i < n_fibers; i++) {
        fiber_start(i, blockDim);
        ready.push_back(i);
    }
    while (n_over < n_fibers && !faulted) {
        if (ready.empty()) {
            if (n_at_barrier == n_fibers) release_barrier();
            else if (foregone) check_waited();
            else report_deadlock();
            continue;
        }
        size_t at = pick(ready.size());
        int i = ready[at];
        ready[at] = ready.back();
        ready.pop_back();
        resume(&fibers[i]);
        n_over += fibers[i].state == OVER;
    }
    if (foregone && !faulted) check_waited();
    if (!faulted) check_smem();
}

typedef std::vector<std::function<void()>> Recording;
static Recording *recording; // NULL: work is not recorded
static std::deque<std::function<void()>> queue;
static bool late;
static size_t n_done; // number of queued pieces of work that are done

// Whether work is deferred: recorded in a graph, or queued.
static bool put_off(const std::function<void()> &work) {
    if (recording) recording->push_back(work);
    else if (late) queue.push_back(work);
    return recording || late;
}

void gpu_host_submit(const std::function<void()> &work) {
    if (put_off(work)) return;
    Access open;
    work();
}
void gpu_host_late() { late = true; }
size_t gpu_host_queued() { return n_done + queue.size(); }
void gpu_host_run(size_t queued) {
    Access open;
    bool was_late = late;
    late = false;
    for (; n_done < queued; n_done++) {
        queue.front()();
        queue.pop_front();
    }
    late = was_late;
}

void gpu_host_capture() { recording = new Recording; }
void *gpu_host_capture_end() {
    Recording *ended = recording;
    recording = NULL;
    return ended;
}
void gpu_host_replay(void *kept) {
    Recording copy = *(Recording *)kept; // a copy, because the graph may be freed before it runs
    gpu_host_submit([copy] {
        for (const auto &work : copy) work();
    });
}
void gpu_host_forget(void *kept) { delete (Recording *)kept; }

static void run_blocks(dim3 grid, size_t n) {
    std::vector<uint32_t> order(n);
    for (size_t i = 0; i < n; i++) {
        order[i] = (uint32_t)i;
        std::swap(order[i], order[pick(i + 1)]);
    }
    for (size_t i = 0; i < n && !faulted; i++) {
        blockIdx = dim3(order[i] % grid.x, order[i] / grid.x % grid.y, order[i] / grid.x / grid.y);
        run_block();
    }
}

// A copy of all device memory.
static std::vector<unsigned char> memory_copy() {
    std::vector<unsigned char> copy;
    for (const auto &d : device) copy.insert(copy.end(), d.first, d.first + d.second);
    return copy;
}

static void forego(dim3 grid, size_t n_blocks) {
    std::vector<unsigned char> before = memory_copy();
    foregone = true;
    run_blocks(grid, n_blocks);
    foregone = false;
    if (!faulted && memory_copy() != before) gpu_host_fault("an early launch wrote before the launch before it ended");
}

void gpu_host_launch(const char *name, dim3 grid, dim3 block, size_t smem_bytes, bool early,
                     const std::function<void()> &kernel) {
    if (put_off([=] { gpu_host_launch(name, grid, block, smem_bytes, early, kernel); })) return;
    Access open;
    snprintf(launch_name, sizeof launch_name, "%s", name);
    faulted = false;
    n_fibers = (int)(block.x * block.y * block.z);
    size_t n_blocks = (size_t)grid.x * grid.y * grid.z;
    if (n_fibers < 1 || n_fibers > MAX_THREADS || n_blocks == 0 || grid.y > 65535 || grid.z > 65535 ||
        smem_bytes > (size_t)smem_most())
        return gpu_host_fault("grid (%u, %u, %u), block (%u, %u, %u), %zu bytes shared: no such launch", grid.x, grid.y,
                              grid.z, block.x, block.y, block.z, smem_bytes);
    gridDim = grid;
    blockDim = block;
    smem_given = smem_bytes;
    body = &kernel;
    if (early) forego(grid, n_blocks);
    if (!faulted) run_blocks(grid, n_blocks);
    gpu_host_check_memory("after the launch");
}
