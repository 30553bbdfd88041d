"""The bytes that a kernel touches in one launch, found by running its reduced code for all threads.

In: a kernel cut down by `kernel_facts.kernel_code`, and a launch. Out: the bytes that each access
touches, thread by thread. `footprint` is the entry point. Imported by `passes.dependences`.
"""
