"""Asynchronous copies (PTX ISA 9.0, sections 9.7.9.25 and 9.7.9.27).

The order of the state spaces in an opcode is destination, source. Reads and writes happen some
time after the instruction; the mbarrier or the group signals when they are complete.
"""

TABLE = """
# 9.7.9.25.3 cp.async: with a source size the rest is zero; a predicate there ignores the source
cp.async +shared/shared::cta +global | [d]=write/1/n [a]=read/2/n n srcsize? policy | copy
cp.async.commit_group                |                                           | async_copy | side
cp.async.wait_group                  | i                                         | async_copy | side
cp.async.wait_all                    |                                           | async_copy | side
cp.async.mbarrier.arrive             | [mbar]                                    | async_copy | side

# 9.7.9.25.4 bulk copies
cp.async.bulk +shared::cluster +global | [d]=write/1/n [a]=read/2/n n [mbar]~ ctas policy | copy
cp.async.bulk +shared::cta +global -ignore_oob | [d]=write/1/n [a]=read/2/n n [mbar]~ policy | copy
cp.async.bulk +shared::cta +ignore_oob      | [d]=update/1/n [a]=read/2/n n b c [mbar] policy | copy
cp.async.bulk +shared::cluster +shared::cta | [d]=write/1/n [a]=read/2/n n [mbar]~ | copy
cp.async.bulk +global +shared::cta -cp_mask | [d]=write/1/n [a]=read/2/n n policy | copy
cp.async.bulk +global +shared::cta +cp_mask | [d]=update/1/n [a]=read/2/n n policy bytemask~ | copy
cp.async.bulk.prefetch                      | [a]=prefetch/1/n n policy          | async_copy | side
cp.async.bulk.commit_group                  |                                    | async_copy | side
cp.async.bulk.wait_group                    | i                                  | async_copy | side
cp.reduce.async.bulk +shared::cluster +shared::cta | [d]=reduce/1/n [a]=read/2/n n [mbar]~ | copy
cp.reduce.async.bulk +global +shared::cta   | [d]=reduce/1/n [a]=read/2/n n policy | copy
multimem.cp.async.bulk -cp_mask             | [d]=write/1/n [a]=read/2/n n       | copy
multimem.cp.async.bulk +cp_mask             | [d]=update/1/n [a]=read/2/n n bytemask~ | copy
multimem.cp.reduce.async.bulk               | [d]=reduce/1/n [a]=read/2/n n      | copy

# 9.7.9.27.1 tensor copies; `off` are im2col offsets; stores leave out what is outside the tensor
cp.async.bulk.tensor +shared::cluster +global| [d]~=write/1/box [map] [mbar]~ off ctas policy | copy
cp.async.bulk.tensor +shared::cta +global | [d]~=write/1/box [map] [mbar]~ off policy | copy
cp.async.bulk.tensor +global +shared::cta | [map]=update/1/box [a]~=read/2/box policy | copy
cp.reduce.async.bulk.tensor               | [map]=reduce/1/box [a]~=read/2/box policy | copy
applypriority.async.bulk                  | [a]=prefetch/1/n n                   | async_copy | side
applypriority.async.bulk.tensor           | [map]=prefetch/global/box off        | async_copy | side
cp.async.bulk.prefetch.tensor             | [map]=prefetch/global/box off policy | async_copy | side
"""

FORMS = """
cp.async    | ca/cg shared/shared::cta global [L2::cache_hint] [@ahead] | . . i
cp.async.commit_group |  |
cp.async.wait_all |  |
cp.async.wait_group |  |
cp.async.mbarrier.arrive | [noinc] [shared/shared::cta] b64 |
cp.async.bulk | shared::cluster global mbarrier::complete_tx::bytes [@multicast] [@report]
            [L2::cache_hint] {relaxed @scope b128; b128; weak} | . . u32
cp.async.bulk | shared::cta global mbarrier::complete_tx::bytes [@report] [L2::cache_hint]
            {relaxed @scope b128; b128; weak} | . . u32
cp.async.bulk | shared::cta global mbarrier::complete_tx::bytes [L2::cache_hint] ignore_oob
            {relaxed @scope b128; b128; weak} | . . u32 u32 u32
cp.async.bulk | shared::cluster shared::cta mbarrier::complete_tx::bytes
            {relaxed cta/cluster b128; b128; weak} | . . u32
cp.async.bulk | global shared::cta bulk_group [L2::cache_hint] {relaxed @scope b128; b128; weak} |
            . . u32
cp.async.bulk | global shared::cta bulk_group [L2::cache_hint] cp_mask {relaxed @scope b128; b128;
            weak} | . . u32
cp.async.bulk.commit_group |  |
cp.async.bulk.wait_group | [read] |
cp.async.bulk.wait_group | sync_restrict::proxy::async | | 9.5
cp.async.bulk.prefetch | L2 global [L2::cache_hint/L2::evict_last] | . u32
cp.async.bulk.tensor | @tensor shared::cluster global [@load] mbarrier::complete_tx::bytes
            [@multicast] [@ctas] [@report] [@scope] [L2::cache_hint] {@moved [@resized]} |
cp.async.bulk.tensor | @tensor shared::cta global [@load] mbarrier::complete_tx::bytes [@ctas]
            [@report] [@scope] [L2::cache_hint] {@moved [@resized]} |
cp.async.bulk.tensor | @tensor global shared::cta [tile/tile::scatter4/im2col_no_offs] bulk_group
            [@scope] [L2::cache_hint] {@moved [@resized]} |
cp.async.bulk.prefetch.tensor | @tensor L2 global [@load] [L2::cache_hint/L2::evict_last] {@moved
            [@resized]} |
cp.reduce.async.bulk | shared::cluster shared::cta mbarrier::complete_tx::bytes {relaxed
            cta/cluster} and/or/xor b32 | . . u32
cp.reduce.async.bulk | shared::cluster shared::cta mbarrier::complete_tx::bytes {relaxed
            cta/cluster} add u32/s32/u64 | . . u32
cp.reduce.async.bulk | shared::cluster shared::cta mbarrier::complete_tx::bytes {relaxed
            cta/cluster} min/max u32/s32 | . . u32
cp.reduce.async.bulk | shared::cluster shared::cta mbarrier::complete_tx::bytes {relaxed
            cta/cluster} inc/dec u32 | . . u32
cp.reduce.async.bulk | global shared::cta bulk_group [L2::cache_hint] {relaxed @scope} and/or/xor
            b32/b64 | . . u32
cp.reduce.async.bulk | global shared::cta bulk_group [L2::cache_hint] {relaxed @scope} add
            u32/s32/u64/f32/f64 | . . u32
cp.reduce.async.bulk | global shared::cta bulk_group [L2::cache_hint] {relaxed @scope} add noftz
            f16/bf16/f32 | . . u32 | f32:9.4
cp.reduce.async.bulk | global shared::cta bulk_group [L2::cache_hint] {relaxed @scope} min/max
            u32/s32/u64/s64/f16/bf16 | . . u32
cp.reduce.async.bulk | global shared::cta bulk_group [L2::cache_hint] {relaxed @scope} inc/dec u32
            | . . u32
cp.reduce.async.bulk.tensor | @tensor global shared::cta add/min/max/inc/dec/and/or/xor
            [tile/im2col_no_offs] bulk_group [@scope] [L2::cache_hint] {@moved [@resized]} |
applypriority.async.bulk | [global] bulk_group L2::evict_normal | . u32
applypriority.async.bulk.tensor | @tensor [global] [@load] bulk_group L2::evict_normal {@moved
            [@resized]} |
applypriority.async.bulk.tensor | [@tensor] [global] tile::gather4/tile::scatter4 bulk_group
            L2::evict_normal {@moved [@resized]} |
multimem.cp.async.bulk | global shared::cta bulk_group [cp_mask] {relaxed @scope b128; b128; weak}
            [@sum] | . . u32
multimem.cp.reduce.async.bulk | global shared::cta bulk_group {relaxed @scope} and/or/xor [@sum]
            b32/b64 | . . u32
multimem.cp.reduce.async.bulk | global shared::cta bulk_group {relaxed @scope} add [@sum]
            u32/s32/u64/f32/f64 | . . u32
multimem.cp.reduce.async.bulk | global shared::cta bulk_group {relaxed @scope} add noftz [@sum]
            f16/bf16/f32 | . . u32 | f32:9.4
multimem.cp.reduce.async.bulk | global shared::cta bulk_group {relaxed @scope} min/max [@sum]
            u32/s32/u64/s64/f16/bf16 | . . u32
multimem.cp.reduce.async.bulk | global shared::cta bulk_group {relaxed @scope} inc/dec [@sum] u32 |
            . . u32
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] and/or/xor b32/b64 | !D A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] add u32/s32/u64/f64 | !D A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] min/max u32/s32/u64/s64 | !D A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] add [v2/v4] f32 | !v*T A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] add [acc::f32] [v2/v4]
            f16x2/bf16x2 | !v*T A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] add [acc::f32] v2/v4/v8 f16/bf16
            | !v*T A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] add [acc::f16] [v2/v4]
            e4m3x4/e5m2x4 | !v*x32 A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] add [acc::f16] v2/v4/v8
            e4m3x2/e5m2x2 | !v*b16 A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] add [acc::f16] v4/v8 @fp8 | !v*b8 A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] min/max [v2/v4] f16x2/bf16x2 | !v*T A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] min/max [v2/v4]
            e4m3x4/e5m2x4 | !v*x32 A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] min/max v2/v4/v8 f16/bf16
            | !v*T A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] min/max v2/v4/v8
            e4m3x2/e5m2x2 | !v*b16 A
multimem.ld_reduce | {weak; relaxed/acquire @scope} [global] min/max v4/v8 @fp8 | !v*b8 A
multimem.st | {weak; relaxed/release @scope} [global] [@sum] b32/b64/u32/u64/s32/s64/f64 | A T
multimem.st | {weak; relaxed/release @scope} [global] [v2/v4] [@sum] f32/f16x2/bf16x2
            | A v*T
multimem.st | {weak; relaxed/release @scope} [global] [v2/v4] [@sum] e4m3x4/e5m2x4
            | A v*b32
multimem.st | {weak; relaxed/release @scope} [global] v2/v4/v8 [@sum] f16/bf16 | A v*T
multimem.st | {weak; relaxed/release @scope} [global] v2/v4/v8 [@sum] e4m3x2/e5m2x2
            | A v*b16
multimem.st | {weak; relaxed/release @scope} [global] v4/v8 [@sum] @fp8 | A v*b8
multimem.red | {relaxed/release @scope} [global] and/or/xor b32/b64 [@sum] | A T
multimem.red | {relaxed/release @scope} [global] add u32/s32/u64/f64 [@sum] | A T
multimem.red | {relaxed/release @scope} [global] min/max u32/s32/u64/s64 [@sum] | A T
multimem.red | {relaxed/release @scope} [global] add [v2/v4] [@sum] f32/f16x2/bf16x2 | A v*T
multimem.red | {relaxed/release @scope} [global] min/max v2/v4 [@sum] f16x2/bf16x2 | A v*T
multimem.red | {relaxed/release @scope} [global] add/min/max v2/v4/v8 [@sum] f16/bf16 | A v*T
multimem.st.async | release gpu/sys [global] b32/b64/u32/u64/s32/s64/f32/f64 [@sum] | A T~
multimem.red.async | release gpu/sys [global] add u32/s32/u64 [@sum] | A T
"""
