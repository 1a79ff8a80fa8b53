"""When Dagster is asked to load changed files, and what is said where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, ManagedGrpcPythonEnvCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from jobs.base.system.ports import free_ports
from orchestration.definitions import build_definitions
from orchestration.reconcile.cursor import SensorCursor
from orchestration.reconcile.definitions_reload import AGAIN_SECONDS, DefinitionsReload, definitions_code
from orchestration.reconcile.stream_files import read_files
from resources.deployment import Deployment
from tests.unit.orchestration.reconcile.sample_states import NOW
from tests.unit.orchestration.reconcile.supervised_deployment import World, values

LOADING = "Dagster loads the streams' files, which have changed."
SOON = "The streams' files have changed; Dagster loads them in a moment."


def code_now(deployment: Deployment) -> int:
    files = read_files(deployment)
    return definitions_code(files.specs.values(), files.errors, deployment.settings())


class Loaded:
    """A process that has loaded the definitions of a world as it is now, and the sensor's memory."""

    def __init__(self, world: World, build: Callable[[Deployment], dg.Definitions] = build_definitions) -> None:
        self.world: World = world
        self.reload: DefinitionsReload = DefinitionsReload(code_now(world.deployment), build)
        self.memory: SensorCursor = SensorCursor.from_cursor(None)
        # Where nobody listens.
        self.origin: Any = GrpcServerCodeLocationOrigin("127.0.0.1", free_ports(1)[0])

    def look(self, at: float = NOW) -> str:
        """What a tick says, once a reload that it has begun has come to its end."""
        said = self.reload.look(self.world.deployment, self.memory, self.origin, 5, at)
        assert self.reload.wait(60)
        return said


@pytest.fixture
def loaded(orders: World) -> Loaded:
    return Loaded(orders)


def test_nothing_is_said_while_files_are_as_loaded(loaded: Loaded) -> None:
    assert loaded.look() == ""
    file = loaded.world.file("orders")
    file.write_text(f"# Read by nobody.\n{file.read_text()}")
    assert (loaded.look(), loaded.look()) == ("", "")


CHANGES: dict[str, Callable[[World], object]] = {
    "a stream comes": lambda world: world.write("refunds"),
    "a stream goes": lambda world: (
        world.file("orders").rename(world.file("orders").with_suffix(".off")) and world.write("refunds")
    ),
    "a description": lambda world: _replaced(world, "Card payments.", "All payments."),
    "an owner": lambda world: _replaced(world, "team:payments", "team:lake"),
    "a freshness policy": lambda world: _replaced(world, "fail: 15m", "fail: 20m"),
    "a file breaks": lambda world: _replaced(world, "decode:", "decod:"),
    "the catalog's name": lambda world: (world.deployment.home / "frazil.yaml").write_text(
        "catalog: {name: lake, properties: {type: rest, uri: 'http://127.0.0.1:1'}}\n"
    ),
    "the first target of alerts": lambda world: (world.deployment.home / "frazil.yaml").write_text(
        "alerts: {targets: [{webhook: {url: 'http://127.0.0.1:1'}}]}\n"
    ),
}


def _replaced(world: World, old: str, new: str) -> None:
    text = world.file("orders").read_text()
    assert old in text
    world.file("orders").write_text(text.replace(old, new))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_loaded_once_it_has_stayed_for_a_tick(loaded: Loaded, change: Callable[[World], object]) -> None:
    assert loaded.look() == ""
    change(loaded.world)
    assert (loaded.look(), loaded.look()) == (SOON, LOADING)
    assert "does not load them" in loaded.look(NOW + 10), "Dagster would have taken them"
    # The process that has loaded them says nothing any more.
    after = Loaded(loaded.world)
    after.memory = loaded.memory
    assert after.look() == ""
    assert (after.memory.files, after.memory.reloaded_at) == (0, 0)


def test_a_file_that_goes_on_changing_is_not_loaded_before_it_rests(loaded: Loaded) -> None:
    for number in range(5):
        loaded.world.write("refunds", f"slo: {{lag_records: {number + 1}}}\n")
        assert loaded.look() == SOON
    assert loaded.look() == LOADING


def test_a_code_server_that_does_not_answer_is_named_and_asked_again_after_a_while(loaded: Loaded) -> None:
    loaded.world.write("refunds")
    assert (loaded.look(), loaded.look()) == (SOON, LOADING)
    problem = loaded.look(NOW + 10)
    assert f"Dagster's code server at 127.0.0.1:{loaded.origin.port} does not load them" in problem
    assert problem.endswith("Next: restart it, as `dagster code-server start`")
    assert loaded.look(NOW + AGAIN_SECONDS - 1) == problem
    assert loaded.look(NOW + AGAIN_SECONDS) == LOADING


def test_definitions_that_dagster_would_refuse_replace_none(orders: World) -> None:
    def refused(deployment: Deployment) -> dg.Definitions:
        return dg.Definitions(jobs=[dg.define_asset_job("twice", "a"), dg.define_asset_job("twice", "b")])

    loaded = Loaded(orders, refused)
    orders.write("refunds")
    assert (loaded.look(), loaded.look()) == (SOON, LOADING)
    assert loaded.look(NOW + 10).startswith("Dagster cannot load the streams' files, and goes on with earlier ones: ")
    assert "Duplicate" in loaded.look(NOW + 10)


def test_services_that_load_for_themselves_are_told_apart(loaded: Loaded) -> None:
    loaded.origin = ManagedGrpcPythonEnvCodeLocationOrigin(LoadableTargetOrigin(module_name="x"), "frazil")
    loaded.world.write("refunds")
    assert loaded.look() == SOON
    assert loaded.look().endswith("Next: click `Reload definitions` on the page Deployment; or let both use one "
                                  "`dagster code-server`.")  # fmt: skip


def test_a_folder_or_settings_that_are_away_take_no_page_away(loaded: Loaded) -> None:
    folder = loaded.world.deployment.streams_folder
    folder.rename(folder.with_name("away"))
    assert (loaded.look(), loaded.look()) == ("", "")
    folder.with_name("away").rename(folder)
    (loaded.world.deployment.home / "frazil.yaml").write_text("kafak: {}\n")
    assert (loaded.look(), loaded.look()) == ("", "")


def test_what_is_said_stands_in_the_tick_and_in_the_overview(orders: World) -> None:
    from jobs.base.system.boot import boot_clock
    from orchestration.sensors.reconcile import run_reconcile_tick

    said = "Dagster does not load them."
    tick = run_reconcile_tick(
        orders.deployment, orders.catalog, orders.kafka, orders.memory, {}, lambda _: {}, NOW, boot_clock(), said
    )
    assert tick.sentence.splitlines()[-1] == said
    (supervisor,) = [each for each in tick.events if each.asset_key.path == ["frazil", "supervisor"]]
    assert values(supervisor)["definitions"] == said
