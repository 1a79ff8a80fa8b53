"""State stores on real services, SeaweedFS and PostgreSQL: the contract, wrong secrets, and bad connections."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.state_store import chosen_store
from jobs.clients.state_store.chosen_store import (
    own_store,
    remove_store,
    shared_store,
    store_is_there,
)
from jobs.clients.state_store.shared_store import SharedStore
from jobs.clients.state_store.store import NotWrittenError
from jobs.clients.state_store.store_proof import StoreRefusedError, prove_store
from jobs.config.services.services import StateSettings
from jobs.config.settings.settings import Settings
from jobs.streaming.driver.batch.retry import is_unavailable
from orchestration.cli.stream_files.validate.catalog_checks import check_state
from tests.helpers.database_server import PASSWORD, DatabaseServer
from tests.helpers.faulty_proxy import Fault, FaultyProxy, faulty_proxy
from tests.helpers.object_server import SECRET, ObjectServer
from tests.helpers.services import database_state, new_state, new_store, objects_state
from tests.helpers.store_contract import StoreContract
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("objects", "database")


@pytest.fixture(params=SERVICES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SharedStore:
    return new_store(request, tmp_path / "state")


class TestStore(StoreContract):
    # Their service replaces an object, or a row, as a whole.
    test_nobody_reads_half_a_document = None  # pyright: ignore[reportAssignmentType]


@pytest.mark.parametrize("request_of", SERVICES)
def test_an_own_store_is_made_beside_and_removed_as_a_whole(
    request: pytest.FixtureRequest, request_of: str, tmp_path: Path
) -> None:
    server = request.getfixturevalue(request_of)
    users = objects_state(server) if request_of == "objects" else database_state(server)
    theirs = shared_store(users, tmp_path / "theirs")
    theirs.put("streams/a/launch.json", b"theirs")
    own = own_store(users, "frazil_certify_test", tmp_path / "own")
    assert not store_is_there(own)
    assert not store_is_there(own), "asking makes nothing"
    store = shared_store(own, tmp_path / "own")
    store.put("streams/a/launch.json", b"own")
    store.below("streams/a/deeper").put("lease.json", b"own")
    assert store_is_there(own)
    assert theirs.get("streams/a/launch.json") == b"theirs"
    assert theirs.keys("streams/*/launch.json") == ["streams/a/launch.json"]
    remove_store(own)
    assert not store_is_there(own)
    remove_store(own)
    assert theirs.get("streams/a/launch.json") == b"theirs"


@pytest.fixture
def state(request: pytest.FixtureRequest) -> StateSettings:
    return new_state(request)


@pytest.mark.parametrize("state", SERVICES, indirect=True)
def test_a_real_store_is_proven_and_says_where_it_is_without_secrets(state: StateSettings, tmp_path: Path) -> None:
    store = shared_store(state, tmp_path)
    prove_store(store)
    assert store.keys("probes/*") == []
    documents = chosen_store.documents_of(state)
    shown = f"{state!r} {state.model_dump()} {store.place('a/b.json')} {documents!r} {vars(documents)!r}"
    assert "a/b.json" in shown and SECRET not in shown and PASSWORD not in shown


@pytest.mark.parametrize("state", SERVICES, indirect=True)
def test_a_wrong_secret_is_an_error_and_nothing_to_wait_for(
    state: StateSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("FRAZIL_TEST_S3_SECRET", "FRAZIL_TEST_PASSWORD"):
        monkeypatch.setenv(variable, "mistaken")
    store = shared_store(state, tmp_path)
    with pytest.raises(StoreRefusedError, match="The state store refuses what is asked of it: ") as refused:
        prove_store(store)
    assert "mistaken" not in str(refused.value)
    with pytest.raises(NotWrittenError):
        store.put("control.json", b"{}")


def test_a_bucket_that_does_not_exist_is_named(objects: ObjectServer, tmp_path: Path) -> None:
    state = objects_state(objects).model_copy(update={"store": "s3://no-such-bucket/state"})
    with pytest.raises(FrazilError, match="s3://no-such-bucket/state: NoSuchBucket"):
        prove_store(shared_store(state, tmp_path))


@pytest.mark.parametrize("state", SERVICES, indirect=True)
def test_frazil_validate_tries_the_store(state: StateSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Settings.embedded(tmp_path).model_copy(update={"state_store": state})
    (found,) = check_state(chosen)
    assert (found.subject, found.verdict) == ("state", "ok") and "keeps conditions of writes" in found.sentence
    monkeypatch.setenv("FRAZIL_TEST_S3_SECRET", "mistaken")
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", "mistaken")
    other = state.model_copy(update={"timeout": timedelta(seconds=4)})
    (found,) = check_state(chosen.model_copy(update={"state_store": other}))
    assert (found.verdict, found.fix) == (
        "wrong",
        "check state.store, its properties and its rights in frazil.yaml, then run `frazil validate`",
    )
    nobody = state.model_copy(
        update={"store": "postgresql://me@127.0.0.1:1/ops"}
        if state.kind == "postgresql"
        else {"properties": {**state.properties, "s3.endpoint": "http://127.0.0.1:1"}}
    )
    (found,) = check_state(chosen.model_copy(update={"state_store": nobody}))
    assert found.verdict == "unchecked" and found.sentence.startswith("the state store cannot be reached: ")


def test_a_secret_in_the_url_works_as_in_an_earlier_release_and_is_told_nowhere(
    database: DatabaseServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"{database.url}?sslmode=prefer&sslpassword=hunter%2F2"
    state = database_state(database, url=url)
    documents = chosen_store.documents_of(state)
    assert state.revealed()["sslpassword"] == "hunter/2"
    prove_store(shared_store(state, tmp_path))
    (found,) = check_state(Settings.embedded(tmp_path).model_copy(update={"state_store": state}))
    assert found.verdict == "ok"
    gone = database_state(database, url=url.replace("/postgres?", "/nowhere?"))
    with pytest.raises(OSError, match="nowhere") as refused:
        chosen_store.documents_of(gone).read("launch.json")
    shown = f"{state!r} {vars(documents)!r} {documents.place('a')} {found} {refused.value!r} {capfd.readouterr()}"
    assert "hunter" not in shown


@pytest.fixture
def objects_proxy(objects: ObjectServer) -> Iterator[FaultyProxy]:
    with faulty_proxy(objects.port) as proxy:
        yield proxy


@pytest.fixture
def database_proxy(database: DatabaseServer) -> Iterator[FaultyProxy]:
    with faulty_proxy(database.port) as proxy:
        yield proxy


@pytest.fixture
def behind(objects: ObjectServer, objects_proxy: FaultyProxy, tmp_path: Path) -> tuple[SharedStore, FaultyProxy]:
    state = objects_state(objects, endpoint=f"http://127.0.0.1:{objects_proxy.port}", timeout="1s")
    return shared_store(state, tmp_path), objects_proxy


@pytest.mark.parametrize("fault", ["cut", "twice", "refused", "409"])
def test_a_put_over_a_bad_connection_is_done_once(behind: tuple[SharedStore, FaultyProxy], fault: Fault) -> None:
    store, proxy = behind
    for number, write in enumerate(
        (
            lambda: store.create_if_absent("launch.json", b"0"),
            lambda: store.replace_if_unchanged("launch.json", b"0", b"1"),
            lambda: store.put("launch.json", b"2") is None,
        )
    ):
        proxy.arm(fault, only=b"PUT ")
        assert write()
        assert proxy.times == 0
        assert store.get("launch.json") == str(number).encode()
    proxy.arm(fault, only=b"PUT ")
    assert not store.create_if_absent("launch.json", b"3")


def test_a_store_that_does_not_answer_leaves_it_open_whether_it_has_written(
    behind: tuple[SharedStore, FaultyProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, proxy = behind
    monkeypatch.setattr("jobs.clients.state_store.shared_store.RETRY_SECONDS", 0.0)
    proxy.arm("silent", 1, b"PUT ")
    with pytest.raises(OSError, match="may have been written nevertheless") as unclear:
        store.put("launch.json", b"1")
    assert not isinstance(unclear.value, NotWrittenError)
    proxy.arm("refused", 99, b"GET ")
    with pytest.raises(NotWrittenError):
        store.put("launch.json", b"1")
    proxy.arm("", 0)
    assert store.get("launch.json") is None


def test_a_database_whose_connections_are_cut_writes_once(
    database: DatabaseServer, database_proxy: FaultyProxy, tmp_path: Path
) -> None:
    url = database.url.replace(str(database.port), str(database_proxy.port))
    store = shared_store(database_state(database, url=url, timeout="1s"), tmp_path)
    assert store.create_if_absent("launch.json", b"0")
    for number, write in enumerate(
        (
            lambda: store.replace_if_unchanged("launch.json", b"0", b"1"),
            lambda: store.create_if_absent("control.json", b"1"),
        ),
        start=1,
    ):
        database_proxy.arm("cut", only=b"RETURNING")
        assert write()
        assert database_proxy.times == 0
        assert store.get("launch.json") == b"1", number
    database_proxy.arm("silent", only=b"RETURNING")
    assert store.replace_if_unchanged("launch.json", b"1", b"2")


def test_a_process_closes_its_connections_to_a_database_and_may_have_many_files_open(
    database: DatabaseServer, tmp_path: Path
) -> None:
    chosen = database_state(database).model_dump_json()
    program = """
        import os, resource, sys
        from pathlib import Path
        from jobs.config.services.services import StateSettings
        from jobs.clients.state_store.chosen_store import shared_store
        resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
        kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        store = shared_store(StateSettings.model_validate_json(sys.argv[1]), Path(sys.argv[2]))
        store.put("launch.json", b"1")
        assert store.get("launch.json") == b"1"
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program), chosen, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_database_that_is_stuck_is_waited_for_no_longer_than_asked(database: DatabaseServer, tmp_path: Path) -> None:
    store = shared_store(database_state(database, timeout="1s"), tmp_path)
    store.put("launch.json", b"1")
    # Its processes for connections are children of the first.
    children = Path(f"/proc/{database.pid}/task/{database.pid}/children")
    if not children.exists():
        pytest.skip("needs Linux to find the server's processes")
    stopped = [database.pid, *map(int, children.read_text().split())]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        with pytest.raises(OSError, match="postgresql://127"):
            store.get("launch.json")
        assert time.monotonic() - begun < 60, "it would hang for as long as the database does"
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    wait_for(lambda: _reads(store), "it to answer again")


def test_a_database_that_gives_up_each_statement_is_one_to_wait_for(
    database: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under locks or overload: it cancels what takes longer than `timeout` allows, and says so."""
    import psycopg

    monkeypatch.setattr("jobs.clients.state_store.shared_store.RETRY_SECONDS", 0.0)
    monkeypatch.setattr("jobs.clients.state_store.shared_store.READ_SECONDS", 0.0)
    # The server gives up a fifth of it before the client does.
    chosen = database_state(database, timeout="2s")
    store = shared_store(chosen, tmp_path)
    store.put("launch.json", b"1")
    with psycopg.connect(database.url, password=PASSWORD) as other:
        other.execute(f'LOCK TABLE "{chosen.properties["table"]}" IN ACCESS EXCLUSIVE MODE'.encode())
        for ask in (
            lambda: store.put("launch.json", b"2"),
            lambda: store.put("launch.json", b"2", durable=False),
            lambda: store.get("launch.json"),
            lambda: prove_store(store),
        ):
            with pytest.raises(OSError, match="canceling statement due to statement timeout") as given_up:
                ask()
            assert is_unavailable(given_up.value)
    assert store.get("launch.json") == b"1"


def _reads(store: SharedStore) -> bool:
    try:
        return store.get("launch.json") == b"1"
    except OSError:
        return False
