"""The commit protocol: stamps, claims, recovery, operators' answers."""
