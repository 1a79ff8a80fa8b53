"""Former names of programs, which deployments of earlier releases start; nothing else."""
