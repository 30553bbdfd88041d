// What the oracle's host kernels run on. They are compiled by g++ with -fsanitize=thread, which
// puts a call before every access to memory; these are the functions that it calls, with nothing
// of the sanitizer's own library. Each access is looked up in the arena of the case's buffers
// (anything outside a buffer ends the run), noted per byte, and held against those of other
// threads: two that touch a byte with no barrier between them, one of them writing, are a race.
// Threads of a block run one after the other, as coroutines where the kernel has barriers.
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

enum Status { FINE, OUTSIDE, ENDLESS, RACE, FAULT, DIVERGED };
enum Mark { READ = 1, WRITE = 2 };

// What is known of one byte: who wrote and read it last, in which phase of which block.
struct Byte {
    u32 run, writer, writer_phase, reader, reader_phase, other_reader, other_phase;
    bool many_blocks, atomic;
};

struct Job {
    void (*entry)(void **);
    void **args;
    u32 grid[3], block[3];
    u32 barriers, reversed;
    u8 *arena;
    u64 arena_bytes;
    const u8 *inside;  // per byte of the arena: whether it is in a buffer
    u8 *marks;         // per byte of the arena: Mark
    u64 where;         // of what went wrong
};

extern "C" u32 oracle_place[12];
u32 oracle_place[12];
extern u8 __start_oracle_shared[] __attribute__((weak));
extern u8 __stop_oracle_shared[] __attribute__((weak));

static Job *job;
static Byte *bytes, *shared_bytes;
static u64 shared_size, steps, threads_per_block, stack_top;
static u32 run_number, thread, block_number, phase, current;
static sigjmp_buf out;
static ucontext_t scheduler, fibers[1024];
static u8 *stacks, state[1024];  // 0: ready, 1: at a barrier, 2: ended
static u32 posted[1024];
static const u64 STACK = 32768, MOST_STEPS = 400000;

static void stop(Status why, u64 where) {
    job->where = where;
    siglongjmp(out, why);
}

static bool together(u32 other, u32 other_phase) {
    if (other == 0 || other == thread) return false;
    return (other - 1) / threads_per_block != block_number || other_phase == phase;
}

static void note(Byte &b, bool write, bool atomic, u64 where) {
    if (b.run != run_number) b = Byte{run_number, 0, 0, 0, 0, 0, 0, false, false};
    if (together(b.writer, b.writer_phase) && !(atomic && b.atomic)) stop(RACE, where);
    if (write) {
        bool others = together(b.reader, b.reader_phase) || together(b.other_reader, b.other_phase);
        if ((others || b.many_blocks) && !(atomic && b.atomic)) stop(RACE, where);
        b.writer = thread, b.writer_phase = phase, b.atomic = atomic;
    }
    if (atomic || write) return;
    if (b.reader != thread) {
        if (b.reader && (b.reader - 1) / threads_per_block != block_number) b.many_blocks = true;
        b.other_reader = b.reader, b.other_phase = b.reader_phase, b.reader = thread;
    }
    b.reader_phase = phase;
}

static void touch(const void *at, u64 size, int what, bool atomic = false) {
    if (!job) return;
    if (++steps > MOST_STEPS) stop(ENDLESS, 0);
    u64 address = (u64)at, offset = address - (u64)job->arena;
    if (offset < job->arena_bytes && offset + size <= job->arena_bytes) {
        for (u64 i = offset; i < offset + size; i++) {
            if (!job->inside[i]) stop(OUTSIDE, i);
            job->marks[i] |= what;
            note(bytes[i], what & WRITE, atomic, i);
        }
        return;
    }
    u64 in_shared = address - (u64)__start_oracle_shared;
    if (__start_oracle_shared && in_shared < shared_size && in_shared + size <= shared_size) {
        for (u64 i = in_shared; i < in_shared + size; i++)
            note(shared_bytes[i], what & WRITE, atomic, ~i);
        return;
    }
    // What is left are locals, on the stack, and the thread's own numbers.
    bool is_local = address < stack_top && address > (u64)&offset;
    bool is_place = address - (u64)oracle_place < sizeof oracle_place && what == READ;
    if (!is_local && !is_place) stop(OUTSIDE, address);
}

#define ACCESS(size)                                                                     \
    extern "C" void __tsan_read##size(void *p) { touch(p, size, READ); }                 \
    extern "C" void __tsan_write##size(void *p) { touch(p, size, WRITE); }               \
    extern "C" void __tsan_unaligned_read##size(void *p) { touch(p, size, READ); }       \
    extern "C" void __tsan_unaligned_write##size(void *p) { touch(p, size, WRITE); }     \
    extern "C" void __tsan_volatile_read##size(void *p) { touch(p, size, READ); }        \
    extern "C" void __tsan_volatile_write##size(void *p) { touch(p, size, WRITE); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
extern "C" void __tsan_read_range(void *p, u64 n) { touch(p, n, READ); }
extern "C" void __tsan_write_range(void *p, u64 n) { touch(p, n, WRITE); }
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_init() {}

template <class T> static T atomic(void *at, T value, int what) {
    touch(at, sizeof(T), READ | WRITE, true);
    T old;
    memcpy(&old, at, sizeof old);
    T made = what == 0   ? old + value
             : what == 1 ? (old > value ? old : value)
             : what == 2 ? (old < value ? old : value)
             : what == 3 ? (old & value)
             : what == 4 ? (old | value)
                         : (old ^ value);
    memcpy(at, &made, sizeof made);
    return old;
}
extern "C" u32 oracle_atomic32(void *at, u32 value, int what) { return atomic<u32>(at, value, what); }
extern "C" u64 oracle_atomic64(void *at, u64 value, int what) { return atomic<u64>(at, value, what); }

static void rest(u8 why) {
    u32 me = current;
    state[me] = why;
    swapcontext(&fibers[me], &scheduler);
}

extern "C" void oracle_barrier() { rest(1); }

// A shuffle by a whole block at once: all post a value, then all read. It orders no memory.
extern "C" u32 oracle_exchange(u32 value, u32 lane) {
    u32 me = current, first = me & ~31u;
    posted[me] = value;
    rest(3);
    u32 found = posted[first + lane < threads_per_block ? first + lane : me];
    rest(3);
    return found;
}

static void place(u32 t) {
    const u32 *b = job->block;
    current = t;
    thread = block_number * threads_per_block + t + 1;
    if (job->barriers) stack_top = (u64)(stacks + (t + 1) * STACK);
    oracle_place[0] = t % b[0], oracle_place[1] = t / b[0] % b[1], oracle_place[2] = t / b[0] / b[1];
}

static void run_fiber() {
    job->entry(job->args);
    rest(2);
}

static void run_with_barriers() {
    u32 n = threads_per_block;
    for (u32 t = 0; t < n; t++) {
        state[t] = 0;
        getcontext(&fibers[t]);
        fibers[t].uc_stack.ss_sp = stacks + t * STACK;
        fibers[t].uc_stack.ss_size = STACK;
        fibers[t].uc_link = nullptr;
        makecontext(&fibers[t], run_fiber, 0);
    }
    for (;;) {
        for (u32 i = 0; i < n; i++) {
            u32 t = job->reversed ? n - 1 - i : i;
            if (state[t] == 2) continue;
            place(t);
            swapcontext(&scheduler, &fibers[t]);
        }
        for (u32 t = 1; t < n; t++)
            if (state[t] != state[0]) stop(DIVERGED, t);
        if (state[0] == 2) return;
        if (state[0] == 1) phase++;
    }
}

static void run_block(u32 number) {
    const u32 *g = job->grid;
    block_number = number, phase = 0;
    oracle_place[3] = number % g[0], oracle_place[4] = number / g[0] % g[1];
    oracle_place[5] = number / g[0] / g[1];
    if (shared_size) {
        memset(__start_oracle_shared, job->reversed ? 0x5a : 0xa5, shared_size);
        memset((void *)shared_bytes, 0, shared_size * sizeof(Byte));
    }
    if (job->barriers) return run_with_barriers();
    for (u32 i = 0; i < threads_per_block; i++) {
        place(job->reversed ? threads_per_block - 1 - i : i);
        job->entry(job->args);
    }
}

static void on_fault(int) { siglongjmp(out, FAULT); }

extern "C" int oracle_run(Job *given) {
    static u64 room = 0;
    if (!stacks) stacks = (u8 *)malloc(1024 * STACK);
    if (__start_oracle_shared && !shared_bytes) {
        shared_size = __stop_oracle_shared - __start_oracle_shared;
        shared_bytes = (Byte *)calloc(shared_size, sizeof(Byte));
    }
    if (room < given->arena_bytes) {
        room = given->arena_bytes;
        free(bytes);
        bytes = (Byte *)calloc(room, sizeof(Byte));
    }
    run_number++;
    memset(given->marks, 0, given->arena_bytes);
    steps = 0;
    threads_per_block = (u64)given->block[0] * given->block[1] * given->block[2];
    memcpy(oracle_place + 6, given->block, 12);
    memcpy(oracle_place + 9, given->grid, 12);
    stack_top = (u64)__builtin_frame_address(0);
    signal(SIGSEGV, on_fault), signal(SIGBUS, on_fault);
    int status = sigsetjmp(out, 1);
    if (status == 0) {
        job = given;
        u32 blocks = given->grid[0] * given->grid[1] * given->grid[2];
        for (u32 i = 0; i < blocks; i++) run_block(given->reversed ? blocks - 1 - i : i);
    }
    job = nullptr;
    signal(SIGSEGV, SIG_DFL), signal(SIGBUS, SIG_DFL);
    return status;
}

// Which bytes that a run reads decide something: each is changed in turn. `before` is the arena
// as the run finds it, `after` and `marks` what it leaves; `needed` says yes per byte.
extern "C" void oracle_needed(Job *given, const u8 *before, const u8 *after, const u8 *marks,
                              u8 *needed) {
    static const u8 changes[] = {0xff, 0x01, 0x80, 0x10};
    u64 n = given->arena_bytes;
    for (u64 at = 0; at < n; at++) {
        if (!(marks[at] & READ)) continue;
        for (u8 change : changes) {
            memcpy(given->arena, before, n);
            given->arena[at] ^= change;
            bool differs = oracle_run(given) != FINE;
            for (u64 i = 0; !differs && i < n; i++) {
                u8 wanted = i == at && !(marks[i] & WRITE) ? after[i] ^ change : after[i];
                differs = given->arena[i] != wanted;
            }
            if (differs) {
                needed[at] = 1;
                break;
            }
        }
    }
}
