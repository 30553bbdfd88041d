"""What a kernel touches in one launch: its reduced code, run over all threads.

In: a kernel cut down by `kernel_facts.kernel_code`, and a launch. Out: the bytes that each
access touches, thread by thread. `footprint` is the way in. Imported by `passes.dependences`.
"""
