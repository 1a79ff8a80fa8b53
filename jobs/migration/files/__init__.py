"""Files that an import writes: streams, settings and the report, beside what people have changed."""
