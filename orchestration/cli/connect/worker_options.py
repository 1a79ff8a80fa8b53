"""Options with the login at a Kafka Connect worker, shared by the commands that ask one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from jobs.base.errors import FrazilError
from jobs.config.documents.secrets import Secret
from jobs.migration.connect_worker import WorkerLogin

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def worker_login_options() -> Callable[[Decorated], Decorated]:
    """The options `--connect-user`, `--connect-password` and `--connect-ca`, as arguments of these names."""
    options = (
        click.option("--connect-user", metavar="USER", help="User of the worker's basic authentication."),
        click.option(
            "--connect-password",
            metavar="REF",
            help="Its password as a reference, '${env:NAME}'. Without a user, it is a bearer token.",
        ),
        click.option(
            "--connect-ca",
            type=click.Path(dir_okay=False, exists=True, path_type=Path),
            help="PEM file of the authorities that sign the worker's certificate.",
        ),
    )

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def worker_login(user: str | None, password: str | None, ca: Path | None) -> WorkerLogin:
    """Login from the values of these options.

    Raises:
        FrazilError: The password stands in the clear, or a user has none.
    """
    secret = None
    if password is not None:
        try:
            secret = Secret(password)
        except ValueError:
            # The value is not repeated: it may be the password itself.
            raise FrazilError(
                "--connect-password takes a reference, because a list of processes shows arguments.",
                fix="read -rs CONNECT_PASSWORD && export CONNECT_PASSWORD; then "
                "--connect-password '${env:CONNECT_PASSWORD}'",
            ) from None
    if user is not None and secret is None:
        raise FrazilError("--connect-user needs --connect-password.", fix="add --connect-password '${env:NAME}'")
    return WorkerLogin(user, secret, ca)
