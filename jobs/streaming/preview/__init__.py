"""Records through a stream's task into nothing."""
