"""Model folders as the transformers library writes them, as plans that an engine serves.

In: a folder and its options. Out: a plan file, kept in the cache folder, and where its weights are.
`prepare_folder` is the way in. Imported by `cli`.
"""
