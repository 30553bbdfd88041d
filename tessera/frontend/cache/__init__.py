"""What was read and analysed before, on disk, found by content. Imported by `driver`."""
