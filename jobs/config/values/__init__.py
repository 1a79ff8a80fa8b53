"""Models of values that several blocks of a stream's file share: formats, columns, partitions, masks."""
