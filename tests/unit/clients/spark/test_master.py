"""Which masters are local, which hosts a standalone one names, and what is reported of one that is away."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.base.system.ports import free_ports
from jobs.clients.spark.master import (
    MasterUnavailableError,
    driver_out_of_reach,
    is_local,
    not_accepted,
    require_master,
    standalone_addresses,
)
from jobs.config.settings.settings import Settings


def on(home: Path, master: str, **conf: str) -> Settings:
    settings = Settings.embedded(home)
    given = {f"spark.{key.replace('_', '.')}": value for key, value in conf.items()}
    return settings.model_copy(update={"spark": settings.spark.model_copy(update={"master": master, "conf": given})})


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*, 3]", True),
        # Executors of their own, as on any cluster.
        ("local-cluster[2,1,1024]", False),
        ("spark://one:7077", False),
        ("yarn", False),
        ("k8s://https://one:6443", False),
    ],
)
def test_only_tasks_within_the_driver_are_local(master: str, local: bool) -> None:
    assert is_local(master) is local


@pytest.mark.parametrize(
    ("master", "addresses"),
    [
        ("spark://one:7077", [("one", 7077)]),
        ("spark://one", [("one", 7077)]),
        ("spark://one:7077,two:7078", [("one", 7077), ("two", 7078)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("yarn", []),
        ("local[2]", []),
    ],
)
def test_a_standalone_master_names_its_hosts(master: str, addresses: list[tuple[str, int]]) -> None:
    assert standalone_addresses(master) == addresses


@pytest.mark.parametrize("master", ["spark://", "spark://one:x", "spark://one:70777", "spark://one:1:2", "spark://a,"])
def test_what_cannot_be_read_is_refused(master: str) -> None:
    with pytest.raises(FrazilError, match=r"is not spark://HOST:PORT"):
        standalone_addresses(master)


def test_a_master_that_is_away_is_named(tmp_path: Path) -> None:
    first, second = free_ports(2)
    with pytest.raises(MasterUnavailableError) as told:
        require_master(on(tmp_path, f"spark://127.0.0.1:{first},127.0.0.1:{second}"))
    assert told.value.message == (
        f"Spark's master does not answer at 127.0.0.1:{first}: Connection refused; "
        f"127.0.0.1:{second}: Connection refused."
    )


def test_one_of_several_is_enough_and_others_are_not_asked(tmp_path: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        (away,) = free_ports(1)
        require_master(on(tmp_path, f"spark://127.0.0.1:{away},127.0.0.1:{listening.getsockname()[1]}"))
    for master in ("local[2]", "yarn"):
        require_master(on(tmp_path, master))


@pytest.mark.parametrize(
    ("master", "host", "reached"),
    [
        ("local[2]", None, True),
        ("spark://127.0.0.1:7077", None, True),
        ("spark://localhost:7077", "localhost", True),
        ("spark://master:7077", None, False),
        ("spark://master:7077", "127.0.0.1", False),
        ("spark://master:7077", "10.1.2.3", True),
        ("spark://master:7077", "driver.internal", True),
        ("spark://127.0.0.1:7077,master:7077", None, False),
        ("yarn", None, False),
        ("k8s://https://one:6443", "driver.internal", True),
    ],
)
def test_executors_elsewhere_do_not_find_a_driver_at_127_0_0_1(
    tmp_path: Path, master: str, host: str | None, reached: bool
) -> None:
    conf = {} if host is None else {"driver_host": host}
    assert (driver_out_of_reach(on(tmp_path, master, **conf)) is None) is reached


def test_a_master_that_accepts_no_application_is_said_to_be_one() -> None:
    said = "An error occurred\n: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nThis"
    problem = not_accepted("spark://one:7077", said)
    assert problem is not None
    assert problem.message == "Spark's master spark://one:7077 listens, and did not accept the application."
    assert not_accepted("local[2]", said) is None
    assert not_accepted("spark://one:7077", "java.lang.IllegalArgumentException: Executor memory") is None
