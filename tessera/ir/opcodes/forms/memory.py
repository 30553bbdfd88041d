"""Forms of moves, loads, stores and addresses (PTX ISA 9.0, section 9.7.9)."""

TABLE = """
mov         | [v2/v4] b16/b32/b64/u16/u32/u64/s16/s32/s64/f32/f64/pred/b128 | !M M | b128:8.3/sm_70
ld          | [weak] [@anywhere] [ca/cg/cs/lu/cv] [@L1] [@L2] [L2::cache_hint] [@ahead] [unified]
            [v2/v4/v8] @memory | !V A | L1::evict_first:7.4/sm_70 L1::evict_last:7.4/sm_70
            L1::evict_normal:7.4/sm_70 L1::evict_unchanged:7.4/sm_70 L1::no_allocate:7.4/sm_70
            L2::128B:7.4/sm_70 L2::256B:7.4/sm_80 L2::64B:7.4/sm_75 L2::cache_hint:7.4/sm_80
            b128:8.3/sm_70 ca:2.0/sm_20 cg:2.0/sm_20 cs:2.0/sm_20 cv:2.0/sm_20 lu:2.0/sm_20
            param::entry:8.3 shared::cluster:7.8/sm_90 shared::cta:7.8 weak:6.0/sm_70
            v4.b64:8.8/sm_100 v4.u64:8.8/sm_100 v4.s64:8.8/sm_100 v4.f64:8.8/sm_100 v8:8.8/sm_100
ld          | [weak] [global] nc [ca/cg/cs] [@L1] [@L2] [L2::cache_hint] [@ahead] [unified]
            [v2/v4/v8] @memory | !V A | 3.1 sm_32 b128:8.3/sm_70
            v4.b64:8.8/sm_100 v4.u64:8.8/sm_100 v4.s64:8.8/sm_100 v4.f64:8.8/sm_100 v8:8.8/sm_100
ld          | volatile [@writable] [@ahead] [unified] [v2/v4/v8] @memory | !V A |
            L2::128B:7.4/sm_75 L2::256B:7.4/sm_80 L2::64B:7.4/sm_75 b128:8.3/sm_70 local:9.1
            shared::cluster:7.8/sm_90 shared::cta:7.8
ld          | relaxed/acquire @scope [@proxied] [@L1] [@L2] [L2::cache_hint] [@ahead] [unified]
            [v2/v4/v8] @memory | !V A | 6.0 sm_70 L1::evict_first:7.4 L1::evict_last:7.4
            L1::evict_normal:7.4 L1::evict_unchanged:7.4 L1::no_allocate:7.4 L2::128B:7.4/sm_75
            L2::256B:7.4/sm_80 L2::64B:7.4/sm_75 L2::cache_hint:7.4/sm_80 b128:8.3
            cluster:7.8/sm_90 shared::cluster:7.8/sm_90 shared::cta:7.8
ld          | mmio relaxed/acquire [@scope] [global] [unified] @memory | !V A | 8.2 sm_70
            acquire:9.3
ldu         | [global] [v2/v4] @memory | !V A | 2.0 sm_20 b128:8.3/sm_70
st          | [weak] [@writable/param/param::func] [wb/cg/cs/wt] [@L1] [@L2] [L2::cache_hint]
            [v2/v4/v8] @memory | A V | L1::evict_first:7.4/sm_70 L1::evict_last:7.4/sm_70
            L1::evict_normal:7.4/sm_70 L1::evict_unchanged:7.4/sm_70 L1::no_allocate:7.4/sm_70
            L2::cache_hint:7.4/sm_80 b128:8.3/sm_70 cg:2.0/sm_20 cs:2.0/sm_20
            shared::cluster:7.8/sm_90 shared::cta:7.8
            wb:2.0/sm_20 weak:6.0/sm_70 wt:2.0/sm_20
            v4.b64:8.8/sm_100 v4.u64:8.8/sm_100 v4.s64:8.8/sm_100 v4.f64:8.8/sm_100 v8:8.8/sm_100
st          | volatile [@writable] [v2/v4/v8] @memory | A V | b128:8.3/sm_70 local:9.1
            shared::cluster:7.8/sm_90 shared::cta:7.8
st          | relaxed/release @scope [@proxied] [@L1] [@L2] [L2::cache_hint] [v2/v4/v8] @memory |
            A V | 6.0 sm_70 L1::evict_first:7.4 L1::evict_last:7.4 L1::evict_normal:7.4
            L1::evict_unchanged:7.4 L1::no_allocate:7.4 L2::cache_hint:7.4/sm_80 b128:8.3
            cluster:7.8/sm_90 shared::cluster:7.8/sm_90 shared::cta:7.8
st          | mmio relaxed/release [@scope] [global] @memory | A V | 8.2 sm_70
st.async    | * | | 8.1 sm_90
st.bulk     | [weak] [shared::cta] | | 8.6 sm_100
prefetch    | [global/local] L1/L2 | A | 2.0 sm_20
prefetch    | [global] L2::evict_last/L2::evict_normal | A | 7.4 sm_80
prefetch    | [const/param] tensormap |
prefetch    | L1::32B valid_addr |
prefetchu   | L1 | A | 2.0 sm_20
isspacep    | @anywhere | !pred _ | 2.0 sm_20 const:3.1 param:7.7/sm_70
            param::entry:8.3/sm_70 shared::cluster:7.8/sm_90 shared::cta:7.8
cvta.to     | @anywhere u32/u64 | !D !T | 2.0 sm_20 const:3.1 param:7.7/sm_70
            param::entry:8.3/sm_70 shared::cluster:7.8/sm_90 shared::cta:7.8
cvta        | @anywhere u32/u64 | !D _ | 2.0 sm_20 const:3.1 param:7.7/sm_70
            param::entry:8.3/sm_70 shared::cluster:7.8/sm_90 shared::cta:7.8
mapa        | [shared::cluster] u32/u64 | | 7.8 sm_90
getctarank  | [shared::cluster] u32/u64 | | 7.8 sm_90
applypriority.async | * |
applypriority | [global] L2::evict_normal | A | 7.4 sm_80
discard     | [global] L2 | A | 7.4 sm_80
createpolicy.fractional | @policy [L2::evict_first/L2::evict_unchanged] b64 | !b64 | 7.4 sm_80
createpolicy.range | [global/fabric] @policy [L2::evict_first/L2::evict_unchanged] b64 | !b64 |
            7.4 sm_80
createpolicy.cvt | L2 b64 | !b64 | 7.4 sm_80
istypep     | texref/samplerref/surfref | !pred _ | 4.0 sm_30
stacksave   | u32/u64 | !D | 7.3 sm_52
stackrestore | u32/u64 | T | 7.3 sm_52
alloca      | u32/u64 | !D T | 7.3 sm_52
"""
