"""Certificate on services that machines share, started here: `python -m bench.certify [OPTIONS] -- [frazil certify's]`.

Starts Kafka, a catalog, S3, PostgreSQL and, with `--workers`, a standalone cluster of Spark (bench/services.py), and
runs `frazil certify --settings` on them; what stands behind `--` goes to that. In the end the bucket and the database
must have nothing more of the certificate. The exit status is that of the certificate, or 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.services import shared_deployment

ROOT = Path(__file__).resolve().parents[1]
# As frazil sets Spark itself for drivers of a certificate, which live for seconds.
SPARK = {"master": "local[2]", "driver_memory": "600m", "conf": {"spark.ui.enabled": "false"}}


def main() -> int:
    """Run the certificate; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", choices=["rest", "postgresql"], default="rest")
    parser.add_argument("--state", choices=["postgresql", "s3", "folder"], default="postgresql")
    parser.add_argument("--workers", type=int, default=0, help="of a standalone cluster; without, drivers are local[2]")
    parser.add_argument("--report", type=Path, default=Path(".frazil/certificates"), help="folder of the reports")
    parser.add_argument("certify", nargs="*", help="options of frazil certify, behind --")
    given = parser.parse_args()
    report = given.report.absolute()
    with (
        tempfile.TemporaryDirectory(prefix="frazil-certify-") as folder,
        shared_deployment(
            Path(folder), catalog=given.catalog, state=given.state, workers=given.workers, spark=SPARK
        ) as deployment,
    ):
        command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(deployment.home)]
        command += ["certify", "--settings", str(deployment.settings_file), "--report", str(report), *given.certify]
        status = subprocess.run(command, cwd=ROOT, env=deployment.environment, check=False).returncode
        left = deployment.left("frazil_certify_")
        for each in left:
            print(f"left behind: {each}", file=sys.stderr)
    return status or int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
