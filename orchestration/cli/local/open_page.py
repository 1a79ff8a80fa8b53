"""`frazil open`: a stream's page in Dagster."""

from __future__ import annotations

import webbrowser
from urllib.parse import quote

import click
import requests

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from orchestration.cli.common.terminal import print_json
from orchestration.cli.local.dev.services import recorded_url
from resources.deployment import Deployment

URL_VARIABLE = "FRAZIL_DAGSTER_URL"
_ANSWER_SECONDS = 5.0


@click.command()
@click.argument("stream")
@click.option("--print", "only_print", is_flag=True, help="Print the address and open nothing.")
@click.option(
    "--url",
    envvar=URL_VARIABLE,
    metavar="URL",
    help=f"Address of Dagster, also as {URL_VARIABLE}.  [default: that of the running `frazil dev`]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON and open nothing.")
@click.pass_obj
def open(  # noqa: A001 - the command's name
    deployment: Deployment, stream: str, only_print: bool, url: str | None, as_json: bool
) -> None:
    """Print the address of STREAM's page in Dagster, and open it in the browser."""
    spec, settings = deployment.stream(stream), deployment.settings()
    page = page_of(url or running_dagster(deployment, stream), spec, settings)
    if as_json:
        print_json({"stream": stream, "url": page})
        return
    click.echo(page)
    if not only_print and not webbrowser.open(page):
        click.echo("No browser was found on this machine.", err=True)


def page_of(dagster: str, spec: StreamSpec, settings: Settings) -> str:
    """Address of the page of a stream's main table.

    Args:
        dagster: Address of Dagster's web UI.
        spec: The stream.
        settings: Settings of the deployment: the asset's key begins with the catalog's name.
    """
    key = [settings.catalog.name, *spec.table.name.split(".")]
    return f"{dagster.rstrip('/')}/assets/{'/'.join(quote(part, safe='') for part in key)}"


def running_dagster(deployment: Deployment, stream: str) -> str:
    """Address of the Dagster that `frazil dev` runs on this deployment.

    Raises:
        FrazilError: Dagster does not run, or does not answer.
    """
    home = deployment.embedded / "dagster"
    other = f"frazil open {stream} --url https://HOST, or {URL_VARIABLE}, for a Dagster elsewhere"
    url = recorded_url(home)
    if url is None:
        raise FrazilError(
            f"Dagster does not run on the deployment in {deployment.home}.", fix=f"frazil dev; or {other}"
        )
    try:
        answer = requests.get(f"{url}/server_info", timeout=_ANSWER_SECONDS)
        if "dagster_webserver_version" in answer.json():
            return url
        problem = f"HTTP status {answer.status_code}"
    except (requests.RequestException, ValueError) as error:
        problem = type(error).__name__
    raise FrazilError(
        f"Dagster does not answer at {url} ({problem}).",
        fix=f"wait until `frazil dev` is ready, or read {home}/webserver.log",
    )
