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
cp.async.bulk +shared::cluster +global      | [d]=write/1/n [a]=read/2/n n [mbar] ctas policy | copy
cp.async.bulk +shared::cta +global -ignore_oob | [d]=write/1/n [a]=read/2/n n [mbar] policy | copy
cp.async.bulk +shared::cta +ignore_oob      | [d]=update/1/n [a]=read/2/n n b c [mbar] policy | copy
cp.async.bulk +shared::cluster +shared::cta | [d]=write/1/n [a]=read/2/n n [mbar] | copy
cp.async.bulk +global +shared::cta -cp_mask | [d]=write/1/n [a]=read/2/n n policy | copy
cp.async.bulk +global +shared::cta +cp_mask | [d]=update/1/n [a]=read/2/n n policy mask | copy
cp.async.bulk.prefetch                      | [a]=prefetch/1/n n policy          | async_copy | side
cp.async.bulk.commit_group                  |                                    | async_copy | side
cp.async.bulk.wait_group                    | i                                  | async_copy | side
cp.reduce.async.bulk +shared::cluster +shared::cta | [d]=reduce/1/n [a]=read/2/n n [mbar] | copy
cp.reduce.async.bulk +global +shared::cta   | [d]=reduce/1/n [a]=read/2/n n policy | copy
multimem.cp.async.bulk -cp_mask             | [d]=write/1/n [a]=read/2/n n       | copy
multimem.cp.async.bulk +cp_mask             | [d]=update/1/n [a]=read/2/n n mask | copy
multimem.cp.reduce.async.bulk               | [d]=reduce/1/n [a]=read/2/n n      | copy

# 9.7.9.27.1 tensor copies; `off` are im2col offsets; stores leave out what is outside the tensor
cp.async.bulk.tensor +shared::cluster +global | [d]=write/1/box [map] [mbar] off ctas policy | copy
cp.async.bulk.tensor +shared::cta +global | [d]=write/1/box [map] [mbar] off policy | copy
cp.async.bulk.tensor +global +shared::cta | [map]=update/1/box [a]=read/2/box policy | copy
cp.reduce.async.bulk.tensor               | [map]=reduce/1/box [a]=read/2/box policy | copy
applypriority.async.bulk                  | [a]=prefetch/1/n n                   | async_copy | side
applypriority.async.bulk.tensor           | [map]=prefetch/global/box off        | async_copy | side
cp.async.bulk.prefetch.tensor             | [map]=prefetch/global/box off policy | async_copy | side
"""

FORMS = """
applypriority.async | * |
cp.async    | ca/cg shared/shared::cta global [L2::cache_hint] [@ahead] |
cp.async.commit_group |  |
cp.async.wait_all |  |
cp.async.wait_group |  |
cp.async.mbarrier.arrive | [noinc] [shared/shared::cta] b64 |
cp.async.bulk | * |
cp.reduce   | * |
multimem    | * |
"""
