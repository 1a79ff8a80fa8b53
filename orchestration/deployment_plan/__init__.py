"""Plan of a deployment: what its files would change against what is live, in classes, and what carries it out."""
