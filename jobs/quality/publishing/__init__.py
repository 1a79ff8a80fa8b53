"""Write-audit-publish: moves a branch's snapshots to main, once."""
