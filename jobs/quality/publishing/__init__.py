"""Write-audit-publish: a branch's snapshots to main, once."""
