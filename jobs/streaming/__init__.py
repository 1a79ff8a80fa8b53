"""Records of a stream to its tables: pipeline, tasks, driver, supervision."""
