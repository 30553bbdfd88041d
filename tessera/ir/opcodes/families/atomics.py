"""Atomics, reductions, votes and other exchanges in a warp (PTX ISA 9.0, section 9.7.13)."""

TABLE = """
# 9.7.13.5 to 9.7.13.7
atom +cas       | d [a]=atomic b c policy  | atomic
atom +exch/and/or/xor          | d [a]=atomic b c? policy | atomic  # ptxas lets one more pass
atom -cas -exch -and -or -xor  | d [a]=atomic b policy    | atomic
red             | [a]~=reduce b policy     | atomic
red.async       | [a]=reduce b [done]?     | atomic | async

# 9.7.13.8 to 9.7.13.14; d of match.all and elect is a pair d|p
vote -ballot      | p q      | vote    | warp
vote +ballot      | d q      | vote    | warp
vote.sync -ballot | p q mask | vote    | warp
vote.sync +ballot | d q mask | vote    | warp
match             | d a mask | vote    | warp
activemask        | d        | vote    | state
redux.sync        | d a mask | integer | warp
elect.sync        | d mask   | vote    | warp
griddepcontrol    |          | barrier | grid
"""

FORMS = """
atom        | [@atomic] [@scope] [@shared/global] and/or/xor [L2::cache_hint] b32/b64 | !_D A T
atom        | [@atomic] [@scope] [@shared/global] exch [L2::cache_hint] b32/b64/b128 | !_D A T
atom        | [@atomic] [@scope] [@shared/global] cas [L2::cache_hint] b16/b32/b64/b128 | !_D A T T
atom        | [@atomic] [@scope] [@shared/global] add [L2::cache_hint] u32/s32/u64/f64 | !_D A T
atom        | [@atomic] [@scope] [@shared/global] add [noftz] [L2::cache_hint] f32 | !_D A T
atom        | [@atomic] [@scope] [@shared/global] add noftz [L2::cache_hint] f16/f16x2/bf16/bf16x2
            | !_D A T
atom        | [@atomic] [@scope] [@shared/global] min/max [L2::cache_hint] u32/s32/u64/s64 | !_D A T
atom        | [@atomic] [@scope] [@shared/global] inc/dec [L2::cache_hint] u32 | !_D A T
atom        | [@atomic] [@scope] [global] add/min/max noftz [L2::cache_hint] v2/v4/v8 f16/bf16 | !_V
            A V
atom        | [@atomic] [@scope] [global] add/min/max noftz [L2::cache_hint] v2/v4 f16x2/bf16x2 |
            !_V A V
atom        | [@atomic] [@scope] [global] add [noftz] [L2::cache_hint] v2/v4 f32 | !_V A V
red         | [relaxed/release] [@scope] [@shared/global] and/or/xor [L2::cache_hint] b32/b64 | A T
red         | [relaxed/release] [@scope] [@shared/global] add [L2::cache_hint] u32/s32/u64/f64 | A T
red         | [relaxed/release] [@scope] [@shared/global] add [noftz] [L2::cache_hint] f32 | A T
red         | [relaxed/release] [@scope] [@shared/global] add noftz [L2::cache_hint]
            f16/f16x2/bf16/bf16x2 | A T
red         | [relaxed/release] [@scope] [@shared/global] min/max [L2::cache_hint] u32/s32/u64/s64
            | A T
red         | [relaxed/release] [@scope] [@shared/global] inc/dec [L2::cache_hint] u32 | A T
red         | [relaxed/release] [@scope] [global] add/min/max noftz [L2::cache_hint] v2/v4/v8
            f16/bf16 | A V
red         | [relaxed/release] [@scope] [global] add/min/max noftz [L2::cache_hint] v2/v4
            f16x2/bf16x2 | A V
red         | [relaxed/release] [@scope] [global] add [noftz] [L2::cache_hint] v2/v4 f32 | A V
red.async   | relaxed cluster [shared::cluster] mbarrier::complete_tx::bytes and/or/xor b32 [@sum]
            | A T
red.async   | relaxed cluster [shared::cluster] mbarrier::complete_tx::bytes add u32/s32/u64/s64
            [@sum] | A T
red.async   | relaxed cluster [shared::cluster] mbarrier::complete_tx::bytes min/max u32/s32 [@sum]
            | A T
red.async   | relaxed cluster [shared::cluster] mbarrier::complete_tx::bytes inc/dec u32 [@sum]
            | A T
red.async   | release/relaxed gpu/sys [global] add u32/s32/u64/s64 [@sum] | A T
red.async   | release/relaxed gpu/sys [global] min/max u32/s32 [@sum] | A T
red.async   | release/relaxed gpu/sys [global] inc/dec u32 [@sum] | A T
red.async   | release/relaxed gpu/sys [global] and/or/xor b32 [@sum] | A T
red.async   | mmio release sys [global] add u32/s32/u64/s64 [@sum] | A T
red.async   | mmio release sys [global] min/max u32/s32 [@sum] | A T
red.async   | mmio release sys [global] inc/dec u32 [@sum] | A T
red.async   | mmio release sys [global] and/or/xor b32 [@sum] | A T
vote        | [sync] all/any/uni pred | !pred pred u32
vote        | [sync] ballot b32 | !b32 pred u32
match       | any sync b32/b64 | !b32 T u32
match       | all sync b32/b64 | !_b32& T u32
activemask  | b32 | !b32
redux       | sync add/min/max u32/s32 | !D T u32
redux       | sync and/or/xor b32 | !D T u32
redux       | sync min/max [abs] [NaN] f32 | !D T u32
elect       | sync | !b32&& u32
griddepcontrol | launch_dependents/wait |
"""
