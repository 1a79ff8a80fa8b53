"""Manifest of a driver's pod."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.base.errors import FrazilError
from jobs.streaming.supervision.launchers.kubernetes import KubernetesPods
from jobs.streaming.supervision.launchers.pod_manifest import overlaid, pod_name
from tests.unit.streaming.supervision.launchers.orders import order, settings_with

HANDLE = "lake/frazil-orders-3-abc123"


def manifest(folder: Path, label: str = "orders", **chosen: Any) -> dict[str, Any]:
    own = {"image": "registry.example.com/frazil:1", "namespace": "lake"} | chosen
    drivers = {"launcher": "kubernetes", "home": "/srv/lake", "environment": {"TZ": "UTC"}, "kubernetes": own}
    return KubernetesPods(settings_with(folder, drivers)).manifest(order(folder, label, handle=HANDLE))


def test_a_pod_is_started_once_and_by_nobody_else(tmp_path: Path) -> None:
    pod = manifest(tmp_path, env_from=["frazil"], service_account="frazil", resources={"requests": {"memory": "2Gi"}})
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    assert pod["metadata"]["name"] == "frazil-orders-3-abc123"
    assert pod["metadata"]["labels"]["frazil/stream"] == "orders"
    spec = pod["spec"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Never", 120)
    assert spec["serviceAccountName"] == "frazil"
    (container,) = spec["containers"]
    assert container["command"] == ["tini", "--", "python"]
    assert container["args"] == [
        *("-m", "jobs.streaming.driver.main", "--home", "/srv/lake", "--stream", "orders", "--attempt", "3")
    ]
    assert container["envFrom"] == [{"secretRef": {"name": "frazil"}}]
    assert container["resources"] == {"requests": {"memory": "2Gi"}}
    assert container["env"][-1] == {
        "name": "FRAZIL_POD_IP",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
    }
    env = {each["name"]: each["value"] for each in container["env"][:-1]}
    assert env == {
        "TZ": "UTC",
        "FRAZIL_KEEPER": "off",
        "FRAZIL_HOME": "/srv/lake",
        "FRAZIL_LAUNCHER": "kubernetes",
        "FRAZIL_DRIVER_HANDLE": HANDLE,
        "FRAZIL_DRIVER": "orders:3",
    }


def test_a_group_has_a_pod_of_its_own(tmp_path: Path) -> None:
    pod = manifest(tmp_path, "group:small")
    assert pod["metadata"]["labels"]["frazil/group"] == "small"
    assert pod["spec"]["containers"][0]["args"][1:6] == [
        "jobs.streaming.groups.main",
        "--home",
        "/srv/lake",
        "--group",
        "small",
    ]


def test_an_overlay_is_laid_over_it(tmp_path: Path) -> None:
    pod = manifest(
        tmp_path,
        pod={
            "metadata": {"labels": {"team": "payments"}},
            "spec": {
                "nodeSelector": {"pool": "streams"},
                "containers": [
                    {"name": "frazil", "volumeMounts": [{"name": "settings", "mountPath": "/srv/lake/frazil.yaml"}]},
                    {"name": "proxy", "image": "proxy:1"},
                ],
            },
        },
    )
    assert pod["metadata"]["labels"]["team"] == "payments"
    assert pod["metadata"]["labels"]["frazil/stream"] == "orders"
    frazil, proxy = pod["spec"]["containers"]
    assert frazil["image"] == "registry.example.com/frazil:1"
    assert frazil["volumeMounts"][0]["name"] == "settings"
    assert proxy["image"] == "proxy:1"
    assert pod["spec"]["nodeSelector"] == {"pool": "streams"}


@pytest.mark.parametrize(
    ("overlay", "named"),
    [
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy"),
        ({"metadata": {"name": "mine"}}, "metadata.name"),
        ({"kind": "Job"}, "kind"),
    ],
)
def test_an_overlay_cannot_make_it_another_thing(tmp_path: Path, overlay: dict[str, Any], named: str) -> None:
    with pytest.raises(FrazilError, match=f"must not change {re.escape(named)}"):
        manifest(tmp_path, pod=overlay)


@given(st.from_regex(r"(group:)?[a-z][a-z0-9_-]{0,62}", fullmatch=True), st.integers(1, 10**6))
def test_every_stream_has_a_name_that_kubernetes_takes(label: str, attempt: int) -> None:
    name = pod_name(label, attempt, "abc123")
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name)
    assert name.endswith(f"-{attempt}-abc123")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda part: st.dictionaries(st.sampled_from(["name", "a", "b"]), part, max_size=3) | st.lists(part, max_size=2),
    max_leaves=8,
)


@given(JSON, JSON)
def test_what_is_laid_over_wins_and_all_else_stays(base: Any, over: Any) -> None:
    result = overlaid(base, over)
    if isinstance(base, dict) and isinstance(over, dict):
        assert result.keys() == base.keys() | over.keys()
        for key in result:
            assert result[key] == (
                overlaid(base[key], over[key]) if key in base and key in over else (base | over)[key]
            )
    elif not (isinstance(base, list) and isinstance(over, list)):
        assert result == over
    assert overlaid(base, {} if isinstance(base, dict) else base) == base or isinstance(base, list)
